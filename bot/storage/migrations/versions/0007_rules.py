"""Rules with conditions and a workspace; on what terms approvals were asked for.

The table `policies` stays as it was for processes of the release before. What they set while the upgrade is under way
is not taken over.
"""

import json
import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_policies = sa.table("policies", *(sa.column(name) for name in ("server_id", "tool", "policy", "set_by", "set_at")))
_servers = sa.table("mcp_servers", sa.column("id"), sa.column("workspace"))


def upgrade() -> None:
    """Apply."""
    rules = op.create_table(
        "policy_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("policy_rules_pkey")),
    )
    op.create_index("policy_rules_server", "policy_rules", ["server_id"], unique=False)
    connection = op.get_bind()
    homes = {row.id: row.workspace for row in connection.execute(sa.select(_servers))}
    rows = connection.execute(sa.select(_policies)).all()
    if rows:
        op.bulk_insert(rules, [_rule(row, rows, homes.get(row.server_id, "")) for row in rows])
    op.add_column("approvals", sa.Column("terms", sa.JSON(), nullable=True))
    op.add_column("approvals", sa.Column("remind_in", sa.Double(), nullable=True))
    op.add_column("approvals", sa.Column("reminded_at", sa.Double(), nullable=True))
    op.add_column("approvals", sa.Column("editors", sa.JSON(), nullable=True))
    op.add_column("approvals", sa.Column("signers", sa.JSON(), nullable=True))
    due = sa.text("remind_in is not null and reminded_at is null")
    op.create_index("approvals_to_remind", "approvals", ["posted_at"], sqlite_where=due, postgresql_where=due)
    op.add_column("decisions", sa.Column("evidence", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    """Take back."""
    op.drop_column("decisions", "evidence")
    op.drop_index("approvals_to_remind", "approvals")
    op.drop_column("approvals", "signers")
    op.drop_column("approvals", "editors")
    op.drop_column("approvals", "reminded_at")
    op.drop_column("approvals", "remind_in")
    op.drop_column("approvals", "terms")
    op.drop_index("policy_rules_server", "policy_rules")
    op.drop_table("policy_rules")


def _rule(row: sa.Row[Any], rows: Sequence[sa.Row[Any]], workspace: str) -> dict[str, object]:
    """What was said of a whole server was about those of its tools of which nothing was said."""
    body: dict[str, object] = {"v": 1, "policy": row.policy, "server_id": row.server_id}
    named = sorted(each.tool for each in rows if each.server_id == row.server_id and each.tool)
    if row.tool:
        body["tool"] = row.tool
    elif named:
        body["except"] = named
    return {
        "id": f"rule_{secrets.token_hex(4)}",
        "workspace": workspace,
        "server_id": row.server_id,
        "body": json.dumps(body),
        "set_by": row.set_by,
        "set_at": row.set_at,
    }
