"""Elicitations: servers that ask a user before or during a call."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    MOST_ROUNDS,
    Elicitation,
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    FormMode,
    UrlMode,
)
from bot.domain.messages import ToolCall
from bot.domain.tools import CallNeedsInput, ToolOutcome
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.engine.elicitation import TOO_MANY
from bot.ports import CallContext
from bot.ports.platform import ElicitationAnswered, InvalidValues, OpenElicitation
from tests.engine.conftest import EngineHarness
from tests.engine.test_turns import calls_of
from tests.fakes.parts import ANA, BEN, ask_for, call, member, message, running, say, text_outcome, tool, words

SCHEMA = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
SEATS = ElicitationRequest("seats", "How many seats?", FormMode(SCHEMA))
PAGE = ElicitationRequest("page", "Pay here.", UrlMode("https://pay.example.com/1"))
THREE = ElicitationResult(ElicitationAction.ACCEPT, {"seats": 3})


class Booking:
    """A tool that asks for input before it runs, as servers since 2026 do."""

    def __init__(self, *questions: ElicitationRequest, state: str | None = "where I was") -> None:
        self.questions = questions
        self.state = state
        self.seen: list[CallContext] = []

    async def book(self, asked: ToolCall, context: CallContext) -> ToolOutcome:
        self.seen.append(context)
        if context.replies is None:
            return CallNeedsInput(self.questions, self.state)
        return text_outcome(asked, str({key: reply.action.value for key, reply in context.replies.by_key.items()}))


class Meanwhile:
    """A tool that elicits during the call, as servers before 2026 do."""

    def __init__(self, question: ElicitationRequest = SEATS) -> None:
        self.question = question
        self.heard: list[ElicitationResult] = []

    async def book(self, asked: ToolCall, context: CallContext) -> ToolOutcome:
        self.heard.append(await context.elicit(self.question))
        return text_outcome(asked, self.heard[-1].action.value)


def with_tool(harness: EngineHarness, behaviour: Booking | Meanwhile, **hints: bool) -> None:
    harness.toolbox.add(tool("s__book", **hints), behaviour.book)
    harness.allow("s__book")
    harness.model.script = [ask_for(call("s__book", "a")), say("Booked.")]


def questions(view: TurnView) -> list[Elicitation]:
    return [elicitation for step in calls_of(view) for elicitation in step.pending_elicitations]


async def wait_for_elicitation(harness: EngineHarness, turn_id: str) -> Elicitation:
    """Return the first elicitation once a view shows it."""
    view = await harness.surface.wait_for(lambda view: view.turn.id == turn_id and bool(questions(view)))
    return questions(view)[0]


async def posted_until(harness: EngineHarness, elicitation_id: str) -> float:
    """Return `expires_at` of the elicitation once its card is posted."""
    async with asyncio.timeout(10):
        while True:
            elicitation = await harness.log.get_elicitation(elicitation_id)
            assert elicitation is not None
            if elicitation.elicitation.expires_at is not None:
                return elicitation.elicitation.expires_at
            await asyncio.sleep(0.005)


async def wait_for_suspension(harness: EngineHarness, turn_id: str) -> None:
    """Wait until the turn's status is WAITING."""
    async with asyncio.timeout(10):
        while (await harness.log.get_view(turn_id)).turn.status is not TurnStatus.WAITING:
            await asyncio.sleep(0.01)


async def test_a_server_that_asks_back_gets_the_answer_with_the_same_call(harness: EngineHarness) -> None:
    booking = Booking(SEATS)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        assert question.question == SEATS
        assert await engine.elicitations.answer(question.id, THREE, member(ANA)) == ElicitationAnswered(
            ElicitationAction.ACCEPT
        )
        view = await harness.surface.wait_for_end(receipt.turn_id)
    first, second = booking.seen
    assert first.key == second.key
    assert second.replies is not None
    assert second.replies.state == "where I was"
    assert second.replies.by_key == {"seats": THREE}
    (step,) = calls_of(view)
    assert (step.status, step.result and step.result.text) == (StepStatus.DONE, "{'seats': 'accept'}")
    assert words(harness.model.requests[-1])[-1] == "{'seats': 'accept'}"


async def test_nothing_is_under_way_while_a_person_thinks_and_a_restart_changes_nothing(harness: EngineHarness) -> None:
    booking = Booking(SEATS)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        await wait_for_suspension(harness, receipt.turn_id)
    again = harness.engine()
    async with running(again):
        await again.elicitations.answer(question.id, THREE, member(ANA))
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert len(booking.seen) == 2
    assert [step.status for step in calls_of(view)] == [StepStatus.DONE]


async def test_only_the_asker_of_the_call_may_answer(harness: EngineHarness) -> None:
    with_tool(harness, Booking(SEATS))
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        refused = await engine.elicitations.answer(question.id, THREE, member(BEN))
        assert isinstance(refused, NotAllowed)
        assert "Ana" in refused.reason
        assert isinstance(await engine.elicitations.get(question.id, member(BEN)), NotAllowed)
        assert isinstance(await engine.elicitations.get(question.id, member(ANA)), OpenElicitation)
        assert questions(await engine.view(receipt.turn_id))


async def test_answers_that_do_not_fit_the_form_are_not_sent(harness: EngineHarness) -> None:
    booking = Booking(SEATS)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        wrong = await engine.elicitations.answer(
            question.id, ElicitationResult(ElicitationAction.ACCEPT, {"seats": "many"}), member(ANA)
        )
        assert isinstance(wrong, InvalidValues)
        assert [each.argument for each in wrong.problems] == ["seats"]
        assert questions(await engine.view(receipt.turn_id))
    assert len(booking.seen) == 1


async def test_a_question_that_is_declined_is_told_to_the_server(harness: EngineHarness) -> None:
    booking = Booking(SEATS)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        await engine.elicitations.answer(question.id, DECLINED, member(ANA))
        await harness.surface.wait_for_end(receipt.turn_id)
    assert booking.seen[-1].replies is not None
    assert booking.seen[-1].replies.by_key == {"seats": DECLINED}


async def test_the_first_answer_counts_and_the_second_hears_so(harness: EngineHarness) -> None:
    with_tool(harness, Booking(SEATS, PAGE))
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        await engine.elicitations.answer(question.id, THREE, member(ANA))
        late = await engine.elicitations.answer(question.id, DECLINED, member(ANA))
        assert late == AlreadyDecided("Ana has answered it already.")
    assert await harness.log.answer_elicitation(question.id, THREE, ANA) == ElicitationAnswered(
        ElicitationAction.ACCEPT
    )
    assert await harness.log.answer_elicitation("no-such-question", THREE, ANA) == ApprovalNotFound()


async def test_a_call_goes_on_when_all_that_it_has_asked_is_answered(harness: EngineHarness) -> None:
    booking = Booking(SEATS, PAGE)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        await wait_for_elicitation(harness, receipt.turn_id)
        first, second = questions(await engine.view(receipt.turn_id))
        await engine.elicitations.answer(
            first.id, THREE if first.question == SEATS else ElicitationResult(ElicitationAction.ACCEPT), member(ANA)
        )
        assert questions(await engine.view(receipt.turn_id)) == [second]
        await engine.elicitations.answer(
            second.id, ElicitationResult(ElicitationAction.ACCEPT) if first.question == SEATS else THREE, member(ANA)
        )
        await harness.surface.wait_for_end(receipt.turn_id)
    assert booking.seen[-1].replies is not None
    assert booking.seen[-1].replies.by_key == {"seats": THREE, "page": ElicitationResult(ElicitationAction.ACCEPT)}


@pytest.mark.parametrize(
    "question",
    [
        ElicitationRequest(
            "q", "Sign in", FormMode({"type": "object", "properties": {"password": {"type": "string"}}})
        ),
        ElicitationRequest("q", "Sign in", FormMode({"type": "object", "properties": {"x": {"title": "API key"}}})),
        ElicitationRequest("q", "Go", UrlMode("http://pay.example.com/1")),
        ElicitationRequest("q", "Go", UrlMode("javascript:alert(1)")),
        ElicitationRequest("q", "Go", UrlMode("https://user@pay.example.com/")),
        ElicitationRequest("q", "Go", UrlMode("https://evil.example\\.pay.example.com/")),
        ElicitationRequest("q", "Go", UrlMode("https://%65vil.example/")),
        ElicitationRequest("q", "Go", UrlMode("http://127.0.0.1.evil.example/")),
    ],
)
async def test_a_forbidden_question_of_a_server_is_declined_without_a_form(
    harness: EngineHarness, question: ElicitationRequest
) -> None:
    booking = Booking(question)
    with_tool(harness, booking)
    view = await harness.run_turn("book")
    assert booking.seen[-1].replies is not None
    assert booking.seen[-1].replies.by_key == {"q": DECLINED}
    (elicitation,) = calls_of(view)[0].elicitations
    assert elicitation.reason
    assert not elicitation.answered_by


async def test_without_an_answer_in_time_the_server_gets_a_cancellation(harness: EngineHarness) -> None:
    harness.approval_seconds = 60.0
    booking = Booking(SEATS)
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        assert await posted_until(harness, question.id) == harness.clock[0] + 60
        harness.clock[0] += 61
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert booking.seen[-1].replies is not None
    assert booking.seen[-1].replies.by_key == {"seats": CANCELLED}
    assert [elicitation.reason for elicitation in calls_of(view)[0].elicitations] == [
        "The question expired without an answer."
    ]


@pytest.mark.parametrize(("server_id", "place"), [("another", "here"), ("", "elsewhere")], ids=["server", "place"])
async def test_an_answer_goes_to_the_server_that_has_asked_and_to_no_other(
    harness: EngineHarness, server_id: str, place: str
) -> None:
    booking, other = Booking(SEATS), Booking(SEATS)
    with_tool(harness, booking)
    before = replace(tool("s__book"), place="here")
    harness.toolbox.add(before, booking.book)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        harness.toolbox.add(replace(before, server_id=server_id, place=place), other.book)
        assert await engine.elicitations.answer(question.id, THREE, member(ANA)) == ElicitationAnswered(
            ElicitationAction.ACCEPT
        )
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert (len(booking.seen), other.seen) == (1, [])
    (step,) = calls_of(view)
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert "the answers were for the first" in step.result.text


async def test_a_server_that_never_has_enough_is_given_up(harness: EngineHarness) -> None:
    seen: list[CallContext] = []

    async def insatiable(_call: ToolCall, context: CallContext) -> ToolOutcome:
        seen.append(context)
        return CallNeedsInput((ElicitationRequest("q", "Go", UrlMode("ftp://example.com")),), "more")

    harness.toolbox.add(tool("s__book"), insatiable)
    harness.allow("s__book")
    harness.model.script = [ask_for(call("s__book", "a")), say("It asks without end.")]
    view = await harness.run_turn("book")
    (step,) = calls_of(view)
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert TOO_MANY in step.result.text
    assert len(seen) == MOST_ROUNDS + 1


async def test_a_server_with_forbidden_questions_is_given_up_sooner(harness: EngineHarness) -> None:
    """Each forbidden elicitation is a card in the conversation."""
    rounds = 0

    async def insatiable(_call: ToolCall, _context: CallContext) -> ToolOutcome:
        nonlocal rounds
        rounds += 1
        return CallNeedsInput(tuple(ElicitationRequest(f"q{n}", "Go", UrlMode("ftp://example.com")) for n in range(10)))

    harness.toolbox.add(tool("s__book"), insatiable)
    harness.allow("s__book")
    harness.model.script = [ask_for(call("s__book", "a")), say("It asks without end.")]
    view = await harness.run_turn("book")
    (step,) = calls_of(view)
    assert step.status is StepStatus.FAILED
    assert (rounds, len(step.elicitations)) == (2, 10)


async def test_a_call_that_is_under_way_waits_for_the_answer(harness: EngineHarness) -> None:
    booking = Meanwhile()
    with_tool(harness, booking)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        assert (await engine.view(receipt.turn_id)).turn.status is TurnStatus.RUNNING
        await engine.elicitations.answer(question.id, THREE, member(ANA))
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert booking.heard == [THREE]
    (step,) = calls_of(view)
    assert step.status is StepStatus.DONE
    assert [(elicitation.open, elicitation.answered_by) for elicitation in step.elicitations] == [(False, "Ana")]


async def test_a_running_call_gets_a_cancellation_without_an_answer_in_time(harness: EngineHarness) -> None:
    harness.approval_seconds = 0.05
    booking = Meanwhile()
    with_tool(harness, booking)
    await harness.run_turn("book")
    assert booking.heard == [CANCELLED]


@pytest.mark.parametrize(("read_only", "becomes"), [(True, StepStatus.DONE), (False, StepStatus.UNKNOWN)])
async def test_a_question_of_a_running_call_ends_with_its_process(
    harness: EngineHarness, read_only: bool, becomes: StepStatus
) -> None:
    booking = Meanwhile()
    with_tool(harness, booking, read_only=read_only)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
    again = harness.engine()
    async with running(again):
        if read_only:
            view = await harness.surface.wait_for(lambda view: any(each.id != question.id for each in questions(view)))
            await again.elicitations.answer(questions(view)[0].id, THREE, member(ANA))
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert isinstance(await again.elicitations.answer(question.id, THREE, member(ANA)), AlreadyDecided)
    assert [step.status for step in calls_of(view)] == [becomes]


@pytest.mark.parametrize("behaviour", [Booking(SEATS), Meanwhile()])
async def test_a_turn_that_is_stopped_asks_no_more(harness: EngineHarness, behaviour: Booking | Meanwhile) -> None:
    with_tool(harness, behaviour)
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        await engine.stop(receipt.turn_id, ANA)
        view = await harness.surface.wait_for_end(receipt.turn_id)
        assert view.turn.status is TurnStatus.CANCELLED
        assert not questions(view)
        assert isinstance(await engine.elicitations.answer(question.id, THREE, member(ANA)), AlreadyDecided)


async def test_the_time_of_a_question_runs_from_its_posting_though_its_call_is_under_way(
    harness: EngineHarness,
) -> None:
    with_tool(harness, Meanwhile())
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("book"))
        question = await wait_for_elicitation(harness, receipt.turn_id)
        assert await posted_until(harness, question.id) > harness.clock[0]
        await engine.elicitations.answer(question.id, DECLINED, member(ANA))
        await harness.surface.wait_for_end(receipt.turn_id)
