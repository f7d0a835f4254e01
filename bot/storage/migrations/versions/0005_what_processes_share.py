"""What processes share: leases, and limits that they keep together."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("leases_pkey")),
    )
    op.create_table(
        "quotas",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("quotas_pkey")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("quotas")
    op.drop_table("leases")
