"""What admins say of tools: policies and profiles."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.tables.columns import Words, metadata

policy_rules = sa.Table(
    "policy_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace", Words, nullable=False),
    sa.Column("server_id", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("set_by", Words, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
sa.Index("policy_rules_server", policy_rules.c.server_id)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("workspace", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("name_key", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", Words, nullable=False),
    sa.UniqueConstraint("name_key", "workspace"),
)

profile_bindings = sa.Table(
    "profile_bindings",
    metadata,
    sa.Column("place", Words, primary_key=True),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("set_by", Words, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
