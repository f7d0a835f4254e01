"""Signing in to servers by OAuth, and what servers ask back."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "sign_ins",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "person", name="sign_ins_pkey"),
    )
    op.create_table(
        "sign_ins_under_way",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="sign_ins_under_way_pkey"),
    )
    op.create_index("sign_ins_under_way_expiry", "sign_ins_under_way", ["expires_at"])
    op.create_table(
        "elicitations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON()),
        sa.Column("fence", sa.BigInteger()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("answer", sa.JSON()),
        sa.Column("answered_by", sa.Text(), nullable=False, server_default=""),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("answered_at", sa.Double()),
        sa.Column("expires_in", sa.Double()),
        sa.Column("seen_from", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="elicitations_pkey"),
        sa.UniqueConstraint("turn_id", "n", "round", "key", name="elicitations_turn_id_unique"),
        sa.ForeignKeyConstraint(
            ["turn_id", "n"], ["steps.turn_id", "steps.n"], name="elicitations_turn_id_steps_fk", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("elicitations")
    op.drop_table("sign_ins_under_way")
    op.drop_table("sign_ins")
