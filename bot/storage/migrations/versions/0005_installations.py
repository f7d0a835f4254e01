"""Installations of the app in workspaces, and the used states of installations in a browser."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "installations",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.Double(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "workspace", name=op.f("installations_pkey")),
    )
    op.create_table(
        "used_install_states",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("used_install_states_pkey")),
    )
    op.create_index("used_install_states_expiry", "used_install_states", ["expires_at"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("used_install_states")
    op.drop_table("installations")
