"""The turn log: conversations, turns, steps, approvals, decisions, deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Json = sa.JSON()
CLOCK = """
create or replace function countersign_now() returns double precision
language sql volatile as 'select extract(epoch from clock_timestamp())::double precision'
"""


def upgrade() -> None:
    """Apply."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(CLOCK)
    op.create_table(
        "conversations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("conversations_pkey")),
    )
    op.create_table(
        "turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("question", Json, nullable=False),
        sa.Column("failure", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("stop_by", sa.Text(), nullable=True),
        sa.Column("recoveries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation"], ["conversations.key"], name=op.f("turns_conversation_conversations"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("turns_pkey")),
        sa.UniqueConstraint("conversation", "seq", name=op.f("turns_conversation_unique")),
    )
    op.create_index(
        "turns_live",
        "turns",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("status in ('queued', 'running', 'waiting')"),
        postgresql_where=sa.text("status in ('queued', 'running', 'waiting')"),
    )
    op.create_index(
        "turns_one_active",
        "turns",
        ["conversation"],
        unique=True,
        sqlite_where=sa.text("status in ('running', 'waiting')"),
        postgresql_where=sa.text("status in ('running', 'waiting')"),
    )

    op.create_table(
        "deliveries",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("wanted", sa.BigInteger(), nullable=False),
        sa.Column("drawn", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("due_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("problem", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("deliveries_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", name=op.f("deliveries_pkey")),
    )
    op.create_index(
        "deliveries_behind",
        "deliveries",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("drawn < wanted"),
        postgresql_where=sa.text("drawn < wanted"),
    )

    op.create_table(
        "drawings",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("drawings_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "slot", name=op.f("drawings_pkey")),
    )
    op.create_table(
        "message_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("message_keys_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", name=op.f("message_keys_pkey")),
    )
    op.create_index("message_keys_turn_id", "message_keys", ["turn_id"], unique=False)

    op.create_table(
        "steps",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("repeatable", sa.Boolean(), nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("late_result", Json, nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("steps_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "n", name=op.f("steps_pkey")),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("proposed", Json, nullable=False),
        sa.Column("signed", Json, nullable=True),
        sa.Column("requested_for_id", sa.Text(), nullable=False),
        sa.Column("requested_for_name", sa.Text(), nullable=False),
        sa.Column("seen_from", sa.BigInteger(), nullable=False),
        sa.Column("expires_in", sa.Double(), nullable=True),
        sa.Column("posted_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("decided_by", sa.Text(), server_default="", nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["turn_id", "n"], ["steps.turn_id", "steps.n"], name=op.f("approvals_turn_id_steps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("approvals_pkey")),
        sa.UniqueConstraint("turn_id", "n", name=op.f("approvals_turn_id_unique")),
    )
    op.create_table(
        "decisions",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("decisions_approval_id_approvals"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("approval_id", "revision", "person", name=op.f("decisions_pkey")),
    )


def downgrade() -> None:
    """Take back."""
    for table in (
        "decisions",
        "approvals",
        "steps",
        "message_keys",
        "drawings",
        "deliveries",
        "turns",
        "conversations",
    ):
        op.drop_table(table)
