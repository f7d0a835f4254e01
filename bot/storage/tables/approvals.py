"""Tables of approvals, decisions, grants and elicitations."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import Json, StorableText, metadata
from bot.storage.tables.turns import steps

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("proposed_arguments", Json, nullable=False),
    sa.Column("revised_arguments", Json),
    sa.Column("revised_by", StorableText, nullable=False, server_default=""),
    sa.Column("approved_arguments", Json),
    sa.Column("requested_for_id", StorableText, nullable=False),
    sa.Column("requested_for_name", StorableText, nullable=False),
    sa.Column("view_revision", sa.BigInteger, nullable=False),
    sa.Column("expires_in", sa.Double),
    sa.Column("posted_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("decided_by", StorableText, nullable=False, server_default=""),
    sa.Column("decided_at", sa.Double),
    sa.Column("reason", StorableText, nullable=False, server_default=""),
    sa.Column("requirements", Json, nullable=False),
    sa.Column("remind_in", sa.Double),
    sa.Column("reminded_at", sa.Double),
    sa.Column("possible_approvers", Json),
    sa.Column("notify_privately", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("notified_at", sa.Double),
    sa.Column("editors", Json),
    sa.Column("approver_names", Json),
    # Positions and labels of stored secrets in `proposed` and `revised`, never their values.
    sa.Column("proposed_secrets", Json, nullable=False),
    sa.Column("revised_secrets", Json),
    sa.UniqueConstraint("turn_id", "n"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)
_to_remind = sa.text("remind_in is not null and reminded_at is null")
sa.Index("approvals_to_remind", approvals.c.posted_at, sqlite_where=_to_remind, postgresql_where=_to_remind)
_to_notify = sa.text("notify_privately and notified_at is null")
sa.Index("approvals_to_notify", approvals.c.posted_at, sqlite_where=_to_notify, postgresql_where=_to_notify)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("name", StorableText, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("reason", StorableText, nullable=False, server_default=""),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("evidence", StorableText, nullable=False),
)

# Approvers who opened the whole call of a revision in private, with the number of viewed pages.
approval_views = sa.Table(
    "approval_views",
    metadata,
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("pages", sa.Integer, nullable=False),
    sa.Column("viewed", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("granted_by", StorableText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("revoked_by", StorableText, nullable=False, server_default=""),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("server_name", StorableText, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("destructive", sa.Boolean, nullable=False),
    sa.Column("idle_seconds", sa.Double),
    sa.Column("used_at", sa.Double),
    sa.Column("granted_by_name", StorableText, nullable=False),
    sa.Column("approval_id", sa.Text, nullable=False),
    sa.Column("rule", StorableText, nullable=False),
    sa.Column("requirements_digest", sa.Text, nullable=False),
)
sa.Index("grants_tool", grants.c.server, grants.c.tool)

# Elicitations of servers during a call, or before its next attempt.
elicitations = sa.Table(
    "elicitations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("key", StorableText, nullable=False),
    sa.Column("request", Json, nullable=False),
    sa.Column("state", Json),
    sa.Column("fence", sa.BigInteger),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("answer", Json),
    sa.Column("answered_by", StorableText, nullable=False, server_default=""),
    sa.Column("reason", StorableText, nullable=False, server_default=""),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("answered_at", sa.Double),
    sa.Column("expires_in", sa.Double),
    sa.Column("view_revision", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.UniqueConstraint("turn_id", "n", "round", "key"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)
