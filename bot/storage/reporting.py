"""Reports on conversations, calls, the audit, and one user's approvals, elicitations and turns.

See `bot.ports.ReportingStore` and `bot.ports.UserActivity`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bot.domain.agents import AgentRef
from bot.domain.approvals import ApprovalRequirements
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolResult
from bot.domain.servers import EVERYWHERE, FILE
from bot.domain.turns import NO_TURN_LIMITS, StepStatus, Turn, TurnLimits
from bot.ports import (
    Activity,
    Backlog,
    CallQuery,
    CallSummary,
    ConversationSummary,
    PendingApproval,
    PendingApprovalPage,
    PendingApprovalPosition,
)
from bot.ports.reporting import LONGEST_ERROR
from bot.storage import activity, audit
from bot.storage.codec import UNREADABLE, decode
from bot.storage.database import (
    Database,
    StorableText,
    Store,
    change_once,
    given,
    has_prefix,
    insert_new,
    is_one_of,
    now,
    prefix_bounds,
    report,
)
from bot.storage.tables import (
    approval_of_step,
    approvals,
    conversations,
    elicitations,
    is_live,
    mcp_servers,
    steps,
    turns,
)
from bot.storage.turn_log import retention
from bot.storage.turn_log.records import read_turn

log = logging.getLogger(__name__)

TITLE_LENGTH = 255
"""Characters."""
_UNREADABLE = "(unreadable)"
_NO_TOOL = "(no such tool)"
_ESCAPES = r"(?<!\\)((?:\\\\)*)\\u[0-9a-fA-F]{4}"
"""Taken out before PostgreSQL looks into JSON: it refuses NUL and halves of surrogate pairs, and no slug has any."""

_states = sa.table(
    "conversation_states",
    sa.column("id", sa.Text),
    sa.column("title", sa.Text),
    sa.column("status", sa.Text),
    sa.column("created_at", sa.Double),
    sa.column("updated_at", sa.Double),
)
_key = conversations.c.key
_principal = bindparam("principal", type_=StorableText)
# By the id first, which has an index. An id is unique only within its platform.
_is_author = sa.and_(turns.c.author_id == _principal, turns.c.principal == bindparam("person", type_=StorableText))
_has_turn_of_principal = sa.exists().where(turns.c.conversation == _key, _is_author)
_has_prefix = has_prefix(_key, "key_prefix")
_is_of_user = sa.and_(_has_prefix, _has_turn_of_principal)
_number = sa.select(sa.func.count()).select_from(turns).where(turns.c.conversation == _states.c.id).scalar_subquery()
_first = (
    sa.select(sa.case((turns.c.author_name != "", turns.c.author_name), else_=turns.c.author_id))
    .where(turns.c.conversation == _states.c.id)
    .order_by(turns.c.seq)
    .limit(1)
    .scalar_subquery()
)
_turn_of_principal = sa.select(turns.c.id).where(turns.c.conversation == bindparam("k"), _is_author).limit(1)
_create = insert_new(conversations, last_seq=0, created_at=now(), updated_at=now())
_active = (
    sa.select(_key)
    .where(_has_prefix, conversations.c.updated_at > now() - bindparam("seconds", type_=sa.Double))
    .order_by(conversations.c.updated_at.desc(), _key)
    .limit(bindparam("limit"))
)


def _page(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    # First the page, then the counts of its rows only.
    page = (
        sa.select(_key)
        .where(condition)
        .order_by(conversations.c.updated_at.desc(), _key)
        .limit(bindparam("limit"))
        .offset(bindparam("offset"))
        .cte("page")
    )
    states = _states.c
    return (
        sa.select(
            states.id.label("key"),
            states.status.label("state"),
            *states["title", "created_at", "updated_at"],
            _number.label("turns"),
            sa.func.coalesce(_first, "").label("started_by"),
        )
        .join(page, page.c.key == states.id)
        .order_by(states.updated_at.desc(), states.id)
    )


_page_of_workspace, _page_of_user = _page(_has_prefix), _page(_is_of_user)
_conversation = _page(_key == bindparam("k"))
_count_of_workspace = sa.select(sa.func.count()).select_from(conversations).where(_has_prefix)
_count_of_user = sa.select(sa.func.count()).select_from(conversations).where(_is_of_user)

# Unfinished turns are few and have an index. Planners otherwise read all turns of a workspace.
# Written as in that index's condition, because planners use it only then.
_live = (
    sa.select(turns.c.id, turns.c.conversation, turns.c.agent_id)
    .where(sa.text("status in ('queued', 'running', 'waiting')"))
    .cte("live")
    .prefix_with("materialized")
)
_all_awaiting = (
    sa.select(
        *approvals.c["id", "requested_for_id", "requested_for_name", "editors"],
        # As text, because many have the same, which is decoded once.
        sa.cast(approvals.c.requirements, sa.Text).label("requirements"),
        sa.func.coalesce(now() - approvals.c.posted_at, 0.0).label("waited"),
        steps.c.created_at,
        *_live.c["conversation", "agent_id"],
    )
    .select_from(_live)
    .join(steps, steps.c.turn_id == _live.c.id)
    .join(approvals, approval_of_step)
    .where(
        steps.c.status == StepStatus.AWAITING.value,
        sa.or_(approvals.c.expires_at.is_(None), approvals.c.expires_at > now()),
    )
    .limit(bindparam("limit"))
)
_at, _id = bindparam("at", type_=sa.Double), bindparam("id", type_=sa.Text)
_same_time_behind = sa.and_(steps.c.created_at == _at, approvals.c.id > _id)
_open_elicitations = (
    sa.select(elicitations.c.id)
    .select_from(_live)
    .join(turns, turns.c.id == _live.c.id)
    .join(elicitations, elicitations.c.turn_id == _live.c.id)
    .where(
        _is_author,
        has_prefix(_live.c.conversation, "key_prefix"),
        elicitations.c.status == "open",
        sa.or_(elicitations.c.expires_at.is_(None), elicitations.c.expires_at > now()),
    )
    .order_by(elicitations.c.created_at.desc(), elicitations.c.id)
    .limit(bindparam("limit"))
)
_turns_of_principal = (
    sa.select(turns)
    .where(
        _is_author,
        has_prefix(turns.c.conversation, "key_prefix"),
        turns.c.content_deleted_at.is_(None),
    )
    .order_by(turns.c.created_at.desc(), turns.c.seq.desc(), turns.c.id)
    .limit(bindparam("limit"))
)


@cache
def _awaiting(key_prefixes: int, *, behind: bool, oldest_first: bool) -> sa.Select[Any]:
    """Return the query for a number of key prefixes, after a position if `behind`."""
    at = steps.c.created_at
    select = _all_awaiting.where(
        sa.or_(*(has_prefix(_live.c.conversation, f"key_prefix{n}") for n in range(key_prefixes)))
    ).order_by(at if oldest_first else at.desc(), approvals.c.id)
    return select.where(sa.or_(at > _at if oldest_first else at < _at, _same_time_behind)) if behind else select


class server_of(FunctionElement[str]):  # noqa: N801 - reads as SQL
    """SQL expression: the slug of the server in the body of a call's step."""

    type = sa.Text()
    inherit_cache = True
    key_in_tool = "server"


class tool_of(server_of):  # noqa: N801 - reads as SQL
    """SQL expression: the server's own name of the tool in the body of a call's step."""

    inherit_cache = True
    key_in_tool = "name"


@compiles(server_of)
def _in_sqlite(element: server_of, compiler: Any, **arguments: Any) -> str:
    (body,) = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"case when json_valid({body}) then json_extract({body}, '$.tool.{element.key_in_tool}') end"


@compiles(server_of, "postgresql")
def _in_postgresql(element: server_of, compiler: Any, **arguments: Any) -> str:
    (body,) = (compiler.process(clause, **arguments) for clause in element.clauses)
    return rf"(regexp_replace({body}::text, '{_ESCAPES}', '\1', 'g')::json -> 'tool' ->> '{element.key_in_tool}')"


_server = sa.select(mcp_servers.c.slug, mcp_servers.c.workspace).where(mcp_servers.c.id == bindparam("i"))
_is_of_server = server_of(steps.c.body) == bindparam("server", type_=StorableText)
_calls = (
    sa.select(
        *steps.c["turn_id", "n"],
        # As text, because an unreadable body must not hide the other calls.
        sa.cast(steps.c.body, sa.Text).label("body"),
        sa.case(
            (steps.c.status == StepStatus.DONE.value, sa.null()),
            else_=sa.cast(sa.func.coalesce(steps.c.late_result, steps.c.result), sa.Text),
        ).label("result"),
        *steps.c["status", "created_at", "started_at", "ended_at"],
        turns.c.conversation,
        sa.case((turns.c.author_name != "", turns.c.author_name), else_=turns.c.author_id).label("asked_by"),
        sa.func.coalesce(approvals.c.decided_by, "").label("decided_by"),
    )
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, approval_of_step)
)


_is_call = sa.and_(steps.c.kind == "tool", has_prefix(turns.c.conversation, "key_prefix"))
_is_of_tool = tool_of(steps.c.body) == bindparam("tool", type_=StorableText)


def _matching_calls(connection: sa.Connection, query: CallQuery) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Return the query for calls, and the values of its parameters."""
    slug = _slug_and_workspace(connection, query.server)[0] if query.server else ""
    conditions, values = given(
        (True, _is_call, prefix_bounds("key_prefix", _prefix_of(query.workspace))),
        (bool(query.server), _is_of_server, {"server": slug}),
        (bool(query.tool), _is_of_tool, {"tool": query.tool}),
        (bool(query.statuses), is_one_of(steps.c.status, "statuses"), {"statuses": [*map(str, query.statuses)]}),
        (bool(query.asked_by), _is_author, _principal_params(query.asked_by)),
        (query.since is not None, steps.c.created_at >= bindparam("since"), {"since": query.since}),
        (query.until is not None, steps.c.created_at < bindparam("until"), {"until": query.until}),
    )
    return _calls.where(*conditions), values


_count_pending = (
    sa.select(sa.func.count())
    .select_from(steps)
    .join(turns, turns.c.id == steps.c.turn_id)
    .where(
        is_live(turns),
        steps.c.kind == "tool",
        steps.c.status == StepStatus.AWAITING.value,
        has_prefix(turns.c.conversation, "key_prefix"),
        _is_of_server,
    )
)


class SqlReporting(Store):
    """Pages of conversations, calls and the audit, and the pending work and recent turns of a user. `limits` are those
    on the turns of one user.
    """

    def __init__(self, database: Database, limits: TurnLimits = NO_TURN_LIMITS) -> None:
        super().__init__(database)
        self._limits = limits

    # ------------------------------------------------------------------ conversations

    @report
    def conversations(
        self, connection: sa.Connection, key_prefix: str, principal: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """Return a page of conversations, newest first, and the number of all."""
        page, count = (_page_of_user, _count_of_user) if principal else (_page_of_workspace, _count_of_workspace)
        values = {**prefix_bounds("key_prefix", key_prefix), **_principal_params(principal)}
        rows = connection.execute(page, {**values, "limit": limit, "offset": offset})
        return [_summary(row) for row in rows], connection.execute(count, values).scalar_one()

    @report
    def summary(self, connection: sa.Connection, conversation: ConversationKey) -> ConversationSummary | None:
        """Return the summary of a conversation, `None` if it does not exist."""
        row = connection.execute(_conversation, {"k": str(conversation), "limit": 1, "offset": 0}).first()
        return None if row is None else _summary(row)

    @change_once
    def create(self, connection: sa.Connection, conversation: ConversationKey, title: str) -> bool:
        """Add an empty conversation. Return False if it exists."""
        values = {"key": str(conversation), "title": " ".join(title.split())[:TITLE_LENGTH]}
        return connection.execute(_create.on(connection), values).first() is not None

    @report
    def has_participant(self, connection: sa.Connection, conversation: ConversationKey, principal: str) -> bool:
        """Return True if the user is the author of a turn in the conversation."""
        values = {"k": str(conversation), **_principal_params(principal)}
        return connection.execute(_turn_of_principal, values).first() is not None

    @report
    def active_conversations(
        self, connection: sa.Connection, key_prefix: str, seconds: float, limit: int
    ) -> Sequence[ConversationKey]:
        """Return the recently active conversations, newest first."""
        values = {**prefix_bounds("key_prefix", key_prefix), "seconds": seconds, "limit": limit}
        return [ConversationKey.parse(key) for key in connection.execute(_active, values).scalars()]

    @change_once
    def delete(self, connection: sa.Connection, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        return retention.delete_conversation(connection, conversation, by)

    # ------------------------------------------------------------------ calls, the audit, counts

    @report
    def calls(
        self, connection: sa.Connection, query: CallQuery, limit: int, offset: int
    ) -> tuple[Sequence[CallSummary], int]:
        """Return a page of the matching calls, newest first, and the number of all."""
        matching, values = _matching_calls(connection, query)
        page = (
            matching.order_by(steps.c.created_at.desc(), steps.c.turn_id, steps.c.n.desc())
            .limit(bindparam("limit"))
            .offset(bindparam("offset"))
        )
        count = sa.select(sa.func.count()).select_from(matching.with_only_columns(steps.c.n).subquery())
        rows = connection.execute(page, {**values, "limit": limit, "offset": offset})
        return [_call(row) for row in rows], connection.execute(count, values).scalar_one()

    @report
    def count_pending(self, connection: sa.Connection, server: str) -> int:
        """Return the number of calls to a server's tools that await approval. `server` is its id or slug."""
        slug, workspace = _slug_and_workspace(connection, server)
        values = {"server": slug, **prefix_bounds("key_prefix", _prefix_of(workspace))}
        return int(connection.execute(_count_pending, values).scalar_one())

    @report
    def audit(
        self, connection: sa.Connection, query: AuditQuery, limit: int, offset: int
    ) -> tuple[Sequence[AuditEntry], int]:
        """Return a page of the audit, newest first, and the number of all matching rows."""
        return audit.read_page(connection, query, limit, offset)

    @report
    def backlog(self, connection: sa.Connection) -> Backlog:
        """Return the amount of unfinished work."""
        return activity.read_backlog(connection, self._limits.running)

    @report
    def activity(self, connection: sa.Connection, since: float, workspace: str, server: str) -> Activity:
        """Return the activity since `since`, in epoch seconds."""
        return activity.read_activity(connection, since, workspace, server)

    # ------------------------------------------------------------------ one user

    @report
    def pending_approvals(
        self,
        connection: sa.Connection,
        key_prefixes: Sequence[str],
        limit: int,
        behind: PendingApprovalPosition | None = None,
        *,
        oldest_first: bool = False,
    ) -> PendingApprovalPage:
        """Return calls that await approval, newest first unless `oldest_first`."""
        values: dict[str, object] = {"limit": limit}
        for n, prefix in enumerate(key_prefixes):
            values |= prefix_bounds(f"key_prefix{n}", prefix)
        if behind is not None:
            values |= {"at": behind.at, "id": behind.approval_id}
        query = _awaiting(len(key_prefixes), behind=behind is not None, oldest_first=oldest_first)
        rows = connection.execute(query, values).all()
        last = PendingApprovalPosition(rows[-1].created_at, rows[-1].id) if len(rows) == limit else None
        return PendingApprovalPage([call for row in rows if (call := _pending_approval(row)) is not None], last)

    @report
    def recent_turns(self, connection: sa.Connection, principal: str, key_prefix: str, limit: int) -> Sequence[Turn]:
        """Return a user's recent turns, newest first."""
        values = {**_principal_params(principal), **prefix_bounds("key_prefix", key_prefix), "limit": limit}
        rows = connection.execute(_turns_of_principal, values)
        turns = []
        for row in rows:
            try:
                turns.append(read_turn(row))
            except UNREADABLE as error:
                log.warning("turn %s: unreadable, left out of the recent turns: %r", row.id, error)
        return turns

    @report
    def open_elicitations(
        self, connection: sa.Connection, principal: str, key_prefix: str, limit: int
    ) -> Sequence[str]:
        """Return the ids of a user's open elicitations, newest first."""
        values = {**_principal_params(principal), **prefix_bounds("key_prefix", key_prefix), "limit": limit}
        return connection.execute(_open_elicitations, values).scalars().all()


def _summary(row: Any) -> ConversationSummary:
    return ConversationSummary(**{**row._asdict(), "key": ConversationKey.parse(row.key)})


def _call(row: Any) -> CallSummary:
    is_timed = row.started_at is not None and row.ended_at is not None
    return CallSummary(
        **{name: getattr(row, name) for name in ("status", "asked_by", "decided_by", "turn_id", "n")},
        at=row.created_at,
        name=_name(row.body),
        seconds=float(row.ended_at - row.started_at) if is_timed else None,
        conversation=ConversationKey.parse(row.conversation),
        error=_error(row.result),
    )


def _error(result: str | None) -> str:
    """Return the text of a stored result, empty without one or if it is unreadable."""
    try:
        return decode(ToolResult, json.loads(result)).text[:LONGEST_ERROR] if result else ""
    except UNREADABLE:
        return ""


def _slug_and_workspace(connection: sa.Connection, server: str) -> tuple[str, str]:
    row = connection.execute(_server, {"i": server}).first()
    return (server.removeprefix(FILE), EVERYWHERE) if row is None else (row.slug, row.workspace)


def _prefix_of(workspace: str) -> str:
    return f"{workspace}:" if workspace else ""


def _name(body: str) -> str:
    """Return `server.tool`, or the name in the model's request if no such tool exists."""
    try:
        read = json.loads(body)
        tool = read["tool"]
        return f"{tool['server']}.{tool['name']}" if tool else str(read["call"]["name"]) or _NO_TOOL
    except (ValueError, TypeError, LookupError):
        return _UNREADABLE


@lru_cache
def _requirements(text: str) -> ApprovalRequirements:
    return decode(ApprovalRequirements, json.loads(text))


def _pending_approval(row: Any) -> PendingApproval | None:
    conversation = ConversationKey.parse(row.conversation)
    try:
        requirements = _requirements(row.requirements)
    except UNREADABLE as error:
        log.warning("approval %s: requirements unreadable, left out: %r", row.id, error)
        return None
    asker = Author(conversation.author_platform, row.requested_for_id, row.requested_for_name)
    agent = AgentRef(row.agent_id, "") if row.agent_id else None
    times = {"asked_at": row.created_at, "waited": row.waited}
    return PendingApproval(
        row.id, conversation, asker, requirements, frozenset(row.editors or ()), agent=agent, **times
    )


def _principal_params(principal: str) -> dict[str, str]:
    """Return a principal as query parameters."""
    return {"principal": principal.partition(":")[2], "person": principal} if principal else {}
