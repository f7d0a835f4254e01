"""The whole schema: the tables of `bot.storage.tables`, and the views, triggers and functions beside them.

An empty database gets it at once, without the migrations. The status of a conversation (CREATED, STREAMING, COMPLETED,
INCOMPLETE, FAILED) is a view on its last turn and is never stored.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.tables import metadata

_CLOCK = """
create or replace function countersign_now() returns double precision
language sql volatile as 'select extract(epoch from clock_timestamp())::double precision'
"""
# JSON may hold NUL (an unescaped "\\u0000"), a PostgreSQL text may not.
_READABLE = r"""
create function countersign_readable(body json) returns json language sql immutable as
$$ select regexp_replace(body::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json $$
"""
_MESSAGES = {
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
_TOOL_CALLS = {
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
_CONVERSATION_STATES = """
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
_APPEND_ONLY = {
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
_VERSION = "create table alembic_version (version_num varchar(32) not null constraint alembic_version_pkc primary key)"


def create_schema(connection: sa.Connection) -> None:
    """Create every table, view, trigger and function."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.exec_driver_sql(_CLOCK)
        connection.exec_driver_sql(_READABLE)
    metadata.create_all(connection, checkfirst=False)
    for statement in (_MESSAGES[dialect], _TOOL_CALLS[dialect], _CONVERSATION_STATES, *_APPEND_ONLY[dialect]):
        connection.exec_driver_sql(statement)
    if dialect == "postgresql":
        # Each step updates the row of its turn: free space on the page keeps these updates out of the indexes.
        for table in ("turns", "deliveries"):
            connection.exec_driver_sql(
                f"alter table {table} set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)"
            )


def note_revision(connection: sa.Connection, revision: str) -> None:
    """Write the revision of a schema that no migration has made, as Alembic reads it."""
    connection.exec_driver_sql(_VERSION)
    connection.execute(sa.text("insert into alembic_version values (:revision)"), {"revision": revision})
