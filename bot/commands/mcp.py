"""`/mcp`: the servers and their tools, for everyone to see."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Invocation, Reply, Table
from bot.domain.conversations import Member
from bot.domain.servers import HttpTransport, ServerState, ServerStatus, StdioTransport
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.ports import ServerAdmin

_MARKS = {
    ServerStatus.CONNECTED: "●",
    ServerStatus.CONNECTING: "◌",
    ServerStatus.PENDING: "○",
    ServerStatus.FAILED: "✗",
    ServerStatus.CLOSED: "○",
}
_ASKS = {
    ApprovalPolicy.ALWAYS_ALLOW: "runs",
    ApprovalPolicy.ASK_USER: "asks",
    ApprovalPolicy.ALWAYS_DENY: "blocked",
}
_HELP = (
    ("/mcp list", "every server and how it stands"),
    ("/mcp show NAME", "one server: transport, protocol, what is wrong with it"),
    ("/mcp tools [NAME]", "the tools, and which of them ask first"),
    ("/mcp help", "this list"),
)

Verb = Callable[[Sequence[str], Member], Reply]


class McpCommands:
    """The verbs of `/mcp`. `policy_of` tells a tool's policy, `administers` who may see addresses."""

    def __init__(
        self,
        servers: ServerAdmin,
        policy_of: Callable[[Tool], ApprovalPolicy],
        administers: Callable[[Member], bool],
    ) -> None:
        self._servers = servers
        self._policy_of = policy_of
        self._administers = administers
        self._verbs: Mapping[str, Verb] = {
            "list": self._list,
            "show": self._show,
            "tools": self._tools,
            "help": lambda _words, _member: _help(),
        }

    async def answers(self, invocation: Invocation) -> AsyncIterator[Reply]:
        """Answer one invocation: at once, and once more when servers that are just connecting have been tried."""
        connecting = any(state.status is ServerStatus.CONNECTING for state in self._servers.servers())
        yield self._answer(invocation)
        if connecting:
            await self._servers.settled()
            yield self._answer(invocation)

    def _answer(self, invocation: Invocation) -> Reply:
        written, *words = invocation.words or ("help",)
        verb = written.lower()
        if verb not in self._verbs:
            close = difflib.get_close_matches(verb, self._verbs, n=1)
            hint = f" Did you mean `/mcp {close[0]}`?" if close else ""
            return Reply(f"`/mcp` knows no such verb.{hint} `/mcp help` lists them.", failed=True)
        if not self._servers.enabled and verb != "help":
            return Reply(
                "MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools.", failed=True
            )
        try:
            return self._verbs[verb](words, invocation.member)
        except NotFound as error:
            return Reply(str(error), failed=True)

    def completions(self) -> list[str]:
        """Everything that can follow `/mcp`."""
        names = [state.config.name for state in self._servers.servers()]
        return [*self._verbs, *(f"{verb} {name}" for verb in ("show", "tools") for name in names)]

    def _list(self, _words: Sequence[str], _member: Member) -> Reply:
        states = self._servers.servers()
        if not states:
            return Reply(
                "No servers yet. Put one in the file that `MCP_SERVERS_FILE` names (`config/mcp_servers.json` if it "
                "names none) and start again."
            )
        rows = tuple(
            (f"{_MARKS[state.status]} {state.config.name}", state.status.value, str(state.tool_count), state.problem)
            for state in states
        )
        failed = sum(state.status is ServerStatus.FAILED for state in states)
        trouble = f" · {failed} in trouble" if failed else ""
        return Reply(f"MCP servers · {len(states)}{trouble}", Table(("server", "state", "tools", ""), rows))

    def _show(self, words: Sequence[str], member: Member) -> Reply:
        if not words:
            return Reply("Which server? `/mcp show NAME`, see `/mcp list`.", failed=True)
        state = self._find(words[0])
        facts = [("state", state.status.value), ("problem", state.problem), ("protocol", state.protocol)]
        facts += [("server version", state.server_version), ("tools", str(state.tool_count))]
        facts += [("trusted", "yes" if state.config.trusted else "no: its hints lower no risk")]
        match state.config.transport:
            case StdioTransport(command, args) if self._administers(member):
                facts.append(("command", " ".join((command, *args))))
            case HttpTransport(url) if self._administers(member):
                facts.append(("address", url))
            case StdioTransport():
                facts.append(("transport", "stdio"))
            case HttpTransport():
                facts.append(("transport", "streamable HTTP"))
        return Reply(f"MCP server `{state.config.name}`", details=tuple((key, value) for key, value in facts if value))

    def _tools(self, words: Sequence[str], _member: Member) -> Reply:
        states = [self._find(words[0])] if words else self._servers.servers()
        tools = [tool for state in states for tool in self._servers.tools(state.config.name)]
        if not tools:
            return Reply("No tools are offered now. `/mcp list` says why.")
        rows = tuple((tool.name, _risk(tool), _ASKS[self._policy_of(tool)], _summary(tool)) for tool in tools)
        return Reply(f"Tools · {len(tools)}", Table(("tool", "risk", "policy", "what it does"), rows))

    def _find(self, name: str) -> ServerState:
        states = {state.config.name: state for state in self._servers.servers()}
        if name not in states:
            # What was typed is not repeated: a reply's text is Markdown, and that text could be anything.
            close = difflib.get_close_matches(name, states, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise NotFound(f"There is no server of that name.{hint} `/mcp list` lists them.")
        return states[name]


def _help() -> Reply:
    return Reply("MCP servers and their tools:", details=_HELP)


def _risk(tool: Tool) -> str:
    if tool.read_only:
        return "reads"
    return "destructive" if tool.destructive else "writes"


def _summary(tool: Tool) -> str:
    lines = tool.description.strip().splitlines()
    return tool.title or (lines[0] if lines else "")
