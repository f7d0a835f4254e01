"""Who may drive a turn: claiming, renewing, giving back, and proving it before every write.

Leases run on the database's clock. On PostgreSQL a turn whose lease ran out is anybody's. On SQLite there is one
process that claims; what a dead one left is adopted once, at start, and a lease that ran out while the machine slept
takes nothing away from its owner.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import ConversationKey
from bot.domain.turns import NO_TURN_LIMITS, Claim, StepStatus, TurnLimits, TurnRecord, TurnStatus
from bot.errors import LostLease, Stopped
from bot.storage import elicitation_rows
from bot.storage.audit_calls import record_finished
from bot.storage.clock import now
from bot.storage.pg_notify import notify_all
from bot.storage.tables import deliveries, is_active, is_live, steps, turns
from bot.storage.turn_completion import (
    LEASE_SECONDS,
    expire_overdue,
    mark_queued_views_stale,
    mark_view_stale,
    record_expired,
)
from bot.storage.turn_reader import UNREADABLE, read_turn

# -------------------- fair shares


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that could run now. `created_at` is in epoch seconds."""

    id: str
    person: str
    workspace: str
    conversation: str
    created_at: float


@dataclass(slots=True)
class Loads:
    """How many turns run in all processes, by person and by workspace."""

    persons: Counter[str] = field(default_factory=Counter)
    workspaces: Counter[str] = field(default_factory=Counter)

    def add(self, person: str, workspace: str, running: int = 1) -> None:
        """Count turns that run."""
        self.persons[person] += running
        self.workspaces[workspace] += running


def choose_turns(
    waiting: Iterable[WaitingTurn], loads: Loads, *, most_running: int, places: int
) -> Sequence[WaitingTurn]:
    """Return the turns to claim, at most `places`, and count them in `loads`.

    The person with the fewest running turns goes first; among equals, the workspace with the fewest; then the oldest
    turn. A person with `most_running` gets no more.
    """
    queues: dict[str, list[WaitingTurn]] = defaultdict(list)
    for turn in sorted(waiting, key=_age, reverse=True):
        queues[turn.person].append(turn)
    chosen: list[WaitingTurn] = []
    while len(chosen) < places:
        heads = [queue[-1] for person, queue in queues.items() if queue and loads.persons[person] < most_running]
        if not heads:
            break
        turn = min(heads, key=lambda head: (loads.persons[head.person], loads.workspaces[head.workspace], *_age(head)))
        queues[turn.person].pop()
        loads.add(turn.person, turn.workspace)
        chosen.append(turn)
    return chosen


def _age(turn: WaitingTurn) -> tuple[float, str]:
    return turn.created_at, turn.conversation


_wanted = sa.select(deliveries.c.wanted).where(deliveries.c.turn_id == turns.c.id).scalar_subquery()
_other = turns.alias("other")
_CLAIMS = 0x636C61696D73
"""PostgreSQL's advisory lock on claims: what one has claimed is committed before the next one counts."""

_woken = sa.and_(turns.c.status == TurnStatus.WAITING, turns.c.wake_at <= now())
_is_due = sa.or_(turns.c.status == TurnStatus.QUEUED, _woken)
"""New turns, and those for which everything that they waited for is settled."""
_is_running = turns.c.status == TurnStatus.RUNNING
_orphaned = sa.and_(_is_running, turns.c.owner.is_(None))
# Claimed by this process, though it knows nothing of it: the answer to that COMMIT was lost on the way.
_forgotten = sa.and_(
    _is_running, turns.c.owner == bindparam("me"), turns.c.id.not_in(bindparam("holding", expanding=True))
)
_abandoned = sa.and_(_is_running, turns.c.lease_until <= now())
_LOST = {
    "sqlite": sa.or_(_orphaned, _forgotten),
    "postgresql": sa.or_(_orphaned, _forgotten, _abandoned),
}
"""Turns that count as running and have lost their process."""
_is_first = ~sa.exists().where(
    _other.c.conversation == turns.c.conversation,
    is_live(_other),
    _other.c.id != turns.c.id,
    # An active one cannot come later; if it does all the same, the claims of others must not fail with it.
    sa.or_(_other.c.seq < turns.c.seq, is_active(_other)),
)
"""Turns that wait for no other of their conversation."""
_lock_claims = sa.select(sa.func.pg_advisory_xact_lock(_CLAIMS))


def _number(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


@lru_cache
def _loads(dialect: str) -> sa.Select[Any]:
    """What every person has in every workspace that has not ended."""
    return (
        sa.select(
            turns.c.person,
            turns.c.workspace,
            _number(_is_running).label("running"),
            _number(_LOST[dialect]).label("lost"),
            sa.func.min(sa.case((_is_due, turns.c.created_at))).label("waits_since"),
        )
        .where(is_live(turns))
        .group_by(turns.c.person, turns.c.workspace)
    )


def _is_ours(reaches: tuple[str, ...]) -> sa.ColumnElement[bool]:
    """Turns that this process could draw and does not hold."""
    return sa.and_(
        sa.or_(*(sa.func.substr(turns.c.conversation + ":", 1, len(reach)) == reach for reach in reaches)),
        turns.c.id.not_in(bindparam("holding", expanding=True)),
    )


@lru_cache
def _lost_within(dialect: str, reaches: tuple[str, ...]) -> sa.Select[str]:
    return (
        sa.select(turns.c.id)
        .where(is_live(turns), _LOST[dialect], _is_ours(reaches), _is_first)
        .order_by(turns.c.created_at, turns.c.conversation)
        .limit(bindparam("limit"))
    )


@lru_cache
def _waiting_within(reaches: tuple[str, ...]) -> sa.Select[Any]:
    """The turns of some persons that could run now."""
    return sa.select(turns.c.id, turns.c.person, turns.c.workspace, turns.c.conversation, turns.c.created_at).where(
        is_live(turns),
        turns.c.person.in_(bindparam("persons", expanding=True)),
        _is_due,
        _is_ours(reaches),
        _is_first,
    )


@lru_cache
def _claim_of(dialect: str) -> sa.sql.dml.ReturningUpdate[Any]:
    """The claim of chosen turns. Looked at again under the lock: one may have been stopped meanwhile. Rows that another
    transaction changes at this moment are skipped.
    """
    chosen = (
        sa.select(turns.c.id)
        .where(turns.c.id.in_(bindparam("ids", expanding=True)), sa.or_(_is_due, _LOST[dialect]))
        .with_for_update(skip_locked=True, key_share=True)
        .cte("chosen")
    )
    return (
        turns.update()
        .where(turns.c.id.in_(sa.select(chosen.c.id)))
        .values(
            status=TurnStatus.RUNNING,
            owner=bindparam("me"),
            fence=turns.c.fence + 1,
            lease_until=now() + LEASE_SECONDS,
            wake_at=None,
            recoveries=turns.c.recoveries + sa.case((turns.c.status == TurnStatus.RUNNING, 1), else_=0),
        )
        .returning(turns, _wanted.label("revision"))
    )


# Its first message is posted while it is driven. Were the drawing nobody's until that is out, a turn that ends sooner
# would be anybody's to post as well.
_take_drawings = (
    deliveries.update()
    .where(deliveries.c.turn_id.in_(bindparam("ids", expanding=True)), deliveries.c.owner.is_(None))
    .values(owner=bindparam("me"), lease_until=now() + LEASE_SECONDS)
)
_adopt = turns.update().where(turns.c.status == TurnStatus.RUNNING).values(owner=None, lease_until=None)
_put_down_all = deliveries.update().where(deliveries.c.owner.is_not(None)).values(owner=None, lease_until=None)
# A turn that a transaction has in its hands is passed over: that transaction has renewed the lease itself, and one that
# waits for something must not cost the other turns theirs.
_within_reach = (
    sa.select(turns.c.id)
    .where(
        turns.c.id.in_(bindparam("ids", expanding=True)),
        turns.c.owner == bindparam("me"),
        turns.c.status == TurnStatus.RUNNING,
    )
    .with_for_update(skip_locked=True, key_share=True)
    .cte("within_reach")
)
_renew_all = (
    turns.update().where(turns.c.id.in_(sa.select(_within_reach.c.id))).values(lease_until=now() + LEASE_SECONDS)
)
_driven = sa.select(turns.c.id, turns.c.fence, turns.c.stop_by).where(
    turns.c.id.in_(bindparam("ids", expanding=True)), turns.c.status == TurnStatus.RUNNING
)
_renew = (
    turns.update()
    .where(turns.c.id == bindparam("t"), turns.c.fence == bindparam("f"), turns.c.status == TurnStatus.RUNNING)
    .values(lease_until=now() + LEASE_SECONDS)
    .returning(turns.c.stop_by, _wanted.label("revision"))
)
_release = (
    turns.update()
    .where(turns.c.id == bindparam("t"), turns.c.fence == bindparam("f"), turns.c.status == TurnStatus.RUNNING)
    # Queued, not abandoned: a hand-over in good order is no recovery.
    .values(status=TurnStatus.QUEUED, owner=None, lease_until=None)
)
_reopen = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.status == StepStatus.STARTED,
        steps.c.fence < bindparam("f"),
    )
    .values(status=sa.case((steps.c.repeatable, StepStatus.READY.value), else_=StepStatus.UNKNOWN.value))
    .returning(steps.c.n, steps.c.status)
)


def adopt_orphans(connection: sa.Connection) -> None:
    """Take over what a dead process was driving. Only for the process that holds the lock file."""
    connection.execute(_adopt)
    connection.execute(_put_down_all)


def claim(
    connection: sa.Connection,
    me: str,
    limit: int,
    reaches: tuple[str, ...],
    holding: Collection[str],
    *,
    limits: TurnLimits = NO_TURN_LIMITS,
) -> Sequence[Claim]:
    """Take turns that can go on now, shared fairly among persons and workspaces, of conversations that one of `reaches`
    takes in, but none that this process has in its hands already: its clock may have jumped, or it may have slept past
    its lease.
    """
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(_lock_claims)
    given = {"me": me, "holding": list(holding)}
    ids = _choose(connection, given, limit, reaches, limits)
    if not ids:
        return []
    places = {turn_id: place for place, turn_id in enumerate(ids)}
    rows = sorted(connection.execute(_claim_of(dialect), {**given, "ids": ids}).all(), key=lambda row: places[row.id])
    if never_drawn := [row.id for row in rows if row.revision == 0]:
        connection.execute(_take_drawings, {"me": me, "ids": never_drawn})
    return [claimed(row) for row in rows]


def _choose(
    connection: sa.Connection, given: Mapping[str, Any], limit: int, reaches: tuple[str, ...], limits: TurnLimits
) -> Sequence[str]:
    """The turns to claim, those that have lost their process first."""
    dialect = connection.dialect.name
    loads, waits, lost = Loads(), dict[str, tuple[float, str]](), 0
    for row in connection.execute(_loads(dialect), given):
        loads.add(row.person, row.workspace, row.running)
        lost += row.lost
        if row.waits_since is not None:
            first = (row.waits_since, row.workspace)
            waits[row.person] = min(first, waits.get(row.person, first))
    ids: list[str] = []
    if lost:
        ids += connection.execute(_lost_within(dialect, reaches), {**given, "limit": limit}).scalars().all()
    places = limit - len(ids)
    persons = sorted(
        (person for person in waits if loads.persons[person] < limits.running),
        key=lambda person: (loads.persons[person], loads.workspaces[waits[person][1]], waits[person]),
    )
    waiting: list[WaitingTurn] = []
    at_once = limit
    while persons and len({turn.person for turn in waiting}) < places:
        # Those of later persons are read only where these have nothing that can go on.
        some, persons = persons[:at_once], persons[at_once:]
        rows = connection.execute(_waiting_within(reaches), {**given, "persons": some})
        waiting += (WaitingTurn(*row) for row in rows)
        at_once *= 4
    chosen = choose_turns(waiting, loads, most_running=limits.running, places=places)
    return [*ids, *(turn.id for turn in chosen)]


def claimed(row: Any) -> Claim:
    """The claim on a turn whose row is ours now, with its revision beside."""
    fresh = None
    # What cannot be read must not take the other claims along. Whoever drives it finds out.
    with contextlib.suppress(*UNREADABLE):
        # Nobody has driven it before: there is nothing to settle and there are no steps to read.
        fresh = TurnRecord(read_turn(row), (), row.revision) if row.fence == 1 else None
    where = ConversationKey.parse(row.conversation)
    return Claim(row.id, where, row.fence, row.recoveries, fresh, person=row.person)


def renew(connection: sa.Connection, me: str, claims: Sequence[Claim]) -> frozenset[str]:
    """Renew leases; the ids of the turns that are still ours and that nobody wants stopped."""
    fences = {each.turn_id: each.fence for each in claims}
    connection.execute(_renew_all, {"ids": list(fences), "me": me})
    rows = connection.execute(_driven, {"ids": list(fences)}).all()
    return frozenset(row.id for row in rows if row.fence == fences[row.id] and row.stop_by is None)


def release(connection: sa.Connection, claims: Sequence[Claim]) -> None:
    """Give turns back so that anybody can go on with them at once."""
    for each in claims:
        connection.execute(_release, {"t": each.turn_id, "f": each.fence})
    notify_all(connection)


@dataclass(frozen=True, slots=True)
class Owned:
    """A turn that is still ours: its revision, and the name of whoever has stopped it."""

    revision: int
    stopped_by: str | None


def own(connection: sa.Connection, held: Claim) -> int:
    """Prove that the turn is still ours and renew its lease; its revision. Raises LostLease, or Stopped if a person
    stopped it.
    """
    owned = own_to_the_end(connection, held)
    if owned.stopped_by is not None:
        raise Stopped(held.turn_id)
    return owned.revision


def own_to_the_end(connection: sa.Connection, held: Claim) -> Owned:
    """Prove that the turn is still ours, stopped or not. Raises LostLease."""
    row = connection.execute(_renew, {"t": held.turn_id, "f": held.fence}).first()
    if row is None:
        raise LostLease(held.turn_id)
    return Owned(row.revision, row.stop_by)


def settle_leftovers(connection: sa.Connection, held: Claim) -> None:
    """Settle what the previous owner had in flight and what has timed out since."""
    if held.fence == 1:
        return  # there was no previous owner
    reopened = connection.execute(_reopen, {"t": held.turn_id, "f": held.fence}).all()
    expired = expire_overdue(connection, held.turn_id)
    settled = elicitation_rows.settle(connection, held.turn_id, held.fence)
    if expired or reopened or settled:
        mark_view_stale(connection, held.turn_id)
    if expired:
        mark_queued_views_stale(connection, held.turn_id)
    for step in reopened:
        if step.status == StepStatus.UNKNOWN:
            record_finished(connection, held.turn_id, step.n)
    record_expired(connection, held.turn_id, expired)
