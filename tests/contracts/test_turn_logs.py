"""What every turn log promises (`bot.ports.TurnLog`), over each database it runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.approvals import AlreadySettled, Approval, Decision, NoSuchApproval, OutOfDate, Settled, Verdict
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Attachment, ConversationKey, InboundMessage
from bot.domain.messages import FilePart, ImagePart, Message, Role, TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import Claim, ModelStep, Origin, Question, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.domain.views import Drawn
from bot.errors import LostLease, NotFound, Stopped
from bot.storage import schema
from bot.storage.database import Database, open_sqlite
from bot.storage.turn_log import SqlTurnLog
from tests.fakes.parts import ANA, BEN, HALL, message

OTHER = ConversationKey("test", "w", "hall", "2")


class Ledger:
    """A turn log, its database, and a clock that stands still until it is moved."""

    def __init__(self, path: Path) -> None:
        self.time = 1_000_000.0
        self.path = path
        self.database = self._open()
        self.log = SqlTurnLog(self.database)

    def _open(self) -> Database:
        return open_sqlite(f"sqlite:///{self.path}", clock=lambda: self.time)

    async def restart(self) -> SqlTurnLog:
        """The process dies and another one takes its place."""
        await self.database.close()
        self.database = self._open()
        self.log = SqlTurnLog(self.database)
        await self.log.adopt_orphans()
        return self.log

    async def running(self, text: str = "hi", conversation: ConversationKey = HALL) -> Claim:
        receipt = await self.log.enqueue(message(text, conversation=conversation))
        (claim,) = await self.log.claim(1)
        assert claim.turn_id == receipt.turn_id
        return claim


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path / "turns.db")
    await schema.upgrade(ledger.database)
    yield ledger
    await ledger.database.close()


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


async def test_a_message_becomes_a_turn_that_one_worker_gets(ledger: Ledger) -> None:
    receipt = await ledger.log.enqueue(message("hi"))
    claims = await ledger.log.claim(8)
    assert [claim.turn_id for claim in claims] == [receipt.turn_id]
    assert await ledger.log.claim(8) == []


async def test_any_known_key_makes_a_message_a_redelivery(ledger: Ledger) -> None:
    first = await ledger.log.enqueue(message("hi", "a", "b"))
    again = await ledger.log.enqueue(message("hi", "c", "b"))
    assert (again.turn_id, again.redelivery) == (first.turn_id, True)


async def test_turns_of_one_conversation_are_claimed_one_at_a_time_in_order(ledger: Ledger) -> None:
    first = await ledger.log.enqueue(message("one"))
    second = await ledger.log.enqueue(message("two"))
    other = await ledger.log.enqueue(message("three", conversation=OTHER))
    claims = await ledger.log.claim(8)
    assert {claim.turn_id for claim in claims} == {first.turn_id, other.turn_id}
    assert second.ahead == 1
    await ledger.log.finish(next(c for c in claims if c.turn_id == first.turn_id), TurnStatus.DONE, [ANSWER], "")
    assert [claim.turn_id for claim in await ledger.log.claim(8)] == [second.turn_id]


async def test_the_database_itself_refuses_two_active_turns_in_a_conversation(ledger: Ledger) -> None:
    await ledger.running("one")
    second = await ledger.log.enqueue(message("two"))
    force = sa.text("update turns set status = 'running' where id = :id").bindparams(id=second.turn_id)
    with pytest.raises(sa.exc.IntegrityError):
        await ledger.database.run_once(lambda connection: connection.execute(force))


async def test_a_clock_that_jumps_takes_no_turn_away_from_its_owner(ledger: Ledger) -> None:
    claim = await ledger.running()
    ledger.time += 3600
    assert await ledger.log.claim(8) == []
    assert await ledger.log.renew([claim]) == frozenset({claim.turn_id})
    await ledger.log.append(claim, WANTS, [write(2)])


async def test_what_a_dead_process_was_driving_is_claimed_after_the_next_start(ledger: Ledger) -> None:
    claim = await ledger.running()
    log = await ledger.restart()
    (again,) = await log.claim(8)
    assert (again.turn_id, again.fence, again.recoveries) == (claim.turn_id, claim.fence + 1, 1)


async def test_a_turn_handed_over_in_good_order_counts_as_no_recovery(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.release([claim])
    (again,) = await ledger.log.claim(8)
    assert again.recoveries == 0


async def test_an_owner_that_was_replaced_can_write_nothing(ledger: Ledger) -> None:
    old = await ledger.running()
    await ledger.log.append(old, WANTS, [write(2)])
    await ledger.log.begin(old, 2)
    await ledger.log.release([old])
    (new,) = await ledger.log.claim(8)
    for attempt in (
        ledger.log.append(old, ModelStep(3, assistant("x")), []),
        ledger.log.begin(old, 2),
        ledger.log.end(old, 2, StepStatus.DONE, result("late")),
        ledger.log.park(old),
        ledger.log.finish(old, TurnStatus.DONE, [], ""),
    ):
        with pytest.raises(LostLease):
            await attempt
    record = await ledger.log.resume(new)
    assert record.calls[0].status is StepStatus.UNKNOWN
    late = sa.text("select late_result from steps where n = 2")
    kept = await ledger.database.run(lambda connection: connection.execute(late).scalar_one())
    assert "late" in kept


async def test_after_a_crash_finished_calls_stay_safe_ones_run_again_and_others_are_unknown(ledger: Ledger) -> None:
    claim = await ledger.running()
    calls = [write(2), write(3), reading(4), write(5)]
    await ledger.log.append(claim, WANTS, calls)
    await ledger.log.begin(claim, 2)
    await ledger.log.end(claim, 2, StepStatus.DONE, result())
    await ledger.log.begin(claim, 3)
    log = await ledger.restart()
    (again,) = await log.claim(8)
    record = await log.resume(again)
    assert [step.status for step in record.calls] == [
        StepStatus.DONE,
        StepStatus.UNKNOWN,
        StepStatus.READY,
        StepStatus.READY,
    ]


async def test_an_intent_can_be_written_once_by_one_owner(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    with pytest.raises(LostLease):
        await ledger.log.begin(claim, 2)


async def test_recording_a_reply_twice_changes_nothing(ledger: Ledger) -> None:
    claim = await ledger.running()
    asked = write(2, StepStatus.AWAITING, approval())
    first = await ledger.log.append(claim, WANTS, [asked])
    again = await ledger.log.append(claim, WANTS, [asked])
    assert again.steps == first.steps


async def test_everything_a_step_holds_comes_back_as_it_was(ledger: Ledger) -> None:
    claim = await ledger.running()
    reply = ModelStep(
        1,
        Message(
            Role.ASSISTANT,
            (TextPart("Ünï\ud800"), ToolCall("x", "s__write", {"n": [1, None, {"ä": True}]}, "{bad")),
            {"vendor": {"signature": "s"}},
        ),
        StopReason.TOOLS,
        Usage(10, 5, 2),
        ("A note.",),
    )
    parts = (TextPart("t"), ImagePart(b"\x00\xff", "image/png"), FilePart(b"f", "a/b", "n"))
    outcome = ToolResult("x", parts, True, {"k": 1})
    written = ToolRef("s", "write", "Write", "d", True, False)
    step = ToolStep(2, reply.message.tool_calls[0], written, StepStatus.FAILED, result=outcome)
    context = ToolStep(3, ToolCall("c", "n"), None, StepStatus.READY, True, Origin.CONTEXT)
    record = await ledger.log.append(claim, reply, [step, context])
    assert record.steps == (reply, step, context)


async def test_a_question_comes_back_as_it_was_asked(ledger: Ledger) -> None:
    asked = InboundMessage(("k",), HALL, ANA, "look", (Attachment("f", "a.png", "image/png", 3),), ("Ben: hi",))
    receipt = await ledger.log.enqueue(asked)
    turn = (await ledger.log.view(receipt.turn_id)).turn
    assert turn.question == Question("look", asked.attachments, ("Ben: hi",))
    assert turn.author == ANA


async def test_parked_turns_are_nobodys_until_somebody_decides(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await ledger.log.park(claim) is None
    assert await ledger.log.claim(8) == []
    assert await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, BEN)) == Settled(Verdict.APPROVE)
    (again,) = await ledger.log.claim(8)
    assert (await ledger.log.resume(again)).ready[0].approval.decided_by == "Ben"  # type: ignore[union-attr]


async def test_a_turn_with_work_left_is_not_parked(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval()), reading(3)])
    record = await ledger.log.park(claim)
    assert record is not None
    assert record.turn.status is TurnStatus.RUNNING


async def test_a_decision_between_the_last_look_and_parking_is_not_lost(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, ANA))
    record = await ledger.log.park(claim)
    assert record is not None
    assert [step.n for step in record.ready] == [2]


async def test_exactly_one_decision_counts(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await ledger.log.decide(Decision("card-1", 1, Verdict.DENY, ANA, "no")) == Settled(Verdict.DENY)
    second = await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, BEN))
    assert second == AlreadySettled("Ana has turned it down already.")
    assert await ledger.log.decide(Decision("nothing", 1, Verdict.APPROVE, BEN)) == NoSuchApproval()


async def test_a_decision_on_another_revision_is_out_of_date(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    assert await ledger.log.decide(Decision("card-1", 2, Verdict.APPROVE, ANA)) == OutOfDate()


async def test_an_approvals_time_runs_from_the_moment_its_card_was_posted(ledger: Ledger) -> None:
    claim = await ledger.running()
    record = await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(60))])
    await ledger.log.park(claim)
    ledger.time += 3600
    assert await ledger.log.claim(8) == []
    await ledger.log.drawn(claim.turn_id, record.revision)
    ledger.time += 59
    assert await ledger.log.claim(8) == []
    ledger.time += 2
    (again,) = await ledger.log.claim(8)
    assert (await ledger.log.resume(again)).calls[0].status is StepStatus.EXPIRED
    late = await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, ANA))
    assert late == AlreadySettled("It timed out before that. It was not run.")


async def test_a_click_after_the_time_is_up_settles_nothing_even_before_anyone_noticed(ledger: Ledger) -> None:
    claim = await ledger.running()
    record = await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(60))])
    await ledger.log.park(claim)
    await ledger.log.drawn(claim.turn_id, record.revision)
    ledger.time += 61
    assert isinstance(await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, ANA)), AlreadySettled)


async def test_an_approval_without_a_limit_waits_for_ever(ledger: Ledger) -> None:
    claim = await ledger.running()
    record = await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(None))])
    await ledger.log.park(claim)
    await ledger.log.drawn(claim.turn_id, record.revision)
    ledger.time += 10_000_000
    assert await ledger.log.claim(8) == []


async def test_a_turn_that_nobody_drives_is_stopped_at_once(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await ledger.log.park(claim)
    assert await ledger.log.stop(claim.turn_id, BEN)
    view = await ledger.log.view(claim.turn_id)
    assert (view.turn.status, view.turn.failure) == (TurnStatus.CANCELLED, "Stopped by Ben.")
    assert view.steps[1].status is StepStatus.CANCELLED  # type: ignore[union-attr]
    assert not await ledger.log.stop(claim.turn_id, BEN)
    assert await ledger.log.decide(Decision("card-1", 1, Verdict.APPROVE, ANA)) == AlreadySettled(
        "It was cancelled before that. It was not run."
    )


async def test_a_turn_that_is_being_stopped_starts_nothing_and_ends_as_cancelled(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.append(claim, WANTS, [write(2), write(3)])
    await ledger.log.begin(claim, 2)
    assert await ledger.log.stop(claim.turn_id, BEN)
    with pytest.raises(Stopped):
        await ledger.log.begin(claim, 3)
    assert await ledger.log.renew([claim]) == frozenset()
    record = await ledger.log.finish(claim, TurnStatus.DONE, [], "")
    assert record.turn.status is TurnStatus.CANCELLED
    assert [step.status for step in record.calls] == [StepStatus.UNKNOWN, StepStatus.CANCELLED]


async def test_an_ended_turn_is_behind_until_it_has_been_drawn(ledger: Ledger) -> None:
    claim = await ledger.running()
    assert await ledger.log.undrawn("test:", 8) == []
    record = await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    assert await ledger.log.undrawn("test:", 8) == [claim.turn_id]
    log = await ledger.restart()
    assert await log.undrawn("test:", 8) == [claim.turn_id]
    assert await log.undrawn("test:w:other:", 8) == []
    await log.drawn(claim.turn_id, record.revision)
    assert await log.undrawn("test:", 8) == []


async def test_a_drawing_that_failed_comes_again_when_its_time_has_come(ledger: Ledger) -> None:
    claim = await ledger.running()
    record = await ledger.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    await ledger.log.postpone(claim.turn_id, 30)
    assert await ledger.log.undrawn("test:", 8) == []
    ledger.time += 31
    assert await ledger.log.undrawn("test:", 8) == [claim.turn_id]
    await ledger.log.abandon(claim.turn_id, record.revision, "the channel is gone")
    assert await ledger.log.undrawn("test:", 8) == []


async def test_a_message_that_waits_behind_another_is_to_be_drawn_as_waiting(ledger: Ledger) -> None:
    await ledger.running("one")
    second = await ledger.log.enqueue(message("two"))
    assert await ledger.log.undrawn("test:", 8) == [second.turn_id]
    assert (await ledger.log.view(second.turn_id)).ahead == 1


async def test_references_are_kept_by_slot(ledger: Ledger) -> None:
    claim = await ledger.running()
    await ledger.log.keep(claim.turn_id, Drawn("reply", "m1"))
    await ledger.log.keep(claim.turn_id, Drawn("card", "m2"))
    await ledger.log.keep(claim.turn_id, Drawn("reply", "m3"))
    assert await ledger.log.refs(claim.turn_id) == {"reply": "m3", "card": "m2"}


async def test_history_is_what_ended_before_oldest_first(ledger: Ledger) -> None:
    for text in ("one", "two", "three"):
        await ledger.log.finish(await ledger.running(text), TurnStatus.DONE, [ANSWER], "")
    await ledger.running("four")
    history = await ledger.log.history(HALL, 4, 2)
    assert [record.turn.question.text for record in history] == ["two", "three"]
    assert await ledger.log.latest("test:w:hall:") == HALL
    assert await ledger.log.latest("test:w:else") is None


async def test_percent_signs_in_a_reach_mean_themselves(ledger: Ledger) -> None:
    await ledger.running()
    assert await ledger.log.latest("test:w:%") is None


async def test_a_turn_that_does_not_exist_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        await ledger.log.view("nothing")
    assert not await ledger.log.stop("nothing", ANA)
