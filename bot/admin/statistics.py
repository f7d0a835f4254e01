"""`/mcp log`, `stats` and `health`: the last calls, counts of calls and approvals, and the state of the parts.

Counts from the database cover all processes; counts of sessions and cache hits are of this process. Admins see their
workspace, the operator all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.admin.command import A_SERVER, CommandContext, option, verb
from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.directory import ServerDirectory, ServerVerbs, VisibleServer
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.text_format import (
    MOMENT,
    ROWS,
    format_duration,
    format_moment,
    known_facts,
    offset,
    page_of,
    server_label,
    shorten,
    status_word,
)
from bot.domain.commands import Parameter, ParameterKind, Reply, ReplyAction, Table
from bot.domain.health import Health, HealthStatus, ListenerStatus
from bot.domain.metrics import ProcessCounters
from bot.domain.servers import EVERYWHERE, ServerStatus
from bot.domain.turns import StepStatus
from bot.i18n import _, format_enumeration, format_number, format_time_zone, gettext_lazy, ngettext, pgettext_lazy
from bot.ports import Activity, ApprovalActivity, Backlog, CallQuery, CallSummary, ServerActivity

# -------------------- call log

_FAILED = Parameter("failed", "only those without a result", ParameterKind.FLAG)
_WITHOUT_RESULT = (StepStatus.FAILED, StepStatus.UNKNOWN)
_SINCE = option("since", gettext_lazy("only from then on: {formats}", formats=MOMENT), metavar="TIME")


class CallLog(ServerVerbs):
    """Log of recent calls."""

    @verb(
        "log",
        "the last calls, with user, outcome and error",
        (A_SERVER, _FAILED, _SINCE),
        aliases=("calls", "history"),
        reads=True,
    )
    async def _log(self, request: CommandContext) -> Reply:
        name, number = request.arguments.get("server"), request.arguments.page
        failed, since = request.arguments.has("failed"), request.arguments.get("since")
        server = (await self._directory.find(name, request.conversation)).name if name else ""
        is_at_home = request.conversation.platform == request.author.platform
        is_everywhere = is_at_home and self._dependencies.rights.administers_everywhere(request.member)
        query = CallQuery(
            EVERYWHERE if is_everywhere else request.conversation.workspace_key,
            server,
            statuses=_WITHOUT_RESULT if failed else (),
            since=request.arguments.since(self._dependencies.clock()),
        )
        calls, count = await self._dependencies.stores.archive.calls(query, ROWS, offset(number))
        if not count:
            return Reply(_("No call has failed.") if failed else _("Nothing has been called yet."))
        columns = (
            gettext_lazy("when"),
            gettext_lazy("tool"),
            gettext_lazy("ended"),
            gettext_lazy("asked by"),
            gettext_lazy("decided by"),
            gettext_lazy("took"),
            *((pgettext_lazy("heading", "in"),) if is_everywhere else ()),
            gettext_lazy("turn"),
        )
        rows = tuple(_call_row(call, is_everywhere=is_everywhere) for call in calls)
        words = ("mcp", "log", *((server,) if server else ()), *(("--failed",) if failed else ()))
        return Reply(
            _("Failed calls · {count} · times in {zone}", count=format_number(count), zone=format_time_zone())
            if failed
            else _("Calls · {count} · times in {zone}", count=format_number(count), zone=format_time_zone()),
            Table(columns, rows, tuple(("mcp", "policy", "explain", f"{call.turn_id}:{call.n}") for call in calls)),
            page=page_of(number, count, (*words, *(("--since", since) if since else ()))),
        )


def _call_row(call: CallSummary, *, is_everywhere: bool) -> tuple[str, ...]:
    outcome = ": ".join(filter(None, (status_word(call.status), shorten(call.error))))
    facts = (format_moment(call.at), call.name, outcome, call.asked_by, call.decided_by, format_duration(call.seconds))
    return (*facts, *((call.conversation.workspace_key,) if is_everywhere else ()), call.turn_id[:8])


# -------------------- statistics

DAY = 86_400.0
_MOST_SERVERS = 25
"""Servers in one reply, the busiest first."""
_STATS_SINCE = replace(_SINCE, hint=gettext_lazy("from then on, the last day without it: {formats}", formats=MOMENT))
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
_MARKS = {HealthStatus.READY: "●", HealthStatus.DEGRADED: "!", HealthStatus.UNREADY: "✗"}
_CONDITIONS = {
    HealthStatus.READY: gettext_lazy("Countersign is ready"),
    HealthStatus.DEGRADED: gettext_lazy("Countersign is degraded"),
    HealthStatus.UNREADY: gettext_lazy("Countersign is unready"),
}
_LISTENING = {
    ListenerStatus.CONNECTED: gettext_lazy("connected"),
    ListenerStatus.CONNECTING: gettext_lazy("not connected, trying"),
    ListenerStatus.STANDBY: gettext_lazy("received by another process, this one stands by"),
}


class ServerStatistics(ServerVerbs):
    """Verbs of statistics."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        super().__init__(dependencies, directory)
        self._sign_in_steps = sign_in_steps

    @verb("stats", "calls and approvals: counts, outcomes, durations", (A_SERVER, _STATS_SINCE), reads=True)
    async def _stats(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        server = await self._directory.find(name, request.conversation) if name else None
        servers = [server] if server else await self._directory.all(request.conversation)
        counts = _counter_facts(self._dependencies.process.counters({server.name for server in servers}), servers)
        now = self._dependencies.clock()
        given = request.arguments.since(now)
        since = now - DAY if given is None else given
        is_everywhere = self._dependencies.rights.administers_everywhere(request.member)
        home = EVERYWHERE if is_everywhere else request.conversation.workspace_key
        activity = await self._dependencies.stores.archive.activity(since, home, server.id if server else "")
        since_text = {"time": format_moment(since), "zone": format_time_zone()}
        values = {"server": server_label(server.config) if server else "", **since_text}
        if not (activity.turns or activity.servers or activity.approvals.requested):
            nothing = (
                _("Nothing has happened of {server} since {time} {zone}.", **values)
                if server
                else _("Nothing has happened since {time} {zone}.", **values)
            )
            return Reply(nothing, details=counts)
        values["count"] = format_number(sum(server.calls for server in activity.servers))
        rows = tuple(_activity_row(server_activity) for server_activity in activity.servers[:_MOST_SERVERS])
        return Reply(
            _("Calls of {server} · {count} · since {time} {zone}", **values)
            if server
            else _("Calls · {count} · since {time} {zone}", **values),
            Table(("server", "calls", "succeeded", "errors", "success", "half within", "95 of 100 within"), rows)
            if rows
            else None,
            (*_activity_facts(activity, of_one=server is not None), *counts),
        )

    async def _steps(self, server: VisibleServer) -> tuple[ReplyAction, ...]:
        to_sign_in = await self._sign_in_steps.steps(server.config)
        return to_sign_in or (
            ReplyAction(_("Find out about {server}", server=server.name), ("mcp", "doctor", server.name)),
        )

    @verb("health", "how the database, the platforms and the servers stand", reads=True)
    async def _health(self, request: CommandContext) -> Reply:
        health = await self._dependencies.process.health()
        servers = await self._directory.all(request.conversation)
        backlog = await self._dependencies.stores.archive.backlog() if health.database else None
        trouble = [server for server in servers if server.status in _IN_TROUBLE]
        rejection = self._dependencies.administration.files_rejection
        return Reply(
            f"{_MARKS[health.condition]} {_CONDITIONS[health.condition]}",
            details=(
                (gettext_lazy("database"), _database_state(health)),
                *known_facts((gettext_lazy("older files in use"), rejection if health.files_are_older else "")),
                *((name, str(_LISTENING[status])) for name, status in sorted(health.platforms.items())),
                (gettext_lazy("servers"), _server_counts(servers)),
                *((server.name, _problem(server)) for server in trouble),
                *(_backlog_facts(backlog) if backlog is not None else ()),
            ),
            actions=tuple([step for server in trouble[:3] for step in await self._steps(server)]),
        )


def _problem(server: VisibleServer) -> str:
    return ": ".join(filter(None, (status_word(server.status), str(server.problem))))


def _activity_row(server: ServerActivity) -> tuple[str, ...]:
    share = f"{100 * server.succeeded / server.calls:.0f} %" if server.calls else ""
    errors = server.calls - server.succeeded
    counts = (str(server.calls), str(server.succeeded), str(errors), share)
    return (server.server, *counts, format_duration(server.median), format_duration(server.slowest))


def _activity_facts(activity: Activity, *, of_one: bool) -> tuple[tuple[str, str], ...]:
    """Return all counts except calls. Turns do not belong to a server."""
    approvals, omitted = activity.approvals, len(activity.servers) - _MOST_SERVERS
    duration = format_duration(approvals.median)
    return known_facts(
        (gettext_lazy("turns"), "" if of_one else _turn_counts(activity.turns)),
        (gettext_lazy("approvals requested"), _approval_counts(approvals) if approvals.requested else ""),
        (gettext_lazy("time to decide"), _("half within {duration}", duration=duration) if approvals.median else ""),
        (gettext_lazy("left out"), ngettext("{n} server", "{n} servers", omitted) if omitted > 0 else ""),
        (
            gettext_lazy("counted"),
            "" if activity.whole else _("only the latest: more has happened than is counted at once"),
        ),
    )


def _counter_facts(counters: ProcessCounters, servers: Sequence[VisibleServer]) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = []
    if sessions := counters.sessions:
        now = sum(server.status is ServerStatus.CONNECTED for server in servers)
        counts = {"created": sessions.get("created", 0), "closed": sessions.get("closed", 0), "now": now}
        errors = ngettext("{n} error", "{n} errors", sessions.get("error", 0))
        text = _("{created} created, {closed} closed, {errors}; {now} now", errors=errors, **counts)
        facts.append((gettext_lazy("sessions since the start"), text))
    if cache := counters.cache:
        uses = (
            ngettext("{n} hit", "{n} hits", cache.get("hit", 0)),
            ngettext("{n} miss", "{n} misses", cache.get("miss", 0)),
            ngettext("{n} refresh", "{n} refreshes", cache.get("refresh", 0)),
        )
        facts.append((gettext_lazy("known tools since the start"), format_enumeration(uses)))
    return tuple(facts)


def _turn_counts(turns: Mapping[str, int]) -> str:
    return format_enumeration(
        f"{format_number(number)} {status_word(status)}" for status, number in sorted(turns.items())
    )


def _approval_counts(approvals: ApprovalActivity) -> str:
    counts = {
        _("approved"): approvals.approved,
        _("denied"): approvals.denied,
        _("expired"): approvals.expired,
        _("waiting or stopped"): approvals.others,
    }
    shares = format_enumeration(
        f"{count} {outcome} ({100 * count / approvals.requested:.0f} %)" for outcome, count in counts.items() if count
    )
    return f"{approvals.requested}: {shares}"


def _server_counts(servers: Sequence[VisibleServer]) -> str:
    if not servers:
        return _("none")
    connected = sum(server.status is ServerStatus.CONNECTED for server in servers)
    errors = sum(server.status in _IN_TROUBLE for server in servers)
    counts = {"count": len(servers), "connected": connected, "errors": errors}
    return _("{count}, of which {connected} connected, {errors} in trouble", **counts)


def _backlog_facts(backlog: Backlog) -> tuple[tuple[str, str], ...]:
    live = _turn_counts({status: number for status, number in backlog.turns.items() if number}) or _("none")
    if backlog.oldest_ready >= 1:
        seconds = format_number(round(backlog.oldest_ready))
        live = _("{turns}, the oldest that could begin for {seconds} s", turns=live, seconds=seconds)
    return (
        (gettext_lazy("running turns, all workspaces"), live),
        (gettext_lazy("waiting for an approval"), ngettext("{n} call", "{n} calls", backlog.approvals)),
        (gettext_lazy("still to be drawn"), ngettext("{n} turn", "{n} turns", backlog.drawings)),
    )


def _database_state(health: Health) -> str:
    if health.database and not health.unwritable and health.checkpoints_fail:
        return _("answers; checkpoints of the audit cannot be written, see the log")
    if health.unwritable:
        return _("cannot be written: {cause}. Fix: {fix}", cause=health.unwritable, fix=health.fix)
    return _("answers") if health.database else _("does not answer")
