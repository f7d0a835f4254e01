"""Servers for `/mcp` to talk about, in the test's hands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.commands.mcp import McpCommands
from bot.commands.registry import CommandRegistry
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Invocation, Reply
from bot.domain.conversations import Member
from bot.domain.servers import HttpTransport, ServerConfig, ServerState, ServerStatus, StdioTransport
from bot.domain.tools import Annotations, Tool
from bot.engine.policy import Policies, ServerPolicy
from bot.errors import NotFound
from bot.ports import ServerAdmin
from tests.fakes.parts import ANA, BEN, HALL

ADMIN = Member(ANA, platform_admin=True)
GUEST = Member(BEN)

NOTES = ServerConfig("notes", StdioTransport("python", ("-m", "notes")), trusted=True)
WEB = ServerConfig("web-search", HttpTransport("https://search.example/mcp"))


def tool(server: str, name: str, **more: object) -> Tool:
    return Tool(f"{server}__{name}", server, name, **more)  # type: ignore[arg-type]


@dataclass
class Servers:
    """What `bot.ports.ServerAdmin` promises."""

    states: list[ServerState] = field(default_factory=list)
    offered: list[Tool] = field(default_factory=list)
    enabled: bool = True
    after_a_while: list[ServerState] | None = None

    async def settled(self) -> None:
        if self.after_a_while is not None:
            self.states = self.after_a_while

    def servers(self) -> Sequence[ServerState]:
        return self.states

    def tools(self, server: str) -> Sequence[Tool]:
        if server not in [state.config.name for state in self.states]:
            raise NotFound("There is no such server.")
        return [each for each in self.offered if each.server == server]


def two_servers() -> Servers:
    return Servers(
        [
            ServerState(NOTES, ServerStatus.CONNECTED, protocol="2025-11-25", server_version="1.2.3", tool_count=3),
            ServerState(WEB, ServerStatus.FAILED, "Server web-search cannot be reached. Fix: start it."),
        ],
        [
            tool("notes", "list", title="List notes", annotations=Annotations(read_only=True), trusted=True),
            tool(
                "notes", "add", description="Add a note.\nAt once.", annotations=Annotations(False, False), trusted=True
            ),
            tool("notes", "delete", annotations=Annotations(destructive=True), trusted=True),
        ],
    )


def registry(servers: ServerAdmin) -> CommandRegistry:
    """All commands, under a policy that lets `notes__list` run and forbids `notes__delete`."""
    named = {"list": ApprovalPolicy.ALWAYS_ALLOW, "delete": ApprovalPolicy.ALWAYS_DENY}
    policies = Policies(servers={"notes": ServerPolicy(named)})
    mcp = McpCommands(
        servers, lambda tool: policies.of(tool.server, tool.original_name), lambda member: member.platform_admin
    )
    return CommandRegistry(mcp)


async def ask(servers: ServerAdmin, line: str, member: Member = ADMIN) -> Reply:
    """The last reply to a command line without its slash."""
    command, *words = line.split()
    replies = [reply async for reply in registry(servers).handle(Invocation(command, tuple(words), member, HALL))]
    reply = replies[-1]
    assert isinstance(reply, Reply)
    return reply
