"""Access to the database: whole transactions, with retries while it is unavailable, and the SQL in which SQLite and
PostgreSQL differ.

A transaction is a plain function of a connection. It runs in a thread of the database, completely or not at all, even
if the task that requested it is cancelled. `sqlite.py` and `postgresql.py` implement it.

Wakeups of other processes are sent on PostgreSQL only, in the transaction. They are hints: processes also poll.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import wraps
from importlib import import_module
from types import MappingProxyType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bot.domain.metrics import MetricEvent, MetricSink, null_sink
from bot.domain.turns import WakeupKind
from bot.errors import DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from bot.storage.audit_chain import CONNECTION_KEY, AuditKeys

log = logging.getLogger(__name__)

S = TypeVar("S", bound="Store")
P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS = 10.0
"""Seconds that a user's request waits for an unavailable database."""
OWNER_RETRY_SECONDS = 300.0
"""Seconds that a turn's owner waits for an unavailable database, because a tool's result must not be lost."""
NO_RETRIES = 0.0
"""Patience of requests that are repeated anyway."""

FUNCTION = "countersign_now"
"""Name of the clock in SQL: on SQLite a connection defines it, on PostgreSQL a migration."""
CHANNEL = "countersign"
"""Channel of NOTIFY."""

_LAST = "\U0010ffff"
"""Greater than any character that follows a prefix."""
_notify = sa.select(sa.func.pg_notify(CHANNEL, bindparam("payload")))
_EVENTS = "measurements"
"""Key of the metric events in a connection's `info`."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_QUIET_SECONDS = 30.0
"""Without a refused write until the database counts as writable, unless the refused transaction itself succeeds."""


Rank = Literal["urgent", "arrival", "ordinary"]
"""Order of transactions that wait for the database. An arrival is a part of taking in a message, for whose end a
platform waits: it goes before others for a limited time.
"""


class Unwritable(StrEnum):
    """Reason why a reachable database refuses writes."""

    FULL = "its disk is full"
    READ_ONLY = "it is read-only"
    FAILING = "its disk does not take what is written"


_FIXES = {
    Unwritable.FULL: "free some space on its disk",
    Unwritable.READ_ONLY: "make it writable again: see what its server, its disk or its file's permissions say",
    Unwritable.FAILING: "check its disk, quota and limits of file size",
}


def record_metric(connection: sa.Connection, event: MetricEvent) -> None:
    """Record an event, to be observed after the commit."""
    connection.info[_EVENTS].append(event)


class Database(ABC):
    """A database. `name` is for messages and never holds a password; `shared` is True if processes of several machines
    may use it, and claim turns of the same conversations. `observe` receives the metrics of committed transactions,
    `audit_keys` sign the audit rows; both may be set once, before the first transaction.
    """

    shared: bool = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.observe: MetricSink = null_sink
        self.audit_keys = AuditKeys()
        self._away_since: float | None = None
        self._unwritable: Unwritable | None = None
        self._unwritable_since = 0.0
        self._refused_at = -math.inf

    async def run(
        self,
        transaction: Callable[[sa.Connection], T],
        *,
        retry_seconds: float = RETRY_SECONDS,
        rank: Rank = "ordinary",
    ) -> T:
        """Run one transaction and return its result after its commit.

        Retries with growing pauses for `retry_seconds` while the database is locked, full, read-only, restarting or
        unreachable. Because the outcome of an interrupted COMMIT is unknown, a transaction must be safe to run twice.
        An urgent one does not queue behind others. Metrics are recorded at most once. Raises DatabaseUnavailable
        after `retry_seconds` (DatabaseUnwritable if writes are refused), DatabaseError if a retry cannot help.
        """

        def run_measured(connection: sa.Connection) -> tuple[T, Sequence[MetricEvent]]:
            connection.info[CONNECTION_KEY] = self.audit_keys
            # Not those of an earlier transaction that was rolled back.
            events = connection.info[_EVENTS] = list[MetricEvent]()
            return transaction(connection), events

        loop = asyncio.get_running_loop()
        deadline = loop.time() + retry_seconds
        pause = _FIRST_PAUSE
        refused = False
        while True:
            try:
                result, events = await self.run_once(run_measured, rank)
            except IntegrityError:
                raise
            except DBAPIError as error:
                refused = self._handle_error(error) or refused
                remaining = deadline - loop.time()
                if remaining <= 0:
                    raise self._unavailable(error) from error
                # Jitter keeps processes from retrying at the same moment; it needs no secure randomness.
                await asyncio.sleep(min(pause, remaining) * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if self._away_since is not None:
                    away = time.monotonic() - self._away_since
                    log.warning("the database %s is back after %.1f s", self.name, away)
                    self._away_since = None
                if refused:
                    self._refused_at = -math.inf  # the same transaction may succeed now
                await self._test_write()
                for event in events:
                    self.observe(event)
                return result

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query of a report, which may take long, and return its result. It sees everything that was committed
        before. Raises errors as `run` does.
        """
        return await self.run(query)

    @property
    def takes_writes(self) -> bool:
        """True unless a write was refused recently. Does not query the database."""
        return self._unwritable is None

    async def check_writable(self) -> None:
        """Write a row without changing it. Raises DatabaseUnwritable, also if a transaction was refused recently.
        Raises other errors as `run` does.
        """
        try:
            await self.run_once(self._write)
        except DBAPIError as error:
            self._handle_error(error)
            raise self._unavailable(error) from error
        self._log_writable()
        if self._unwritable is not None:
            raise self._unwritable_error(self._unwritable)

    async def purge_files(self, *, whole: bool) -> bool:  # noqa: ARG002 - a server has no files here
        """Remove deleted rows from the files, as far as this process can: from a write-ahead log, and from the
        whole file if `whole` is True. Return False if a reader prevented it for now. Raises errors as `run` does.
        """
        return True

    @abstractmethod
    async def run_once(self, transaction: Callable[[sa.Connection], T], rank: Rank = "ordinary") -> T:
        """Run one transaction without retries. Raises SQLAlchemy's errors."""

    @abstractmethod
    async def close(self) -> None:
        """Finish requested transactions, and close connections and threads."""

    @abstractmethod
    def is_transient(self, error: DBAPIError) -> bool:
        """Return True if the same transaction may succeed a little later. `unwritable` has errors of its own."""

    @abstractmethod
    def unwritable(self, error: DBAPIError) -> Unwritable | None:
        """Return why the database refused a write, None for other errors."""

    def is_serialization_failure(self, _error: DBAPIError) -> bool:
        """Return True if the transaction failed only because of a concurrent one."""
        return False

    @abstractmethod
    def fix(self, reason: str) -> str:
        """Return the advice for the operator."""

    def _write(self, connection: sa.Connection) -> None:
        """Write a row of the schema without changing it."""
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")

    def _handle_error(self, error: DBAPIError) -> bool:
        """Log a temporary error once. Return True if a write was refused. Raises DatabaseError for other errors."""
        reason = first_line(error.orig)
        if (why := self.unwritable(error)) is not None:
            self._log_refusal(why)
            return True
        if not self.is_transient(error):
            raise DatabaseError(f"The database {self.name} failed: {reason}.", self.fix(reason)) from error
        if self.is_serialization_failure(error):
            log.debug("transaction conflict, trying again: %s", reason)
        # Log one line when an outage begins, not one for each failed transaction.
        elif self._away_since is None:
            self._away_since = time.monotonic()
            log.error("the database %s does not answer (%s), trying again", self.name, reason)
        return False

    def _unavailable(self, error: DBAPIError) -> DatabaseUnavailable:
        if (why := self.unwritable(error)) is not None:
            return self._unwritable_error(why)
        reason = first_line(error.orig)
        return DatabaseUnavailable(f"The database {self.name} is away: {reason}.", self.fix(reason))

    def _unwritable_error(self, why: Unwritable) -> DatabaseUnwritable:
        return DatabaseUnwritable(f"The database {self.name} cannot be written: {why}.", _FIXES[why], reason=why.value)

    def _log_refusal(self, why: Unwritable) -> None:
        """Log one line when writes begin to be refused."""
        self._refused_at = time.monotonic()
        if self._unwritable is None:
            self._unwritable_since = self._refused_at
            log.error("the database %s cannot be written: %s, trying again. Fix: %s", self.name, why, _FIXES[why])
        self._unwritable = why

    async def _test_write(self) -> None:
        """Test a write after a refused one, because reads and small writes may succeed on a full disk."""
        if self._unwritable is None or not self._is_quiet():
            return
        try:
            await self.run_once(self._write)
        except DBAPIError as error:
            if (why := self.unwritable(error)) is not None:
                self._log_refusal(why)
        else:
            self._log_writable()

    def _log_writable(self) -> None:
        """Log one line when writes are accepted again."""
        if self._unwritable is not None and self._is_quiet():
            self._unwritable = None
            seconds = time.monotonic() - self._unwritable_since
            log.warning("the database %s can be written again after %.1f s", self.name, seconds)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._refused_at >= _QUIET_SECONDS


class Store:
    """A class with methods that `transaction` and `report` make asynchronous."""

    def __init__(self, database: Database) -> None:
        self._database = database


_Work = Callable[Concatenate[S, sa.Connection, P], T]
_Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


@overload
def transaction(work: _Work[S, P, T], /) -> _Method[S, P, T]: ...


@overload
def transaction(
    *, retry_seconds: float = RETRY_SECONDS, rank: Rank = "ordinary"
) -> Callable[[_Work[S, P, T]], _Method[S, P, T]]: ...


def transaction(
    work: _Work[S, P, T] | None = None, /, *, retry_seconds: float = RETRY_SECONDS, rank: Rank = "ordinary"
) -> _Method[S, P, T] | Callable[[_Work[S, P, T]], _Method[S, P, T]]:
    """Make a method with a connection an async method without it, which runs it as one transaction by `Database.run`.

    The method runs in a thread of the database and may run twice, so that its arguments hold every id that it inserts.
    The class has its database in `_database`.
    """

    def decorate(work: _Work[S, P, T]) -> _Method[S, P, T]:
        @wraps(work)
        async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await store._database.run(  # noqa: SLF001 - the class is decorated with this
                lambda connection: work(store, connection, *args, **kwargs), retry_seconds=retry_seconds, rank=rank
            )

        return run

    return decorate if work is None else decorate(work)


def change_once(change: _Work[S, P, bool], /) -> _Method[S, P, bool]:
    """As `transaction`, for a method that returns True if it changed something. The result is True if any of its runs
    returned True, because after a lost COMMIT response the next run finds the change made.
    """

    @wraps(change)
    async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        changed = False

        def work(connection: sa.Connection) -> bool:
            nonlocal changed
            changed = change(store, connection, *args, **kwargs) or changed
            return changed

        return await store._database.run(work)  # noqa: SLF001 - the class is decorated with this

    return run


def report(query: _Work[S, P, T], /) -> _Method[S, P, T]:
    """As `transaction`, for a query of a report: it only reads, may take long, and runs by `Database.read`."""

    @wraps(query)
    async def read(store: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._database.read(  # noqa: SLF001 - the class is decorated with this
            lambda connection: query(store, connection, *args, **kwargs)
        )

    return read


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver's message, without its context."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def consume_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a future without a waiting task, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


# -------------------- SQL


class Upsert:
    """One statement, built for each database at its first use."""

    def __init__(self, build: Callable[[Callable[[sa.Table], Any]], sa.Executable]) -> None:
        self._build = build
        self._built: dict[str, sa.Executable] = {}

    def on(self, connection: sa.Connection) -> sa.Executable:
        """Return the statement for the connection's database."""
        dialect = connection.dialect.name
        if dialect not in self._built:
            self._built[dialect] = self._build(import_module(f"sqlalchemy.dialects.{dialect}").insert)
        return self._built[dialect]


def insert_new(table: sa.Table, **values: Any) -> Upsert:
    """Return an insert of a row unless it conflicts with a stored one. It returns the new row's primary key. Columns
    without a value here have that of the parameter of their name.
    """
    return Upsert(lambda insert: insert(table).values(**values).on_conflict_do_nothing().returning(*table.primary_key))


def insert_or_update(
    table: sa.Table,
    *columns: str,
    set_: Mapping[str, Any] = MappingProxyType({}),
    where: sa.ColumnElement[bool] | None = None,
    returning: Sequence[sa.ColumnElement[Any]] = (),
    **values: Any,
) -> Upsert:
    """Return an insert of a row. Of a row with the same primary key, if it satisfies `where`, it updates these columns
    and those with a value here, as far as `set_` has no other value.
    """

    def build(insert: Callable[[sa.Table], Any]) -> sa.Executable:
        new = insert(table).values(**values)
        changed = {**{name: new.excluded[name] for name in (*columns, *values)}, **set_}
        statement = new.on_conflict_do_update(index_elements=[*table.primary_key], set_=changed, where=where)
        result: sa.Executable = statement.returning(*returning) if returning else statement
        return result

    return Upsert(build)


class now(FunctionElement[float]):  # noqa: N801 - reads as SQL
    """SQL function: epoch seconds of the database's clock."""

    type = sa.Double()
    inherit_cache = True


@compiles(now)
def _call(_element: now, _compiler: Any, **_: Any) -> str:
    return f"{FUNCTION}()"


def matching(table: sa.FromClause, **parameters: str) -> sa.ColumnElement[bool]:
    """Return the condition that columns equal the parameters of these names."""
    return sa.and_(*(table.c[column] == bindparam(name) for column, name in parameters.items()))


class _Values(sa.TypeDecorator[Sequence[Any]]):
    """Type of a parameter with several values, in one text, so that their number is no part of the statement."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, item: sa.types.TypeEngine[Any]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Return the type of the database."""
        return dialect.type_descriptor(sa.ARRAY(self.item) if dialect.name == "postgresql" else self.impl_instance)

    def process_bind_param(self, value: Iterable[Any] | None, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        """Return a list."""
        return [*(value or ())]


class OneOf(FunctionElement[bool]):
    """Condition that a column equals one of the values of a parameter."""

    type = sa.Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Self:  # noqa: ARG002
        """Return the condition without a comparison with 1, for which SQLite would use no index."""
        return self


def is_one_of(column: sa.ColumnElement[Any], parameter: str) -> OneOf:
    """Return the condition that a column equals one of the values of a parameter."""
    return OneOf(column, bindparam(parameter, type_=_Values(column.type)))


@compiles(OneOf)
def _in_json(element: OneOf, compiler: Any, **arguments: Any) -> str:
    column, values = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"({column} in (select value from json_each({values})))"  # noqa: S608 - a parameter's place


@compiles(OneOf, "postgresql")
def _in_array(element: OneOf, compiler: Any, **arguments: Any) -> str:
    column, values = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"({column} = any({values}))"


def given(
    *filters: tuple[bool, sa.ColumnElement[bool], Mapping[str, Any]],
) -> tuple[list[sa.ColumnElement[bool]], dict[str, Any]]:
    """Return the conditions of those filters that are given, and the values of their parameters."""
    conditions = [condition for is_given, condition, _ in filters if is_given]
    return conditions, {name: value for is_given, _, values in filters if is_given for name, value in values.items()}


def row_values(table: sa.Table, value: object, **columns: Any) -> dict[str, Any]:
    """Return the values of a row: those of the columns that are fields of `value`, and the given ones."""
    names = (column.name for column in table.c)
    return {name: getattr(value, name) for name in names if hasattr(value, name)} | columns


def send_wakeup(connection: sa.Connection, kind: WakeupKind = WakeupKind.WORK_AVAILABLE, turn_id: str = "") -> None:
    """Notify the other processes."""
    if connection.dialect.name == "postgresql":
        connection.execute(_notify, {"payload": f"{kind} {turn_id}".rstrip()})


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which a database cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class StorableText(sa.TypeDecorator[str]):
    """Text column for untrusted text, with unstorable characters replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Return the text as it can be stored."""
        return None if value is None else storable(value)


class KeyHasPrefix(FunctionElement[bool]):
    """Condition that a text lies between two others, byte by byte, independent of the database's collation."""

    type = sa.Boolean()
    inherit_cache = True


def has_prefix(key: sa.ColumnElement[str], name: str) -> KeyHasPrefix:
    """Return the condition that a key begins with the parameter `name`, bound by `prefix_bounds`."""
    return KeyHasPrefix(key, sa.bindparam(f"{name}_first", type_=sa.Text), sa.bindparam(f"{name}_last", type_=sa.Text))


def prefix_bounds(name: str, prefix: str) -> dict[str, str]:
    """Return the values of a parameter of `has_prefix`."""
    return {f"{name}_first": prefix, f"{name}_last": prefix + _LAST}


@compiles(KeyHasPrefix)
def _between(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"({key} >= {first} and {key} < {last})"


@compiles(KeyHasPrefix, "postgresql")
def _between_bytes(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(clause, **arguments) for clause in element.clauses)
    # The operators of text_pattern_ops, because the others compare by collation.
    return f"({key} ~>=~ {first} and {key} ~<~ {last})"
