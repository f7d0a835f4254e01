"""Terminals of all sizes and texts of all widths: output stays within its line."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.turns import StepStatus, ToolRef
from tests.platforms.console.chat import chatting
from tests.platforms.console.scripted_engine import ScriptedTurn, an_approval, asking, calling
from tests.platforms.console.terminal import prompt_line

LONG = "SAMPLE DATA, not a real forecast, because WEATHER_SAMPLE is set to always\n1\n2\n3\n4"
JAPANESE = "札幌市の天気は雪のち晴れ、最高気温は3度でしょう。"


@pytest.mark.parametrize("size", [(100, 32), (40, 12), (28, 10)])
async def test_a_tool_line_is_one_line_while_it_runs_and_when_it_is_done(size: tuple[int, int]) -> None:
    done = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.STARTED, tool=ToolRef("weather", "forecast", read_only=True))
        await turn.show(running=frozenset({n}), progress={n: "asking the satellite " * 10})
        await done.wait()
        await turn.update(n, status=StepStatus.DONE, result=LONG)
        await turn.end("It is sunny.")

    async with chatting({"go": script}, size=size) as chat:
        await chat.type("go", "◌ weather.forecast  ask")
        assert all("satellite" not in line for line in chat.terminal.lines if "weather.forecast" not in line)
        done.set()
        await chat.terminal.shows("✓ weather.forecast", "It is sunny.")
        await chat.terminal.prompts()
        block = chat.terminal.text.split(prompt_line("go"))[1].split("It is sunny.")[0].strip("\n")
        assert block.count("\n") == 0
        assert block.endswith("(+4 lines)" if size[0] > 40 else "…")


async def test_an_error_is_shown_in_full_on_lines_of_its_own() -> None:
    script = calling("Sorry.", StepStatus.FAILED, "The disk of the server is full and nothing could be written to it")

    async with chatting({"go": script}, size=(40, 16)) as chat:
        await chat.type("go", "Sorry.")
        block = chat.terminal.text.split(prompt_line("go"))[1].split("Sorry.")[0].strip("\n")
        assert block.split("\n") == [
            "  ✗ notes.add_note  failed",
            "    The disk of the server is full and",
            "    nothing could be written to it",
        ]


async def test_wide_characters_stay_inside_cards_and_tool_lines() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.DONE, JAPANESE * 2, tool=ToolRef("天気", "予報"))
        await turn.ask(an_approval(), arguments={"場所": "札幌 🎉🎉", "text": JAPANESE})
        await turn.end(JAPANESE)

    async with chatting({"予報は": script}, size=(44, 24)) as chat:
        await chat.type("予報は", "[y] once")
        assert "  ✓ 天気.予報  札幌市の天気は雪のち晴れ、最…" in chat.terminal.lines
        card = [line for line in chat.terminal.lines if "▌" in line]
        assert card[4:7] == [
            "  ▌ 場所  札幌 🎉🎉",
            "  ▌ text  札幌市の天気は雪のち晴れ、最高気温",
            "  ▌       は3度でしょう。",
        ]
        await chat.press("y", "Approved.")
        await chat.terminal.prompts()


@pytest.mark.parametrize("size", [(20, 8), (12, 6), (8, 4), (3, 2)])
async def test_in_a_tiny_window_everything_still_works(size: tuple[int, int]) -> None:
    script = asking("# Title\n\nDone with **it**.\n\n| a | b |\n|---|---|\n| 1 | 2 |")

    async with chatting({"go": script}, size=size) as chat:
        await chat.terminal.until(lambda: prompt_line() in chat.terminal.text, "the prompt")
        chat.terminal.press("go\r")
        await chat.terminal.until(lambda: bool(chat.engine.received), "the question")
        async with asyncio.timeout(10):
            while not chat.engine.decisions:
                chat.terminal.press("y")
                await asyncio.sleep(0.1)
        chat.terminal.press("\x03\x04")
        await chat.terminal.until(lambda: chat.engine.turns["t1"].turn.status.ended, "the end")


async def test_the_keys_of_a_card_follow_the_window() -> None:
    async with chatting({"go": asking()}, size=(80, 24)) as chat:
        await chat.type("go", "[e] edit\n  ▌ [n] no, because…  [Enter] no")
        chat.terminal.resize(30, 24)
        await chat.terminal.shows("[g] allow more…  [e] edit\n  ▌ [n] no, because…\n  ▌ [Enter] no")
        await chat.press("n", "▌ why?")
        chat.terminal.resize(80, 24)
        await chat.terminal.shows("▌ reason (optional):")
        await chat.press("no need\r", "Told the agent: no need")


async def test_a_long_argument_name_stands_above_its_value() -> None:
    name = "the_folder_that_is_emptied_before_anything_else"

    async with chatting({"go": asking(arguments={name: "/home/ana", "dry": False})}, size=(60, 24)) as chat:
        await chat.type("go", f"  ▌ {name}\n  ▌   /home/ana\n  ▌ dry  false\n")


async def test_remarks_are_broken_at_blanks_and_indented() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.say("Half", "The reply was cut at its length limit, as the model said.")
        await turn.end("ok")

    async with chatting({"go": script}, size=(40, 24)) as chat:
        await chat.type("go", "  The reply was cut at its length limit,\n  as the model said.\n")
