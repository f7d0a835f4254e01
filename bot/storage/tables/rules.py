"""Tables of policies and profiles."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import StorableText, metadata

policy_rules = sa.Table(
    "policy_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("set_by", StorableText, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
sa.Index("policy_rules_server", policy_rules.c.server_id)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("id", StorableText, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("name", StorableText, nullable=False),
    sa.Column("name_key", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    sa.UniqueConstraint("name_key", "workspace"),
)

profile_bindings = sa.Table(
    "profile_bindings",
    metadata,
    sa.Column("scope", StorableText, primary_key=True),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("set_by", StorableText, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
