"""Forms, confirmations and next steps at the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.commands import Form, FormSubmission, Invocation, PageInfo, Reply, ReplyAction, ReplyFile, Table
from bot.platforms.console.plain_output import reply_text
from bot.platforms.console.screen import LineHistory
from tests.admin.servers import command_harness, config_of, with_jira
from tests.platforms.console.chat import Chat, chatting
from tests.platforms.console.scripted_engine import ScriptedCommands, ending

SECRET = "correct horse battery staple"


async def field(chat: Chat, label: str, typed: str) -> None:
    """Wait for the prompt of a field, and answer it."""
    await chat.terminal.until(lambda: chat.terminal.lines[-1].startswith(f"{label}:"), f"the field {label!r}")
    chat.terminal.press(f"{typed}\r")


async def test_a_form_is_asked_field_by_field_and_its_answer_is_drawn() -> None:
    held = command_harness()
    async with chatting(commands=held.registry, size=(100, 30)) as chat:
        await chat.type("/mcp add", "Add an MCP server", "its display name")
        await field(chat, "Name", "Git Hub")
        await chat.terminal.shows("streamable_http | stdio")
        await field(chat, "Transport", "")
        await field(chat, "Address or command line", "https://api.example.com/mcp")
        await field(chat, "Sign-in", "")
        await field(chat, "Policy", "\x15deny")
        await chat.terminal.shows("git-hub is added.", "→ /mcp tools git-hub   Show tools")
        await chat.terminal.prompts()
        assert config_of(held, "git-hub").title == "Git Hub"


async def test_an_invalid_field_has_its_error_and_is_asked_again_alone() -> None:
    held = command_harness()
    async with chatting(commands=held.registry, size=(100, 40)) as chat:
        await chat.type("/mcp add")
        await field(chat, "Name", "notes")
        await field(chat, "Transport", "")
        await field(chat, "Address or command line", "nowhere")
        await field(chat, "Sign-in", "")
        await field(chat, "Policy", "")
        await chat.terminal.shows("Name: This is taken by notes.")
        await field(chat, "Name", "\x15other")
        await chat.terminal.shows("Address or command line: That is no http or https address.")
        await field(chat, "Address or command line", "\x15https://api.example.com/mcp")
        await chat.terminal.shows("other is added.")
        await chat.terminal.prompts()
        assert chat.terminal.text.count("Sign-in: ") == 1


async def test_a_choice_that_is_none_is_asked_again_at_once() -> None:
    async with chatting(commands=command_harness().registry, size=(100, 30)) as chat:
        await chat.type("/mcp add")
        await field(chat, "Name", "")
        await chat.terminal.shows("Something is needed here.")
        await field(chat, "Name", "x")
        await field(chat, "Transport", "\x15carrier pigeon")
        await chat.terminal.shows("One of: streamable_http, stdio, auto, sse, jsonrpc_http.")
        await field(chat, "Transport", "\x15str")
        await chat.terminal.shows("Transport: streamable_http")


@pytest.mark.parametrize("key", ["\x03", "\x1b", "\x04"])
async def test_a_form_can_be_left_and_nothing_has_changed_then(key: str) -> None:
    held = command_harness()
    async with chatting(commands=held.registry, size=(100, 30)) as chat:
        await chat.type("/mcp add")
        await field(chat, "Name", "x")
        await chat.terminal.until(lambda: chat.terminal.lines[-1].startswith("Transport:"), "the second field")
        await chat.press(key, "Nothing was changed.")
        await chat.terminal.prompts()
        assert held.store.entries == {}
        await chat.type("/mcp list", "MCP servers · 2")


async def test_a_secret_is_typed_without_an_echo_and_is_nowhere_on_the_screen_or_in_the_history(
    tmp_path: Path,
) -> None:
    held = await with_jira()
    jira = config_of(held, "jira")
    # The server belongs to the terminal's workspace, because its user is not the operator here.
    held.store.entries[jira.id] = replace(held.store.entries[jira.id], config=replace(jira, workspace="console:local"))
    history = tmp_path / "history"
    async with chatting(commands=held.registry, size=(100, 30), history=history) as chat:
        await chat.type("/mcp secret set jira auth")
        await chat.terminal.until(lambda: chat.terminal.lines[-1].startswith("Secret:"), "the secret's field")
        await chat.press(SECRET, "•" * len(SECRET))
        await chat.press("\r", "Secret: (hidden)", "The secret of jira is set")
        assert SECRET.encode() not in chat.terminal.raw
    assert held.store.values[jira.id] == {"auth": SECRET}
    assert SECRET not in history.read_text()


async def test_a_destructive_command_is_confirmed_by_typing_the_name() -> None:
    gone = Reply("The thing is gone.")
    asking = Reply("Remove `jira`?", actions=(ReplyAction("Remove jira", ("mcp", "remove", "jira"), confirm="jira"),))

    class Commands(ScriptedCommands):
        async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
            self.requests.append(request)
            yield gone if "--confirm" in getattr(request, "words", ()) else asking

    commands = Commands()
    async with chatting(commands=commands, size=(100, 30)) as chat:
        await chat.type("/mcp remove jira")
        await field(chat, "Type jira to confirm", "")
        await chat.terminal.shows("Nothing was changed.")
        assert "--confirm" not in chat.terminal.text
        await chat.type("/mcp remove jira")
        await field(chat, "Type jira to confirm", "jira")
        await chat.terminal.shows("The thing is gone.")
        assert [request.words for request in commands.requests if isinstance(request, Invocation)] == [
            ("remove", "jira"),
            ("remove", "jira"),
            ("remove", "jira", "--confirm", "jira"),
        ]


async def test_a_call_by_hand_is_followed_like_a_question() -> None:
    held = command_harness()
    async with chatting({"Run notes.add": ending("Made OPS-1.")}, commands=held.registry) as chat:
        await chat.type("/mcp run notes add text=x", "Made OPS-1.")
        await chat.terminal.prompts()
        [message] = chat.engine.received
        assert message.call is not None
        assert (message.call.name, message.call.arguments) == ("notes__add", {"text": "x"})


async def test_pages_and_actions_are_lines_to_type() -> None:
    reply = Reply(
        "Tools",
        Table(("tool",), (("x",),)),
        actions=(ReplyAction("Undo", ("mcp", "enable", "a b")),),
        page=PageInfo(2, 3, ("mcp", "tools")),
    )
    lines = ("→ /mcp enable 'a b'   Undo", "◀ /mcp tools --page 1   page 1 of 3", "▶ /mcp tools --page 3   page 3 of 3")
    async with chatting(commands=ScriptedCommands(reply), size=(100, 24)) as chat:
        await chat.type("/mcp tools", *lines)
        await chat.terminal.prompts()
    assert reply_text(reply).endswith("\n".join(lines))


def test_without_a_screen_a_text_to_keep_is_written_out_as_it_stands() -> None:
    assert reply_text(Reply("Here:", document=ReplyFile("a.md", "# a\n\n\x1b[2J`b`\n"))) == "# a\n\n`b`"


@pytest.mark.parametrize(
    "line",
    [
        "/mcp secret set jira auth hunter2",
        "/mcp secret rotate jira auth 'hunter2'",
        "/mcp add x --url https://x.example --secret hunter2",
        "/mcp add x --header Authorization=hunter2",
        "/mcp add x --url https://x.example/?k=ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2",
    ],
)
def test_a_line_with_something_secret_in_it_is_not_written_down(line: str, tmp_path: Path) -> None:
    history = LineHistory(tmp_path / "history")
    history.store_string(line)
    history.store_string("/mcp secret set jira auth env:JIRA_TOKEN")
    history.store_string("/mcp add x --header Authorization=env:JIRA --secret file:/run/x")
    assert list(LineHistory(tmp_path / "history").load_history_strings()) == [
        "/mcp add x --header Authorization=env:JIRA --secret file:/run/x",
        "/mcp secret set jira auth env:JIRA_TOKEN",
    ]
