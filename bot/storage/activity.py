"""What has happened in a while, counted from rows: turns from their own, calls and signatures from the audit, which
keeps them when a conversation is deleted. One look reads a limited number of rows, the latest.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import DecisionType
from bot.domain.turns import StepStatus
from bot.ports import Activity, ApprovalActivity, ServerActivity
from bot.storage.key_prefix import has_prefix, prefix_bounds
from bot.storage.tables import StorableText, audit, turns

MOST_ROWS = 20_000

_since = bindparam("since", type_=sa.Double)
_asked_for = (
    sa.select(turns.c.status)
    .where(turns.c.created_at >= _since, has_prefix(turns.c.conversation, "home"))
    .order_by(turns.c.created_at.desc())
    .limit(bindparam("limit"))
    .subquery()
)
_turns = sa.select(_asked_for.c.status, sa.func.count().label("number")).group_by(_asked_for.c.status)
_rows = (
    sa.select(audit.c.at, audit.c.kind, audit.c.turn_id, audit.c.body)
    .where(
        audit.c.at >= _since,
        audit.c.kind.in_(("asked", "decided", "expired", "ran")),
        has_prefix(audit.c.conversation, "home"),
    )
    .order_by(audit.c.at.desc(), audit.c.seq.desc())
    .limit(bindparam("limit"))
)
# That an approval has expired is told of its turn alone.
_theirs = sa.or_(audit.c.subject == bindparam("server", type_=StorableText), audit.c.kind == "expired")


@dataclass(slots=True)
class _Approval:
    """A signature that was asked for: when, and what has become of it by when."""

    asked_at: float
    outcome: str = ""
    ended_at: float = 0.0


@dataclass(slots=True)
class _Calls:
    count: int = 0
    succeeded: int = 0
    seconds: list[float] = field(default_factory=list)


def read_activity(
    connection: sa.Connection, since: float, workspace: str, server: str, limit: int = MOST_ROWS
) -> Activity:
    """What has happened since then; at most the latest `limit` turns, and rows of the audit."""
    values: dict[str, Any] = {
        "since": since,
        "limit": limit,
        **prefix_bounds("home", f"{workspace}:" if workspace else ""),
    }
    statuses = {row.status: row.number for row in connection.execute(_turns, values)}
    rows = connection.execute(_rows.where(_theirs) if server else _rows, {**values, "server": server}).all()
    calls: defaultdict[str, _Calls] = defaultdict(_Calls)
    approvals: dict[tuple[str, object], _Approval] = {}
    for row in reversed(rows):
        facts = _facts(row.body)
        this = (row.turn_id, facts.get("step"))
        match row.kind:
            case "ran":
                _count(calls[str(facts.get("server", ""))], facts)
            case "asked":
                approvals[this] = _Approval(row.at)
            case kind if this in approvals:
                # Whatever was asked for before that time is none of this while's.
                approvals[this].outcome = "expired" if kind == "expired" else str(facts.get("verdict", ""))
                approvals[this].ended_at = row.at
            case _:
                pass
    return Activity(
        turns=statuses,
        servers=tuple(
            sorted((_of(name, each) for name, each in calls.items()), key=lambda each: (-each.calls, each.server))
        ),
        approvals=_of_approvals(approvals.values()),
        whole=len(rows) < limit and sum(statuses.values()) < limit,
    )


def _count(calls: _Calls, facts: Mapping[str, Any]) -> None:
    calls.count += 1
    calls.succeeded += facts.get("status") == StepStatus.DONE.value
    if isinstance(seconds := facts.get("seconds"), int | float):
        calls.seconds.append(float(seconds))


def _of(server: str, calls: _Calls) -> ServerActivity:
    return ServerActivity(
        server, calls.count, calls.succeeded, _quantile(calls.seconds, 0.5), _quantile(calls.seconds, 0.95)
    )


def _of_approvals(approvals: Iterable[_Approval]) -> ApprovalActivity:
    known = list(approvals)
    outcomes = Counter(each.outcome for each in known)
    decided = [each.ended_at - each.asked_at for each in known if each.outcome in tuple(DecisionType)]
    return ApprovalActivity(
        asked=len(known),
        approved=outcomes[DecisionType.APPROVE.value],
        denied=outcomes[DecisionType.DENY.value],
        expired=outcomes["expired"],
        median=_quantile(decided, 0.5),
    )


def _quantile(seconds: Sequence[float], part: float) -> float | None:
    """The smallest of them that this part of all does not exceed."""
    return sorted(seconds)[math.ceil(part * len(seconds)) - 1] if seconds else None


def _facts(body: str) -> Mapping[str, Any]:
    """What a row says; nothing if somebody has made it unreadable."""
    try:
        return dict(json.loads(body))
    except (TypeError, ValueError):
        return {}
