"""`/mcp`: the command with all its verbs.

The verbs of grants, the call log and statistics are here, all others in modules of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from bot.commands.argument_parser import A_SERVER, CommandRejected
from bot.commands.audit_search import AuditSearch
from bot.commands.command import Command, CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.manual_calls import ManualCalls
from bot.commands.policies import ServerPolicies
from bot.commands.policy_explain import PolicyExplain
from bot.commands.prompts import PromptCommands
from bot.commands.resources import ResourceCommands
from bot.commands.server_catalog import CatalogCommands
from bot.commands.server_checks import ServerChecks, ServerValidator
from bot.commands.server_control import ServerControl, ServerService
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_editor import ServerAdd, ServerEdit
from bot.commands.server_listing import ServerListing
from bot.commands.server_secrets import ServerSecrets
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import (
    MOMENT,
    ROWS,
    code,
    format_ago,
    format_duration,
    format_expiry,
    format_moment,
    offset,
    page_of,
    page_rows,
    parse_time,
    pluralize,
    server_label,
    shorten,
)
from bot.commands.tool_review import ServerReview
from bot.domain.commands import (
    ActionStyle,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.grants import Grant
from bot.domain.health import Health, HealthStatus, ListenerStatus
from bot.domain.metrics import ProcessCounters
from bot.domain.servers import EVERYWHERE, ServerStatus
from bot.domain.turns import StepStatus
from bot.ports import Activity, ApprovalActivity, Backlog, CallQuery, CallSummary, ServerActivity

# -------------------- grants
# Users see grants by and for them; admins see all of their workspace.

_GRANT = Parameter("grant", "its id as the list shows it", required=True, metavar="ID")
_SCOPES = {
    "thread": "all calls in the thread",
    "arguments": "this very call in the thread",
    "hours": "all calls, for some hours",
    "always": "all calls",
}
_ACTIONS = 5
"""Buttons per reply."""


class Grants:
    """Verbs of grants."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        listing = Verb(
            "grants list",
            "permissions for later calls: tools that run without asking, and who allowed them",
            (),
            RequiredRole.EVERYONE,
            ("grants",),
        )
        revoking = Verb(
            "grants revoke", "let it ask again", (_GRANT,), RequiredRole.EVERYONE, ("grants remove", "revoke")
        )
        return VerbHandler(listing, self._list), VerbHandler(revoking, self._revoke)

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        grants = await self._visible_grants(request)
        if not grants:
            yield Reply("No grant is active: every call that needs an approval asks for one.")
            return
        page = page_rows(grants, request.arguments.page)
        yield Reply(
            f"Grants · {len(grants)}",
            Table(
                ("id", "tool", "what runs", "where", "for", "granted by", "ends"),
                tuple(self._row(grant) for grant in page),
            ),
            actions=tuple(_revoke_action(grant) for grant in page[:_ACTIONS]),
            page=page_of(request.arguments.page, len(grants), ("mcp", "grants", "list")),
        )

    async def _revoke(self, request: CommandContext) -> AsyncIterator[Reply]:
        wanted = request.arguments.get("grant").lower()
        grant = next((candidate for candidate in await self._visible_grants(request) if candidate.id == wanted), None)
        if grant is None or not await self._dependencies.grants.revoke(grant.id, request.author):
            raise CommandRejected("There is no such grant that still holds. `/mcp grants list` lists them.")
        name = f"{code(grant.server_name, 'the server')}, {code(grant.tool, 'the tool')}"
        yield Reply(f"{name}: calls ask for an approval again. A call that runs already goes on.")

    async def _visible_grants(self, request: CommandContext) -> Sequence[Grant]:
        """Return the grants that the user may see."""
        grants = await self._dependencies.grants.active_grants(request.conversation.workspace_key)
        if self._dependencies.rights.administers(request.member):
            return grants
        own = request.author.principal
        return [grant for grant in grants if own in (grant.granted_by, grant.person)]

    def _row(self, grant: Grant) -> tuple[str, ...]:
        now = self._dependencies.clock()
        what = _SCOPES.get(grant.scope, grant.scope)
        return (
            grant.id,
            f"{grant.server_name}.{grant.tool}",
            f"{what}, destructive ones too" if grant.destructive else what,
            ":".join(grant.place.split(":")[2:]) or "this workspace",
            grant.person or "everyone",
            f"{grant.granted_name or grant.granted_by}, {format_ago(grant.created_at, now)}",
            _end(grant, now),
        )


def _revoke_action(grant: Grant) -> ReplyAction:
    return ReplyAction(f"Revoke {grant.id}", ("mcp", "grants", "revoke", grant.id), ActionStyle.DANGER)


def _end(grant: Grant, now: float) -> str:
    if grant.expires_at is None:
        return "when it is revoked"
    remaining = format_expiry(grant.expires_at, now)
    return f"{remaining}, unless it is used" if grant.idle else remaining


# -------------------- call log

_FAILED = Parameter("failed", "only those without a result", ParameterKind.FLAG)
_WITHOUT_RESULT = (StepStatus.FAILED, StepStatus.UNKNOWN)
_SINCE = Parameter("since", f"only from then on: {MOMENT}", ParameterKind.OPTION, metavar="TIME")


class CallLog:
    """Log of recent calls."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    @property
    def handler(self) -> VerbHandler:
        """Return the verb."""
        verb = Verb(
            "log",
            "the last calls, with user, outcome and error",
            (A_SERVER, _FAILED, _SINCE),
            aliases=("calls", "history"),
        )
        return VerbHandler(verb, self._log)

    async def _log(self, request: CommandContext) -> AsyncIterator[Reply]:
        name, number = request.arguments.get("server"), request.arguments.page
        failed, since = request.arguments.has("failed"), request.arguments.get("since")
        server = (await self._directory.find(name, request.conversation)).name if name else ""
        is_everywhere = self._is_everywhere(request)
        query = CallQuery(
            EVERYWHERE if is_everywhere else request.conversation.workspace_key,
            server,
            statuses=_WITHOUT_RESULT if failed else (),
            since=_parse_since(since, self._dependencies.clock()) if since else None,
        )
        calls, count = await self._dependencies.archive.calls(query, ROWS, offset(number))
        if not count:
            yield Reply("No call has failed." if failed else "Nothing has been called yet.")
            return
        columns = (
            "when",
            "tool",
            "ended",
            "asked by",
            "decided by",
            "took",
            *(("in",) if is_everywhere else ()),
            "turn",
        )
        rows = tuple(_call_row(call, is_everywhere=is_everywhere) for call in calls)
        words = ("mcp", "log", *((server,) if server else ()), *(("--failed",) if failed else ()))
        yield Reply(
            f"{'Failed calls' if failed else 'Calls'} · {count} · times in UTC",
            Table(columns, rows),
            page=page_of(number, count, (*words, *(("--since", since) if since else ()))),
        )

    def _is_everywhere(self, request: CommandContext) -> bool:
        """Return True for the operator, who has not asked for one workspace."""
        is_at_home = request.conversation.platform == request.author.platform
        return is_at_home and self._dependencies.rights.operates(request.member)


def _call_row(call: CallSummary, *, is_everywhere: bool) -> tuple[str, ...]:
    error = shorten(call.error)
    return (
        format_moment(call.at),
        call.name,
        f"{call.status}: {error}" if error else call.status,
        call.asked_by,
        call.decided_by,
        format_duration(call.seconds),
        *((call.conversation.workspace_key,) if is_everywhere else ()),
        call.turn_id[:8],
    )


def _parse_since(text: str, now: float) -> float:
    """Parse the value of `--since`. Raises CommandRejected."""
    try:
        return parse_time(text, now)
    except (ValueError, OverflowError):
        raise CommandRejected(f"`--since` is a point in time: {MOMENT}.") from None


# -------------------- statistics
# Counts from the database cover all processes; counts of sessions and cache hits are of this process.
# Admins see their workspace, the operator all.

DAY = 86_400.0
_MOST_SERVERS = 25
"""Servers in one reply, the busiest first."""
_STATS_SINCE = replace(_SINCE, hint=f"from then on, the last day without it: {MOMENT}")
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
_MARKS = {HealthStatus.READY: "●", HealthStatus.DEGRADED: "!", HealthStatus.UNREADY: "✗"}
_LISTENING = {
    ListenerStatus.CONNECTED: "connected",
    ListenerStatus.CONNECTING: "not connected, trying",
    ListenerStatus.STANDBY: "received by another process, this one stands by",
}


class ServerStatistics:
    """Verbs of statistics."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._sign_in_steps = sign_in_steps

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        stats = Verb("stats", "calls and approvals: counts, outcomes, durations", (A_SERVER, _STATS_SINCE))
        health = Verb("health", "how the database, the platforms and the servers stand")
        return VerbHandler(stats, self._stats), VerbHandler(health, self._health)

    async def _stats(self, request: CommandContext) -> AsyncIterator[Reply]:
        name = request.arguments.get("server")
        server = await self._directory.find(name, request.conversation) if name else None
        servers = [server] if server else await self._directory.all(request.conversation)
        counts = _counter_facts(self._dependencies.process_counters({server.name for server in servers}), servers)
        written, now = request.arguments.get("since"), self._dependencies.clock()
        since = _parse_since(written, now) if written else now - DAY
        home = EVERYWHERE if self._dependencies.rights.operates(request.member) else request.conversation.workspace_key
        activity = await self._dependencies.archive.activity(since, home, server.id if server else "")
        about = f" of {server_label(server.config)}" if server else ""
        if not (activity.turns or activity.servers or activity.approvals.requested):
            yield Reply(f"Nothing has happened{about} since {format_moment(since)} UTC.", details=counts)
            return
        rows = tuple(_activity_row(server_activity) for server_activity in activity.servers[:_MOST_SERVERS])
        yield Reply(
            f"Calls{about} · {sum(server.calls for server in activity.servers)} · since {format_moment(since)} UTC",
            Table(("server", "calls", "succeeded", "errors", "success", "half within", "95 of 100 within"), rows)
            if rows
            else None,
            (*_activity_facts(activity, of_one=server is not None), *counts),
        )

    async def _steps(self, server: VisibleServer) -> tuple[ReplyAction, ...]:
        to_sign_in = await self._sign_in_steps.steps(server.config)
        return to_sign_in or (ReplyAction(f"Find out about {server.name}", ("mcp", "doctor", server.name)),)

    async def _health(self, request: CommandContext) -> AsyncIterator[Reply]:
        health = await self._dependencies.health()
        servers = await self._directory.all(request.conversation)
        backlog = await self._dependencies.archive.backlog() if health.database else None
        trouble = [server for server in servers if server.status in _IN_TROUBLE]
        yield Reply(
            f"{_MARKS[health.condition]} Countersign is {health.condition}",
            details=(
                ("database", _database_state(health)),
                *((name, _LISTENING[status]) for name, status in sorted(health.platforms.items())),
                ("servers", _server_counts(servers)),
                *((server.name, ": ".join(filter(None, (server.status.value, server.problem)))) for server in trouble),
                *(_backlog_facts(backlog) if backlog is not None else ()),
            ),
            actions=tuple([step for server in trouble[:3] for step in await self._steps(server)]),
        )


def _activity_row(server: ServerActivity) -> tuple[str, ...]:
    share = f"{100 * server.succeeded / server.calls:.0f} %" if server.calls else ""
    errors = server.calls - server.succeeded
    return (
        server.server,
        str(server.calls),
        str(server.succeeded),
        str(errors),
        share,
        format_duration(server.median),
        format_duration(server.slowest),
    )


def _activity_facts(activity: Activity, *, of_one: bool) -> tuple[tuple[str, str], ...]:
    """Return all counts except calls. Turns do not belong to a server."""
    omitted = len(activity.servers) - _MOST_SERVERS
    return (
        *((("turns", _turn_counts(activity.turns)),) if activity.turns and not of_one else ()),
        *((("approvals requested", _approval_counts(activity.approvals)),) if activity.approvals.requested else ()),
        *(
            (("time to decide", f"half within {format_duration(activity.approvals.median)}"),)
            if activity.approvals.median
            else ()
        ),
        *((("left out", pluralize(omitted, "server")),) if omitted > 0 else ()),
        *(() if activity.whole else (("counted", "only the latest: more has happened than is counted at once"),)),
    )


def _counter_facts(counters: ProcessCounters, servers: Sequence[VisibleServer]) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = []
    if sessions := counters.sessions:
        now = sum(server.status is ServerStatus.CONNECTED for server in servers)
        ends = f"{sessions.get('closed', 0)} closed, {pluralize(sessions.get('error', 0), 'error')}"
        facts.append(("sessions since the start", f"{sessions.get('created', 0)} created, {ends}; {now} now"))
    if cache := counters.cache:
        uses = f"{pluralize(cache.get('hit', 0), 'hit')}, {pluralize(cache.get('miss', 0), 'miss', 'misses')}"
        facts.append(
            ("known tools since the start", f"{uses}, {pluralize(cache.get('refresh', 0), 'refresh', 'refreshes')}")
        )
    return tuple(facts)


def _turn_counts(turns: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in sorted(turns.items()))


def _approval_counts(approvals: ApprovalActivity) -> str:
    counts = {
        "approved": approvals.approved,
        "denied": approvals.denied,
        "expired": approvals.expired,
        "waiting or stopped": approvals.others,
    }
    shares = ", ".join(
        f"{count} {outcome} ({100 * count / approvals.requested:.0f} %)" for outcome, count in counts.items() if count
    )
    return f"{approvals.requested}: {shares}"


def _server_counts(servers: Sequence[VisibleServer]) -> str:
    if not servers:
        return "none"
    connected = sum(server.status is ServerStatus.CONNECTED for server in servers)
    errors = sum(server.status in _IN_TROUBLE for server in servers)
    return f"{len(servers)}, of which {connected} connected, {errors} in trouble"


def _backlog_facts(backlog: Backlog) -> tuple[tuple[str, str], ...]:
    live = _turn_counts({status: number for status, number in backlog.turns.items() if number}) or "none"
    waits = f", the oldest that could begin for {backlog.oldest_ready:.0f} s" if backlog.oldest_ready >= 1 else ""
    return (
        ("running turns, all workspaces", f"{live}{waits}"),
        ("waiting for an approval", pluralize(backlog.approvals, "call")),
        ("still to be drawn", pluralize(backlog.drawings, "turn")),
    )


def _database_state(health: Health) -> str:
    if health.database and not health.unwritable and health.checkpoints_fail:
        return "answers; checkpoints of the audit cannot be written, see the log"
    if health.unwritable:
        return f"cannot be written: {health.unwritable}. Fix: {health.fix}"
    return "answers" if health.database else "does not answer"


# -------------------- the command

OFF = "MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools."


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
            *ResourceCommands(dependencies, directory).handlers,
            *PromptCommands(dependencies, directory).handlers,
            ServerAdd(dependencies, validator, service, catalog).handler,
            catalog.handler,
            ServerEdit(dependencies, directory, validator, service).handler,
            *ServerControl(dependencies, directory, service, sign_in_steps).handlers,
            *ServerChecks(dependencies, directory, sign_in_steps).handlers,
            *ServerPolicies(dependencies, directory).handlers,
            PolicyExplain(dependencies, directory).handler,
            *Grants(dependencies).handlers,
            *ServerSecrets(dependencies, directory, validator, sign_in_steps).handlers,
            ManualCalls(directory).handler,
            CallLog(dependencies, directory).handler,
            AuditSearch(dependencies, directory).handler,
            *ServerStatistics(dependencies, directory, sign_in_steps).handlers,
            # On platforms with a limit on verbs, the last ones move into a menu of their own.
            *ServerReview(dependencies, directory).handlers,
        ),
        dependencies.rights,
        objection=lambda: "" if dependencies.servers.enabled else OFF,
    )
