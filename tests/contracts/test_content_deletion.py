"""Deletion of the content of delivered turns, on each database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.approvals import AlreadyDecided, Approval, Decision, DecisionType, Revision
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import CONSOLE, HTTP, Attachment, Author, ConversationKey, InboundMessage
from bot.domain.elicitations import ElicitationAction, ElicitationRequest, ElicitationResult, FormMode
from bot.domain.messages import FilePart, TextPart, ToolCall, ToolResult, assistant
from bot.domain.secrets import SecretSpan, StoredSecret
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import (
    Claim,
    EditEffect,
    HistorySummary,
    ModelStep,
    PostedMessage,
    StepStatus,
    ToolRef,
    ToolStep,
    TurnStatus,
)
from bot.errors import ContentDeleted, LostLease, NotFound
from bot.ports import CallQuery
from bot.storage.reporting import SqlReporting
from bot.storage.tables import metadata
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.user_data import SqlFeedbackStore
from tests.audit_check import audit_findings, audit_rows
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message
from tests.stored_content import columns_with, files_with
from tests.turn_log_harness import Harness, running

MARKER = "Kirschkuchen"
REF = ToolRef("s", "write", definition="d1g3st", server_id="id-of-s", place="here")
LATER = 2 * 86_400.0


async def delete(harness: Harness, log: SqlTurnLog | None = None) -> int:
    """Delete the content that is due now."""
    return await (log or harness.log).delete_content(10, fetch_seconds=300, undelivered_seconds=86_400)


async def deliver(harness: Harness, turn_id: str) -> None:
    await harness.log.acquire_delivery(turn_id, NEWEST)
    await harness.log.save_message_ref(turn_id, PostedMessage("answer-0", "m1"))
    await harness.log.mark_delivered(turn_id, (await harness.log.get_view(turn_id)).revision)


async def store_answered_turn(harness: Harness, text: str = "hi", conversation: ConversationKey = HALL) -> Claim:
    """Store a turn with a delivered answer. Return its claim."""
    claim = await running(harness, text, conversation)
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(1, assistant(f"about {text}"))], "")
    await deliver(harness, claim.turn_id)
    return claim


async def eventful(harness: Harness) -> Claim:
    """Store an ended, undelivered turn with MARKER in all its content. Return its claim."""
    await harness.log.enqueue(
        InboundMessage(
            ("k1",),
            HALL,
            ANA,
            f"ask {MARKER}",
            (Attachment("f1", f"{MARKER}.pdf", "application/pdf", 3),),
            (f"Ben: {MARKER}",),
            message_id="m0",
        )
    )
    (claim,) = await harness.log.claim(1)
    arguments = {"text": MARKER}
    spots = (StoredSecret((0, 1), SecretSpan(0, 3, "header X-Key")),)
    card = Approval("card-1", 1, "print", ANA, None, secrets=spots)
    calls = (
        ToolStep(2, ToolCall("c2", "s__write", arguments), REF, StepStatus.AWAITING, approval=card),
        ToolStep(3, ToolCall("c3", f"no_{MARKER}", {}, unreadable=MARKER), None, StepStatus.READY),
    )
    reply = ModelStep(1, assistant(MARKER, *(step.call for step in calls)), StopReason.TOOLS, Usage(7, 5))
    await harness.log.append(claim, reply, calls)
    await harness.log.revise(Revision("card-1", 1, {"text": f"new {MARKER}"}, "second print", ANA, spots))
    await harness.log.decide(Decision("card-1", 2, DecisionType.APPROVE, BEN, reason=MARKER))
    await harness.log.start_call(claim, 2)
    question = ElicitationRequest(MARKER, MARKER, FormMode({"type": "object", "title": MARKER}))
    record = await harness.log.suspend_for_elicitation(claim, 2, CallNeedsInput((question,), MARKER), 60.0)
    (elicitation,) = record.calls[0].pending_elicitations
    await harness.log.answer_elicitation(
        elicitation.id, ElicitationResult(ElicitationAction.ACCEPT, {"a": MARKER}), ANA
    )
    await harness.log.start_call(claim, 2)
    returned = ToolResult(
        "c2",
        (TextPart(MARKER * 5_000), FilePart(MARKER.encode() * 9_000, "text/plain", f"{MARKER}.txt")),
        structured={"a": MARKER},
    )
    await harness.log.finish_call(claim, 2, StepStatus.DONE, returned, 0.5)
    await harness.log.finish_call(claim, 3, StepStatus.FAILED, ToolResult("c3", (TextPart(MARKER),), is_error=True))
    await harness.log.finish(claim, TurnStatus.FAILED, [ModelStep(4, assistant(MARKER), notes=(MARKER,))], MARKER)
    return claim


async def test_no_message_or_result_is_left_in_any_table_or_file(harness: Harness, tmp_path: Path) -> None:
    claim = await eventful(harness)
    before = await columns_with(harness.database, MARKER)
    assert {name.partition(".")[0] for name in before} == {
        "approvals", "conversations", "decisions", "elicitations", "files", "steps", "turns"
    }  # fmt: skip
    await deliver(harness, claim.turn_id)
    assert await delete(harness) == 1
    assert await delete(harness) == 0
    assert await columns_with(harness.database, MARKER) == []
    assert await harness.log.purge_files(whole=False)
    if not harness.database.shared:
        assert files_with(tmp_path / "turns.db", MARKER) == []
    assert await audit_findings(harness.database) == []


async def test_calls_with_user_tool_time_and_outcome_are_still_listed(harness: Harness) -> None:
    claim = await eventful(harness)
    await deliver(harness, claim.turn_id)
    before = await harness.database.run(audit_rows)
    await delete(harness)
    rows = await harness.database.run(audit_rows)
    assert rows[: len(before)] == before
    assert [row["kind"] for row in rows[len(before) :]] == ["deleted content"]
    calls, count = await SqlReporting(harness.database).calls(CallQuery(), 10, 0)
    assert count == 2
    assert {(each.name, each.status, each.asked_by, each.decided_by) for each in calls} == {
        ("s.write", "done", "Ana", "Ben"),
        ("(no such tool)", "failed", "Ana", ""),
    }
    answer = await harness.log.decide(Decision("card-1", 2, DecisionType.DENY, ANA))
    assert isinstance(answer, AlreadyDecided)
    assert "Ben" in answer.how


async def test_a_message_that_comes_again_is_known_and_its_thread_is_followed(harness: Harness) -> None:
    claim = await eventful(harness)
    await deliver(harness, claim.turn_id)
    await delete(harness)
    assert (await harness.log.enqueue(message("again", "k1"))).turn_id == claim.turn_id
    assert await harness.log.is_followed(HALL, 30.0)
    assert await harness.log.get_message_refs(claim.turn_id) == {"answer-0": "m1"}
    (view,) = await harness.log.recent_turns(HALL, 5)
    assert (view.turn.content_deleted, view.steps, view.turn.question.message_id) == (True, (), "m0")
    await SqlFeedbackStore(harness.database).save(claim.turn_id, True, ANA)


async def test_a_turn_without_content_is_read_no_more_and_never_shown_again(harness: Harness) -> None:
    claim = await store_answered_turn(harness)
    await delete(harness)
    with pytest.raises(ContentDeleted):
        await harness.log.get_view(claim.turn_id)
    edited = await harness.log.edit_question(["hi"], MARKER, ANA)
    assert edited is not None
    assert edited.effect is EditEffect.NONE
    await harness.database.run(lambda c: c.execute(sa.text("update deliveries set revision = revision + 1")))
    assert await harness.log.stale_views("", 9) == []
    assert await columns_with(harness.database, MARKER) == []


async def test_late_content_is_not_stored(harness: Harness) -> None:
    claim = await running(harness)
    step = ToolStep(2, ToolCall("c2", "s__write"), REF, StepStatus.READY)
    await harness.log.append(claim, ModelStep(1, assistant("", step.call), StopReason.TOOLS), [step])
    await harness.log.start_call(claim, 2)
    log = await harness.restart()
    (adopted,) = await log.claim(1)
    await log.resume(adopted)
    await log.finish(adopted, TurnStatus.DONE, [ModelStep(3, assistant("sorry"))], "")
    await deliver(harness, claim.turn_id)
    await delete(harness)
    with pytest.raises(LostLease):
        await log.finish_call(claim, 2, StepStatus.DONE, ToolResult("c2", (TextPart(MARKER),)), 1.0)
    assert await columns_with(harness.database, MARKER) == []
    assert await audit_findings(harness.database) == []


async def test_content_stays_until_the_answer_is_out_and_no_longer_than_a_day(harness: Harness) -> None:
    waiting = await running(harness, "waits", replace(HALL, thread="2"))
    card = Approval("card-1", 1, "print", ANA, None)
    step = ToolStep(2, ToolCall("c2", "s__write"), REF, StepStatus.AWAITING, approval=card)
    await harness.log.append(waiting, ModelStep(1, assistant("", step.call), StopReason.TOOLS), [step])
    await harness.log.suspend(waiting)
    ended = await running(harness, "ends")
    await harness.log.finish(ended, TurnStatus.DONE, [ModelStep(1, assistant("never taken"))], "")
    assert await delete(harness) == 0
    harness.time += LATER
    assert await delete(harness) == 1
    assert await columns_with(harness.database, "never taken") == []
    assert await harness.log.stale_views("", 9) == [waiting.turn_id]
    assert (await harness.log.get_view(waiting.turn_id)).awaiting


async def test_a_client_of_the_http_api_has_some_minutes_to_read_the_answer(harness: Harness) -> None:
    await store_answered_turn(harness, "one", ConversationKey(HTTP, "w", "token", "1"))
    assert await delete(harness) == 0
    harness.time += 301
    assert await delete(harness) == 1


async def test_a_process_that_died_before_the_deletion_is_made_up_for(harness: Harness) -> None:
    await store_answered_turn(harness)
    log = await harness.restart()
    assert await delete(harness, log) == 1
    assert await columns_with(harness.database, "about hi") == []


async def test_the_history_has_bare_turns_and_only_a_terminal_remembers_them_in_its_process(harness: Harness) -> None:
    terminal = ConversationKey(CONSOLE, "w", "ana", "1")
    for conversation in (HALL, terminal):
        await store_answered_turn(harness, f"hi {conversation.platform}", conversation)
    claim = await running(harness, "next")
    await harness.log.save_summary(claim, HistorySummary(1, MARKER), await harness.log.history(HALL, 2, 9))
    assert await delete(harness) == 2
    assert await columns_with(harness.database, MARKER) == []
    past = await harness.log.history(HALL, 9, 9)
    assert past.summary is None
    assert [(record.turn.content_deleted, record.replies[0].message.text) for record in past.turns] == [(True, "")]
    (remembered,) = (await harness.log.history(terminal, 9, 9)).turns
    assert remembered.replies[0].message.text == "about hi console"
    (forgotten,) = (await (SqlTurnLog(harness.database)).history(terminal, 9, 9)).turns
    assert forgotten.turn.content_deleted


async def test_an_unreadable_turn_is_deleted_too(harness: Harness) -> None:
    claim = await store_answered_turn(harness)
    broken = '{"v": 99, "text": "' + MARKER + '"}'

    def spoil(connection: sa.Connection) -> None:
        for column in ("turns set input", "steps set body"):
            connection.execute(sa.text(f"update {column} = '{broken}'".replace(":", "\\:")))

    await harness.database.run(spoil)
    assert await delete(harness) == 1
    assert await columns_with(harness.database, MARKER) == []
    with pytest.raises(NotFound):
        await harness.log.get_view(claim.turn_id)


async def test_rows_without_content_go_when_retention_deletes_turns(harness: Harness) -> None:
    claim = await running(harness, "never taken")
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    harness.time += LATER
    await delete(harness)
    assert await harness.log.delete_old(LATER + 1, 10) == 0
    assert await harness.log.delete_old(LATER - 1, 10) == 1
    assert await harness.log.recent_turns(HALL, 5) == []
    assert await audit_findings(harness.database) == []


async def test_the_conversation_of_another_user_keeps_its_content(harness: Harness) -> None:
    await store_answered_turn(harness, "gone")
    other = ConversationKey("test", "w", "hall", "9")
    claim = await running(harness, "goes on", other)
    await delete(harness)
    assert (await harness.log.get_view(claim.turn_id)).turn.question.text == "goes on"
    assert Author("test", "ana", "Ana") == (await harness.log.get_view(claim.turn_id)).turn.author


WITHOUT_CONTENT = {
    "conversations": {"key", "agent_id", "agent_name"},
    "turns": {
        "id", "conversation", "status", "kind", "author_id", "author_name", "principal", "workspace", "agent_id",
        "owner", "stop_by",
    },
    "steps": {"turn_id", "kind", "status"},
    "approvals": {
        "id", "turn_id", "fingerprint", "revised_by", "requested_for_id", "requested_for_name", "decided_by",
        "requirements", "possible_approvers", "editors", "approver_names",
    },
    "decisions": {"approval_id", "principal", "name", "decision", "key", "evidence"},
    "approval_views": {"approval_id", "principal"},
    "deliveries": {"turn_id", "owner"},
    "message_refs": {"turn_id", "slot", "ref"},
    "message_keys": {"key", "turn_id"},
    "feedback": {"turn_id", "principal"},
}  # fmt: skip
"""Columns with ids, names, statuses and rules."""
DELETED = {
    "conversations.title", "turns.input", "turns.failure", "steps.body", "steps.result", "steps.late_result",
    "approvals.proposed_arguments", "approvals.revised_arguments", "approvals.approved_arguments", "approvals.reason",
    "approvals.proposed_secrets", "approvals.revised_secrets", "decisions.reason", "deliveries.error",
}  # fmt: skip
"""Columns that `content_deletion` empties. Rows of `elicitations`, `files` and `summaries` are deleted."""


def test_every_column_of_a_turn_is_known_to_hold_content_or_none() -> None:
    """A new column fails this test. Add it to one of the sets. If it holds content, empty it in `content_deletion`."""
    columns = {
        f"{table}.{column.name}"
        for table in WITHOUT_CONTENT
        for column in metadata.tables[table].c
        if not isinstance(column.type, sa.Boolean | sa.Integer | sa.Double)
    }
    assert columns == DELETED | {f"{table}.{name}" for table, names in WITHOUT_CONTENT.items() for name in names}
