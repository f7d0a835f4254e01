"""Replies of models that broke off: what they took is estimated."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("usage", sa.Column("estimated", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Take back."""
    op.drop_column("usage", "estimated")
