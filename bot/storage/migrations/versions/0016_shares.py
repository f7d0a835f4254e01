"""The person and the workspace of a turn: claims are shared among these."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

LIVE = sa.text("status in ('queued', 'running', 'waiting')")
# Of turns that have not ended, from the conversation's key `platform:workspace:channel:thread`.
BACKFILL = {
    "sqlite": """
update turns set
  person = substr(conversation, 1, instr(conversation, ':')) || author_id,
  workspace = substr(conversation, 1, instr(conversation, ':')
                     + instr(substr(conversation, instr(conversation, ':') + 1), ':') - 1)
where status in ('queued', 'running', 'waiting')
""",
    "postgresql": """
update turns set
  person = split_part(conversation, ':', 1) || ':' || author_id,
  workspace = split_part(conversation, ':', 1) || ':' || split_part(conversation, ':', 2)
where status in ('queued', 'running', 'waiting')
""",
}


def upgrade() -> None:
    """Apply."""
    op.add_column("turns", sa.Column("person", sa.Text(), nullable=False, server_default=""))
    op.add_column("turns", sa.Column("workspace", sa.Text(), nullable=False, server_default=""))
    op.execute(BACKFILL[op.get_bind().dialect.name])
    op.create_index("turns_person", "turns", ["person", "created_at"], sqlite_where=LIVE, postgresql_where=LIVE)


def downgrade() -> None:
    """Take back."""
    op.drop_index("turns_person", "turns")
    for name in ("workspace", "person"):
        op.drop_column("turns", name)
