from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from time import monotonic

import pytest

from bot.domain.approvals import Revision
from bot.domain.completions import Completion, ModelRequest
from bot.domain.messages import ToolCall, assistant
from bot.domain.tools import ToolOutcome
from bot.domain.turns import MessageRefs, ModelStep, PostedMessage, StepStatus, ToolStep, TurnStatus, TurnView
from bot.engine.surfaces import Surfaces
from bot.engine.view_delivery import RENEW_SECONDS, ViewDelivery
from bot.errors import DatabaseUnavailable, DeliveryFailed, LostLease
from bot.ports import CallContext
from bot.storage.turn_log.log import SqlTurnLog
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import (
    ANA,
    NEWEST,
    RecordingSurface,
    ScriptedModel,
    Unfinished,
    ask_for,
    call,
    message,
    running,
    say,
    text_outcome,
    tool,
    until,
    words,
)


async def test_a_drawing_is_made_again_after_the_time_the_platform_named(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello.")]
    harness.surface.trouble = [DeliveryFailed("Slow down.", retry_after=7.0)] * 2
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: len(harness.surface.trouble) < 2)
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
        assert await harness.log.stale_views("test:", 1) == [] or not harness.surface.trouble
        harness.clock[0] += 8
        engine.poll()
        await until(lambda: not harness.surface.trouble and engine.delivery.is_idle)
        harness.clock[0] += 8
        engine.poll()
        view = await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: engine.delivery.is_idle)
    assert view.turn.status is TurnStatus.DONE
    assert await harness.log.stale_views("test:", 1) == []


async def test_an_answer_whose_channel_is_gone_is_given_up(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello."), say("Still here.")]
    harness.surface.trouble = [DeliveryFailed("channel_not_found", permanent=True)] * 20
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: bool(harness.model.requests))
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    assert (await harness.log.get_view(receipt.turn_id)).turn.status is TurnStatus.DONE
    assert await harness.log.stale_views("test:", 1) == []


class NoCards(RecordingSurface):
    """A surface that delivers every view except those with approval cards."""

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        if view.awaiting:
            raise DeliveryFailed("Cards are not allowed here.", "ask an administrator", permanent=True)
        async for drawn in super().deliver(view, refs):
            yield drawn


NOT_SHOWN = "The approval could not be shown here: Cards are not allowed here. Not run."


async def test_a_card_that_cannot_be_posted_means_denied_for_model_and_asker(
    harness: EngineHarness,
) -> None:
    harness.surface = NoCards()
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("I could not ask you.")]
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for_end((await engine.receive(message("save it"))).turn_id)
        await until(lambda: engine.delivery.is_idle)
    assert view.turn.status is TurnStatus.DONE
    (step,) = [step for step in view.steps if isinstance(step, ToolStep)]
    assert step.status is StepStatus.DENIED
    assert step.result is not None
    assert step.result.text == NOT_SHOWN
    assert NOT_SHOWN in words(harness.model.requests[1])
    assert harness.toolbox.calls == []


async def test_calls_that_run_meanwhile_are_not_held_up_by_a_card_that_cannot_be_posted(harness: EngineHarness) -> None:
    denied = asyncio.Event()

    async def until_denied(call: ToolCall, _context: CallContext) -> ToolOutcome:
        await denied.wait()
        return text_outcome(call, "read")

    harness.surface = NoCards()
    harness.toolbox.add(tool("notes__add"))
    harness.toolbox.add(tool("notes__read", read_only=True), until_denied)
    harness.allow("notes__read")
    harness.model.script = [ask_for(call("notes__add", "c1"), call("notes__read", "c2")), say("Half of it.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("go"))
        await harness.surface.wait_for(
            lambda view: any(isinstance(step, ToolStep) and step.status is StepStatus.DENIED for step in view.steps)
        )
        denied.set()
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert {"read", NOT_SHOWN} <= set(words(harness.model.requests[1]))
    assert view.turn.status is TurnStatus.DONE


async def test_a_card_that_was_posted_still_waits_when_it_cannot_be_drawn_again(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("Saved.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("save it"))
        await harness.surface.wait_for(lambda view: bool(view.awaiting))
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    (step,) = (await harness.log.get_view(receipt.turn_id)).awaiting
    assert step.approval is not None
    revised = Revision(step.approval.id, 1, {"text": "b"}, "other", ANA)
    assert await harness.log.revise(revised)
    harness.surface.trouble = [DeliveryFailed("The message is gone.", permanent=True)]
    again = harness.engine()
    async with running(again):
        await until(lambda: not harness.surface.trouble and again.delivery.is_idle)
    assert [step.status for step in (await harness.log.get_view(receipt.turn_id)).awaiting] == [StepStatus.AWAITING]


async def test_a_surface_with_a_bug_stops_neither_its_turn_nor_other_drawings(harness: EngineHarness) -> None:
    harness.model.script = [say("One."), say("Two.")]
    harness.surface.trouble = [RuntimeError("bug")]
    engine = harness.engine()
    async with running(engine):
        await engine.receive(message("one"))
        second = await engine.receive(message("two"))
        view = await harness.surface.wait_for_end(second.turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_an_undelivered_end_is_delivered_at_the_next_start(harness: EngineHarness) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.FAILED, (), "It did not work.")
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert view.turn.failure == "It did not work."


class Unhurried(RecordingSurface):
    """A surface that completes a delivery only after the first model request."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(min_interval=60.0)
        self._model = model

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        async for each in super().deliver(view, refs):
            await until(lambda: bool(self._model.requests))
            yield each


async def asked_before(harness: EngineHarness) -> None:
    """Store a delivered turn before the next one. The next prompt then reads the database, and two views are delivered
    before the answer begins.
    """
    receipt = await harness.log.enqueue(message("before"))
    (claim,) = await harness.log.claim(1)
    record = await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(1, assistant("Yes."))], "")
    await harness.log.acquire_delivery(receipt.turn_id, NEWEST)
    await harness.log.mark_delivered(receipt.turn_id, record.revision)


async def test_only_the_newest_of_many_views_is_drawn_at_the_pace_of_the_platform(harness: EngineHarness) -> None:
    async def long_answer(_request: ModelRequest) -> Completion:
        await until(lambda: 60.0 in harness.pauses)
        return say(" ".join(["word"] * 500))

    await asked_before(harness)
    harness.surface = Unhurried(harness.model)
    harness.model.script = [long_answer]
    await harness.run_turn("long")
    assert len(harness.surface.views) < 20


async def test_the_first_words_of_an_answer_do_not_wait_for_the_pace_of_the_platform(harness: EngineHarness) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if seconds == 60.0 and pauses.count(60.0) == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(min(seconds, 0.01))

    async def answer(_request: ModelRequest) -> Unfinished:
        await until(lambda: 60.0 in pauses)
        return Unfinished("Hello there.")

    await asked_before(harness)
    harness.surface = Unhurried(harness.model)
    harness.model.script = [answer]
    engine = harness.engine(pause=pause)
    async with running(engine):
        await engine.receive(message("hi"))
        await harness.surface.wait_for(lambda view: view.streaming.startswith("Hello"))


async def test_views_without_new_words_wait_for_the_pace_of_the_platform(harness: EngineHarness) -> None:
    interval_over, waits = asyncio.Event(), 0

    async def pause(seconds: float) -> None:
        nonlocal waits
        if seconds == 60.0:
            waits += 1
            await interval_over.wait()

    class Replaced(RecordingSurface):
        """A surface that gets the second view while it delivers the first."""

        async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
            if view.activity == "one":
                delivery.deliver(replace(view, activity="two"))
            async for posted in super().deliver(view, refs):
                yield posted

    surface = Replaced(min_interval=60.0)
    await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    view = await harness.log.get_view(claim.turn_id)
    delivery = ViewDelivery(harness.log, Surfaces([surface]), clock=monotonic, pause=pause)
    delivery.begin(claim.turn_id)
    delivery.deliver(replace(view, activity="one"))
    await until(lambda: waits == 1)
    delivery.deliver(replace(view, activity="three"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [shown.activity for shown in surface.views] == ["one"]
    interval_over.set()
    await until(lambda: len(surface.views) == 2)
    assert surface.views[-1].activity == "three"
    delivery.settle(claim.turn_id)
    await until(lambda: delivery.is_idle)


async def test_a_reference_is_kept_as_soon_as_its_slot_is_out(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add"))]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("save it"))
        await until(lambda: bool(harness.surface.views) and not engine.worker.turns and engine.delivery.is_idle)
    assert await harness.log.acquire_delivery(receipt.turn_id, NEWEST) == {"reply": f"ref-{receipt.turn_id}"}


async def test_turns_wait_while_the_database_is_away_and_go_on_when_it_is_back(harness: EngineHarness) -> None:
    away, failed = [True], asyncio.Event()
    original = harness.log.append

    async def append(*arguments: object) -> object:
        if away[0]:
            failed.set()
            raise DatabaseUnavailable("The database is gone.", "bring it back")
        return await original(*arguments)  # type: ignore[arg-type]

    harness.log.append = append  # type: ignore[method-assign, assignment]
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    harness.model.script = [*[ask_for(call("s__read"))] * 2, say("There.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("go"))
        await until(failed.is_set)
        away[0] = False
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE
    assert len(harness.toolbox.calls) == 1


async def test_an_answer_that_is_slow_to_draw_is_out_after_leaving_and_coming_back(harness: EngineHarness) -> None:
    out = asyncio.Event()
    surface = harness.surface

    class Slow(RecordingSurface):
        async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
            await asyncio.sleep(0)
            async for drawn in surface.deliver(view, refs):
                yield drawn
            if view.turn.status.ended:
                out.set()

    harness.surface = Slow()
    harness.model.script = [say("Bye.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: bool(harness.model.requests))
    again = harness.engine()
    async with running(again):
        await asyncio.wait_for(out.wait(), 10)
        await until(lambda: again.delivery.is_idle)
    assert await harness.log.stale_views("test:", 1) == []
    assert (await harness.log.get_view(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_a_claimed_delivery_shows_the_turn_as_it_is_by_then(harness: EngineHarness) -> None:
    """A process that slept past its lease would post its old view over another process's final view."""
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    known = await harness.log.get_view(receipt.turn_id)
    await harness.log.finish(claim, TurnStatus.FAILED, (), "It did not work.")
    await harness.log.release_delivery(receipt.turn_id)
    drawings = ViewDelivery(harness.log, Surfaces([harness.surface]), clock=monotonic)
    drawings.deliver(known)
    await until(lambda: bool(harness.surface.views))
    drawings.settle(receipt.turn_id)
    await until(lambda: drawings.is_idle)
    assert [view.turn.failure for view in harness.surface.views] == ["It did not work."]


async def test_a_drawing_of_several_messages_stays_in_hand_through_an_outage_between_two_of_them(
    harness: EngineHarness,
) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    await harness.log.release_delivery(receipt.turn_id)
    elsewhere = SqlTurnLog(harness.database)
    keep = harness.log.save_message_ref
    refused: list[LostLease] = []

    async def after_an_outage(turn_id: str, drawn: PostedMessage) -> None:
        if drawn.slot == "one":
            harness.clock[0] += 20
        await keep(turn_id, drawn)

    async def show(view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        yield PostedMessage("one", "1")
        try:
            await elsewhere.acquire_delivery(receipt.turn_id, NEWEST)
        except LostLease as lost:
            refused.append(lost)
        yield PostedMessage("two", "2")

    harness.log.save_message_ref = after_an_outage  # type: ignore[method-assign]
    harness.surface.deliver = show  # type: ignore[method-assign]
    drawings = ViewDelivery(harness.log, Surfaces([harness.surface]), clock=lambda: harness.clock[0])
    drawings.deliver(await harness.log.get_view(receipt.turn_id))
    drawings.settle(receipt.turn_id)
    await until(lambda: drawings.is_idle)
    assert len(refused) == 1


async def test_a_process_that_could_not_draw_leaves_the_drawing_to_any_other(harness: EngineHarness) -> None:
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    await harness.log.release_delivery(receipt.turn_id)
    harness.surface.trouble = [DeliveryFailed("Slow down.", retry_after=7.0)]
    drawings = ViewDelivery(harness.log, Surfaces([harness.surface]), clock=lambda: harness.clock[0])
    drawings.deliver(await harness.log.get_view(receipt.turn_id))
    drawings.settle(receipt.turn_id)
    await until(lambda: not harness.surface.trouble and drawings.is_idle)
    assert await SqlTurnLog(harness.database).acquire_delivery(receipt.turn_id, NEWEST) == {}


async def test_a_process_that_slept_past_its_lease_draws_nothing_over_what_the_next_one_drew(
    harness: EngineHarness,
) -> None:
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def sleeps(call: ToolCall, context: CallContext) -> ToolOutcome:
        asleep.set()
        await awake.wait()
        context.on_progress("as it was before the sleep")
        # The process has noticed the lost lease and tries to acquire the delivery again.
        await until(lambda: bool(taking))
        return text_outcome(call, "ok")

    harness.toolbox.add(tool("s__read", read_only=True), sleeps)
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read")), say("Never seen.")]
    now = [0.0]

    async def no_heartbeats(seconds: float) -> None:
        await (asyncio.Event().wait() if seconds >= RENEW_SECONDS else asyncio.sleep(0.01))

    engine = harness.engine(clock=lambda: now[0], pause=no_heartbeats)
    elsewhere = SqlTurnLog(harness.database)
    taking: list[str] = []
    take = harness.log.acquire_delivery

    async def note(turn_id: str, revision: int) -> MessageRefs:
        taking.append(turn_id)
        return await take(turn_id, revision)

    harness.log.acquire_delivery = note  # type: ignore[method-assign]
    # No heartbeat comes between the wake-up and the first delivery.
    harness.log.renew_deliveries = gone  # type: ignore[method-assign, assignment]
    async with running(engine):
        receipt = await engine.receive(message("go"))
        await asyncio.wait_for(asleep.wait(), 10)
        await until(lambda: engine.delivery.is_idle)
        now[0] += 20
        harness.clock[0] += 20
        await harness.log.adopt_orphans()
        (claim,) = await elsewhere.claim(1)
        await elsewhere.acquire_delivery(receipt.turn_id, NEWEST)
        record = await elsewhere.finish(claim, TurnStatus.DONE, (), "")
        await elsewhere.mark_delivered(receipt.turn_id, record.revision)
        seen = len(harness.surface.views)
        del harness.log.renew_deliveries
        awake.set()
        await until(lambda: not engine.worker.turns)
        await until(lambda: engine.delivery.is_idle)
    assert len(harness.surface.views) == seen


async def gone(*_: object) -> frozenset[str]:
    """Fail like the heartbeat of a sleeping process."""
    raise DatabaseUnavailable("gone")


async def test_an_uncertain_delivery_is_made_when_the_database_is_back(
    harness: EngineHarness,
) -> None:
    asking, back = asyncio.Event(), asyncio.Event()
    now = [0.0]
    engine = harness.engine(clock=lambda: now[0])
    hold = harness.log.renew_deliveries

    async def away(turn_ids: Collection[str]) -> frozenset[str]:
        if not back.is_set():
            asking.set()
            raise DatabaseUnavailable("gone")
        return await hold(turn_ids)

    async def answer(_request: ModelRequest) -> Completion:
        await until(lambda: bool(harness.surface.views) and engine.delivery.is_idle)
        harness.log.renew_deliveries = away  # type: ignore[method-assign]
        now[0] += 20
        return say("Here.")

    harness.model.script = [answer]
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await asyncio.wait_for(asking.wait(), 10)
        await until(lambda: not engine.worker.turns)
        assert not any(view.turn.status.ended for view in harness.surface.views)
        back.set()
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_a_message_posted_by_a_process_that_slept_does_not_become_the_one_that_is_edited(
    harness: EngineHarness,
) -> None:
    posted, asleep, awake = asyncio.Event(), asyncio.Event(), asyncio.Event()
    renewing, renew = asyncio.Lock(), harness.log.renew_deliveries

    async def renew_until_asleep(turn_ids: Collection[str]) -> frozenset[str]:
        async with renewing:
            return await (gone() if asleep.is_set() else renew(turn_ids))

    harness.log.renew_deliveries = renew_until_asleep  # type: ignore[method-assign]
    surface = harness.surface

    class Sleepy(RecordingSurface):
        async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
            posted.set()
            await awake.wait()
            async for _ in surface.deliver(view, refs):
                yield PostedMessage("reply", refs.get("reply", "the sleeper's"))

    harness.surface = Sleepy()
    harness.model.script = [say("Hello.")]
    engine = harness.engine()
    elsewhere = SqlTurnLog(harness.database)
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await asyncio.wait_for(posted.wait(), 10)
        await until(lambda: not engine.worker.turns)
        asleep.set()
        async with renewing:
            harness.clock[0] += 20
        await elsewhere.acquire_delivery(receipt.turn_id, NEWEST)
        await elsewhere.save_message_ref(receipt.turn_id, PostedMessage("reply", "the next one's"))
        await elsewhere.mark_delivered(receipt.turn_id, (await elsewhere.get_view(receipt.turn_id)).revision)
        awake.set()
        await until(lambda: engine.delivery.is_idle)
    assert await elsewhere.acquire_delivery(receipt.turn_id, NEWEST) == {"reply": "the next one's"}


async def test_a_silent_platform_is_tried_again_and_holds_up_no_other(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bot.engine.view_delivery.DELIVERY_SECONDS", 0.05)
    surface = harness.surface

    class Silent(RecordingSurface):
        async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
            if "did not answer" not in caplog.text:
                await asyncio.Event().wait()
            async for drawn in surface.deliver(view, refs):
                yield drawn

    harness.surface = Silent()
    harness.model.script = [say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: "did not answer" in caplog.text and engine.delivery.is_idle)
        harness.clock[0] += 6
        engine.poll()
        view = await surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_a_made_delivery_is_remembered_while_the_database_is_slow(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that timed out here would post the message again."""
    monkeypatch.setattr("bot.engine.view_delivery.DELIVERY_SECONDS", 0.05)
    keep = harness.log.save_message_ref

    async def slow(turn_id: str, drawn: PostedMessage) -> None:
        await asyncio.sleep(0.2)
        await keep(turn_id, drawn)

    harness.log.save_message_ref = slow  # type: ignore[method-assign]
    harness.model.script = [say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: engine.delivery.is_idle)
    assert await harness.log.stale_views("test:", 1) == []
    assert await harness.log.acquire_delivery(receipt.turn_id, NEWEST) == {"reply": f"ref-{receipt.turn_id}"}


async def test_a_drawing_that_always_fails_is_tried_ever_more_rarely(harness: EngineHarness) -> None:
    harness.surface.trouble = [RuntimeError("bug"), DeliveryFailed("no reason"), RuntimeError("bug")]
    postponed: list[float] = []
    postpone = harness.log.retry_delivery_at

    async def note(turn_id: str, seconds: float) -> None:
        postponed.append(seconds)
        await postpone(turn_id, seconds)
        harness.clock[0] += seconds
        engine.poll()

    harness.log.retry_delivery_at = note  # type: ignore[method-assign]
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.FAILED, (), "No.")
    await harness.log.release_delivery(receipt.turn_id)
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: engine.delivery.is_idle)
        assert engine.delivery.turns == {}
    assert postponed == [5.0, 10.0, 20.0]


async def test_a_surface_that_moves_on_before_its_turn_is_drawn_breaks_nothing(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.surface.min_interval = 0.01
    receipt = await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    await harness.log.release_delivery(receipt.turn_id)
    before = asyncio.all_tasks()
    ViewDelivery(harness.log, Surfaces([harness.surface]), clock=monotonic).deliver(
        await harness.log.get_view(receipt.turn_id)
    )
    (drawing,) = asyncio.all_tasks() - before
    harness.surface.key_prefixes = ("elsewhere:",)
    await asyncio.wait({drawing}, timeout=60)
    assert drawing.exception() is None
    assert harness.surface.views == []


async def test_a_view_whose_lease_another_process_still_has_is_delivered_when_it_is_free(
    harness: EngineHarness,
) -> None:
    await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    acquire, tries = harness.log.acquire_delivery, 0

    async def taken_at_first(turn_id: str, revision: int) -> MessageRefs:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LostLease(turn_id)
        return await acquire(turn_id, revision)

    harness.log.acquire_delivery = taken_at_first  # type: ignore[method-assign]
    # The delivery loop does not run, so that no poll finds the view again.
    delivery = ViewDelivery(
        harness.log, Surfaces([harness.surface]), clock=monotonic, pause=lambda _seconds: asyncio.sleep(0)
    )
    delivery.deliver(await harness.log.get_view(claim.turn_id))
    await until(lambda: delivery.is_idle)
    assert [view.turn.id for view in harness.surface.views] == [claim.turn_id]


async def test_a_message_that_waits_is_drawn_once_and_not_at_every_poll(harness: EngineHarness) -> None:
    polls, undrawn = 0, harness.log.stale_views

    async def count_poll(prefix: str, limit: int) -> Sequence[str]:
        nonlocal polls
        found = await undrawn(prefix, limit)
        polls += 1
        return found

    harness.log.stale_views = count_poll  # type: ignore[method-assign, assignment]
    first = await harness.log.enqueue(message("first"))
    assert await harness.log.claim(1)
    waiting = await harness.log.enqueue(message("second"))
    drawings = ViewDelivery(harness.log, Surfaces([harness.surface]), clock=monotonic)
    task = asyncio.create_task(drawings.run())
    await harness.surface.wait_for(lambda view: view.turn.id == waiting.turn_id)
    for _ in range(3):
        await until(lambda: drawings.is_idle)
        before = polls
        drawings.wake()
        await until(lambda before=before: polls > before)  # type: ignore[misc]
    await until(lambda: drawings.is_idle)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [view.turn.id for view in harness.surface.views if view.turn.id != first.turn_id] == [waiting.turn_id]


async def test_a_wake_is_one_poll(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.engine.view_delivery.POLL_SECONDS", 3_600)
    polls = 0

    async def count_poll(_prefix: str, _limit: int) -> Sequence[str]:
        nonlocal polls
        polls += 1
        await asyncio.sleep(0)
        return []

    harness.log.stale_views = count_poll  # type: ignore[method-assign, assignment]
    delivery = ViewDelivery(harness.log, Surfaces([harness.surface]), clock=monotonic)
    task = asyncio.create_task(delivery.run())
    await until(lambda: polls == 1)
    delivery.wake()
    await until(lambda: polls > 1)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert polls == 2
