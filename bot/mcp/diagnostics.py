"""Diagnosis of a server: checks from its address to its tools, with cause and fix.

The first broken check ends the diagnosis; the remaining ones are skipped. Each check closes its resources before its
result is returned, so the generators may be closed at any time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from bot.domain.flows import NO_FLOWS, Sends, Words
from bot.domain.health import Check, CheckStatus
from bot.domain.servers import (
    CachedCapabilities,
    DesiredServer,
    HttpKind,
    HttpTransport,
    ServerConfig,
    ServerEnablement,
    ServerStatus,
    StdioTransport,
    SyncStatus,
    kind_of,
)
from bot.domain.tools import Tool
from bot.errors import ServerTrouble
from bot.mcp.addresses import check_definition
from bot.mcp.connection import Connection
from bot.mcp.errors import InvalidDefinition
from bot.mcp.launch_check import check_paths
from bot.mcp.network_probes import NetworkProbes, broken
from bot.mcp.protocol_noise import NoiseCounter
from bot.mcp.redaction import USER_NAME, Redaction
from bot.mcp.registry import ManagedServer
from bot.mcp.server_log import ServerLog
from bot.mcp.server_status import ServerStatusTracker
from bot.mcp.session import ConnectionDependencies
from bot.mcp.start_limiter import StartLimiter
from bot.mcp.sync_notifier import SyncNotifier
from bot.mcp.transports.open import child_environment


def flow_warnings(config: ServerConfig, tools: Sequence[Tool]) -> Iterator[tuple[str, str]]:
    """Yield doubtful information-flow settings of a server, each with its fix. `tools` are the server's tools."""
    flows = config.flows
    if flows == NO_FLOWS or not tools:
        return
    known = {tool.original_name: tool for tool in tools}
    if missing := sorted(flows.tools - known.keys()):
        said = f"words, sends or recipients are set for tools that it does not have: {_list(missing)}"
        yield said, "correct the names"
    for name, recipients in sorted(flows.tool_recipients.items()):
        yield from _recipients(known[name], recipients) if name in known else ()
    contradicted = [
        tool.original_name
        for tool in tools
        if tool.annotations.open_world is True
        and (tool.flow.words is Words.OWN or (tool.flow.sends is Sends.CLOSED and not tool.read_only))
    ]
    if contradicted:
        said = f"it says that the world of {_list(contradicted)} is open, and they are set to own words or to closed"
        yield said, "check whose words they return and who reads what is sent"
    if not config.trusted and any(tool.annotations.read_only for tool in tools):
        yield (
            "it is not marked trusted, so that even tools that only read are treated as if they changed something",
            "mark it trusted if its hints are true",
        )


def _recipients(tool: Tool, recipients: Sequence[str]) -> Iterator[tuple[str, str]]:
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    if missing := [recipient for recipient in recipients if recipient not in known]:
        said = f"the recipients of {tool.original_name} are to be in arguments that it does not have: {_list(missing)}"
        yield f"{said}. They exempt nothing", "correct the names of the arguments"
    if tool.sends is Sends.CLOSED:
        yield f"{tool.original_name} has recipients and is closed, so they change nothing", "take one of the two out"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_CHECK_SECONDS = 15.0
_GENTLE_SECONDS = 5.0
_AT_ONCE = 4
_OLD = 900.0
"""Age in seconds above which capabilities should be synced."""
_NAMED = 5

CheckFunction = Callable[[], Awaitable[Check]]
RefusedBy = Callable[[Tool], Mapping[str, str]]


def never_refused(tool: Tool) -> Mapping[str, str]:  # noqa: ARG001 - see RefusedBy
    """Return no rejections, for a process without a model."""
    return {}


class ServerDiagnostics:
    """Diagnosis of servers. Test connections share only secrets, allowed targets and timing with the managed ones.
    `refused` returns the reasons why models rejected a tool, by model.
    """

    def __init__(self, shared: ConnectionDependencies, refused: RefusedBy) -> None:
        self._refused = refused
        turnstile = StartLimiter(_AT_ONCE, shared.pacing.start_slot_seconds)
        self._shared = replace(shared, turnstile=turnstile, reports=SyncNotifier())
        self._trials: set[Connection] = set()

    async def close(self, limit: float) -> None:
        """Close the test connections."""
        await asyncio.gather(*(trial.close(limit) for trial in self._trials))

    async def verify(self, entry: DesiredServer) -> AsyncGenerator[Check, None]:
        """Check a server that need not be managed."""
        redact = self._shared.secrets.open(entry)
        try:
            looks = self._verified(entry, redact)
            async with aclosing(looks):
                async for check in looks:
                    yield _clean(check, redact)
        finally:
            self._shared.secrets.close(entry.config.id, redact)

    async def _verified(self, entry: DesiredServer, redact: Redaction) -> AsyncGenerator[Check, None]:
        if entry.problem:
            yield _split("definition", entry.problem)
            return
        trial = Connection(entry.config, self._shared, redact, CachedCapabilities())

        async def mcp() -> Check:
            return await self._test_connection(trial)

        async def tools() -> Check:
            return _check_tools(trial.condition)

        looks = self._run_in_order([*self._network_checks(entry.config), ("MCP", mcp), ("tools", tools)])
        async with aclosing(looks):
            async for check in looks:
                yield check

    async def diagnose(self, kept: ManagedServer) -> AsyncGenerator[Check, None]:
        """Check a managed server: its status first, its recent results last."""
        looks = self._examined(kept)
        async with aclosing(looks):
            async for check in looks:
                yield _clean(check, kept.redact)

    async def _examined(self, kept: ManagedServer) -> AsyncGenerator[Check, None]:
        yield _check_status(kept)
        if check := _check_secrets(kept):
            yield check
        connection = kept.connection
        if connection is None:
            return
        condition = connection.condition

        async def mcp() -> Check:
            if kept.entry.standing is not ServerEnablement.ON and condition.status is not ServerStatus.CONNECTED:
                return Check("MCP", CheckStatus.SKIPPED, "It is disconnected.")
            await connection.connect()
            check = _check_handshake(condition)
            if check.finding is CheckStatus.WELL:
                try:
                    await connection.sync()
                except ServerTrouble as trouble:
                    return Check("MCP", CheckStatus.DOUBTFUL, f"{check.detail}, but: {trouble.cause}", trouble.fix)
            return check

        async def tools() -> Check:
            return _check_tools(condition)

        looks = self._run_in_order([*self._network_checks(kept.config), ("MCP", mcp), ("tools", tools)])
        async with aclosing(looks):
            async for check in looks:
                yield check
        for check in (
            *_check_flows(condition),
            *_check_rejections(condition, self._refused),
            *_check_output(condition.junk),
            *_check_log(condition.words),
        ):
            yield check
        yield _check_sync(condition)
        yield _check_calls(connection)

    def _network_checks(self, config: ServerConfig) -> Sequence[tuple[str, CheckFunction]]:
        match config.transport:
            case HttpTransport() as endpoint:
                to = NetworkProbes(config, endpoint, self._shared)
                return (
                    ("address", to.address),
                    ("DNS", to.dns),
                    ("TCP", to.tcp),
                    ("TLS", to.tls),
                    ("HTTP", to.http),
                    ("authentication", to.authentication),
                )
            case StdioTransport() as process:

                async def command() -> Check:
                    return await asyncio.to_thread(self._check_command, config, process)

                return (("command", command),)

    def _check_command(self, config: ServerConfig, process: StdioTransport) -> Check:
        """Check the program of a server without starting it."""
        try:
            check_definition(config, self._shared.allowances)
            check_paths(config, self._shared.allowances.templates())
        except InvalidDefinition as unusable:
            return broken("command", unusable.cause, unusable.fix)
        if process.cwd is not None and not Path(process.cwd).is_dir():
            return broken("command", f"The folder {process.cwd} does not exist.", "create it or correct the cwd")
        path = child_environment(process)["PATH"]
        found = shutil.which(process.command, path=path)
        if found is None and process.cwd is not None and os.sep in process.command:
            found = shutil.which(str(Path(process.cwd, process.command)))
        if found is None:
            return broken(
                "command",
                f"{process.command} was not found, or cannot be executed.",
                "install it, or correct the command",
            )
        return Check("command", CheckStatus.WELL, found)

    async def _run_in_order(self, looks: Sequence[tuple[str, CheckFunction]]) -> AsyncGenerator[Check, None]:
        whole = True
        for name, run_check in looks:
            if not whole:
                yield Check(name, CheckStatus.SKIPPED, "Skipped, because an earlier check failed.")
                continue
            check = await _run_timed(name, run_check)
            whole = check.finding is not CheckStatus.BROKEN
            yield check

    async def _test_connection(self, trial: Connection) -> Check:
        """Connect once, and disconnect before the result is returned."""
        self._trials.add(trial)
        try:
            await trial.connect()
            check = _check_handshake(trial.condition)
        finally:
            await trial.disconnect(_GENTLE_SECONDS)
            self._trials.discard(trial)
        return check


def _clean(check: Check, redact: Redaction) -> Check:
    return replace(check, detail=redact.clean(check.detail), fix=redact.clean(check.fix))


async def _run_timed(name: str, run_check: CheckFunction) -> Check:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        # The MCP check has the server's own connect_timeout.
        async with asyncio.timeout(None if name == "MCP" else _CHECK_SECONDS):
            check = await run_check()
    except TimeoutError:
        fix = "check the server, and the network and firewall between"
        check = broken(name, f"No answer within {_CHECK_SECONDS:g} s.", fix)
    return replace(check, seconds=loop.time() - began)


def _check_handshake(condition: ServerStatusTracker) -> Check:
    """Check the result of the MCP handshake."""
    if condition.status is not ServerStatus.CONNECTED:
        return _split("MCP", condition.problem or "It did not answer in time. Fix: raise its connect_timeout.")
    known = condition.synced.capabilities
    version = f", version {known.server_version}" if known.server_version else ""
    if kind_of(condition.config.transport) == HttpKind.JSONRPC:
        return Check(
            "MCP",
            CheckStatus.SKIPPED,
            f"It speaks {known.protocol} and not MCP, so it is contacted at the first call only.",
        )
    older = known.handshake is not None and known.handshake.transport == HttpKind.SSE
    over = " over HTTP+SSE" if older else ""
    return Check("MCP", CheckStatus.WELL, f"speaks MCP {known.protocol}{over}{version}")


def _check_tools(condition: ServerStatusTracker) -> Check:
    """Check the tools: their number, and those that are left out or renamed, with the reason."""
    tools = condition.synced.capabilities.tools
    changing = [tool for tool in tools if not tool.read_only]
    destructive = [tool for tool in tools if tool.destructive]
    detail = f"{len(tools)} tools, {len(changing)} of which may change something and {len(destructive)} may destroy"
    wanted = condition.config.auto_context_tool
    if wanted and all(tool.original_name != wanted for tool in tools):
        return Check("tools", CheckStatus.DOUBTFUL, f"{detail}; there is no {wanted}", "correct its auto_context_tool")
    if condition.pinning.withheld:
        count = len(condition.pinning.withheld)
        said = f"{detail}; {count} not offered, because no admin has reviewed {'it' if count == 1 else 'them'} yet"
        return Check("tools", CheckStatus.DOUBTFUL, said, f"use /mcp review {condition.config.name}")
    if condition.left_out:
        said = f"{detail}; not offered: {', '.join(condition.left_out[:_NAMED])}"
        return Check("tools", CheckStatus.DOUBTFUL, said, "correct them on the server, then sync")
    if not tools:
        return Check("tools", CheckStatus.DOUBTFUL, "It has no tools.", "check that the server has any, then sync")
    return Check("tools", CheckStatus.WELL, f"{detail}{_renamed(condition.config, tools)}")


def _renamed(config: ServerConfig, tools: Sequence[Tool]) -> str:
    others = [tool for tool in tools if tool.name != f"{config.name}__{tool.original_name}"]
    if not others:
        return ""
    named = ", ".join(f"{tool.original_name} as {tool.name}" for tool in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"; offered under names that models take: {named}{more}"


def _check_status(kept: ManagedServer) -> Check:
    """Check the status of a managed server."""
    state = kept.state
    if kept.problem:
        return _split("standing", kept.problem)
    match state.status:
        case ServerStatus.CONNECTED | ServerStatus.CONNECTING | ServerStatus.IDLE:
            return Check("standing", CheckStatus.WELL, str(state.status))
        case ServerStatus.DISABLED:
            return Check("standing", CheckStatus.DOUBTFUL, "It is disabled, so its tools are hidden.", "enable it")
        case ServerStatus.DISCONNECTED:
            return Check("standing", CheckStatus.DOUBTFUL, "It is disconnected, so its tools are hidden.", "connect it")
        case ServerStatus.PENDING:
            return Check("standing", CheckStatus.WELL, "pending: it connects at its first use")
        case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
            # The checks below find the current cause.
            return replace(_split("standing", f"{state.status}: {state.problem}"), finding=CheckStatus.DOUBTFUL)


def _check_secrets(kept: ManagedServer) -> Check | None:
    """Check for weak secrets in the server's definition."""
    weak = {
        secret.label: secret.weakness
        for secret in kept.redact.secrets
        if secret.value in kept.entry.secrets and secret.label != USER_NAME
    }
    found = [f"its {label} is {why}" for label, why in weak.items() if why]
    if not found:
        return None
    said = f"{'; '.join(found[:_NAMED])}. It is hidden in results of this server, and nowhere else."
    return Check("secrets", CheckStatus.DOUBTFUL, f"{said[0].upper()}{said[1:]}", "set a random one")


def _check_flows(condition: ServerStatusTracker) -> Iterator[Check]:
    """Check the server's information-flow settings."""
    for said, fix in flow_warnings(condition.config, condition.synced.capabilities.tools):
        yield Check("information flow", CheckStatus.DOUBTFUL, f"{said[0].upper()}{said[1:]}.", fix)


def _check_rejections(condition: ServerStatusTracker, refused: RefusedBy) -> Iterator[Check]:
    """Check for tools that models have rejected since this process started."""
    found = [
        f"{tool.name} by {model or 'the model'}: {why.rstrip('.')}"
        for tool in condition.synced.capabilities.tools
        for model, why in refused(tool).items()
    ]
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        said = f"Services of models have refused tools of it: {'; '.join(found[:_NAMED])}{more}."
        yield Check(
            "models", CheckStatus.DOUBTFUL, said, "have the server corrected, or leave the tools out of the profile"
        )


def _check_output(junk: NoiseCounter) -> Iterator[Check]:
    """Check for lines in standard output that are not messages."""
    if not junk.example:
        return
    said = (
        f"It writes lines to its standard output that are not messages, more than 20 a minute, such as: {junk.example}"
    )
    yield Check("output", CheckStatus.DOUBTFUL, said, "let it log to its standard error")


def _check_log(words: ServerLog) -> Iterator[Check]:
    """Check the server's recent log messages."""
    if words.last:
        said = "; ".join(f"{each.level}: {each.text}" for each in words.last)
        yield Check("its log", CheckStatus.DOUBTFUL, f"It said: {said}")


def _check_sync(condition: ServerStatusTracker) -> Check:
    """Check the age of the capabilities. Those of a new connection have no time until they are stored."""
    synced = condition.synced
    if synced.at is None and condition.status is ServerStatus.CONNECTED:
        return Check("sync", CheckStatus.WELL, "just now")
    if synced.at is None:
        return Check("sync", CheckStatus.DOUBTFUL, "Its tools have not been loaded yet.", "connect it, then sync")
    age = max(time.time() - synced.at, 0.0)
    said = f"{synced.status}, {_span(age)} ago"
    if synced.status is SyncStatus.SYNC_FAILED:
        cause, _, fix = synced.problem.partition(" Fix: ")
        return Check("sync", CheckStatus.DOUBTFUL, f"{said}: {cause}", fix or "sync again")
    if age > _OLD:
        return Check("sync", CheckStatus.DOUBTFUL, said, "sync, so that new tools are offered")
    return Check("sync", CheckStatus.WELL, said)


def _check_calls(connection: Connection) -> Check:
    """Check the duration of recent calls against the timeout."""
    times = sorted(connection.durations)
    if not times:
        return Check("calls", CheckStatus.WELL, "none answered since this process started")
    half, most = times[len(times) // 2], times[min(int(len(times) * 0.95), len(times) - 1)]
    limit = connection.config.tool_timeout
    said = f"the last {len(times)}: half within {half:.2f} s, 95 % within {most:.2f} s, limit {limit:g} s"
    if most > 0.8 * limit:
        return Check("calls", CheckStatus.DOUBTFUL, said, "raise its tool_timeout, or make the server faster")
    return Check("calls", CheckStatus.WELL, said)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _split(name: str, sentence: str) -> Check:
    cause, _, fix = sentence.partition(" Fix: ")
    return broken(name, cause, fix)
