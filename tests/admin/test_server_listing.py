"""`/mcp list`, `show`, `tools`: servers and their tools."""

from __future__ import annotations

import pytest

from bot.domain.commands import Reply, Table
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus, StdioTransport
from tests.admin.memory_stores import NOW
from tests.admin.servers import (
    ADMIN,
    GUEST,
    NOTES,
    WEB,
    CommandHarness,
    Servers,
    command_harness,
    tool,
)
from tests.fakes.parts import HALL


async def test_list_shows_state_transport_tools_policy_problem_and_manager(held: CommandHarness) -> None:
    held.servers.states[0] = ServerSnapshot(NOTES, ServerStatus.CONNECTED, tool_count=3, synced_at=NOW - 120)
    reply = await held.ask("mcp list")
    assert reply.text == "MCP servers · 2 · 1 in trouble"
    assert reply.table == Table(
        ("server", "state", "transport", "tools", "policy"),
        (
            ("✗ web-search", "failed", "streamable HTTP", "0", ""),
            ("● notes", "connected", "stdio", "3 (2 write, 1 destructive)", "1 runs, 1 asks, 1 blocked"),
        ),
        (("mcp", "show", "web-search"), ("mcp", "show", "notes")),
    )
    assert reply.details == (
        ("web-search", "Server web-search cannot be reached. Fix: start it."),
        ("checked", "2 min ago"),
        ("managed in config/mcp_servers.json", "web-search, notes"),
    )
    assert not reply.failed


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("mcp list note", ["● notes"]),
        ("mcp list --state failed", ["✗ web-search"]),
        ("mcp list WEB sea --state FAILED", ["✗ web-search"]),
        ("mcp list --state connected", ["● notes"]),
        ("mcp list web --state connected", []),
    ],
)
async def test_a_list_is_narrowed_by_words_and_state(line: str, names: list[str]) -> None:
    reply = await command_harness().ask(line)
    assert [row[0] for row in reply.table.rows] == names if reply.table else "No server fits that" in reply.text
    wrong = await command_harness().ask("mcp list --state broken")
    assert "`--state` is one of `pending`, `connecting`, `connected`" in wrong.text


@pytest.mark.parametrize("line", ["mcp list", "mcp show notes"])
async def test_members_see_no_paths_of_the_operator(line: str) -> None:
    assert "mcp_servers.json" in str((await command_harness().ask(line)).details)
    theirs = str((await command_harness().ask(line, GUEST)).details)
    assert "mcp_servers.json" not in theirs
    assert "the operator's file" in theirs


async def test_a_fact_of_several_servers_is_stated_once(held: CommandHarness) -> None:
    held.servers.states[:] = [ServerSnapshot(config, ServerStatus.IDLE, synced_at=NOW) for config in (NOTES, WEB)]
    details = (await held.ask("mcp list")).details
    assert details[0] == ("notes, web-search", "idle: it starts when one of its tools is used")
    assert [label for label, _value in details[1:]] == ["checked", "managed in config/mcp_servers.json"]


@pytest.mark.parametrize("status", list(ServerStatus))
async def test_every_state_a_server_can_be_in_is_shown_by_its_word_and_a_mark(status: ServerStatus) -> None:
    reply = await CommandHarness(Servers([ServerSnapshot(NOTES, status)])).ask("mcp list")
    assert reply.table is not None
    [(name, state, *_)] = reply.table.rows
    assert name.endswith(" notes")
    assert state == status.value


async def test_show_tells_an_administrator_how_a_server_is_reached() -> None:
    reply = await command_harness().ask("mcp show notes")
    assert reply.text == "MCP server `notes`"
    for fact in (
        ("state", "connected"),
        ("protocol", "2025-11-25"),
        ("server version", "1.2.3"),
        ("tools", "3 (2 write, 1 destructive)"),
        ("trusted", "yes"),
        ("command", "python -m notes"),
        ("managed in", "config/mcp_servers.json"),
    ):
        assert fact in reply.details
    reply = await command_harness().ask("mcp show web-search")
    assert ("address", "https://search.example/mcp") in reply.details
    assert ("problem", "Server web-search cannot be reached. Fix: start it.") in reply.details
    assert ("trusted", "no: its hints lower no risk") in reply.details


@pytest.mark.parametrize(("name", "transport"), [("notes", "stdio"), ("web-search", "streamable HTTP")])
async def test_show_tells_everybody_else_the_transport_only(name: str, transport: str) -> None:
    reply = await command_harness().ask(f"mcp show {name}", GUEST)
    assert ("transport", transport) in reply.details
    assert not {"command", "address", "id"} & {key for key, _ in reply.details}


@pytest.mark.parametrize("line", ["mcp list", "mcp show web-search"])
async def test_a_problem_of_a_server_with_its_addresses_is_shown_to_administrators_alone(line: str) -> None:
    assert "cannot be reached" in repr(await command_harness().ask(line))
    reply = await command_harness().ask(line, GUEST)
    assert "cannot be reached" not in repr(reply)
    assert "only administrators are shown what is wrong" in repr(reply)


@pytest.mark.parametrize("member", [ADMIN, GUEST])
@pytest.mark.parametrize("line", ["mcp list", "mcp show local", "mcp show remote", "mcp tools"])
async def test_headers_and_variables_of_a_server_are_never_shown(line: str, member: object) -> None:
    secret = "value-4711-do-not-show"
    held = CommandHarness(
        Servers(
            [
                ServerSnapshot(ServerConfig("local", StdioTransport("x", (), {"KEY": secret})), ServerStatus.CONNECTED),
                ServerSnapshot(
                    ServerConfig("remote", HttpTransport("https://x.example", {"X": secret})), ServerStatus.CONNECTED
                ),
            ]
        )
    )
    reply = await held.ask(line, ADMIN if member is ADMIN else GUEST)
    assert not reply.failed
    assert secret not in repr(reply)


async def test_tools_shows_risk_policy_and_one_line_of_each() -> None:
    reply = await command_harness().ask("mcp tools")
    assert reply.text == "Tools · 3"
    assert reply.table is not None
    settings = reply.table.settings
    assert [choice.label for choice in settings] == ["Policy of list", "Policy of add", "Policy of delete"]
    assert [choice.value for choice in settings] == ["always allow", "ask", "always deny"]
    assert reply.table == Table(
        ("tool", "risk", "policy", "what it does"),
        (
            ("notes__list", "reads", "runs", "List notes"),
            ("notes__add", "writes", "asks", "Add a note."),
            ("notes__delete", "destructive", "blocked", ""),
        ),
        tuple(("mcp", "tools", "notes", tool) for tool in ("list", "add", "delete")),
        settings,
    )


async def test_tools_that_cannot_be_offered_are_named_with_the_reason() -> None:
    reasons = ("deep: its arguments are nested too deeply", "2 without a name", *(f"a second t{n}" for n in range(5)))
    held = command_harness()
    held.servers.states[0] = ServerSnapshot(NOTES, ServerStatus.CONNECTED, left_out=reasons)
    said = f"{'; '.join(reasons[:5])} and 2 more"
    assert ("not offered", said) in (await held.ask("mcp show notes")).details
    assert ("not offered", f"notes: {said}") in (await held.ask("mcp tools")).details
    held = CommandHarness(Servers([ServerSnapshot(WEB, ServerStatus.CONNECTED, left_out=reasons[:1])]))
    assert ("not offered", f"web-search: {reasons[0]}") in (await held.ask("mcp tools")).details


@pytest.mark.parametrize("line", ["mcp tools", "mcp tools web-search"])
async def test_no_tools_is_an_answer_that_says_where_to_look(line: str) -> None:
    held = CommandHarness(Servers([ServerSnapshot(WEB, ServerStatus.CONNECTING)]))
    reply = await held.ask(line)
    assert reply.text == "No tools are offered now. `/mcp list` says why."
    assert not reply.failed


@pytest.mark.parametrize("line", ["mcp", "mcp help", "mcp HELP"])
async def test_help_lists_every_verb_a_person_may_say(held: CommandHarness, line: str) -> None:
    reply = await held.ask(line)
    listed = [verb for _, verbs in reply.details for verb in verbs.split(", ")]
    assert listed[0] == "list"
    paths = [
        f"{first} {second}".rstrip()
        for first, _, seconds in (verb.partition(" ") for verb in listed)
        for second in seconds.split("|")
    ]
    assert sorted(paths) == sorted(verb.path for verb in held.registry.verbs["mcp"])
    assert len(reply.details) <= 10, "one screen"
    theirs = await held.ask(line, GUEST)
    assert [verbs for _, verbs in theirs.details] == [
        "list, show, tools, resource list|show|ask, prompt ask|list|show",
        "grants list|revoke",
        "help",
    ]


async def test_help_of_all_describes_every_verb_a_person_may_say(held: CommandHarness) -> None:
    listed = [usage.removeprefix("/mcp ") for usage, _ in (await held.ask("mcp help all")).details]
    assert listed[0] == "list [WORDS…]"
    assert len(listed) == len(held.registry.verbs["mcp"])
    theirs = await held.ask("mcp help all", GUEST)
    theirs_alone = ["list", "show", "tools", *3 * ["resource"], *3 * ["prompt"], "grants", "grants", "help"]
    assert [usage.split()[1] for usage, _ in theirs.details] == theirs_alone


async def test_help_of_a_first_word_describes_its_verbs() -> None:
    reply = await command_harness().ask("mcp help policy")
    assert [usage.split()[2] for usage, _ in reply.details] == ["list", "set", "clear", "explain"]


async def test_help_of_a_verb_has_its_arguments() -> None:
    reply = await command_harness().ask("mcp help policy set")
    name, usage = reply.details[0]
    assert (name, usage.partition(" [--")[0]) == ("usage", "/mcp policy set NAME [TOOL] ask|allow|deny|auto")


async def test_tools_that_were_not_listed_yet_are_requested_and_shown() -> None:
    class Sleeping(Servers):
        async def connect(self, server: str) -> ServerSnapshot:
            self.states[0] = ServerSnapshot(NOTES, ServerStatus.CONNECTED)
            self.offered.append(tool("notes", "add"))
            return self.states[0]

    held = CommandHarness(Sleeping([ServerSnapshot(NOTES, ServerStatus.PENDING)]))
    answers = await held.answers("mcp", "tools", "notes")
    assert [answer.text for answer in answers if isinstance(answer, Reply)] == [
        "No tools are offered now. `/mcp list` says why.",
        "Tools · 1",
    ]
    held = CommandHarness(Sleeping([ServerSnapshot(NOTES, ServerStatus.IDLE)]))
    assert (await held.ask("mcp run notes add")).message is not None


async def test_the_operator_is_told_which_workspace_a_server_belongs_to(jira: CommandHarness) -> None:
    reply = await jira.refusal("mcp show jira", where=HALL.parse("console:local:chat:1"))
    assert reply.text.startswith("MCP server `jira` does not belong to this workspace.")
    assert "--workspace test:w" in reply.text
