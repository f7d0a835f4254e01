"""`/mcp verify` and `doctor`: checks of servers, with a fix for each failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import chain

from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.parameters import A_SERVER, SERVER
from bot.commands.server_directory import ServerDirectory, VisibleServer, capabilities
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import format_duration, pluralize, server_label, shorten
from bot.commands.tool_review import withheld
from bot.domain.checks import Check, CheckStatus
from bot.domain.commands import ActionStyle, Reply, ReplyAction, Table, Verb
from bot.domain.pins import escape_invisible
from bot.domain.servers import ServerConfig, ServerStatus
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.ports import ServerAdmin

MARKS = {CheckStatus.WELL: "✓", CheckStatus.DOUBTFUL: "!", CheckStatus.BROKEN: "✗", CheckStatus.SKIPPED: "-"}
_MOST_STEPS = 5
_SWITCHED_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)


class ServerChecks:
    """Verbs that check servers and report progress."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory, signing_in: SignInSteps) -> None:
        self._servers = parts.servers
        self._directory = directory
        self._signing_in = signing_in

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        verify = Verb("verify", "whether a server can be used, step by step", (SERVER,), aliases=("test", "check"))
        doctor = Verb("doctor", "everything about a server that could be wrong, with fixes", (A_SERVER,))
        return VerbHandler(verify, self._verify), VerbHandler(doctor, self._doctor)

    async def _verify(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        if seen.status is ServerStatus.DISABLED:
            yield Reply(
                f"{server_label(seen.config)} is disabled. Enable it first.",
                failed=True,
                actions=(ReplyAction("Enable", ("mcp", "enable", seen.name)),),
            )
            return
        async for reply in verify_server(self._servers, self._signing_in, seen.config, "verified"):
            yield reply

    async def _doctor(self, request: CommandContext) -> AsyncIterator[Reply]:
        name = request.arguments.one("server")
        if name:
            chosen = [await self._directory.find(name, request.conversation)]
        else:
            chosen = await self._directory.all(request.conversation)
        if not chosen:
            yield Reply("There is no server to look at. Try `/mcp add`.")
            return
        rows: list[tuple[str, ...]] = []
        broken = 0
        for seen in chosen:
            async for check in self._looks(seen):
                rows.append(_row(seen, check))
                broken += check.finding is CheckStatus.BROKEN
                yield _report(f"Looking at {server_label(seen.config)}…", rows)
        found = pluralize(broken, "thing is", "things are") + " wrong" if broken else "Nothing is wrong"
        text = (
            f"{found} with {pluralize(len(chosen), 'server') if len(chosen) > 1 else server_label(chosen[0].config)}."
        )
        waiting = await asyncio.gather(*(self._signing_in.steps(seen.config) for seen in chosen))
        yield _report(text, rows, failed=bool(broken), actions=tuple(chain(*waiting))[:_MOST_STEPS])

    async def _looks(self, seen: VisibleServer) -> AsyncIterator[Check]:
        if seen.status in _SWITCHED_OFF:
            yield _switched_off(seen)
            return
        try:
            async with aclosing(self._servers.diagnose(seen.id)) as looks:
                async for check in looks:
                    yield check
        except NotFound:
            yield Check("known", CheckStatus.DOUBTFUL, "This process does not follow it yet.", "try again in a moment")


async def verify_server(
    servers: ServerAdmin, signing_in: SignInSteps, config: ServerConfig, done: str
) -> AsyncIterator[Reply]:
    """Check a saved server and report every step; the last reply has the result. `done` describes the change before."""
    checks: list[Check] = []
    async with aclosing(servers.diagnose(config.id)) as looks:
        async for check in looks:
            checks.append(check)
            yield Reply(f"Verifying {server_label(config)}… {_marked(checks)}")
    broken = [check for check in checks if check.finding is CheckStatus.BROKEN]
    if broken:
        # The need for a sign-in shows on the first connection, which may be in progress.
        await servers.wait_ready()
        to_sign_in = await signing_in.steps(config)
        yield Reply(
            f"{server_label(config)} is {done}, but does not work yet. {_marked(checks)}",
            details=_explained(checks),
            failed=done == "verified",
            actions=(
                *to_sign_in,
                ReplyAction(
                    "Try again",
                    ("mcp", "verify", config.name),
                    ActionStyle.PLAIN if to_sign_in else ActionStyle.PRIMARY,
                ),
                ReplyAction("Edit", ("mcp", "edit", config.name)),
            ),
        )
        return
    state = await servers.connect(config.id)
    tools = capabilities(servers, config.id).tools
    connected = state.status is ServerStatus.CONNECTED
    waiting = withheld(servers, config.id)
    yield Reply(
        f"{server_label(config)} is {done}. {_marked(checks)} {'✓' if connected else '✗'} {count_tools(tools)}",
        details=(
            *_explained(checks),
            *((("problem", state.problem),) if state.problem else ()),
            *waits_for_review(waiting),
        ),
        failed=not connected and done == "verified",
        actions=(
            *(await signing_in.steps(config)),
            *to_review(config, waiting),
            ReplyAction(
                "Show tools", ("mcp", "tools", config.name), ActionStyle.PLAIN if waiting else ActionStyle.PRIMARY
            ),
        ),
    )


def waits_for_review(waiting: Sequence[Tool]) -> tuple[tuple[str, str], ...]:
    """Return the details about tools that are withheld until an admin reviews them."""
    if not waiting:
        return ()
    flagged = ((escape_invisible(tool.original_name), "; ".join(tool.flags)) for tool in waiting if tool.flags)
    return (("waits for review", ", ".join(escape_invisible(tool.original_name) for tool in waiting)), *flagged)


def to_review(config: ServerConfig, waiting: Sequence[Tool]) -> tuple[ReplyAction, ...]:
    """Return the action to review tools."""
    if not waiting:
        return ()
    return (
        ReplyAction(
            f"Review {pluralize(len(waiting), 'tool')}", ("mcp", "review", "show", config.name), ActionStyle.PRIMARY
        ),
    )


def count_tools(tools: tuple[Tool, ...]) -> str:
    """Format the number of tools: `31 tools, 9 write, 2 destructive`."""
    writes = sum(not tool.read_only for tool in tools)
    destroys = sum(tool.destructive for tool in tools)
    parts = [pluralize(len(tools), "tool")]
    parts += [f"{writes} write"] if writes else []
    parts += [f"{destroys} destructive"] if destroys else []
    return ", ".join(parts)


def _marked(checks: list[Check]) -> str:
    """Format the checks on one line. Their names are this project's."""
    return " ".join(
        f"{MARKS[check.finding]} {check.name}" for check in checks if check.finding is not CheckStatus.SKIPPED
    )


def _explained(checks: list[Check]) -> tuple[tuple[str, str], ...]:
    """Return the failed checks with their fixes."""
    failures: list[tuple[str, str]] = []
    for check in checks:
        if check.finding in (CheckStatus.BROKEN, CheckStatus.DOUBTFUL):
            failures.append((check.name, check.detail))
            failures += [("fix", check.fix)] if check.fix else []
    return tuple(failures)


def _report(
    text: str, rows: list[tuple[str, ...]], *, failed: bool = False, actions: tuple[ReplyAction, ...] = ()
) -> Reply:
    table = Table(("server", "how", "look at", "found", "fix"), tuple(rows))
    return Reply(text, table, failed=failed, actions=actions)


def _switched_off(seen: VisibleServer) -> Check:
    """Return the check of a disabled server, which is not a failure."""
    word = seen.status.value
    if not seen.config.from_file:
        fix = "enable it" if seen.status is ServerStatus.DISABLED else "connect it"
        return Check("switched on", CheckStatus.DOUBTFUL, f"An admin has made it {word}.", fix)
    if seen.status is ServerStatus.DISABLED:
        said = "The operator's file has it disabled: take out `disabled` to use it."
        return Check("switched on", CheckStatus.SKIPPED, said)
    return Check("switched on", CheckStatus.DOUBTFUL, f"It was {word} by hand.", "connect it")


def _row(seen: VisibleServer, check: Check) -> tuple[str, ...]:
    took = f" ({format_duration(check.seconds)})" if check.seconds is not None else ""
    return seen.name, MARKS[check.finding], check.name, shorten(check.detail + took, 300), shorten(check.fix, 300)
