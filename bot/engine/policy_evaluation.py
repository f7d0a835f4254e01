"""Which of the rules that are about a call counts, and why.

    A rule that denies wins over every other.
    Otherwise a rule beats another if it says everything the other says and more, or says it more exactly.
    Of those that none beats, the strictest counts: asking before AUTO, AUTO before running.
    Where no rule is about the call, the default counts.

Where the operator's file says who has to sign, no rule from elsewhere beats that: four eyes that an admin can close
with a rule for one channel would be none.

What may or may not fit (`RuleMatch.PERHAPS`) can only make it stricter: a rule that denies or asks counts then and
beats none, a rule that lets run does not.
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
_RESTRAINING = (ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER)
_DENIED = "A rule that denies wins over every other."
_DEFAULT = "No rule is about this call, so the default counts."
_ALONE = "It is the only rule about this call."
_SPECIFIC = "It says everything that the other rules about this call say, and more or more exactly."
_STRICTEST = "Of the rules that none beats it is the strictest."

Reviewed = Callable[[Tool], bool]
"""Whether the tool's definition is the one that is pinned (`bot.domain.pins`)."""
_ComesTo = Callable[[ApprovalPolicy], ApprovalPolicy]
"""What a word comes to for a call: AUTO is never the last word."""


def nothing_reviewed(tool: Tool) -> bool:  # noqa: ARG001 - a Reviewed
    """Where nothing is pinned: AUTO asks."""
    return False


def evaluate(
    rules: Sequence[Rule], case: PolicyRequest, default: ApprovalPolicy, reviewed: Reviewed = nothing_reviewed
) -> PolicyResult:
    """What holds for a call by these rules."""

    def comes_to(word: ApprovalPolicy) -> ApprovalPolicy:
        return _settled(word, case.tool, reviewed)[0]

    fits = [(rule, match_rule(rule, case)) for rule in rules]
    sure = [rule for rule, found in fits if found is RuleMatch.YES]
    about = [
        rule
        for rule, found in fits
        if found is RuleMatch.YES or (found is RuleMatch.PERHAPS and comes_to(rule.policy) in _RESTRAINING)
    ]
    denials = [rule for rule in about if rule.policy is ApprovalPolicy.ALWAYS_DENY]
    unbeaten = [rule for rule in about if not any(_outdoes(other, rule) for other in sure)]
    counting = denials[:1] or _strictest(unbeaten, comes_to)
    if not sure and not denials and _stricter(default, counting, comes_to):
        counting = []
    rule = counting[0] if counting else None
    policy, auto = _settled(rule.policy if rule else default, case.tool, reviewed)
    return PolicyResult(
        StoredPolicyResult(
            policy,
            rule.id if rule else "",
            describe_rule(rule, case.tool.server) if rule else f"default: {default.value}",
            " ".join(part for part in (_why(rule, about), _perhaps(rule, case), auto) if part),
        ),
        rule,
        strictest(each.terms for each in counting) if policy is ApprovalPolicy.ASK_USER else NO_TERMS,
        tuple(OverruledRule(each, _passed(each, rule, sure)) for each in about if each is not rule),
    )


def _outdoes(one: Rule, other: Rule) -> bool:
    return outranks(one, other) and (one.of_file or not (other.of_file and other.terms.say_who))


def _strictest(rules: Sequence[Rule], comes_to: _ComesTo) -> list[Rule]:
    """Those that come to the strictest there is among them, those that say so first: several, if several do. AUTO that
    asks asks on its own terms, whoever else asks.
    """
    ranked = sorted(rules, key=lambda rule: (_rank(comes_to(rule.policy)), _rank(rule.policy)))
    return [rule for rule in ranked if comes_to(rule.policy) is comes_to(ranked[0].policy)]


def _stricter(default: ApprovalPolicy, counting: Sequence[Rule], comes_to: _ComesTo) -> bool:
    """Whether the default is stricter than what would take its place, or there is nothing to."""
    return not counting or _rank(comes_to(default)) < _rank(comes_to(counting[0].policy))


def _rank(word: ApprovalPolicy) -> int:
    return STRICTEST_FIRST.index(word)


def _settled(policy: ApprovalPolicy, tool: Tool, reviewed: Reviewed) -> tuple[ApprovalPolicy, str]:
    """What AUTO comes to, and why."""
    if policy is not ApprovalPolicy.AUTO:
        return policy, ""
    if not tool.trusted:
        return ApprovalPolicy.ASK_USER, "AUTO asks: the server is not marked trusted."
    if not tool.read_only:
        return ApprovalPolicy.ASK_USER, "AUTO asks: the server does not say that the tool only reads."
    if not reviewed(tool):
        return ApprovalPolicy.ASK_USER, "AUTO asks: the tool's definition is not the one that is pinned."
    return ApprovalPolicy.ALWAYS_ALLOW, "AUTO runs it: it only reads, and its definition is the one that is pinned."


def _why(rule: Rule | None, about: Sequence[Rule]) -> str:
    if rule is None:
        return _DEFAULT if not about else "No rule is about this call for certain, and the default is stricter."
    if rule.policy is ApprovalPolicy.ALWAYS_DENY:
        return _DENIED
    if len(about) == 1:
        return _ALONE
    others = [each for each in about if each is not rule]
    return _SPECIFIC if all(_outdoes(rule, each) for each in others) else _STRICTEST


def _perhaps(rule: Rule | None, case: PolicyRequest) -> str:
    if rule is None or match_rule(rule, case) is RuleMatch.YES:
        return ""
    return f"It may be about this call, or about a part of it ({first_mismatch(rule, case)}), and so it counts."


def _passed(rule: Rule, winner: Rule | None, sure: Sequence[Rule]) -> str:
    if winner is None:
        return "the default is stricter"
    if winner.policy is ApprovalPolicy.ALWAYS_DENY:
        return "it denies, too" if rule.policy is ApprovalPolicy.ALWAYS_DENY else f"{winner.id or 'a rule'} denies"
    beaten_by = next((each for each in sure if _outdoes(each, rule)), None)
    if beaten_by is not None:
        return f"{beaten_by.id or 'a rule'} is more specific"
    return "it says the same" if rule.policy is winner.policy else f"{winner.id or 'a rule'} is stricter"
