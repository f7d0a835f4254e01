"""Counts of unfinished work and of activity in a period, on each database."""

from __future__ import annotations

import pytest

from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.completions import StopReason
from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnLimits, TurnStatus
from bot.ports import Activity, ApprovalActivity, Backlog, ServerActivity
from bot.storage import activity
from bot.storage.reporting import SqlReporting
from bot.storage.tables import audit
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import START, Harness

ELSEWHERE = ConversationKey("test", "v", "hall", "1")
EVERYWHERE = ""
EVERY_SERVER = ""


def place(number: int) -> ConversationKey:
    return ConversationKey("test", "w", "hall", str(number))


def make_call(n: int, status: StepStatus, server: str = "s", card: str = "") -> ToolStep:
    approval = Approval(card, 1, "print", ANA, 60.0) if card else None
    ref = ToolRef(server, "write", server_id=f"id-of-{server}")
    return ToolStep(n, ToolCall(f"c{n}", f"{server}__write", {}), ref, status, True, approval=approval)


async def claim_new_turn(harness: Harness, where: ConversationKey = HALL, *, beside: Claim | None = None) -> Claim:
    """Claim a new turn for the current process, beside a turn it already holds."""
    receipt = await harness.log.enqueue(message(f"hi {where}", conversation=where))
    (claim,) = await harness.log.claim(1, [beside.turn_id] if beside else [])
    assert claim.turn_id == receipt.turn_id
    return claim


async def asking_for(
    harness: Harness, *steps: ToolStep, where: ConversationKey = HALL, beside: Claim | None = None
) -> Claim:
    claim = await claim_new_turn(harness, where, beside=beside)
    reply = ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)
    await harness.log.append(claim, reply, steps)
    return claim


async def ran(harness: Harness, claim: Claim, n: int, status: StepStatus, seconds: float) -> None:
    await harness.log.finish_call(claim, n, status, ToolResult(f"c{n}", (TextPart("it"),)), seconds)


async def recorded_activity(
    harness: Harness, since: float = START, workspace: str = EVERYWHERE, server: str = EVERY_SERVER
) -> Activity:
    return await SqlReporting(harness.database).activity(since, workspace, server)


# ---------------------------------------------------------------------- unfinished


async def test_where_nothing_is_to_be_done_the_backlog_is_empty(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    await harness.log.acquire_delivery(claim.turn_id, 99)
    await harness.log.mark_delivered(claim.turn_id, 99)
    empty = Backlog({"queued": 0, "running": 0, "waiting": 0}, 0.0, 0, 0)
    assert await SqlReporting(harness.database).backlog() == empty


async def test_turns_are_counted_by_status_with_waiting_approvals_and_deliveries(harness: Harness) -> None:
    claim = await asking_for(
        harness,
        make_call(2, StepStatus.AWAITING, card="a"),
        make_call(3, StepStatus.AWAITING, card="b"),
        where=place(1),
    )
    assert await harness.log.suspend(claim) is None
    ended = await claim_new_turn(harness, place(2))
    await harness.log.finish(ended, TurnStatus.DONE, (), "")
    await claim_new_turn(harness, place(3))
    found = await SqlReporting(harness.database).backlog()
    assert found == Backlog({"queued": 0, "running": 1, "waiting": 1}, 0.0, 2, 2)


async def test_only_a_turn_that_could_begin_waits_for_a_worker(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    await harness.log.enqueue(message("second"))
    harness.time += 30
    assert (await SqlReporting(harness.database).backlog()).oldest_ready == 0.0
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    found = await SqlReporting(harness.database).backlog()
    assert (found.oldest_ready, found.turns["queued"]) == (30.0, 1)


async def test_a_turn_that_the_limit_of_its_person_holds_back_does_not_wait_for_a_worker(harness: Harness) -> None:
    archive = SqlReporting(harness.database, TurnLimits(running=1))
    claim = await claim_new_turn(harness, place(1))
    await harness.log.enqueue(message("second", conversation=place(2)))
    harness.time += 30
    assert (await archive.backlog()).oldest_ready == 0.0
    await harness.log.enqueue(message("third", conversation=place(3), author=BEN))
    harness.time += 10
    assert (await archive.backlog()).oldest_ready == 10.0
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    assert (await archive.backlog()).oldest_ready == 40.0


# ---------------------------------------------------------------------- activity in a period


async def test_where_nothing_has_happened_there_is_nothing_to_count(harness: Harness) -> None:
    assert await recorded_activity(harness) == Activity({}, (), ApprovalActivity())


async def test_calls_are_counted_by_server_with_how_they_went_and_how_long_they_took(harness: Harness) -> None:
    claim = await asking_for(
        harness,
        *(make_call(n, StepStatus.READY, "weather") for n in range(2, 22)),
        make_call(22, StepStatus.READY, "files"),
    )
    for n in range(2, 22):
        await ran(harness, claim, n, StepStatus.DONE if n > 3 else StepStatus.FAILED, float(n - 1))
    await ran(harness, claim, 22, StepStatus.DONE, 0.5)
    assert (await recorded_activity(harness)).servers == (
        ServerActivity("weather", 20, 18, 10.0, 19.0),
        ServerActivity("files", 1, 1, 0.5, 0.5),
    )
    assert [server.server for server in (await recorded_activity(harness, server="id-of-files")).servers] == ["files"]


async def test_approvals_are_counted_by_outcome_with_the_times_of_users(harness: Harness) -> None:
    claim = await asking_for(harness, *(make_call(n, StepStatus.AWAITING, card=f"card-{n}") for n in range(2, 7)))
    await harness.log.acquire_delivery(claim.turn_id, 99)
    await harness.log.mark_delivered(claim.turn_id, 99)
    for n, verdict, later in ((2, DecisionType.APPROVE, 2), (3, DecisionType.DENY, 4), (4, DecisionType.APPROVE, 10)):
        harness.time += later
        await harness.log.decide(Decision(f"card-{n}", 1, verdict, BEN))
    assert (await recorded_activity(harness)).approvals == ApprovalActivity(5, 2, 1, 0, 6.0)
    harness.time += 60
    await harness.log.suspend(claim)
    found = (await recorded_activity(harness, server="id-of-s")).approvals
    assert found == ApprovalActivity(5, 2, 1, 2, 6.0)
    assert found.others == 0
    assert (await recorded_activity(harness, server="id-of-other")).approvals == ApprovalActivity()


async def test_only_events_of_the_period_and_place_count(harness: Harness) -> None:
    early = await asking_for(
        harness, make_call(2, StepStatus.READY), make_call(3, StepStatus.AWAITING, card="early"), where=place(1)
    )
    await ran(harness, early, 2, StepStatus.DONE, 1.0)
    harness.time += 100
    await harness.log.decide(Decision("early", 1, DecisionType.APPROVE, BEN))
    late = await asking_for(harness, make_call(2, StepStatus.READY), where=ELSEWHERE, beside=early)
    await ran(harness, late, 2, StepStatus.DONE, 2.0)
    await harness.log.finish(late, TurnStatus.FAILED, (), "no")
    everything = await recorded_activity(harness)
    assert everything.turns == {"running": 1, "failed": 1}
    assert everything.servers == (ServerActivity("s", 2, 2, 1.0, 2.0),)
    lately = await recorded_activity(harness, START + 50)
    assert lately == Activity({"failed": 1}, (ServerActivity("s", 1, 1, 2.0, 2.0),), ApprovalActivity())
    there = await recorded_activity(harness, workspace="test:w")
    assert (there.turns, there.approvals.requested) == ({"running": 1}, 1)
    assert [server.calls for server in there.servers] == [1]


async def test_more_than_is_read_is_counted_as_far_as_it_is_the_latest(harness: Harness) -> None:
    claim = await asking_for(harness, *(make_call(n, StepStatus.READY) for n in range(2, 6)))
    for n in range(2, 6):
        harness.time += 1
        await ran(harness, claim, n, StepStatus.DONE, float(n))
    found = await harness.database.run(
        lambda connection: activity.read_activity(connection, START, EVERYWHERE, EVERY_SERVER, limit=3)
    )
    assert not found.whole
    assert found.servers == (ServerActivity("s", 3, 3, 4.0, 5.0),)


@pytest.mark.parametrize("body", ["", "[1]", "not json"])
async def test_a_row_that_cannot_be_read_keeps_nothing_from_being_counted(harness: Harness, body: str) -> None:
    claim = await asking_for(harness, make_call(2, StepStatus.READY))
    await ran(harness, claim, 2, StepStatus.DONE, 1.0)
    row = {"seq": 2, "at": START, "kind": "ran", "conversation": str(HALL), "turn_id": "t", "actor": "test:ana"}
    chain = {"previous": "", "hash": "", "subject": "", "mac": ""}
    await harness.database.run(lambda connection: connection.execute(audit.insert().values(**row, **chain, body=body)))
    assert {(server.server, server.calls) for server in (await recorded_activity(harness)).servers} == {
        ("", 1),
        ("s", 1),
    }
