from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bot.domain.turns import TurnStatus
from bot.domain.views import Drawn, Refs, TurnView
from bot.engine.drawing import Drawings
from bot.errors import DatabaseUnavailable, DeliveryFailed
from tests.engine.conftest import House
from tests.fakes.parts import RecordingSurface, ask_for, call, message, running, say, tool, until


async def test_a_drawing_is_made_again_after_the_time_the_platform_named(house: House) -> None:
    house.model.script = [say("Hello.")]
    house.surface.trouble = [DeliveryFailed("Slow down.", retry_after=7.0)] * 2
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: len(house.surface.trouble) < 2)
        await until(lambda: not engine._worker._held and not engine._drawings._tasks)
        assert await house.log.undrawn("test:", 1) == [] or not house.surface.trouble
        house.clock[0] += 8
        await until(lambda: not house.surface.trouble)
        house.clock[0] += 8
        view = await house.surface.ended(receipt.turn_id)
        await until(lambda: not engine._drawings._tasks)
    assert view.turn.status is TurnStatus.DONE
    assert await house.log.undrawn("test:", 1) == []


async def test_an_answer_whose_channel_is_gone_is_given_up(house: House) -> None:
    house.model.script = [say("Hello."), say("Still here.")]
    house.surface.trouble = [DeliveryFailed("channel_not_found", permanent=True)] * 20
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: bool(house.model.requests))
        await until(lambda: not engine._worker._held and not engine._drawings._tasks)
    assert (await house.log.view(receipt.turn_id)).turn.status is TurnStatus.DONE
    assert await house.log.undrawn("test:", 1) == []


async def test_a_surface_with_a_bug_stops_neither_its_turn_nor_other_drawings(house: House) -> None:
    house.model.script = [say("One."), say("Two.")]
    house.surface.trouble = [RuntimeError("bug")]
    engine = house.engine()
    async with running(engine):
        await engine.receive(message("one"))
        second = await engine.receive(message("two"))
        view = await house.surface.ended(second.turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_an_end_that_nobody_saw_is_drawn_at_the_next_start(house: House) -> None:
    receipt = await house.log.enqueue(message("hi"))
    (claim,) = await house.log.claim(1)
    await house.log.finish(claim, TurnStatus.FAILED, (), "It did not work.")
    engine = house.engine()
    async with running(engine):
        view = await house.surface.ended(receipt.turn_id)
    assert view.turn.failure == "It did not work."


async def test_only_the_newest_of_many_views_is_drawn_at_the_pace_of_the_platform(house: House) -> None:
    house.surface.pace = 60.0
    house.model.script = [say(" ".join(["word"] * 500))]
    engine = house.engine()
    async with running(engine):
        await house.surface.ended((await engine.receive(message("long"))).turn_id)
    assert len(house.surface.views) < 20
    assert 60.0 in house.pauses


async def test_a_reference_is_kept_as_soon_as_its_slot_is_out(house: House) -> None:
    house.toolbox.add(tool("notes__add"))
    house.model.script = [ask_for(call("notes__add"))]
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("save it"))
        await until(lambda: bool(house.surface.views) and not engine._worker._held and not engine._drawings._tasks)
    assert await house.log.take(receipt.turn_id) == {"reply": f"ref-{receipt.turn_id}"}


async def test_turns_wait_while_the_database_is_away_and_go_on_when_it_is_back(house: House) -> None:
    away = [True]
    original = house.log.append

    async def append(*arguments: object) -> object:
        if away[0]:
            raise DatabaseUnavailable("The database is gone.", "bring it back")
        return await original(*arguments)  # type: ignore[arg-type]

    house.log.append = append  # type: ignore[method-assign, assignment]
    house.toolbox.add(tool("s__read", read_only=True))
    house.allow("s__read")
    house.model.script = [*[ask_for(call("s__read"))] * 2, say("There.")]
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("go"))
        await until(lambda: len(house.model.requests) >= 1)
        away[0] = False
        view = await house.surface.ended(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE
    assert len(house.toolbox.calls) == 1


async def test_an_answer_that_is_slow_to_draw_is_out_after_leaving_and_coming_back(house: House) -> None:
    out = asyncio.Event()
    surface = house.surface

    class Slow(RecordingSurface):
        async def show(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
            await asyncio.sleep(0)
            async for drawn in surface.show(view, refs):
                yield drawn
            if view.turn.status.ended:
                out.set()

    house.surface = Slow()
    house.model.script = [say("Bye.")]
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: bool(house.model.requests))
    again = house.engine()
    async with running(again):
        await asyncio.wait_for(out.wait(), 10)
        await until(lambda: not again._drawings._tasks)
    assert await house.log.undrawn("test:", 1) == []
    assert (await house.log.view(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_who_takes_a_drawing_shows_the_turn_as_it_is_by_then_and_not_as_it_was(house: House) -> None:
    """A process that slept past its lease would draw what it knew over what another has finished."""
    receipt = await house.log.enqueue(message("hi"))
    (claim,) = await house.log.claim(1)
    known = await house.log.view(receipt.turn_id)
    await house.log.finish(claim, TurnStatus.FAILED, (), "It did not work.")
    await house.log.put_down(receipt.turn_id)
    drawings = Drawings(house.log, [house.surface])
    drawings.show(known)
    await until(lambda: bool(house.surface.views))
    drawings.settle(receipt.turn_id)
    await until(lambda: not drawings._tasks)
    assert [view.turn.failure for view in house.surface.views] == ["It did not work."]
