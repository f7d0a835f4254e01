"""The audit."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import StorableText, metadata

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("actor", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    # An index for lookups; the chained value is `subject` in the body.
    sa.Column("subject", StorableText, nullable=False),
    # `key id:hex` of the HMAC over the hash; empty without a key.
    sa.Column("mac", sa.Text, nullable=False),
)
sa.Index("audit_turn", audit.c.turn_id)
sa.Index("audit_actor", audit.c.actor, audit.c.seq)
sa.Index("audit_at", audit.c.at)
_about = sa.text("subject <> ''")
sa.Index("audit_subject", audit.c.subject, audit.c.seq, sqlite_where=_about, postgresql_where=_about)
