"""What tools returned beside text."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "files",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="files_turn_id_turns_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "id", name="files_pkey"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("files")
