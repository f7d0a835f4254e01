"""A person at the terminal reads a resource of a server, asks about one, and asks with a prompt."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.fakes.programs import listening
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import Installation

LIBRARY = Path(__file__).parents[1] / "fakes" / "mcp" / "library.py"
ASKS = '[[rules]]\npolicy = "ASK_USER"\nserver = "library"\ntool = "read_mcp_resource"\n'
DENIES = ASKS.replace("ASK_USER", "ALWAYS_DENY").replace("read_mcp_resource", "get_mcp_prompt")


def clerk(request: Request) -> Reply:
    """A model that repeats the last messages."""
    return Say(f"I was asked {len(request.messages)} things, at last: {request.messages[-1]['content']}")


@asynccontextmanager
async def a_reader(folder: Path, model: FakeLanguageModel, policy: str = "") -> AsyncIterator[ProgramOnTerminal]:
    """Open the terminal of a bot with the library's server."""
    with listening(str(LIBRARY), "http") as (port, _):
        entry = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
        place = Installation(folder, {"library": entry}, model=model, policy=policy)
        async with place.terminal(columns=160, rows=60) as terminal:
            await terminal.asks("/mcp resource list")
            await terminal.shows("Resources · 5", "library://shelf/{shelf}", "Ask about Opening hours")
            yield terminal


async def test_a_resource_is_read_and_asked_about_and_both_are_in_the_log(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_reader(tmp_path, model) as terminal:
        await terminal.asks("/mcp resource show library library://desk/hours")
        await terminal.shows("✓ library.read_mcp_resource", "nine to five")
        await terminal.asks("/mcp resource ask library library://desk/hours When can I come?")
        await terminal.shows("at last: When can I come?")
        await terminal.asks("/mcp log library", "Calls · 2", "library.read_mcp_resource")
    (attached, question) = model.requests[0].messages[-2:]
    assert "nine to five" in str(attached["content"])
    assert question["content"] == "When can I come?"
    with closing(sqlite3.connect(tmp_path / "data" / "countersign.db")) as database:
        kinds = [kind for (kind,) in database.execute("SELECT kind FROM audit WHERE turn_id != ''")]
    assert len(kinds) >= 2


async def test_a_template_is_filled_in_line_by_line(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_reader(tmp_path, model) as terminal:
        await terminal.asks("/mcp resource ask library library://shelf/{shelf}", "shelf:")
        terminal.type("7")
        await terminal.shows("Question:")
        await terminal.presses("What is there?", "Question: What is there?")
        terminal.press("\r")
        await terminal.until(lambda: terminal.lines[-1] == "Question:", "the next line")
        await terminal.presses("\r", "at last: What is there?")
    assert "Shelf 7: maps and atlases." in str(model.requests[0].messages[-2]["content"])


async def test_a_prompt_asks_for_its_arguments_and_then_the_model(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_reader(tmp_path, model) as terminal:
        await terminal.asks("/mcp prompt", "Prompts · 1", "book, [tone]")
        await terminal.asks("/mcp prompt library review", "book:")
        terminal.type("Atlas")
        await terminal.until(lambda: terminal.lines[-1].startswith("tone:"), "the next field")
        await terminal.presses("\r", "✓ library.get_mcp_prompt", "at last: Of Atlas. Be kind.")
    roles = [message["role"] for message in model.requests[0].messages[-3:]]
    assert roles == ["user", "assistant", "user"]


async def test_a_rule_that_asks_applies_to_attached_resources_too(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_reader(tmp_path, model, ASKS) as terminal:
        await terminal.asks("/mcp resource ask library library://desk/hours When can I come?")
        await terminal.shows("Tool read_mcp_resource", "library://desk/hours", "[y]")
        assert model.requests == []
        await terminal.presses("y", "at last: When can I come?")


async def test_without_its_prompt_nothing_is_asked(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_reader(tmp_path, model, DENIES) as terminal:
        await terminal.asks("/mcp prompt library review book=Atlas")
        await terminal.shows("⊘ library.get_mcp_prompt", "The prompt could not be used, so nothing was asked.")
    assert model.requests == []


def test_the_operator_reads_in_a_shell_and_asks_in_a_chat(tmp_path: Path, model: FakeLanguageModel) -> None:
    with listening(str(LIBRARY), "http") as (port, _):
        entry = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
        place = Installation(tmp_path, {"library": entry}, model=model)
        read = place.countersign("servers", "resource", "show", "library", "library://desk/hours")
        missing = place.countersign("servers", "resource", "show", "library", "library://nowhere")
        written = place.countersign("servers", "prompt", "show", "library", "review", "book=Atlas")
        asked = place.countersign("servers", "prompt", "library", "review", "book=Atlas")
        audit = [json.loads(line) for line in place.countersign("audit", "export").out.splitlines()]
    assert [(row["kind"], row["facts"]["tool"], row["facts"]["status"]) for row in audit if row["kind"] == "ran"] == [
        ("ran", "read_mcp_resource", "done"),
        ("ran", "read_mcp_resource", "failed"),
        ("ran", "get_mcp_prompt", "done"),
    ]
    assert (read.code, "nine to five" in read.out) == (0, True), read
    assert (missing.code, "library://nowhere" in missing.err) == (1, True), missing
    assert (written.code, "Of Atlas. Be kind." in written.out) == (0, True), written
    assert (asked.code, "in a chat" in asked.err) == (1, True), asked
    assert model.requests == []


def test_a_resource_that_a_rule_denies_or_wants_approved_is_not_read_in_a_shell(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    with listening(str(LIBRARY), "http") as (port, _):
        entry = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
        place = Installation(tmp_path, {"library": entry}, model=model, policy=ASKS + DENIES)
        asked = place.countersign("servers", "resource", "show", "library", "library://desk/hours")
        denied = place.countersign("servers", "prompt", "show", "library", "review", "book=Atlas")
        audit = [json.loads(line) for line in place.countersign("audit", "export").out.splitlines()]
    assert [(row["kind"], row["facts"]["tool"]) for row in audit] == [("forbidden", "get_mcp_prompt")]
    assert (asked.code, "can be approved" in asked.err, "nine to five" in asked.err) == (1, True, False), asked
    assert (denied.code, "A policy forbids" in denied.err, "Be kind" in denied.err) == (1, True, False), denied
