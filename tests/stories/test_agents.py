"""A person at the terminal asks agents by name, on a screen, in one line and in a pipe."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.fakes.llm import FakeLanguageModel, Request, Say
from tests.fakes.programs import python
from tests.stories.installation import Installation

WAREHOUSE = Path(__file__).parents[1] / "fakes" / "mcp" / "warehouse.py"
PERSONA = re.compile(r"You are the agent (\w+)\.")


def clerk(request: Request) -> Say:
    """The persona that answers, and the question behind its label."""
    persona = PERSONA.search(str(request.messages[0]))
    *_label, question = str(request.messages[-1]["content"]).splitlines()
    return Say(f"{persona[1] if persona else 'nobody'}: {question}")


def with_agents(folder: Path, model: FakeLanguageModel) -> Installation:
    place = Installation(folder, model=model)
    for line in (
        '/profile set support --persona "You are the agent support." --about "Answers questions about orders"',
        '/profile set データ --persona "You are the agent データ."',
        "/profile bind support channel --agent",
        "/profile bind データ workspace --agent",
    ):
        assert place.chat("-m", line).code == 0
    return place


async def test_agents_are_completed_listed_asked_and_kept_until_another_is_named(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    place = with_agents(tmp_path, model)
    async with place.terminal(columns=140, rows=60) as terminal:
        await terminal.asks("/agents", "Agents here · 2", "Answers questions about orders", "データ")
        await terminal.asks("/ask support where is it?", "Agent: support", "support: where is it?")
        await terminal.asks("and the other one?", "support: and the other one?")
        await terminal.asks("データとして、いくつ", "Agent: データ", "データ: いくつ")
        await terminal.asks("as suport where is it?", "There is no agent of that name here.", "Did you mean support?")
        await terminal.asks("as default who are you?", "nobody: who are you?")
        await terminal.presses("/ask su\t", "/ask support")
        terminal.press("\x15\x04")
        assert await terminal.wait_for_exit() == 0


def test_a_script_names_an_agent_in_the_line_or_as_an_option(tmp_path: Path, model: FakeLanguageModel) -> None:
    place = with_agents(tmp_path, model)
    outcome = place.chat("-m", "as Support where is it?")
    assert (outcome.code, outcome.out.strip()) == (0, "support: where is it?")
    assert "Agent: support" in outcome.err
    outcome = place.chat("--agent", "データ", "--json", "-m", "いくつ")
    finished = json.loads(outcome.out.splitlines()[-1])
    assert (finished["event"], finished["data"]["text"]) == ("done", "データ: いくつ")
    assert finished["data"]["agent"]["name"] == "データ"
    outcome = place.chat("--agent", "データ", typed="one\nas support two\nthree\n")
    assert outcome.out.split("\n\n") == ["データ: one", "support: two", "support: three\n"]
    outcome = place.chat("--agent", "nobody", "-m", "one")
    assert (outcome.code, outcome.out) == (1, "")
    assert "There is no agent of that name here." in outcome.err
    assert "Agents here: support, データ" in outcome.err


async def test_a_server_is_off_until_it_is_enabled_where_profiles_name_their_servers(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=lambda request: Say(f"I have {tool_names(request)}.")) as model:
        entry = {"command": python(), "args": [str(WAREHOUSE)], "trusted": True}
        place = Installation(tmp_path, {"w": entry}, model=model, MCP_SERVERS_ENABLED="per_profile")
        async with place.terminal(columns=160, rows=60) as terminal:
            await terminal.asks("/mcp sync w", "w is synced")
            await terminal.asks("what do you have?", "I have nothing.")
            await terminal.asks("/mcp list", "off for default: /profile enable w")
            await terminal.asks("/mcp run w list_items", "not enabled in this conversation's profile")
            await terminal.asks("/profile enable w", "w is enabled from the next answer on", "this workspace")
            await terminal.asks("and what do you have now?", "I have w__")
            assert await terminal.leaves() == 0
        assert place.chat("-m", "/profile disable w").code == 0
        doctor = place.countersign("doctor")
        assert "Each server is off until a profile enables it (MCP_SERVERS_ENABLED=per_profile)." in doctor.out
        assert (
            "No profile enables it: its tools are offered nowhere. Fix: enable it here: /profile enable w" in doctor.out
        )
        assert place.chat("-m", "/profile set default --server '*'").code == 0
        assert "these enable every server, also later ones: default." in place.countersign("doctor").out


def tool_names(request: Request) -> str:
    """The names of the tools that the model has been given."""
    names = [tool["function"]["name"] for tool in request.body.get("tools", ())]
    return ", ".join(name for name in names if name.startswith("w__")) or "nothing"
