"""Approvers that a team's rules require, on Slack and on Discord alike."""

from __future__ import annotations

import asyncio

from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.policies import Rule
from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.team import Team

SEND = "bank__send"
OWN = "You asked for this yourself, so others have to approve it."
TWICE = "You have already approved it."


def script_payment(team: Team, *approvers: str, **more: object) -> None:
    """Payments ask, on these terms; the model makes one."""
    terms = ApprovalRequirements((frozenset(approvers),) if approvers else (), **more)  # type: ignore[arg-type]
    team.rules = (Rule(ApprovalPolicy.ASK_USER, server="bank", requirements=terms, id="policy.toml:1"),)
    team.toolbox.add(tool(SEND))
    team.model.script = [ask_for(call(SEND, to="Ben")), say("Sent.")]


async def test_the_asker_does_not_approve_under_four_eyes(team: Team) -> None:
    ada = team.person("Ada", admin=True)
    script_payment(team, four_eyes=True)
    async with team.waiting_on("pay Ben", by=team.sam) as (talk, card):
        await team.press(team.sam, card, "Approve")
        await team.hears(team.sam, OWN)
        assert team.toolbox.calls == []
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Sent.")
    assert team.toolbox.names == [SEND]


async def test_two_of_three_have_to_approve_and_no_approver_counts_twice(team: Team) -> None:
    ada, lee = team.person("Ada"), team.person("Lee")
    script_payment(team, *(team.principal(each) for each in (team.sam, ada, lee)), quorum=2)
    async with team.waiting_on("pay Ben") as (talk, card):
        before = team.screen(card)
        await team.press(team.priya, card, "Approve", old=before)
        await team.hears(team.priya, "You may not approve this.")
        await asyncio.gather(*(team.press(team.sam, card, "Approve", old=before) for _ in range(3)))
        await team.hears(team.sam, TWICE)
        assert team.toolbox.calls == []
        await asyncio.gather(*(team.press(who, card, "Approve", old=before) for who in (ada, lee)))
        await team.reads(talk, "Sent.")
        await team.until(lambda: team.private_replies(ada) or team.private_replies(lee))
    assert team.toolbox.names == [SEND]


async def test_one_denial_of_three_is_enough_after_any_approvals(team: Team) -> None:
    ada, lee = team.person("Ada"), team.person("Lee")
    script_payment(team, *(team.principal(each) for each in (team.sam, ada, lee)), quorum=2)
    async with team.waiting_on("pay Ben") as (talk, card):
        before = team.screen(card)
        await team.press(ada, card, "Approve")
        await team.until(lambda: "1 of 2 approved by" in team.words(card))
        await team.press(lee, card, "Deny")
        await team.fill_in(lee, {"reason": "not this month"})
        await team.reads(talk, "Sent.")  # the model's own words: nothing was
        await team.press(team.sam, card, "Approve", old=before)
        await team.until(lambda: team.private_replies(team.sam))
    assert team.toolbox.calls == []


async def test_an_approver_who_has_left_the_group_after_approving_gives_no_second_approval(team: Team) -> None:
    ada, lee = team.person("Ada"), team.person("Lee")
    group = team.group("finance", ada, lee)
    script_payment(team, group, quorum=2)
    async with team.waiting_on("pay Ben") as (talk, card):
        before = team.screen(card)
        await team.press(ada, card, "Approve")
        await team.until(lambda: "1 of 2 approved by" in team.words(card))
        team.leave(group, ada)
        await team.press(ada, card, "Approve", old=before)
        await team.hears(ada, "You may not approve this.")
        assert team.toolbox.calls == []
        await team.press(lee, card, "Approve", old=before)
        await team.reads(talk, "Sent.")
    assert team.toolbox.names == [SEND]


async def test_a_press_that_is_played_again_after_the_call_has_run_runs_nothing(team: Team) -> None:
    script_payment(team)
    async with team.waiting_on("pay Ben") as (talk, card):
        before = team.screen(card)
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Sent.")
    async with team.at_work():
        for _ in range(3):
            await team.press(team.sam, card, "Approve", old=before)
        await team.hears(team.sam, "has already approved it.")
    assert team.toolbox.names == [SEND]
