"""Tables of MCP servers, their secrets and capabilities."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import StorableText, metadata

# JSON is stored as plain text below, because an unreadable row must not hide the others.
mcp_servers = sa.Table(
    "mcp_servers",
    metadata,
    sa.Column("id", StorableText, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("slug", StorableText, nullable=False),
    sa.Column("title", StorableText, nullable=False),
    sa.Column("title_key", StorableText, nullable=False),
    sa.Column("description", StorableText, nullable=False),
    sa.Column("transport", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("authentication", sa.Text, nullable=False),
    sa.Column("trusted", sa.Boolean, nullable=False),
    sa.Column("auto_connect", sa.Boolean, nullable=False),
    sa.Column("enablement", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", StorableText, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    sa.UniqueConstraint("slug", "workspace"),
    sa.UniqueConstraint("title_key", "workspace"),
)

mcp_secrets = sa.Table(
    "mcp_secrets",
    metadata,
    sa.Column("server_id", sa.ForeignKey(mcp_servers.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", StorableText, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("location", StorableText, nullable=False, server_default=""),
    sa.Column("ciphertext", sa.Text),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    # The endpoint that the secret was given for (`bot.domain.secret_binding`).
    sa.Column("bound_to", StorableText, nullable=False),
    sa.Column("vouched", sa.Boolean, nullable=False),
)

mcp_capabilities = sa.Table(
    "mcp_capabilities",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("capabilities", sa.Text),
    sa.Column("definitions", sa.Text),
    sa.Column("server_version", StorableText, nullable=False, server_default=""),
    sa.Column("synced_at", sa.Double),
    sa.Column("error", StorableText, nullable=False, server_default=""),
)

# One row for each pinned tool. The row without a tool marks the server's first sync.
tool_pins = sa.Table(
    "tool_pins",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("tool", StorableText, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("pinned_by", StorableText, nullable=False),
    sa.Column("pinned_at", sa.Double, nullable=False),
)
