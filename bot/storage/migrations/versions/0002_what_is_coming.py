"""Leases for drawing, revised arguments, calls run by hand, grants, jobs, the audit, and views for people.

The words of a conversation's state (CREATED, STREAMING, COMPLETED, INCOMPLETE, FAILED) follow from its last turn and
are never stored.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# JSON may hold NUL (an unescaped "\\u0000"), a PostgreSQL text may not.
READABLE = r"""
create function countersign_readable(body json) returns json language sql immutable as
$$ select regexp_replace(body::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json $$
"""
MESSAGES = {
    "sqlite": """
create view messages as
select t.id || ':0' as id, t.conversation as conversation_id, t.id as turn_id, 0 as output_index, 'user' as role,
       json_extract(t.question, '$.text') as content, t.question as raw_json, t.created_at as created_at
from turns t where t.kind = 'question'
union all
select s.turn_id || ':' || s.n, t.conversation, s.turn_id, s.n, 'assistant',
       (select coalesce(group_concat(json_extract(p.value, '$.text'), ''), '') from json_each(s.body, '$.parts') p
        where json_extract(p.value, '$.type') = 'text'),
       s.body, s.created_at
from steps s join turns t on t.id = s.turn_id where s.kind = 'model'
""",
    "postgresql": """
create view messages as
select t.id || ':0' as id, t.conversation as conversation_id, t.id as turn_id, 0 as output_index, 'user' as role,
       countersign_readable(t.question) ->> 'text' as content, t.question as raw_json,
       t.created_at as created_at
from turns t where t.kind = 'question'
union all
select s.turn_id || ':' || s.n, t.conversation, s.turn_id, s.n, 'assistant',
       (select coalesce(string_agg(p ->> 'text', ''), '')
        from json_array_elements(countersign_readable(s.body) -> 'parts') p where p ->> 'type' = 'text'),
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


def upgrade() -> None:
    """Apply."""
    dialect = op.get_bind().dialect.name
    op.add_column("turns", sa.Column("kind", sa.Text(), server_default="question", nullable=False))
    op.add_column("approvals", sa.Column("revised", sa.JSON(), nullable=True))
    op.add_column("approvals", sa.Column("revised_by", sa.Text(), server_default="", nullable=False))
    op.add_column("decisions", sa.Column("key", sa.Text(), server_default="", nullable=False))
    op.add_column("deliveries", sa.Column("owner", sa.Text(), nullable=True))
    op.add_column("deliveries", sa.Column("lease_until", sa.Double(), nullable=True))
    op.create_table(
        "grants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), server_default="", nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("person", sa.Text(), server_default="", nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("revoked_by", sa.Text(), server_default="", nullable=False),
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
        sa.PrimaryKeyConstraint("seq", name=op.f("audit_pkey")),
    )
    op.create_index("audit_turn", "audit", ["turn_id"], unique=False)
    if dialect == "postgresql":
        op.get_bind().exec_driver_sql(READABLE)
    for statement in (MESSAGES[dialect], TOOL_CALLS[dialect], CONVERSATION_STATES, *APPEND_ONLY[dialect]):
        op.get_bind().exec_driver_sql(statement)
    if dialect == "postgresql":
        # Every step of a turn updates its row: room on the page keeps the updates out of the indexes.
        op.execute("alter table turns set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")
        op.execute("alter table deliveries set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")


def downgrade() -> None:
    """Take back."""
    for view in ("conversation_states", "tool_calls", "messages"):
        op.execute(f"drop view {view}")
    for table in ("audit", "jobs", "grants"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("drop function countersign_audit_is_append_only()")
        op.execute("drop function countersign_readable(json)")
    for table, columns in (
        ("deliveries", ("owner", "lease_until")),
        ("decisions", ("key",)),
        ("approvals", ("revised", "revised_by")),
        ("turns", ("kind",)),
    ):
        for column in columns:
            op.drop_column(table, column)
