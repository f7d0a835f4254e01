"""A connection to PostgreSQL that waits for the server only when somebody reads a result.

Statements whose results nobody has read yet are sent together: with the next one that is read, or with the COMMIT.
BEGIN is sent with the first. The server executes them one after the other, each with a snapshot of its own, and none
after one that failed. An error is raised where a result is read, or at the end of the transaction.

Statements are prepared on the server. Their names are digests of their texts, so that a name never means another text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy.engine import IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData

from bot.storage.statements import Prepared, PreparedConnection

_BEGIN = b"begin isolation level read committed"


@dataclass(eq=False, slots=True)
class _Execution:
    """A statement, the values of each of its executions as they are sent, and their results once they are received."""

    text: str
    values: Sequence[Any]
    results: list[Any] = field(default_factory=list)


class PipelinedDriver(psycopg.Connection[Any]):
    """A connection of the driver. Its transactions begin with their first statement."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting: list[_Execution] = []
        # A pooler gives a session to another client after each transaction. It has named a process of its own.
        process = self.pgconn.exec_(b"select pg_backend_pid()").get_value(0, 0)
        self._prepares_statements = process == str(self.pgconn.backend_pid).encode()
        self._statement_names: set[bytes] = set()

    @cached_property
    def _transformer(self) -> Any:
        return Transformer(self)  # only now, because `connect` sets the adapters later than the constructor

    def commit(self) -> None:
        """Send what waits, and commit."""
        if self.waiting or self.pgconn.transaction_status == TransactionStatus.INTRANS:
            self.flush(b"commit")
        else:
            super().commit()

    def rollback(self) -> None:
        """Forget what waits, and roll back."""
        self.waiting.clear()
        super().rollback()

    def add(self, text: str, values: Sequence[Sequence[Any]]) -> _Execution:
        """Let executions of a statement with each of these values wait. Raises DataError if one cannot be sent."""
        dumped = [self._transformer.dump_sequence(each, [PyFormat.TEXT] * len(each)) for each in values]
        execution = _Execution(text, dumped)
        self.waiting.append(execution)
        return execution

    def flush(self, end: bytes = b"") -> None:
        """Send what waits, and receive the results."""
        waiting, self.waiting = self.waiting, []
        try:
            self.pgconn.enter_pipeline_mode()
            expected = self._send(waiting, end)
            results = self.wait(_receive(self.pgconn))
            self.pgconn.exit_pipeline_mode()
        except BaseException:
            self.close()  # nobody knows how much the server has executed
            raise
        for purpose, result in zip(expected, results, strict=True):
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result, self.info.encoding)
            if isinstance(purpose, _Execution):
                purpose.results.append(result)
            elif purpose:
                self._statement_names.add(purpose)

    def _send(self, waiting: Sequence[_Execution], end: bytes) -> list[_Execution | bytes]:
        """Return the execution of each result to expect, and for other results the name that they prepare."""
        expected: list[_Execution | bytes] = []
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            self.pgconn.send_query_params(_BEGIN, None)
            expected.append(b"")
        for execution in waiting:
            text = execution.text.encode()
            name = hashlib.blake2b(text, digest_size=16).hexdigest().encode()
            if self._prepares_statements and name not in self._statement_names and name not in expected:
                self.pgconn.send_prepare(name, text)
                expected.append(name)
            for values in execution.values:
                if self._prepares_statements:
                    self.pgconn.send_query_prepared(name, values)
                else:
                    self.pgconn.send_query_params(text, values)
                expected.append(execution)
        if end:
            self.pgconn.send_query_params(end, None)
            expected.append(b"")
        self.pgconn.pipeline_sync()
        return expected

    def load(self, result: Any) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a result."""
        self._transformer.set_pgresult(result)
        rows: Sequence[tuple[Any, ...]] = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows


def _receive(pgconn: Any) -> Generator[Any, Any, list[Any]]:
    yield from send(pgconn)
    results: list[Any] = []
    while True:
        (result,) = yield from fetch_many(pgconn)
        if result.status == ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)


class PipelinedConnection(PreparedConnection):
    """Connection whose compiled statements wait for a reader."""

    @property
    def _driver(self) -> PipelinedDriver:
        driver = self.connection.driver_connection
        assert isinstance(driver, PipelinedDriver)
        return driver

    def execute_prepared(self, prepared: Prepared, values: Sequence[Any]) -> IteratorResult[Any]:
        """Execute a compiled statement with each of these values when its result is read, or later."""
        try:
            execution = self._driver.add(prepared.text, values)
        except psycopg.Error as error:
            self._handle_dbapi_exception(error, prepared.text, values, None, None)
        columns = prepared.columns
        if columns is None:
            self.flush()
            result = execution.results[0]
            columns = prepared.describe([(result.fname(n).decode(), result.ftype(n)) for n in range(result.nfields)])
        return _Rows(self, execution, columns)

    def flush(self) -> None:
        """Send what waits, and receive the results."""
        driver = self._driver
        if waiting := driver.waiting:
            try:
                driver.flush()
            except psycopg.Error as error:
                failed = next(each for each in waiting if len(each.results) < len(each.values))
                self._handle_dbapi_exception(error, failed.text, failed.values, None, None)

    def read(self, execution: _Execution) -> Generator[tuple[Any, ...]]:
        """Yield the rows of an execution."""
        self.flush()
        for result in execution.results:
            yield from self._driver.load(result)


class _Rows(IteratorResult[Any]):
    """The rows of an execution, for which the first reader waits."""

    def __init__(self, connection: PipelinedConnection, execution: _Execution, columns: SimpleResultMetaData) -> None:
        super().__init__(columns, connection.read(execution))
        self._connection = connection
        self._execution = execution

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement returned or changed."""
        self._connection.flush()
        return sum(result.command_tuples or 0 for result in self._execution.results)
