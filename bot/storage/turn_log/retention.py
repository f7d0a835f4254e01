"""Retention: scheduled jobs, deletion of old turns and conversations, and of the content of ended turns: messages,
answers, and results of tools.

Of a turn without content, ids, names, times, statuses, fingerprints and counts of tokens stay until its rows are
deleted: redelivered messages are still recognized, buttons below old messages still answered, and lists of calls still
name the tool, its user and its end. Nothing writes content to such a turn again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import HTTP, Author, ConversationKey
from bot.domain.messages import Message, MessageRole, ToolCall
from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnInput
from bot.storage import audit
from bot.storage.admin.grants import delete_ended_grants, delete_grants_of_conversation
from bot.storage.codec import CONTENT_DELETED, UNREADABLE, Body, decode, encode
from bot.storage.database import (
    NO_RETRIES,
    Database,
    Store,
    Upsert,
    has_prefix,
    is_one_of,
    now,
    prefix_bounds,
    transaction,
)
from bot.storage.tables import (
    approvals,
    conversations,
    decisions,
    deliveries,
    elicitations,
    files,
    is_live,
    jobs,
    steps,
    summaries,
    this_step,
    this_turn,
    turns,
)
from bot.storage.turn_log import history
from bot.storage.turn_log.history import HistoryCache

# -------------------- content

_NO_REPLY = ModelStep(0, Message(MessageRole.ASSISTANT, ()))
_NO_CALL = ToolStep(0, ToolCall("", ""), None, StepStatus.DONE)

_ids: sa.BindParameter[Any] = bindparam("ids", expanding=True)
_keys: sa.BindParameter[Any] = bindparam("keys", expanding=True)
# Written as in the index's condition, because planners use it only then.
_has_content = sa.and_(turns.c.content_deleted_at.is_(None), turns.c.ended_at.is_not(None))
_is_delivered = sa.and_(
    deliveries.c.delivered_revision >= deliveries.c.revision,
    # A view counts as delivered to HTTP before its client has read it.
    sa.or_(
        ~has_prefix(turns.c.conversation, "http"),
        turns.c.ended_at < now() - bindparam("fetch_seconds", type_=sa.Double),
    ),
)
_is_due = sa.and_(
    _has_content, sa.or_(_is_delivered, turns.c.ended_at < now() - bindparam("undelivered_seconds", type_=sa.Double))
)
_due = (
    sa.select(turns.c.id, turns.c.conversation)
    .join(deliveries, deliveries.c.turn_id == turns.c.id)
    .where(_is_due)
    .order_by(turns.c.ended_at)
    .limit(bindparam("limit"))
)
_overdue = (
    sa.select(sa.func.count())
    .select_from(turns)
    .where(_has_content, turns.c.ended_at < now() - bindparam("seconds", type_=sa.Double))
)
_lock_conversations = (
    sa.select(conversations.c.key)
    .where(conversations.c.key.in_(_keys))
    .order_by(conversations.c.key)
    .with_for_update(skip_locked=True)
)
_lock_turns = (
    sa.select(turns.c.id, sa.cast(turns.c.input, sa.Text).label("input"))
    .where(turns.c.id.in_(_ids), turns.c.conversation.in_(_keys), _has_content)
    .order_by(turns.c.id)
    .with_for_update()
)
# As text, because an unreadable body is deleted too.
_steps = sa.select(*steps.c["turn_id", "n", "kind"], sa.cast(steps.c.body, sa.Text).label("body"))
_steps = _steps.where(steps.c.turn_id.in_(_ids))
_clear_step = (
    steps.update()
    .where(this_step)
    .values(body=bindparam("left", type_=steps.c.body.type), result=sa.null(), late_result=sa.null())
)
_clear_approvals = (
    approvals.update()
    .where(approvals.c.turn_id.in_(_ids))
    .values(
        proposed_arguments={},
        revised_arguments=sa.null(),
        approved_arguments=sa.null(),
        proposed_secrets=[],
        revised_secrets=sa.null(),
        reason="",
    )
)
_clear_decisions = (
    decisions.update()
    .where(decisions.c.approval_id.in_(sa.select(approvals.c.id).where(approvals.c.turn_id.in_(_ids))))
    .values(reason="")
)
_clear_turn = (
    turns.update()
    .where(this_turn)
    .values(input=bindparam("left", type_=turns.c.input.type), failure="", content_deleted_at=now())
)
_clear_deliveries = (
    deliveries.update().where(deliveries.c.turn_id.in_(_ids)).values(error="", delivered_revision=deliveries.c.revision)
)
_clear_titles = conversations.update().where(conversations.c.key.in_(_keys)).values(title="")
_deletions = (
    elicitations.delete().where(elicitations.c.turn_id.in_(_ids)),
    files.delete().where(files.c.turn_id.in_(_ids)),
    summaries.delete().where(summaries.c.conversation.in_(_keys)),
)


async def overdue_content(database: Database, seconds: float) -> int:
    """Return the number of turns that ended `seconds` ago and still have content."""
    return await database.read(lambda connection: connection.execute(_overdue, {"seconds": seconds}).scalar_one())


def delete_content(connection: sa.Connection, conversation_by_turn: dict[str, str]) -> Sequence[str]:
    """Delete the content of those of these turns that have ended. Return their ids. Turns of conversations that
    another transaction has locked are left out.
    """
    if not conversation_by_turn:
        return ()
    keys = sorted(set(conversation_by_turn.values()))
    # Conversations first, as everywhere.
    keys = list(connection.execute(_lock_conversations, {"keys": keys}).scalars())
    rows = connection.execute(_lock_turns, {"ids": list(conversation_by_turn), "keys": keys}).all()
    if not rows:
        return ()
    ids = [row.id for row in rows]
    if left := [
        {"t": row.turn_id, "i": row.n, "left": _bare_step(row.kind, row.body)}
        for row in connection.execute(_steps, {"ids": ids})
    ]:
        connection.execute(_clear_step, left)
    connection.execute(_clear_turn, [{"t": row.id, "left": _bare_input(row.input)} for row in rows])
    for clear in (_clear_approvals, _clear_decisions, _clear_deliveries):
        connection.execute(clear, {"ids": ids})
    affected = sorted({conversation_by_turn[turn_id] for turn_id in ids})
    for deletion in _deletions:
        connection.execute(deletion, {"ids": ids, "keys": affected})
    connection.execute(_clear_titles, {"keys": affected})
    return ids


def _bare_input(body: str) -> Body:
    """Return an input with the platform's id of its message only."""
    try:
        question = decode(TurnInput, json.loads(body))
    except UNREADABLE:
        return encode(TurnInput(""))
    return encode(TurnInput("", message_id=question.message_id, model=question.model, deleted=question.deleted))


def _bare_step(kind: str, body: str) -> Body:
    """Return the body of a step without content: models, tools and rules by their names, and counts of tokens."""
    bare: ModelStep | ToolStep
    try:
        if kind == "model":
            bare = replace(decode(ModelStep, json.loads(body), n=0), message=_NO_REPLY.message, notes=())
        else:
            bare = _bare_call(json.loads(body))
    except UNREADABLE:
        bare = _NO_REPLY if kind == "model" else _NO_CALL
    return {**encode(bare), CONTENT_DELETED: True}


def _bare_call(body: Body) -> ToolStep:
    step = decode(ToolStep, body, n=0, status=StepStatus.DONE, repeatable=False, result=None)
    rule = step.policy_result
    return replace(
        step,
        # The model may request a tool of any name.
        call=ToolCall("", step.call.name if step.tool is not None else ""),
        policy_result=None if rule is None else replace(rule, why=""),
    )


# -------------------- jobs and old rows

_add_job = Upsert(lambda insert: insert(jobs).values(due_at=now()).on_conflict_do_nothing())
_start_job = (
    jobs.update()
    .where(
        jobs.c.name == bindparam("job"),
        # Due later than one interval: the clock was set back, or the interval was longer.
        sa.or_(jobs.c.due_at <= now(), jobs.c.due_at > now() + bindparam("seconds")),
    )
    .values(due_at=now() + bindparam("seconds"))
    .returning(jobs.c.name)
)
_old = (
    sa.select(turns.c.id)
    .join(deliveries, deliveries.c.turn_id == turns.c.id)
    .where(
        ~is_live(turns),
        turns.c.ended_at < now() - bindparam("seconds"),
        sa.or_(
            deliveries.c.delivered_revision >= deliveries.c.revision,
            # Never delivered again.
            turns.c.content_deleted_at.is_not(None),
        ),
    )
    .order_by(turns.c.ended_at)
    .limit(bindparam("limit"))
)
_key = conversations.c.key
# Rows locked by another transaction are not empty, or will not be.
_at_rest = sa.select(_key).where(is_one_of(_key, "keys")).order_by(_key).with_for_update(skip_locked=True)
_lock = sa.select(_key).where(_key == bindparam("k")).with_for_update()
_delete_turns = turns.delete().where(is_one_of(turns.c.id, "ids")).returning(turns.c.conversation)
_delete_empty = conversations.delete().where(
    is_one_of(conversations.c.key, "keys"), ~sa.exists().where(turns.c.conversation == conversations.c.key)
)
_delete_unused = conversations.delete().where(
    conversations.c.last_seq == 0, conversations.c.updated_at < now() - bindparam("seconds")
)
_delete_conversation = (
    conversations.delete().where(conversations.c.key == bindparam("k")).returning(conversations.c.key)
)
_live_in = sa.select(turns.c.id).where(turns.c.conversation == bindparam("k"), is_live(turns)).limit(1)


class SqlRetention(Store):
    """Retention of a database; see `bot.ports.TurnRetention`. Part of `SqlTurnLog`."""

    _ended: HistoryCache

    @transaction(retry_seconds=NO_RETRIES)
    def try_start_job(self, connection: sa.Connection, name: str, seconds: float) -> bool:
        """Return True if this process is to run the job now. The job is due again after `seconds`."""
        if connection.execute(_start_job, {"job": name, "seconds": seconds}).first() is not None:
            return True
        connection.execute(_add_job.on(connection), {"name": name})
        return connection.execute(_start_job, {"job": name, "seconds": seconds}).first() is not None

    @transaction
    def delete_old(self, connection: sa.Connection, seconds: float, limit: int) -> int:
        """Delete up to `limit` turns that ended before the given age and whose end was delivered, grants that ended as
        long ago, and conversations in which nothing was asked since they were created as long ago. Return the number of
        turns.
        """
        delete_ended_grants(connection, seconds)
        connection.execute(_delete_unused, {"seconds": seconds})
        ids = connection.execute(_old, {"seconds": seconds, "limit": limit}).scalars().all()
        if ids:
            keys = set(connection.execute(_delete_turns, {"ids": ids}).scalars())
            history.delete_summaries(connection, keys)
            # Re-read under the locks: a message may have arrived.
            at_rest = connection.execute(_at_rest, {"keys": list(keys)}).scalars().all()
            connection.execute(_delete_empty, {"keys": at_rest})
            audit.record(connection, "deleted old turns", audit.NOBODY, count=len(ids))
        return len(ids)

    async def delete_content(self, limit: int, *, fetch_seconds: float, undelivered_seconds: float) -> int:
        """Delete the content of up to `limit` ended turns whose answer is out. Return their number."""
        deleted = await self._delete_content(limit, fetch_seconds, undelivered_seconds)
        self._ended.discard(deleted)
        return len(deleted)

    @transaction(retry_seconds=NO_RETRIES)
    def _delete_content(
        self, connection: sa.Connection, limit: int, fetch_seconds: float, undelivered_seconds: float
    ) -> Sequence[str]:
        values = {
            **prefix_bounds("http", f"{HTTP}:"),
            "limit": limit,
            "fetch_seconds": fetch_seconds,
            "undelivered_seconds": undelivered_seconds,
        }
        due = connection.execute(_due, values).all()
        deleted = delete_content(connection, {row.id: row.conversation for row in due})
        if deleted:
            audit.record(connection, "deleted content", audit.NOBODY, count=len(deleted))
        return deleted

    async def purge_files(self, *, whole: bool) -> bool:
        """Remove what was deleted from the database's files; see `Database.purge_files`."""
        return await self._database.purge_files(whole=whole)


def delete_conversation(connection: sa.Connection, conversation: ConversationKey, by: Author) -> bool:
    """Delete a conversation and all its rows but the audit. Return False if it does not exist or has an unfinished
    turn.
    """
    key = str(conversation)
    # Lock before the check, so that a concurrent message waits or is seen.
    connection.execute(_lock, {"k": key})
    if connection.execute(_live_in, {"k": key}).first() is not None:
        return False
    if connection.execute(_delete_conversation, {"k": key}).first() is None:
        return False
    delete_grants_of_conversation(connection, key)
    audit.record(connection, "deleted conversation", by.principal, conversation=key)
    return True
