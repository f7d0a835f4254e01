"""What a turn log knows of turns that wait for others, over each database it runs on."""

from __future__ import annotations

from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.turns import Claim, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.domain.views import BlockingTurn
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message
from tests.ledgers import Ledger, running

OTHER = ConversationKey("test", "w", "hall", "2")
MINUTE = 60.0


async def queued(ledger: Ledger, text: str) -> str:
    """A turn that waits, and whose drawing says so already."""
    turn_id = (await ledger.log.enqueue(message(text))).turn_id
    await drawn(ledger, turn_id)
    return turn_id


async def drawn(ledger: Ledger, turn_id: str) -> None:
    view = await ledger.log.get_view(turn_id)
    await ledger.log.acquire_delivery(turn_id, NEWEST)
    await ledger.log.mark_delivered(turn_id, view.revision)
    await ledger.log.release_delivery(turn_id)


async def asks(ledger: Ledger, claim: Claim, card: str = "card-1", n: int = 1) -> None:
    """The turn waits for a signature, and its card is out."""
    wants = ToolStep(
        n,
        ToolCall(f"c{n}", "s__write"),
        ToolRef("s", "write"),
        StepStatus.AWAITING,
        approval=Approval(card, 1, "print", ANA, MINUTE),
    )
    await ledger.log.append(claim, None, [wants])
    assert await ledger.log.park(claim) is None
    await drawn(ledger, claim.turn_id)


async def behind(ledger: Ledger) -> list[str]:
    return list(await ledger.log.stale_views("test:", 8))


async def test_a_queued_turn_names_the_one_it_waits_for_and_says_whether_that_waits_for_a_signature(
    ledger: Ledger,
) -> None:
    first = await running(ledger, "one")
    second, third = await queued(ledger, "two"), await queued(ledger, "three")
    assert [(await ledger.log.get_view(turn_id)).ahead for turn_id in (second, third)] == [1, 2]
    assert (await ledger.log.get_view(third)).blocker == BlockingTurn(first.turn_id)
    await asks(ledger, first)
    for turn_id in (second, third):
        assert (await ledger.log.get_view(turn_id)).blocker == BlockingTurn(first.turn_id, awaits_signature=True)
    assert (await ledger.log.get_view(first.turn_id)).blocker is None


async def test_when_a_turn_begins_to_wait_for_a_signature_those_behind_it_are_to_be_drawn_again(
    ledger: Ledger,
) -> None:
    claim = await running(ledger, "one")
    second, third = await queued(ledger, "two"), await queued(ledger, "three")
    for text in ("elsewhere", "and behind it"):
        await drawn(ledger, (await ledger.log.enqueue(message(text, conversation=OTHER))).turn_id)
    assert await behind(ledger) == []
    await asks(ledger, claim)
    assert await behind(ledger) == [second, third]


async def test_when_it_waits_no_longer_they_are_too(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second = await queued(ledger, "two")
    await asks(ledger, claim)
    await drawn(ledger, second)
    await ledger.log.decide(Decision("card-1", 1, DecisionType.DENY, BEN))
    assert second in await behind(ledger)
    assert (await ledger.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_when_the_time_to_sign_is_over_they_are_too(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second = await queued(ledger, "two")
    await asks(ledger, claim)
    await drawn(ledger, second)
    ledger.time += MINUTE + 1
    (again,) = await ledger.log.claim(8)
    await ledger.log.resume(again)
    assert await behind(ledger) == [second]
    assert (await ledger.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_when_a_turn_ends_those_behind_it_move_up(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second, third = await queued(ledger, "two"), await queued(ledger, "three")
    await ledger.log.finish(claim, TurnStatus.DONE, [], "")
    assert await behind(ledger) == [claim.turn_id, second, third]
    view = await ledger.log.get_view(third)
    assert (view.ahead, view.blocker) == (1, BlockingTurn(second))
    assert (await ledger.log.get_view(second)).blocker is None


async def test_stopping_what_waits_for_a_signature_lets_the_next_one_go_on(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second, third = await queued(ledger, "two"), await queued(ledger, "three")
    await asks(ledger, claim)
    await drawn(ledger, second)
    await drawn(ledger, third)
    assert await ledger.log.stop(claim.turn_id, BEN)
    assert await behind(ledger) == [claim.turn_id, second, third]
    assert [claim.turn_id for claim in await ledger.log.claim(8)] == [second]


async def test_a_queued_turn_that_is_stopped_moves_up_those_behind_it_and_nobody_else(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second, third, fourth = [await queued(ledger, text) for text in ("two", "three", "four")]
    await ledger.log.stop(third, BEN)
    assert await behind(ledger) == [third, fourth]
    assert (await ledger.log.get_view(fourth)).ahead == 2
    assert (await ledger.log.get_view(second)).blocker == BlockingTurn(claim.turn_id)


async def test_whoever_ends_a_turn_twice_because_an_answer_was_lost_moves_them_up_once(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    second = await queued(ledger, "two")
    before = (await ledger.log.get_view(second)).revision
    for _ in range(2):
        await ledger.log.finish(claim, TurnStatus.DONE, [], "")
    assert (await ledger.log.get_view(second)).revision == before + 1


async def test_a_reach_that_ends_with_a_colon_takes_in_one_conversation_alone(ledger: Ledger) -> None:
    long = ConversationKey("test", "w", "hall", "10")
    here = (await ledger.log.enqueue(message("one", conversation=HALL))).turn_id
    await ledger.log.enqueue(message("two", conversation=long))
    reach = f"{HALL}:"
    claims = await ledger.log.claim(8, reaches=[reach])
    assert [claim.turn_id for claim in claims] == [here]
    await ledger.log.append(claims[0], None, [])
    await ledger.log.finish(claims[0], TurnStatus.DONE, [], "")
    (other,) = await ledger.log.claim(8, reaches=["test:"])
    await ledger.log.finish(other, TurnStatus.DONE, [], "")
    assert await ledger.log.stale_views(reach, 8) == [here]
    assert len(await ledger.log.stale_views("test:w:hall:1", 8)) == 2


async def test_a_call_that_came_late_moves_nobody(ledger: Ledger) -> None:
    """What only the driver's own drawing tells is not told to those who wait."""
    claim = await running(ledger, "one")
    second = await queued(ledger, "two")
    call = ToolStep(1, ToolCall("c1", "s__write"), ToolRef("s", "write"), StepStatus.READY)
    await ledger.log.append(claim, None, [call])
    await ledger.log.start_call(claim, 1)
    await ledger.log.finish_call(claim, 1, StepStatus.DONE, ToolResult("c1", (TextPart("ok"),)))
    assert second not in await behind(ledger)


async def test_delivering_says_whether_a_newer_view_is_wanted(ledger: Ledger) -> None:
    claim = await running(ledger, "one")
    before = (await ledger.log.get_view(claim.turn_id)).revision
    await ledger.log.finish(claim, TurnStatus.DONE, (), "")
    await ledger.log.acquire_delivery(claim.turn_id, NEWEST)
    assert await ledger.log.mark_delivered(claim.turn_id, before)
    assert not await ledger.log.mark_delivered(claim.turn_id, (await ledger.log.get_view(claim.turn_id)).revision)
