"""A turn queued behind an approval: its view, and the action that stops the turn ahead."""

from __future__ import annotations

from bot.domain.approvals import Decision, DecisionType
from bot.domain.elicitations import ElicitationRequest, FormMode
from bot.domain.messages import ToolCall
from bot.domain.tools import CallNeedsInput, ToolOutcome
from bot.domain.turns import BlockingTurn, StepStatus, ToolStep, TurnStatus, TurnView
from bot.ports import CallContext
from bot.rendering.timeline import StopTurnAction, available_actions, waiting_text
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, ask_for, call, member, message, running, say, tool


def waiting_call(view: TurnView) -> ToolStep | None:
    waiting = (step for step in view.steps if isinstance(step, ToolStep) and step.status is StepStatus.AWAITING)
    return next(waiting, None)


async def test_it_says_so_although_it_came_first_and_stopping_that_turn_lets_it_go_on(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("Hello.")]
    # Both messages are stored before the first turn begins.
    first = await harness.log.enqueue(message("save it"))
    second = await harness.log.enqueue(message("hello", author=BEN))
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == second.turn_id and bool(available_actions(view))
        )
        assert waiting_text(view) == "Waiting behind an approval"
        (offer,) = available_actions(view)
        assert offer == StopTurnAction(first.turn_id)
        assert await engine.stop(offer.turn_id, BEN)
        stopped = await harness.surface.wait_for_end(first.turn_id)
        answered = await harness.surface.wait_for_end(second.turn_id)
    assert (stopped.turn.status, stopped.turn.failure) == (TurnStatus.CANCELLED, "Stopped by Ben.")
    assert answered.turn.status is TurnStatus.DONE
    assert harness.toolbox.calls == []


async def test_when_the_call_is_approved_nothing_is_in_its_way_any_more(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("Saved."), say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        card = await harness.surface.wait_for(lambda view: waiting_call(view) is not None)
        second = await engine.receive(message("hello"))
        behind = await harness.surface.wait_for(lambda view: view.turn.id == second.turn_id)
        step = waiting_call(card)
        assert step is not None
        assert step.approval is not None
        await engine.approvals.decide(Decision(step.approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        await harness.surface.wait_for_end(second.turn_id)
    assert behind.blocker == BlockingTurn(first.turn_id, awaits_approval=True)
    places = [waiting_text(view) for view in harness.surface.views if view.turn.id == second.turn_id]
    assert places[0] == "Waiting behind an approval"
    assert places[-1] == ""


async def test_a_turn_queued_behind_a_question_of_a_server_can_be_stopped_the_same_way(harness: EngineHarness) -> None:
    async def asks(_call: ToolCall, _context: CallContext) -> ToolOutcome:
        return CallNeedsInput((ElicitationRequest("seats", "How many?", FormMode({})),), None)

    harness.toolbox.add(tool("travel__book"), asks)
    harness.allow("travel__book")
    harness.model.script = [ask_for(call("travel__book")), say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("book it"))
        await harness.surface.wait_for(lambda view: view.asks)
        second = await engine.receive(message("hello"))
        behind = await harness.surface.wait_for(lambda view: view.turn.id == second.turn_id)
        assert behind.blocker == BlockingTurn(first.turn_id, awaits_answer=True)
        assert waiting_text(behind) == "Waiting behind a question of a server"
        assert available_actions(behind) == (StopTurnAction(first.turn_id),)
        await engine.stop(first.turn_id, BEN)
        await harness.surface.wait_for_end(second.turn_id)
