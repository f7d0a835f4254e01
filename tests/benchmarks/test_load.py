"""The load benchmark at a small size: the guarantees for messages hold, and its accounts detect violations."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load import Load, carry, report
from benchmarks.load_accounts import Row, account, percentile

SENT = {f"load-slack-0-{n}": 0.0 for n in range(3)}


def row(n: int, *, answered: bool = True) -> Row:
    return Row("slack:T1:C1:1", f"load-slack-0-{n}", 0.0, 1.0, answered)


def shown_answers(*ns: int) -> list[list[str]]:
    return [[f"load-slack-0-{n}" for n in ns]]


async def test_nothing_is_lost_doubled_or_out_of_order_in_a_burst_by_every_way(tmp_path: Path) -> None:
    outcome = await carry(Load(200), f"sqlite:///{tmp_path / 'load.db'}", tmp_path)
    assert sum(outcome.sent.values()) == 200
    assert min(outcome.sent.values()) >= 66
    assert min(outcome.twice.values()) > 0
    assert outcome.is_right, outcome.accounts
    for way, seconds in outcome.acknowledged.items():
        assert len(seconds) >= outcome.sent[way]
    assert report(outcome, "a load").row_count == 3


def test_accounts_that_fit_are_right() -> None:
    assert account(SENT, [row(0), row(1), row(2)], shown_answers(0, 1, 2)).is_right


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        pytest.param([row(0), row(1)], shown_answers(0, 1, 2), id="no row"),
        pytest.param([row(0), row(1), row(2, answered=False)], shown_answers(0, 1, 2), id="no answer"),
        pytest.param([row(0), row(1), row(2)], shown_answers(0, 1), id="an answer that nobody sees"),
    ],
)
def test_a_message_is_lost_without_its_row_its_answer_or_a_sight_of_it(rows: list[Row], seen: list[list[str]]) -> None:
    found = account(SENT, rows, seen)
    assert (found.lost, found.doubled, found.disordered) == (1, 0, 0)


def test_a_second_turn_or_a_second_answer_is_one_too_many() -> None:
    assert account(SENT, [row(0), row(1), row(1), row(2)], shown_answers(0, 1, 2)).doubled == 1
    assert account(SENT, [row(0), row(1), row(2)], shown_answers(0, 1, 1, 2)).doubled == 1


def test_a_turn_before_an_earlier_one_is_out_of_order() -> None:
    assert account(SENT, [row(0), row(2), row(1)], shown_answers(0, 1, 2)).disordered == 1


def test_an_answer_below_a_later_one_is_counted_and_no_fault() -> None:
    found = account(SENT, [row(0), row(1), row(2)], shown_answers(0, 2, 1))
    assert (found.displaced, found.is_right) == (1, True)


def test_a_percentile_is_a_number_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7.0], 0.99) == 7.0
