"""Retention: scheduled jobs, and deletion of old turns and conversations."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.storage import audit, history
from bot.storage.content_deletion import delete_due_content
from bot.storage.database import NO_RETRIES, Database, transaction
from bot.storage.dialect import Upsert, now
from bot.storage.grants import delete_ended_grants, delete_grants_of_conversation
from bot.storage.history import HistoryCache
from bot.storage.tables import conversations, deliveries, is_live, jobs, turns

_add_job = Upsert(lambda insert: insert(jobs).values(name=bindparam("name"), due_at=now()).on_conflict_do_nothing())
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
_at_rest = (
    sa.select(_key).where(_key.in_(bindparam("keys", expanding=True))).order_by(_key).with_for_update(skip_locked=True)
)
_lock = sa.select(_key).where(_key == bindparam("k")).with_for_update()
_delete_turns = turns.delete().where(turns.c.id.in_(bindparam("ids", expanding=True))).returning(turns.c.conversation)
_delete_empty = conversations.delete().where(
    conversations.c.key.in_(bindparam("keys", expanding=True)),
    ~sa.exists().where(turns.c.conversation == conversations.c.key),
)
_delete_unused = conversations.delete().where(
    conversations.c.last_seq == 0, conversations.c.updated_at < now() - bindparam("seconds")
)
_delete_conversation = (
    conversations.delete().where(conversations.c.key == bindparam("k")).returning(conversations.c.key)
)
_live_in = sa.select(turns.c.id).where(turns.c.conversation == bindparam("k"), is_live(turns)).limit(1)


class SqlRetention:
    """Retention of a database; see `bot.ports.TurnRetention`. Part of `SqlTurnLog`."""

    _database: Database
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
        return delete_due_content(
            connection, limit, fetch_seconds=fetch_seconds, undelivered_seconds=undelivered_seconds
        )

    async def purge_files(self, *, whole: bool) -> bool:
        """Remove what was deleted from the database's files; see `Database.purge_files`."""
        return await self._database.purge_files(whole=whole)

    @transaction
    def delete_conversation(self, connection: sa.Connection, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation and all its rows but the audit. Return False if it does not exist or has an unfinished
        turn.
        """
        return delete_conversation(connection, conversation, by)


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
