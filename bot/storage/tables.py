"""The tables of the turn log. `migrations/` makes them; a test compares the two.

conversations 1-n turns 1-n steps 1-1 approvals 1-n decisions
                  turns 1-n message_keys
                  turns 1-1 deliveries, 1-n drawings
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "fk": "%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)

Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

LIVE = ("queued", "running", "waiting")

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("author_id", sa.Text, nullable=False),
    sa.Column("author_name", sa.Text, nullable=False),
    sa.Column("question", Json, nullable=False),
    sa.Column("failure", sa.Text, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", sa.Double),
    sa.Column("wake_at", sa.Double),
    sa.Column("stop_by", sa.Text),
    sa.Column("recoveries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.UniqueConstraint("conversation", "seq"),
)

_live = sa.text("status in ('queued', 'running', 'waiting')")
_active = sa.text("status in ('running', 'waiting')")
sa.Index("turns_live", turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
# The promise "one turn of a conversation at a time" is kept by the database itself.
sa.Index("turns_one_active", turns.c.conversation, unique=True, sqlite_where=_active, postgresql_where=_active)

message_keys = sa.Table(
    "message_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
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

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("proposed", Json, nullable=False),
    sa.Column("signed", Json),
    sa.Column("requested_for_id", sa.Text, nullable=False),
    sa.Column("requested_for_name", sa.Text, nullable=False),
    sa.Column("seen_from", sa.BigInteger, nullable=False),
    sa.Column("expires_in", sa.Double),
    sa.Column("posted_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("decided_by", sa.Text, nullable=False, server_default=""),
    sa.Column("decided_at", sa.Double),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("turn_id", "n"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("person", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("at", sa.Double, nullable=False),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("wanted", sa.BigInteger, nullable=False),
    sa.Column("drawn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
)
_behind = sa.text("drawn < wanted")
sa.Index("deliveries_behind", deliveries.c.due_at, sqlite_where=_behind, postgresql_where=_behind)

drawings = sa.Table(
    "drawings",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, nullable=False),
)
