"""A connection on which statements are compiled once.

SQLAlchemy finds a compiled statement by the parts of the statement, and makes several objects for each execution.
Modules build their statements once. Here the statement itself is the key, and the driver gets its text and values.
Statements whose text depends on their values take SQLAlchemy's way, as each does the first time, and all on an engine
with listeners to executions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import CursorResult, IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import CompileError
from sqlalchemy.sql.compiler import SQLCompiler

_Convert = Callable[[Any], Any]


class _Rows(IteratorResult[Any]):
    """The rows of an execution, all fetched."""

    def __init__(self, columns: SimpleResultMetaData, rows: Sequence[Any], rowcount: int) -> None:
        super().__init__(columns, iter(rows))
        self.rowcount = rowcount


class Prepared:
    """A compiled statement, for executions with parameters of these names. Raises CompileError if the parameters are
    part of its text.
    """

    def __init__(self, statement: Any, names: frozenset[str], dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=sorted(names))
        assert isinstance(compiled, SQLCompiler)
        if any(bind.expanding and bind.required for bind in compiled.binds.values()):
            raise CompileError("the length of a list is part of the text")
        # The values that executions give are no part of the text.
        whole = compiled.construct_expanded_state(dict.fromkeys(names))
        self.text = whole.statement
        self._dialect = dialect
        order = list(whole.positiontup or ()) if compiled.positional else list(whole.parameters)
        self._names = None if compiled.positional else order
        self._values: list[Any] = []
        self._given: list[tuple[int, str, _Convert | None]] = []
        for place, name in enumerate(order):
            convert = whole.processors.get(name)
            if convert is None and name in compiled.binds:
                convert = compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect)
            value = whole.parameters[name]
            self._values.append(value if convert is None or name in names else convert(value))
            if name in names:
                self._given.append((place, name, convert))
        self._statement = statement
        self.columns: SimpleResultMetaData | None = None

    def bind(self, parameters: Mapping[str, Any]) -> Any:
        """Return the values for the driver."""
        values = self._values.copy()
        for place, name, convert in self._given:
            value = parameters[name]
            values[place] = value if convert is None else convert(value)
        return values if self._names is None else dict(zip(self._names, values, strict=True))

    def describe(self, description: Sequence[Any] | None) -> SimpleResultMetaData:
        """Return the columns of the rows, which a driver's `description` of the first result tells."""
        if self.columns is None:
            of_text = isinstance(self._statement, sa.TextClause)  # whose types nobody knows
            columns = [sa.null()] * len(description or ()) if of_text else self._statement.exported_columns
            described = [
                (name, code, column.type) for (name, code, *_), column in zip(description or (), columns, strict=True)
            ]
            self.columns = SimpleResultMetaData(
                [name for name, _, _ in described],
                _processors=[
                    kind.dialect_impl(self._dialect).result_processor(self._dialect, code)
                    for _, code, kind in described
                ],
            )
        return self.columns


class Statements:
    """The statements that are compiled for one database."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._dialect = dialect
        self._seen: WeakSet[sa.Executable] = WeakSet()
        self._prepared: dict[sa.Executable, dict[frozenset[str], Prepared | None]] = {}

    def find(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the compiled statement; None at the first execution, and if SQLAlchemy has to execute it."""
        by_names = self._prepared.get(statement)
        if by_names is None:
            if statement not in self._seen:
                self._seen.add(statement)
                return None
            by_names = self._prepared[statement] = {}
        names = frozenset(parameters)
        if names not in by_names:
            try:
                by_names[names] = Prepared(statement, names, self._dialect)
            except CompileError:
                by_names[names] = None
        return by_names[names]


class PreparedConnection(sa.Connection):
    """Connection of an engine that executes the compiled `statements`."""

    def __init__(self, engine: sa.Engine, statements: Statements) -> None:
        super().__init__(engine)
        self._statements = statements

    def execute(self, statement: Any, parameters: Any = None, **options: Any) -> CursorResult[Any]:
        """Execute a statement as `sqlalchemy.Connection` does. The rows are fetched at once."""
        several = parameters if isinstance(parameters, list) else [parameters or {}]
        prepared = None
        if several and not options and not self.engine.dispatch.before_cursor_execute:
            prepared = self._statements.find(statement, several[0])
        if prepared is None:
            self.flush()
            return super().execute(statement, parameters, **options)
        # A result has what callers use of SQLAlchemy's.
        return cast("CursorResult[Any]", self.execute_prepared(prepared, [prepared.bind(each) for each in several]))

    def flush(self) -> None:
        """Execute statements that wait for others. Here none does."""

    def execute_prepared(self, prepared: Prepared, values: Sequence[Any]) -> IteratorResult[Any]:
        """Execute a compiled statement with each of these values."""
        cursor = self.connection.cursor()
        try:
            if len(values) == 1:
                cursor.execute(prepared.text, values[0])
            else:
                cursor.executemany(prepared.text, values)
            rows = () if cursor.description is None else cursor.fetchall()
            return _Rows(prepared.describe(cursor.description), rows, cursor.rowcount)
        except self.dialect.loaded_dbapi.Error as error:
            # Only this method makes SQLAlchemy's error, and finds out whether the connection is lost.
            self._handle_dbapi_exception(error, prepared.text, values, cursor, None)
        finally:
            cursor.close()
