"""What a model has made of the oldest turns of a conversation."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "summaries",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.key"],
            name="summaries_conversation_conversations_fk",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", name="summaries_pkey"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("summaries")
