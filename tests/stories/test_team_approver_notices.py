"""Approvers of a team learn that they are needed: on the card or in private, once, on every platform."""

from __future__ import annotations

from typing import Any

import pytest

from bot.chat.approval_inbox import NOTHING_WAITS
from bot.domain.approvals import APPROVERS, ApprovalNotice, ApprovalPolicy, ApprovalRequirements, Escalation
from bot.domain.policies import Rule
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.sqlite import open_sqlite
from tests.admin.servers import command_harness
from tests.fakes.parts import ask_for, call, say, tool
from tests.migrated import at_hand
from tests.stories.team import Talk, Team

SEND = "bank__send"


def payments(team: Team, *approvers: str, **terms: object) -> None:
    """Payments need one of these approvers; the model asks for one."""
    requirements = ApprovalRequirements((frozenset(approvers),) if approvers else (), **terms)  # type: ignore[arg-type]
    team.rules = (Rule(ApprovalPolicy.ASK_USER, server="bank", requirements=requirements, id="policy.toml:1"),)
    team.toolbox.add(tool(SEND))
    team.model.script = [ask_for(call(SEND, to="Ben")), say("Sent.")]


def calls_of(team: Team, talk: Talk, who: str) -> int:
    """How many messages where the answer is have notified this user or group."""
    return sum(who in team.notified_ids(message) for message in team.messages(talk))


def reads(team: Team, message: object) -> str:
    """The text of a message on one line."""
    return " ".join(team.words(message).split())


def is_named(team: Team, message: object, person: Any) -> bool:
    """Is this user named, however the platform writes a user?"""
    return any(name in team.words(message) for name in (person.id, "Ada", "ada"))


async def test_an_approver_who_never_wrote_in_the_thread_is_mentioned_on_the_card_and_only_there(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(team.sam), team.principal(ada), quorum=2)
    async with team.waiting_on("pay Ben") as (talk, card):
        assert team.notified_ids(card) == {team.sam.id, ada.id}
        assert "needs 2 of" in reads(team, card)
        await team.press(team.sam, card, "Approve")
        await team.until(lambda: "1 of 2 approved by" in team.words(card))
    async with team.at_work():
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Sent.")
    assert calls_of(team, talk, ada.id) <= 1, "an edit and another process notify nobody again"
    assert team.messages_in(team.direct(ada)) == []


async def test_a_card_names_an_administrator_where_no_approver_is_named_and_the_asker_may_not_approve(
    team: Team,
) -> None:
    payments(team)
    async with team.at_work():
        card = await team.card(team.ask("pay Ben"))
        assert "can be approved by an administrator" in reads(team, card)
        assert team.notified_ids(card) == set()


async def test_askers_who_may_approve_their_call_alone_are_named_and_no_approver_is_notified(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(team.sam), team.principal(ada))
    async with team.at_work():
        card = await team.card(team.ask("pay Ben", by=team.sam))
        assert is_named(team, card, ada)
        assert team.notified_ids(card) == set()


async def test_under_four_eyes_the_others_are_mentioned_and_the_asker_is_not(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(team.sam), team.principal(ada), four_eyes=True)
    async with team.at_work():
        assert team.notified_ids(await team.card(team.ask("pay Ben", by=team.sam))) == {ada.id}


async def test_a_group_of_six_is_mentioned_as_the_group_and_one_of_five_as_its_members(team: Team) -> None:
    team.tell_members()
    people = [team.person(f"Approver {number}") for number in range(6)]
    large, small = team.group("finance", *people), team.group("board", *people[:5])
    payments(team, large)
    async with team.at_work():
        assert team.notified_ids(await team.card(team.ask("pay Ben"))) == {large.partition(":")[2]}
    payments(team, small)
    async with team.at_work():
        assert team.notified_ids(await team.card(team.ask("pay Ben"))) == {person.id for person in people[:5]}


@pytest.mark.parametrize("notice", [ApprovalNotice.PRIVATE, ApprovalNotice.NONE])
async def test_approvers_are_told_in_private_with_a_link_or_not_at_all(team: Team, notice: ApprovalNotice) -> None:
    ada = team.person("Ada")
    team.approval_notice = notice
    payments(team, team.principal(ada))
    async with team.waiting_on("pay Ben") as (talk, card):
        assert team.notified_ids(card) == set()
        assert is_named(team, card, ada)
        if notice is ApprovalNotice.PRIVATE:
            await team.hears(ada, "asks for approval of bank.send")
    async with team.at_work():
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Sent.")
    direct = [team.words(message) for message in team.messages_in(team.direct(ada))]
    assert len(direct) == (notice is ApprovalNotice.PRIVATE)
    assert all("https://" in text or "Open the card" in text for text in direct)


async def test_an_approver_who_is_away_is_reminded_in_private_and_decides_there_and_so_does_a_second_group(
    team: Team,
) -> None:
    team.tell_members()
    ada, lee = team.person("Ada"), team.person("Lee")
    leads = Escalation(0.2, frozenset({team.group("leads", lee)}))
    payments(team, team.principal(ada), escalate=leads)
    async with team.waiting_on("pay Ben") as (talk, card):
        await team.until(lambda: all(team.messages_in(team.direct(person)) for person in (ada, lee)))
        (reminder,) = team.messages_in(team.direct(lee))
        (first,) = team.messages_in(team.direct(ada))
        for shown in (reads(team, reminder), reads(team, first)):
            assert "bank.send, which" in shown
            assert "still awaits approval" in shown
            assert "Ben" in shown or not team.buttons(reminder), "a platform without buttons has the link alone"
            assert "Open the card" in shown or "https://" in shown
            assert team.principal(ada) not in shown
        await team.press(team.priya, card, "Approve")
        await team.hears(team.priya, "You may not approve this. It needs")
        assert not any(team.principal(ada) in told for told in team.private_replies(team.priya))
        await team.press(lee, reminder if team.buttons(reminder) else card, "Approve")
        await team.reads(talk, "Sent.")
        if team.buttons(reminder):
            await team.until(lambda: NOTHING_WAITS in reads(team, team.messages_in(team.direct(lee))[-1]))
    assert team.toolbox.names == [SEND]


@pytest.mark.parametrize("in_message", [False, True])
async def test_a_delegate_named_by_a_typed_command_is_reminded_in_private_and_decides_there_and_nobody_else_does(
    team: Team, in_message: bool
) -> None:
    carol, dan, erin = team.person("Carol"), team.person("Dan"), team.person("Erin")
    payments(team, team.principal(carol), escalate=Escalation(0.3, frozenset({team.principal(team.sam)})))
    held, database = command_harness(), open_sqlite(await at_hand(team.database))
    held.grants = SqlGrantStore(database)  # type: ignore[assignment]
    team.commands = held.registry
    name = team.principal(dan) if team.principal(dan).startswith("plain:") else f"<@{dan.id}>"
    try:
        async with team.at_work():
            if in_message:
                team.ask(f"approvals delegate {name} until Friday", by=carol)
            else:
                await team.command(carol, "approvals delegate", who=name, end="until Friday")
            await team.hears(carol, "may decide the calls that you may decide")
            talk = team.ask("pay Ben")
            card = await team.card(talk)
            await team.until(lambda: team.messages_in(team.direct(dan)))
            (reminder,) = team.messages_in(team.direct(dan))
            assert "still awaits approval" in reads(team, reminder)
            assert team.messages_in(team.direct(erin)) == []
            await team.press(erin, card, "Approve")
            await team.hears(erin, "You may not approve this.")
            await team.command(erin, "approvals undelegate", who=name)
            await team.hears(erin, "There is no such delegation.")
            assert team.toolbox.calls == []
            await team.press(dan, reminder if team.buttons(reminder) else card, "Approve")
            await team.reads(talk, "Sent.")
            await team.settles(card)
            assert "Dan for Carol".casefold() in team.words(card).casefold()
            await team.command(dan, "approvals undelegate", who=team.principal(carol))
            await team.hears(dan, "Ended.")
            team.model.script = [ask_for(call(SEND, to="Zoe"))]
            second = await team.card(team.ask("pay Zoe"))
            await team.press(dan, second, "Approve")
            await team.hears(dan, "You may not approve this.")
    finally:
        await database.close()
    assert team.toolbox.names == [SEND]
    assert team.failed_calls() == []


async def test_a_card_goes_directly_to_each_member_of_a_group(team: Team) -> None:
    team.tell_members()
    ada, lee = team.person("Ada"), team.person("Lee")
    payments(team, team.group("finance", ada, lee), deliver=frozenset({APPROVERS}))
    async with team.working_on("pay Ben") as talk:
        await team.card_in(team.direct(ada))
        card = await team.card_in(team.direct(lee))
        assert team.notified_ids(card) == set(), "a direct message notifies by itself"
        await team.press(lee, card, "Approve")
        await team.reads(talk, "Sent.")
    assert team.toolbox.names == [SEND]


async def test_the_card_says_why_a_group_above_the_limit_gets_no_cards_of_its_own(team: Team) -> None:
    team.tell_members()
    people = [team.person(f"Approver {number}") for number in range(21)]
    payments(team, team.group("everyone-in-finance", *people), deliver=frozenset({APPROVERS}))
    async with team.at_work():
        card = await team.card(team.ask("pay Ben"))
        assert "21 people may approve" in team.words(card)
    assert team.messages_in(team.direct(people[0])) == []
