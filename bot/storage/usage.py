"""Usage of models: recorded with its completion, summed on request. See `bot.ports.UsageStore`.

A row outlives its turn and holds only its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.completions import Usage
from bot.domain.turns import Claim
from bot.domain.usage import PricedUsage, UsageGrouping, UsageQuery, UsageTotal, channel_of, total
from bot.storage.database import Store, Upsert, now, report, transaction
from bot.storage.tables import usage

DAY = 86_400
_IN_PROGRESS = 0
"""Step number of a request in progress; a turn's first step is 1."""
_TOKENS = [field.name for field in fields(Usage)]
"""Columns and fields with numbers of tokens."""
_REPLACED = ("n", "model", *_TOKENS, "cost", "currency", "estimated")
"""Columns that are replaced by better values."""


def _keep_better(insert: Any) -> Any:
    """Return the value to store: an estimate is replaced by a longer one and by the final usage, in any order of
    writing.
    """
    new = insert.excluded
    is_longer = sa.and_(usage.c.n == _IN_PROGRESS, new.output_tokens >= usage.c.output_tokens)
    final = sa.or_(new.estimated.is_(sa.false()), new.n != _IN_PROGRESS)
    return insert.on_conflict_do_update(
        index_elements=[usage.c.id],
        set_={name: new[name] for name in _REPLACED},
        where=sa.and_(usage.c.estimated.is_(sa.true()), sa.or_(final, is_longer)),
    )


_add = Upsert(lambda insert: _keep_better(insert(usage).values(at=now())))
_SUMS = (
    sa.func.count().label("requests"),
    *(sa.func.sum(usage.c[name]).label(name) for name in (*_TOKENS, "cost")),
    sa.func.count(usage.c.cost).label("priced"),
    sa.func.count().filter(usage.c.estimated).label("estimated"),
    usage.c.currency,
)
_QUESTIONS = sa.func.count(usage.c.turn_id.distinct()).label("questions")
_COLUMNS = {
    UsageGrouping.PERSON: usage.c.principal,
    UsageGrouping.CHANNEL: usage.c.channel,
    UsageGrouping.WORKSPACE: usage.c.workspace,
    UsageGrouping.MODEL: usage.c.model,
    UsageGrouping.KIND: usage.c.kind,
    # The number of the day. Both databases can round; not all of them have floor.
    UsageGrouping.DAY: sa.cast(sa.func.round(usage.c.at / DAY - 0.5), sa.Integer),
}
_old = sa.select(usage.c.id).where(usage.c.at < now() - bindparam("seconds")).limit(bindparam("limit"))
_delete_old = usage.delete().where(usage.c.id.in_(_old))


class SqlUsageStore(Store):
    """Sums of recorded usage."""

    @transaction
    def totals(self, connection: sa.Connection, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        """Return one sum for each query."""
        sums = sa.select(*_SUMS).group_by(usage.c.currency)
        return [total(map(_total, connection.execute(sums.where(*_conditions(query))))) for query in queries]

    @report
    def totals_by(
        self, connection: sa.Connection, query: UsageQuery, by: UsageGrouping
    ) -> Sequence[tuple[str, UsageTotal]]:
        """Return sums by name, most expensive first; by tokens without prices."""
        column = _COLUMNS[by].label("name")
        statement = sa.select(column, *_SUMS).where(*_conditions(query)).group_by(column, usage.c.currency)
        questions = sa.select(column, _QUESTIONS).where(*_conditions(query)).group_by(column)
        totals = {_name(row.name): UsageTotal(questions=row.questions) for row in connection.execute(questions)}
        for row in connection.execute(statement):
            totals[_name(row.name)] = totals.get(_name(row.name), UsageTotal()).add(_total(row))
        return sorted(totals.items(), key=lambda item: (-sum(item[1].costs.values()), -item[1].tokens, item[0]))

    @report
    def count_questions(self, connection: sa.Connection, query: UsageQuery) -> int:
        """Return the number of turns with requests."""
        return int(connection.execute(sa.select(_QUESTIONS).where(*_conditions(query))).scalar_one())

    @transaction
    def delete_old(self, connection: sa.Connection, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than `seconds`. Return their number."""
        return connection.execute(_delete_old, {"seconds": seconds, "limit": limit}).rowcount


def add(connection: sa.Connection, claim: Claim, usages: Iterable[PricedUsage]) -> None:
    """Record a turn's usage, each request once."""
    add_all(connection, ((claim, priced) for priced in usages))


def add_all(connection: sa.Connection, usages: Iterable[tuple[Claim, PricedUsage]]) -> None:
    """Record the usage of several turns, each request once."""
    if rows := [_row(claim, priced) for claim, priced in usages]:
        connection.execute(_add.on(connection), rows)


def _row(claim: Claim, priced: PricedUsage) -> Mapping[str, Any]:
    entry = priced.use
    return {
        "id": entry.id,
        "turn_id": claim.turn_id,
        "n": _IN_PROGRESS if entry.estimated and not entry.final else entry.n,
        "kind": entry.kind,
        "workspace": claim.conversation.workspace_key,
        "channel": channel_of(claim.conversation),
        "principal": claim.person,
        "model": entry.model,
        **{name: getattr(entry.usage, name) for name in _TOKENS},
        "cost": priced.cost,
        "currency": "" if priced.cost is None else priced.currency,
        "estimated": entry.estimated,
    }


def _conditions(query: UsageQuery) -> Sequence[sa.ColumnElement[bool]]:
    named = ((usage.c.principal, query.person), (usage.c.channel, query.channel), (usage.c.workspace, query.workspace))
    return (usage.c.at >= query.since, *(column == name for column, name in named if name))


def _name(value: str | int) -> str:
    """Return the name of a group; a number is that of a day."""
    return datetime.fromtimestamp(value * DAY, UTC).date().isoformat() if isinstance(value, int) else value


def _total(row: Any) -> UsageTotal:
    return UsageTotal(
        requests=row.requests,
        usage=Usage(**{name: int(getattr(row, name)) for name in _TOKENS}),
        costs={} if row.cost is None else {row.currency: int(row.cost)},
        unpriced=row.requests - row.priced,
        estimated=row.estimated,
    )
