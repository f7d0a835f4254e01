"""Servers, their secrets and what is known of them, policies, profiles, the revision; whom the audit speaks of."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_index("conversations_reach", "conversations", ["key"], postgresql_ops={"key": "text_pattern_ops"})
    op.add_column("audit", sa.Column("subject", sa.Text(), server_default="", nullable=False))
    op.create_index(
        "audit_subject",
        "audit",
        ["subject", "seq"],
        unique=False,
        sqlite_where=sa.text("subject <> ''"),
        postgresql_where=sa.text("subject <> ''"),
    )
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("title_key", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("transport", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("authentication", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("auto_connect", sa.Boolean(), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("mcp_servers_pkey")),
        sa.UniqueConstraint("slug", "workspace", name=op.f("mcp_servers_slug_unique")),
        sa.UniqueConstraint("title_key", "workspace", name=op.f("mcp_servers_title_key_unique")),
    )
    op.create_table(
        "mcp_secrets",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), server_default="", nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"], ["mcp_servers.id"], name=op.f("mcp_secrets_server_id_mcp_servers"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("server_id", "slot", name=op.f("mcp_secrets_pkey")),
    )
    op.create_table(
        "mcp_capabilities",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=True),
        sa.Column("definitions", sa.Text(), nullable=True),
        sa.Column("server_version", sa.Text(), server_default="", nullable=False),
        sa.Column("synced_at", sa.Double(), nullable=True),
        sa.Column("problem", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("server_id", name=op.f("mcp_capabilities_pkey")),
    )
    op.create_table(
        "policies",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "tool", name=op.f("policies_pkey")),
    )
    op.create_table(
        "profiles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("profiles_pkey")),
        sa.UniqueConstraint("name_key", "workspace", name=op.f("profiles_name_key_unique")),
    )
    op.create_table(
        "profile_bindings",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name=op.f("profile_bindings_profile_id_profiles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("place", name=op.f("profile_bindings_pkey")),
    )
    op.create_index("profile_bindings_profile_id", "profile_bindings", ["profile_id"], unique=False)
    op.create_table(
        "revisions",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("revisions_pkey")),
    )


def downgrade() -> None:
    """Take back."""
    for table in (
        "revisions",
        "profile_bindings",
        "profiles",
        "policies",
        "mcp_capabilities",
        "mcp_secrets",
        "mcp_servers",
    ):
        op.drop_table(table)
    op.drop_index("audit_subject", "audit")
    op.drop_column("audit", "subject")
    op.drop_index("conversations_reach", "conversations")
