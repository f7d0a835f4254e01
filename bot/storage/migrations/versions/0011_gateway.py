"""Calls that other agents ask for, and the keys of their receipts. A new database has these tables already."""

from alembic import op

from bot.storage.tables import gateway_calls, receipt_keys

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    for table in (gateway_calls, receipt_keys):
        table.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """Drop both tables."""
    for table in (gateway_calls, receipt_keys):
        table.drop(op.get_bind())
