"""Random walk over the turn log with a virtual clock, and the invariants after every step."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from bot.domain.approvals import Approval, Decided, Decision, DecisionType, Revision
from bot.domain.completions import StopReason
from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnRecord, TurnStatus
from bot.errors import LostLease, Stopped
from bot.storage.turn_log.log import SqlTurnLog
from tests.audit_check import findings_within
from tests.fakes.parts import ANA, BEN, NEWEST, message
from tests.migrated import create_database
from tests.postgres import Server
from tests.turn_log_harness import Harness, PostgresHarness, SqliteHarness

T = TypeVar("T")

PLACES = [ConversationKey("test", "w", "hall", str(n)) for n in range(2)]
RESULT = ToolResult("c", (TextPart("ok"),))
LIMIT = 60.0
WHICH = st.sampled_from([0, 0, 0, 1, 2])

_rows = sa.text("select id, conversation, seq, status from turns order by conversation, seq")
_steps = sa.text("select turn_id, n, status, repeatable, started_at from steps where kind = 'tool'")


class TurnLogMachine(RuleBasedStateMachine):
    """State of the walk: processes may die, users may click, time may jump."""

    def make_harness(self) -> Coroutine[Any, Any, Harness]:
        """Return a new harness."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.harness = self.wait(self.make_harness())
        self.messages = 0
        self.claims: list[Claim] = []
        """All claims, newest last. Dead or frozen processes still hold the old ones."""
        self.claims_of_the_dead = 0
        """Number of claims when the last process died. The death of a process without claims tests nothing."""
        self.settled: dict[str, DecisionType] = {}
        self.revisions: dict[str, int] = {}
        self.sent: dict[tuple[str, int], int] = {}
        self.ended_turns: dict[str, str] = {}
        self.ended_steps: dict[tuple[str, int], str] = {}

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the log to its end."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @property
    def log(self) -> SqlTurnLog:
        """Turn log of the current process."""
        return self.harness.log

    def teardown(self) -> None:
        self.wait(self.harness.close())
        self.loop.close()

    # ------------------------------------------------------------------ users and time

    @rule(place=st.sampled_from(PLACES), redelivered=st.booleans())
    def somebody_says_something(self, place: ConversationKey, redelivered: bool) -> None:
        self.messages += 1
        said = message(f"m{self.messages}", conversation=place)
        first = self.wait(self.log.enqueue(said))
        if redelivered:
            again = self.wait(self.log.enqueue(said))
            assert (again.turn_id, again.redelivery) == (first.turn_id, True)

    @precondition(lambda self: self.revisions)
    @rule(
        which=WHICH,
        verdict=st.sampled_from([DecisionType.APPROVE, DecisionType.APPROVE, DecisionType.DENY]),
        stale=st.booleans(),
    )
    def somebody_clicks(self, which: int, verdict: DecisionType, stale: bool) -> None:
        card = self.card(which)
        revision = self.revisions[card] - (1 if stale else 0)
        found = self.wait(self.log.get_approval(card))
        assert found is not None
        assert found[1].approval is not None
        due = found[1].approval.expires_at
        settlement = self.wait(self.log.decide(Decision(card, revision, verdict, ANA)))
        if isinstance(settlement, Decided):
            assert not stale
            assert due is None or self.harness.time < due
            assert card not in self.settled
            self.settled[card] = verdict

    @precondition(lambda self: self.revisions)
    @rule(which=WHICH)
    def somebody_revises(self, which: int) -> None:
        card = self.card(which)
        revision = self.revisions[card]
        if self.wait(
            self.log.revise(Revision(card, revision, {"revision": revision + 1}, f"print-{revision + 1}", BEN))
        ):
            assert card not in self.settled
            self.revisions[card] = revision + 1

    @precondition(lambda self: len(self.claims) > 3)
    @rule(which=WHICH)
    def somebody_stops(self, which: int) -> None:
        self.wait(self.log.stop(self.claim(which).turn_id, BEN))

    @rule(seconds=st.sampled_from([1.0, 5.0, 16.0, LIMIT + 1, 86400.0]))
    def time_passes(self, seconds: float) -> None:
        self.harness.time += seconds

    @precondition(lambda self: len(self.claims) > self.claims_of_the_dead)
    @rule()
    def the_process_dies(self) -> None:
        self.claims_of_the_dead = len(self.claims)
        self.wait(self.harness.restart())

    # ------------------------------------------------------------------ processes that run turns

    @rule(
        place=st.sampled_from(PLACES),
        limit=st.integers(1, 3),
        calls=st.lists(st.sampled_from(["safe", "unsafe", "asks", "asks"]), min_size=1, max_size=3),
    )
    def a_turn_begins_with_calls(self, place: ConversationKey, limit: int, calls: list[str]) -> None:
        self.somebody_says_something(place, redelivered=False)
        self.turns_are_claimed(limit)
        if self.claims:
            self.the_model_asks_for_calls(0, calls)

    @rule(limit=st.integers(1, 3))
    def turns_are_claimed(self, limit: int) -> None:
        # Sorted, because the log promises no order and a walk must be repeatable.
        found = sorted(self.wait(self.log.claim(limit, frozenset())), key=lambda claim: str(claim.conversation))
        for claim in found:
            rows = self.wait(self.harness.database.run(lambda connection: connection.execute(_rows).all()))
            mine = next(row for row in rows if row.id == claim.turn_id)
            before = [row for row in rows if row.conversation == mine.conversation and row.seq < mine.seq]
            assert all(row.status in ("done", "failed", "cancelled") for row in before)
            self.claims.append(claim)
            self.attempt(self.log.resume(claim))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH, calls=st.lists(st.sampled_from(["safe", "unsafe", "asks", "asks"]), min_size=1, max_size=3))
    def the_model_asks_for_calls(self, which: int, calls: list[str]) -> None:
        claim = self.claim(which)
        record = self.attempt(self.log.resume(claim))
        if record is None or record.ready_calls or record.calls_awaiting_approval or self.in_flight(record):
            return
        n = len(record.steps) + 1
        asked: list[str] = []
        steps: list[ToolStep] = []
        for kind in calls:
            place = n + len(steps) + 1
            approval = None
            if kind == "asks":
                approval = Approval(f"{claim.turn_id}-{place}", 1, "print-1", ANA, LIMIT)
                asked.append(approval.id)
            status = StepStatus.AWAITING if approval else StepStatus.READY
            call = ToolCall(f"c{place}", "s__t", {"revision": 1})
            steps.append(ToolStep(place, call, ToolRef("s", "t"), status, kind == "safe", approval=approval))
        reply = ModelStep(n, assistant("", *(step.call for step in steps)), StopReason.TOOLS)
        if self.attempt(self.log.append(claim, reply, steps)) is not None:
            self.revisions.update(dict.fromkeys(asked, 1))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH, dies=st.booleans())
    def a_call_runs(self, which: int, dies: bool) -> None:
        claim = self.claim(which)
        record = self.attempt(self.log.resume(claim))
        if record is None or not record.ready_calls:
            return
        step = record.ready_calls[0]
        if not step.repeatable:
            if self.attempt(self.log.start_call(claim, step.n)) is None:
                return
            key = (claim.turn_id, step.n)
            self.sent[key] = self.sent.get(key, 0) + 1
        if step.approval is not None:
            assert self.settled[step.approval.id] is DecisionType.APPROVE
            assert step.call.arguments == {"revision": step.approval.revision}
        if dies:
            self.wait(self.harness.restart())
        self.attempt(self.log.finish_call(claim, step.n, StepStatus.DONE, RESULT))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def the_turn_waits_for_people(self, which: int) -> None:
        claim = self.claim(which)
        self.attempt(self.log.suspend(claim))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH, status=st.sampled_from([TurnStatus.DONE, TurnStatus.FAILED]))
    def the_turn_ends(self, which: int, status: TurnStatus) -> None:
        claim = self.claim(which)
        record = self.attempt(self.log.resume(claim))
        if record is not None and not record.calls_awaiting_approval:
            n = len(record.steps) + 1
            self.attempt(self.log.finish(claim, status, [ModelStep(n, assistant("Done."))], ""))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def the_turn_is_handed_over(self, which: int) -> None:
        claim = self.claim(which)
        self.wait(self.log.release([claim]))

    @rule()
    def what_is_behind_is_drawn(self) -> None:
        for turn_id in self.wait(self.log.stale_views("test:", 3)):
            view = self.wait(self.log.get_view(turn_id))
            self.attempt(self.log.acquire_delivery(turn_id, NEWEST))
            self.attempt(self.log.mark_delivered(turn_id, view.revision))
            self.wait(self.log.release_delivery(turn_id))

    def claim(self, which: int) -> Claim:
        """Return one of the latest claims, mostly the last."""
        return self.claims[-1 - which % min(3, len(self.claims))]

    def card(self, which: int) -> str:
        """Return one of the latest cards."""
        return list(self.revisions)[-1 - which % min(3, len(self.revisions))]

    def attempt(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of the work; None if the claim was lost or the turn stopped."""
        try:
            return self.wait(work)
        except (LostLease, Stopped):
            return None

    @staticmethod
    def in_flight(record: TurnRecord) -> bool:
        """Return True if a call is running."""
        return any(step.status is StepStatus.STARTED for step in record.calls)

    # ------------------------------------------------------------------ invariants

    @invariant()
    def what_is_written_holds(self) -> None:
        turns, steps, misfits = self.wait(self.harness.database.run(_everything))
        self.one_turn_of_a_conversation_is_active(turns)
        self.what_has_ended_stays_as_it_ended(steps)
        assert misfits == [], "the audit fits"

    def one_turn_of_a_conversation_is_active(self, rows: Sequence[sa.Row[Any]]) -> None:
        active = [row.conversation for row in rows if row.status in ("running", "waiting")]
        assert len(active) == len(set(active))
        for row in rows:
            if row.id in self.ended_turns:
                assert row.status == self.ended_turns[row.id]
            elif row.status in ("done", "failed", "cancelled"):
                self.ended_turns[row.id] = row.status

    def what_has_ended_stays_as_it_ended(self, rows: Sequence[sa.Row[Any]]) -> None:
        for row in rows:
            key = (row.turn_id, row.n)
            if key in self.ended_steps:
                assert row.status == self.ended_steps[key]
            elif StepStatus(row.status).ended:
                self.ended_steps[key] = row.status
            if row.turn_id in self.ended_turns:
                assert StepStatus(row.status).ended
            card = f"{row.turn_id}-{row.n}"
            if card in self.revisions and row.status in ("ready", "started", "done", "unknown"):
                assert self.settled[card] is DecisionType.APPROVE
            if row.status in ("denied", "expired"):
                assert row.started_at is None

    @invariant()
    def no_unsafe_call_is_sent_twice(self) -> None:
        assert all(times == 1 for times in self.sent.values())


def _everything(connection: sa.Connection) -> tuple[Sequence[sa.Row[Any]], Sequence[sa.Row[Any]], list[str]]:
    """Return the turns, the calls and the audit's findings, read in one transaction."""
    turns, steps = connection.execute(_rows).all(), connection.execute(_steps).all()
    return turns, steps, findings_within(connection)


@pytest.mark.parametrize("walk", range(4))
def test_no_effect_happens_twice_in_any_order_on_sqlite(walk: int, tmp_path: Path) -> None:
    template = asyncio.run(create_database(tmp_path / "turns.db"))
    made = iter(range(10_000))

    class InFile(TurnLogMachine):
        async def make_harness(self) -> Harness:
            copy = tmp_path / f"{next(made)}.db"
            shutil.copy(template, copy)
            return SqliteHarness(copy)

    _walk(seed(walk)(InFile), examples=8, steps=45)


@pytest.mark.parametrize("walk", range(4))
def test_no_effect_happens_twice_in_any_order_on_postgresql(walk: int, postgres: Server) -> None:
    class OnServer(TurnLogMachine):
        async def make_harness(self) -> Harness:
            return PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))

    _walk(seed(walk)(OnServer), examples=5, steps=40)


def _walk(machine: type[TurnLogMachine], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
