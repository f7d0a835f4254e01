"""Policy evaluation: the rule that applies to a call, and the reason.

    A rule that denies wins over all others.
    A rule wins over another if it has all its conditions and more, or more exact ones (`outranks`).
    Of the remaining rules the strictest applies: asking before AUTO, AUTO before running.
    If no rule matches, the default applies.

Only another rule of the operator's file outranks one that names approvers there: otherwise an admin could bypass them
with a rule for one channel.

An uncertain match (`RuleMatch.PERHAPS`) can only make the result stricter: rules that deny or ask apply but outrank
none; rules that let run do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.domain.approval_requirements import NO_TERMS, strictest
from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import OverruledRule, PolicyResult, Rule, StoredPolicyResult
from bot.domain.policy_syntax import describe_rule
from bot.domain.tools import Tool
from bot.engine.rule_matching import PolicyRequest, RuleMatch, first_mismatch, match_rule, outranks

STRICTEST_FIRST = (
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.AUTO,
    ApprovalPolicy.ALWAYS_ALLOW,
)
_RESTRICTIVE = (ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER)
_DENIED = "A rule that denies wins over all others."
_DEFAULT = "No rule matches this call; the default applies."
_ONLY_RULE = "It is the only rule that matches this call."
_SPECIFIC = "It is more specific than the other rules that match this call."
_STRICTEST = "It is the strictest of the most specific rules."

Reviewed = Callable[[Tool], bool]
"""Return True if the tool's definition is pinned (`bot.domain.pins`)."""
_Resolve = Callable[[ApprovalPolicy], ApprovalPolicy]
"""Resolve AUTO to another policy."""


def nothing_reviewed(tool: Tool) -> bool:  # noqa: ARG001 - a Reviewed
    """Return False: AUTO asks."""
    return False


def evaluate(
    rules: Sequence[Rule], case: PolicyRequest, default: ApprovalPolicy, reviewed: Reviewed = nothing_reviewed
) -> PolicyResult:
    """Return the policy for a call, with its reason and the overruled rules."""

    def resolve(policy: ApprovalPolicy) -> ApprovalPolicy:
        return _resolve(policy, case.tool, reviewed)[0]

    fits = [(rule, match_rule(rule, case)) for rule in rules]
    sure = [rule for rule, match_ in fits if match_ is RuleMatch.YES]
    matching = [
        rule
        for rule, match_ in fits
        if match_ is RuleMatch.YES or (match_ is RuleMatch.PERHAPS and resolve(rule.policy) in _RESTRICTIVE)
    ]
    denials = [rule for rule in matching if rule.policy is ApprovalPolicy.ALWAYS_DENY]
    candidates = [rule for rule in matching if not any(_wins_over(other, rule) for other in sure)]
    applying = denials[:1] or _strictest(candidates, resolve)
    if not sure and not denials and _stricter(default, applying, resolve):
        applying = []
    rule = applying[0] if applying else None
    policy, auto = _resolve(rule.policy if rule else default, case.tool, reviewed)
    return PolicyResult(
        StoredPolicyResult(
            policy,
            rule.id if rule else "",
            describe_rule(rule, case.tool.server) if rule else f"default: {default.value}",
            " ".join(part for part in (_reason(rule, matching), _uncertainty(rule, case), auto) if part),
        ),
        rule,
        strictest(each.terms for each in applying) if policy is ApprovalPolicy.ASK_USER else NO_TERMS,
        tuple(OverruledRule(each, _overruled_reason(each, rule, sure)) for each in matching if each is not rule),
    )


def _wins_over(rule: Rule, other: Rule) -> bool:
    return outranks(rule, other) and (rule.of_file or not (other.of_file and other.terms.say_who))


def _strictest(rules: Sequence[Rule], resolve: _Resolve) -> list[Rule]:
    """Return the rules with the strictest resolved policy, literal ones first. AUTO that asks has its own approval
    requirements.
    """
    ranked = sorted(rules, key=lambda rule: (_rank(resolve(rule.policy)), _rank(rule.policy)))
    return [rule for rule in ranked if resolve(rule.policy) is resolve(ranked[0].policy)]


def _stricter(default: ApprovalPolicy, applying: Sequence[Rule], resolve: _Resolve) -> bool:
    """Return True if the default is stricter than the applying rules, or there are none."""
    return not applying or _rank(resolve(default)) < _rank(resolve(applying[0].policy))


def _rank(policy: ApprovalPolicy) -> int:
    return STRICTEST_FIRST.index(policy)


def _resolve(policy: ApprovalPolicy, tool: Tool, reviewed: Reviewed) -> tuple[ApprovalPolicy, str]:
    """Resolve AUTO, with the reason."""
    if policy is not ApprovalPolicy.AUTO:
        return policy, ""
    if not tool.trusted:
        return ApprovalPolicy.ASK_USER, "AUTO asks: the server is not marked trusted."
    if not tool.read_only:
        return ApprovalPolicy.ASK_USER, "AUTO asks: the server does not say that the tool only reads."
    if not reviewed(tool):
        return ApprovalPolicy.ASK_USER, "AUTO asks: the tool's definition is not the pinned one."
    return ApprovalPolicy.ALWAYS_ALLOW, "AUTO runs it: it only reads, and its definition is pinned."


def _reason(rule: Rule | None, matching: Sequence[Rule]) -> str:
    if rule is None:
        return _DEFAULT if not matching else "No rule certainly matches this call, and the default is stricter."
    if rule.policy is ApprovalPolicy.ALWAYS_DENY:
        return _DENIED
    if len(matching) == 1:
        return _ONLY_RULE
    others = [each for each in matching if each is not rule]
    return _SPECIFIC if all(_wins_over(rule, each) for each in others) else _STRICTEST


def _uncertainty(rule: Rule | None, case: PolicyRequest) -> str:
    if rule is None or match_rule(rule, case) is RuleMatch.YES:
        return ""
    return f"It may match this call or a part of it ({first_mismatch(rule, case)}), so it applies."


def _overruled_reason(rule: Rule, winner: Rule | None, sure: Sequence[Rule]) -> str:
    if winner is None:
        return "the default is stricter"
    if winner.policy is ApprovalPolicy.ALWAYS_DENY:
        return "it denies, too" if rule.policy is ApprovalPolicy.ALWAYS_DENY else f"{winner.id or 'a rule'} denies"
    stronger = next((each for each in sure if _wins_over(each, rule)), None)
    if stronger is not None:
        return f"{stronger.id or 'a rule'} is more specific"
    return "it says the same" if rule.policy is winner.policy else f"{winner.id or 'a rule'} is stricter"
