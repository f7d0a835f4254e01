"""Replies to slash commands in the terminal, by the commands of all platforms."""

from __future__ import annotations

import asyncio

from bot.platforms.console.turn_tracker import StartState
from bot.platforms.console.typed_lines import COMMANDS
from tests.admin.servers import registry, two_servers
from tests.platforms.console.chat import chatting, now
from tests.platforms.console.scripted_engine import Saved, forever
from tests.platforms.console.terminal import prompt_line


async def test_mcp_list_says_how_every_server_stands() -> None:
    async with chatting(commands=registry(two_servers()), size=(100, 24)) as chat:
        await chat.type("/mcp list", "MCP servers · 2 · 1 in trouble", "● notes", "✗ web-search", "Fix: start it.")
        await chat.terminal.prompts()


async def test_mcp_tools_marks_tools_that_ask_first() -> None:
    async with chatting(commands=registry(two_servers()), size=(100, 24)) as chat:
        await chat.type("/mcp tools notes", "Tools · 3", "List notes", "notes__delete", "destructive", "blocked")


async def test_mcp_show_is_open_to_the_operator() -> None:
    async with chatting(commands=registry(two_servers()), size=(100, 24)) as chat:
        await chat.type("/mcp show web-search", "MCP server web-search", "https://search.example/mcp")


async def test_a_verb_or_a_server_that_does_not_exist_brings_the_nearest() -> None:
    async with chatting(commands=registry(two_servers()), size=(100, 24)) as chat:
        await chat.type("/mcp lsit", "Did you mean /mcp list?")
        await chat.type("/mcp show nots", "Did you mean notes?")
        await chat.type("/pmc list", "There is no /pmc. Did you mean /mcp?")
        await chat.type("/xyzzy", "There is no /xyzzy. Type /help for what there is.")
        assert chat.engine.received == []


async def test_tab_goes_from_the_command_to_the_server() -> None:
    async with chatting(commands=registry(two_servers())) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("/m\t")
        await chat.terminal.prompts("/mcp")
        chat.terminal.press(" t\t")
        await chat.terminal.prompts("/mcp tools")
        await chat.press(" \t", "notes", "web-search")
        chat.terminal.press("w\t")
        await chat.terminal.prompts("/mcp tools web-search")
        await chat.press("\r", "No tools are offered now.")


async def test_tab_does_nothing_to_ordinary_text() -> None:
    async with chatting(commands=registry(two_servers())) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("what is /m\t?")
        await chat.terminal.prompts("what is /m?")


async def test_a_slash_opens_the_menu_which_follows_the_typed_text() -> None:
    async with chatting(commands=registry(two_servers())) as chat:
        await chat.terminal.prompts()
        await chat.press("/", "/conversations", "what was talked about: list, show, export, delete", "/usage")
        chat.terminal.press("us")
        await chat.terminal.until(lambda: "/conversations" not in chat.terminal.text, "the menu of what is typed")
        await chat.terminal.shows("/usage")
        await chat.press("\x7f\x7f", "/conversations")
        await chat.press("\x1b[B\x1b[B", f"{prompt_line('/mcp')}\n")
        await chat.press(" ", "every server and how it stands", "list, show, ask")
        await chat.press("policy ", "which rule decides about a call, and why")
        await chat.press("ex\t ", "notes", "web-search")
        chat.terminal.press("\x1b")
        await chat.terminal.until(lambda: "web-search" not in chat.terminal.text, "no menu")
        await chat.terminal.prompts("/mcp policy explain")


async def test_a_slash_later_in_a_message_opens_no_menu() -> None:
    async with chatting(commands=registry(two_servers())) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("see a /")
        await asyncio.sleep(0.2)
        assert "/conversations" not in chat.terminal.text


async def test_open_continues_another_conversation_and_completes_its_id() -> None:
    saved = Saved(c7="my bicycle", c8="the weather")
    async with chatting(opening=now(StartState("c1", saved=saved)), size=(100, 24)) as chat:
        await chat.terminal.prompts()
        await chat.press("/open ", "c7", "my bicycle", "c8", "the weather")
        await chat.press("c7\r", "Continuing c7 (1 earlier turn)", "my bicycle", "About c7.")
        await chat.type("and now?", "You said: and now?")
        assert chat.engine.received[0].conversation.thread == "c7"


async def test_open_names_a_missing_id_and_opens_nothing() -> None:
    async with chatting(opening=now(StartState("c1", saved=Saved()))) as chat:
        await chat.type("/open", "Write which one: /open ID.")
        await chat.type("/open c9", "You have no conversation c9. Fix: /conversations list shows the ids")
        await chat.type("hello", "You said: hello")
        assert chat.engine.received[0].conversation.thread == "c1"


async def test_help_comes_at_once_during_a_turn() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        await chat.press("/help\r", prompt_line("/help"), *COMMANDS, "Ctrl-C")
        assert chat.engine.received[1:] == []


async def test_quit_waits_for_nothing() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        chat.terminal.press("/quit\r")
        assert await chat.code() == 0
        assert chat.engine.stops == []
