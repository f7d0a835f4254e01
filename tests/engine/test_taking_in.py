from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bot.domain.completions import Completion
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Claim, Receipt, TurnStatus
from bot.logs import _about, in_context
from bot.storage.turn_log import SqlTurnLog
from tests.engine.conftest import House
from tests.fakes.parts import NEWEST, message, running, say, until

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")
OUT_OF_REACH = ConversationKey("other", "w", "elsewhere", "1")


async def for_ever(*_: object) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


def without_claims(house: House) -> None:
    """Looking round takes for ever."""

    async def stuck(*_: Any) -> Sequence[Claim]:
        await asyncio.Event().wait()
        raise AssertionError

    house.log.claim = stuck  # type: ignore[method-assign, assignment]


async def test_a_message_is_answered_without_looking_round_for_it(house: House) -> None:
    house.model.script = [say("Hello.")]
    without_claims(house)
    engine = house.engine()
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        receipt = await engine.receive(message("hi"))
        view = await house.surface.ended(receipt.turn_id)
    assert (view.turn.status, view.steps[0].message.text) == (TurnStatus.DONE, "Hello.")  # type: ignore[union-attr]


async def test_what_finds_no_room_waits_until_there_is_some(house: House) -> None:
    house.model.script = [for_ever, say("Second.")]
    engine = house.engine()
    engine._worker.limit = 1
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        first, second = await asyncio.gather(
            engine.receive(message("one")), engine.receive(message("two", conversation=ELSEWHERE))
        )
        await until(lambda: len(house.model.requests) == 1)
        assert len(engine._worker._held) == 1
        (held,) = engine._worker._held
        await engine.stop(held, message("").author)
        other = second if held == first.turn_id else first
        assert (await house.surface.ended(other.turn_id)).turn.status is TurnStatus.DONE


async def test_what_could_not_be_drawn_here_is_not_begun_here(house: House) -> None:
    engine = house.engine()
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        receipt = await engine.receive(message("hi", conversation=OUT_OF_REACH))
        assert engine._worker._held == {}
        assert (await house.log.view(receipt.turn_id)).turn.status is TurnStatus.QUEUED


async def test_where_other_processes_could_drive_it_whoever_looks_round_first_does(house: House) -> None:
    async def never(_message: InboundMessage) -> tuple[Receipt, Claim | None]:
        raise AssertionError

    house.model.script = [say("Hello.")]
    house.log.take_in = never  # type: ignore[method-assign, assignment]
    house.log.lease_seconds = 15.0
    engine = house.engine()
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        receipt = await engine.receive(message("hi"))
        assert (await house.surface.ended(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_what_was_being_taken_in_when_the_process_left_is_given_back(house: House) -> None:
    taking, go_on = asyncio.Event(), asyncio.Event()
    take_in = house.log.take_in

    async def slow(received: InboundMessage) -> tuple[Receipt, Claim | None]:
        found = await take_in(received)
        taking.set()
        await go_on.wait()
        return found

    house.log.take_in = slow  # type: ignore[method-assign, assignment]
    engine = house.engine()
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        receiving = asyncio.create_task(engine.receive(message("hi")))
        async with asyncio.timeout(10):
            await taking.wait()
    go_on.set()
    async with asyncio.timeout(10):
        receipt = await receiving
    another = SqlTurnLog(house.database)
    assert await another.take(receipt.turn_id, NEWEST) == {}
    (again,) = await another.claim(1)
    assert (again.turn_id, again.recoveries) == (receipt.turn_id, 0)


async def test_a_turn_does_not_end_with_the_request_it_came_with(house: House) -> None:
    """It is driven in the worker's own context: what is logged for it names the turn and not that request."""
    seen: list[dict[Any, str]] = []

    async def look(*_: object) -> Completion:
        seen.append(dict(_about.get()))
        return say("Done.")

    house.model.script = [look]
    engine = house.engine()
    async with running(engine):
        await until(lambda: engine._worker._home is not None)
        with in_context(request="r-1"):
            receipt = await engine.receive(message("hi"))
        await house.surface.ended(receipt.turn_id)
    assert seen == [{"turn": receipt.turn_id, "conversation": str(message("").conversation)}]
