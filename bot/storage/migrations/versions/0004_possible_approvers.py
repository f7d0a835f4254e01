"""Possible approvers of a call, and private notices to them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TO_NOTIFY = sa.text("notify_privately and notified_at is null")


def upgrade() -> None:
    op.add_column("approvals", sa.Column("possible_approvers", sa.JSON))
    op.add_column("approvals", sa.Column("notify_privately", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("approvals", sa.Column("notified_at", sa.Double))
    op.create_index(
        "approvals_to_notify", "approvals", ["posted_at"], sqlite_where=_TO_NOTIFY, postgresql_where=_TO_NOTIFY
    )


def downgrade() -> None:
    op.drop_index("approvals_to_notify", "approvals")
    for column in ("notified_at", "notify_privately", "possible_approvers"):
        op.drop_column("approvals", column)
