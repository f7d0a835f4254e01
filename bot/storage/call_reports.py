"""Reports of tool calls: pages of past calls and the number of pending ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bot.domain.servers import EVERYWHERE, FILE
from bot.domain.turns import StepStatus
from bot.ports import CallSummary
from bot.storage.key_prefix import has_prefix, prefix_bounds
from bot.storage.tables import StorableText, approvals, is_live, mcp_servers, steps, turns

_UNREADABLE = "(unreadable)"
_ESCAPES = r"(?<!\\)((?:\\\\)*)\\u[0-9a-fA-F]{4}"
"""Taken out before PostgreSQL looks into JSON: it refuses NUL and halves of surrogate pairs, and no slug has any."""


class server_of(FunctionElement[str]):  # noqa: N801 - reads as SQL
    """SQL expression: the slug of the server in the body of a call's step."""

    type = sa.Text()
    inherit_cache = True


@compiles(server_of)
def _in_sqlite(element: server_of, compiler: Any, **arguments: Any) -> str:
    (body,) = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"case when json_valid({body}) then json_extract({body}, '$.tool.server') end"


@compiles(server_of, "postgresql")
def _in_postgresql(element: server_of, compiler: Any, **arguments: Any) -> str:
    (body,) = (compiler.process(clause, **arguments) for clause in element.clauses)
    return rf"(regexp_replace({body}::text, '{_ESCAPES}', '\1', 'g')::json -> 'tool' ->> 'server')"


_named = sa.select(mcp_servers.c.slug, mcp_servers.c.workspace).where(mcp_servers.c.id == bindparam("i"))
_is_theirs = server_of(steps.c.body) == bindparam("server", type_=StorableText)
_here = sa.and_(steps.c.kind == "tool", has_prefix(turns.c.conversation, "reach"))
_calls = sa.select(steps.c.turn_id).join(turns, turns.c.id == steps.c.turn_id).where(_here)
_page = (
    sa.select(
        steps.c.turn_id,
        # As text, because an unreadable body must not hide the other calls.
        sa.cast(steps.c.body, sa.Text).label("body"),
        steps.c.status,
        steps.c.created_at,
        steps.c.started_at,
        steps.c.ended_at,
        sa.case((turns.c.author_name != "", turns.c.author_name), else_=turns.c.author_id).label("asked_by"),
        sa.func.coalesce(approvals.c.decided_by, "").label("decided_by"),
    )
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n))
    .where(_here)
    .order_by(steps.c.created_at.desc(), steps.c.turn_id, steps.c.n.desc())
    .limit(bindparam("limit"))
    .offset(bindparam("offset"))
)
_count = sa.select(sa.func.count()).select_from(_calls.subquery())
_their_page = _page.where(_is_theirs)
_their_count = sa.select(sa.func.count()).select_from(_calls.where(_is_theirs).subquery())
_running = (
    sa.select(sa.func.count())
    .select_from(steps)
    .join(turns, turns.c.id == steps.c.turn_id)
    .where(
        is_live(turns),
        steps.c.kind == "tool",
        steps.c.status == StepStatus.AWAITING.value,
        has_prefix(turns.c.conversation, "reach"),
        _is_theirs,
    )
)


def read_calls(
    connection: sa.Connection, server: str, workspace: str, limit: int, offset: int
) -> tuple[Sequence[CallSummary], int]:
    """Return a page of the calls to a server's tools in a workspace, newest first, and the number of all."""
    page, count = (_their_page, _their_count) if server else (_page, _count)
    values: dict[str, Any] = prefix_bounds("reach", _within(workspace))
    if server:
        values["server"] = _named_by(connection, server)[0]
    rows = connection.execute(page, {**values, "limit": limit, "offset": offset})
    return [
        CallSummary(
            at=row.created_at,
            name=_name(row.body),
            status=row.status,
            asked_by=row.asked_by,
            decided_by=row.decided_by,
            seconds=_seconds(row),
            turn_id=row.turn_id,
        )
        for row in rows
    ], connection.execute(count, values).scalar_one()


def count_waiting(connection: sa.Connection, server: str) -> int:
    """Return the number of calls to a server's tools that await approval."""
    slug, workspace = _named_by(connection, server)
    values = {"server": slug, **prefix_bounds("reach", _within(workspace))}
    return int(connection.execute(_running, values).scalar_one())


def _named_by(connection: sa.Connection, server: str) -> tuple[str, str]:
    """Return the slug and workspace of a server, from its id or slug."""
    row = connection.execute(_named, {"i": server}).first()
    return (server.removeprefix(FILE), EVERYWHERE) if row is None else (row.slug, row.workspace)


def _within(workspace: str) -> str:
    return f"{workspace}:" if workspace else ""


def _name(body: str) -> str:
    """Return `server.tool`, or the name in the model's request if no such tool exists."""
    try:
        read = json.loads(body)
        tool = read["tool"]
        return f"{tool['server']}.{tool['name']}" if tool else str(read["call"]["name"])
    except (ValueError, TypeError, LookupError):
        return _UNREADABLE


def _seconds(row: Any) -> float | None:
    """Return the duration of a call, `None` if it was not recorded."""
    return None if row.started_at is None or row.ended_at is None else float(row.ended_at - row.started_at)
