"""The tables. `migrations/` makes them, and the views `messages`, `tool_calls` and `conversation_states` on top of
them; a test compares the two.

conversations 1-1 summaries
conversations 1-n turns 1-n steps 1-1 approvals 1-n decisions
                  turns 1-n message_keys
                  turns 1-1 deliveries, 1-n drawings
                  turns 1-n opinions
                  turns 1-n files
                  steps 1-n elicitations
grants            standing permissions
jobs              work that is due once, whoever does it
leases            what one process does alone
quotas            limits that all processes keep together; a row whose time is over says nothing
api_tokens        who may use the HTTP API; of the token itself only a hash
one_time_links    links by which one person enters one secret, once; of what is in the link only a hash
sign_ins          who is signed in to which server by OAuth, encrypted
sign_ins_under_way  links that were given out for it; of what is in the link only a hash
mcp_servers 1-n mcp_secrets, by id alone 1-1 mcp_capabilities, 1-n tool_pins and 1-n policy_rules: those also of the
                  operator's servers
profiles 1-n profile_bindings
revisions         at most one row: a number that grows with every change to servers, policies and profiles; their lock
usage             what was asked of models and what it cost; no row refers to another table
audit             what happened, for ever: no row refers to another table, none is changed, each is chained to the last
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "fk": "%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)


def storable(text: str) -> str:
    """Text without what a database cannot store: NUL and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class Words(sa.TypeDecorator[str]):
    """Text from people, models and tools, as far as it can be stored."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """The text as it can be stored."""
        return None if value is None else storable(value)


# Plain JSON on PostgreSQL too: JSONB would change the order of arguments, which people sign as they saw them, and
# refuse NUL, which a tool may well return.
Json = sa.JSON()

LIVE = ("queued", "running", "waiting")
ACTIVE = ("running", "waiting")

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("title", Words, nullable=False, server_default=""),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)
# Keys are looked for by how they begin, byte by byte, whatever language the server sorts by.
sa.Index("conversations_reach", conversations.c.key, postgresql_ops={"key": "text_pattern_ops"})

summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), primary_key=True),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("conversation", sa.ForeignKey(conversations.c.key, ondelete="CASCADE"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="question"),
    sa.Column("author_id", Words, nullable=False),
    sa.Column("author_name", Words, nullable=False),
    sa.Column("question", Json, nullable=False),
    sa.Column("failure", Words, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", sa.Double),
    sa.Column("wake_at", sa.Double),
    sa.Column("stop_by", Words),
    sa.Column("recoveries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.UniqueConstraint("conversation", "seq"),
)

_live = sa.text("status in ('queued', 'running', 'waiting')")
_active = sa.text("status in ('running', 'waiting')")
sa.Index("turns_live", turns.c.created_at, sqlite_where=_live, postgresql_where=_live)
# The promise "one turn of a conversation at a time" is kept by the database itself.
sa.Index("turns_one_active", turns.c.conversation, unique=True, sqlite_where=_active, postgresql_where=_active)
sa.Index("turns_author", turns.c.author_id, turns.c.created_at)
sa.Index("turns_created", turns.c.created_at)

message_keys = sa.Table(
    "message_keys",
    metadata,
    sa.Column("key", Words, primary_key=True),
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

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("proposed", Json, nullable=False),
    sa.Column("revised", Json),
    sa.Column("revised_by", Words, nullable=False, server_default=""),
    sa.Column("signed", Json),
    sa.Column("requested_for_id", Words, nullable=False),
    sa.Column("requested_for_name", Words, nullable=False),
    sa.Column("seen_from", sa.BigInteger, nullable=False),
    sa.Column("expires_in", sa.Double),
    sa.Column("posted_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("decided_by", Words, nullable=False, server_default=""),
    sa.Column("decided_at", sa.Double),
    sa.Column("reason", Words, nullable=False, server_default=""),
    sa.Column("terms", Json),
    sa.Column("remind_in", sa.Double),
    sa.Column("reminded_at", sa.Double),
    sa.Column("editors", Json),
    sa.Column("signers", Json),
    sa.UniqueConstraint("turn_id", "n"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)

_to_remind = sa.text("remind_in is not null and reminded_at is null")
sa.Index("approvals_to_remind", approvals.c.posted_at, sqlite_where=_to_remind, postgresql_where=_to_remind)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("approval_id", sa.ForeignKey(approvals.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("person", Words, primary_key=True),
    sa.Column("name", Words, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("reason", Words, nullable=False, server_default=""),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("key", sa.Text, nullable=False, server_default=""),
    sa.Column("evidence", Words, nullable=False, server_default=""),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("wanted", sa.BigInteger, nullable=False),
    sa.Column("drawn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("problem", Words, nullable=False, server_default=""),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.Double),
)
_behind = sa.text("drawn < wanted")
sa.Index("deliveries_behind", deliveries.c.due_at, sqlite_where=_behind, postgresql_where=_behind)

drawings = sa.Table(
    "drawings",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", sa.Text, primary_key=True),
    sa.Column("ref", sa.Text, nullable=False),
)

opinions = sa.Table(
    "opinions",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("person", Words, primary_key=True),
    sa.Column("good", sa.Boolean, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# What tools returned beside text, by its SHA-256: read when it is drawn or looked at, and gone with its turn.
files = sa.Table(
    "files",
    metadata,
    sa.Column("turn_id", sa.ForeignKey(turns.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False, server_default=""),
    sa.Column("conversation", sa.Text, nullable=False, server_default=""),
    sa.Column("person", Words, nullable=False, server_default=""),
    sa.Column("granted_by", Words, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("revoked_by", Words, nullable=False, server_default=""),
    sa.Column("scope", sa.Text, nullable=False, server_default=""),
    sa.Column("server_name", Words, nullable=False, server_default=""),
    sa.Column("definition", sa.Text, nullable=False, server_default=""),
    sa.Column("destructive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("idle_seconds", sa.Double),
    sa.Column("used_at", sa.Double),
    sa.Column("granted_name", Words, nullable=False, server_default=""),
    sa.Column("approval_id", sa.Text, nullable=False, server_default=""),
    sa.Column("rule", Words, nullable=False, server_default=""),
    sa.Column("terms", sa.Text, nullable=False, server_default=""),
)
sa.Index("grants_tool", grants.c.server, grants.c.tool)

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
    sa.Column("until", sa.Double, nullable=False),
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", Words, nullable=False, unique=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("workspace", Words, nullable=False, server_default=""),
    sa.Column("created_by", Words, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
)

one_time_links = sa.Table(
    "one_time_links",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", Words, nullable=False),
    sa.Column("slot", Words, nullable=False),
    sa.Column("person", Words, nullable=False),
    sa.Column("person_name", Words, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)
sa.Index("one_time_links_expiry", one_time_links.c.expires_at)

# What is in the body is encrypted, and bound to its server and person.
sign_ins = sa.Table(
    "sign_ins",
    metadata,
    sa.Column("server_id", Words, primary_key=True),
    sa.Column("person", Words, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", Words, nullable=False),
)

sign_ins_under_way = sa.Table(
    "sign_ins_under_way",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("server_id", Words, nullable=False),
    sa.Column("person", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
sa.Index("sign_ins_under_way_expiry", sign_ins_under_way.c.expires_at)

# What servers ask back while a call of theirs runs, or before it can go on.
elicitations = sa.Table(
    "elicitations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("key", Words, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("state", Json),
    sa.Column("fence", sa.BigInteger),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("answer", Json),
    sa.Column("answered_by", Words, nullable=False, server_default=""),
    sa.Column("reason", Words, nullable=False, server_default=""),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("answered_at", sa.Double),
    sa.Column("expires_in", sa.Double),
    sa.Column("seen_from", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.UniqueConstraint("turn_id", "n", "round", "key"),
    sa.ForeignKeyConstraint(["turn_id", "n"], [steps.c.turn_id, steps.c.n], ondelete="CASCADE"),
)

# What was asked of models, in numbers: it outlives the turns, and says nothing of what was said in them.
usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("workspace", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("person", Words, nullable=False),
    sa.Column("model", Words, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_writes", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    # In micro-units of the currency; null where the model had no price that day.
    sa.Column("cost", sa.BigInteger),
    sa.Column("currency", sa.Text, nullable=False, server_default=""),
)
sa.Index("usage_person", usage.c.person, usage.c.at)
sa.Index("usage_channel", usage.c.channel, usage.c.at)
sa.Index("usage_at", usage.c.at)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("conversation", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("actor", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    # For finding rows: the truth, which is chained, is `subject` in the body.
    sa.Column("subject", Words, nullable=False, server_default=""),
)
sa.Index("audit_turn", audit.c.turn_id)
sa.Index("audit_actor", audit.c.actor, audit.c.seq)
sa.Index("audit_at", audit.c.at)
_about = sa.text("subject <> ''")
sa.Index("audit_subject", audit.c.subject, audit.c.seq, sqlite_where=_about, postgresql_where=_about)

# JSON is kept as plain text below: one row that cannot be read must not keep the others from being read.
mcp_servers = sa.Table(
    "mcp_servers",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("workspace", Words, nullable=False),
    sa.Column("slug", Words, nullable=False),
    sa.Column("title", Words, nullable=False),
    sa.Column("title_key", Words, nullable=False),
    sa.Column("description", Words, nullable=False),
    sa.Column("transport", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("authentication", sa.Text, nullable=False),
    sa.Column("trusted", sa.Boolean, nullable=False),
    sa.Column("auto_connect", sa.Boolean, nullable=False),
    sa.Column("standing", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", Words, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", Words, nullable=False),
    sa.UniqueConstraint("slug", "workspace"),
    sa.UniqueConstraint("title_key", "workspace"),
)

mcp_secrets = sa.Table(
    "mcp_secrets",
    metadata,
    sa.Column("server_id", sa.ForeignKey(mcp_servers.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("slot", Words, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("place", Words, nullable=False, server_default=""),
    sa.Column("ciphertext", sa.Text),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", Words, nullable=False),
)

mcp_capabilities = sa.Table(
    "mcp_capabilities",
    metadata,
    sa.Column("server_id", Words, primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("capabilities", sa.Text),
    sa.Column("definitions", sa.Text),
    sa.Column("server_version", Words, nullable=False, server_default=""),
    sa.Column("synced_at", sa.Double),
    sa.Column("problem", Words, nullable=False, server_default=""),
)

# One row a tool whose definition somebody answers for; the one of no tool says that the server's tools were looked at.
tool_pins = sa.Table(
    "tool_pins",
    metadata,
    sa.Column("server_id", Words, primary_key=True),
    sa.Column("tool", Words, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("pinned_by", Words, nullable=False),
    sa.Column("pinned_at", sa.Double, nullable=False),
)

# What admins said before there were rules. Processes of the release before read and write it.
policies = sa.Table(
    "policies",
    metadata,
    sa.Column("server_id", Words, primary_key=True),
    sa.Column("tool", Words, primary_key=True),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("set_by", Words, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)

policy_rules = sa.Table(
    "policy_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace", Words, nullable=False),
    sa.Column("server_id", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("set_by", Words, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)
sa.Index("policy_rules_server", policy_rules.c.server_id)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("workspace", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("name_key", Words, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", Words, nullable=False),
    sa.UniqueConstraint("name_key", "workspace"),
)

profile_bindings = sa.Table(
    "profile_bindings",
    metadata,
    sa.Column("place", Words, primary_key=True),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("set_by", Words, nullable=False),
    sa.Column("set_at", sa.Double, nullable=False),
)

revisions = sa.Table(
    "revisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
)
