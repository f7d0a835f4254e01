"""Transitions of turns between their states, in shared transactions: claimed, released, suspended, requeued, ended;
locks and stale views.

A claim is proven before every write. Leases use the database's clock. Any process that can show a turn may claim it
when its lease has expired; on SQLite, a process that starts adopts those of dead ones at once.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.exc import IntegrityError

from bot.domain.conversations import ConversationKey
from bot.domain.metrics import ApprovalEnded, ApprovalOutcome, TurnEnded
from bot.domain.turns import OPEN, Claim, StepStatus, TurnLimits, TurnRecord, TurnStatus
from bot.errors import LostLease, Stopped
from bot.storage import audit
from bot.storage.audit import record_finished
from bot.storage.codec import UNREADABLE
from bot.storage.database import NO_RETRIES, Store, is_one_of, matching, now, record_metric, send_wakeup, transaction
from bot.storage.tables import (
    approval_of_step,
    approvals,
    count_where,
    deliveries,
    is_active,
    is_live,
    steps,
    this_delivery,
    this_turn,
    turns,
)
from bot.storage.turn_log import elicitation_rows
from bot.storage.turn_log.records import RecordCache, read_turn

LEASE_SECONDS = 15.0
"""Lease duration of claims and deliveries, in seconds."""

_NO_OWNER = {"owner": None, "lease_until": None}
_RENEWED = now() + LEASE_SECONDS

# FOR NO KEY UPDATE does not block inserts of rows that refer to the turn.
_lock = sa.select(turns.c.status, turns.c.stop_by).where(this_turn).with_for_update(key_share=True)
_of_turn_t = matching(steps, turn_id="t")
_is_unrepeatable = sa.and_(steps.c.status == StepStatus.STARTED, sa.not_(steps.c.repeatable))
_close_steps = (
    steps.update()
    .where(_of_turn_t, steps.c.status.in_(OPEN))
    .values(
        status=sa.case((_is_unrepeatable, StepStatus.UNKNOWN.value), else_=StepStatus.CANCELLED.value), ended_at=now()
    )
    .returning(steps.c.n, steps.c.status)
)
_close_turn = (
    turns.update()
    .where(this_turn)
    .values(status=bindparam("to"), failure=bindparam("why"), **_NO_OWNER, wake_at=None, ended_at=now())
    .returning(turns.c.conversation, (now() - turns.c.created_at).label("seconds"))
)
_delivered_by_owner = sa.exists().where(
    turns.c.id == deliveries.c.turn_id, turns.c.owner == deliveries.c.owner, turns.c.status == TurnStatus.RUNNING
)
_raise_wanted = (
    deliveries.update()
    .where(this_delivery)
    # A writing owner is alive, so its delivery lease is extended. The lease of a dead owner must not be extended by the
    # next owner of the turn.
    .values(
        revision=deliveries.c.revision + 1,
        error="",
        lease_until=sa.case((_delivered_by_owner, _RENEWED), else_=deliveries.c.lease_until),
    )
)
_waiting_behind, _of_turn = turns.alias("waiting_behind"), deliveries.alias("theirs")
_raise_wanted_of_queued = (
    deliveries.update()
    .where(
        deliveries.c.turn_id.in_(
            sa.select(_of_turn.c.turn_id)
            .join(_waiting_behind, _waiting_behind.c.id == _of_turn.c.turn_id)
            .join(turns, turns.c.conversation == _waiting_behind.c.conversation)
            .where(this_turn, _waiting_behind.c.seq > turns.c.seq, _waiting_behind.c.status == TurnStatus.QUEUED)
            # Locked in the order of the conversation, so that two ending turns cannot deadlock.
            .order_by(_waiting_behind.c.seq)
            .with_for_update(of=_of_turn)
        )
    )
    .values(revision=deliveries.c.revision + 1)
)
_expire = (
    steps.update()
    .where(
        _of_turn_t,
        steps.c.status == StepStatus.AWAITING,
        sa.exists().where(approval_of_step, approvals.c.expires_at <= now()),
    )
    .values(status=StepStatus.EXPIRED, ended_at=now())
    .returning(steps.c.n)
)
_requeue = (
    turns.update().where(this_turn, turns.c.status == TurnStatus.WAITING).values(status=TurnStatus.QUEUED, wake_at=None)
)
_wake_at = sa.select(sa.func.min(approvals.c.expires_at)).where(
    matching(approvals, turn_id="t"), sa.exists().where(approval_of_step, steps.c.status == StepStatus.AWAITING)
)
_park = turns.update().where(this_turn).values(status=TurnStatus.WAITING, **_NO_OWNER, wake_at=bindparam("at"))

_asked = (
    sa.select(turns.c.conversation, (now() - steps.c.created_at).label("seconds"))
    .join(turns, turns.c.id == steps.c.turn_id)
    .join(approvals, approval_of_step)
    .where(_of_turn_t, is_one_of(steps.c.n, "ns"))
)
_undecided = _asked.where(approvals.c.decided_at.is_(None))


def lock_turn(connection: sa.Connection, turn_id: str) -> Any:
    """Lock a turn until the end of the transaction. Return its status and the user who stopped it, `None` if it is
    gone.
    """
    return connection.execute(_lock, {"t": turn_id}).first()


def end_turn(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn. Open calls become cancelled; running calls that cannot be repeated become unknown."""
    closed = connection.execute(_close_steps, {"t": turn_id}).all()
    elicitation_rows.withdraw_of_turn(connection, turn_id)
    for step in closed:
        if step.status == StepStatus.UNKNOWN:
            record_finished(connection, turn_id, step.n)
    ns = [step.n for step in closed if step.status == StepStatus.CANCELLED]
    note_approvals_ended(connection, turn_id, ns, "cancelled", _undecided)
    end_settled(connection, turn_id, status, failure)


def end_settled(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn without open calls."""
    mark_view_stale(connection, turn_id)
    ended = connection.execute(_close_turn, {"t": turn_id, "to": status, "why": failure}).one()
    mark_queued_views_stale(connection, turn_id)
    record_metric(connection, TurnEnded(_platform_of(ended.conversation), status, max(0.0, ended.seconds)))
    send_wakeup(connection)


def mark_view_stale(connection: sa.Connection, turn_id: str) -> None:
    """Raise the wanted revision of a turn's view."""
    connection.execute(_raise_wanted, {"t": turn_id})


def mark_queued_views_stale(connection: sa.Connection, turn_id: str) -> None:
    """Mark the views of the queued turns as stale, because the blocking reason of this turn has changed."""
    connection.execute(_raise_wanted_of_queued, {"t": turn_id})


def requeue(connection: sa.Connection, turn_id: str) -> None:
    """Queue a suspended turn, because its wait has ended."""
    if connection.execute(_requeue, {"t": turn_id}).rowcount:
        mark_queued_views_stale(connection, turn_id)


def expire_overdue(connection: sa.Connection, turn_id: str) -> Sequence[int]:
    """Settle expired approvals. Return their step numbers."""
    return connection.execute(_expire, {"t": turn_id}).scalars().all()


def record_expired(connection: sa.Connection, turn_id: str, expired: Sequence[int]) -> None:
    """Record in the audit that approvals expired."""
    for n in expired:
        audit.record(connection, "expired", audit.NOBODY, turn_id=turn_id, step=n)
    note_approvals_ended(connection, turn_id, expired, "expired")


def suspend_until_decided(connection: sa.Connection, turn_id: str) -> None:
    """Park a turn until a decision, an answer, or the first expiry of its approvals and elicitations."""
    ends = (
        connection.execute(_wake_at, {"t": turn_id}).scalar(),
        elicitation_rows.earliest_expiry(connection, turn_id),
    )
    connection.execute(_park, {"t": turn_id, "at": min((end for end in ends if end is not None), default=None)})


def note_approvals_ended(
    connection: sa.Connection,
    turn_id: str,
    ns: Sequence[int],
    outcome: ApprovalOutcome,
    query: sa.Select[tuple[str, float]] = _asked,
) -> None:
    """Record the end of the approvals of these steps."""
    for row in connection.execute(query, {"t": turn_id, "ns": list(ns)}) if ns else ():
        record_metric(connection, ApprovalEnded(_platform_of(row.conversation), outcome, max(0.0, row.seconds)))


def _platform_of(conversation: str) -> str:
    """Return the platform of a conversation's key; empty if the key is unreadable."""
    try:
        return ConversationKey.parse(conversation).platform
    except ValueError:
        return ""


# -------------------- fair scheduling


_Loads = tuple[Counter[str], Counter[str]]
"""Numbers of running turns in all processes, by user and by workspace."""

_wanted = sa.select(deliveries.c.revision).where(deliveries.c.turn_id == turns.c.id).scalar_subquery()
_other = turns.alias("other")
_CLAIMS = 0x636C61696D73
"""Id of PostgreSQL's advisory lock on claims, which makes each claim see the previous one committed."""

_woken = sa.and_(turns.c.status == TurnStatus.WAITING, turns.c.wake_at <= now())
_is_due = sa.or_(turns.c.status == TurnStatus.QUEUED, _woken)
"""New turns, and those for which everything that they waited for is settled."""
_is_running = turns.c.status == TurnStatus.RUNNING
_orphaned = sa.and_(_is_running, turns.c.owner.is_(None))
# Claimed by this process, but unknown to it: the response to that COMMIT was lost.
_unknown_to_owner = sa.and_(_is_running, turns.c.owner == bindparam("me"), ~is_one_of(turns.c.id, "holding"))
_abandoned = sa.and_(_is_running, turns.c.lease_until <= now())
_is_lost = sa.or_(_orphaned, _unknown_to_owner, _abandoned)
"""Turns that count as running and have lost their process."""
_is_first = ~sa.exists().where(
    _other.c.conversation == turns.c.conversation,
    is_live(_other),
    _other.c.id != turns.c.id,
    # An active turn cannot be later. If one is nevertheless, other claims must not fail because of it.
    sa.or_(_other.c.seq < turns.c.seq, is_active(_other)),
)
"""Turns that wait for no other of their conversation."""
_lock_claims = sa.select(sa.func.pg_advisory_xact_lock(_CLAIMS))


# The first message is posted while the turn runs. Without an owner until then, the delivery of a turn that ends
# sooner could be claimed by another process too.
_acquire_deliveries = (
    deliveries.update()
    .where(is_one_of(deliveries.c.turn_id, "ids"), deliveries.c.owner.is_(None))
    .values(owner=bindparam("me"), lease_until=_RENEWED)
)
_owners = sa.union(
    sa.select(turns.c.owner).where(is_live(turns), turns.c.owner.is_not(None)),
    sa.select(deliveries.c.owner).where(deliveries.c.owner.is_not(None)),
)
_release_turns = (
    turns.update().where(turns.c.status == TurnStatus.RUNNING, matching(turns, owner="dead")).values(**_NO_OWNER)
)
_release_deliveries = deliveries.update().where(matching(deliveries, owner="dead")).values(**_NO_OWNER)
# A turn locked by another transaction is skipped: that transaction has renewed the lease itself, and its wait must
# not cost the other turns their leases.
_unlocked = (
    sa.select(turns.c.id)
    .where(is_one_of(turns.c.id, "ids"), turns.c.owner == bindparam("me"), turns.c.status == TurnStatus.RUNNING)
    .with_for_update(skip_locked=True, key_share=True)
    .cte("within_reach")
)
_renew_all = turns.update().where(turns.c.id.in_(sa.select(_unlocked.c.id))).values(lease_until=_RENEWED)
_driven = sa.select(turns.c.id, turns.c.fence, turns.c.stop_by).where(
    is_one_of(turns.c.id, "ids"), turns.c.status == TurnStatus.RUNNING
)
_is_claimed = sa.and_(matching(turns, id="t", fence="f"), turns.c.status == TurnStatus.RUNNING)
_renew = (
    turns.update().where(_is_claimed).values(lease_until=_RENEWED).returning(turns.c.stop_by, _wanted.label("revision"))
)
_release = (
    turns.update()
    .where(_is_claimed)
    # Queued, not lost: a regular release is not a recovery.
    .values(status=TurnStatus.QUEUED, **_NO_OWNER)
)
_reopen = (
    steps.update()
    .where(_of_turn_t, steps.c.status == StepStatus.STARTED, steps.c.fence < bindparam("f"))
    .values(status=sa.case((steps.c.repeatable, StepStatus.READY.value), else_=StepStatus.UNKNOWN.value))
    .returning(steps.c.n, steps.c.status)
)


class SqlClaims(Store):
    """Claims on turns; see `bot.ports.TurnQueue`. Part of `SqlTurnLog`."""

    _limits: TurnLimits
    _records: RecordCache
    _arriving: set[str]
    me: str

    @transaction
    def adopt_orphans(self, connection: sa.Connection, lives: Callable[[str], bool] = lambda _owner: False) -> None:
        """Release all turns and deliveries of owners whose processes have ended."""
        for owner in connection.execute(_owners).scalars().all():
            if not lives(owner):
                connection.execute(_release_turns, {"dead": owner})
                connection.execute(_release_deliveries, {"dead": owner})

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Claim up to `limit` turns that can run now, shared fairly among users and workspaces, in conversations with
        one of the prefixes `reaches`. Turns in `holding` are skipped: after a clock jump or a suspend their leases may
        seem expired.
        """
        if not reaches:
            return ()
        try:
            return await self._claim(limit, tuple(reaches), self._arriving.union(holding))
        except IntegrityError:
            # The database rejected a second active turn of a conversation. Others are claimed one by one.
            with contextlib.suppress(IntegrityError):
                # Other requests may arrive meanwhile.
                return await self._claim(1, tuple(reaches), self._arriving.union(holding))
            return ()

    @transaction(retry_seconds=NO_RETRIES, rank="urgent")
    def renew(self, connection: sa.Connection, claims: Sequence[Claim]) -> frozenset[str]:
        """Renew leases. Return the ids of the turns that are still owned and not stopped."""
        tokens = {claim.turn_id: claim.fencing_token for claim in claims}
        connection.execute(_renew_all, {"ids": list(tokens), "me": self.me})
        rows = connection.execute(_driven, {"ids": list(tokens)}).all()
        return frozenset(row.id for row in rows if row.fence == tokens[row.id] and row.stop_by is None)

    async def release(self, claims: Sequence[Claim]) -> None:
        """Release turns, so that any process can claim them at once."""
        for claim in claims:
            self._records.pop(claim)
        await self._release(claims)

    @transaction
    def _release(self, connection: sa.Connection, claims: Sequence[Claim]) -> None:
        release_claims(connection, claims)

    # Of the rank of an arriving message: `holding` has no turn that is stored and claimed after this was asked for.
    @transaction(retry_seconds=NO_RETRIES, rank="arrival")
    def _claim(
        self, connection: sa.Connection, limit: int, reaches: tuple[str, ...], holding: Collection[str]
    ) -> Sequence[Claim]:
        if connection.dialect.name == "postgresql":
            connection.execute(_lock_claims)
        values = {"me": self.me, "holding": list(holding)}
        ids = _choose(connection, values, limit, reaches, self._limits)
        if not ids:
            return []
        rows = sorted(connection.execute(_claim_chosen, {**values, "ids": ids}), key=lambda row: ids.index(row.id))
        if undelivered := [row.id for row in rows if row.revision == 0]:
            connection.execute(_acquire_deliveries, {"me": self.me, "ids": undelivered})
        return [to_claim(row) for row in rows]


def _choose_turns(waiting: Iterable[Any], loads: _Loads, *, most_running: int, free_slots: int) -> Sequence[str]:
    """Return the ids of the turns to claim, at most `free_slots`, from rows of `_waiting_within`.

    The user with the fewest running turns goes first; among equals, the workspace with the fewest; then the oldest
    turn. A user with `most_running` gets no more.
    """
    persons, workspaces = loads
    queues: dict[str, list[Any]] = defaultdict(list)
    for turn in sorted(waiting, key=_age, reverse=True):
        queues[turn.principal].append(turn)
    chosen: list[str] = []
    while len(chosen) < free_slots:
        heads = [queue[-1] for person, queue in queues.items() if queue and persons[person] < most_running]
        if not heads:
            break
        turn = min(heads, key=lambda head: (persons[head.principal], workspaces[head.workspace], *_age(head)))
        queues[turn.principal].pop()
        persons[turn.principal] += 1
        workspaces[turn.workspace] += 1
        chosen.append(turn.id)
    return chosen


def _age(turn: Any) -> tuple[float, str]:
    return turn.created_at, turn.conversation


_loads = (
    sa.select(
        turns.c.principal,
        turns.c.workspace,
        count_where(_is_running).label("running"),
        count_where(_is_lost).label("lost"),
        sa.func.min(sa.case((_is_due, turns.c.created_at))).label("waits_since"),
    )
    .where(is_live(turns))
    .group_by(turns.c.principal, turns.c.workspace)
)
"""The unfinished turns of each user in each workspace."""


def _is_deliverable(reaches: tuple[str, ...]) -> sa.ColumnElement[bool]:
    """Return the condition for turns that this process can deliver and has not claimed."""
    return sa.and_(
        sa.or_(*(sa.func.substr(turns.c.conversation + ":", 1, len(reach)) == reach for reach in reaches)),
        ~is_one_of(turns.c.id, "holding"),
    )


@lru_cache
def _lost_within(reaches: tuple[str, ...]) -> sa.Select[str]:
    return (
        sa.select(turns.c.id)
        .where(is_live(turns), _is_lost, _is_deliverable(reaches), _is_first)
        .order_by(turns.c.created_at, turns.c.conversation)
        .limit(bindparam("limit"))
    )


@lru_cache
def _waiting_within(reaches: tuple[str, ...]) -> sa.Select[Any]:
    """Return a query for the claimable turns of some users."""
    return sa.select(turns.c.id, turns.c.principal, turns.c.workspace, turns.c.conversation, turns.c.created_at).where(
        is_live(turns), is_one_of(turns.c.principal, "persons"), _is_due, _is_deliverable(reaches), _is_first
    )


# Checked again under the lock, because one may have been stopped meanwhile. Rows that another transaction is changing
# are skipped.
_chosen = (
    sa.select(turns.c.id)
    .where(is_one_of(turns.c.id, "ids"), sa.or_(_is_due, _is_lost))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("chosen")
)
_claim_chosen = (
    turns.update()
    .where(turns.c.id.in_(sa.select(_chosen.c.id)))
    .values(
        status=TurnStatus.RUNNING,
        owner=bindparam("me"),
        fence=turns.c.fence + 1,
        lease_until=_RENEWED,
        wake_at=None,
        recoveries=turns.c.recoveries + sa.case((turns.c.status == TurnStatus.RUNNING, 1), else_=0),
    )
    .returning(turns, _wanted.label("revision"))
)


def _choose(
    connection: sa.Connection, values: Mapping[str, Any], limit: int, reaches: tuple[str, ...], limits: TurnLimits
) -> Sequence[str]:
    """Return the ids of the turns to claim, first those that have lost their process."""
    loads: _Loads = (Counter(), Counter())
    running_of, running_in = loads
    waits, lost = dict[str, tuple[float, str]](), 0
    for row in connection.execute(_loads, values):
        running_of[row.principal] += row.running
        running_in[row.workspace] += row.running
        lost += row.lost
        if row.waits_since is not None:
            first = (row.waits_since, row.workspace)
            waits[row.principal] = min(first, waits.get(row.principal, first))
    ids: list[str] = []
    if lost:
        ids += connection.execute(_lost_within(reaches), {**values, "limit": limit}).scalars().all()
    free_slots = limit - len(ids)
    persons = sorted(
        (person for person in waits if running_of[person] < limits.running),
        key=lambda person: (running_of[person], running_in[waits[person][1]], waits[person]),
    )
    waiting: list[Any] = []
    at_once = limit
    while persons and len({turn.principal for turn in waiting}) < free_slots:
        # The turns of later users are read only if these users have none to claim.
        batch, persons = persons[:at_once], persons[at_once:]
        waiting += connection.execute(_waiting_within(reaches), {**values, "persons": batch})
        at_once *= 4
    return [*ids, *_choose_turns(waiting, loads, most_running=limits.running, free_slots=free_slots)]


def to_claim(row: Any) -> Claim:
    """Return the claim of a row that this process has just claimed, with its delivery revision."""
    fresh = None
    # An unreadable turn must not prevent the other claims; its driver gets the error.
    with contextlib.suppress(*UNREADABLE):
        # The first claim of a turn: it has no steps and no leftovers.
        fresh = TurnRecord(read_turn(row), (), row.revision) if row.fence == 1 else None
    where = ConversationKey.parse(row.conversation)
    return Claim(row.id, where, row.fence, row.recoveries, fresh, person=row.principal)


def release_claims(connection: sa.Connection, claims: Sequence[Claim]) -> None:
    """Release turns, so that any process can claim them at once."""
    for claim in claims:
        connection.execute(_release, {"t": claim.turn_id, "f": claim.fencing_token})
    send_wakeup(connection)


def check_claim(connection: sa.Connection, claim: Claim) -> int:
    """Prove ownership of the turn and renew its lease. Return its revision. Raises LostLease, or Stopped if a user
    stopped it.
    """
    revision, stopped_by = own_to_the_end(connection, claim)
    if stopped_by is not None:
        raise Stopped(claim.turn_id)
    return revision


def own_to_the_end(connection: sa.Connection, claim: Claim) -> tuple[int, str | None]:
    """Prove ownership of the turn, stopped or not, and renew its lease. Return its revision, and the name of the user
    who stopped it, `None` if nobody did. Raises LostLease.
    """
    row = connection.execute(_renew, {"t": claim.turn_id, "f": claim.fencing_token}).first()
    if row is None:
        raise LostLease(claim.turn_id)
    return row.revision, row.stop_by


def settle_leftovers(connection: sa.Connection, claim: Claim) -> None:
    """Settle the calls that the previous owner had sent, and expired approvals."""
    if claim.fencing_token == 1:
        return  # the first owner
    reopening = connection.execute(_reopen, {"t": claim.turn_id, "f": claim.fencing_token})
    expired = expire_overdue(connection, claim.turn_id)
    reopened = reopening.all()
    settled = elicitation_rows.settle_elicitations(connection, claim.turn_id, claim.fencing_token)
    if expired or reopened or settled:
        mark_view_stale(connection, claim.turn_id)
    if expired:
        mark_queued_views_stale(connection, claim.turn_id)
    for step in reopened:
        if step.status == StepStatus.UNKNOWN:
            record_finished(connection, claim.turn_id, step.n)
    record_expired(connection, claim.turn_id, expired)
