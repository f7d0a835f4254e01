"""Whose words a summary was made of."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("summaries", sa.Column("sources", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("summaries", "sources")
