"""Reports of conversations: pages, participants and recent activity; and new conversations. Reads no turns."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import ConversationKey
from bot.ports import ConversationSummary
from bot.storage.clock import now
from bot.storage.key_prefix import has_prefix, prefix_bounds
from bot.storage.tables import StorableText, conversations, turns
from bot.storage.upsert import Upsert

TITLE_LENGTH = 255
"""Characters."""

_states = sa.table(
    "conversation_states",
    sa.column("id", sa.Text),
    sa.column("title", sa.Text),
    sa.column("status", sa.Text),
    sa.column("created_at", sa.Double),
    sa.column("updated_at", sa.Double),
)
_key = conversations.c.key
_person = bindparam("person", type_=StorableText)
_asked = sa.exists().where(turns.c.conversation == _key, turns.c.author_id == _person)
_within = has_prefix(_key, "reach")
_of_user = sa.and_(_within, has_prefix(_key, "platform"), _asked)
_number = sa.select(sa.func.count()).select_from(turns).where(turns.c.conversation == _states.c.id).scalar_subquery()
_first = (
    sa.select(sa.case((turns.c.author_name != "", turns.c.author_name), else_=turns.c.author_id))
    .where(turns.c.conversation == _states.c.id)
    .order_by(turns.c.seq)
    .limit(1)
    .scalar_subquery()
)
_took_part = (
    sa.select(turns.c.id)
    .where(turns.c.conversation == bindparam("k"), has_prefix(turns.c.conversation, "platform"))
    .where(turns.c.author_id == _person)
    .limit(1)
)

_create = Upsert(
    lambda insert: (
        insert(conversations)
        .values(key=bindparam("k"), title=bindparam("t"), last_seq=0, created_at=now(), updated_at=now())
        .on_conflict_do_nothing()
        .returning(conversations.c.key)
    )
)
_engaged = (
    sa.select(_key)
    .where(_within, conversations.c.updated_at > now() - bindparam("seconds", type_=sa.Double))
    .order_by(conversations.c.updated_at.desc(), _key)
    .limit(bindparam("limit"))
)


def _page(condition: sa.ColumnElement[bool]) -> sa.Select[tuple[str, str, str, float, float, int, str]]:
    # First the page, then the counts of its rows only.
    page = (
        sa.select(_key)
        .where(condition)
        .order_by(conversations.c.updated_at.desc(), _key)
        .limit(bindparam("limit"))
        .offset(bindparam("offset"))
        .cte("page")
    )
    states = _states.c
    return (
        sa.select(
            states.id, states.title, states.status, states.created_at, states.updated_at,
            _number.label("turns"), _first.label("started_by"),
        )
        .join(page, page.c.key == states.id)
        .order_by(states.updated_at.desc(), states.id)
    )  # fmt: skip


_of_workspace, _ones = _page(_within), _page(_of_user)
_one = _page(_key == bindparam("k"))
_count_of_workspace = sa.select(sa.func.count()).select_from(conversations).where(_within)
_count_ones = sa.select(sa.func.count()).select_from(conversations).where(_of_user)


def read_conversations(
    connection: sa.Connection, prefix: str, person: str, limit: int, offset: int
) -> tuple[Sequence[ConversationSummary], int]:
    """Return a page of the conversations with this key prefix, newest first, and the number of all."""
    values = {**prefix_bounds("reach", prefix), **principal_params(person)}
    page, count = (_ones, _count_ones) if person else (_of_workspace, _count_of_workspace)
    rows = connection.execute(page, {**values, "limit": limit, "offset": offset})
    return [_summary(row) for row in rows], connection.execute(count, values).scalar_one()


def read_conversation(connection: sa.Connection, conversation: ConversationKey) -> ConversationSummary | None:
    """Return the summary of a conversation, `None` if it does not exist."""
    row = connection.execute(_one, {"k": str(conversation), "limit": 1, "offset": 0}).first()
    return None if row is None else _summary(row)


def create_conversation(connection: sa.Connection, conversation: ConversationKey, title: str) -> bool:
    """Add an empty conversation. Return False if it exists."""
    values = {"k": str(conversation), "t": " ".join(title.split())[:TITLE_LENGTH]}
    return connection.execute(_create.on(connection), values).first() is not None


def has_participant(connection: sa.Connection, conversation: ConversationKey, person: str) -> bool:
    """Return True if the user is the author of a turn in the conversation."""
    return connection.execute(_took_part, {"k": str(conversation), **principal_params(person)}).first() is not None


def read_active(connection: sa.Connection, prefix: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
    """Return the recently active conversations with this key prefix, newest first."""
    values = {**prefix_bounds("reach", prefix), "seconds": seconds, "limit": limit}
    return [ConversationKey.parse(key) for key in connection.execute(_engaged, values).scalars()]


def _summary(row: sa.Row[tuple[str, str, str, float, float, int, str]]) -> ConversationSummary:
    return ConversationSummary(
        key=ConversationKey.parse(row.id),
        title=row.title,
        state=row.status,
        turns=row.turns,
        started_by=row.started_by or "",
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def principal_params(person: str) -> dict[str, str]:
    """Return a principal as query parameters. A user id is unique only within its platform."""
    platform, _, name = person.partition(":")
    return {"person": name, **prefix_bounds("platform", f"{quote(platform, safe='')}:")} if person else {}
