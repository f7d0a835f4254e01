"""Secrets of servers are bound to the place that they were given for; references are the operator's."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply. The store binds the rows when it is opened: that takes the key."""
    op.add_column("mcp_secrets", sa.Column("bound_to", sa.Text()))
    op.add_column("mcp_secrets", sa.Column("vouched", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Take back."""
    op.drop_column("mcp_secrets", "vouched")
    op.drop_column("mcp_secrets", "bound_to")
