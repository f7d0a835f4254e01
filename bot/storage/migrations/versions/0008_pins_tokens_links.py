"""Definitions of tools that somebody answers for, tokens of the HTTP API, and links for entering a secret."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "tool_pins",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("pinned_by", sa.Text(), nullable=False),
        sa.Column("pinned_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "tool", name="tool_pins_pkey"),
    )
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), server_default="", nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="api_tokens_pkey"),
        sa.UniqueConstraint("name", name="api_tokens_name_unique"),
        sa.UniqueConstraint("hash", name="api_tokens_hash_unique"),
    )
    op.create_table(
        "one_time_links",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("person_name", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name="one_time_links_pkey"),
    )
    op.create_index("one_time_links_expiry", "one_time_links", ["expires_at"], unique=False)
    op.create_index("turns_created", "turns", ["created_at"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_index("turns_created", "turns")
    op.drop_index("one_time_links_expiry", "one_time_links")
    op.drop_table("one_time_links")
    op.drop_table("api_tokens")
    op.drop_table("tool_pins")
