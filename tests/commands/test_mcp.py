"""`/mcp`: the servers and their tools, for people to see."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bot.domain.commands import Invocation, Reply, Table
from bot.domain.servers import HttpTransport, ServerConfig, ServerState, ServerStatus, StdioTransport
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.tools.toolbox import McpToolbox
from tests.commands.servers import ADMIN, GUEST, NOTES, WEB, Servers, ask, registry, tool, two_servers
from tests.fakes.parts import HALL


async def test_list_shows_every_server_with_its_state_its_tools_and_its_problem() -> None:
    reply = await ask(two_servers(), "mcp list")
    assert reply.text == "MCP servers · 2 · 1 in trouble"
    assert reply.table == Table(
        ("server", "state", "tools", ""),
        (
            ("● notes", "connected", "3", ""),
            ("✗ web-search", "failed", "0", "Server web-search cannot be reached. Fix: start it."),
        ),
    )
    assert not reply.failed


@pytest.mark.parametrize("status", list(ServerStatus))
async def test_every_state_a_server_can_be_in_is_shown_by_its_word_and_a_mark(status: ServerStatus) -> None:
    reply = await ask(Servers([ServerState(NOTES, status)]), "mcp list")
    assert reply.table is not None
    [(name, state, _, _)] = reply.table.rows
    assert name.endswith(" notes")
    assert state == status.value


async def test_list_without_servers_says_where_to_put_one() -> None:
    reply = await ask(Servers(), "mcp list")
    assert "`MCP_SERVERS_FILE`" in reply.text
    assert "`config/mcp_servers.json`" in reply.text
    assert reply.table is None
    assert not reply.failed


async def test_show_tells_an_administrator_how_a_server_is_reached() -> None:
    reply = await ask(two_servers(), "mcp show notes")
    assert reply.text == "MCP server `notes`"
    assert reply.details == (
        ("state", "connected"),
        ("protocol", "2025-11-25"),
        ("server version", "1.2.3"),
        ("tools", "3"),
        ("trusted", "yes"),
        ("command", "python -m notes"),
    )
    reply = await ask(two_servers(), "mcp show web-search")
    assert ("address", "https://search.example/mcp") in reply.details
    assert ("problem", "Server web-search cannot be reached. Fix: start it.") in reply.details
    assert ("trusted", "no: its hints lower no risk") in reply.details


@pytest.mark.parametrize(("name", "transport"), [("notes", "stdio"), ("web-search", "streamable HTTP")])
async def test_show_tells_everybody_else_the_transport_only(name: str, transport: str) -> None:
    reply = await ask(two_servers(), f"mcp show {name}", GUEST)
    assert ("transport", transport) in reply.details
    assert not {"command", "address"} & {key for key, _ in reply.details}


async def test_show_leaves_out_what_is_not_known() -> None:
    unusable = ServerState(
        ServerConfig("bad", StdioTransport("")), ServerStatus.FAILED, "Server 'bad' has no 'command'."
    )
    reply = await ask(Servers([unusable]), "mcp show bad")
    assert [key for key, _ in reply.details] == ["state", "problem", "tools", "trusted"]


@pytest.mark.parametrize("member", [ADMIN, GUEST])
@pytest.mark.parametrize("line", ["mcp list", "mcp show local", "mcp show remote", "mcp show odd", "mcp tools"])
async def test_secrets_of_a_server_are_shown_to_nobody(line: str, member: object) -> None:
    secret = "token-4711-do-not-show"
    configs = [
        ServerConfig("local", StdioTransport("serve", ("--token", secret), {"KEY": secret})),
        ServerConfig(
            "remote", HttpTransport(f"https://u:{secret}@host/{secret}/mcp?key={secret}#{secret}", {"X": secret})
        ),
    ]
    toolbox = McpToolbox(configs, [("odd", f"Server odd said {secret}.")], secrets=[secret])
    reply = await ask(toolbox, line, ADMIN if member is ADMIN else GUEST)
    assert not reply.failed
    assert secret not in repr(reply)
    if (line, member) == ("mcp show remote", ADMIN):
        assert ("address", "https://host/***/mcp") in reply.details
    if (line, member) == ("mcp show local", ADMIN):
        assert ("command", "serve --token ***") in reply.details


@pytest.mark.parametrize("line", ["mcp show", "mcp show notse", "mcp show x", "mcp tools notse"])
async def test_a_server_that_is_not_there_is_an_answer_and_no_exception(line: str) -> None:
    reply = await ask(two_servers(), line)
    assert reply.failed
    assert "`/mcp list`" in reply.text
    assert ("Did you mean `notes`?" in reply.text) == ("notse" in line)


@pytest.mark.parametrize("typed", ["**bold**", "`x`", "\x1b[2J", "<@U1>"])
async def test_what_was_typed_is_not_repeated_in_markdown(typed: str) -> None:
    for line in (f"mcp show {typed}", f"mcp tools {typed}", f"mcp {typed}", f"{typed} list"):
        reply = await ask(two_servers(), line)
        assert reply.failed
        assert typed not in reply.text


async def test_tools_shows_risk_policy_and_one_line_of_each() -> None:
    reply = await ask(two_servers(), "mcp tools")
    assert reply.text == "Tools · 3"
    assert reply.table == Table(
        ("tool", "risk", "policy", "what it does"),
        (
            ("notes__list", "reads", "runs", "List notes"),
            ("notes__add", "writes", "asks", "Add a note."),
            ("notes__delete", "destructive", "blocked", ""),
        ),
    )


async def test_tools_can_be_asked_for_one_server() -> None:
    servers = two_servers()
    servers.offered.append(tool("web-search", "search"))
    reply = await ask(servers, "mcp tools web-search")
    assert reply.table is not None
    assert reply.table.rows == (("web-search__search", "destructive", "asks", ""),)


@pytest.mark.parametrize("line", ["mcp tools", "mcp tools web-search"])
async def test_no_tools_is_an_answer_that_says_where_to_look(line: str) -> None:
    reply = await ask(Servers([ServerState(WEB, ServerStatus.CONNECTING)]), line)
    assert reply.text == "No tools are offered now. `/mcp list` says why."
    assert not reply.failed


@pytest.mark.parametrize("line", ["mcp", "mcp help", "mcp HELP", "mcp help me"])
async def test_help_lists_every_verb(line: str) -> None:
    reply = await ask(two_servers(), line)
    assert not reply.failed
    assert [usage.split()[1] for usage, _ in reply.details] == ["list", "show", "tools", "help"]


async def test_a_verb_may_be_written_in_any_case() -> None:
    assert await ask(two_servers(), "mcp LIST") == await ask(two_servers(), "mcp list")


@pytest.mark.parametrize(("verb", "meant"), [("lst", "list"), ("Tool", "tools"), ("shwo", "show")])
async def test_a_misspelt_verb_is_answered_with_the_one_that_was_meant(verb: str, meant: str) -> None:
    reply = await ask(two_servers(), f"mcp {verb}")
    assert reply.failed
    assert f"Did you mean `/mcp {meant}`?" in reply.text
    assert "`/mcp help`" in reply.text


async def test_a_verb_unlike_any_other_is_answered_without_a_guess() -> None:
    reply = await ask(two_servers(), "mcp xyzzy")
    assert reply.failed
    assert reply.text == "`/mcp` knows no such verb. `/mcp help` lists them."


@pytest.mark.parametrize("verb", ["list", "show notes", "tools"])
async def test_with_mcp_switched_off_every_verb_says_so_and_help_still_helps(verb: str) -> None:
    off = Servers(enabled=False)
    reply = await ask(off, f"mcp {verb}")
    assert reply.failed
    assert "`MCP_ENABLED=false`" in reply.text
    assert not (await ask(off, "mcp help")).failed


async def test_a_server_that_goes_while_one_looks_is_an_answer_too() -> None:
    class Vanishing(Servers):
        def tools(self, server: str) -> Sequence[Tool]:
            raise NotFound("There is no MCP server notes.", "List the servers to see their names.")

    reply = await ask(Vanishing(two_servers().states), "mcp tools notes")
    assert reply.failed
    assert reply.text == "There is no MCP server notes. Fix: List the servers to see their names."


async def test_servers_that_are_just_connecting_are_shown_again_once_they_have_been_tried() -> None:
    before, after = (
        ServerState(NOTES, ServerStatus.CONNECTING),
        ServerState(NOTES, ServerStatus.CONNECTED, tool_count=4),
    )
    servers = Servers([before], after_a_while=[after])
    replies = [reply async for reply in registry(servers).handle(Invocation("mcp", ("list",), ADMIN, HALL))]
    assert [reply.table.rows[0][1] for reply in replies if isinstance(reply, Reply) and reply.table] == [
        "connecting",
        "connected",
    ]
