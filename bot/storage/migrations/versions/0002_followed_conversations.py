"""Conversations that the bot follows without a mention.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("conversations", sa.Column("followed", sa.Boolean(), server_default=sa.true(), nullable=False))
    op.add_column("conversations", sa.Column("addressed_at", sa.Double(), server_default="0", nullable=False))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("conversations", "addressed_at")
    op.drop_column("conversations", "followed")
