"""Rules that do less than they say. A pattern that is misspelt forbids nothing, and whoever wrote it feels safe; a card
is sent to nobody whom no message can be sent to.

Called by the composition root when tools have become known, for the operator's file; commands say the same of a rule
when it is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.domain.approval_requirements import APPROVERS, ASKER
from bot.domain.policies import ANY, Rule, is_for_server, is_for_tool, matches_pattern
from bot.domain.policy_syntax import is_person
from bot.domain.tools import Tool


def unmatched_rules(rules: Iterable[Rule], tools: Sequence[Tool]) -> list[Rule]:
    """Those that name a tool, though none of the servers they are about has such a one. `tools` are all that are known;
    of a server that has none of them nothing can be said.
    """
    return [
        rule
        for rule in rules
        if rule.tool != ANY
        and (theirs := [tool for tool in tools if is_for_server(rule, tool)])
        and not any(is_for_tool(rule, tool) for tool in theirs)
    ]


def unknown_servers(rules: Iterable[Rule], servers: Iterable[str]) -> list[Rule]:
    """Those whose server's pattern none of these names fits."""
    names = list(servers)
    return [
        rule for rule in rules if not rule.server_id and not any(matches_pattern(name, rule.server) for name in names)
    ]


def undeliverable_targets(rule: Rule) -> list[str]:
    """The approvers who cannot be written to, though the rule sends them the card: groups, roles, all members. It stays
    where it was asked for then.
    """
    if APPROVERS not in rule.terms.deliver:
        return []
    named = {each for approvers in rule.terms.approvers for each in approvers}
    return sorted(each for each in named if each != ASKER and not is_person(each))
