"""`/mcp stats` and `health`: recent activity and current state.

Counts from the database cover all processes; counts of sessions and cache hits are of this process. Admins see their
workspace, the operator all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from bot.commands.argument_parser import A_SERVER, CommandRejected
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import MOMENT, format_duration, format_moment, parse_time, pluralize, server_label
from bot.domain.commands import Parameter, ParameterKind, Reply, ReplyAction, Table, Verb
from bot.domain.health import Health, HealthStatus, ListenerStatus
from bot.domain.metrics import ProcessCounters
from bot.domain.servers import EVERYWHERE, ServerStatus
from bot.ports import Activity, ApprovalActivity, Backlog, ServerActivity

DAY = 86_400.0
ROWS = 25
"""Servers in one reply, the busiest first."""
_SINCE = Parameter("since", f"from then on, the last day without it: {MOMENT}", ParameterKind.OPTION, metavar="TIME")
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
_MARKS = {HealthStatus.READY: "●", HealthStatus.DEGRADED: "!", HealthStatus.UNREADY: "✗"}
_LISTENING = {
    ListenerStatus.CONNECTED: "connected",
    ListenerStatus.CONNECTING: "not connected, trying",
    ListenerStatus.STANDBY: "received by another process, this one stands by",
}


class ServerStatistics:
    """Verbs of statistics."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory, signing_in: SignInSteps) -> None:
        self._parts = parts
        self._directory = directory
        self._signing_in = signing_in

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        stats = Verb("stats", "calls and approvals: counts, outcomes, durations", (A_SERVER, _SINCE))
        health = Verb("health", "how the database, the platforms and the servers stand")
        return VerbHandler(stats, self._stats), VerbHandler(health, self._health)

    async def _stats(self, request: CommandContext) -> AsyncIterator[Reply]:
        name = request.arguments.one("server")
        seen = await self._directory.find(name, request.conversation) if name else None
        servers = [seen] if seen else await self._directory.all(request.conversation)
        counts = _since_start(self._parts.since_start({each.name for each in servers}), servers)
        since = self._since(request)
        home = EVERYWHERE if self._parts.rights.operates(request.member) else request.conversation.workspace_key
        found = await self._parts.archive.activity(since, home, seen.id if seen else "")
        about = f" of {server_label(seen.config)}" if seen else ""
        if not (found.turns or found.servers or found.approvals.asked):
            yield Reply(f"Nothing has happened{about} since {format_moment(since)} UTC.", details=counts)
            return
        rows = tuple(_row(server) for server in found.servers[:ROWS])
        yield Reply(
            f"Calls{about} · {sum(each.calls for each in found.servers)} · since {format_moment(since)} UTC",
            Table(("server", "calls", "succeeded", "errors", "success", "half within", "95 of 100 within"), rows)
            if rows
            else None,
            (*_facts(found, of_one=seen is not None), *counts),
        )

    async def _steps(self, server: VisibleServer) -> tuple[ReplyAction, ...]:
        to_sign_in = await self._signing_in.steps(server.config)
        return to_sign_in or (ReplyAction(f"Find out about {server.name}", ("mcp", "doctor", server.name)),)

    async def _health(self, request: CommandContext) -> AsyncIterator[Reply]:
        health = await self._parts.health()
        servers = await self._directory.all(request.conversation)
        backlog = await self._parts.archive.backlog() if health.database else None
        trouble = [server for server in servers if server.status in _IN_TROUBLE]
        yield Reply(
            f"{_MARKS[health.condition]} Countersign is {health.condition}",
            details=(
                ("database", _database(health)),
                *((name, _LISTENING[each]) for name, each in sorted(health.platforms.items())),
                ("servers", _servers(servers)),
                *((each.name, ": ".join(filter(None, (each.status.value, each.problem)))) for each in trouble),
                *(_unfinished(backlog) if backlog is not None else ()),
            ),
            actions=tuple([step for each in trouble[:3] for step in await self._steps(each)]),
        )

    def _since(self, request: CommandContext) -> float:
        text, now = request.arguments.one("since"), self._parts.clock()
        if not text:
            return now - DAY
        try:
            return parse_time(text, now)
        except (ValueError, OverflowError):
            raise CommandRejected(f"`--since` is a point in time: {MOMENT}.") from None


def _row(of: ServerActivity) -> tuple[str, ...]:
    share = f"{100 * of.succeeded / of.calls:.0f} %" if of.calls else ""
    errors = of.calls - of.succeeded
    return (
        of.server,
        str(of.calls),
        str(of.succeeded),
        str(errors),
        share,
        format_duration(of.median),
        format_duration(of.slowest),
    )


def _facts(found: Activity, *, of_one: bool) -> tuple[tuple[str, str], ...]:
    """Return all counts except calls. Turns do not belong to a server."""
    left = len(found.servers) - ROWS
    return (
        *((("turns", _turns(found.turns)),) if found.turns and not of_one else ()),
        *((("approvals requested", _signatures(found.approvals)),) if found.approvals.asked else ()),
        *(
            (("time to decide", f"half within {format_duration(found.approvals.median)}"),)
            if found.approvals.median
            else ()
        ),
        *((("left out", pluralize(left, "server")),) if left > 0 else ()),
        *(() if found.whole else (("counted", "only the latest: more has happened than is counted at once"),)),
    )


def _since_start(counted_here: ProcessCounters, servers: Sequence[VisibleServer]) -> tuple[tuple[str, str], ...]:
    """Return the counts of this process since its start."""
    told: list[tuple[str, str]] = []
    if sessions := counted_here.sessions:
        now = sum(server.status is ServerStatus.CONNECTED for server in servers)
        ends = f"{sessions.get('closed', 0)} closed, {pluralize(sessions.get('error', 0), 'error')}"
        told.append(("sessions since the start", f"{sessions.get('created', 0)} created, {ends}; {now} now"))
    if cache := counted_here.cache:
        uses = f"{pluralize(cache.get('hit', 0), 'hit')}, {pluralize(cache.get('miss', 0), 'miss', 'misses')}"
        told.append(
            ("known tools since the start", f"{uses}, {pluralize(cache.get('refresh', 0), 'refresh', 'refreshes')}")
        )
    return tuple(told)


def _turns(turns: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in sorted(turns.items()))


def _signatures(found: ApprovalActivity) -> str:
    told = {
        "approved": found.approved,
        "denied": found.denied,
        "expired": found.expired,
        "waiting or stopped": found.others,
    }
    parts = ", ".join(
        f"{number} {word} ({100 * number / found.asked:.0f} %)" for word, number in told.items() if number
    )
    return f"{found.asked}: {parts}"


def _servers(servers: Sequence[VisibleServer]) -> str:
    if not servers:
        return "none"
    connected = sum(server.status is ServerStatus.CONNECTED for server in servers)
    errors = sum(each.status in _IN_TROUBLE for each in servers)
    return f"{len(servers)}, of which {connected} connected, {errors} in trouble"


def _unfinished(backlog: Backlog) -> tuple[tuple[str, str], ...]:
    live = _turns({status: number for status, number in backlog.turns.items() if number}) or "none"
    waits = f", the oldest that could begin for {backlog.oldest_ready:.0f} s" if backlog.oldest_ready >= 1 else ""
    return (
        ("running turns, all workspaces", f"{live}{waits}"),
        ("waiting for an approval", pluralize(backlog.approvals, "call")),
        ("still to be drawn", pluralize(backlog.drawings, "turn")),
    )


def _database(health: Health) -> str:
    if health.database and not health.unwritable and health.checkpoints_fail:
        return "answers; checkpoints of the audit cannot be written, see the log"
    if health.unwritable:
        return f"cannot be written: {health.unwritable}. Fix: {health.fix}"
    return "answers" if health.database else "does not answer"
