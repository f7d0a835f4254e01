"""What people think of answers; turns by who asked."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "opinions",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("good", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("opinions_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "person", name=op.f("opinions_pkey")),
    )
    op.create_index("turns_author", "turns", ["author_id", "created_at"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_index("turns_author", "turns")
    op.drop_table("opinions")
