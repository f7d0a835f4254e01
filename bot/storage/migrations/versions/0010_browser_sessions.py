"""Sessions in browsers. The baseline makes every table of the code, so that a new database has this one already."""

from alembic import op

from bot.storage.tables import browser_sessions

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of sessions."""
    browser_sessions.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """Drop the table of sessions."""
    browser_sessions.drop(op.get_bind())
