"""Tables. `migrations/` creates them, and the views `messages`, `tool_calls` and `conversation_states` on top of them;
a test compares the two.

conversations 1-1 summaries
conversations 1-n turns 1-n steps 1-1 approvals 1-n decisions
                  turns 1-n message_keys
                  turns 1-1 deliveries, 1-n message_refs
                  turns 1-n feedback
                  turns 1-n files
                  steps 1-n elicitations, approvals 1-n approval_views
grants            permissions for later calls
jobs              scheduled jobs, each run by one process
leases            exclusive leases of processes
quotas            rate limits shared by all processes; an expired row has no effect
faults 1-n fault_reports   reported faults, and their reporters
api_tokens        tokens of the HTTP API, as hashes
one_time_links    links to enter one secret, for one user; tokens as hashes
sign_ins          OAuth sign-ins by server and user, encrypted
pending_sign_ins  started OAuth sign-ins; states as hashes
installations     the app in workspaces, with encrypted tokens
used_install_states  used states of installations in a browser, as hashes
mcp_servers 1-n mcp_secrets, by id alone 1-1 mcp_capabilities, 1-n tool_pins and 1-n policy_rules: also those of the
                  operator's servers
profiles 1-n profile_bindings, 1-n agent_bindings
config_version    at most one row: the version of servers, policies and profiles, and their lock
user_locales      languages and time zones of users: chosen, and told by their clients
usage             tokens and cost of each model request; no row refers to another table
audit             append-only and chained; no row refers to another table
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.database import StorableText

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "fk": "%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)
# Plain JSON on PostgreSQL too: JSONB would change the order of arguments, which approvers have seen, and
# refuse NUL, which tools may return.
Json = sa.JSON()

# -------------------- conversations, turns, steps, files and usage

LIVE = ("queued", "running", "waiting")

ACTIVE = ("running", "waiting")


def is_live(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition for unfinished turns, written as in their index: planners use it only then."""
    return rows.c.status.in_([sa.literal_column(f"'{status}'") for status in LIVE])


def is_active(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition for a conversation's active turn, written as in its index."""
    return rows.c.status.in_([sa.literal_column(f"'{status}'") for status in ACTIVE])


def count_where(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """Return the number of a group's rows that satisfy a condition."""
    return sa.func.sum(sa.case((condition, 1), else_=0))


conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("title", StorableText, nullable=False, server_default=""),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    # False after a message to another user, until a message addresses the bot. `addressed_at` is the time of the last
    # such message on its platform.
    sa.Column("followed", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("addressed_at", sa.Double, nullable=False, server_default="0"),
    # The agent that was named last; empty for the profile of the place.
    sa.Column("agent_id", StorableText, nullable=False, server_default=""),
    sa.Column("agent_name", StorableText, nullable=False, server_default=""),
)
# Prefixes of keys are compared byte by byte, independent of the server's collation.
sa.Index("conversations_key_prefix", conversations.c.key, postgresql_ops={"key": "text_pattern_ops"})

summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), primary_key=True),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("text", StorableText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("sources", Json, nullable=False),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("author_id", StorableText, nullable=False),
    sa.Column("author_name", StorableText, nullable=False),
    # `Author.principal` and `ConversationKey.workspace_key`: claims are distributed fairly among these.
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    # The agent of the input; empty for the profile of the place.
    sa.Column("agent_id", StorableText, nullable=False, server_default=""),
    sa.Column("input", Json, nullable=False),
    sa.Column("failure", StorableText, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", sa.Double),
    sa.Column("wake_at", sa.Double),
    sa.Column("stop_by", StorableText),
    sa.Column("recoveries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    # Set once `content_deletion` has taken all content out of the turn's rows.
    sa.Column("content_deleted_at", sa.Double),
    sa.UniqueConstraint("conversation", "seq"),
)
_live = sa.text("status in ('queued', 'running', 'waiting')")
_active = sa.text("status in ('running', 'waiting')")
sa.Index("turns_live", turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
# The database itself enforces one running turn a conversation.
sa.Index("turns_one_active", turns.c.conversation, unique=True, sqlite_where=_active, postgresql_where=_active)
sa.Index("turns_principal", turns.c.principal, turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
sa.Index("turns_author", turns.c.author_id, turns.c.created_at)
sa.Index("turns_created", turns.c.created_at)
_with_content = sa.text("content_deleted_at is null and ended_at is not null")
sa.Index("turns_with_content", turns.c.ended_at, sqlite_where=_with_content, postgresql_where=_with_content)

message_keys = sa.Table(
    "message_keys",
    metadata,
    sa.Column("key", StorableText, primary_key=True),
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), nullable=False, index=True),
)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("repeatable", sa.Boolean, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("late_result", Json),
    sa.Column("fence", sa.BigInteger),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
)

user_locales = sa.Table(
    "user_locales",
    metadata,
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("language", sa.Text, nullable=False, server_default=""),
    sa.Column("time_zone", sa.Text, nullable=False, server_default=""),
    sa.Column("told_language", sa.Text, nullable=False, server_default=""),
    sa.Column("updated_at", sa.Double, nullable=False),
)

feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("good", sa.Boolean, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# Files returned by tools, by SHA-256: read only for delivery and downloads, deleted with their turn.
files = sa.Table(
    "files",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Usage of models. Outlives the turns and holds no texts.
usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    # The request's step; 0 until the final usage is known.
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("model", StorableText, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_writes", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    # In micro-units of the currency; null if the model had no price then.
    sa.Column("cost", sa.BigInteger),
    sa.Column("currency", sa.Text, nullable=False),
    # Estimated: the provider does not report usage, or the reply is incomplete.
    sa.Column("estimated", sa.Boolean, nullable=False),
)
sa.Index("usage_principal", usage.c.principal, usage.c.at)
sa.Index("usage_channel", usage.c.channel, usage.c.at)
sa.Index("usage_at", usage.c.at)


# -------------------- approvals, decisions, grants and elicitations

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

approval_of_step = sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n)
"""Condition that joins a call and its approval."""

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


# -------------------- deliveries and posted messages

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("delivered_revision", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", StorableText, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.Double),
)
_behind = sa.text("delivered_revision < revision")
sa.Index("deliveries_stale", deliveries.c.due_at, sqlite_where=_behind, postgresql_where=_behind)

message_refs = sa.Table(
    "message_refs",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, nullable=False),
)


# -------------------- the audit

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("actor", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    # An index for lookups; the chained value is `subject` in the body.
    sa.Column("subject", StorableText, nullable=False),
    # `key id:hex` of the HMAC over the hash; empty without a key.
    sa.Column("mac", sa.Text, nullable=False),
)
sa.Index("audit_turn", audit.c.turn_id)
sa.Index("audit_actor", audit.c.actor, audit.c.seq)
sa.Index("audit_at", audit.c.at)
_about = sa.text("subject <> ''")
sa.Index("audit_subject", audit.c.subject, audit.c.seq, sqlite_where=_about, postgresql_where=_about)


# -------------------- MCP servers, their secrets and capabilities

# JSON is stored as plain text below, because an unreadable row must not hide the others.
mcp_servers = sa.Table(
    "mcp_servers",
    metadata,
    sa.Column("id", StorableText, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("slug", StorableText, nullable=False),
    sa.Column("title", StorableText, nullable=False),
    sa.Column("title_key", StorableText, nullable=False),
    sa.Column("description", StorableText, nullable=False),
    sa.Column("transport", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("authentication", sa.Text, nullable=False),
    sa.Column("trusted", sa.Boolean, nullable=False),
    sa.Column("auto_connect", sa.Boolean, nullable=False),
    sa.Column("enablement", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", StorableText, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    sa.UniqueConstraint("slug", "workspace"),
    sa.UniqueConstraint("title_key", "workspace"),
)

mcp_secrets = sa.Table(
    "mcp_secrets",
    metadata,
    sa.Column("server_id", sa.ForeignKey(mcp_servers.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", StorableText, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("location", StorableText, nullable=False, server_default=""),
    sa.Column("ciphertext", sa.Text),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    # The endpoint that the secret was given for (`bot.domain.secret_binding`).
    sa.Column("bound_to", StorableText, nullable=False),
    sa.Column("vouched", sa.Boolean, nullable=False),
)

mcp_capabilities = sa.Table(
    "mcp_capabilities",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("capabilities", sa.Text),
    sa.Column("definitions", sa.Text),
    sa.Column("server_version", StorableText, nullable=False, server_default=""),
    sa.Column("synced_at", sa.Double),
    sa.Column("error", StorableText, nullable=False, server_default=""),
)

# One row for each pinned tool. The row without a tool marks the server's first sync.
tool_pins = sa.Table(
    "tool_pins",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("tool", StorableText, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("pinned_by", StorableText, nullable=False),
    sa.Column("pinned_at", sa.Double, nullable=False),
)


# -------------------- API tokens, one-time links, sign-ins, policies and profiles

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", StorableText, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("workspace", StorableText, nullable=False, server_default=""),
    sa.Column("created_by", StorableText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
)

one_time_links = sa.Table(
    "one_time_links",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("slot", StorableText, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("user_name", StorableText, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)
sa.Index("one_time_links_expiry", one_time_links.c.expires_at)

# The body is encrypted, and bound to its server and user.
sign_ins = sa.Table(
    "sign_ins",
    metadata,
    sa.Column("server_id", StorableText, primary_key=True),
    sa.Column("principal", StorableText, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
)

pending_sign_ins = sa.Table(
    "pending_sign_ins",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("principal", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
sa.Index("pending_sign_ins_expiry", pending_sign_ins.c.expires_at)

# The body is encrypted, and bound to its workspace.
installations = sa.Table(
    "installations",
    metadata,
    sa.Column("platform", StorableText, primary_key=True),
    sa.Column("workspace", StorableText, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("removed_at", sa.Double),
    sa.Column("updated_at", sa.Double, nullable=False),
)

used_install_states = sa.Table(
    "used_install_states",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),
)
sa.Index("used_install_states_expiry", used_install_states.c.expires_at)


policy_rules = sa.Table(
    "policy_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("server_id", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("set_by", StorableText, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
sa.Index("policy_rules_server", policy_rules.c.server_id)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("id", StorableText, primary_key=True),
    sa.Column("workspace", StorableText, nullable=False),
    sa.Column("name", StorableText, nullable=False),
    sa.Column("name_key", StorableText, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", StorableText, nullable=False),
    sa.UniqueConstraint("name_key", "workspace"),
)

profile_bindings = sa.Table(
    "profile_bindings",
    metadata,
    sa.Column("scope", StorableText, primary_key=True),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("set_by", StorableText, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)

# Profiles that answer to their names in a place, beside the one that is bound to it.
agent_bindings = sa.Table(
    "agent_bindings",
    metadata,
    sa.Column("scope", StorableText, primary_key=True),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    sa.Column("set_by", StorableText, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)


# -------------------- jobs, leases, quotas, faults

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)

config_version = sa.Table(
    "config_version",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)

faults = sa.Table(
    "faults",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("opened_at", sa.Double, nullable=False),
    sa.Column("closed_at", sa.Double),
    sa.Column("first_at", sa.Double, nullable=False),
    sa.Column("occurrences", sa.Integer, nullable=False),
    sa.Column("message", sa.Integer, nullable=False),
    sa.Column("message_at", sa.Double),
    sa.Column("ref", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("delivered", sa.BigInteger, nullable=False),
)

fault_reports = sa.Table(
    "fault_reports",
    metadata,
    sa.Column("key", sa.Text, sa.ForeignKey("faults.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("reporter", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),
)
