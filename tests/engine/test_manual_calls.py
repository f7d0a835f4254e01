from __future__ import annotations

import pytest

from bot.domain.approvals import Decision, DecisionType
from bot.domain.messages import ToolCall, enclose
from bot.domain.tools import CallOutcomeUnknown, ToolOutcome
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView
from bot.errors import NotFound
from bot.ports import CallContext
from bot.rendering.response_models import tool_call_shape
from tests.engine.conftest import EngineHarness
from tests.engine.test_approver_check import until_posted
from tests.fakes.parts import ANA, answers_ok, ask_for, call, member, message, running, say, text_outcome, tool, words


async def lost(_call: ToolCall, _context: CallContext) -> ToolOutcome:
    return CallOutcomeUnknown("No answer within 30 s.")


def waiting_call(view: TurnView) -> ToolStep | None:
    waiting = (step for step in view.steps if isinstance(step, ToolStep) and step.status is StepStatus.AWAITING)
    return next(waiting, None)


async def test_a_call_of_unknown_outcome_is_run_again_only_with_a_fresh_approval(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"), lost)
    harness.allow("notes__add")
    harness.model.script = [ask_for(call("notes__add", text="milk")), say("I do not know.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        await harness.surface.wait_for_end(first.turn_id)
        harness.toolbox.add(tool("notes__add"), answers_ok)
        again = await engine.run_again(first.turn_id, 2, ANA)
        assert (await engine.run_again(first.turn_id, 2, ANA)).turn_id == again.turn_id
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == again.turn_id and waiting_call(view) is not None
        )
        step = waiting_call(view)
        assert step is not None
        assert step.approval is not None
        assert len(harness.toolbox.calls) == 1
        await engine.approvals.decide(Decision(step.approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        view = await harness.surface.wait_for_end(again.turn_id)
    assert view.turn.status is TurnStatus.DONE
    assert view.turn.question.text == "Run add again"
    assert harness.toolbox.calls[1][:2] == ("notes__add", {"text": "milk"})
    assert len(harness.model.requests) == 2


async def test_the_next_question_has_the_calls_run_by_hand(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__read", read_only=True), lost)
    harness.allow("notes__read")
    harness.model.script = [ask_for(call("notes__read")), say("Lost."), say("Fine.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("read"))
        await harness.surface.wait_for_end(first.turn_id)
        harness.toolbox.add(tool("notes__read", read_only=True), answers_ok)
        again = await engine.run_again(first.turn_id, 2, ANA)
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == again.turn_id and waiting_call(view) is not None
        )
        step = waiting_call(view)
        assert step is not None
        assert step.approval is not None
        await engine.approvals.decide(Decision(step.approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        await harness.surface.wait_for_end(again.turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("and?"))).turn_id)
    assert "(A person ran this by hand.\n" + enclose("notes__read", "ok") + ")" in words(harness.model.requests[2])


async def test_checking_asks_the_model_to_look_and_not_to_repeat(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"), lost)
    harness.allow("notes__add")
    harness.model.script = [ask_for(call("notes__add", text="milk")), say("I do not know."), say("It is there.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        await harness.surface.wait_for_end(first.turn_id)
        view = await harness.surface.wait_for_end((await engine.check_outcome(first.turn_id, 2, ANA)).turn_id)
    assert 'notes__add with {"text": "milk"} was sent' in view.turn.question.text
    assert "Do not repeat the call." in words(harness.model.requests[2])[-1]


async def test_the_question_of_a_check_hides_the_same_as_a_card(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"), lost)
    harness.toolbox.secrets["header X-Key"] = "k3y-0f-the-notes"
    asked_for = call("notes__add", text="login k3y-0f-the-notes with password=hunter2, then milk", token="abc")
    harness.model.script = [ask_for(asked_for), say("I do not know."), say("It is there.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        view = await harness.surface.wait_for(lambda view: waiting_call(view) is not None)
        step = waiting_call(view)
        assert step is not None
        assert step.approval is not None
        await engine.approvals.open_call(step.approval.id, 1, member(ANA))
        await engine.approvals.decide(Decision(step.approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        await harness.surface.wait_for_end(first.turn_id)
        checked = await harness.surface.wait_for_end((await engine.check_outcome(first.turn_id, 2, ANA)).turn_id)
    text = checked.turn.question.text
    assert "[stored secret: header X-Key]" in text
    assert "then milk" in text
    assert not [each for each in ("k3y-0f", "hunter2", "abc") if each in text]


async def test_a_stored_secret_in_a_call_that_nobody_was_asked_about_is_masked_as_on_a_card(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.allow("notes__add")
    harness.toolbox.secrets["header X-Key"] = "k3y-0f-the-notes"
    harness.model.script = [
        ask_for(call("notes__add", text="login k3y-0f-the-notes", n=["k3y-0f-the-notes"])),
        say("Ok."),
    ]
    view = await harness.run_turn("save it")
    stored = await harness.log.get_view(view.turn.id)
    steps = [step for step in (*view.steps, *stored.steps) if isinstance(step, ToolStep)]
    assert len(steps) == 2
    for step in steps:
        assert step.call.arguments["text"] == "login k3y-0f-the-notes"
        shown = {"text": "login [stored secret: header X-Key]", "n": ["[stored secret: header X-Key]"]}
        assert step.masked_arguments == tool_call_shape(view.turn, step).arguments == shown


async def test_a_successful_or_unknown_call_is_not_run_again(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.allow("notes__add")
    harness.model.script = [ask_for(call("notes__add")), say("Saved.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        await harness.surface.wait_for_end(first.turn_id)
        for n in (1, 2, 7):
            with pytest.raises(NotFound):
                await engine.run_again(first.turn_id, n, ANA)


@pytest.mark.parametrize("end", [StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.CANCELLED, StepStatus.FAILED])
async def test_only_a_call_of_unknown_outcome_may_have_run_when_it_is_asked_for_again(
    harness: EngineHarness, end: StepStatus
) -> None:
    async def fails(call: ToolCall, _context: CallContext) -> ToolOutcome:
        return text_outcome(call, "no room", is_error=True)

    harness.toolbox.add(tool("notes__add"), fails)
    harness.model.script = [ask_for(call("notes__add", text="milk")), say("Well.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("save it"))
        view = await harness.surface.wait_for(lambda view: waiting_call(view) is not None)
        step = waiting_call(view)
        assert step is not None
        assert step.approval is not None
        if end is StepStatus.CANCELLED:
            await engine.stop(first.turn_id, ANA)
        elif end is StepStatus.EXPIRED:
            await until_posted(harness, step.approval)
            harness.clock[0] += 3_600
        else:
            verdict = DecisionType.DENY if end is StepStatus.DENIED else DecisionType.APPROVE
            await engine.approvals.decide(Decision(step.approval.id, 1, verdict, ANA), member(ANA))
        await harness.surface.wait_for_end(first.turn_id)
        again = await engine.run_again(first.turn_id, step.n, ANA)
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == again.turn_id and waiting_call(view) is not None
        )
        assert (view.turn.question.again, view.turn.question.may_have_run) == (True, False)


async def test_a_second_try_that_was_turned_down_can_be_asked_for_again_and_is_nothing_to_check(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("notes__add"), lost)
    harness.allow("notes__add")
    harness.model.script = [ask_for(call("notes__add", text="milk")), say("I do not know.")]
    engine = harness.engine()

    async def retry_and_decide(turn_id: str, n: int, verdict: DecisionType) -> TurnView:
        again = await engine.run_again(turn_id, n, ANA)
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == again.turn_id and waiting_call(view) is not None
        )
        step = waiting_call(view)
        assert step is not None
        assert step.approval is not None
        await engine.approvals.decide(Decision(step.approval.id, 1, verdict, ANA), member(ANA))
        return await harness.surface.wait_for_end(again.turn_id)

    async with running(engine):
        first = await engine.receive(message("save it"))
        await harness.surface.wait_for_end(first.turn_id)
        harness.toolbox.add(tool("notes__add"), answers_ok)
        denied = await retry_and_decide(first.turn_id, 2, DecisionType.DENY)
        assert denied.turn.question.may_have_run
        with pytest.raises(NotFound):
            await engine.check_outcome(denied.turn.id, 1, ANA)
        done = await retry_and_decide(denied.turn.id, 1, DecisionType.APPROVE)
        assert done.turn.question.may_have_run, "the first of the three may have run"
        recent = await engine.recent_turns(done.turn.conversation, 2)
        assert [view.turn.id for view in recent] == [denied.turn.id, done.turn.id]
        assert (await engine.view(done.turn.id)).steps == done.steps
    assert harness.toolbox.names == ["notes__add", "notes__add"]
    assert [step.status for step in done.steps if isinstance(step, ToolStep)] == [StepStatus.DONE]
