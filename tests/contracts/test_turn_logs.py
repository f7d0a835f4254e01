"""Contract of the turn log (`bot.ports.TurnLog`), on each database."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from bot.domain.approvals import (
    AlreadyDecided,
    Approval,
    ApprovalNotFound,
    Decided,
    Decision,
    DecisionType,
    Revision,
    StaleRevision,
)
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Attachment, ConversationKey, InboundMessage
from bot.domain.messages import (
    ImageAudience,
    Message,
    MessageRole,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
)
from bot.domain.turns import (
    CallOrigin,
    Claim,
    ModelStep,
    PostedMessage,
    StepStatus,
    ToolRef,
    ToolStep,
    TurnInput,
    TurnStatus,
)
from bot.errors import DatabaseError, LostLease, NotFound, Stopped
from bot.storage.database import Rank
from bot.storage.reporting import SqlReporting
from bot.storage.tables import metadata
from bot.storage.turn_log.log import SqlTurnLog
from tests.audit_check import audit_findings, audit_rows
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message
from tests.turn_log_harness import Harness, running

OTHER = ConversationKey("test", "w", "hall", "2")


def approval(expires_in: float | None = 60.0) -> Approval:
    return Approval("card-1", 1, "print", ANA, expires_in)


def write(n: int, status: StepStatus = StepStatus.READY, asked: Approval | None = None) -> ToolStep:
    return ToolStep(n, ToolCall(f"c{n}", "s__write", {"a": 1}), ToolRef("s", "write"), status, approval=asked)


def reading(n: int) -> ToolStep:
    return ToolStep(n, ToolCall(f"c{n}", "s__read"), ToolRef("s", "read"), StepStatus.READY, repeatable=True)


def result(text: str = "ok") -> ToolResult:
    return ToolResult("c2", (TextPart(text),))


WANTS = ModelStep(1, assistant("", ToolCall("c2", "s__write", {"a": 1})), StopReason.TOOLS)
ANSWER = ModelStep(1, assistant("Done."))


async def test_a_message_becomes_a_turn_that_one_worker_gets(harness: Harness) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    claims = await harness.log.claim(8)
    assert [claim.turn_id for claim in claims] == [receipt.turn_id]
    assert await harness.log.claim(8, {receipt.turn_id}) == []


async def test_any_known_key_makes_a_message_a_redelivery(harness: Harness) -> None:
    first = await harness.log.enqueue(message("hi", "a", "b"))
    again = await harness.log.enqueue(message("hi", "c", "b"))
    assert (again.turn_id, again.redelivery) == (first.turn_id, True)


async def test_turns_of_one_conversation_are_claimed_one_at_a_time_in_order(harness: Harness) -> None:
    first = await harness.log.enqueue(message("one"))
    second = await harness.log.enqueue(message("two"))
    other = await harness.log.enqueue(message("three", conversation=OTHER))
    claims = await harness.log.claim(8)
    assert {claim.turn_id for claim in claims} == {first.turn_id, other.turn_id}
    assert second.queue_position == 1
    await harness.log.finish(next(c for c in claims if c.turn_id == first.turn_id), TurnStatus.DONE, [ANSWER], "")
    held = {claim.turn_id for claim in claims}
    assert [claim.turn_id for claim in await harness.log.claim(8, held)] == [second.turn_id]


async def test_the_database_itself_refuses_two_active_turns_in_a_conversation(harness: Harness) -> None:
    await running(harness, "one")
    second = await harness.log.enqueue(message("two"))
    force = sa.text("update turns set status = 'running' where id = :id").bindparams(id=second.turn_id)
    with pytest.raises(sa.exc.IntegrityError):
        await harness.database.run_once(lambda connection: connection.execute(force))


async def test_a_conversation_whose_claim_is_refused_holds_up_no_other(harness: Harness) -> None:
    for text in ("one", "two"):
        await harness.log.enqueue(message(text))
    other = await harness.log.enqueue(message("three", conversation=OTHER))
    # The bot never does this; an operator who edits rows could.
    force = sa.text("update turns set status = 'waiting' where seq = 2")
    await harness.database.run(lambda connection: connection.execute(force))
    assert [claim.turn_id for claim in await harness.log.claim(8)] == [other.turn_id]


async def test_a_clock_that_jumps_takes_no_turn_away_from_its_owner(harness: Harness) -> None:
    claim = await running(harness)
    harness.time += 3600
    assert await harness.log.claim(8, {claim.turn_id}) == []
    assert await harness.log.renew([claim]) == frozenset({claim.turn_id})
    await harness.log.append(claim, WANTS, [write(2)])


async def test_turns_of_a_dead_process_are_claimed_after_the_next_start(harness: Harness) -> None:
    claim = await running(harness)
    log = await harness.restart()
    (again,) = await log.claim(8)
    assert (again.turn_id, again.fencing_token, again.recoveries) == (claim.turn_id, claim.fencing_token + 1, 1)


async def test_a_turn_handed_over_in_good_order_counts_as_no_recovery(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.release([claim])
    (again,) = await harness.log.claim(8)
    assert again.recoveries == 0


async def test_an_owner_that_was_replaced_can_write_nothing(harness: Harness) -> None:
    old = await running(harness)
    await harness.log.append(old, WANTS, [write(2)])
    await harness.log.start_call(old, 2)
    await harness.log.release([old])
    (new,) = await harness.log.claim(8)
    for attempt in (
        harness.log.append(old, ModelStep(3, assistant("x")), []),
        harness.log.start_call(old, 2),
        harness.log.finish_call(old, 2, StepStatus.DONE, result("late")),
        harness.log.suspend(old),
        harness.log.finish(old, TurnStatus.DONE, [], ""),
    ):
        with pytest.raises(LostLease):
            await attempt
    record = await harness.log.resume(new)
    assert record.calls[0].status is StepStatus.UNKNOWN
    late = sa.text("select late_result from steps where n = 2")
    kept = await harness.database.run(lambda connection: connection.execute(late).scalar_one())
    assert "late" in str(kept)


async def test_after_a_crash_finished_calls_stay_safe_ones_run_again_and_others_are_unknown(harness: Harness) -> None:
    claim = await running(harness)
    calls = [write(2), write(3), reading(4), write(5)]
    await harness.log.append(claim, WANTS, calls)
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result())
    await harness.log.start_call(claim, 3)
    log = await harness.restart()
    (again,) = await log.claim(8)
    record = await log.resume(again)
    assert [step.status for step in record.calls] == [
        StepStatus.DONE,
        StepStatus.UNKNOWN,
        StepStatus.READY,
        StepStatus.READY,
    ]


async def test_an_intent_can_be_written_once_by_one_owner(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    with pytest.raises(LostLease):
        await harness.log.start_call(claim, 2)


async def test_recording_a_reply_twice_changes_nothing(harness: Harness) -> None:
    claim = await running(harness)
    asked = write(2, StepStatus.AWAITING, approval())
    first = await harness.log.append(claim, WANTS, [asked])
    again = await harness.log.append(claim, WANTS, [asked])
    assert again.steps == first.steps


async def test_everything_a_step_holds_comes_back_as_it_was(harness: Harness) -> None:
    claim = await running(harness)
    reply = ModelStep(
        1,
        Message(
            MessageRole.ASSISTANT,
            (TextPart("Ünï\ud800"), ToolCall("x", "s__write", {"n": [1, None, {"ä": True}]}, "{bad")),
            {"vendor": {"signature": "s"}},
        ),
        StopReason.TOOLS,
        Usage(10, 5, 2),
        ("A note.",),
    )
    parts = (TextPart("t"), StoredFile("f1", "image/png", "a.png", 2, ImageAudience.ALL), StoredFile("", "a/b", "n", 1))
    outcome = ToolResult("x", parts, True, {"k": 1})
    tool_ref = ToolRef("s", "write", "Write", "d", True, False)
    step = ToolStep(2, reply.message.tool_calls[0], tool_ref, StepStatus.FAILED, result=outcome)
    context = ToolStep(3, ToolCall("c", "n"), None, StepStatus.READY, True, CallOrigin.CONTEXT)
    record = await harness.log.append(claim, reply, [step, context])
    assert record.steps == (reply, step, context)


async def test_a_question_comes_back_as_it_was_asked(harness: Harness) -> None:
    inbound_message = InboundMessage(
        ("k",), HALL, ANA, "look", (Attachment("f", "a.png", "image/png", 3),), ("Ben: hi",)
    )
    receipt = await harness.log.enqueue(inbound_message)
    turn = (await harness.log.get_view(receipt.turn_id)).turn
    assert turn.question == TurnInput("look", inbound_message.attachments, ("Ben: hi",))
    assert turn.author == ANA


async def test_waiting_turns_have_no_owner_until_a_decision(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await harness.log.suspend(claim) is None
    assert await harness.log.claim(8) == []
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN)) == Decided(DecisionType.APPROVE)
    (again,) = await harness.log.claim(8)
    assert (await harness.log.resume(again)).ready_calls[0].approval.decided_by == "Ben"  # type: ignore[union-attr]


async def test_a_turn_with_work_left_is_not_parked(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval()), reading(3)])
    record = await harness.log.suspend(claim)
    assert record is not None
    assert record.turn.status is TurnStatus.RUNNING


async def test_a_decision_between_the_last_look_and_parking_is_not_lost(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    record = await harness.log.suspend(claim)
    assert record is not None
    assert [step.n for step in record.ready_calls] == [2]


async def test_exactly_one_decision_counts(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, ANA, "no")) == Decided(DecisionType.DENY)
    second = await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    assert second == AlreadyDecided("Ana has already denied it.")
    assert await harness.log.decide(Decision("nothing", 1, DecisionType.APPROVE, BEN)) == ApprovalNotFound()


async def test_a_decision_on_another_revision_is_out_of_date(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await harness.log.decide(Decision("card-1", 2, DecisionType.APPROVE, ANA)) == StaleRevision()


async def test_an_approvals_time_runs_from_the_moment_its_card_was_posted(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(60))])
    await harness.log.suspend(claim)
    harness.time += 3600
    assert await harness.log.claim(8) == []
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.time += 59
    assert await harness.log.claim(8) == []
    harness.time += 2
    (again,) = await harness.log.claim(8)
    assert (await harness.log.resume(again)).calls[0].status is StepStatus.EXPIRED
    late = await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    assert late == AlreadyDecided("Its approval had expired. It was not run.")


async def test_a_click_after_the_time_is_up_settles_nothing_even_before_anyone_noticed(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(60))])
    await harness.log.suspend(claim)
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.time += 61
    assert isinstance(await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA)), AlreadyDecided)


UNSHOWN = "The approval could not be shown here: The channel is gone. Not run."


async def store_suspended_turn(harness: Harness, expires_in: float | None = 60.0) -> tuple[Claim, int]:
    """Store a suspended turn with a card in delivery. Return its claim and the card's revision."""
    claim = await running(harness)
    record = await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(expires_in))])
    await harness.log.suspend(claim)
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    return claim, record.revision


@pytest.mark.parametrize("expires_in", [60.0, None])
async def test_a_call_whose_card_can_never_be_posted_is_denied_and_the_turn_goes_on(
    harness: Harness, expires_in: float | None
) -> None:
    claim, revision = await store_suspended_turn(harness, expires_in)
    assert await harness.log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    log = await harness.restart()
    (again,) = await log.claim(8)
    record = await log.resume(again)
    (step,) = record.calls
    assert (step.status, step.result) == (StepStatus.DENIED, ToolResult("c2", (TextPart(UNSHOWN),), is_error=True))
    assert step.approval is not None
    assert (step.approval.decided_by, step.approval.reason) == ("", UNSHOWN)
    assert record.revision > revision
    late = await log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    assert late == AlreadyDecided("Nobody could be asked to approve it. It was not run.")


async def test_a_call_that_was_turned_down_unseen_is_drawn_as_such_and_goes_on_record(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    await harness.log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    assert await harness.log.stale_views("test:", 8) == [claim.turn_id]
    kinds = await harness.database.run(
        lambda connection: connection.execute(sa.text("select kind from audit order by seq")).scalars().all()
    )
    assert list(kinds) == ["asked", "not shown"]


async def test_a_card_is_turned_down_once_however_often_its_drawing_is_given_up(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    assert await harness.log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    before = await harness.log.get_view(claim.turn_id)
    assert not await harness.log.give_up_delivery(claim.turn_id, revision, "Something else.")
    assert await harness.log.get_view(claim.turn_id) == before


async def test_an_undeliverable_view_is_given_up_after_the_next_start(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    log = await harness.restart()
    assert await log.stale_views("test:", 8) == [claim.turn_id]
    await log.acquire_delivery(claim.turn_id, NEWEST)
    assert await log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    assert (await log.get_view(claim.turn_id)).turn.status is TurnStatus.QUEUED


async def test_a_card_that_was_out_once_still_waits_when_a_later_drawing_is_given_up(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    await harness.log.mark_delivered(claim.turn_id, revision)
    assert await harness.log.revise(Revision("card-1", 1, {"a": 2}, "other", BEN))
    view = await harness.log.get_view(claim.turn_id)
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    assert not await harness.log.give_up_delivery(claim.turn_id, view.revision, "The channel is gone.")
    assert await harness.log.get_view(claim.turn_id) == view
    assert view.turn.status is TurnStatus.WAITING
    assert await harness.log.decide(Decision("card-1", 2, DecisionType.APPROVE, ANA)) == Decided(DecisionType.APPROVE)


async def test_of_several_cards_only_the_undelivered_one_is_denied(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    await harness.log.mark_delivered(claim.turn_id, revision)
    harness.log = await harness.restart()
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA)) == Decided(DecisionType.APPROVE)
    (again,) = await harness.log.claim(8)
    first = await harness.log.resume(again)
    other = dataclasses.replace(approval(), id="card-2")
    reply = ModelStep(3, assistant("", ToolCall("c4", "s__write", {"a": 1})), StopReason.TOOLS)
    record = await harness.log.append(again, reply, [write(4, StepStatus.AWAITING, other)])
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    assert not await harness.log.give_up_delivery(claim.turn_id, first.revision, "The channel is gone.")
    assert await harness.log.give_up_delivery(claim.turn_id, record.revision, "The channel is gone.")
    calls = (await harness.log.resume(again)).calls
    assert [step.status for step in calls] == [StepStatus.READY, StepStatus.DENIED]


async def test_a_decided_call_is_left_alone_when_its_view_is_given_up(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    assert not await harness.log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    view = await harness.log.get_view(claim.turn_id)
    assert view.steps[1].status is StepStatus.READY  # type: ignore[union-attr]


async def test_a_process_that_lost_a_delivery_denies_nothing(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    before = await harness.log.get_view(claim.turn_id)
    log = await harness.restart()
    with pytest.raises(LostLease):
        await log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    assert await log.get_view(claim.turn_id) == before


async def test_those_behind_a_call_that_was_turned_down_unseen_are_drawn_anew(harness: Harness) -> None:
    claim, revision = await store_suspended_turn(harness)
    second = await harness.log.enqueue(message("two"))
    waiting = await harness.log.get_view(second.turn_id)
    await harness.log.give_up_delivery(claim.turn_id, revision, "The channel is gone.")
    assert (await harness.log.get_view(second.turn_id)).revision > waiting.revision


async def test_an_approval_without_a_limit_waits_for_ever(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(None))])
    await harness.log.suspend(claim)
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.time += 10_000_000
    assert await harness.log.claim(8) == []


async def test_a_turn_without_an_owner_is_stopped_at_once(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await harness.log.suspend(claim)
    assert await harness.log.stop(claim.turn_id, BEN)
    view = await harness.log.get_view(claim.turn_id)
    assert (view.turn.status, view.turn.failure) == (TurnStatus.CANCELLED, "Stopped by Ben.")
    assert view.steps[1].status is StepStatus.CANCELLED  # type: ignore[union-attr]
    assert not await harness.log.stop(claim.turn_id, BEN)
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA)) == AlreadyDecided(
        "It was already cancelled. It was not run."
    )


async def test_a_turn_that_is_being_stopped_starts_nothing_and_ends_as_cancelled(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2), write(3)])
    await harness.log.start_call(claim, 2)
    assert await harness.log.stop(claim.turn_id, BEN)
    with pytest.raises(Stopped):
        await harness.log.start_call(claim, 3)
    assert await harness.log.renew([claim]) == frozenset()
    record = await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert record.turn.status is TurnStatus.CANCELLED
    assert [step.status for step in record.calls] == [StepStatus.UNKNOWN, StepStatus.CANCELLED]


async def test_an_ended_turn_is_behind_until_it_has_been_drawn(harness: Harness) -> None:
    claim = await running(harness)
    assert await harness.log.stale_views("test:", 8) == []
    record = await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert await harness.log.stale_views("test:", 8) == [claim.turn_id]
    log = await harness.restart()
    assert await log.stale_views("test:", 8) == [claim.turn_id]
    assert await log.stale_views("test:w:other:", 8) == []
    await log.acquire_delivery(claim.turn_id, NEWEST)
    await log.mark_delivered(claim.turn_id, record.revision)
    assert await log.stale_views("test:", 8) == []


async def test_a_drawing_that_failed_comes_again_when_its_time_has_come(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    await harness.log.retry_delivery_at(claim.turn_id, 30)
    assert await harness.log.stale_views("test:", 8) == []
    harness.time += 31
    assert await harness.log.stale_views("test:", 8) == [claim.turn_id]
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    assert not await harness.log.give_up_delivery(claim.turn_id, record.revision, "the channel is gone")
    assert await harness.log.stale_views("test:", 8) == []


async def test_a_message_that_waits_behind_another_is_to_be_drawn_as_waiting(harness: Harness) -> None:
    await running(harness, "one")
    second = await harness.log.enqueue(message("two"))
    assert await harness.log.stale_views("test:", 8) == [second.turn_id]
    assert (await harness.log.get_view(second.turn_id)).ahead == 1


async def test_references_are_kept_by_slot(harness: Harness) -> None:
    claim = await running(harness)
    assert await harness.log.acquire_delivery(claim.turn_id, NEWEST) == {}
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("reply", "m1"))
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("card", "m2"))
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("reply", "m3"))
    assert await harness.log.acquire_delivery(claim.turn_id, NEWEST) == {"reply": "m3", "card": "m2"}


async def test_history_has_the_ended_turns_oldest_first(harness: Harness) -> None:
    for text in ("one", "two", "three"):
        await harness.log.finish(await running(harness, text), TurnStatus.DONE, [ANSWER], "")
    await running(harness, "four")
    history = await harness.log.history(HALL, 4, 2)
    assert [record.turn.question.text for record in history.turns] == ["two", "three"]
    assert await harness.log.latest_conversation("test:w:hall:", "script:") == HALL
    assert await harness.log.latest_conversation("test:w:else", "script:") is None


async def test_conversations_are_unanswered_until_every_end_in_them_is_delivered(harness: Harness) -> None:
    async def unanswered_keys() -> list[str]:
        return [str(key) for key in await harness.log.unanswered_conversations("test:w:", 2)]

    claim = await running(harness, "one")
    assert await unanswered_keys() == [str(HALL)]
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert await unanswered_keys() == [str(HALL)]
    await harness.log.mark_delivered(claim.turn_id, (await harness.log.get_view(claim.turn_id)).revision)
    assert await unanswered_keys() == []
    await running(harness, "two")
    assert await harness.log.unanswered_conversations("test:else:", 2) == []


async def test_percent_signs_in_a_reach_mean_themselves(harness: Harness) -> None:
    await running(harness)
    assert await harness.log.latest_conversation("test:w:%", "script:") is None


async def test_a_turn_that_does_not_exist_is_not_found(harness: Harness) -> None:
    with pytest.raises(NotFound):
        await harness.log.get_view("nothing")
    assert not await harness.log.stop("nothing", ANA)


async def test_only_one_process_draws_a_turn_at_a_time(harness: Harness) -> None:
    claim = await running(harness)
    here, elsewhere = harness.log, SqlTurnLog(harness.database)
    record = await here.finish(claim, TurnStatus.DONE, [ANSWER], "")
    await here.acquire_delivery(claim.turn_id, NEWEST)
    assert await elsewhere.stale_views("test:", 8) == []
    with pytest.raises(LostLease):
        await elsewhere.acquire_delivery(claim.turn_id, NEWEST)
    harness.time += 16
    assert await elsewhere.stale_views("test:", 8) == [claim.turn_id]
    await elsewhere.acquire_delivery(claim.turn_id, NEWEST)
    for late in (
        here.save_message_ref(claim.turn_id, PostedMessage("reply", "m1")),
        here.mark_delivered(claim.turn_id, record.revision),
    ):
        with pytest.raises(LostLease):
            await late
    assert await here.renew_deliveries([claim.turn_id]) == frozenset()
    assert await elsewhere.renew_deliveries([claim.turn_id]) == {claim.turn_id}


async def test_a_turn_that_another_process_drives_is_not_drawn_here(harness: Harness) -> None:
    claim = await running(harness)
    with pytest.raises(LostLease):
        await SqlTurnLog(harness.database).acquire_delivery(claim.turn_id, NEWEST)
    assert await harness.log.acquire_delivery(claim.turn_id, NEWEST) == {}


async def test_the_next_owner_of_a_turn_delivers_it_as_soon_as_the_dead_process_cannot(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2)])
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.start_call(claim, 2)
    log = await harness.restart()
    (again,) = await log.claim(8)
    record = await log.resume(again)
    assert record.calls[0].status is StepStatus.UNKNOWN
    assert await log.acquire_delivery(claim.turn_id, NEWEST) == {}


async def test_a_turn_that_ends_before_its_first_message_is_delivered_by_its_owner_alone(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    elsewhere = SqlTurnLog(harness.database)
    assert await elsewhere.stale_views("test:", 8) == []
    with pytest.raises(LostLease):
        await elsewhere.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("reply", "m1"))
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    assert await elsewhere.acquire_delivery(claim.turn_id, NEWEST) == {"reply": "m1"}


async def test_a_drawing_put_down_is_anybodys_at_once(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("reply", "m1"))
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    await harness.log.release_delivery(claim.turn_id)
    assert await SqlTurnLog(harness.database).acquire_delivery(claim.turn_id, NEWEST) == {"reply": "m1"}


async def test_a_process_with_an_older_view_than_the_delivered_one_gets_no_delivery(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    with pytest.raises(LostLease):
        await harness.log.acquire_delivery(claim.turn_id, record.revision - 1)
    assert await harness.log.acquire_delivery(claim.turn_id, record.revision) == {}


async def test_the_time_that_a_platform_asked_for_outlasts_a_change(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.retry_delivery_at(claim.turn_id, 30)
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert await harness.log.stale_views("test:", 8) == []
    harness.time += 31
    assert await harness.log.stale_views("test:", 8) == [claim.turn_id]


async def test_a_revised_call_is_approved_as_it_stands_and_old_cards_decide_nothing(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await harness.log.revise(Revision("card-1", 1, {"a": 2}, "other print", BEN))
    assert not await harness.log.revise(Revision("card-1", 1, {"a": 3}, "third print", BEN))
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA)) == StaleRevision()
    assert await harness.log.decide(Decision("card-1", 2, DecisionType.APPROVE, ANA)) == Decided(DecisionType.APPROVE)
    step = (await harness.log.resume(claim)).calls[0]
    assert step.call.arguments == {"a": 2}
    assert step.approval is not None
    assert (step.approval.proposed, step.approval.revised_by) == ({"a": 1}, "Ben")
    assert step.approval.fingerprint == "other print"
    assert not await harness.log.revise(Revision("card-1", 2, {"a": 4}, "late print", BEN))
    assert not await harness.log.revise(Revision("no-such-card", 1, {"a": 4}, "late print", BEN))


async def test_transactions_that_are_run_twice_have_one_effect(harness: Harness) -> None:
    """The response to a COMMIT is lost, so the transaction runs again: its first outcome is unknown."""
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    receipt = await harness.log.enqueue(message("hi"))
    assert (receipt.redelivery, receipt.queue_position) == (False, 0)
    (claim,) = await harness.log.claim(8)
    await harness.log.append(claim, WANTS, [write(2), write(3, StepStatus.AWAITING, approval())])
    await harness.log.start_call(claim, 2)
    record = await harness.log.finish_call(claim, 2, StepStatus.DONE, result())
    assert [step.status for step in record.calls] == [StepStatus.DONE, StepStatus.AWAITING]
    assert await harness.log.suspend(claim) is None
    assert await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, ANA, "no")) == Decided(DecisionType.DENY)
    (claim,) = await harness.log.claim(8)
    record = await harness.log.resume(claim)
    assert [step.status for step in record.calls] == [StepStatus.DONE, StepStatus.DENIED]
    record = await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(4, assistant("Done."))], "")
    assert record.turn.status is TurnStatus.DONE
    assert len(record.steps) == 4
    second = await harness.log.enqueue(message("again"))
    await harness.log.stop(second.turn_id, BEN)
    assert (await harness.log.get_view(second.turn_id)).turn.status is TurnStatus.CANCELLED
    assert await audit_findings(harness.database) == []


async def test_a_message_without_a_name_is_one_turn_though_its_commit_is_made_twice(harness: Harness) -> None:
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    receipts = [await harness.log.enqueue(InboundMessage((), HALL, ANA, "hi")) for _ in range(2)]
    assert [receipt.redelivery for receipt in receipts] == [False, False]
    assert len({receipt.turn_id for receipt in receipts}) == 2


async def test_a_turn_without_a_stop_is_released_and_not_cancelled(harness: Harness) -> None:
    claim = await running(harness)
    record = await harness.log.finish(claim, TurnStatus.CANCELLED, [], "")
    assert record.turn.status is TurnStatus.QUEUED
    (again,) = await harness.log.claim(8)
    assert (again.turn_id, again.recoveries) == (claim.turn_id, 0)


async def test_a_claim_whose_answer_was_lost_is_made_again_at_once(harness: Harness) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    await harness.log.claim(8)
    (again,) = await harness.log.claim(8, frozenset())
    assert again.turn_id == receipt.turn_id


async def test_a_job_is_done_once_in_its_period_by_the_first_process(harness: Harness) -> None:
    elsewhere = SqlTurnLog(harness.database)
    took = await asyncio.gather(*(log.try_start_job("tidy", 60) for log in (harness.log, elsewhere, harness.log)))
    assert sorted(took) == [False, False, True]
    harness.time += 59
    assert not await elsewhere.try_start_job("tidy", 60)
    harness.time += 2
    assert await elsewhere.try_start_job("tidy", 60)
    assert not await harness.log.try_start_job("tidy", 60)


async def test_a_job_is_not_put_off_by_a_clock_that_was_wrong_for_a_while(harness: Harness) -> None:
    harness.time += 10 * 365 * 86400
    assert await harness.log.try_start_job("tidy", 60)
    harness.time -= 10 * 365 * 86400
    assert await harness.log.try_start_job("tidy", 60)
    assert not await harness.log.try_start_job("tidy", 60)


async def test_old_turns_are_deleted_in_batches_once_their_end_has_been_seen(harness: Harness) -> None:
    for text in ("one", "two", "three"):
        claim = await running(harness, text)
        record = await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
        if text != "three":
            await harness.log.acquire_delivery(claim.turn_id, NEWEST)
            await harness.log.mark_delivered(claim.turn_id, record.revision)
    assert await harness.log.delete_old(30 * 86400, 500) == 0
    harness.time += 31 * 86400
    assert [await harness.log.delete_old(30 * 86400, 1) for _ in range(3)] == [1, 1, 0]
    assert [view.turn.question.text for view in await harness.log.recent_turns(HALL, 9)] == ["three"]


async def test_a_deleted_conversation_takes_all_along_except_audit_and_usage(
    harness: Harness,
) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert not await SqlReporting(harness.database).delete(HALL, BEN)
    await harness.log.stop(claim.turn_id, BEN)
    await harness.log.finish(claim, TurnStatus.CANCELLED, [], "")
    assert await SqlReporting(harness.database).delete(HALL, BEN)
    assert not await SqlReporting(harness.database).delete(HALL, BEN)

    def left(connection: sa.Connection) -> dict[str, int]:
        count = sa.func.count()
        return {
            table.name: connection.execute(sa.select(count).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }

    counts = await harness.database.run(left)
    assert {name for name, rows in counts.items() if rows} == {"audit", "usage"}
    rows = await harness.database.run(audit_rows)
    assert [row["kind"] for row in rows] == ["asked", "stopped", "deleted conversation"]


def execute_statement(statement: sa.TextClause, connection: sa.Connection) -> None:
    connection.execute(statement)


async def test_the_audit_has_requests_decisions_and_runs_and_shows_any_change(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result("a secret answer"))
    rows = await harness.database.run(audit_rows)
    assert [(row["kind"], row["actor"]) for row in rows] == [
        ("asked", "test:ana"),
        ("decided", "test:ana"),
        ("ran", "test:ana"),
    ]
    assert "secret" not in str(rows)
    assert await audit_findings(harness.database) == []
    for forbidden in ("update audit set actor = 'test:ben' where seq = 2", "delete from audit where seq = 2"):
        with pytest.raises((sa.exc.DBAPIError, DatabaseError), match="append-only"):
            await harness.database.run(partial(execute_statement, sa.text(forbidden)))

    def forge(connection: sa.Connection) -> None:
        drop = "drop trigger audit_is_never_changed" if connection.dialect.name == "sqlite" else None
        connection.exec_driver_sql(drop or "drop trigger audit_is_append_only on audit")
        connection.exec_driver_sql("update audit set actor = 'test:ben' where seq = 2")

    await harness.database.run(forge)
    assert "Row 2 was changed." in await audit_findings(harness.database)


async def test_numbers_that_are_none_are_stored_as_nothing_and_every_row_can_still_be_read(harness: Harness) -> None:
    odd = {"n": float("nan"), "deep": [{"up": float("inf")}, (float("-inf"), 1.5)], "fine": 1.0}
    claim = await running(harness)
    outcome = ToolResult("c2", (TextPart("ok"),), structured=odd)
    call = ToolStep(2, ToolCall("c2", "s__read", odd), None, StepStatus.DONE, result=outcome)
    record = await harness.log.append(claim, WANTS, [call])
    expected = {"n": None, "deep": [{"up": None}, [None, 1.5]], "fine": 1.0}
    assert record.calls[0].call.arguments == expected
    assert record.calls[0].result is not None
    assert record.calls[0].result.structured == expected
    view = sa.text("select count(*) from tool_calls where arguments is not null and name = 's__read'")
    assert await harness.database.run(lambda connection: connection.execute(view).scalar_one()) == 1


async def test_text_that_no_database_takes_is_stored_all_the_same(harness: Harness) -> None:
    strange = 'NUL \0, half a pair \ud800, backslash u0000 \\u0000, "quotes"'
    claim = await running(harness, strange)
    call = ToolStep(2, ToolCall("c2", "s__read", {"text": strange}), None, StepStatus.FAILED, result=result(strange))
    await harness.log.append(claim, ModelStep(1, assistant(strange), StopReason.TOOLS), [call])
    record = await harness.log.finish(claim, TurnStatus.FAILED, [], strange)
    assert record.turn.question.text == strange
    assert record.calls[0].call.arguments == {"text": strange}
    assert record.calls[0].result == result(strange)
    assert record.turn.failure.startswith("NUL \ufffd, half a pair ?, backslash u0000 \\u0000")


async def test_conversations_messages_and_tool_calls_can_be_read_as_views(harness: Harness) -> None:
    claim = await running(harness, "save it \0")
    await harness.log.append(claim, WANTS, [write(2)])

    def read(connection: sa.Connection) -> tuple[list[object], list[object], list[object]]:
        return (
            [tuple(row) for row in connection.exec_driver_sql("select id, title, status from conversation_states")],
            [tuple(row) for row in connection.exec_driver_sql("select role, output_index from messages order by 2")],
            [tuple(row) for row in connection.exec_driver_sql("select item_id, type, name, status from tool_calls")],
        )

    conversations, messages, calls = await harness.database.run(read)
    assert conversations == [(str(HALL), "save it \ufffd", "STREAMING")]
    assert messages == [("user", 0), ("assistant", 1)]
    assert calls == [("c2", "mcp", "s__write", "ready")]
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result())
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(3, assistant("Done."))], "")
    conversations, messages, calls = await harness.database.run(read)
    assert conversations == [(str(HALL), "save it \ufffd", "COMPLETED")]
    assert messages == [("user", 0), ("assistant", 1), ("assistant", 3)]
    assert calls == [("c2", "mcp", "s__write", "done")]


async def test_one_message_handed_in_by_two_processes_is_one_turn(harness: Harness) -> None:
    elsewhere = SqlTurnLog(harness.database)
    same = message("hi", "event-1", "message-1")
    again = message("hi", "message-1", "event-2")
    receipts = await asyncio.gather(*(log.enqueue(m) for log in (harness.log, elsewhere) for m in (same, again)))
    assert len({receipt.turn_id for receipt in receipts}) == 1
    assert sorted(receipt.redelivery for receipt in receipts) == [False, True, True, True]


async def test_of_many_clicks_at_once_exactly_one_decides(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    clicks = [Decision("card-1", 1, verdict, by) for verdict in DecisionType for by in (ANA, BEN)] * 3
    settled = await asyncio.gather(*(harness.log.decide(click) for click in clicks))
    assert sum(isinstance(each, Decided) for each in settled) == 1
