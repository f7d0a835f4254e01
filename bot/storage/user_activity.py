"""Queries about one user: pending approvals, open elicitations and recent turns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import StepStatus, Turn
from bot.ports import PendingApproval, PendingApprovalPage, PendingApprovalPosition
from bot.storage.clock import now
from bot.storage.codec import read_terms
from bot.storage.conversation_reports import principal_params
from bot.storage.key_prefix import has_prefix, prefix_bounds
from bot.storage.tables import StorableText, approvals, elicitations, steps, turns
from bot.storage.turn_reader import UNREADABLE, read_turn

log = logging.getLogger(__name__)

# Unfinished turns are few and have an index. Planners otherwise read all turns of a workspace.
# Written as in that index's condition, because planners use it only then.
_live = (
    sa.select(turns.c.id, turns.c.conversation)
    .where(sa.text("status in ('queued', 'running', 'waiting')"))
    .cte("live")
    .prefix_with("materialized")
)
_awaited = (
    sa.select(
        approvals.c.id,
        approvals.c.requested_for_id,
        approvals.c.requested_for_name,
        approvals.c.terms,
        approvals.c.editors,
        steps.c.created_at,
        _live.c.conversation,
    )
    .select_from(_live)
    .join(steps, steps.c.turn_id == _live.c.id)
    .join(approvals, sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n))
    .where(
        steps.c.status == StepStatus.AWAITING.value,
        sa.or_(approvals.c.expires_at.is_(None), approvals.c.expires_at > now()),
    )
    .order_by(steps.c.created_at.desc(), approvals.c.id)
    .limit(bindparam("limit"))
)
_at, _id = bindparam("at", type_=sa.Double), bindparam("id", type_=sa.Text)
_behind = sa.or_(steps.c.created_at < _at, sa.and_(steps.c.created_at == _at, approvals.c.id > _id))
_inquired = (
    sa.select(elicitations.c.id)
    .select_from(_live)
    .join(turns, turns.c.id == _live.c.id)
    .join(elicitations, elicitations.c.turn_id == _live.c.id)
    .where(
        turns.c.author_id == bindparam("person", type_=StorableText),
        has_prefix(_live.c.conversation, "platform"),
        has_prefix(_live.c.conversation, "reach"),
        elicitations.c.status == "open",
        sa.or_(elicitations.c.expires_at.is_(None), elicitations.c.expires_at > now()),
    )
    .order_by(elicitations.c.created_at.desc(), elicitations.c.id)
    .limit(bindparam("limit"))
)
_asked = (
    sa.select(turns)
    .where(
        turns.c.author_id == bindparam("person", type_=StorableText),
        has_prefix(turns.c.conversation, "platform"),
        has_prefix(turns.c.conversation, "reach"),
    )
    .order_by(turns.c.created_at.desc(), turns.c.seq.desc(), turns.c.id)
    .limit(bindparam("limit"))
)


@cache
def _awaited_in(reaches: int, *, behind: bool) -> sa.Select[Any]:
    """Return the query for a number of key prefixes, after a position if `behind`."""
    select = _awaited.where(sa.or_(*(has_prefix(_live.c.conversation, f"reach{n}") for n in range(reaches))))
    return select.where(_behind) if behind else select


def read_waiting(
    connection: sa.Connection, prefixes: Sequence[str], limit: int, behind: PendingApprovalPosition | None
) -> PendingApprovalPage:
    """Return up to `limit` calls that await approval in conversations with one of the key prefixes, newest first."""
    values: dict[str, object] = {"limit": limit}
    for n, prefix in enumerate(prefixes):
        values |= prefix_bounds(f"reach{n}", prefix)
    if behind is not None:
        values |= {"at": behind.at, "id": behind.approval_id}
    rows = connection.execute(_awaited_in(len(prefixes), behind=behind is not None), values).all()
    last = PendingApprovalPosition(rows[-1].created_at, rows[-1].id) if len(rows) == limit else None
    approvals: list[PendingApproval] = []
    for row in rows:
        conversation = ConversationKey.parse(row.conversation)
        asker = Author(conversation.platform, row.requested_for_id, row.requested_for_name)
        try:
            terms = read_terms(row.terms)
        except UNREADABLE as error:
            log.warning("approval %s: requirements unreadable, left out: %r", row.id, error)
        else:
            editors = frozenset(row.editors or ())
            approvals.append(PendingApproval(row.id, conversation, asker, terms, editors, row.created_at))
    return PendingApprovalPage(approvals, last)


def read_open_elicitations(connection: sa.Connection, person: str, prefix: str, limit: int) -> Sequence[str]:
    """Return the ids of a user's open elicitations in conversations with a key prefix, newest first."""
    rows = connection.execute(_inquired, {**principal_params(person), **prefix_bounds("reach", prefix), "limit": limit})
    return rows.scalars().all()


def read_recent_turns(connection: sa.Connection, person: str, prefix: str, limit: int) -> Sequence[Turn]:
    """Return a user's recent turns in conversations with a key prefix, newest first."""
    rows = connection.execute(_asked, {**principal_params(person), **prefix_bounds("reach", prefix), "limit": limit})
    return [turn for row in rows if (turn := _readable(row)) is not None]


def _readable(row: sa.Row[tuple[object, ...]]) -> Turn | None:
    try:
        return read_turn(row)
    except UNREADABLE as error:
        log.warning("turn %s: unreadable, left out of the recent turns: %r", row.id, error)
        return None
