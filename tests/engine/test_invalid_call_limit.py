"""Limit of invalid calls: a model may correct itself twice, then has to answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.completions import ToolChoice
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.profiles import Binding, Profile
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import INVALID_ARGUMENTS, CallReturned, ToolOutcome
from bot.domain.turns import StepStatus, ToolStep
from bot.engine.policy.authorization import away_text
from bot.engine.policy.rules import RuleBook
from bot.engine.turn_runner import GAVE_UP
from bot.ports import CallContext
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ask_for, call, message, running, say, tool, words

UNKNOWN = ToolCall("a", "s__nothing")
UNREADABLE = ToolCall("b", "s__one", unreadable='{"a": ')
UNFIT = ToolCall("c", "s__picky", {"n": "one"})
SEARCHING = call("countersign__search_tools", "e")
READING = call("countersign__read_result", "f", id="9.9")
CALLING = call("countersign__call_tool", "g", arguments={})
RIGHT = call("s__one", "d")


async def refuse(wrong: ToolCall, _context: CallContext) -> ToolOutcome:
    return CallReturned(
        ToolResult(wrong.id, (TextPart(f"{INVALID_ARGUMENTS} Correct them and call it again:\n- n"),), is_error=True)
    )


def furnish(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__one", read_only=True))
    harness.toolbox.add(tool("s__picky", read_only=True), refuse)
    harness.allow("s__one", "s__picky")


@pytest.mark.parametrize(
    "wrong",
    [
        (UNKNOWN, UNKNOWN, UNKNOWN),
        (UNREADABLE, UNREADABLE, UNREADABLE),
        (UNFIT, UNFIT, UNFIT),
        (SEARCHING, SEARCHING, SEARCHING),
        (READING, READING, READING),
        (CALLING, CALLING, CALLING),
        (UNKNOWN, UNREADABLE, UNFIT),
        (SEARCHING, CALLING, READING),
    ],
    ids=[
        "unknown tool",
        "unreadable arguments",
        "arguments that do not fit",
        "a search for nothing",
        "a result that there is not",
        "a call of nothing",
        "each in turn",
        "each of the bot's own in turn",
    ],
)
async def test_after_three_calls_in_vain_the_model_is_asked_for_its_answer(
    harness: EngineHarness, wrong: tuple[ToolCall, ...]
) -> None:
    furnish(harness)
    harness.model.script = [*(ask_for(each) for each in wrong), say("I cannot.")]
    view = await harness.run_turn("go")
    assert [request.tool_choice for request in harness.model.requests] == [ToolChoice.AUTO] * 3 + [ToolChoice.NONE]
    assert [step.status for step in view.steps if isinstance(step, ToolStep)] == [StepStatus.FAILED] * 3
    assert GAVE_UP in view.steps[-1].notes  # type: ignore[union-attr]


async def test_a_model_may_correct_itself_twice(harness: EngineHarness) -> None:
    furnish(harness)
    harness.model.script = [ask_for(UNKNOWN), ask_for(UNREADABLE), ask_for(RIGHT), ask_for(UNFIT), say("Done.")]
    view = await harness.run_turn("go")
    assert {request.tool_choice for request in harness.model.requests} == {ToolChoice.AUTO}
    assert GAVE_UP not in view.steps[-1].notes  # type: ignore[union-attr]


async def test_a_reply_with_one_good_call_is_not_in_vain(harness: EngineHarness) -> None:
    furnish(harness)
    harness.model.script = [*(ask_for(UNKNOWN, RIGHT) for _ in range(4)), say("Done.")]
    await harness.run_turn("go")
    assert {request.tool_choice for request in harness.model.requests} == {ToolChoice.AUTO}


async def test_no_card_is_shown_for_a_call_whose_arguments_do_not_fit(harness: EngineHarness) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    harness.toolbox.add(replace(tool("s__pay", read_only=False), input_schema=schema))
    wrong, right = call("s__pay", "e", amount="lots"), call("s__pay", "f", amount=5)
    harness.model.script = [ask_for(wrong), ask_for(right)]
    engine = harness.engine()
    async with running(engine):
        await engine.receive(message("go"))
        view = await harness.surface.wait_for(lambda view: bool(view.awaiting))
    steps = [step for step in view.steps if isinstance(step, ToolStep)]
    assert [(step.status, step.approval is None) for step in steps] == [
        (StepStatus.FAILED, True),
        (StepStatus.AWAITING, False),
    ]
    assert steps[0].result is not None
    assert steps[0].result.text.startswith(INVALID_ARGUMENTS)
    assert harness.toolbox.calls == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("notes__add_notes", ["notes__add_note", "notes__list_notes"]),
        ("Notes.Add_Note", ["notes__add_note", "notes__list_notes"]),
        ("add_note", ["notes__add_note"]),
        ("mcp__notes__list_notes", ["notes__list_notes", "notes__add_note"]),
        ("list", []),
        ("one__read_fil", ["one__read_file"]),
        ("tow__read_file", ["two__read_file"]),
        ("production__read_file", []),
        ("read_file", ["one__read_file", "two__read_file", "three__read_file"]),
        ("x" * 10_000, []),
        ("", []),
    ],
)
async def test_a_model_that_gets_a_name_wrong_is_told_the_nearest_ones(
    harness: EngineHarness, written: str, meant: list[str]
) -> None:
    for name in ("notes__add_note", "notes__list_notes", *(f"{n}__read_file" for n in ("one", "two", "three", "four"))):
        harness.toolbox.add(tool(name))
    harness.model.script = [ask_for(call(written)), say("I see.")]
    await harness.run_turn("go")
    told = words(harness.model.requests[1])[-1]
    assert told.startswith(f"There is no tool called {written!r}.")
    _, _, named = told.partition(" Did you mean ")
    assert (named.removesuffix("?").split(", ") if named else []) == meant


async def test_a_tool_of_a_server_that_is_away_is_said_to_be_away(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("staging__deploy"))
    harness.toolbox.unavailable = frozenset({"prod"})
    harness.model.script = [ask_for(call("prod__deploy")), say("I see.")]
    await harness.run_turn("go")
    assert words(harness.model.requests[1])[-1] == away_text("prod")


async def test_no_tool_is_named_that_is_not_enabled_in_the_conversation(harness: EngineHarness) -> None:
    for name in ("notes__add_note", "notes__add_node"):
        harness.toolbox.add(tool(name, server_id="n1"))
    harness.rules = RuleBook()
    harness.rules.amend([], [Profile("p", "p", tools={"n1": frozenset({"add_node"})})], [Binding(EVERYWHERE, "p")])
    harness.model.script = [ask_for(call("notes__add_notes")), say("I see.")]
    await harness.run_turn("go")
    assert words(harness.model.requests[1])[-1].endswith(" Did you mean notes__add_node?")
