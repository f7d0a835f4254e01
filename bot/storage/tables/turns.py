"""Tables of conversations, turns, steps, files and usage.

`turn_queue` writes the row of a new turn, `turn_records` reads turns and steps, `execution` writes steps.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import Json, StorableText, metadata

LIVE = ("queued", "running", "waiting")

ACTIVE = ("running", "waiting")


def is_live(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition for unfinished turns, written as in their index: planners use it only then."""
    return rows.c.status.in_([sa.literal_column(f"'{status}'") for status in LIVE])


def is_active(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition for a conversation's active turn, written as in its index."""
    return rows.c.status.in_([sa.literal_column(f"'{status}'") for status in ACTIVE])


conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("title", StorableText, nullable=False, server_default=""),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    # False after a message to another user, until a message addresses the bot. `addressed_at` is the time of the last
    # such message on its platform.
    sa.Column("followed", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("addressed_at", sa.Double, nullable=False, server_default="0"),
)
# Prefixes of keys are compared byte by byte, independent of the server's collation.
sa.Index("conversations_key_prefix", conversations.c.key, postgresql_ops={"key": "text_pattern_ops"})

summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), primary_key=True),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("text", StorableText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("sources", Json, nullable=False),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("author_id", StorableText, nullable=False),
    sa.Column("author_name", StorableText, nullable=False),
    # `Author.principal` and `ConversationKey.workspace_key`: claims are distributed fairly among these.
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("input", Json, nullable=False),
    sa.Column("failure", StorableText, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", sa.Double),
    sa.Column("wake_at", sa.Double),
    sa.Column("stop_by", StorableText),
    sa.Column("recoveries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.UniqueConstraint("conversation", "seq"),
)
_live = sa.text("status in ('queued', 'running', 'waiting')")
_active = sa.text("status in ('running', 'waiting')")
sa.Index("turns_live", turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
# The database itself enforces one running turn a conversation.
sa.Index("turns_one_active", turns.c.conversation, unique=True, sqlite_where=_active, postgresql_where=_active)
sa.Index("turns_principal", turns.c.principal, turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
sa.Index("turns_author", turns.c.author_id, turns.c.created_at)
sa.Index("turns_created", turns.c.created_at)

message_keys = sa.Table(
    "message_keys",
    metadata,
    sa.Column("key", StorableText, primary_key=True),
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), nullable=False, index=True),
)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("repeatable", sa.Boolean, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("late_result", Json),
    sa.Column("fence", sa.BigInteger),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
)

feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("good", sa.Boolean, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# Files returned by tools, by SHA-256: read only for delivery and downloads, deleted with their turn.
files = sa.Table(
    "files",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Usage of models. Outlives the turns and holds no texts.
usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    # The request's step; 0 until the final usage is known.
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("model", StorableText, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_writes", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    # In micro-units of the currency; null if the model had no price then.
    sa.Column("cost", sa.BigInteger),
    sa.Column("currency", sa.Text, nullable=False),
    # Estimated: the provider does not report usage, or the reply is incomplete.
    sa.Column("estimated", sa.Boolean, nullable=False),
)
sa.Index("usage_principal", usage.c.principal, usage.c.at)
sa.Index("usage_channel", usage.c.channel, usage.c.at)
sa.Index("usage_at", usage.c.at)
