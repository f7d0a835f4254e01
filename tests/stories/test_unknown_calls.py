"""Calls of unknown outcome: the user is told, and can check the call or run it again."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

from bot.platforms.console.transcript import UNSURE as HINT
from bot.rendering.timeline import SECOND_TRY
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.platforms.console.terminal import prompt_line
from tests.stories.counted_calls import COUNT_IT, UNSURE, CountingPlace, counting
from tests.stories.installation import PROJECT, Installation, becomes
from tests.stories.program import a_bot
from tests.stories.test_approvals import card
from tests.turn_events import check_event


async def test_after_a_crash_the_next_start_says_so_and_the_call_is_checked_and_run_once_more(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        place = CountingPlace(tmp_path, model)
        place.die_in_the_call("c1")
        assert place.run_count == 1

        async with place.terminal("--conversation", "c1") as terminal:
            await terminal.shows(prompt_line(COUNT_IT), f"? test.count  {UNSURE}", "I do not know.", HINT)
            assert terminal.text.count(UNSURE) == 1
            assert terminal.text.count("I do not know.") == 1

            await terminal.asks("/check", prompt_line("/check"), "I looked: it is there.")
            asked = str(model.requests[-1].messages[-1]["content"])
            assert asked.startswith('The call test__count with {"label": "once"} was sent')
            assert asked.endswith("Do not repeat the call.")
            assert place.run_count == 1

            await terminal.asks("/again")
            screen = await card(terminal, "▌ Count “once” (test)?", "▌ label  once")
            assert SECOND_TRY in screen
            assert place.run_count == 1
            questions = len(model.requests)
            await terminal.presses("y", "▌ Approved.", "✓ test.count", "recorded once")
            await terminal.prompts()
            assert place.run_count == 2
            assert len(model.requests) == questions, "a call run by hand needs no model"

            await terminal.asks("/again", "That call has been run again already.")
            assert await terminal.leaves() == 0

        async with place.terminal() as terminal:
            await terminal.shows("Continuing c1 (3 earlier turns).", prompt_line("Run count again"), "recorded once")
            await terminal.asks("goodbye", "You said: goodbye.")
            told = str(model.requests[-1].messages)
            assert "(A person ran this by hand." in told
            assert "recorded once" in told
    assert place.run_count == 2
    assert model.refusals == []


def test_a_script_is_told_which_command_to_use_and_can_use_it(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        place = CountingPlace(tmp_path, model)
        nothing = place.chat("-m", "/again")
        assert (nothing.code, nothing.out) == (1, "")
        assert nothing.err == "There is no call here whose outcome is unknown.\n"

        place.die_in_the_call("c1")
        here = ("--conversation", "c1", "-m")
        seen = place.chat(*here, "and now?")
        assert (seen.code, seen.out) == (0, "You said: and now?.\n")
        assert f"? test.count  {UNSURE}" in seen.err
        assert "/check finds out, /again runs it once more: countersign chat --conversation c1" in seen.err

        turned_down = place.chat(*here, "/again")
        assert (turned_down.code, turned_down.out, place.run_count) == (3, "", 1)
        assert SECOND_TRY in turned_down.err
        assert "test.count needs an approval and was not run." in turned_down.err

        again = place.chat(*here, "/again", "--approve", "all")
        assert (again.code, again.out, place.run_count) == (0, "recorded once\n", 2)

        checked = [place.chat(*here, "/check") for _ in range(2)]
        assert [(each.code, each.out) for each in checked] == [(0, "I looked: it is there.\n"), (1, "")]
        assert checked[1].err == "That call has been checked already.\n"
    assert place.run_count == 2


MAY_HAVE_RUN = "In conversation c1 the program ended during a call, and it may have run: test.count. /open c1"


def test_a_script_goes_on_with_the_turn_of_one_that_was_killed_and_says_what_may_have_run(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        place = CountingPlace(tmp_path, model)
        place.die_in_the_call("c1")
        listed = place.chat("--list")
        assert MAY_HAVE_RUN in listed.err
        (line,) = [line for line in listed.out.splitlines() if "c1" in line]
        assert "done" in line
        assert "running" not in line
        other = place.chat("-m", "hello")
    assert (other.code, other.out, other.err) == (0, "You said: hello.\n", "")
    assert place.run_count == 1


def _is_idle(place: CountingPlace) -> bool:
    return "running" not in place.chat("--list").out


async def test_a_window_and_a_worker_go_on_with_the_turn_of_a_killed_script(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        for name in ("window", "worker"):
            place = CountingPlace(tmp_path / name, model)
            place.die_in_the_call("c1")
            if name == "window":
                async with place.terminal("--new") as terminal:
                    await terminal.shows("it may have run: test.count", "I do not know.")
            else:
                async with a_bot(place) as bot:
                    await bot.logs("it may have run: test.count. /open c1")
                    await becomes(functools.partial(_is_idle, place), "the turn has ended")
                    assert await bot.leaves() == 0
            assert place.chat("-m", "hello").err == "", "it is told once"


def test_a_call_whose_server_dies_in_it_says_why_and_a_program_reads_the_state(tmp_path: Path) -> None:
    def deadly(request: Request) -> Reply:
        return Say("Gone.") if request.results else Say(calls=(Call("test__die", {}),))

    with FakeLanguageModel("openai", rule=deadly) as model:
        place = CountingPlace(tmp_path, model)
        said = place.chat("-m", "go", "--approve", "all")
        events = place.chat("-m", "go", "--approve", "all", "--json").events
    line = next(line for line in said.err.splitlines() if line.startswith("  ? test.die"))
    assert f"{UNSURE}  Error calling MCP server: The connection to server test" in line
    assert line.count("happened") == 1
    *_, ended = (check_event(event)["data"] for event in events if event["event"] == "tool_call_update")
    assert (ended["status"], ended["server"], ended["name"]) == ("UNKNOWN", "test", "die")
    assert "The connection to server test" in ended["error"]


@pytest.mark.parametrize(("moment", "found"), [("after", "is there."), ("before", "is not there.")])
async def test_the_demo_model_looks_into_the_notes_and_writes_nothing(tmp_path: Path, moment: str, found: str) -> None:
    program = [str(PROJECT / "tests/stories/dropping_notes.py"), str(tmp_path / "once"), moment]
    env = {"NOTES_FILE": str(tmp_path / "data/notes.json"), "PYTHONPATH": str(PROJECT)}
    notes = {"command": sys.executable, "args": program, "env": env, "trusted": True}
    place = Installation(tmp_path, {"notes": notes}, policy='[servers.notes.tools]\nlist = "ALWAYS_ALLOW"\n')
    said = place.chat("-m", "add a note: buy milk", "--approve", "all", "--new", "--conversation", "c1")
    assert f"? notes.add  {UNSURE}" in said.err
    saved = ["buy milk"] if moment == "after" else []
    async with place.terminal("--conversation", "c1") as terminal:
        await terminal.asks("/check", f"I looked: “buy milk” {found}")
        await terminal.prompts()
        assert "▌ Add a note" not in terminal.text, "no card asks for the same write"
        assert await terminal.leaves() == 0
    assert place.notes == saved


def test_a_model_that_repeats_the_write_in_a_check_is_refused_without_a_card(tmp_path: Path) -> None:
    refused: list[str] = []

    def stubborn(request: Request) -> Reply:
        if "Find out whether" in request.question:
            if not request.results:
                assert "test__count" not in request.tool_names
                assert "test__count_read" in request.tool_names
                return Say(calls=(Call("test__count", {"label": "once"}),))
            refused.append(request.results[-1])
            return Say("I cannot say.")
        return counting(request)

    with FakeLanguageModel("openai", rule=stubborn) as model:
        place = CountingPlace(tmp_path, model)
        place.die_in_the_call("c1")
        assert place.chat("--conversation", "c1", "-m", "and now?").code == 0
        said = place.chat("--conversation", "c1", "-m", "/check", "--approve", "all")
    assert (said.code, said.out, place.run_count) == (0, "I cannot say.\n", 1), said.err
    assert "this turn only finds out whether an earlier call has run" in refused[0]
    assert "Count “once”" not in said.err
