"""Commands found by name, and completed from memory."""

from __future__ import annotations

from bot.domain.commands import Invocation, Reply, Submission
from tests.commands.servers import ADMIN, Servers, ask, registry, two_servers
from tests.fakes.parts import HALL


async def test_a_command_is_found_by_its_name_and_given_its_words() -> None:
    [reply] = [
        reply async for reply in registry(two_servers()).handle(Invocation("mcp", ("show", "notes"), ADMIN, HALL))
    ]
    assert isinstance(reply, Reply)
    assert reply.text == "MCP server `notes`"


async def test_a_misspelt_command_is_answered_with_the_one_that_was_meant() -> None:
    reply = await ask(two_servers(), "mpc list")
    assert reply.failed
    assert reply.text == "There is no such command. Did you mean `/mcp`? What there is: `/mcp`."


async def test_a_command_unlike_any_other_is_answered_with_those_there_are() -> None:
    reply = await ask(two_servers(), "profile")
    assert reply.failed
    assert reply.text == "There is no such command. What there is: `/mcp`."


async def test_a_form_that_nobody_opened_is_an_answer_and_no_exception() -> None:
    [reply] = [reply async for reply in registry(Servers()).handle(Submission("add", {}, ADMIN, HALL))]
    assert isinstance(reply, Reply)
    assert reply.failed
    assert "no longer open" in reply.text


def test_completion_offers_whole_lines_with_the_names_of_servers() -> None:
    commands = registry(two_servers())
    assert commands.complete("") == [
        "mcp list",
        "mcp show",
        "mcp tools",
        "mcp help",
        "mcp show notes",
        "mcp show web-search",
        "mcp tools notes",
        "mcp tools web-search",
    ]
    assert commands.complete("mcp show ") == ["mcp show notes", "mcp show web-search"]
    assert commands.complete("mcp tools w") == ["mcp tools web-search"]
    assert commands.complete("mcp x") == commands.complete("profile") == []


def test_completion_knows_servers_that_came_later() -> None:
    servers = Servers()
    commands = registry(servers)
    assert commands.complete("mcp show ") == []
    servers.states = two_servers().states
    assert commands.complete("mcp show n") == ["mcp show notes"]
