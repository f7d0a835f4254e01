"""MACs of the audit's rows."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("audit", sa.Column("mac", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Take back."""
    op.drop_column("audit", "mac")
