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
one_time_links    links to enter one secret or the console, for one user; tokens as hashes
browser_sessions  sessions of users in the console; their secrets as hashes
turns 1-1 gateway_calls       calls that other agents ask for, with the keys that recognize a repetition
receipt_keys      keys that sign receipts, encrypted; the last one signs
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

from typing import Any

import sqlalchemy as sa

from bot.storage.database import StorableText, matching

_POSTGRESQL_OPTIONS: list[tuple[sa.Index, dict[str, Any]]] = []
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

_Type = type[sa.types.TypeEngine[Any]] | sa.types.TypeEngine[Any]


def _table(name: str, *items: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *items)


def _required(kind: _Type, *names: str, default: str | None = None) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def _key(kind: _Type, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, primary_key=True, autoincrement=False) for name in names]


def _partial_index(name: str, condition: str, *columns: sa.Column[Any], unique: bool = False) -> None:
    where = sa.text(condition)
    _in_postgresql(sa.Index(name, *columns, unique=unique, sqlite_where=where), where=where)


def _in_postgresql(index: sa.Index, **options: Any) -> None:
    """Give an index these options once `use_postgresql` is called: SQLAlchemy loads the dialect for them, 21 modules,
    which SQLite does not need.
    """
    _POSTGRESQL_OPTIONS.append((index, options))


def use_postgresql() -> None:
    """Give the indexes their options for PostgreSQL."""
    for index, options in _POSTGRESQL_OPTIONS:
        index.dialect_options["postgresql"].update(options)


def _nullable(kind: _Type, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


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


conversations = _table(
    "conversations",
    *_key(sa.Text, "key"),
    *_required(StorableText, "title", default=""),
    *_required(sa.BigInteger, "last_seq"),
    *_required(sa.Double, "created_at", "updated_at"),
    # False after a message to another user, until a message addresses the bot. `addressed_at` is the time of the last
    # such message on its platform.
    sa.Column("followed", sa.Boolean, nullable=False, server_default=sa.true()),
    *_required(sa.Double, "addressed_at", default="0"),
    # The agent that was named last; empty for the profile of the place.
    *_required(StorableText, "agent_id", "agent_name", default=""),
)
# Prefixes of keys are compared byte by byte, independent of the server's collation.
_in_postgresql(sa.Index("conversations_key_prefix", conversations.c.key), ops={"key": "text_pattern_ops"})

summaries = _table(
    "summaries",
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), primary_key=True),
    *_required(sa.BigInteger, "upto"),
    *_required(StorableText, "text"),
    *_required(sa.Double, "created_at"),
    *_required(Json, "sources"),
)

turns = _table(
    "turns",
    *_key(sa.Text, "id"),
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), nullable=False),
    *_required(sa.BigInteger, "seq"),
    *_required(sa.Text, "status", "kind"),
    *_required(StorableText, "author_id", "author_name"),
    # `Author.principal` and `ConversationKey.workspace_key`: claims are distributed fairly among these.
    *_required(StorableText, "principal"),
    *_required(sa.Text, "workspace"),
    # The agent of the input; empty for the profile of the place.
    *_required(StorableText, "agent_id", default=""),
    *_required(Json, "input"),
    *_required(StorableText, "failure", default=""),
    *_nullable(sa.Text, "owner"),
    *_required(sa.BigInteger, "fence", default="0"),
    *_nullable(sa.Double, "lease_until", "wake_at"),
    *_nullable(StorableText, "stop_by"),
    *_required(sa.Integer, "recoveries", default="0"),
    *_required(sa.Double, "created_at"),
    *_nullable(sa.Double, "ended_at"),
    # Set once `content_deletion` has taken all content out of the turn's rows.
    *_nullable(sa.Double, "content_deleted_at"),
    sa.UniqueConstraint("conversation", "seq"),
)
_live = "status in ('queued', 'running', 'waiting')"
_partial_index("turns_live", _live, turns.c.created_at)
# The database itself enforces one running turn a conversation.
_partial_index("turns_one_active", "status in ('running', 'waiting')", turns.c.conversation, unique=True)
_partial_index("turns_principal", _live, turns.c.principal, turns.c.created_at)
sa.Index("turns_author", turns.c.author_id, turns.c.created_at)
sa.Index("turns_created", turns.c.created_at)
_partial_index("turns_with_content", "content_deleted_at is null and ended_at is not null", turns.c.ended_at)

message_keys = _table(
    "message_keys",
    *_key(StorableText, "key"),
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), nullable=False, index=True),
)

steps = _table(
    "steps",
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(sa.Integer, "n"),
    *_required(sa.Text, "kind", "status"),
    *_required(sa.Boolean, "repeatable"),
    *_required(Json, "body"),
    *_nullable(Json, "result", "late_result"),
    *_nullable(sa.BigInteger, "fence"),
    *_required(sa.Double, "created_at"),
    *_nullable(sa.Double, "started_at", "ended_at"),
)

user_locales = _table(
    "user_locales",
    *_key(StorableText, "principal"),
    *_required(sa.Text, "language", "time_zone", "told_language", default=""),
    *_required(sa.Double, "updated_at"),
)

feedback = _table(
    "feedback",
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(StorableText, "principal"),
    *_required(sa.Boolean, "good"),
    *_required(sa.Double, "at"),
)

# Files returned by tools, by SHA-256: read only for delivery and downloads, deleted with their turn.
files = _table(
    "files",
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(sa.Text, "id"),
    *_required(sa.LargeBinary, "data"),
)

# Usage of models. Outlives the turns and holds no texts.
usage = _table(
    "usage",
    *_key(sa.Text, "id"),
    *_required(sa.Text, "turn_id"),
    # The request's step; 0 until the final usage is known.
    *_required(sa.Integer, "n"),
    *_required(sa.Text, "kind"),
    *_required(sa.Double, "at"),
    *_required(sa.Text, "workspace", "channel"),
    *_required(StorableText, "principal", "model"),
    *_required(sa.BigInteger, "input_tokens", "cached_tokens", "cache_writes", "output_tokens", "reasoning_tokens"),
    # In micro-units of the currency; null if the model had no price then.
    *_nullable(sa.BigInteger, "cost"),
    *_required(sa.Text, "currency"),
    # Estimated: the provider does not report usage, or the reply is incomplete.
    *_required(sa.Boolean, "estimated"),
)
sa.Index("usage_principal", usage.c.principal, usage.c.at)
sa.Index("usage_channel", usage.c.channel, usage.c.at)
sa.Index("usage_at", usage.c.at)


# -------------------- approvals, decisions, grants and elicitations

approvals = _table(
    "approvals",
    *_key(sa.Text, "id"),
    *_required(sa.Text, "turn_id"),
    *_required(sa.Integer, "n", "revision"),
    *_required(sa.Text, "fingerprint"),
    *_required(Json, "proposed_arguments"),
    *_nullable(Json, "revised_arguments"),
    *_required(StorableText, "revised_by", default=""),
    *_nullable(Json, "approved_arguments"),
    *_required(StorableText, "requested_for_id", "requested_for_name"),
    *_required(sa.BigInteger, "view_revision"),
    *_nullable(sa.Double, "expires_in", "posted_at", "expires_at"),
    *_required(StorableText, "decided_by", default=""),
    *_nullable(sa.Double, "decided_at"),
    *_required(StorableText, "reason", default=""),
    *_required(Json, "requirements"),
    *_nullable(sa.Double, "remind_in", "reminded_at"),
    *_nullable(Json, "possible_approvers"),
    sa.Column("notify_privately", sa.Boolean, nullable=False, server_default=sa.false()),
    *_nullable(sa.Double, "notified_at"),
    *_nullable(Json, "editors", "approver_names"),
    # Positions and labels of stored secrets in `proposed` and `revised`, never their values.
    *_required(Json, "proposed_secrets"),
    *_nullable(Json, "revised_secrets"),
    sa.UniqueConstraint("turn_id", "n"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)
_partial_index("approvals_to_remind", "remind_in is not null and reminded_at is null", approvals.c.posted_at)
_partial_index("approvals_to_notify", "notify_privately and notified_at is null", approvals.c.posted_at)

this_turn = matching(turns, id="t")
this_step = matching(steps, turn_id="t", n="i")
this_approval = matching(approvals, id="a")
"""Conditions on the row that parameters of these names identify."""
approval_of_step = sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n)
"""Condition that joins a call and its approval."""

decisions = _table(
    "decisions",
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(sa.Integer, "revision"),
    *_key(StorableText, "principal"),
    *_required(StorableText, "name"),
    *_required(sa.Text, "decision"),
    *_required(StorableText, "reason", default=""),
    *_required(sa.Double, "at"),
    *_required(sa.Text, "key"),
    *_required(StorableText, "evidence"),
)

# Approvers who opened the whole call of a revision in private, with the number of viewed pages.
approval_views = _table(
    "approval_views",
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(sa.Integer, "revision"),
    *_key(StorableText, "principal"),
    *_required(sa.Integer, "pages", "viewed"),
    *_required(sa.Double, "at"),
)

grants = _table(
    "grants",
    *_key(sa.Text, "id"),
    *_required(sa.Text, "server", "tool", "fingerprint", "conversation"),
    *_required(StorableText, "principal", "granted_by"),
    *_required(sa.Double, "created_at"),
    *_nullable(sa.Double, "expires_at", "revoked_at"),
    *_required(StorableText, "revoked_by", default=""),
    *_required(sa.Text, "scope"),
    *_required(StorableText, "server_name"),
    *_required(sa.Text, "definition"),
    *_required(sa.Boolean, "destructive"),
    *_nullable(sa.Double, "idle_seconds", "used_at"),
    *_required(StorableText, "granted_by_name"),
    *_required(sa.Text, "approval_id"),
    *_required(StorableText, "rule"),
    *_required(sa.Text, "requirements_digest"),
)
sa.Index("grants_tool", grants.c.server, grants.c.tool)

# Elicitations of servers during a call, or before its next attempt.
elicitations = _table(
    "elicitations",
    *_key(sa.Text, "id"),
    *_required(sa.Text, "turn_id"),
    *_required(sa.Integer, "n", "round"),
    *_required(StorableText, "key"),
    *_required(Json, "request"),
    *_nullable(Json, "state"),
    *_nullable(sa.BigInteger, "fence"),
    *_required(sa.Text, "status"),
    *_nullable(Json, "answer"),
    *_required(StorableText, "answered_by", "reason", default=""),
    *_required(sa.Double, "created_at"),
    *_nullable(sa.Double, "answered_at", "expires_in"),
    *_required(sa.BigInteger, "view_revision"),
    *_nullable(sa.Double, "expires_at"),
    sa.UniqueConstraint("turn_id", "n", "round", "key"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)


# -------------------- deliveries and posted messages

deliveries = _table(
    "deliveries",
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    *_required(sa.BigInteger, "revision"),
    *_required(sa.BigInteger, "delivered_revision", default="0"),
    *_required(sa.Double, "due_at", default="0"),
    *_required(sa.Integer, "attempts", default="0"),
    *_required(StorableText, "error", default=""),
    *_nullable(sa.Text, "owner"),
    *_nullable(sa.Double, "lease_until"),
)
this_delivery = matching(deliveries, turn_id="t")
_partial_index("deliveries_stale", "delivered_revision < revision", deliveries.c.due_at)

message_refs = _table(
    "message_refs",
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(sa.Text, "slot"),
    *_required(sa.Text, "ref"),
)


# -------------------- the audit

audit = _table(
    "audit",
    *_key(sa.BigInteger, "seq"),
    *_required(sa.Double, "at"),
    *_required(sa.Text, "kind", "conversation", "turn_id"),
    *_required(StorableText, "actor"),
    *_required(sa.Text, "body", "previous", "hash"),
    # An index for lookups; the chained value is `subject` in the body.
    *_required(StorableText, "subject"),
    # `key id:hex` of the HMAC over the hash; empty without a key.
    *_required(sa.Text, "mac"),
)
sa.Index("audit_turn", audit.c.turn_id)
sa.Index("audit_actor", audit.c.actor, audit.c.seq)
sa.Index("audit_at", audit.c.at)
_partial_index("audit_subject", "subject <> ''", audit.c.subject, audit.c.seq)


# -------------------- MCP servers, their secrets and capabilities

# JSON is stored as plain text below, because an unreadable row must not hide the others.
mcp_servers = _table(
    "mcp_servers",
    *_key(StorableText, "id"),
    *_required(StorableText, "workspace", "slug", "title", "title_key", "description"),
    *_required(sa.Text, "transport", "definition", "authentication"),
    *_required(sa.Boolean, "trusted", "auto_connect"),
    *_required(sa.Text, "enablement"),
    *_required(sa.BigInteger, "version"),
    *_required(sa.Double, "created_at"),
    *_required(StorableText, "created_by"),
    *_required(sa.Double, "updated_at"),
    *_required(StorableText, "updated_by"),
    sa.UniqueConstraint("slug", "workspace"),
    sa.UniqueConstraint("title_key", "workspace"),
)

mcp_secrets = _table(
    "mcp_secrets",
    sa.Column("server_id", sa.ForeignKey(mcp_servers.c.id, ondelete="CASCADE"), primary_key=True),
    *_key(StorableText, "slot"),
    *_required(sa.Text, "source"),
    *_required(StorableText, "location", default=""),
    *_nullable(sa.Text, "ciphertext"),
    *_required(sa.Double, "updated_at"),
    *_required(StorableText, "updated_by"),
    # The endpoint that the secret was given for (`bot.domain.secret_binding`).
    *_required(StorableText, "bound_to"),
    *_required(sa.Boolean, "vouched"),
)

mcp_capabilities = _table(
    "mcp_capabilities",
    *_key(StorableText, "server_id"),
    *_required(sa.Text, "status"),
    *_nullable(sa.Text, "capabilities", "definitions"),
    *_required(StorableText, "server_version", default=""),
    *_nullable(sa.Double, "synced_at"),
    *_required(StorableText, "error", default=""),
)

# One row for each pinned tool. The row without a tool marks the server's first sync.
tool_pins = _table(
    "tool_pins",
    *_key(StorableText, "server_id", "tool"),
    *_required(sa.Text, "definition", "body"),
    *_required(StorableText, "pinned_by"),
    *_required(sa.Double, "pinned_at"),
)


# -------------------- API tokens, one-time links, sign-ins, policies and profiles

api_tokens = _table(
    "api_tokens",
    *_key(sa.Text, "id"),
    sa.Column("name", StorableText, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    *_required(sa.Text, "role"),
    *_required(StorableText, "workspace", default=""),
    *_required(StorableText, "created_by"),
    *_required(sa.Double, "created_at"),
    *_nullable(sa.Double, "expires_at", "revoked_at"),
)

one_time_links = _table(
    "one_time_links",
    *_key(sa.Text, "hash"),
    *_required(StorableText, "server_id", "slot", "principal", "user_name"),
    *_required(sa.Text, "conversation"),
    *_required(sa.Double, "created_at", "expires_at"),
    *_nullable(sa.Double, "used_at"),
)
sa.Index("one_time_links_expiry", one_time_links.c.expires_at)

browser_sessions = _table(
    "browser_sessions",
    *_key(sa.Text, "hash"),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    *_required(StorableText, "principal", "user_name"),
    *_required(sa.Text, "conversation", "rights"),
    *_required(sa.Double, "created_at", "used_at", "expires_at"),
)
sa.Index("browser_sessions_user", browser_sessions.c.principal)
sa.Index("browser_sessions_expiry", browser_sessions.c.expires_at)

# The database itself enforces one open call of a repeated request, and one of an effect.
gateway_calls = _table(
    "gateway_calls",
    *_key(sa.Text, "id"),
    *_required(sa.Text, "token", "digest"),
    *_required(sa.Double, "since", "created_at"),
    sa.Column("attach_key", sa.Text, unique=True),
    sa.Column("effect", StorableText, unique=True),
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), index=True),
)

# The body is encrypted, and bound to its number.
receipt_keys = _table(
    "receipt_keys",
    *_key(sa.BigInteger, "number"),
    *_required(sa.Text, "public", "body"),
    *_required(sa.Double, "created_at"),
)

# The body is encrypted, and bound to its server and user.
sign_ins = _table(
    "sign_ins",
    *_key(StorableText, "server_id", "principal"),
    *_required(sa.Text, "body"),
    *_required(sa.BigInteger, "version"),
    *_required(sa.Double, "updated_at"),
    *_required(StorableText, "updated_by"),
)

pending_sign_ins = _table(
    "pending_sign_ins",
    *_key(sa.Text, "hash"),
    *_required(StorableText, "server_id", "principal"),
    *_required(sa.Text, "body"),
    *_required(sa.Double, "created_at", "expires_at"),
)
sa.Index("pending_sign_ins_expiry", pending_sign_ins.c.expires_at)

# The body is encrypted, and bound to its workspace.
installations = _table(
    "installations",
    *_key(StorableText, "platform", "workspace"),
    *_required(sa.Text, "body"),
    *_required(sa.BigInteger, "version"),
    *_nullable(sa.Double, "removed_at"),
    *_required(sa.Double, "updated_at"),
)

used_install_states = _table("used_install_states", *_key(sa.Text, "hash"), *_required(sa.Double, "expires_at"))
sa.Index("used_install_states_expiry", used_install_states.c.expires_at)


policy_rules = _table(
    "policy_rules",
    *_key(sa.Text, "id"),
    *_required(StorableText, "workspace", "server_id"),
    *_required(sa.Text, "body"),
    *_required(StorableText, "set_by"),
    *_required(sa.Double, "set_at"),
)
sa.Index("policy_rules_server", policy_rules.c.server_id)

profiles = _table(
    "profiles",
    *_key(StorableText, "id"),
    *_required(StorableText, "workspace", "name", "name_key"),
    *_required(sa.Text, "body"),
    *_required(sa.BigInteger, "version"),
    *_required(sa.Double, "updated_at"),
    *_required(StorableText, "updated_by"),
    sa.UniqueConstraint("name_key", "workspace"),
)

profile_bindings = _table(
    "profile_bindings",
    *_key(StorableText, "scope"),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), nullable=False, index=True),
    *_required(StorableText, "set_by"),
    *_required(sa.Double, "set_at"),
)

# Profiles that answer to their names in a place, beside the one that is bound to it.
agent_bindings = _table(
    "agent_bindings",
    *_key(StorableText, "scope"),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    *_required(StorableText, "set_by"),
    *_required(sa.Double, "set_at"),
)


# -------------------- jobs, leases, quotas, faults

jobs = _table("jobs", *_key(sa.Text, "name"), *_required(sa.Double, "due_at"))

leases = _table("leases", *_key(sa.Text, "name"), *_required(sa.Text, "holder"), *_required(sa.Double, "expires_at"))

quotas = _table("quotas", *_key(sa.Text, "name"), *_required(sa.Double, "due_at"))

config_version = _table("config_version", *_key(sa.Integer, "id"), *_required(sa.BigInteger, "version"))

faults = _table(
    "faults",
    *_key(sa.Text, "key"),
    *_required(sa.Text, "kind"),
    *_required(Json, "body"),
    *_required(sa.Double, "opened_at"),
    *_nullable(sa.Double, "closed_at"),
    *_required(sa.Double, "first_at"),
    *_required(sa.Integer, "occurrences", "message"),
    *_nullable(sa.Double, "message_at"),
    *_required(sa.Text, "ref"),
    *_required(sa.BigInteger, "revision", "delivered"),
)

fault_reports = _table(
    "fault_reports",
    sa.Column("key", sa.Text, sa.ForeignKey("faults.key", ondelete="CASCADE"), primary_key=True),
    *_key(sa.Text, "reporter"),
    *_required(sa.Double, "expires_at"),
)
