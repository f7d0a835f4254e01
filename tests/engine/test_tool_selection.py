"""Selection of the tools for a model, and retries without a tool that its service rejects."""

from __future__ import annotations

import logging

import pytest

from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome, ToolSearch, ToolSet
from bot.domain.turns import ModelStep, TurnStatus, TurnView
from bot.engine.prompt.builder import MOST_TOOLS, RefusedTools, within_limit
from bot.engine.prompt.messages import READ_RESULT
from bot.errors import ModelRejected
from bot.ports import CallContext
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ask_for, call, message, running, say, text_outcome, tool


def refuses(name: str) -> ModelRejected:
    return ModelRejected(f"The service does not accept the tool {name} (400).", tool=name)


def notes(view: TurnView) -> list[str]:
    return [note for step in view.steps if isinstance(step, ModelStep) for note in step.notes]


async def run_turn(harness: EngineHarness, text: str = "go", **changes: object) -> TurnView:
    engine = harness.engine(**changes)
    async with running(engine):
        return await harness.surface.wait_for_end((await engine.receive(message(text))).turn_id)


async def test_a_tool_that_the_service_refuses_is_dropped_and_the_answer_says_so(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.toolbox.add(tool("s__good", read_only=True))
    harness.toolbox.add(tool("s__bad"))
    harness.allow("s__good")
    harness.model.script = [refuses("s__bad"), ask_for(call("s__good")), say("Done.")]
    with caplog.at_level(logging.WARNING, "bot.engine.prompt.builder"):
        view = await run_turn(harness)
    assert view.turn.status is TurnStatus.DONE
    offered = [[each.name for each in request.tools] for request in harness.model.requests]
    assert offered == [["s__good", "s__bad"], ["s__good"], ["s__good"]]
    assert [note for note in notes(view) if "s__bad" in note] == notes(view)
    assert len(notes(view)) == 1
    assert "s__bad rejected by" in caplog.text


async def test_later_turns_leave_it_out_at_once_until_its_definition_changes(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__bad"))
    harness.model.script = [refuses("s__bad"), say("One."), say("Two."), say("Three.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("one"))).turn_id)
        second = await harness.surface.wait_for_end((await engine.receive(message("two"))).turn_id)
        harness.toolbox.add(tool("s__bad", description="Corrected."))
        third = await harness.surface.wait_for_end((await engine.receive(message("three"))).turn_id)
    assert [len(request.tools) for request in harness.model.requests] == [1, 0, 0, 1]
    assert "s__bad" in notes(second)[0]
    assert notes(third) == []


async def test_every_tool_that_is_refused_is_dropped(harness: EngineHarness) -> None:
    names = [f"s__t{n}" for n in range(5)]
    for name in names:
        harness.toolbox.add(tool(name))
    harness.model.script = [*map(refuses, names[:4]), say("Done.")]
    view = await run_turn(harness)
    assert view.turn.status is TurnStatus.DONE
    assert [each.name for each in harness.model.requests[-1].tools] == ["s__t4"]
    assert len(notes(view)) == 4


@pytest.mark.parametrize("name", ["s__gone", ""])
async def test_a_refusal_that_is_about_no_tool_of_the_request_ends_the_turn(harness: EngineHarness, name: str) -> None:
    harness.toolbox.add(tool("s__good"))
    harness.model.script = [refuses(name)]
    view = await run_turn(harness)
    assert view.turn.status is TurnStatus.FAILED
    assert len(harness.model.requests) == 1


async def test_a_service_that_finds_fault_with_everything_is_not_asked_for_ever(harness: EngineHarness) -> None:
    for n in range(20):
        harness.toolbox.add(tool(f"s__t{n}"))
    harness.model.script = [refuses(f"s__t{n}") for n in range(20)]
    view = await run_turn(harness)
    assert view.turn.status is TurnStatus.FAILED
    assert len(harness.model.requests) == 9


async def test_no_more_tools_are_sent_than_services_take_where_they_are_not_searched(harness: EngineHarness) -> None:
    for n in range(200):
        harness.toolbox.add(tool(f"big__t{n:03}"))
    harness.toolbox.add(tool("small__only"))
    harness.model.script = [say("Done.")]
    view = await run_turn(harness, tool_search=ToolSearch.OFF)
    sent = [each.name for each in harness.model.requests[0].tools]
    assert len(sent) == MOST_TOOLS
    assert "small__only" in sent
    [note] = notes(view)
    assert note.startswith("73 of the 200 tools of server big are left out, because a model takes 128. Fix:")


async def test_with_the_tool_to_read_on_they_are_no_more_than_services_take_either(harness: EngineHarness) -> None:
    async def long(wanted: ToolCall, _context: CallContext) -> ToolOutcome:
        return text_outcome(wanted, "word " * 1_000)

    for n in range(200):
        harness.toolbox.add(tool(f"big__t{n:03}", read_only=True), long)
    harness.allow("big__t000")
    harness.model.script = [ask_for(call("big__t000")), say("Done."), say("Yes.")]
    engine = harness.engine(tool_search=ToolSearch.OFF)
    async with running(engine):
        for text in ("go", "and?"):
            await harness.surface.wait_for_end((await engine.receive(message(text))).turn_id)
    *_, before, after = ([each.name for each in request.tools] for request in harness.model.requests)
    assert after == [*before[:-1], READ_RESULT]
    assert len(after) == MOST_TOOLS


def test_the_choice_is_the_same_in_any_order_of_tools() -> None:
    tools = tuple(tool(f"{server}__t{n}") for server in "abc" for n in range(10))
    chosen = {each.name for each in within_limit(ToolSet(tools), 7).tools}
    assert chosen == {each.name for each in within_limit(ToolSet(tools[::-1]), 7).tools}
    assert chosen == {"a__t0", "a__t1", "a__t2", "b__t0", "b__t1", "c__t0", "c__t1"}


def test_an_offer_within_the_limit_stays_as_it_is() -> None:
    offered = ToolSet(tuple(tool(f"a__t{n}") for n in range(7)))
    assert within_limit(offered, 7) is offered


def test_one_model_s_refusal_is_nothing_to_another() -> None:
    refused, offered = RefusedTools(), ToolSet((tool("s__bad"),))
    refused.add("openai:one", offered.tools[0], refuses("s__bad"))
    assert refused.remove_refused("openai:one", offered).tools == ()
    assert refused.remove_refused("anthropic:two", offered) is offered


def test_why_a_tool_was_refused_is_known_by_model_until_its_definition_changes() -> None:
    refused = RefusedTools()
    bad = tool("s__bad")
    refused.add("", bad, refuses("s__bad"))
    refused.add("openai:small", bad, ModelRejected("No such schema."))
    assert refused.reasons(bad) == {
        "": "The service does not accept the tool s__bad (400).",
        "openai:small": "No such schema.",
    }
    assert refused.reasons(tool("s__good")) == {}
    assert refused.reasons(tool("s__bad", description="Corrected.")) == {}
