"""Contract of the turn log about queued turns, on each database."""

from __future__ import annotations

from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.turns import BlockingTurn, Claim, StepStatus, ToolRef, ToolStep, TurnStatus
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message
from tests.turn_log_harness import Harness, running

OTHER = ConversationKey("test", "w", "hall", "2")
MINUTE = 60.0


async def store_queued_turn(harness: Harness, text: str) -> str:
    """Store a queued turn with a delivered view. Return its id."""
    turn_id = (await harness.log.enqueue(message(text))).turn_id
    await deliver_view(harness, turn_id)
    return turn_id


async def deliver_view(harness: Harness, turn_id: str) -> None:
    view = await harness.log.get_view(turn_id)
    await harness.log.acquire_delivery(turn_id, NEWEST)
    await harness.log.mark_delivered(turn_id, view.revision)
    await harness.log.release_delivery(turn_id)


async def asks(harness: Harness, claim: Claim, card: str = "card-1", n: int = 1) -> None:
    """Suspend the turn for an approval and deliver its card."""
    wants = ToolStep(
        n,
        ToolCall(f"c{n}", "s__write"),
        ToolRef("s", "write"),
        StepStatus.AWAITING,
        approval=Approval(card, 1, "print", ANA, MINUTE),
    )
    await harness.log.append(claim, None, [wants])
    assert await harness.log.suspend(claim) is None
    await deliver_view(harness, claim.turn_id)


async def behind(harness: Harness) -> list[str]:
    return list(await harness.log.stale_views("test:", 8))


async def test_a_queued_turn_names_the_one_it_waits_for_and_says_whether_that_waits_for_an_approval(
    harness: Harness,
) -> None:
    first = await running(harness, "one")
    second, third = await store_queued_turn(harness, "two"), await store_queued_turn(harness, "three")
    assert [(await harness.log.get_view(turn_id)).ahead for turn_id in (second, third)] == [1, 2]
    assert (await harness.log.get_view(third)).blocker == BlockingTurn(first.turn_id)
    await asks(harness, first)
    for turn_id in (second, third):
        assert (await harness.log.get_view(turn_id)).blocker == BlockingTurn(first.turn_id, awaits_approval=True)
    assert (await harness.log.get_view(first.turn_id)).blocker is None


async def test_a_turn_behind_one_that_awaits_approval_is_not_ahead_of_other_conversations(harness: Harness) -> None:
    first = await running(harness, "one")
    await store_queued_turn(harness, "two")
    harness.time += 1
    other = (await harness.log.enqueue(message("three", conversation=OTHER))).turn_id
    assert (await harness.log.get_view(other)).ahead == 1
    await asks(harness, first)
    assert (await harness.log.get_view(other)).ahead == 0


async def test_when_a_turn_begins_to_wait_for_an_approval_those_behind_it_are_to_be_drawn_again(
    harness: Harness,
) -> None:
    claim = await running(harness, "one")
    second, third = await store_queued_turn(harness, "two"), await store_queued_turn(harness, "three")
    for text in ("elsewhere", "and behind it"):
        await deliver_view(harness, (await harness.log.enqueue(message(text, conversation=OTHER))).turn_id)
    assert await behind(harness) == []
    await asks(harness, claim)
    assert await behind(harness) == [second, third]


async def test_when_it_waits_no_longer_they_are_too(harness: Harness) -> None:
    claim = await running(harness, "one")
    second = await store_queued_turn(harness, "two")
    await asks(harness, claim)
    await deliver_view(harness, second)
    await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, BEN))
    assert second in await behind(harness)
    assert (await harness.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_when_the_time_to_approve_is_over_they_are_too(harness: Harness) -> None:
    claim = await running(harness, "one")
    second = await store_queued_turn(harness, "two")
    await asks(harness, claim)
    await deliver_view(harness, second)
    harness.time += MINUTE + 1
    (again,) = await harness.log.claim(8)
    await harness.log.resume(again)
    assert await behind(harness) == [second]
    assert (await harness.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_when_a_turn_ends_those_behind_it_move_up(harness: Harness) -> None:
    claim = await running(harness, "one")
    second, third = await store_queued_turn(harness, "two"), await store_queued_turn(harness, "three")
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert await behind(harness) == [claim.turn_id, second, third]
    view = await harness.log.get_view(third)
    assert (view.ahead, view.blocker) == (1, BlockingTurn(second))
    assert (await harness.log.get_view(second)).blocker is None


async def test_stopping_a_turn_that_waits_for_an_approval_lets_the_next_one_go_on(harness: Harness) -> None:
    claim = await running(harness, "one")
    second, third = await store_queued_turn(harness, "two"), await store_queued_turn(harness, "three")
    await asks(harness, claim)
    await deliver_view(harness, second)
    await deliver_view(harness, third)
    assert await harness.log.stop(claim.turn_id, BEN)
    assert await behind(harness) == [claim.turn_id, second, third]
    assert [claim.turn_id for claim in await harness.log.claim(8)] == [second]


async def test_a_queued_turn_that_is_stopped_moves_up_those_behind_it_alone(harness: Harness) -> None:
    claim = await running(harness, "one")
    second, third, fourth = [await store_queued_turn(harness, text) for text in ("two", "three", "four")]
    await harness.log.stop(third, BEN)
    assert await behind(harness) == [third, fourth]
    assert (await harness.log.get_view(fourth)).ahead == 2
    assert (await harness.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_a_turn_ended_twice_after_a_lost_answer_moves_them_up_once(harness: Harness) -> None:
    claim = await running(harness, "one")
    second = await store_queued_turn(harness, "two")
    before = (await harness.log.get_view(second)).revision
    for _ in range(2):
        await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert (await harness.log.get_view(second)).revision == before + 1


async def test_a_reach_that_ends_with_a_colon_takes_in_one_conversation_alone(harness: Harness) -> None:
    long = ConversationKey("test", "w", "hall", "10")
    here = (await harness.log.enqueue(message("one", conversation=HALL))).turn_id
    await harness.log.enqueue(message("two", conversation=long))
    reach = f"{HALL}:"
    claims = await harness.log.claim(8, reaches=[reach])
    assert [claim.turn_id for claim in claims] == [here]
    await harness.log.append(claims[0], None, [])
    await harness.log.finish(claims[0], TurnStatus.DONE, [], "")
    (other,) = await harness.log.claim(8, reaches=["test:"])
    await harness.log.finish(other, TurnStatus.DONE, [], "")
    assert await harness.log.stale_views(reach, 8) == [here]
    assert len(await harness.log.stale_views("test:w:hall:1", 8)) == 2


async def test_a_late_call_moves_no_turn(harness: Harness) -> None:
    """A change visible only in the running turn's view makes no view of a queued turn stale."""
    claim = await running(harness, "one")
    second = await store_queued_turn(harness, "two")
    call = ToolStep(1, ToolCall("c1", "s__write"), ToolRef("s", "write"), StepStatus.READY)
    await harness.log.append(claim, None, [call])
    await harness.log.start_call(claim, 1)
    await harness.log.finish_call(claim, 1, StepStatus.DONE, ToolResult("c1", (TextPart("ok"),)))
    assert second not in await behind(harness)


async def test_delivering_says_whether_a_newer_view_is_wanted(harness: Harness) -> None:
    claim = await running(harness, "one")
    before = (await harness.log.get_view(claim.turn_id)).revision
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    assert await harness.log.mark_delivered(claim.turn_id, before)
    assert not await harness.log.mark_delivered(claim.turn_id, (await harness.log.get_view(claim.turn_id)).revision)
