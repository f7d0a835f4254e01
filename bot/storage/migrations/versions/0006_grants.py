"""What a grant covers and when it ends; finding rows of the audit by person and by time."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def columns() -> tuple["sa.Column[object]", ...]:
    """What the table of grants has now, beside what it had."""
    return (
        sa.Column("scope", sa.Text(), server_default="", nullable=False),
        sa.Column("server_name", sa.Text(), server_default="", nullable=False),
        sa.Column("definition", sa.Text(), server_default="", nullable=False),
        sa.Column("destructive", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("idle_seconds", sa.Double(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.Column("granted_name", sa.Text(), server_default="", nullable=False),
        sa.Column("approval_id", sa.Text(), server_default="", nullable=False),
        sa.Column("rule", sa.Text(), server_default="", nullable=False),
        sa.Column("terms", sa.Text(), server_default="", nullable=False),
    )


def upgrade() -> None:
    """Apply."""
    for column in columns():
        op.add_column("grants", column)
    op.create_index("audit_actor", "audit", ["actor", "seq"], unique=False)
    op.create_index("audit_at", "audit", ["at"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_index("audit_at", "audit")
    op.drop_index("audit_actor", "audit")
    for column in columns():
        op.drop_column("grants", column.name)
