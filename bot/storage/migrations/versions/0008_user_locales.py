"""Languages and time zones of users: chosen, and as their clients told them."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "user_locales",
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("language", sa.Text, nullable=False, server_default=""),
        sa.Column("time_zone", sa.Text, nullable=False, server_default=""),
        sa.Column("told_language", sa.Text, nullable=False, server_default=""),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("principal", name=op.f("user_locales_pkey")),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("user_locales")
