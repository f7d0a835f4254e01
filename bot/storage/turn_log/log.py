"""Turn log on a database (`bot.ports.TurnLog`): messages that become turns, requests to stop a turn, and `SqlTurnLog`,
which is made of one class for each kind of use, with one transaction a method.

The order of locks is: conversation, turn, steps, deliveries, audit.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.exc import IntegrityError

from bot.domain.agents import PLACE_AGENT, AgentRef
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.turns import (
    DELETED_TEXT,
    DELETION,
    NO_LIMIT,
    NO_TURN_LIMITS,
    Claim,
    EditedQuestion,
    EditEffect,
    Receipt,
    TurnInput,
    TurnLimits,
    TurnStatus,
    Wakeup,
    WakeupKind,
)
from bot.domain.usage import NO_PRICES, PriceList
from bot.errors import QueueFull
from bot.storage import audit
from bot.storage.codec import decode, encode
from bot.storage.database import (
    Database,
    StorableText,
    Store,
    Upsert,
    insert_new,
    is_one_of,
    matching,
    now,
    send_wakeup,
    transaction,
)
from bot.storage.tables import LIVE, conversations, deliveries, is_live, message_keys, this_turn, turns
from bot.storage.turn_log.approvals import SqlApprovalLog
from bot.storage.turn_log.deliveries import SqlDeliveryQueue
from bot.storage.turn_log.elicitations import SqlElicitations
from bot.storage.turn_log.execution import SqlTurnExecution
from bot.storage.turn_log.history import HistoryCache, SqlTurnHistory, delete_summaries
from bot.storage.turn_log.records import RecordCache, read_file
from bot.storage.turn_log.retention import SqlRetention
from bot.storage.turn_log.states import LEASE_SECONDS, SqlClaims, end_turn, lock_turn, mark_view_stale, to_claim

Listen = Callable[[Callable[[Wakeup], None]], Awaitable[None]]

EDIT_SECONDS = 300.0
"""Seconds after the end of a turn in which an edit of its message counts."""
_TITLE_LENGTH = 80
_QUEUES = 0x717565756573
"""Namespace of PostgreSQL's advisory locks on users."""

_fields_of_input, _fields_of_message = (
    {field.name for field in dataclasses.fields(kind)} for kind in (TurnInput, InboundMessage)
)
_OF_MESSAGE = (_fields_of_input & _fields_of_message) - {"agent"}
"""Fields of a turn's input that are those of its message."""
_seen = sa.select(message_keys.c.turn_id).where(is_one_of(message_keys.c.key, "keys"))
_named_id, _named = (bindparam(name, type_=StorableText) for name in ("named_id", "named"))
_next_seq = Upsert(
    lambda insert: (
        insert(conversations)
        .values(
            last_seq=1,
            created_at=now(),
            updated_at=now(),
            agent_id=sa.func.coalesce(_named_id, ""),
            agent_name=sa.func.coalesce(_named, ""),
        )
        .on_conflict_do_update(
            index_elements=["key"],
            set_={
                "last_seq": conversations.c.last_seq + 1,
                "updated_at": now(),
                "agent_id": sa.func.coalesce(_named_id, conversations.c.agent_id),
                "agent_name": sa.func.coalesce(_named, conversations.c.agent_name),
            },
        )
        .returning(conversations.c.last_seq, conversations.c.agent_id, conversations.c.agent_name)
    )
)
_add_turn = turns.insert().values(created_at=now(), status=TurnStatus.QUEUED)
_add_claimed_turn = (
    turns.insert()
    .values(created_at=now(), status=TurnStatus.RUNNING, fence=1, lease_until=now() + LEASE_SECONDS)
    .returning(turns, sa.literal(0).label("revision"))
)
_add_key = insert_new(message_keys)
_add_delivery = deliveries.insert()
_add_claimed_delivery = deliveries.insert().values(revision=0, lease_until=now() + LEASE_SECONDS)
_ahead = sa.select(sa.func.count()).select_from(turns)
_ahead = _ahead.where(matching(turns, conversation="conversation"), is_live(turns))


def _count_query(has_status: sa.ColumnElement[bool]) -> sa.Select[int]:
    some = (
        sa.select(sa.literal(1))
        .select_from(turns)
        .where(is_live(turns), turns.c.principal == bindparam("principal"), has_status)
        .limit(bindparam("most"))
    )
    return sa.select(sa.func.count()).select_from(some.subquery())


_queued_of = _count_query(turns.c.status == TurnStatus.QUEUED)
_running_of = _count_query(turns.c.status == TurnStatus.RUNNING)
_lock_person = sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(bindparam("person"), _QUEUES)))
_question = sa.select(
    turns.c.conversation,
    turns.c.input,
    turns.c.principal,
    sa.or_(turns.c.fence > 0, turns.c.status.not_in(LIVE)).label("has_begun"),
    sa.or_(
        turns.c.ended_at.is_(None),
        sa.and_(turns.c.ended_at > now() - EDIT_SECONDS, turns.c.content_deleted_at.is_(None)),
    ).label("is_recent"),
).where(this_turn)
_new_input = bindparam("new", type_=turns.c.input.type)
_save_input = turns.update().where(this_turn).values(input=_new_input, agent_id=bindparam("new_agent"))
_move_keys = message_keys.update().where(matching(message_keys, turn_id="t")).values(turn_id=bindparam("to"))
_is_this = matching(conversations, key="k")
_is_followed = sa.select(conversations.c.followed).where(
    _is_this,
    conversations.c.last_seq > 0,
    conversations.c.addressed_at <= bindparam("at", type_=sa.Double()),
    sa.or_(
        bindparam("by", type_=turns.c.author_id.type) == "",
        sa.exists().where(turns.c.conversation == bindparam("k"), turns.c.author_id == bindparam("by")),
    ),
)
_save_addressee = (
    conversations.update()
    .where(_is_this, conversations.c.addressed_at <= bindparam("at", type_=sa.Double()))
    .values(followed=bindparam("is_bot"), addressed_at=bindparam("at"))
)
_rename = conversations.update().where(_is_this).values(title=bindparam("t"))
_delete_title = (
    conversations.update()
    .where(conversations.c.key == sa.select(turns.c.conversation).where(this_turn).scalar_subquery())
    .values(title="")
)
_ask_to_stop = turns.update().where(this_turn).values(stop_by=bindparam("by"))


class Duplicate(Exception):
    """The message is already stored."""


class SqlTurnQueue(Store):
    """Messages that become turns; see `bot.ports.TurnQueue`. Part of `SqlTurnLog`."""

    _limits: TurnLimits
    _arriving: set[str]
    me: str

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Add a turn for a message unless it is a duplicate. Raises QueueFull."""
        receipt, _ = await self._enqueue_once(message, uuid.uuid4().hex, claims=False)
        return receipt

    async def enqueue_and_claim(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """Add a turn for a message unless it is a duplicate, and claim it unless it has to wait. Raises QueueFull."""
        turn_id = uuid.uuid4().hex
        # A concurrent poll must not claim the same turn before the caller has the claim.
        self._arriving.add(turn_id)
        try:
            return await self._enqueue_once(message, turn_id, claims=True)
        finally:
            self._arriving.discard(turn_id)

    async def _enqueue_once(
        self, message: InboundMessage, turn_id: str, *, claims: bool
    ) -> tuple[Receipt, Claim | None]:
        if not message.keys:
            # A repetition after a lost COMMIT response is recognized by the key.
            message = dataclasses.replace(message, keys=(f"turn:{turn_id}",))
        try:
            receipt, claim = await self._enqueue(message, turn_id, claims=claims)
        except (Duplicate, IntegrityError):
            claim = None
            receipt = await self._find_duplicate(message, turn_id)
            if receipt is None and claims:
                return await self._enqueue_once(message, uuid.uuid4().hex, claims=False)
            if receipt is None:
                receipt, _ = await self._enqueue(message, turn_id, claims=False)
        if receipt is None:
            raise QueueFull(self._limits.queued)
        return receipt, claim

    @transaction(rank="arrival")
    def _find_duplicate(self, connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt | None:
        return _find_duplicate(connection, message, turn_id)

    @transaction(rank="arrival")
    def is_stored(self, connection: sa.Connection, keys: Sequence[str]) -> bool:
        """Return True if a message with one of these keys is a turn."""
        return connection.execute(_seen, {"keys": list(keys)}).first() is not None

    @transaction(rank="arrival")
    def edit_question(
        self, connection: sa.Connection, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        """Replace the text of a turn that has not begun, and its agent if one is named; store them beside those of
        another turn. Return None if no turn has one of the keys.
        """
        turn_id = connection.execute(_seen, {"keys": list(keys)}).scalar()
        if turn_id is None or lock_turn(connection, turn_id) is None:
            return None
        row = connection.execute(_question, {"t": turn_id}).one()
        question = decode(TurnInput, row.input)
        effect = EditEffect.NONE
        is_original = text == question.text and agent in (None, question.agent or PLACE_AGENT)
        is_edit = (text, agent) == (question.edited_text, question.edited_agent)
        is_known = is_edit if question.edited_text else is_original
        if row.principal == by.principal and row.is_recent and not is_known:
            if row.has_begun and is_original:
                new = dataclasses.replace(question, edited_text="", edited_agent=None)
            elif row.has_begun:
                effect = EditEffect.STORED
                new = dataclasses.replace(question, edited_text=text, edited_agent=agent)
            else:
                effect = EditEffect.REPLACED
                answering = question.agent if agent is None else agent
                # Without one, the profile of the place answers.
                answering = answering if answering is not None and answering.id else None
                new = dataclasses.replace(question, text=text, agent=answering)
            connection.execute(_save_input, {"t": turn_id, "new": encode(new), "new_agent": _id(new.agent)})
            mark_view_stale(connection, turn_id)
        return EditedQuestion(turn_id, ConversationKey.parse(row.conversation), effect)

    @transaction(rank="arrival")
    def delete_question(self, connection: sa.Connection, keys: Sequence[str]) -> str | None:
        """Delete the text of a turn's input, stop the turn, and delete what else has the text: the conversation's title
        and summary. Return the turn's id, or None if no turn has one of the keys.
        """
        turn_id = connection.execute(_seen, {"keys": list(keys)}).scalar()
        if turn_id is None:
            return None
        # Conversations first, as everywhere.
        connection.execute(_delete_title, {"t": turn_id})
        if lock_turn(connection, turn_id) is None:
            return None
        row = connection.execute(_question, {"t": turn_id}).one()
        question = decode(TurnInput, row.input)
        if not question.deleted:
            new = dataclasses.replace(
                question, text=DELETED_TEXT, deleted=True, attachments=(), context=(), attached=(), edited_text=""
            )
            connection.execute(_save_input, {"t": turn_id, "new": encode(new), "new_agent": _id(new.agent)})
            delete_summaries(connection, [row.conversation])
            mark_view_stale(connection, turn_id)
            platform, _, user = row.principal.partition(":")
            _stop(connection, turn_id, Author(platform, user, DELETION))
        return str(turn_id)

    @transaction
    def move_keys(self, connection: sa.Connection, turn_id: str, to: str) -> None:
        """Let the keys of a turn's message belong to another turn."""
        connection.execute(_move_keys, {"t": turn_id, "to": to})

    @transaction(rank="arrival")
    def is_followed(self, connection: sa.Connection, conversation: ConversationKey, at: float, by: str = "") -> bool:
        """Return True if a message of this time continues the conversation without a mention. See `EngineApi`."""
        return bool(connection.execute(_is_followed, {"k": str(conversation), "at": at, "by": by}).scalar())

    @transaction
    def rename(self, connection: sa.Connection, conversation: ConversationKey, title: str) -> None:
        """Give a conversation another title, if it has a turn."""
        connection.execute(_rename, {"k": str(conversation), "t": _title(title)})

    @transaction(rank="arrival")
    def save_addressee(
        self, connection: sa.Connection, conversation: ConversationKey, *, is_bot: bool, at: float
    ) -> None:
        """Record that a message sent at `at` addresses the bot or another user, unless a later one is recorded."""
        connection.execute(_save_addressee, {"k": str(conversation), "is_bot": is_bot, "at": at})

    @transaction
    def stop(self, connection: sa.Connection, turn_id: str, by: Author) -> bool:
        """End a turn without an owner, or ask its owner to end it. Return False if the turn is missing or has ended."""
        return _stop(connection, turn_id, by)

    @transaction(rank="arrival")
    def _enqueue(
        self, connection: sa.Connection, message: InboundMessage, turn_id: str, *, claims: bool
    ) -> tuple[Receipt | None, Claim | None]:
        """Add a turn for a message, and if `claims`, claim it and its delivery unless it has to wait. Return no receipt
        if its author's queue is full. Raises Duplicate if one of the message's keys is stored.
        """
        if _is_full(connection, message, self._limits):
            # A queued message that is delivered again is not rejected.
            return _find_duplicate(connection, message, turn_id), None
        new, ahead = _new_turn(connection, message, turn_id)
        claim = None
        if not claims or ahead or _must_wait(connection, message, self._limits):
            connection.execute(_add_turn, new)
            # Only a turn that has to wait is marked for a view here; others are when they run.
            connection.execute(_add_delivery, {"turn_id": turn_id, "revision": 1 if ahead else 0})
        else:
            claim = to_claim(connection.execute(_add_claimed_turn, {**new, "owner": self.me}).one())
            connection.execute(_add_claimed_delivery, {"turn_id": turn_id, "owner": self.me})
        # Sorted, because two transactions that insert the same keys could deadlock.
        for key in sorted(message.keys):
            if connection.execute(_add_key.on(connection), {"key": key, "turn_id": turn_id}).first() is None:
                raise Duplicate
        if not claims:
            send_wakeup(connection)
        return Receipt(turn_id, queue_position=ahead), claim


def _find_duplicate(connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt | None:
    """Return the turn of a message that was stored before, under the given id (after a lost COMMIT response) or
    another.
    """
    stored_id = connection.execute(_seen, {"keys": list(message.keys)}).scalar()
    return None if stored_id is None else Receipt(stored_id, redelivery=stored_id != turn_id)


def _is_full(connection: sa.Connection, message: InboundMessage, limits: TurnLimits) -> bool:
    """Return True if the author has as many queued turns as the limit allows."""
    if limits.queued == NO_LIMIT:
        return False
    person = message.author.principal
    if connection.dialect.name == "postgresql":
        # Messages of one user are counted one after the other.
        connection.execute(_lock_person, {"person": person})
    queued: int = connection.execute(_queued_of, {"principal": person, "most": limits.queued}).scalar_one()
    return queued >= limits.queued


def _must_wait(connection: sa.Connection, message: InboundMessage, limits: TurnLimits) -> bool:
    """Return True if the author's earlier turns use up the limit of running turns."""
    if limits.running == NO_LIMIT:
        return False
    values = {"principal": message.author.principal, "most": limits.running}
    busy: int = sum(connection.execute(counted, values).scalar_one() for counted in (_running_of, _queued_of))
    return busy >= limits.running


def _title(text: str) -> str:
    return " ".join(text.split())[:_TITLE_LENGTH]


def _new_turn(connection: sa.Connection, message: InboundMessage, turn_id: str) -> tuple[dict[str, Any], int]:
    """Return the row of a new turn in its conversation, and the number of unfinished turns before it. A named agent
    stays the one of the conversation.
    """
    key, named = str(message.conversation), message.agent
    agent_id, agent_name = (None, None) if named is None else (named.id, named.name)
    values = {"key": key, "title": _title(message.text), "named_id": agent_id, "named": agent_name}
    next_seq = connection.execute(_next_seq.on(connection), values)
    # Counted under the conversation's lock, so that of two concurrent messages one comes second.
    ahead = connection.execute(_ahead, {"conversation": key}).scalar_one()
    row = next_seq.one()
    agent = AgentRef(row.agent_id, row.agent_name) if row.agent_id else None
    question = TurnInput(**{name: getattr(message, name) for name in _OF_MESSAGE}, agent=agent)
    new = {
        "id": turn_id,
        "conversation": key,
        "seq": row.last_seq,
        "kind": "call" if message.call else "message",
        "author_id": message.author.id,
        "author_name": message.author.name,
        "principal": message.author.principal,
        "workspace": message.conversation.workspace_key,
        "agent_id": row.agent_id,
        "input": encode(question),
    }
    return new, ahead


def _id(agent: AgentRef | None) -> str:
    return agent.id if agent is not None else ""


async def _never_wake(_on_wakeup: Callable[[Wakeup], None]) -> None:
    await asyncio.Event().wait()


class SqlTurnLog(
    SqlTurnQueue,
    SqlClaims,
    SqlTurnExecution,
    SqlTurnHistory,
    SqlApprovalLog,
    SqlElicitations,
    SqlDeliveryQueue,
    SqlRetention,
):
    """Turns on a database, claimed under the name `me`, which is new at every start, so that a dead process cannot
    claim its old leases; `name` is that of `FileUse`, if it has one. `prices` are the current prices of models;
    `limits` are those on the turns of one user.
    """

    def __init__(
        self,
        database: Database,
        listen: Listen = _never_wake,
        *,
        prices: PriceList = NO_PRICES,
        limits: TurnLimits = NO_TURN_LIMITS,
        name: str = "",
    ) -> None:
        super().__init__(database)
        self._listen = listen
        self._records = RecordCache()
        self._arriving: set[str] = set()
        self._ended = HistoryCache()
        self._prices = prices
        self._limits = limits
        self.lease_seconds = LEASE_SECONDS
        self.shares_turns = database.shared
        self.me = name or f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def replace_prices(self, prices: PriceList) -> None:
        """Count further usage by these prices."""
        self._prices = prices

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Pass wakeups of other processes to `on_wakeup` until cancelled."""
        await self._listen(on_wakeup)

    @transaction
    def get_file(self, connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
        """Return the bytes of a file returned by a tool. Raises NotFound."""
        return read_file(connection, turn_id, file_id)


def _stop(connection: sa.Connection, turn_id: str, by: Author) -> bool:
    """End a turn without an owner, or ask its owner to end it. Return False if the turn is missing or has ended."""
    row = lock_turn(connection, turn_id)
    if row is None or row.status not in LIVE:
        return False
    if row.stop_by is not None:
        return True
    connection.execute(_ask_to_stop, {"t": turn_id, "by": by.name})
    if row.status != TurnStatus.RUNNING:
        end_turn(connection, turn_id, TurnStatus.CANCELLED, f"Stopped by {by.name}.")
    audit.record(connection, "stopped", by.principal, turn_id=turn_id)
    send_wakeup(connection, WakeupKind.STOP_REQUESTED, turn_id)
    return True
