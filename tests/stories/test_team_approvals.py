"""Approvals of a team, on Slack and on Discord alike: approvers, expiry, and the call that runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from bot.domain.tools import CallOutcomeUnknown, ToolOutcome
from bot.engine.policy.approvers import Approvers
from bot.ports import CallContext
from bot.storage.sqlite import open_sqlite
from tests.fakes.parts import ask_for, call, say, tool, words
from tests.stories.japanese import both_languages  # noqa: F401 - a fixture
from tests.stories.team import Team

CREATE = "jira__create_issue"
STOPPED = "Stopped by "
FINAL = "AI answer"


async def test_no_call_runs_before_an_approver_has_approved(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="Checkout 502s")), say("Filed.")]
    async with team.waiting_on("file it") as (talk, card):
        assert "Checkout 502s" in team.words(card)
        await team.press(team.priya, card, "Approve")
        await team.hears(team.priya, "You may not approve this.")
        assert team.toolbox.calls == []
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Filed.")
    assert team.toolbox.names == [CREATE]
    assert "Approved by " in team.words(card)
    assert team.buttons(card) == []
    assert team.failed_calls() == []


async def test_a_group_of_approvers_approves_until_a_member_leaves_it(team: Team) -> None:
    lee, ada = team.person("Lee"), team.person("Ada")
    group = team.group("ops", lee, ada)
    team.approvers = Approvers(approvers=frozenset({group}))
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with team.waiting_on("file it") as (talk, card):
        team.leave(group, lee)
        await team.press(lee, card, "Approve")
        await team.hears(lee, "You may not approve this.")
        assert team.toolbox.calls == []
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Filed.")


async def test_a_user_outside_the_audience_neither_asks_nor_approves(team: Team) -> None:
    stella = team.stranger("Stella")
    team.approvers = Approvers(approvers=frozenset({team.principal(stella)}))
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One"))]
    async with team.waiting_on("file it") as (_talk, card):
        await team.press(stella, card, "Approve")
        await team.until(lambda: len(team.private_replies(stella)) == 1)
        team.ask("file another", by=stella)
        await team.until(lambda: len(team.private_replies(stella)) == 2)
        team.model.script = [say("Fine.")]
        after = team.ask("and now?")
        await team.reads(after, FINAL)
    assert team.toolbox.calls == []
    assert len(team.model.requests) == 2


async def test_two_approvers_at_once_run_the_call_once(team: Team) -> None:
    ada = team.person("Ada", admin=True)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with team.waiting_on("file it") as (talk, card):
        before = team.screen(card)
        await asyncio.gather(*(team.press(who, card, "Approve", old=before) for who in (team.sam, ada, team.sam)))
        await team.reads(talk, "Filed.")
        await team.until(lambda: len(team.private_replies(team.sam) + team.private_replies(ada)) >= 2)
    assert team.toolbox.names == [CREATE]


async def test_a_denial_with_a_reason_reaches_the_model(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("All right.")]
    async with team.waiting_on("file it") as (talk, card):
        await team.press(team.sam, card, "Deny")
        await team.fill_in(team.sam, {"reason": "use the INC project"})
        await team.reads(talk, "All right.")
        await team.until(lambda: "use the INC project" in team.words(card))
    assert team.toolbox.calls == []
    assert any("use the INC project" in text for text in words(team.model.requests[1]))


async def test_a_user_without_rights_is_told_so_before_being_asked_for_a_reason_or_to_confirm(team: Team) -> None:
    def told_times(person: Any, times: int) -> bool:
        return len(team.private_replies(person)) == times

    lee = team.person("Lee")
    team.toolbox.add(tool(CREATE, destructive=True))
    team.model.script = [ask_for(call(CREATE, summary="One"))]
    async with team.at_work():
        card = await team.card(team.ask("file it"))
        for number, label in enumerate(("Approve", "Deny"), 1):
            await team.press(lee, card, label)
            await team.until(partial(told_times, lee, number))
            assert "You may not approve this." in team.private_replies(lee)[-1]
            assert "Reason" not in team.last_private_reply(lee)
        assert [team.buttons(message) for message in team.alone(lee)] == [[], []]
        assert any(label.startswith("Approve") for label in team.buttons(card))
    assert team.toolbox.calls == []


async def test_calls_on_one_card_are_decided_one_by_one(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    asking = [call(CREATE, f"c{number}", summary=f"Issue {number}") for number in (1, 2, 3)]
    team.model.script = [ask_for(*asking), say("One is filed.")]
    async with team.waiting_on("file them") as (talk, card):
        assert [f"Issue {number}" in team.words(card) for number in (1, 2, 3)] == [True] * 3
        for number in (1, 2):
            before = len(team.buttons(card))
            await team.press(team.sam, card, "Deny")
            await team.fill_in(team.sam, {"reason": f"not number {number}"})
            await team.until(lambda before=before: len(team.buttons(card)) < before)  # type: ignore[misc]
            assert team.toolbox.calls == []
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "One is filed.")
        await team.until(lambda: all(f"not number {number}" in team.words(card) for number in (1, 2)))
    assert [arguments for _, arguments, _ in team.toolbox.calls] == [{"summary": "Issue 3"}]
    assert [f"not number {number}" in str(words(team.model.requests[1])) for number in (1, 2, 3)] == [True, True, False]


async def test_a_card_outlives_the_process_that_drew_it(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with team.at_work():
        talk = team.ask("file it")
        card = await team.card(talk)
    async with team.at_work():
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Filed.")
    assert team.toolbox.names == [CREATE]
    assert team.visible_text(talk).count("Approved by ") == team.words(card).count("Approved by ")


async def test_a_press_on_a_card_that_has_timed_out_runs_nothing(team: Team) -> None:
    team.approval_seconds = 0.3
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Nobody signed.")]
    async with team.working_on("file it") as talk:
        await team.until(lambda: any("Approve" in str(team.buttons(message)) for message in team.messages(talk)))
        card = next(message for message in team.messages(talk) if "Approve" in str(team.buttons(message)))
        before = team.screen(card)
        await team.reads(talk, "Nobody signed.")
        await team.until(lambda: "Timed out. Not run." in team.words(card))
        await team.press(team.sam, card, "Approve", old=before)
        await team.until(lambda: team.private_replies(team.sam))
    assert team.toolbox.calls == []


async def test_stop_while_an_approval_is_waited_for_takes_the_question_back(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One"))]
    async with team.waiting_on("file it") as (talk, card):
        before = team.screen(card)
        await team.until(lambda: any("Stop" in team.buttons(message) for message in team.messages(talk)))
        stop = next(message for message in team.messages(talk) if "Stop" in team.buttons(message))
        await team.press(team.priya, stop, "Stop")
        await team.reads(talk, STOPPED)
        await team.until(lambda: "Cancelled. Not run." in team.words(card))
        await team.press(team.sam, card, "Approve", old=before)
        await team.until(lambda: team.private_replies(team.sam))
    assert team.toolbox.calls == []


async def test_a_tool_that_has_changed_since_its_card_is_not_run_and_the_card_says_why(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("It is another tool now.")]
    async with team.waiting_on("file it") as (talk, card):
        changed = {"type": "object", "properties": {"summary": {"type": "string"}, "notify": {"type": "boolean"}}}
        team.toolbox.add(tool(CREATE, input_schema=changed))
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "It is another tool now.")
        await team.until(lambda: "has changed since it was approved" in team.words(card))
    assert team.toolbox.calls == []
    assert team.buttons(card) == []
    assert any("has changed since it was approved" in text for text in words(team.model.requests[1]))


async def test_a_call_of_unknown_outcome_is_checked_and_run_again_with_a_fresh_approval(team: Team) -> None:
    async def lost(_asked: object, _context: CallContext) -> ToolOutcome:
        return CallOutcomeUnknown("The connection was lost.")

    team.toolbox.add(tool(CREATE), lost)
    team.allowed = {CREATE}
    team.model.script = [ask_for(call(CREATE, summary="One")), say("I do not know."), say("I looked: it is not there.")]
    async with team.working_on("file it") as talk:
        message = await team.offers(talk, "Check")
        await team.press(team.priya, message, "Check")
        await team.reads(talk, "I looked: it is not there.")
        assert "its answer got lost" in words(team.model.requests[2])[-1]
        assert team.toolbox.names == [CREATE]

        team.toolbox.add(tool(CREATE))
        await team.press(team.priya, message, "Run again")
        card = await team.card(talk)
        assert "One" in team.words(card)
        assert team.toolbox.names == [CREATE]
        await team.press(team.sam, card, "Approve")
        await team.settles(card)
        await team.until(lambda: team.toolbox.names == [CREATE, CREATE])
    assert len(team.model.requests) == 3
    assert team.failed_calls() == []


async def test_a_secret_among_the_arguments_is_in_no_shared_message_no_log_and_no_audit(
    team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, token = "hunter2-hunter2", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary=f"use {token}", api_key=secret)), say("Filed.")]
    async with team.working_on("file it") as talk:
        card = await team.offers(talk, "View all to approve")
        assert "api_key" in team.words(card)
        await team.press(team.sam, card, "View all to approve")
        await team.until(lambda: secret in team.last_private_reply(team.sam))
        await team.press_opened(team.sam, "Approve")
        await team.reads(talk, "Filed.")
        shown = team.visible_text(talk)
    assert [arguments["api_key"] for _, arguments, _ in team.toolbox.calls] == [secret]
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith("bot."))
    audited = str(await audit_of(team))
    for hidden in (secret, token):
        assert hidden not in shown
        assert hidden not in ours
        assert hidden not in audited


async def audit_of(team: Team) -> Sequence[object]:
    """Everything that is in the audit."""
    database = open_sqlite(team.database)
    try:
        rows = await database.run_once(lambda connection: connection.exec_driver_sql("select * from audit").all())
    finally:
        await database.close()
    assert rows
    return rows
