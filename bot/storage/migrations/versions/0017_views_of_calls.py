"""Who has opened a whole call before approving it, and where stored secrets are in its arguments."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "approval_views",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("pages", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("approval_id", "revision", "person", name=op.f("approval_views_pkey")),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("approval_views_approval_id_approvals"), ondelete="CASCADE"
        ),
    )
    op.add_column("approvals", sa.Column("proposed_secrets", sa.JSON()))
    op.add_column("approvals", sa.Column("revised_secrets", sa.JSON()))


def downgrade() -> None:
    """Take back."""
    op.drop_column("approvals", "revised_secrets")
    op.drop_column("approvals", "proposed_secrets")
    op.drop_table("approval_views")
