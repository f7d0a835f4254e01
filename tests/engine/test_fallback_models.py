"""Conversations while a fallback model answers."""

from __future__ import annotations

from typing import Any, cast

from bot.domain.completions import Capabilities
from bot.domain.metrics import null_sink
from bot.domain.turns import ModelStep, TurnStatus, TurnView
from bot.engine.engine import Engine
from bot.engine.prompt.history import HistoryBudget
from bot.engine.usage import estimate_messages
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable
from bot.llm.models import REST_SECONDS, FallbackModel, InstrumentedModel
from bot.ports import LanguageModel
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ScriptedModel, ask_for, call, message, running, say, tool

BUSY = ModelUnavailable("The first is asked too much (429): slowly, please.", retry_after=1.0)
BUSY.brief = "The first is asked too much (429)."
INSTEAD = "Answered by second instead of first: The first is asked too much (429)."
LONG = "word " * 400  # some 500 tokens


class Pair:
    """A model and its fallback model."""

    def __init__(self, harness: EngineHarness, first: list[Any], second: list[Any], **able: Any) -> None:
        self.first, self.second = ScriptedModel(first), ScriptedModel(second, capabilities=Capabilities(**able))
        self.now = 1_000.0
        models: dict[str, LanguageModel] = {"first": self.first, "second": self.second}
        measured = {name: InstrumentedModel(model, name, null_sink) for name, model in models.items()}
        self._chain = FallbackModel(measured, clock=lambda: self.now)
        harness.model = cast("ScriptedModel", self)

    async def get(self, _name: str) -> LanguageModel:
        return self._chain


async def ask(harness: EngineHarness, engine: Engine, question: str) -> TurnView:
    receipt = await engine.receive(message(question))
    return await harness.surface.wait_for_end(receipt.turn_id)


def models_and_notes(view: TurnView) -> list[tuple[str, tuple[str, ...]]]:
    """Return the model and the notes of each model step."""
    return [(step.model, step.notes) for step in view.steps if isinstance(step, ModelStep)]


async def test_people_are_told_once_in_a_turn_that_another_model_answers(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.allow("notes__add")
    rounds = [ask_for(call("notes__add", "c1")), ask_for(call("notes__add", "c2")), say("Done.")]
    Pair(harness, [BUSY], [*rounds, say("Again.")])
    engine = harness.engine()
    async with running(engine):
        one, two = await ask(harness, engine, "add two"), await ask(harness, engine, "and now?")
    assert models_and_notes(one) == [("second", (INSTEAD,)), ("second", ()), ("second", ())]
    assert models_and_notes(two) == [("second", (INSTEAD,))]


async def test_nothing_is_said_where_the_preferred_model_is_back(harness: EngineHarness) -> None:
    pair = Pair(harness, [BUSY, say("Here I am.")], [say("In its place.")])
    engine = harness.engine()
    async with running(engine):
        assert models_and_notes(await ask(harness, engine, "hi")) == [("second", (INSTEAD,))]
        pair.now += REST_SECONDS
        assert models_and_notes(await ask(harness, engine, "and now?")) == [("first", ())]


async def test_a_stand_in_without_tools_says_so_once(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    Pair(harness, [BUSY], [say("I cannot."), say("Still not.")], tools=False)
    engine = harness.engine()
    async with running(engine):
        views = [await ask(harness, engine, f"add note {n}") for n in range(2)]
    assert [models_and_notes(view) for view in views] == [[("second", (f"{INSTEAD} It uses no tools.",))]] * 2


async def test_a_request_that_is_too_long_for_the_stand_in_is_not_for_the_preferred_model(
    harness: EngineHarness,
) -> None:
    long = [say(f"a{n} {LONG}") for n in range(5)]
    pair = Pair(harness, [BUSY, *long], [ContextTooLong("The second cannot read that much."), say("Short.")])
    engine = harness.engine(memory=HistoryBudget(tokens=8_000))
    async with running(engine):
        views = [await ask(harness, engine, "q0")]
        pair.now += REST_SECONDS
        views += [await ask(harness, engine, f"q{n}") for n in range(1, 6)]
    assert [view.turn.status for view in views] == [TurnStatus.DONE] * 6
    assert not any("Sum up" in request.messages[0].text for request in pair.first.requests)
    assert sum("word word" in each.text for each in pair.first.requests[-1].messages) == 4


async def test_a_fallback_model_with_smaller_limits_gets_a_request_within_them(harness: EngineHarness) -> None:
    long = [say(f"a{n} {LONG}") for n in range(6)]
    second = [say("They spoke."), say("b6"), say("b7")]
    pair = Pair(harness, [*long, BUSY], second, context_tokens=9_000)
    engine = harness.engine(memory=HistoryBudget(tokens=100_000))
    async with running(engine):
        views = [await ask(harness, engine, f"q{n}") for n in range(8)]
    assert [models_and_notes(view) for view in views[6:]] == [[("second", (INSTEAD,))]] * 2
    assert sum("word word" in each.text for each in pair.first.requests[-1].messages) == 6
    summary, *questions = pair.second.requests
    assert "Sum up" in summary.messages[0].text
    for question in questions:
        assert "They spoke." in question.messages[1].text
        assert sum("word word" in each.text for each in question.messages) < 4


async def test_where_all_are_away_that_is_told_in_the_end(harness: EngineHarness) -> None:
    Pair(harness, [BUSY] * 50, [ModelUnavailable("The second is away.")] * 50, context_tokens=9_000)
    engine = harness.engine()
    async with running(engine):
        view = await ask(harness, engine, "hi")
    assert view.turn.status is TurnStatus.FAILED
    assert "The first is asked too much" in view.turn.failure or "The second is away" in view.turn.failure


async def test_a_tool_that_the_stand_in_refuses_is_offered_to_the_preferred_model(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    refusing = ModelRejected("The second does not accept it (400).", tool="notes__add")
    pair = Pair(harness, [BUSY, say("Here I am.")], [refusing, say("Without it."), say("Still without it.")])
    engine = harness.engine()
    async with running(engine):
        for n in range(2):
            await ask(harness, engine, f"q{n}")
        pair.now += REST_SECONDS
        await ask(harness, engine, "q2")
    assert [[each.name for each in request.tools] for request in pair.second.requests] == [["notes__add"], [], []]
    assert [each.name for each in pair.first.requests[-1].tools] == ["notes__add"]


async def test_a_stand_in_with_a_small_window_searches_the_tools_that_the_preferred_model_is_given(
    harness: EngineHarness,
) -> None:
    for n in range(20):
        harness.toolbox.add(tool(f"notes__add_{n}", description="word " * 200))
    pair = Pair(harness, [say("Here I am."), BUSY], [say("In its place.")], context_tokens=8_000)
    engine = harness.engine()
    async with running(engine):
        await ask(harness, engine, "hi")
        view = await ask(harness, engine, "and now?")
    assert models_and_notes(view) == [("second", (INSTEAD,))]
    assert [len(request.tools) for request in pair.first.requests] == [20, 20]
    assert [[each.name for each in request.tools] for request in pair.second.requests] == [
        ["countersign__search_tools", "countersign__call_tool", "countersign__read_result"]
    ]


async def test_a_stand_in_that_searches_no_tools_is_given_them(harness: EngineHarness) -> None:
    for n in range(140):
        harness.toolbox.add(tool(f"notes__add_{n}"))
    pair = Pair(harness, [BUSY], [say("In its place.")], searches=False)
    engine = harness.engine()
    async with running(engine):
        view = await ask(harness, engine, "hi")
    left_out = "12 of the 140 tools of server notes are left out, because a model takes 128."
    ((_, notes),) = models_and_notes(view)
    assert [note.partition(" Fix")[0] for note in notes] == [left_out, INSTEAD]
    assert [len(request.tools) for request in (*pair.first.requests, *pair.second.requests)] == [3, 128]


async def test_a_request_is_made_anew_where_the_preferred_model_goes_away_while_it_is_made(
    harness: EngineHarness,
) -> None:
    long = [say(f"a{n} {LONG * 4}") for n in range(8)]
    pair = Pair(harness, [*long, BUSY], [say("They spoke."), say("And more."), say("b8")], context_tokens=9_000)
    pair.first.capabilities = Capabilities(context_tokens=35_000)
    engine = harness.engine(memory=HistoryBudget(tokens=100_000))
    async with running(engine):
        *_, view = [await ask(harness, engine, f"q{n}") for n in range(9)]
    assert (view.turn.status, models_and_notes(view)[0][0]) == (TurnStatus.DONE, "second")
    assert "Sum up" in pair.first.requests[-1].messages[0].text, "it went away when it was to sum up"
    sizes = [estimate_messages(request.messages) for request in pair.second.requests]
    assert max(sizes) < 9_000 / 2, sizes
