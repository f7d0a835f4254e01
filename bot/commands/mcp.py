"""`/mcp`: the command with all its verbs.

The verbs of grants, the call log and statistics are here, all others in modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.commands.audit_search import AuditSearch
from bot.commands.command import A_SERVER, Command, CommandContext, CommandRejected, Verbs, option, verb
from bot.commands.dependencies import CommandDependencies
from bot.commands.manual_calls import ManualCalls, PromptCommands, ResourceCommands
from bot.commands.policies import ServerPolicies
from bot.commands.policy_explain import PolicyExplain
from bot.commands.server_catalog import CatalogCommands
from bot.commands.server_checks import ServerChecks
from bot.commands.server_control import ServerControl, ServerService
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_editor import ServerAdd, ServerEdit
from bot.commands.server_listing import ServerListing
from bot.commands.server_secrets import ServerSecrets
from bot.commands.server_validation import ServerValidator
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import (
    MOMENT,
    ROWS,
    code,
    format_ago,
    format_duration,
    format_expiry,
    format_moment,
    known_facts,
    offset,
    page_of,
    page_rows,
    server_label,
    shorten,
    status_word,
)
from bot.commands.tool_review import ServerReview
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction, RequiredRole, Table
from bot.domain.conversations import CONSOLE
from bot.domain.grants import Grant
from bot.domain.health import Health, HealthStatus, ListenerStatus
from bot.domain.metrics import ProcessCounters
from bot.domain.servers import EVERYWHERE, ServerStatus
from bot.domain.turns import StepStatus
from bot.i18n import _, format_enumeration, format_number, format_time_zone, gettext_lazy, ngettext, pgettext_lazy
from bot.ports import Activity, ApprovalActivity, Backlog, CallQuery, CallSummary, ServerActivity

# -------------------- grants
# Users see grants by and for them; admins see all of their workspace.

_GRANT = Parameter("grant", "its id as the list shows it", required=True, metavar="ID")
_SCOPES = {
    "thread": gettext_lazy("all calls in the thread"),
    "arguments": gettext_lazy("this very call in the thread"),
    "hours": gettext_lazy("all calls, for some hours"),
    "always": gettext_lazy("all calls"),
}
_TERMINAL_SCOPES = {
    **_SCOPES,
    "thread": gettext_lazy("all calls in the conversation"),
    "arguments": gettext_lazy("this very call in the conversation"),
}
"""A terminal has no threads."""
_ACTIONS = 5
"""Buttons per reply."""


class Grants(Verbs):
    """Verbs of grants."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies

    @verb(
        "grants list",
        "permissions for later calls: tools that run without asking, and who allowed them",
        who=RequiredRole.EVERYONE,
        aliases=("grants",),
    )
    async def _list(self, request: CommandContext) -> Reply:
        grants = await self._visible_grants(request)
        if not grants:
            return Reply(_("No grant is active: every call that needs an approval asks for one."))
        page = page_rows(grants, request.arguments.page)
        return Reply(
            _("Grants · {count}", count=len(grants)),
            Table(
                ("id", "tool", "what runs", "where", "for", "granted by", "ends"),
                tuple(self._row(grant) for grant in page),
            ),
            actions=tuple(_revoke_action(grant) for grant in page[:_ACTIONS]),
            page=page_of(request.arguments.page, len(grants), ("mcp", "grants", "list")),
        )

    @verb(
        "grants revoke", "let it ask again", (_GRANT,), who=RequiredRole.EVERYONE, aliases=("grants remove", "revoke")
    )
    async def _revoke(self, request: CommandContext) -> Reply:
        wanted = request.arguments.get("grant").lower()
        grant = next((candidate for candidate in await self._visible_grants(request) if candidate.id == wanted), None)
        if grant is None or not await self._dependencies.stores.grants.revoke(grant.id, request.author):
            raise CommandRejected(_("There is no such grant that still holds. `/mcp grants list` lists them."))
        name = format_enumeration((code(grant.server_name, _("the server")), code(grant.tool, _("the tool"))))
        return Reply(_("{tool}: calls ask for an approval again. A call that runs already goes on.", tool=name))

    async def _visible_grants(self, request: CommandContext) -> Sequence[Grant]:
        """Return the grants that the user may see."""
        grants = await self._dependencies.stores.grants.active_grants(request.conversation.workspace_key)
        if self._dependencies.rights.administers(request.member):
            return grants
        own = request.author.principal
        return [grant for grant in grants if own in (grant.granted_by, grant.person)]

    def _row(self, grant: Grant) -> tuple[str, ...]:
        now = self._dependencies.clock()
        scopes = _TERMINAL_SCOPES if grant.place.startswith(f"{CONSOLE}:") else _SCOPES
        what = str(scopes.get(grant.scope, grant.scope))
        return (
            grant.id,
            f"{grant.server_name}.{grant.tool}",
            _("{calls}, destructive ones too", calls=what) if grant.destructive else what,
            ":".join(grant.place.split(":")[2:]) or _("this workspace"),
            grant.person or _("everyone"),
            f"{grant.granted_name or grant.granted_by}, {format_ago(grant.created_at, now)}",
            _end(grant, now),
        )


def _revoke_action(grant: Grant) -> ReplyAction:
    return ReplyAction(_("Revoke {grant}", grant=grant.id), ("mcp", "grants", "revoke", grant.id), ActionStyle.DANGER)


def _end(grant: Grant, now: float) -> str:
    if grant.expires_at is None:
        return _("when it is revoked")
    remaining = format_expiry(grant.expires_at, now)
    return _("{time}, unless it is used", time=remaining) if grant.idle else remaining


# -------------------- call log

_FAILED = Parameter("failed", "only those without a result", ParameterKind.FLAG)
_WITHOUT_RESULT = (StepStatus.FAILED, StepStatus.UNKNOWN)
_SINCE = option("since", gettext_lazy("only from then on: {formats}", formats=MOMENT), metavar="TIME")


class CallLog(Verbs):
    """Log of recent calls."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    @verb(
        "log", "the last calls, with user, outcome and error", (A_SERVER, _FAILED, _SINCE), aliases=("calls", "history")
    )
    async def _log(self, request: CommandContext) -> Reply:
        name, number = request.arguments.get("server"), request.arguments.page
        failed, since = request.arguments.has("failed"), request.arguments.get("since")
        server = (await self._directory.find(name, request.conversation)).name if name else ""
        is_at_home = request.conversation.platform == request.author.platform
        is_everywhere = is_at_home and self._dependencies.rights.operates(request.member)
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
            Table(columns, rows),
            page=page_of(number, count, (*words, *(("--since", since) if since else ()))),
        )


def _call_row(call: CallSummary, *, is_everywhere: bool) -> tuple[str, ...]:
    outcome = ": ".join(filter(None, (status_word(call.status), shorten(call.error))))
    facts = (format_moment(call.at), call.name, outcome, call.asked_by, call.decided_by, format_duration(call.seconds))
    return (*facts, *((call.conversation.workspace_key,) if is_everywhere else ()), call.turn_id[:8])


# -------------------- statistics
# Counts from the database cover all processes; counts of sessions and cache hits are of this process.
# Admins see their workspace, the operator all.

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


class ServerStatistics(Verbs):
    """Verbs of statistics."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._sign_in_steps = sign_in_steps

    @verb("stats", "calls and approvals: counts, outcomes, durations", (A_SERVER, _STATS_SINCE))
    async def _stats(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        server = await self._directory.find(name, request.conversation) if name else None
        servers = [server] if server else await self._directory.all(request.conversation)
        counts = _counter_facts(self._dependencies.process.counters({server.name for server in servers}), servers)
        now = self._dependencies.clock()
        given = request.arguments.since(now)
        since = now - DAY if given is None else given
        home = EVERYWHERE if self._dependencies.rights.operates(request.member) else request.conversation.workspace_key
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

    @verb("health", "how the database, the platforms and the servers stand")
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


# -------------------- the command

OFF = gettext_lazy("MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools.")


TOPICS: Mapping[str, Sequence[str]] = {
    gettext_lazy("what there is"): ("list", "show", "tools", "resource", "prompt"),
    gettext_lazy("add and change"): ("add", "catalog", "edit", "remove", "secret", "reload"),
    gettext_lazy("on and off"): ("enable", "disable", "connect", "disconnect", "sync"),
    gettext_lazy("what may run"): ("policy", "grants", "review"),
    gettext_lazy("find out why"): ("verify", "doctor", "health", "stats"),
    gettext_lazy("what was done"): ("log", "audit"),
    gettext_lazy("by hand"): ("run",),
    gettext_lazy("help"): ("help",),
}
"""First words of the verbs by the lines of the help."""


def mcp_command(dependencies: CommandDependencies, directory: ServerDirectory) -> Command:
    """Return the command with all its verbs, those for all users first."""
    sign_in_steps = SignInSteps(dependencies, directory)
    listing = ServerListing(dependencies, directory, sign_in_steps)
    validator = ServerValidator(dependencies, directory)
    service = ServerService(dependencies, directory)
    catalog = CatalogCommands(dependencies)
    return Command(
        "mcp",
        "MCP servers and their tools",
        (
            *listing.handlers,
            *ResourceCommands(directory).handlers,
            *PromptCommands(directory).handlers,
            *ServerAdd(dependencies, validator, service, catalog).handlers,
            *catalog.handlers,
            *ServerEdit(dependencies, directory, validator, service).handlers,
            *ServerControl(dependencies, directory, service, sign_in_steps).handlers,
            *ServerChecks(dependencies, directory, sign_in_steps).handlers,
            *ServerPolicies(dependencies, directory).handlers,
            *PolicyExplain(dependencies, directory).handlers,
            *Grants(dependencies).handlers,
            *ServerSecrets(dependencies, directory, validator, sign_in_steps).handlers,
            *ManualCalls(directory).handlers,
            *CallLog(dependencies, directory).handlers,
            *AuditSearch(dependencies, directory).handlers,
            *ServerStatistics(dependencies, directory, sign_in_steps).handlers,
            # On platforms with a limit on verbs, the last ones that stand alone move into a menu of their own.
            *ServerReview(dependencies, directory).handlers,
        ),
        dependencies.rights,
        objection=lambda: "" if dependencies.servers.enabled else OFF,
        topics=TOPICS,
    )
