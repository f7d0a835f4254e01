"""Tables of deliveries and posted messages."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import StorableText, metadata
from bot.storage.tables.turns import turns

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("delivered_revision", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", StorableText, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.Double),
)
_behind = sa.text("delivered_revision < revision")
sa.Index("deliveries_stale", deliveries.c.due_at, sqlite_where=_behind, postgresql_where=_behind)

message_refs = sa.Table(
    "message_refs",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, nullable=False),
)
