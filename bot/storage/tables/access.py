"""Tables of API tokens, one-time links and sign-ins, and of policies and profiles."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import StorableText, metadata

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", StorableText, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("workspace", StorableText, nullable=False, server_default=""),
    sa.Column("created_by", StorableText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
)

one_time_links = sa.Table(
    "one_time_links",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("slot", StorableText, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("user_name", StorableText, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)
sa.Index("one_time_links_expiry", one_time_links.c.expires_at)

# The body is encrypted, and bound to its server and user.
sign_ins = sa.Table(
    "sign_ins",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
)

pending_sign_ins = sa.Table(
    "pending_sign_ins",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
sa.Index("pending_sign_ins_expiry", pending_sign_ins.c.expires_at)


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
