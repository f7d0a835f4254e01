"""The schema of release 0.1.0.

The status of a conversation (CREATED, STREAMING, COMPLETED, INCOMPLETE, FAILED) is a view on its last turn and is never
stored.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CLOCK = """
create or replace function countersign_now() returns double precision
language sql volatile as 'select extract(epoch from clock_timestamp())::double precision'
"""
# JSON may hold NUL (an unescaped "\\u0000"), a PostgreSQL text may not.
READABLE = r"""
create function countersign_readable(body json) returns json language sql immutable as
$$ select regexp_replace(body::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json $$
"""
MESSAGES = {
    "sqlite": """
create view messages as
select t.id || ':0' as id, t.conversation as conversation_id, t.id as turn_id, 0 as output_index, 'user' as role,
       json_extract(t.input, '$.text') as content, t.input as raw_json, t.created_at as created_at
from turns t where t.kind = 'message'
union all
select s.turn_id || ':' || s.n, t.conversation, s.turn_id, s.n, 'assistant',
       (select coalesce(group_concat(json_extract(p.value, '$.text'), ''), '')
        from json_each(s.body, '$.message.parts') p where json_extract(p.value, '$.type') = 'text'),
       s.body, s.created_at
from steps s join turns t on t.id = s.turn_id where s.kind = 'model'
""",
    "postgresql": """
create view messages as
select t.id || ':0' as id, t.conversation as conversation_id, t.id as turn_id, 0 as output_index, 'user' as role,
       countersign_readable(t.input) ->> 'text' as content, t.input as raw_json,
       t.created_at as created_at
from turns t where t.kind = 'message'
union all
select s.turn_id || ':' || s.n, t.conversation, s.turn_id, s.n, 'assistant',
       (select coalesce(string_agg(p ->> 'text', ''), '')
        from json_array_elements(countersign_readable(s.body) -> 'message' -> 'parts') p where p ->> 'type' = 'text'),
       s.body, s.created_at
from steps s join turns t on t.id = s.turn_id where s.kind = 'model'
""",
}
TOOL_CALLS = {
    "sqlite": """
create view tool_calls as
select s.turn_id || ':' || s.n as id, t.conversation as conversation_id, json_extract(s.body, '$.call.id') as item_id,
       s.turn_id as turn_id, s.n as output_index, 'mcp' as type, json_extract(s.body, '$.call.name') as name, s.status,
       json_extract(s.body, '$.call.arguments') as arguments, s.result,
       case when s.status in ('failed', 'unknown', 'denied', 'expired') then s.status end as error,
       s.created_at as created_at, coalesce(s.ended_at, s.started_at, s.created_at) as updated_at
from steps s join turns t on t.id = s.turn_id where s.kind = 'tool'
""",
    "postgresql": """
create view tool_calls as
select s.turn_id || ':' || s.n as id, t.conversation as conversation_id,
       countersign_readable(s.body) -> 'call' ->> 'id' as item_id,
       s.turn_id as turn_id, s.n as output_index, 'mcp' as type,
       countersign_readable(s.body) -> 'call' ->> 'name' as name, s.status,
       countersign_readable(s.body) -> 'call' -> 'arguments' as arguments, s.result,
       case when s.status in ('failed', 'unknown', 'denied', 'expired') then s.status end as error,
       s.created_at as created_at, coalesce(s.ended_at, s.started_at, s.created_at) as updated_at
from steps s join turns t on t.id = s.turn_id where s.kind = 'tool'
""",
}
CONVERSATION_STATES = """
create view conversation_states as
select c.key as id, c.title, c.created_at, c.updated_at,
       case when t.id is null then 'CREATED'
            when t.status = 'done' then 'COMPLETED'
            when t.status = 'failed' then 'FAILED'
            when t.status = 'cancelled' then 'INCOMPLETE'
            when t.status = 'queued' and t.fence = 0 then 'CREATED'
            else 'STREAMING' end as status
from conversations c left join turns t on t.conversation = c.key and t.seq = c.last_seq
"""
APPEND_ONLY = {
    "sqlite": (
        """create trigger audit_is_never_changed before update on audit
        begin select raise(abort, 'the audit is append-only'); end""",
        """create trigger audit_is_never_deleted before delete on audit
        begin select raise(abort, 'the audit is append-only'); end""",
    ),
    "postgresql": (
        """create function countersign_audit_is_append_only() returns trigger language plpgsql as
        $$ begin raise exception 'the audit is append-only'; end $$""",
        """create trigger audit_is_append_only before update or delete or truncate on audit
        for each statement execute function countersign_audit_is_append_only()""",
    ),
}
VIEWS = ("conversation_states", "tool_calls", "messages")
# Children before their parents.
TABLES = (
    "decisions",
    "approval_views",
    "elicitations",
    "approvals",
    "steps",
    "feedback",
    "message_keys",
    "files",
    "message_refs",
    "deliveries",
    "turns",
    "summaries",
    "profile_bindings",
    "mcp_secrets",
    "usage",
    "tool_pins",
    "pending_sign_ins",
    "sign_ins",
    "config_version",
    "quotas",
    "profiles",
    "policy_rules",
    "one_time_links",
    "mcp_servers",
    "mcp_capabilities",
    "leases",
    "jobs",
    "grants",
    "conversations",
    "audit",
    "api_tokens",
)


def upgrade() -> None:
    """Create every table, view, trigger and function."""
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute(CLOCK)
        op.get_bind().exec_driver_sql(READABLE)
    create_administration()
    create_turns()
    for statement in (MESSAGES[dialect], TOOL_CALLS[dialect], CONVERSATION_STATES, *APPEND_ONLY[dialect]):
        op.get_bind().exec_driver_sql(statement)
    if dialect == "postgresql":
        # Each step updates the row of its turn: free space on the page keeps these updates out of the indexes.
        op.execute("alter table turns set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")
        op.execute("alter table deliveries set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")


def create_administration() -> None:
    """Create the tables that refer to no conversation."""
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), server_default="", nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("api_tokens_pkey")),
        sa.UniqueConstraint("hash", name=op.f("api_tokens_hash_unique")),
        sa.UniqueConstraint("name", name=op.f("api_tokens_name_unique")),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("mac", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("audit_pkey")),
    )
    op.create_index("audit_actor", "audit", ["actor", "seq"], unique=False)
    op.create_index("audit_at", "audit", ["at"], unique=False)
    op.create_index(
        "audit_subject",
        "audit",
        ["subject", "seq"],
        unique=False,
        sqlite_where=sa.text("subject <> ''"),
        postgresql_where=sa.text("subject <> ''"),
    )
    op.create_index("audit_turn", "audit", ["turn_id"], unique=False)
    op.create_table(
        "grants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("revoked_by", sa.Text(), server_default="", nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("server_name", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("destructive", sa.Boolean(), nullable=False),
        sa.Column("idle_seconds", sa.Double(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.Column("granted_by_name", sa.Text(), nullable=False),
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("requirements_digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("grants_pkey")),
    )
    op.create_index("grants_tool", "grants", ["server", "tool"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("jobs_pkey")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("leases_pkey")),
    )
    op.create_table(
        "mcp_capabilities",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=True),
        sa.Column("definitions", sa.Text(), nullable=True),
        sa.Column("server_version", sa.Text(), server_default="", nullable=False),
        sa.Column("synced_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("server_id", name=op.f("mcp_capabilities_pkey")),
    )
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("title_key", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("transport", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("authentication", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("auto_connect", sa.Boolean(), nullable=False),
        sa.Column("enablement", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("mcp_servers_pkey")),
        sa.UniqueConstraint("slug", "workspace", name=op.f("mcp_servers_slug_unique")),
        sa.UniqueConstraint("title_key", "workspace", name=op.f("mcp_servers_title_key_unique")),
    )
    op.create_table(
        "one_time_links",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name=op.f("one_time_links_pkey")),
    )
    op.create_index("one_time_links_expiry", "one_time_links", ["expires_at"], unique=False)
    op.create_table(
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
    op.create_table(
        "profiles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("profiles_pkey")),
        sa.UniqueConstraint("name_key", "workspace", name=op.f("profiles_name_key_unique")),
    )
    op.create_table(
        "quotas",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("quotas_pkey")),
    )
    op.create_table(
        "config_version",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("config_version_pkey")),
    )
    op.create_table(
        "sign_ins",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "principal", name=op.f("sign_ins_pkey")),
    )
    op.create_table(
        "pending_sign_ins",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pending_sign_ins_pkey")),
    )
    op.create_index("pending_sign_ins_expiry", "pending_sign_ins", ["expires_at"], unique=False)
    op.create_table(
        "tool_pins",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("pinned_by", sa.Text(), nullable=False),
        sa.Column("pinned_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "tool", name=op.f("tool_pins_pkey")),
    )
    op.create_table(
        "usage",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_writes", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("usage_pkey")),
    )
    op.create_index("usage_at", "usage", ["at"], unique=False)
    op.create_index("usage_channel", "usage", ["channel", "at"], unique=False)
    op.create_index("usage_principal", "usage", ["principal", "at"], unique=False)
    op.create_table(
        "mcp_secrets",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), server_default="", nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.Column("bound_to", sa.Text(), nullable=False),
        sa.Column("vouched", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"], ["mcp_servers.id"], name=op.f("mcp_secrets_server_id_mcp_servers"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("server_id", "slot", name=op.f("mcp_secrets_pkey")),
    )
    op.create_table(
        "profile_bindings",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name=op.f("profile_bindings_profile_id_profiles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("scope", name=op.f("profile_bindings_pkey")),
    )
    op.create_index(op.f("profile_bindings_profile_id"), "profile_bindings", ["profile_id"], unique=False)


def create_turns() -> None:
    """Create the tables that go with a conversation."""
    op.create_table(
        "conversations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("conversations_pkey")),
    )
    op.create_index(
        "conversations_key_prefix", "conversations", ["key"], unique=False, postgresql_ops={"key": "text_pattern_ops"}
    )
    op.create_table(
        "summaries",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.key"],
            name=op.f("summaries_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", name=op.f("summaries_pkey")),
    )
    op.create_table(
        "turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("input", sa.JSON(), nullable=False),
        sa.Column("failure", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("stop_by", sa.Text(), nullable=True),
        sa.Column("recoveries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation"], ["conversations.key"], name=op.f("turns_conversation_conversations"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("turns_pkey")),
        sa.UniqueConstraint("conversation", "seq", name=op.f("turns_conversation_unique")),
    )
    op.create_index("turns_author", "turns", ["author_id", "created_at"], unique=False)
    op.create_index("turns_created", "turns", ["created_at"], unique=False)
    op.create_index(
        "turns_live",
        "turns",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("status in ('queued', 'running', 'waiting')"),
        postgresql_where=sa.text("status in ('queued', 'running', 'waiting')"),
    )
    op.create_index(
        "turns_one_active",
        "turns",
        ["conversation"],
        unique=True,
        sqlite_where=sa.text("status in ('running', 'waiting')"),
        postgresql_where=sa.text("status in ('running', 'waiting')"),
    )
    op.create_index(
        "turns_principal",
        "turns",
        ["principal", "created_at"],
        unique=False,
        sqlite_where=sa.text("status in ('queued', 'running', 'waiting')"),
        postgresql_where=sa.text("status in ('queued', 'running', 'waiting')"),
    )
    op.create_table(
        "deliveries",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("delivered_revision", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("due_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("deliveries_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", name=op.f("deliveries_pkey")),
    )
    op.create_index(
        "deliveries_stale",
        "deliveries",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("delivered_revision < revision"),
        postgresql_where=sa.text("delivered_revision < revision"),
    )
    op.create_table(
        "message_refs",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("message_refs_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "slot", name=op.f("message_refs_pkey")),
    )
    op.create_table(
        "files",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("files_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "id", name=op.f("files_pkey")),
    )
    op.create_table(
        "message_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("message_keys_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", name=op.f("message_keys_pkey")),
    )
    op.create_index(op.f("message_keys_turn_id"), "message_keys", ["turn_id"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("good", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("feedback_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "principal", name=op.f("feedback_pkey")),
    )
    op.create_table(
        "steps",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("repeatable", sa.Boolean(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("late_result", sa.JSON(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("steps_turn_id_turns"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "n", name=op.f("steps_pkey")),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("proposed_arguments", sa.JSON(), nullable=False),
        sa.Column("revised_arguments", sa.JSON(), nullable=True),
        sa.Column("revised_by", sa.Text(), server_default="", nullable=False),
        sa.Column("approved_arguments", sa.JSON(), nullable=True),
        sa.Column("requested_for_id", sa.Text(), nullable=False),
        sa.Column("requested_for_name", sa.Text(), nullable=False),
        sa.Column("view_revision", sa.BigInteger(), nullable=False),
        sa.Column("expires_in", sa.Double(), nullable=True),
        sa.Column("posted_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("decided_by", sa.Text(), server_default="", nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("remind_in", sa.Double(), nullable=True),
        sa.Column("reminded_at", sa.Double(), nullable=True),
        sa.Column("editors", sa.JSON(), nullable=True),
        sa.Column("approver_names", sa.JSON(), nullable=True),
        sa.Column("proposed_secrets", sa.JSON(), nullable=False),
        sa.Column("revised_secrets", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["turn_id", "n"], ["steps.turn_id", "steps.n"], name=op.f("approvals_turn_id_steps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("approvals_pkey")),
        sa.UniqueConstraint("turn_id", "n", name=op.f("approvals_turn_id_unique")),
    )
    op.create_index(
        "approvals_to_remind",
        "approvals",
        ["posted_at"],
        unique=False,
        sqlite_where=sa.text("remind_in is not null and reminded_at is null"),
        postgresql_where=sa.text("remind_in is not null and reminded_at is null"),
    )
    op.create_table(
        "elicitations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.Column("answered_by", sa.Text(), server_default="", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.Column("expires_in", sa.Double(), nullable=True),
        sa.Column("view_revision", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["turn_id", "n"], ["steps.turn_id", "steps.n"], name=op.f("elicitations_turn_id_steps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("elicitations_pkey")),
        sa.UniqueConstraint("turn_id", "n", "round", "key", name=op.f("elicitations_turn_id_unique")),
    )
    op.create_table(
        "approval_views",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("pages", sa.Integer(), nullable=False),
        sa.Column("viewed", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("approval_views_approval_id_approvals"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("approval_id", "revision", "principal", name=op.f("approval_views_pkey")),
    )
    op.create_table(
        "decisions",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("decisions_approval_id_approvals"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("approval_id", "revision", "principal", name=op.f("decisions_pkey")),
    )


def downgrade() -> None:
    """Drop everything that `upgrade` created."""
    for view in VIEWS:
        op.execute(f"drop view {view}")
    for table in TABLES:
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        for function in ("countersign_audit_is_append_only()", "countersign_readable(json)", "countersign_now()"):
            op.execute(f"drop function {function}")
