"""Rules without effect: a misspelled pattern gives a false sense of safety, and a group cannot get a remote card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.domain.approval_requirements import APPROVERS, ASKER
from bot.domain.policies import ANY, Rule, is_for_server, is_for_tool, matches_pattern
from bot.domain.policy_syntax import is_person
from bot.domain.tools import Tool


def unmatched_rules(rules: Iterable[Rule], tools: Sequence[Tool]) -> list[Rule]:
    """Return the rules that name no tool of their servers. `tools` are all known tools; servers without any are
    skipped.
    """
    return [
        rule
        for rule in rules
        if rule.tool != ANY
        and (server_tools := [tool for tool in tools if is_for_server(rule, tool)])
        and not any(is_for_tool(rule, tool) for tool in server_tools)
    ]


def unknown_servers(rules: Iterable[Rule], servers: Iterable[str]) -> list[Rule]:
    """Return the rules whose server pattern matches no name."""
    names = list(servers)
    return [
        rule for rule in rules if not rule.server_id and not any(matches_pattern(name, rule.server) for name in names)
    ]


def undeliverable_targets(rule: Rule) -> list[str]:
    """Return the approvers that cannot get the remote card that the rule asks for: groups, roles and all members."""
    if APPROVERS not in rule.terms.deliver:
        return []
    entries = {each for approvers in rule.terms.approvers for each in approvers}
    return sorted(each for each in entries if each != ASKER and not is_person(each))
