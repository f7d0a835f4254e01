"""A database as the turn log sees it: transactions that are run whole, and tried again while the database is away.

A transaction is a plain function of a connection. It runs in a thread of the database's own, whole or not at all,
whatever happens to the task that asked for it. `sqlite.py` and `postgresql.py` are the two there are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from bot.domain.metrics import MetricEvent, MetricSink, null_sink
from bot.errors import DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from bot.storage.audit_keys import CONNECTION_KEY, AuditKeys
from bot.storage.tx_metrics import recorded

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""How long a person waits for a database that is away."""

_strictly = json.JSONEncoder(allow_nan=False).encode
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_QUIET_SECONDS = 30.0
"""Without a refused write until the database counts as writable, unless the refused transaction itself succeeds."""


class Unwritable(StrEnum):
    """Why a database that answers takes no writes."""

    FULL = "its disk is full"
    READ_ONLY = "it is read-only"
    FAILING = "its disk does not take what is written"


_FIXES = {
    Unwritable.FULL: "free some space on its disk",
    Unwritable.READ_ONLY: "make it writable again: see what its server, its disk or its file's permissions say",
    Unwritable.FAILING: "check its disk, quota and limits of file size",
}


class Database(ABC):
    """`name` is what messages call it and never holds a password; `shared` says whether other processes may drive
    turns on it too. `observe` hears what committed transactions have noted, `audit_keys` sign the rows of the audit
    that they write; both may be set once, before any is run.
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
        self, transaction: Callable[[sa.Connection], T], *, patience: float = PATIENCE_SECONDS, urgent: bool = False
    ) -> T:
        """Run one transaction and return its result once it is committed.

        A database that is locked, full, read-only, restarting or gone is tried again with growing pauses for
        `patience` seconds.
        The outcome of a COMMIT that broke off is unknown, so transactions must do no harm when they are run twice.
        An `urgent` one does not queue up behind others. What it notes is measured once: not at all if the answer to its
        COMMIT was lost, for the second time it finds its work done. Raises DatabaseUnavailable if the patience ends
        (DatabaseUnwritable if writes are refused), DatabaseError if waiting cannot help.
        """

        def measured(connection: sa.Connection) -> tuple[T, Sequence[MetricEvent]]:
            connection.info[CONNECTION_KEY] = self.audit_keys
            recorded(connection)  # of a transaction before this one that was rolled back
            return transaction(connection), recorded(connection)

        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        pause = _FIRST_PAUSE
        refused = False
        while True:
            try:
                result, measurements = await (self.run_urgently(measured) if urgent else self.run_once(measured))
            except IntegrityError:
                raise
            except DBAPIError as error:
                refused = self._meet(error) or refused
                left = deadline - loop.time()
                if left <= 0:
                    raise self._unavailable(error) from error
                # Jitter keeps many processes from coming back in step; it is no secret.
                await asyncio.sleep(min(pause, left) * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._met_no_trouble()
                if refused:
                    self._refused_at = -math.inf  # the same transaction fits now
                await self._look_whether_writable()
                for each in measurements:
                    self.observe(each)
                return result

    @property
    def takes_writes(self) -> bool:
        """True unless a write was refused lately. Does not ask the database."""
        return self._unwritable is None

    async def check_writable(self) -> None:
        """Write a row as it is. Raises DatabaseUnwritable, also if a transaction was refused lately. Raises
        DatabaseError if the database does not answer.
        """
        try:
            await self.run_once(self._write)
        except DBAPIError as error:
            self._meet(error)
            raise self._unavailable(error) from error
        self._wrote()
        if self._unwritable is not None:
            raise self._refused(self._unwritable)

    @abstractmethod
    async def run_once(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction without trying again. Raises what SQLAlchemy raises."""

    async def run_urgently(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction before others that wait, without trying again."""
        return await self.run_once(transaction)

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for and let go of connections and threads."""

    @abstractmethod
    def is_transient(self, error: DBAPIError) -> bool:
        """Return True if the same transaction may succeed a little later. `unwritable` has errors of its own."""

    @abstractmethod
    def unwritable(self, error: DBAPIError) -> Unwritable | None:
        """Return why the database refused a write, None for other errors."""

    def is_serialization_failure(self, _error: DBAPIError) -> bool:
        """Whether another transaction was in the way, and nothing is the matter with the database."""
        return False

    @abstractmethod
    def fix(self, reason: str) -> str:
        """What a person can do about it."""

    def _write(self, connection: sa.Connection) -> None:
        """Write a row of the schema as it is."""
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")

    def _meet(self, error: DBAPIError) -> bool:
        """Log an error that may pass, once. Return True if a write was refused. Raises DatabaseError for others."""
        reason = first_line(error.orig)
        if (why := self.unwritable(error)) is not None:
            self._met_refusal(why)
            return True
        if not self.is_transient(error):
            raise DatabaseError(f"The database {self.name} failed: {reason}.", self.fix(reason)) from error
        if self.is_serialization_failure(error):
            log.debug("two transactions got in each other's way (%s), trying again", reason)
        else:
            self._met(reason)
        return False

    def _unavailable(self, error: DBAPIError) -> DatabaseUnavailable:
        if (why := self.unwritable(error)) is not None:
            return self._refused(why)
        reason = first_line(error.orig)
        return DatabaseUnavailable(f"The database {self.name} is away: {reason}.", self.fix(reason))

    def _refused(self, why: Unwritable) -> DatabaseUnwritable:
        return DatabaseUnwritable(f"The database {self.name} cannot be written: {why}.", _FIXES[why], reason=why.value)

    def _met_refusal(self, why: Unwritable) -> None:
        """Log one line when writes begin to be refused."""
        self._refused_at = time.monotonic()
        if self._unwritable is None:
            self._unwritable_since = self._refused_at
            log.error("the database %s cannot be written: %s, trying again. Fix: %s", self.name, why, _FIXES[why])
        self._unwritable = why

    async def _look_whether_writable(self) -> None:
        """Write, if writes were refused and none lately. Reads say nothing, and small writes may still fit."""
        if self._unwritable is None or not self._is_quiet():
            return
        try:
            await self.run_once(self._write)
        except DBAPIError as error:
            if (why := self.unwritable(error)) is not None:
                self._met_refusal(why)
        else:
            self._wrote()

    def _wrote(self) -> None:
        """Log one line when writes are taken again."""
        if self._unwritable is not None and self._is_quiet():
            self._unwritable = None
            seconds = time.monotonic() - self._unwritable_since
            log.warning("the database %s can be written again after %.1f s", self.name, seconds)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._refused_at >= _QUIET_SECONDS

    def _met(self, reason: str) -> None:
        """One line when trouble begins, not one for everybody who meets it."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.error("the database %s does not answer (%s), trying again", self.name, reason)

    def _met_no_trouble(self) -> None:
        if self._away_since is not None:
            log.warning("the database %s is back after %.1f s", self.name, time.monotonic() - self._away_since)
            self._away_since = None


def json_text(value: Any) -> str:
    """JSON that every database takes: a number that is none becomes null. Models and tools do send such."""
    try:
        return _strictly(value)
    except ValueError:
        return _strictly(_finite(value))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value


def first_line(error: BaseException | None) -> str:
    """The part of a driver's message that says what happened."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def consume_exception(future: asyncio.Future[Any]) -> None:
    """Take note of an error whose task is gone, so that asyncio does not complain that nobody did."""
    if not future.cancelled():
        future.exception()
