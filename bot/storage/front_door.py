"""Transactions that come from people: a message, a stop; decisions are in `deciding`. Any process may run them.

The order of locks is always conversation, turn, steps, deliveries, and the audit last.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, InboundMessage
from bot.domain.turns import Claim, Question, Receipt, TurnStatus
from bot.storage import audit
from bot.storage.bodies import question_body
from bot.storage.claims import claimed
from bot.storage.clock import now
from bot.storage.endings import LEASE_SECONDS, end_turn, lock_turn
from bot.storage.inserting import Insert
from bot.storage.ringing import ring_all, ring_stop
from bot.storage.tables import LIVE, conversations, deliveries, is_live, message_keys, turns

_seen = sa.select(message_keys.c.turn_id).where(message_keys.c.key.in_(bindparam("keys", expanding=True)))
_next_seq = Insert(
    lambda insert: (
        insert(conversations)
        .values(key=bindparam("k"), title=bindparam("t"), last_seq=1, created_at=now(), updated_at=now())
        .on_conflict_do_update(
            index_elements=["key"], set_={"last_seq": conversations.c.last_seq + 1, "updated_at": now()}
        )
        .returning(conversations.c.last_seq)
    )
)
_add_turn = turns.insert().values(created_at=now(), status=TurnStatus.QUEUED)
_add_driven = (
    turns.insert()
    .values(created_at=now(), status=TurnStatus.RUNNING, fence=1, lease_until=now() + LEASE_SECONDS)
    .returning(turns, sa.literal(0).label("revision"))
)
_add_key = Insert(
    lambda insert: (
        insert(message_keys)
        .values(key=bindparam("k"), turn_id=bindparam("t"))
        .on_conflict_do_nothing()
        .returning(message_keys.c.key)
    )
)
_add_delivery = deliveries.insert()
_add_delivery_in_hand = deliveries.insert().values(wanted=0, lease_until=now() + LEASE_SECONDS)
_ahead = (
    sa.select(sa.func.count())
    .select_from(turns)
    .where(turns.c.conversation == bindparam("conversation"), is_live(turns))
)
_ask_to_stop = turns.update().where(turns.c.id == bindparam("t")).values(stop_by=bindparam("by"))

_TITLE_LENGTH = 80


class SeenBefore(Exception):
    """The message is on disk already."""


def seen(connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt | None:
    """The turn of a message that was put on disk before, under the id given (whose COMMIT's answer was lost) or not."""
    known = connection.execute(_seen, {"keys": list(message.keys)}).scalar()
    return None if known is None else Receipt(known, redelivery=known != turn_id)


def enqueue(connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt:
    """Make a turn of a message under the id given. Raises SeenBefore if one of its keys was."""
    seq, ahead = _line_up(connection, message)
    connection.execute(_add_turn, _turn_row(message, turn_id, seq))
    _add_keys(connection, message, turn_id)
    # A turn that has to wait is shown as waiting; one that runs at once is shown when it does.
    connection.execute(_add_delivery, {"turn_id": turn_id, "wanted": 1 if ahead else 0})
    ring_all(connection)
    return Receipt(turn_id, ahead=ahead)


def take_in(connection: sa.Connection, message: InboundMessage, turn_id: str, me: str) -> tuple[Receipt, Claim | None]:
    """Make a turn of a message and claim it, with its drawing, unless it has to wait. Raises SeenBefore."""
    seq, ahead = _line_up(connection, message)
    if ahead:
        connection.execute(_add_turn, _turn_row(message, turn_id, seq))
        connection.execute(_add_delivery, {"turn_id": turn_id, "wanted": 1})
        claim = None
    else:
        row = connection.execute(_add_driven, {**_turn_row(message, turn_id, seq), "owner": me}).one()
        connection.execute(_add_delivery_in_hand, {"turn_id": turn_id, "owner": me})
        claim = claimed(row)
    _add_keys(connection, message, turn_id)
    return Receipt(turn_id, ahead=ahead), claim


def _line_up(connection: sa.Connection, message: InboundMessage) -> tuple[int, int]:
    """The place of a new turn in its conversation, and how many there are before it that have not ended."""
    key = str(message.conversation)
    title = " ".join(message.text.split())[:_TITLE_LENGTH]
    seq = connection.execute(_next_seq.on(connection), {"k": key, "t": title}).scalar_one()
    # Counted under the conversation's lock: of two messages at once, one is behind the other.
    return seq, connection.execute(_ahead, {"conversation": key}).scalar_one()


def _turn_row(message: InboundMessage, turn_id: str, seq: int) -> dict[str, Any]:
    return {
        "id": turn_id,
        "conversation": str(message.conversation),
        "seq": seq,
        "kind": "call" if message.call else "question",
        "author_id": message.author.id,
        "author_name": message.author.name,
        "question": question_body(
            Question(message.text, message.attachments, message.context, message.call, message.again)
        ),
    }


def _add_keys(connection: sa.Connection, message: InboundMessage, turn_id: str) -> None:
    # In one order everywhere: two that insert the same keys must not wait for each other.
    for each in sorted(message.keys):
        if connection.execute(_add_key.on(connection), {"k": each, "t": turn_id}).first() is None:
            raise SeenBefore


def stop(connection: sa.Connection, turn_id: str, by: Author) -> bool:
    """End a turn that nobody drives, or ask its owner to end it. False if there is nothing to stop."""
    row = lock_turn(connection, turn_id)
    if row is None or row.status not in LIVE:
        return False
    if row.stop_by is not None:
        return True
    connection.execute(_ask_to_stop, {"t": turn_id, "by": by.name})
    if row.status != TurnStatus.RUNNING:
        end_turn(connection, turn_id, TurnStatus.CANCELLED, f"Stopped by {by.name}.")
    audit.record(connection, "stopped", by.principal, turn_id=turn_id)
    ring_stop(connection, turn_id)
    return True
