"""Counts for metrics and statistics: unfinished work now, and the activity of a period.

Unfinished work is read for every metrics request, so its cost does not grow with the history. In the activity of a
period, turns are counted in `turns`; calls and approvals in the audit, which outlives deleted conversations. One report
reads at most `MOST_ROWS` rows, the newest.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import DecisionType
from bot.domain.turns import StepStatus, TurnStatus
from bot.ports import Activity, ApprovalActivity, Backlog, ServerActivity
from bot.storage.audit import parse_facts
from bot.storage.database import StorableText, has_prefix, now, prefix_bounds
from bot.storage.tables import LIVE, audit, deliveries, is_live, steps, turns

MOST_ROWS = 20_000
_MOST = 10_000
"""Of each kind, counted no further."""

_since = bindparam("since", type_=sa.Double)
_recent_turns = (
    sa.select(turns.c.status)
    .where(turns.c.created_at >= _since, has_prefix(turns.c.conversation, "key_prefix"))
    .order_by(turns.c.created_at.desc())
    .limit(bindparam("limit"))
    .subquery()
)
_turns = sa.select(_recent_turns.c.status, sa.func.count().label("number")).group_by(_recent_turns.c.status)
_rows = (
    sa.select(audit.c.at, audit.c.kind, audit.c.turn_id, audit.c.body)
    .where(
        audit.c.at >= _since,
        audit.c.kind.in_(("asked", "decided", "expired", "ran")),
        has_prefix(audit.c.conversation, "key_prefix"),
    )
    .order_by(audit.c.at.desc(), audit.c.seq.desc())
    .limit(bindparam("limit"))
)

# Rows of expired approvals do not name the server.
_is_of_server = sa.or_(audit.c.subject == bindparam("server", type_=StorableText), audit.c.kind == "expired")
_live = (
    sa.select(turns.c.id, turns.c.conversation, turns.c.seq, turns.c.status, turns.c.created_at, turns.c.principal)
    .where(is_live(turns))
    .order_by(turns.c.created_at)
    .limit(_MOST)
    .cte("live")
    .prefix_with("materialized")
)
_earlier = _live.alias("ahead")
_by_status = sa.select(_live.c.status, sa.func.count().label("number")).group_by(_live.c.status)
_others = _live.alias("beside")
_waiting = (
    sa.select(sa.func.count())
    .select_from(_live.join(steps, steps.c.turn_id == _live.c.id))
    .where(steps.c.status == StepStatus.AWAITING.value)
)
_stale_views = sa.select(sa.func.count()).select_from(
    sa.select(deliveries.c.turn_id)
    .join(turns, turns.c.id == deliveries.c.turn_id)
    .where(sa.text("delivered_revision < revision"), turns.c.status != TurnStatus.RUNNING.value)
    .where(turns.c.content_deleted_at.is_(None))
    .limit(_MOST)
    .subquery()
)


@lru_cache
def _first_ready(most_running: int) -> sa.Select[float]:
    """Return a query for the age of the oldest claimable turn, in seconds."""
    at_limit = (
        sa.select(_others.c.principal)
        .where(_others.c.status == TurnStatus.RUNNING.value)
        .group_by(_others.c.principal)
        .having(sa.func.count() >= most_running)
    )
    return sa.select(now() - sa.func.min(_live.c.created_at)).where(
        _live.c.status == TurnStatus.QUEUED.value,
        ~sa.exists().where(_earlier.c.conversation == _live.c.conversation, _earlier.c.seq < _live.c.seq),
        _live.c.principal.not_in(at_limit),
    )


def read_backlog(connection: sa.Connection, most_running: int) -> Backlog:
    """Return the amount of unfinished work, with at most `most_running` turns of one user at a time."""
    numbers = {row.status: row.number for row in connection.execute(_by_status)}
    return Backlog(
        turns={status: numbers.get(status, 0) for status in LIVE},
        oldest_ready=max(0.0, connection.execute(_first_ready(most_running)).scalar() or 0.0),
        approvals=connection.execute(_waiting).scalar_one(),
        drawings=connection.execute(_stale_views).scalar_one(),
    )


_Approval = tuple[float, str, float]
"""Times of an approval's request and end in epoch seconds, with its outcome between them."""


def read_activity(
    connection: sa.Connection, since: float, workspace: str, server: str, limit: int = MOST_ROWS
) -> Activity:
    """Return the activity since `since` (epoch seconds), from at most `limit` turns and `limit` audit rows, newest
    first.
    """
    values: dict[str, Any] = {
        "since": since,
        "limit": limit,
        **prefix_bounds("key_prefix", f"{workspace}:" if workspace else ""),
    }
    statuses = {row.status: row.number for row in connection.execute(_turns, values)}
    rows = connection.execute(_rows.where(_is_of_server) if server else _rows, {**values, "server": server}).all()
    calls: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    approvals: dict[tuple[str, object], _Approval] = {}
    for row in reversed(rows):
        facts = parse_facts(row.body) or {}
        call_key = (row.turn_id, facts.get("step"))
        match row.kind:
            case "ran":
                calls[str(facts.get("server", ""))].append(facts)
            case "asked":
                approvals[call_key] = (row.at, "", 0.0)
            case kind if call_key in approvals:
                # Approvals requested before the period are not counted.
                outcome = "expired" if kind == "expired" else str(facts.get("verdict", ""))
                approvals[call_key] = (approvals[call_key][0], outcome, row.at)
            case _:
                pass
    servers = [_server_activity(name, served) for name, served in calls.items()]
    return Activity(
        turns=statuses,
        servers=tuple(sorted(servers, key=lambda row: (-row.calls, row.server))),
        approvals=_approval_activity(approvals.values()),
        whole=len(rows) < limit and sum(statuses.values()) < limit,
    )


def _server_activity(server: str, calls: Sequence[Mapping[str, Any]]) -> ServerActivity:
    succeeded = sum(facts.get("status") == StepStatus.DONE.value for facts in calls)
    times = [float(took) for facts in calls if isinstance(took := facts.get("seconds"), int | float)]
    return ServerActivity(server, len(calls), succeeded, _quantile(times, 0.5), _quantile(times, 0.95))


def _approval_activity(approvals: Iterable[_Approval]) -> ApprovalActivity:
    listed = list(approvals)
    outcomes = Counter(outcome for _, outcome, _ in listed)
    decided = [ended_at - asked_at for asked_at, outcome, ended_at in listed if outcome in tuple(DecisionType)]
    return ApprovalActivity(
        requested=len(listed),
        approved=outcomes[DecisionType.APPROVE.value],
        denied=outcomes[DecisionType.DENY.value],
        expired=outcomes["expired"],
        median=_quantile(decided, 0.5),
    )


def _quantile(seconds: Sequence[float], fraction: float) -> float | None:
    """Return the nearest-rank quantile, `None` without values."""
    return sorted(seconds)[math.ceil(fraction * len(seconds)) - 1] if seconds else None
