from __future__ import annotations

from bot.domain.messages import assistant
from bot.domain.turns import ModelStep, Turn, TurnInput, TurnRecord, TurnStatus
from bot.storage.turn_log.history import HistoryCache
from tests.fakes.parts import ANA, HALL


def record(n: int, text: str = "", status: TurnStatus = TurnStatus.DONE, revision: int = 7) -> TurnRecord:
    turn = Turn(f"t{n}", HALL, n, ANA, TurnInput("hi"), status, 0.0)
    return TurnRecord(turn, (ModelStep(1, assistant(text)),), revision)


def test_a_turn_is_known_by_its_revision() -> None:
    ended = HistoryCache()
    ended.put([record(1), record(2)])
    assert ended.get({"t1": 7, "t2": 8, "t3": 7}) == {"t1": record(1)}
    ended.put([record(1, revision=8)])
    assert ended.get({"t1": 7}) == {}


def test_a_turn_that_goes_on_is_not_cached() -> None:
    ended = HistoryCache()
    ended.put([record(1, status=TurnStatus.RUNNING)])
    assert ended.get({"t1": 7}) == {}


def test_the_cache_has_a_limit_and_entries_used_last_stay() -> None:
    ended = HistoryCache(most=20_000, largest=11_000)
    ended.put([record(1, "a" * 5_000), record(2, "b" * 5_000)])
    assert set(ended.get({"t1": 7})) == {"t1"}
    ended.put([record(3, "c" * 6_000)])
    assert set(ended.get({"t1": 7, "t2": 7, "t3": 7})) == {"t1", "t3"}
    for _ in range(9):  # the same record counts once
        ended.put([record(3, "c" * 6_000)])
    assert set(ended.get({"t1": 7, "t3": 7})) == {"t1", "t3"}


def test_an_entry_that_would_push_out_many_others_is_not_cached() -> None:
    ended = HistoryCache(most=20_000, largest=11_000)
    ended.put([record(1), record(2, "b" * 10_000)])
    assert set(ended.get({"t1": 7, "t2": 7})) == {"t1"}
