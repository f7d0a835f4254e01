"""A rule as options of `/mcp policy set`, parsed and formatted. `bot.domain.policy_syntax` defines the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.commands.argument_parser import Arguments
from bot.commands.rejections import CommandRejected
from bot.commands.text_format import POLICY_SAID, code
from bot.domain.approval_requirements import APPROVERS, THREAD, OnTimeout
from bot.domain.commands import CompletionSource, Parameter, ParameterKind
from bot.domain.conversations import ConversationKey
from bot.domain.policies import ANNOTATIONS, ANY, Rule
from bot.domain.policy_syntax import RuleError, format_duration, parse_rule, rule_to_table

_OPTION = ParameterKind.OPTION
CONDITIONS = (
    Parameter("except", "a tool it is not about after all", _OPTION, repeated=True, metavar="TOOL"),
    Parameter("argument", "only with this argument", _OPTION, repeated=True, metavar="PATH=PATTERN"),
    Parameter("annotation", "only with this hint", _OPTION, repeated=True, metavar=f"{'|'.join(ANNOTATIONS)}=yes|no"),
    Parameter("in", "only in this channel", _OPTION, repeated=True, metavar="CHANNEL"),
    Parameter("profile", "only where this profile holds", _OPTION, completes=CompletionSource.PROFILES, metavar="NAME"),
    Parameter("asker", "only if one of these asks", _OPTION, repeated=True, metavar="PLATFORM:ID|members|guests"),
)
TERMS = (
    Parameter("approver", "who may sign", _OPTION, repeated=True, metavar="PLATFORM:ID|members|asker"),
    Parameter("four-eyes", "neither the asker nor an editor may approve", ParameterKind.FLAG),
    Parameter("quorum", "number of approvals that a call needs", _OPTION, metavar="N"),
    Parameter("expires", "time until an approval expires", _OPTION, metavar="30m|2h|1d"),
    Parameter("on-timeout", "what then", _OPTION, choices=tuple(each.value for each in OnTimeout)),
    Parameter("remind", "remind the approvers after half of that time", ParameterKind.FLAG),
    Parameter("deliver", "where the card goes", _OPTION, repeated=True, metavar="thread|approvers|CHANNEL"),
)
_SWITCH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def given_rule(base: Rule, arguments: Arguments, where: ConversationKey) -> Rule:
    """Return `base` with the conditions and requirements of the options. Raises CommandRejected, which names the
    invalid options.
    """
    table: dict[str, Any] = {**rule_to_table(base)}
    if arguments.given("except"):
        table["except"] = list(arguments.many("except"))
    if arguments.given("argument"):
        table["arguments"] = _pairs(arguments.many("argument"), "argument")
    if arguments.given("annotation"):
        table["annotations"] = {
            name.replace("-", "_"): _SWITCH.get(value.lower(), value)
            for name, value in _pairs(arguments.many("annotation"), "annotation").items()
        }
    if arguments.given("in"):
        table["in"] = [_place(channel, where) for channel in arguments.many("in")]
    if arguments.given("asker"):
        table["asker"] = list(arguments.many("asker"))
    try:
        return replace(parse_rule({**table, **_given_terms(arguments, where)}), workspace=base.workspace)
    except RuleError as error:
        option = _OPTIONS.get(error.key.partition(".")[0], error.key.partition(".")[0])
        raise CommandRejected(f"`--{option}` cannot be used: {error.problem}.") from error


def options_of(rule: Rule, slug: str) -> tuple[str, ...]:
    """Return the options of `/mcp policy set` for this rule."""
    words = [slug or ANY, *(() if rule.tool == ANY else (rule.tool,)), POLICY_SAID[rule.policy]]
    words += _repeated("except", sorted(rule.but))
    words += _repeated("argument", [f"{path}={pattern}" for path, pattern in sorted(rule.arguments.items())])
    hints = sorted(rule.annotations.items())
    words += _repeated("annotation", [f"{name}={'yes' if value else 'no'}" for name, value in hints])
    words += _repeated("in", sorted(rule.places))
    words += _repeated("profile", [rule.profile] if rule.profile else [])
    words += _repeated("asker", sorted(rule.askers))
    terms = rule.terms
    words += _repeated("approver", sorted(terms.approvers[0]) if terms.approvers else [])
    words += ["--four-eyes"] if terms.four_eyes else []
    words += ["--quorum", str(terms.quorum)] if terms.quorum > 1 else []
    words += ["--expires", format_duration(terms.expires)] if terms.expires is not None else []
    words += ["--on-timeout", terms.on_timeout.value] if terms.on_timeout else []
    words += ["--remind"] if terms.remind else []
    words += _repeated("deliver", sorted(terms.deliver))
    return tuple(words)


_OPTIONS = {
    "arguments": "argument",
    "annotations": "annotation",
    "approvers": "approver",
    "four_eyes": "four-eyes",
    "on_timeout": "on-timeout",
}


def _given_terms(arguments: Arguments, where: ConversationKey) -> Mapping[str, Any]:
    terms: dict[str, Any] = {}
    if arguments.given("approver"):
        terms["approvers"] = list(arguments.many("approver"))
    for option, key in (("four-eyes", "four_eyes"), ("remind", "remind")):
        if arguments.given(option):
            terms[key] = True
    if arguments.given("quorum"):
        text = arguments.one("quorum")
        terms["quorum"] = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if arguments.given("expires"):
        terms["expires"] = arguments.one("expires")
    if arguments.given("on-timeout"):
        terms["on_timeout"] = arguments.one("on-timeout")
    if arguments.given("deliver"):
        places = arguments.many("deliver")
        terms["deliver"] = [place if place in (THREAD, APPROVERS) else _place(place, where) for place in places]
    return terms


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if not all(name.strip() and assigned for name, assigned, _ in pairs):
        raise CommandRejected(f"`--{option}` is written NAME=VALUE.")
    return {name.strip(): value for name, _, value in pairs}


def _place(channel: str, where: ConversationKey) -> str:
    """Parse a channel id of this workspace, or a full key."""
    if ":" in channel:
        return channel
    return str(ConversationKey(where.platform, where.workspace, channel.lstrip("#"), "")).rpartition(":")[0]


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (f"--{option}", value)]


def shown_id(rule: Rule) -> str:
    """Format a rule's id in Markdown."""
    return code(rule.id, "the rule")
