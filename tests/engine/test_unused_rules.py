"""Rules that match no existing tool."""

from __future__ import annotations

import pytest

from bot.domain.approvals import APPROVERS, ASKER, MEMBERS, ApprovalPolicy, ApprovalRequirements
from bot.domain.policies import Rule
from bot.domain.tools import Tool
from bot.engine.policy.rules import undeliverable_targets, unknown_servers, unmatched_rules

DENY = ApprovalPolicy.ALWAYS_DENY
TOOLS = [
    Tool("notes__add", "notes", "add", server_id="n1"),
    Tool("notes__list", "notes", "list", server_id="n1"),
    Tool("mail__send", "mail", "send", server_id="m1"),
]


@pytest.mark.parametrize(
    ("rule", "says_nothing"),
    [
        (Rule(DENY), False),
        (Rule(DENY, tool="add"), False),
        (Rule(DENY, tool="drop_*"), True),
        (Rule(DENY, server="notes", tool="send"), True),
        (Rule(DENY, server="n*", tool="l*"), False),
        (Rule(DENY, server="notes", tool="list", excluded_tools=frozenset({"list"})), True),
        (Rule(DENY, server_id="n1", tool="lst"), True),
        (Rule(DENY, server="calendar", tool="lst"), False),
        (Rule(DENY, server="calendar"), False),
    ],
)
def test_a_rule_is_idle_if_servers_whose_tools_are_known_have_none_that_fits(rule: Rule, says_nothing: bool) -> None:
    assert unmatched_rules([rule], TOOLS) == ([rule] if says_nothing else [])


def test_a_rule_is_a_stranger_if_no_server_is_called_so() -> None:
    rules = [Rule(DENY, server=name) for name in ("notes", "n*", "ntoes", "*")] + [Rule(DENY, server_id="gone")]
    assert [rule.server for rule in unknown_servers(rules, ["notes", "mail"])] == ["ntoes"]


def test_a_card_that_is_sent_to_its_approvers_reaches_people_and_groups_and_not_all_members() -> None:
    approvers = (frozenset({"slack:T1:U1", ASKER, "slack-group:S1"}), frozenset({MEMBERS}))
    terms = ApprovalRequirements(approvers, deliver=frozenset({APPROVERS}))
    assert undeliverable_targets(Rule(DENY, requirements=terms)) == [MEMBERS]
    elsewhere = ApprovalRequirements(approvers, deliver=frozenset({"slack:T1:C9"}))
    assert undeliverable_targets(Rule(DENY, requirements=elsewhere)) == [], (
        "the card goes to a place, and everybody there sees it"
    )
