"""The whole schema, as `bot.storage.schema` creates it until a release fixes this migration."""

from alembic import op

from bot.storage.schema import create_schema
from bot.storage.tables import metadata

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table, view, trigger and function."""
    create_schema(op.get_bind())


def downgrade() -> None:
    """Drop everything that `upgrade` created."""
    connection = op.get_bind()
    for view in ("conversation_states", "tool_calls", "messages"):
        op.execute(f"drop view {view}")
    metadata.drop_all(connection)
    if connection.dialect.name == "postgresql":
        for function in ("countersign_audit_is_append_only()", "countersign_readable(json)", "countersign_now()"):
            op.execute(f"drop function {function}")
