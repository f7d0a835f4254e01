"""Turns whose content is deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_WITH_CONTENT = sa.text("content_deleted_at is null and ended_at is not null")


def upgrade() -> None:
    op.add_column("turns", sa.Column("content_deleted_at", sa.Double))
    op.create_index(
        "turns_with_content", "turns", ["ended_at"], sqlite_where=_WITH_CONTENT, postgresql_where=_WITH_CONTENT
    )


def downgrade() -> None:
    op.drop_index("turns_with_content", "turns")
    op.drop_column("turns", "content_deleted_at")
