"""The asker approves calls that delete nothing, and an approver the rest, on every platform."""

from __future__ import annotations

from typing import Any

from bot.chat.approval_inbox import NOTHING_WAITS
from bot.domain.tools import Tool
from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.japanese import both_languages  # noqa: F401 - a fixture
from tests.stories.team import Team

ADD, WIPE = "notes__add", "notes__wipe"


def is_pinned(_tool: Tool) -> bool:
    return True


def notes(team: Team) -> None:
    """A trusted server with pinned definitions: one tool adds, the other deletes."""
    team.reviewed = is_pinned
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    team.toolbox.add(tool(ADD, server_id="n1", destructive=False, input_schema=schema))
    team.toolbox.add(tool(WIPE, server_id="n1", destructive=True))


def reads(team: Team, message: Any) -> str:
    """The text of a message on one line."""
    return " ".join(team.words(message).split())


async def approve(team: Team, who: Any, card: Any) -> None:
    """Press Approve, and confirm it where the platform asks again in a message of its own."""
    before = len(team.alone(who))
    await team.press(who, card, "Approve")
    await team.until(lambda: team.toolbox.names or len(team.alone(who)) > before or team.private_replies(who))
    if len(team.alone(who)) > before and "Approve" in str(team.buttons(team.alone(who)[-1])):
        await team.press(who, team.alone(who)[-1], "Approve")


async def test_the_asker_approves_an_ordinary_call_and_an_approver_a_destructive_one(team: Team) -> None:
    lee = team.person("Lee")
    notes(team)
    team.model.script = [
        ask_for(call(ADD, text="milk")),
        say("Added."),
        ask_for(call(WIPE, id="2", note="7")),
        say("Gone."),
    ]
    async with team.waiting_on("add milk") as (talk, card):
        assert "may approve this" in reads(team, card)
        assert "An approver must" not in reads(team, card)
        assert team.notified_ids(card) == set(), "the one who has asked is there already"
        await team.press(lee, card, "Approve")
        await team.hears(lee, "You may not approve this. It needs the user who asked")
        assert team.toolbox.names == []
        await team.press(team.priya, card, "Approve")
        await team.reads(talk, "Added.")
        assert team.toolbox.names == [ADD]
        team.go_on(talk, "delete note 7")
        deletion = await team.card(talk)
        assert "An approver must approve this, because it may delete data" in reads(team, deletion)
        await approve(team, team.priya, deletion)
        await team.hears(
            team.priya, "You may not approve this. An approver must approve this, because it may delete data."
        )
        assert team.toolbox.names == [ADD]
        team.toolbox.calls.clear()
        await approve(team, team.sam, deletion)
        await team.reads(talk, "Gone.")
    assert team.toolbox.names == [WIPE]
    assert team.failed_calls() == []


async def test_a_call_that_names_another_person_needs_an_approver_also_after_an_edit(team: Team) -> None:
    notes(team)
    team.model.script = [ask_for(call(ADD, text="milk")), say("Noted.")]
    why = "An approver must approve this, because it may concern other people or places"
    async with team.waiting_on("note it") as (talk, card):
        assert "may approve this" in reads(team, card)
        await team.press(team.priya, card, "Edit")
        await team.fill_in(team.priya, {"text": "milk for ben@example.com"})
        await team.until(lambda: why in reads(team, card))
        await team.press(team.priya, card, "Approve")
        await team.hears(team.priya, f"{why}.")
        assert team.toolbox.names == []
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Noted.")
    assert [arguments for _, arguments, _ in team.toolbox.calls] == [{"text": "milk for ben@example.com"}]


async def test_where_only_approvers_approve_the_card_says_so_and_the_asker_may_not(team: Team) -> None:
    notes(team)
    team.self_approval = False
    team.model.script = [ask_for(call(ADD, text="milk")), say("Added.")]
    async with team.waiting_on("add milk") as (talk, card):
        assert "An approver must approve this" in reads(team, card)
        await team.press(team.priya, card, "Approve")
        await team.hears(team.priya, "You may not approve this.")
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Added.")


async def test_the_list_of_waiting_calls_has_ones_own_ordinary_call_and_not_that_of_others(team: Team) -> None:
    notes(team)
    team.model.script = [ask_for(call(ADD, text="milk")), say("Added.")]
    async with team.working_on("add milk") as talk:
        await team.card(talk)
        await team.open_list(team.sam)
        await team.until(lambda: NOTHING_WAITS in str([team.words(message) for message in team.alone(team.sam)]))
        await team.open_list(team.priya)
        await team.until(lambda: any("Waiting for you (1)" in team.words(each) for each in team.alone(team.priya)))
        listed = team.alone(team.priya)[-1]
        assert "may approve this" in reads(team, listed)
        await team.press(team.priya, listed, "Approve")
        await team.reads(talk, "Added.")
    assert team.toolbox.names == [ADD]
