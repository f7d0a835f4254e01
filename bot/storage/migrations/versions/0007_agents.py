"""Profiles that answer to their names, and the agents of conversations and turns."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and the columns."""
    for column in ("agent_id", "agent_name"):
        op.add_column("conversations", sa.Column(column, sa.Text, nullable=False, server_default=""))
    op.add_column("turns", sa.Column("agent_id", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "agent_bindings",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("profile_id", sa.Text, nullable=False),
        sa.Column("set_by", sa.Text, nullable=False),
        sa.Column("set_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name=op.f("agent_bindings_profile_id_profiles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("scope", "profile_id", name=op.f("agent_bindings_pkey")),
    )
    op.create_index(op.f("agent_bindings_profile_id"), "agent_bindings", ["profile_id"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("agent_bindings")
    op.drop_column("turns", "agent_id")
    for column in ("agent_name", "agent_id"):
        op.drop_column("conversations", column)
