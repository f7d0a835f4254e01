"""Targets of approval cards by the rule and the conversation of the call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import (
    APPROVERS,
    ASKER,
    MEMBERS,
    Approval,
    ApprovalPolicy,
    ApprovalRequirements,
    ChannelTarget,
    DirectTarget,
    approval_targets,
)
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policies import Rule, parse_rule, rule_to_table
from bot.engine.policy.approvers import Approvers
from bot.engine.possible_approvers import MAX_NOTIFIED_APPROVERS, route_approval

WHERE = ConversationKey("slack", "T1", "C1", "1.1")
ANA = Author("slack", "U1", "Ana")
BEN, ZOE = "slack:U2", "slack:U3"


def going(*deliver: str, configured: Approvers | None = None, **terms: object) -> frozenset[str]:
    """Return the targets of the approval card of Ana's call."""
    approval_requirements = ApprovalRequirements(deliver=frozenset(deliver), **terms)  # type: ignore[arg-type]
    routed, _ = route_approval(approval_requirements, configured or Approvers(), WHERE, ANA)
    return routed.deliver


def signed_by(*approvers: str) -> tuple[frozenset[str], ...]:
    return (frozenset(approvers),)


@pytest.mark.parametrize(
    ("place", "goes"),
    [
        ("slack:T1:C9", True),
        ("slack:T1:C1", False),
        ("slack:T2:C9", False),
        ("slack:T11:C9", False),
        ("discord:T1:C9", False),
    ],
)
def test_a_card_goes_to_another_channel_of_the_same_workspace_and_nowhere_else(place: str, goes: bool) -> None:
    assert going(place) == ({place} if goes else frozenset())
    assert going(place, "slack:T1:C8") == ({place, "slack:T1:C8"} if goes else {"slack:T1:C8"})


@pytest.mark.parametrize(
    ("approvers", "people"),
    [
        (signed_by(BEN, ZOE), {BEN, ZOE}),
        (signed_by(BEN, "discord:7", "discord-role:7"), {BEN}),
        ((frozenset({BEN}), frozenset({ZOE})), {BEN, ZOE}),
        (signed_by(BEN, ASKER), {BEN, "slack:U1"}),
        (signed_by(ASKER), set()),
        (signed_by(BEN, "slack-group:S1"), set()),
        (signed_by(BEN, MEMBERS), set()),
        (signed_by("discord:7"), set()),
        (signed_by(*(f"slack:U{n}" for n in range(10, 11 + MAX_NOTIFIED_APPROVERS))), set()),
    ],
)
def test_approvers_are_written_to_if_all_of_them_are_people(
    approvers: tuple[frozenset[str], ...], people: set[str]
) -> None:
    assert going(APPROVERS, approvers=approvers) == people


def test_under_four_eyes_the_asker_gets_no_card() -> None:
    assert going(APPROVERS, approvers=signed_by(BEN, "slack:U1"), four_eyes=True) == {BEN}


def test_where_a_rule_names_no_approvers_those_of_the_settings_are_written_to() -> None:
    settings = Approvers(admins=frozenset({ZOE}), approvers=frozenset({BEN}))
    assert going(APPROVERS, configured=settings) == {BEN, ZOE}
    assert going(APPROVERS, configured=Approvers()) == frozenset()


def test_a_channel_that_is_named_beside_approvers_who_cannot_be_written_to_still_gets_the_card() -> None:
    assert going(APPROVERS, "slack:T1:C9", approvers=signed_by("slack-group:S1")) == {"slack:T1:C9"}


def of_group(members: set[str] | None, **terms: object) -> tuple[frozenset[str], str]:
    """Return the targets of a card for the members of a group, and the note if there is no target."""
    requirements = ApprovalRequirements(signed_by(BEN, "slack-group:S1"), deliver=frozenset({APPROVERS}), **terms)  # type: ignore[arg-type]
    groups = {"slack-group:S1": None if members is None else frozenset(members)}
    routed, note = route_approval(requirements, Approvers(), WHERE, ANA, groups)
    return frozenset(routed.deliver), note


def test_the_members_of_a_group_get_the_card_up_to_the_limit() -> None:
    assert of_group({ZOE, "slack:U1"}, four_eyes=True) == (frozenset({BEN, ZOE}), "")
    many = {f"slack:U{n}" for n in range(10, 10 + MAX_NOTIFIED_APPROVERS)}
    assert of_group(many) == (frozenset(), "21 people may approve, and a card goes directly to at most 20")
    assert of_group(None) == (frozenset(), "the members of slack-group:S1 are unknown here")


def test_a_call_in_its_thread_names_the_place_of_its_card() -> None:
    terms = ApprovalRequirements(deliver=frozenset({"slack:T1:C9", BEN}))
    assert approval_targets(Approval("a", 1, "print", ANA, None, requirements=terms)) == (
        ChannelTarget("C9"),
        DirectTarget("U2"),
    )
    assert approval_targets(Approval("a", 1, "print", ANA, None)) == ()
    assert approval_targets(None) == ()


@given(*([st.frozensets(st.sampled_from([APPROVERS, "slack:T1:C9", "discord:1:2"]))] * 2))
def test_terms_that_are_joined_send_the_card_wherever_one_of_them_does(
    one: frozenset[str], other: frozenset[str]
) -> None:
    assert ApprovalRequirements(deliver=one).combine(ApprovalRequirements(deliver=other)).deliver == one | other


def test_a_rule_reads_as_it_is_written_and_the_thread_is_what_holds_anyway() -> None:
    rule = Rule(
        ApprovalPolicy.ASK_USER, requirements=ApprovalRequirements(deliver=frozenset({APPROVERS, "slack:T1:C9"}))
    )
    assert parse_rule(rule_to_table(rule)) == rule
    assert parse_rule({"policy": "ASK_USER", "deliver": "thread"}) == Rule(ApprovalPolicy.ASK_USER)
