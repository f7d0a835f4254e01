"""A person has seen enough and presses Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Say
from tests.fakes.terminal import PATIENCE
from tests.stories.installation import Installation, a_tool, becomes, scripted_server

CTRL_C = "\x03"


async def test_ctrl_c_stops_a_reply_and_a_tool_and_the_next_message_works_and_a_second_one_leaves(
    tmp_path: Path,
) -> None:
    never = Gate()
    office = scripted_server(tmp_path, "office", a_tool("print_report"), calls={"print_report": {"do": "silence"}})
    with FakeLanguageModel(
        "openai",
        Hold(Say("A long story begins"), never),
        Say("Yes, still here."),
        Say(calls=(Call("office__print_report"),)),
        Say("It may have been printed."),
        Hold(Say("Another story"), never),
    ) as model:
        place = Installation(
            tmp_path, {"office": office.entry}, model=model, MCP_APPROVAL_DEFAULT_POLICY="ALWAYS_ALLOW"
        )
        async with place.terminal() as terminal:
            await terminal.asks("tell me a story", "A long story begins")
            terminal.press(CTRL_C)
            await terminal.until(lambda: terminal.text.count("Stopped.") == 1, "that the reply was stopped")
            await asyncio.wait_for(asyncio.wrap_future(model.requests[0].gone), PATIENCE)

            await terminal.asks("are you there?", "Yes, still here.")
            assert "(I was stopped here.)" in str(model.requests[1].messages)

            await terminal.asks("print the report")
            await becomes(lambda: office.calls == [("print_report", {})], "the tool was called")
            await terminal.shows("◌ office.print_report")
            await terminal.presses(CTRL_C, "? office.print_report  may or may not have happened")
            await terminal.until(lambda: terminal.text.count("Stopped.") == 2, "that the tool was stopped")
            await becomes(lambda: office.heard[-1]["method"] == "notifications/cancelled", "the server heard of it")

            await terminal.asks("was it printed?", "It may have been printed.")

            await terminal.asks("another one", "Another story")
            terminal.press(CTRL_C + CTRL_C)
            assert await terminal.wait_for_exit() == 130
            assert terminal.is_restored
    assert model.refusals == []


async def test_a_call_that_only_reads_is_not_said_to_be_unsent_when_it_is_stopped(tmp_path: Path) -> None:
    tools = a_tool("print_report", reads=True)
    office = scripted_server(tmp_path, "office", tools, calls={"print_report": {"do": "silence"}}, trusted=True)
    with FakeLanguageModel("openai", Say(calls=(Call("office__print_report"),)), Say("It was stopped.")) as model:
        place = Installation(
            tmp_path, {"office": office.entry}, model=model, MCP_APPROVAL_DEFAULT_POLICY="ALWAYS_ALLOW"
        )
        async with place.terminal() as terminal:
            await terminal.asks("read the report")
            await becomes(lambda: office.calls == [("print_report", {})], "the tool was called")
            await terminal.presses(CTRL_C, "office.print_report  stopped while running", "Stopped.")
            assert "not run" not in terminal.text
            await terminal.asks("what came of it?", "It was stopped.")
            assert "office__print_report: stopped while running" in str(model.requests[1].messages)
