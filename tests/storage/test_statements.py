"""Statements that are executed again: the driver gets them compiled, with the results and errors of SQLAlchemy."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.storage.statements import PreparedConnection, Statements

metadata = sa.MetaData()
notes = sa.Table(
    "notes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tags", sa.JSON),
    sa.Column("open", sa.Boolean, server_default=sa.true()),
    sa.Column("day", sa.Date),
)
add = notes.insert()
add_open = notes.insert().values(open=True).returning(notes.c.id, notes.c.open)
by_id = sa.select(notes).where(notes.c.id == bindparam("id"))
by_ids = sa.select(notes.c.id).where(notes.c.id.in_(bindparam("ids", expanding=True))).order_by(notes.c.id)
by_texts = sa.select(notes.c.id).where(notes.c.text.in_(["a", "b"])).order_by(notes.c.id)
as_text = sa.text("select count(*) as n from notes")
DAY = dt.date(2026, 11, 30)


@pytest.fixture
def connection() -> Iterator[PreparedConnection]:
    engine = sa.create_engine("sqlite://")
    connection = PreparedConnection(engine, Statements(engine.dialect))
    with connection:
        metadata.create_all(connection)
        yield connection
    engine.dispose()


def note(n: int, text: str = "a") -> dict[str, object]:
    return {"id": n, "text": text, "tags": {"n": [n]}, "open": False, "day": DAY}


def test_each_execution_of_a_statement_has_the_same_typed_rows(connection: PreparedConnection) -> None:
    for n in range(3):
        connection.execute(add, note(n))
    rows = [connection.execute(by_id, {"id": n}).one() for n in range(3)]
    assert [row.tags for row in rows] == [{"n": [n]} for n in range(3)]
    assert {(row.open, row.day) for row in rows} == {(False, DAY)}
    assert rows[2]._asdict() == {"id": 2, "text": "a", "tags": {"n": [2]}, "open": False, "day": DAY}
    assert [connection.execute(as_text).scalar() for _ in range(3)] == [3, 3, 3]


def test_parameters_of_other_names_are_another_statement(connection: PreparedConnection) -> None:
    for n in range(6):
        connection.execute(add, note(n) if n % 2 else {"id": n, "text": "b"})
    assert connection.execute(by_id, {"id": 4}).one().open is True
    assert connection.execute(by_id, {"id": 5}).one().open is False


def test_several_sets_of_parameters_are_executed_together(connection: PreparedConnection) -> None:
    for first in (0, 2, 4):
        connection.execute(add, [note(first), note(first + 1, "b")])
    assert [connection.execute(by_texts).scalars().all() for _ in range(2)] == [[0, 1, 2, 3, 4, 5]] * 2


def test_a_list_of_values_may_have_another_length_each_time(connection: PreparedConnection) -> None:
    connection.execute(add, [note(n) for n in range(5)])
    found = [connection.execute(by_ids, {"ids": list(range(n))}).scalars().all() for n in range(4)]
    assert found == [[], [0], [0, 1], [0, 1, 2]]


def test_a_change_tells_how_many_rows_it_met_and_returns_what_it_is_asked_for(connection: PreparedConnection) -> None:
    close = notes.update().where(notes.c.text == bindparam("which")).values(open=False)
    for n in range(3):
        assert connection.execute(add_open, {"id": n, "text": "c"}).one() == (n, True)
    assert [connection.execute(close, {"which": which}).rowcount for which in ("c", "d", "c")] == [3, 0, 3]


def test_an_error_of_the_driver_is_that_of_sqlalchemy_at_each_execution(connection: PreparedConnection) -> None:
    connection.execute(add, note(1))
    for _ in range(3):
        with pytest.raises(sa.exc.IntegrityError, match="UNIQUE"):
            connection.execute(add, note(1))
    with pytest.raises(sa.exc.StatementError):
        connection.execute(by_id, {})


def test_listeners_to_executions_hear_each_of_them(connection: PreparedConnection) -> None:
    heard: list[str] = []

    def listen(_connection: object, _cursor: object, text: str, *_more: object) -> None:
        heard.append(text)

    connection.execute(add, note(1))
    sa.event.listen(connection.engine, "before_cursor_execute", listen)
    for _ in range(3):
        connection.execute(by_id, {"id": 1})
    assert len(heard) == 3
