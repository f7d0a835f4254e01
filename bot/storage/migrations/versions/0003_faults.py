"""Faults that operators are told of, and the reports that keep them open."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "faults",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("message", sa.Integer(), nullable=False),
        sa.Column("message_at", sa.Double(), nullable=True),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("faults_pkey")),
    )
    op.create_table(
        "fault_reports",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("reporter", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["faults.key"], name=op.f("fault_reports_key_faults"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", "reporter", name=op.f("fault_reports_pkey")),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("fault_reports")
    op.drop_table("faults")
