"""Edited calls and grants of a team, on Slack and on Discord alike."""

from __future__ import annotations

from typing import Any

from bot.chat.actions import OUT_OF_DATE
from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.policies import Rule
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.sqlite import open_sqlite
from tests.admin.servers import command_harness
from tests.fakes.parts import ask_for, call, say, tool, words
from tests.migrated import at_hand
from tests.stories.japanese import both_languages  # noqa: F401 - a fixture
from tests.stories.team import Team

CREATE, WIPE = "jira__create_issue", "jira__delete_issue"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "priority": {"type": "string", "enum": ["Low", "High"]}},
    "required": ["summary"],
}
CHANGED = "Changed. The card asks"


def filing(team: Team) -> None:
    team.toolbox.add(tool(CREATE, server_id="j1", destructive=False, input_schema=SCHEMA))


async def test_a_call_that_is_changed_before_it_is_approved_runs_exactly_as_it_was_changed(team: Team) -> None:
    filing(team)
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with team.waiting_on("file it") as (talk, card):
        before = team.screen(card)
        await team.press(team.priya, card, "Edit…")
        await team.fill_in(team.priya, {"summary": "Two", "priority": "High"})
        await team.hears(team.priya, CHANGED)
        await team.until(lambda: "Changed by " in team.words(card))
        assert "Two" in team.words(card)
        await team.press(team.sam, card, "Approve", old=before)
        await team.hears(team.sam, OUT_OF_DATE)
        assert team.toolbox.calls == []
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Filed.")
        await team.settles(card)
    assert [arguments for _, arguments, _ in team.toolbox.calls] == [{"summary": "Two", "priority": "High"}]
    assert any('edited this call before it was approved. It was run with summary: "One" -> "Two"' in word
               for word in words(team.model.requests[1]))  # fmt: skip
    assert "Changed by " in team.words(card)
    assert team.buttons(card) == []
    assert team.failed_calls() == []


async def test_under_four_eyes_the_editor_of_a_call_does_not_approve_it(team: Team) -> None:
    filing(team)
    ada = team.person("Ada", admin=True)
    team.rules = (Rule(ApprovalPolicy.ASK_USER, requirements=ApprovalRequirements(four_eyes=True)),)
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with team.waiting_on("file it") as (talk, card):
        await team.press(team.sam, card, "Edit…")
        await team.fill_in(team.sam, {"summary": "Two"})
        await team.until(lambda: "Changed by " in team.words(card))
        await team.press(team.sam, card, "Approve")
        await team.hears(team.sam, "You have edited it, so others have to approve it.")
        assert team.toolbox.calls == []
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Filed.")
    assert [arguments for _, arguments, _ in team.toolbox.calls] == [{"summary": "Two"}]


async def test_a_user_who_may_not_approve_and_has_not_asked_changes_nothing(team: Team) -> None:
    filing(team)
    lee = team.person("Lee")
    team.model.script = [ask_for(call(CREATE, summary="One"))]
    async with team.waiting_on("file it") as (_talk, card):
        before = team.words(card)
        await team.press(lee, card, "Edit…")
        await team.hears(lee, "You may not approve this.")
        assert team.words(card) == before


async def test_a_call_allowed_in_a_thread_runs_there_until_the_grant_is_revoked(team: Team) -> None:
    filing(team)
    one, two, three = (call(CREATE, summary=each) for each in ("One", "Two", "Three"))
    team.model.script = [ask_for(one), say("First."), ask_for(two), say("Second."), ask_for(three)]
    held, database = command_harness(), open_sqlite(await at_hand(team.database))
    grants = SqlGrantStore(database)
    held.grants = grants  # type: ignore[assignment]
    team.commands = held.registry
    try:
        async with team.waiting_on("file one") as (talk, card):
            await team.press(team.sam, card, "Allow in this thread")
            await team.reads(talk, "First.")
            await team.until(lambda: "allowed in this thread" in team.words(card))
            assert "/mcp grants list" in team.words(card)
            team.go_on(talk, "file two")
            await team.reads(talk, "Second.")
            assert team.toolbox.names == [CREATE, CREATE]
            (grant,) = await grants.active_grants(team.conversation(talk).workspace_key)
            team.ask_below(talk, f"mcp grants revoke {grant.id}", by=team.sam)
            await team.hears(team.sam, "calls ask for an approval again")
            team.go_on(talk, "file three")
            await team.card(talk)
    finally:
        await database.close()
    assert team.toolbox.names == [CREATE, CREATE]
    assert team.failed_calls() == []


async def test_a_destructive_call_is_never_allowed_beforehand(team: Team) -> None:
    team.toolbox.add(tool(WIPE, server_id="j1", destructive=True))
    team.model.script = [ask_for(call(WIPE, key="OPS-1"))]
    async with team.waiting_on("delete it") as (_talk, card):
        assert not any("llow" in label for label in team.buttons(card))
