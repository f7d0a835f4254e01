"""Transactions of deliveries: stale views, leases, posted messages and delivered revisions.

Delivery continues after the end of a turn, until a surface has confirmed the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import DecisionType
from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.turns import (
    BlockingTurn,
    MessageRefs,
    PostedMessage,
    StepStatus,
    Turn,
    TurnStatus,
    TurnView,
    WakeupKind,
)
from bot.errors import ContentDeleted, LostLease
from bot.storage import audit
from bot.storage.codec import converter, encode
from bot.storage.database import (
    NO_RETRIES,
    OWNER_RETRY_SECONDS,
    Store,
    Upsert,
    is_one_of,
    matching,
    now,
    send_wakeup,
    transaction,
)
from bot.storage.tables import (
    approval_of_step,
    approvals,
    count_where,
    decisions,
    deliveries,
    is_live,
    message_refs,
    steps,
    this_approval,
    this_delivery,
    this_step,
    turns,
)
from bot.storage.turn_log import elicitation_rows
from bot.storage.turn_log.records import read_record, read_turn
from bot.storage.turn_log.states import (
    LEASE_SECONDS,
    lock_turn,
    mark_view_stale,
    note_approvals_ended,
    requeue,
    suspend_until_decided,
)

# -------------------- undeliverable approvals
# Calls whose card can never be posted are denied, because no approver can see them. Posted cards are unaffected by
# later failed deliveries, and so are decided calls.

_NOT_SHOWN = "The approval could not be shown here: {}. Not run."

_is_of_turn = matching(approvals, turn_id="t")
_is_unposted = sa.and_(_is_of_turn, approvals.c.posted_at.is_(None), approvals.c.view_revision <= bindparam("upto"))
_undelivered_approvals = (
    sa.select(approvals.c.n, approvals.c.id, steps.c.body)
    .join(steps, approval_of_step)
    .where(_is_unposted, steps.c.status == StepStatus.AWAITING)
    .order_by(approvals.c.n)
)
_approved = (
    sa.select(approvals.c.n, decisions.c.principal)
    .join(decisions, sa.and_(decisions.c.approval_id == approvals.c.id, decisions.c.revision == approvals.c.revision))
    .where(_is_of_turn, decisions.c.decision == DecisionType.APPROVE)
    .order_by(approvals.c.n, decisions.c.at)
)
_deny = steps.update().where(this_step).values(status=StepStatus.DENIED, result=bindparam("what"), ended_at=now())
_give_reason = approvals.update().where(this_approval).values(decided_at=now(), reason=bindparam("why"))


def _deny_undeliverable(connection: sa.Connection, turn_id: str, revision: int, cause: str) -> Sequence[int]:
    """Deny the calls requested up to `revision` whose card was never posted. Return their step numbers. `cause` is a
    sentence for users and the model.
    """
    params = {"t": turn_id, "upto": revision}
    if connection.execute(_undelivered_approvals, params).first() is None:
        return ()
    lock_turn(connection, turn_id)
    # Re-read under the lock: the approval may have been decided without its card, or the turn stopped.
    unseen = connection.execute(_undelivered_approvals, params).all()
    text = _NOT_SHOWN.format(cause.strip().removesuffix("."))
    for row in unseen:
        call = converter.structure(row.body["call"], ToolCall)
        result = ToolResult(call.id, (TextPart(text),), is_error=True)
        connection.execute(_deny, {"t": turn_id, "i": row.n, "what": encode(result)})
        connection.execute(_give_reason, {"a": row.id, "why": text})
    return [row.n for row in unseen]


# -------------------- queue positions

_held_up_by = turns.alias("held_up_by")
# A turn behind one that waits for users does not count as running.
_competes = sa.and_(
    turns.c.status == TurnStatus.QUEUED,
    ~sa.exists().where(
        _held_up_by.c.conversation == turns.c.conversation, _held_up_by.c.status == sa.literal_column("'waiting'")
    ),
)


_others = (
    sa.select(
        turns.c.principal,
        count_where(turns.c.status == TurnStatus.RUNNING).label("running"),
        count_where(_competes).label("queued"),
        count_where(sa.and_(_competes, turns.c.created_at < bindparam("created_at"))).label("older"),
    )
    .where(is_live(turns), turns.c.conversation != bindparam("conversation"))
    .group_by(turns.c.principal)
)


def _position_of(connection: sa.Connection, turn: Turn) -> int:
    """Return how many queued turns of other conversations are claimed before this one, as things stand: those of its
    author that are older, and of everybody else those that find fewer turns of their author running.
    """
    values = {"conversation": str(turn.conversation), "created_at": turn.created_at}
    rows: dict[str, Any] = {row.principal: row for row in connection.execute(_others, values)}
    own_row = rows.pop(turn.author.principal, None)
    before = own_row.older if own_row else 0
    level = before + (own_row.running if own_row else 0)
    for row in rows.values():
        with_fewer = min(row.queued, max(0, level - row.running))
        # One more user may have as many running turns. Then the older turn goes first.
        before += with_fewer + (row.running + with_fewer == level and row.older > with_fewer)
    return before


_is_mine = matching(deliveries, owner="me")
_is_held = matching(deliveries, turn_id="t", owner="me")
_available = sa.or_(deliveries.c.owner.is_(None), _is_mine, deliveries.c.lease_until <= now())
_is_reached = sa.func.substr(turns.c.conversation + ":", 1, bindparam("length")) == bindparam("reach")
_behind = (
    sa.select(deliveries.c.turn_id)
    .join(turns, turns.c.id == deliveries.c.turn_id)
    .where(
        deliveries.c.delivered_revision < deliveries.c.revision,
        deliveries.c.due_at <= now(),
        _available,
        turns.c.status != TurnStatus.RUNNING,
        # Its messages would be emptied.
        turns.c.content_deleted_at.is_(None),
        _is_reached,
    )
    .order_by(turns.c.created_at, turns.c.seq)
    .limit(bindparam("limit"))
)
SHOWN_AFTER_SECONDS = 2.0
"""A turn that begins sooner is not shown as waiting."""
_waits_unannounced = (
    sa.select(turns.c.id)
    .join(deliveries, deliveries.c.turn_id == turns.c.id)
    .where(
        is_live(turns),
        turns.c.status == TurnStatus.QUEUED,
        turns.c.created_at <= now() - SHOWN_AFTER_SECONDS,
        deliveries.c.revision == 0,
        _is_reached,
    )
    .order_by(turns.c.created_at)
    .limit(bindparam("limit"))
)
_show_waiting = (
    deliveries.update()
    .where(deliveries.c.turn_id.in_(_waits_unannounced), deliveries.c.revision == 0)
    .values(revision=1)
)
_awaits_approval = sa.exists().where(steps.c.turn_id == turns.c.id, steps.c.status == StepStatus.AWAITING)
_is_here = matching(turns, conversation="conversation")
_ahead = (
    sa.select(turns.c.id, turns.c.status, _awaits_approval.label("signs"), elicitation_rows.still_asks.label("asks"))
    .where(_is_here, turns.c.seq < bindparam("seq"), is_live(turns))
    .order_by(turns.c.seq)
)
_latest = sa.select(turns).where(_is_here).order_by(turns.c.seq.desc()).limit(bindparam("limit"))
_recent = _latest.with_only_columns(turns.c.id)
_refs = sa.select(message_refs.c.slot, message_refs.c.ref).where(matching(message_refs, turn_id="turn_id"))
_driven_elsewhere = sa.exists().where(
    turns.c.id == deliveries.c.turn_id, turns.c.status == TurnStatus.RUNNING, turns.c.owner != bindparam("me")
)
_acquire = (
    deliveries.update()
    .where(this_delivery, deliveries.c.delivered_revision <= bindparam("known"), _available, ~_driven_elsewhere)
    .values(owner=bindparam("me"), lease_until=now() + LEASE_SECONDS)
    .returning(deliveries.c.turn_id)
)
_prove = deliveries.update().where(_is_held).values(lease_until=now() + LEASE_SECONDS).returning(deliveries.c.turn_id)
# Rows locked by another transaction are skipped, because none of them waits for the others.
_unlocked = (
    sa.select(deliveries.c.turn_id)
    .where(is_one_of(deliveries.c.turn_id, "ids"), _is_mine)
    .with_for_update(skip_locked=True)
    .cte("within_reach")
)
_renew = (
    deliveries.update()
    .where(deliveries.c.turn_id.in_(sa.select(_unlocked.c.turn_id)))
    .values(lease_until=now() + LEASE_SECONDS)
)
_owned = sa.select(deliveries.c.turn_id).where(
    is_one_of(deliveries.c.turn_id, "ids"), deliveries.c.owner == bindparam("me"), deliveries.c.lease_until > now()
)
_release = (
    deliveries.update()
    .where(_is_held)
    .values(owner=None, lease_until=None)
    .returning((deliveries.c.delivered_revision < deliveries.c.revision).label("behind"))
)
_still_owned = (
    sa.select(deliveries.c.turn_id, bindparam("s", type_=sa.String), bindparam("r", type_=sa.String))
    .where(_is_held)
    .with_for_update()
)
_save_ref = Upsert(
    lambda insert: (
        insert(message_refs)
        .from_select(["turn_id", "slot", "ref"], _still_owned)
        .on_conflict_do_update(index_elements=["turn_id", "slot"], set_={"ref": bindparam("r")})
        .returning(message_refs.c.turn_id)
    )
)
_running = sa.exists().where(turns.c.id == deliveries.c.turn_id, turns.c.status == TurnStatus.RUNNING)
_is_over = sa.and_(bindparam("upto") >= deliveries.c.revision, ~_running)
_mark_delivered = (
    deliveries.update()
    .where(_is_held)
    .values(
        delivered_revision=sa.case(
            (deliveries.c.delivered_revision < bindparam("upto"), bindparam("upto")),
            else_=deliveries.c.delivered_revision,
        ),
        attempts=0,
        error="",
        owner=sa.case((_is_over, None), else_=bindparam("me")),
        lease_until=sa.case((_is_over, None), else_=now() + LEASE_SECONDS),
    )
    .returning(deliveries.c.owner)
)
_posted = (
    approvals.update()
    .where(_is_unposted, sa.exists().where(approval_of_step, steps.c.status == StepStatus.AWAITING))
    .values(posted_at=now(), expires_at=now() + approvals.c.expires_in)
)
_unposted = sa.select(sa.or_(sa.exists().where(_is_unposted), elicitation_rows.unposted))
_postpone = (
    deliveries.update()
    .where(this_delivery)
    .values(due_at=now() + bindparam("seconds"), attempts=deliveries.c.attempts + 1)
)
_give_up = (
    deliveries.update()
    .where(this_delivery, deliveries.c.delivered_revision < bindparam("upto"))
    .values(delivered_revision=bindparam("upto"), error=bindparam("why"))
)


class SqlDeliveryQueue(Store):
    """Deliveries of a database; see `bot.ports.DeliveryQueue`. Part of `SqlTurnLog`."""

    me: str

    @transaction
    def get_view(self, connection: sa.Connection, turn_id: str) -> TurnView:
        """Return the turn's view, from the database alone. Raises NotFound and ContentDeleted."""
        view = _read_view(connection, turn_id)
        if view.turn.content_deleted:
            raise ContentDeleted
        return view

    @transaction
    def get_message_refs(self, connection: sa.Connection, turn_id: str) -> MessageRefs:
        """Return the references of the posted messages of a turn."""
        return {row.slot: row.ref for row in connection.execute(_refs, {"turn_id": turn_id})}

    @transaction
    def recent_turns(self, connection: sa.Connection, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the last turns of a conversation, oldest first; those without content have no steps."""
        turn_ids = connection.execute(_recent, {"conversation": str(conversation), "limit": limit}).scalars().all()
        return [_read_view(connection, turn_id) for turn_id in reversed(turn_ids)]

    @transaction(rank="arrival")
    def latest_turn(self, connection: sa.Connection, conversation: ConversationKey) -> Turn | None:
        """Return the last turn of a conversation."""
        row = connection.execute(_latest, {"conversation": str(conversation), "limit": 1}).first()
        return read_turn(row) if row is not None else None

    @transaction(retry_seconds=NO_RETRIES)
    def stale_views(self, connection: sa.Connection, reach: str, limit: int) -> Sequence[str]:
        """Return turns with a stale view and no delivery lease, in conversations with the prefix `reach`. Turns queued
        for longer than SHOWN_AFTER_SECONDS are among them.
        """
        prefix = {"reach": reach, "length": len(reach), "limit": limit}
        connection.execute(_show_waiting, prefix)
        return connection.execute(_behind, {"me": self.me, **prefix}).scalars().all()

    @transaction
    def acquire_delivery(self, connection: sa.Connection, turn_id: str, revision: int) -> MessageRefs:
        """Acquire the delivery lease of a turn. Return its posted messages. Raises LostLease if another process
        delivers or runs it, or has delivered more than `revision`.
        """
        if connection.execute(_acquire, {"t": turn_id, "me": self.me, "known": revision}).first() is None:
            raise LostLease(turn_id)
        return {row.slot: row.ref for row in connection.execute(_refs, {"turn_id": turn_id})}

    @transaction(retry_seconds=NO_RETRIES, rank="urgent")
    def renew_deliveries(self, connection: sa.Connection, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew delivery leases. Return those that are still owned."""
        parameters = {"ids": list(turn_ids), "me": self.me}
        connection.execute(_renew, parameters)
        return frozenset(connection.execute(_owned, parameters).scalars())

    @transaction
    def release_delivery(self, connection: sa.Connection, turn_id: str) -> None:
        """Release a delivery lease."""
        released = connection.execute(_release, {"t": turn_id, "me": self.me}).first()
        if released is not None and released.behind:
            send_wakeup(connection)

    @transaction
    def approvers_by_call(self, connection: sa.Connection, turn_id: str) -> dict[int, list[str]]:
        """Return the principals that approved calls of a turn, by the numbers of the calls."""
        approvers: dict[int, list[str]] = {}
        for row in connection.execute(_approved, {"t": turn_id}):
            approvers.setdefault(row.n, []).append(row.principal)
        return approvers

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def save_message_ref(self, connection: sa.Connection, turn_id: str, drawn: PostedMessage) -> None:
        """Save the ref of a posted message. Raises LostLease, because an expired owner must not replace the refs of the
        next one.
        """
        values = {"t": turn_id, "me": self.me, "s": drawn.slot, "r": drawn.ref}
        if connection.execute(_save_ref.on(connection), values).first() is None:
            raise LostLease(turn_id)

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def mark_delivered(self, connection: sa.Connection, turn_id: str, revision: int) -> bool:
        """Mark the view as delivered up to `revision`, and start the expiry of the approvals in it. Return True if a
        newer revision is wanted and the lease is still owned. Raises LostLease.
        """
        _start_expiry(connection, turn_id, revision)
        released = connection.execute(_mark_delivered, {"t": turn_id, "me": self.me, "upto": revision}).first()
        if released is None:
            raise LostLease(turn_id)
        return released.owner is not None

    @transaction
    def retry_delivery_at(self, connection: sa.Connection, turn_id: str, seconds: float) -> None:
        """Retry the delivery after that time."""
        connection.execute(_postpone, {"t": turn_id, "seconds": seconds})

    @transaction
    def give_up_delivery(self, connection: sa.Connection, turn_id: str, revision: int, reason: str) -> bool:
        """Give up the delivery up to `revision`, and deny calls whose card was part of it. Return True if there were
        any. Raises LostLease, because the next owner may be posting the card.
        """
        denied = _deny_undeliverable(connection, turn_id, revision, reason)
        withdrawn = elicitation_rows.cancel_undelivered(connection, turn_id, revision, reason)
        if connection.execute(_prove, {"t": turn_id, "me": self.me}).first() is None:
            raise LostLease(turn_id)
        connection.execute(_give_up, {"t": turn_id, "upto": revision, "why": reason})
        if denied or withdrawn:
            requeue(connection, turn_id)
            mark_view_stale(connection, turn_id)
            send_wakeup(connection, WakeupKind.APPROVAL_DECIDED, turn_id)
        for n in denied:
            audit.record(connection, "not shown", audit.NOBODY, turn_id=turn_id, step=n)
        note_approvals_ended(connection, turn_id, denied, "not shown")
        return bool(denied) or withdrawn


def _read_view(connection: sa.Connection, turn_id: str) -> TurnView:
    """Return the turn's view, from the database alone. Raises NotFound."""
    record = read_record(connection, turn_id)
    turn = record.turn
    if turn.status is not TurnStatus.QUEUED:
        # Whoever runs a turn posts about its work.
        is_running = turn.status is TurnStatus.RUNNING
        return TurnView(turn, () if turn.content_deleted else record.steps, record.revision, early=is_running)
    ahead = connection.execute(_ahead, {"conversation": str(turn.conversation), "seq": turn.seq}).all()
    blocker = None
    if ahead:
        # A missing approval comes first, because the call is not sent without it.
        asks = ahead[0].asks and not ahead[0].signs
        waits = ahead[0].status == TurnStatus.WAITING and not asks
        blocker = BlockingTurn(ahead[0].id, awaits_approval=waits, awaits_answer=asks)
    position = len(ahead) + _position_of(connection, turn)
    return TurnView(turn, record.steps, record.revision, ahead=position, blocker=blocker)


def _start_expiry(connection: sa.Connection, turn_id: str, revision: int) -> None:
    """Start the expiry of the approvals and elicitations requested up to `revision`."""
    params = {"t": turn_id, "upto": revision}
    if not connection.execute(_unposted, params).scalar():
        return
    # Lock the turn first, as everywhere, because suspending it at the same moment needs its wake-up time.
    turn = lock_turn(connection, turn_id)
    posted = bool(connection.execute(_posted, params).rowcount) | elicitation_rows.start_expiry(
        connection, turn_id, revision
    )
    if posted and turn.status == TurnStatus.WAITING:
        suspend_until_decided(connection, turn_id)
