"""What was asked of models, in numbers: written with the reply it is about, added up when somebody looks.

Called within transactions of turns and of `bot.storage.usage_store`. A row outlives its turn and says nothing of it but
its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.completions import Usage
from bot.domain.conversations import ConversationKey
from bot.domain.turns import Claim
from bot.domain.usage import Charge, Spent, SpentBy, UsageQuery, channel_of
from bot.storage.clock import now
from bot.storage.inserting import Insert
from bot.storage.tables import Words, turns, usage

_asked_by = sa.func.coalesce(
    sa.select(turns.c.author_id).where(turns.c.id == bindparam("turn_id")).scalar_subquery(), ""
)
_TAKEN = (
    "model",
    "input_tokens",
    "cached_tokens",
    "cache_writes",
    "output_tokens",
    "reasoning_tokens",
    "cost",
    "currency",
    "estimated",
)
"""What is known of a request better and better."""


def _better(insert: Any) -> Any:
    """Keep an estimate until more is known: more of the reply has come in, or its service has said what it took."""
    told = insert.excluded
    grown = sa.or_(told.estimated.is_(sa.false()), told.output_tokens >= usage.c.output_tokens)
    return insert.on_conflict_do_update(
        index_elements=[usage.c.id],
        set_={name: told[name] for name in _TAKEN},
        where=sa.and_(usage.c.estimated.is_(sa.true()), grown),
    )


_add = Insert(
    lambda insert: _better(
        insert(usage).values(
            id=bindparam("id"),
            turn_id=bindparam("turn_id"),
            n=bindparam("n"),
            kind=bindparam("kind"),
            at=now(),
            workspace=bindparam("workspace"),
            channel=bindparam("channel"),
            person=bindparam("platform", type_=Words) + _asked_by,
            model=bindparam("model"),
            input_tokens=bindparam("input_tokens"),
            cached_tokens=bindparam("cached_tokens"),
            cache_writes=bindparam("cache_writes"),
            output_tokens=bindparam("output_tokens"),
            reasoning_tokens=bindparam("reasoning_tokens"),
            cost=bindparam("cost"),
            currency=bindparam("currency"),
            estimated=bindparam("estimated"),
        )
    )
)
_SUMS = (
    sa.func.count().label("requests"),
    *(
        sa.func.sum(column).label(column.name)
        for column in (
            usage.c.input_tokens,
            usage.c.output_tokens,
            usage.c.cached_tokens,
            usage.c.cache_writes,
            usage.c.reasoning_tokens,
            usage.c.cost,
        )
    ),
    sa.func.count(usage.c.cost).label("priced"),
    sa.func.count().filter(usage.c.estimated).label("estimated"),
    usage.c.currency,
)
_COLUMNS = {
    SpentBy.PERSON: usage.c.person,
    SpentBy.CHANNEL: usage.c.channel,
    SpentBy.WORKSPACE: usage.c.workspace,
    SpentBy.MODEL: usage.c.model,
    SpentBy.KIND: usage.c.kind,
}
_old = sa.select(usage.c.id).where(usage.c.at < now() - bindparam("seconds")).limit(bindparam("limit"))
_delete_old = usage.delete().where(usage.c.id.in_(_old))


def add(connection: sa.Connection, turn_id: str, where: ConversationKey, charges: Iterable[Charge]) -> None:
    """Keep what was asked of models in a turn, each once."""
    _keep(connection, [_row(turn_id, where, charge) for charge in charges])


def add_all(connection: sa.Connection, charges: Iterable[tuple[Claim, Charge]]) -> None:
    """Keep what was asked of models in several turns, each once."""
    _keep(connection, [_row(held.turn_id, held.conversation, charge) for held, charge in charges])


def read_sum(connection: sa.Connection, query: UsageQuery) -> Spent:
    """Everything that fits, added up."""
    rows = connection.execute(sa.select(*_SUMS).where(*_conditions(query)).group_by(usage.c.currency))
    return _joined(_spent(row) for row in rows)


def read_sums(connection: sa.Connection, query: UsageQuery, by: SpentBy) -> Sequence[tuple[str, Spent]]:
    """What fits, added up by name; the most expensive first, by tokens where nothing has a price."""
    column = _COLUMNS[by].label("name")
    statement = sa.select(column, *_SUMS).where(*_conditions(query)).group_by(column, usage.c.currency)
    found: dict[str, Spent] = {}
    for row in connection.execute(statement):
        found[row.name] = found.get(row.name, Spent()).joined(_spent(row))
    return sorted(found.items(), key=lambda each: (-sum(each[1].costs.values()), -each[1].tokens, each[0]))


def delete_old(connection: sa.Connection, seconds: float, limit: int) -> int:
    """Delete up to `limit` rows that are older than that; how many there were."""
    return connection.execute(_delete_old, {"seconds": seconds, "limit": limit}).rowcount


def _keep(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(_add.on(connection), rows)


def _row(turn_id: str, where: ConversationKey, charge: Charge) -> Mapping[str, Any]:
    use = charge.use
    return {
        "id": use.id,
        "turn_id": turn_id,
        "n": use.n,
        "kind": use.kind,
        "workspace": where.home,
        "channel": channel_of(where),
        "platform": f"{where.platform}:",
        "model": use.model,
        "input_tokens": use.usage.input_tokens,
        "cached_tokens": use.usage.cached_tokens,
        "cache_writes": use.usage.cache_writes,
        "output_tokens": use.usage.output_tokens,
        "reasoning_tokens": use.usage.reasoning_tokens,
        "cost": charge.cost,
        "currency": "" if charge.cost is None else charge.currency,
        "estimated": use.estimated,
    }


def _conditions(query: UsageQuery) -> Sequence[sa.ColumnElement[bool]]:
    named = ((usage.c.person, query.person), (usage.c.channel, query.channel), (usage.c.workspace, query.workspace))
    return (usage.c.at >= query.since, *(column == name for column, name in named if name))


def _spent(row: Any) -> Spent:
    return Spent(
        row.requests,
        Usage(
            int(row.input_tokens),
            int(row.output_tokens),
            int(row.cached_tokens),
            int(row.cache_writes),
            int(row.reasoning_tokens),
        ),
        {} if row.cost is None else {row.currency: int(row.cost)},
        row.requests - row.priced,
        row.estimated,
    )


def _joined(sums: Iterable[Spent]) -> Spent:
    whole = Spent()
    for each in sums:
        whole = whole.joined(each)
    return whole
