"""An admin adds a server in the chat, people use it in their next question, and its secret is nowhere to be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.fakes.terminal import PATIENCE, ProgramOnTerminal
from tests.postgres import Server
from tests.stories.installation import Installation
from tests.stories.test_approvals import card

SECRET = "tk-0f9d2c71b3aa46e8d51c"
LOOK_UP = "look it up"
TOOL = "tickets__lookup"


def clerk(request: Request) -> Reply:
    """Looks things up while there is a tool for it."""
    if request.results:
        return Say(f"It said: {request.results[0]}.")
    if request.question == LOOK_UP and TOOL in request.tool_names:
        return Say(calls=(Call(TOOL, {}),))
    return Say("I have no tool for that.")


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    """A ticket desk that wants a key."""
    async with FakeEndpoint() as endpoint:
        endpoint.speak_legacy("lookup")
        endpoint.on["tools/call"] = lambda asked: result(
            asked, {"content": [{"type": "text", "text": "ticket 7 is open"}]}
        )
        yield endpoint


def sent_keys(endpoint: FakeEndpoint, method: str) -> list[str]:
    """The keys that came along with requests of a kind."""
    return [headers.get("authorization", "") for headers, message in endpoint.seen if message.get("method") == method]


async def test_a_server_with_a_secret_is_added_used_and_switched_off_and_its_secret_is_nowhere(
    tmp_path: Path, model: FakeLanguageModel, endpoint: FakeEndpoint
) -> None:
    place = Installation(tmp_path, {}, model=model, MCP_ALLOWED_HOSTS=f"127.0.0.1:{endpoint.port}", LOG_LEVEL="debug")
    async with place.terminal() as terminal:
        await terminal.asks("/mcp list", "No servers yet.")
        await terminal.asks(LOOK_UP, "I have no tool for that.")

        await terminal.asks(f"/mcp add tickets --url {endpoint.url} --auth api_key")
        await terminal.until(lambda: "Header" in terminal.lines[-1], "the header's field")
        terminal.press("\r")
        await terminal.until(lambda: "Secret reference" in terminal.lines[-1], "the reference's field")
        terminal.press("\r")
        await terminal.until(lambda: terminal.lines[-1].strip() == "Secret:", "a hidden field")
        terminal.type(SECRET)
        await terminal.shows("tickets is added.", "✓ 1 tool")

        await terminal.asks(LOOK_UP)
        await card(terminal, "lookup")
        await terminal.presses("y", "It said: ticket 7 is open.")
        assert sent_keys(endpoint, "tools/call") == [f"Bearer {SECRET}"]

        await terminal.asks("/mcp disable tickets", "/mcp enable tickets")
        asked = len(model.requests)
        await terminal.asks(LOOK_UP)
        await terminal.until(lambda: terminal.text.count("I have no tool for that.") == 2, "an answer without a tool")
        assert TOOL not in model.requests[asked].tool_names

        await terminal.asks("/mcp enable tickets")
        await terminal.prompts()
        await terminal.asks(LOOK_UP)
        await card(terminal, "lookup")
        terminal.press("y")
        await terminal.until(lambda: terminal.text.count("It said: ticket 7 is open.") == 2, "another answer")
        assert await terminal.leaves() == 0
        assert SECRET not in terminal.text
    for name, content in place.folder_files().items():
        assert SECRET.encode() not in content, name
    assert not any(SECRET in str(request.body) for request in model.requests)


async def test_a_token_that_is_typed_where_none_belongs_is_refused_and_kept_nowhere(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
    place = Installation(tmp_path, {}, model=model)
    async with place.terminal() as terminal:
        await terminal.asks(f"/mcp add tickets --url https://tickets.example/mcp --header Authorization={token}")
        await terminal.shows("That looks like a token. It was not saved.")
        assert await terminal.leaves() == 0
    for name, content in place.folder_files().items():
        assert token.encode() not in content, name


async def test_a_server_that_a_shell_adds_is_used_by_the_running_bot(
    tmp_path: Path, model: FakeLanguageModel, endpoint: FakeEndpoint
) -> None:
    place = Installation(
        tmp_path,
        {},
        model=model,
        policy='default = "ALWAYS_ALLOW"',
        MCP_ALLOWED_HOSTS=f"127.0.0.1:{endpoint.port}",
        MCP_SECRET_TICKETS=SECRET,
    )
    async with place.terminal() as terminal:
        await terminal.asks(LOOK_UP, "I have no tool for that.")
        secret = ("--auth", "api_key", "--secret", "env:MCP_SECRET_TICKETS")
        added = await asyncio.to_thread(place.countersign, "servers", "add", "tickets", "--url", endpoint.url, *secret)
        assert added.code == 0, added.err
        assert "✓ tools" in added.out
        await terminal.asks("/mcp list", "tickets")
        await terminal.asks(LOOK_UP, "It said: ticket 7 is open.")
        assert await terminal.leaves() == 0
    assert set(sent_keys(endpoint, "tools/call")) == {f"Bearer {SECRET}"}
    removed = place.countersign("servers", "remove", "tickets", "--confirm", "tickets")
    assert removed.code == 0, removed.err
    assert place.countersign("servers", "show", "tickets").code == 1
    for name, content in place.folder_files().items():
        assert SECRET.encode() not in content, name


async def runs_without_asking(terminal: ProgramOnTerminal) -> bool:
    """List the tools. True if a rule lets the tool run."""
    await terminal.prompts()
    start = len(terminal.raw)
    terminal.type("/mcp tools tickets")
    await terminal.until(lambda: TOOL.encode() in terminal.raw[start:], "the tool")
    await terminal.prompts()
    return b" runs" in terminal.raw[start:]


async def is_offered(terminal: ProgramOnTerminal) -> bool:
    """Ask for the tool. True if the model was offered it, even if the server went before the call was sent."""
    await terminal.prompts()
    start = len(terminal.raw)
    terminal.type(LOOK_UP)
    answers = {b"It said: ": True, b"I have no tool for that.": False}
    await terminal.until(lambda: any(answer in terminal.raw[start:] for answer in answers), "an answer")
    return next(offered for answer, offered in answers.items() if answer in terminal.raw[start:])


async def test_a_server_that_one_process_adds_is_used_in_another_on_one_database(
    tmp_path: Path, model: FakeLanguageModel, endpoint: FakeEndpoint, postgres: Server
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = {
        "DATABASE_URL": postgres.fresh(),
        "MCP_ALLOWED_HOSTS": f"127.0.0.1:{endpoint.port}",
        "MCP_ENCRYPTION_KEY": "CFvTzyVIeFl0NFofOfa26IKJ8Z5EL3fV4yChTH9aivU=",
    }
    here, there = (Installation(tmp_path / name, {}, model=model, **both) for name in ("a", "b"))
    async with here.terminal() as one, there.terminal("--user", "ben") as other:
        await other.asks(LOOK_UP, "I have no tool for that.")
        await one.asks(f"/mcp add tickets --url {endpoint.url}", "✓ tools")
        await one.prompts()
        await one.asks("/mcp policy set tickets lookup allow", "tickets, lookup: allow.")
        async with asyncio.timeout(PATIENCE):
            # The other process learns of the server at once, and of its rule a little later.
            while not await runs_without_asking(other):
                pass
        await other.asks(LOOK_UP, "It said: ticket 7 is open.")
        await one.asks("/mcp disable tickets", "/mcp enable tickets")
        async with asyncio.timeout(PATIENCE):
            while await is_offered(other):  # the other process learns of it a little later
                pass
        for terminal in (one, other):
            assert await terminal.leaves() == 0
