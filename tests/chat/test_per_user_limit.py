"""One user's share of what is under way."""

from __future__ import annotations

from bot.chat.background_tasks import PerUserLimit, PerUserRate


def test_a_person_has_so_much_in_hand_and_others_their_own() -> None:
    limit = PerUserLimit(2)
    assert [limit.acquire("ana") for _ in range(3)] == [True, True, False]
    assert limit.acquire("priya")
    limit.release("ana")
    assert limit.acquire("ana")
    assert not limit.acquire("ana")


def test_whoever_has_nothing_in_hand_is_forgotten() -> None:
    limit = PerUserLimit(1)
    for number in range(10_000):
        assert limit.acquire(str(number))
        limit.release(str(number))
    assert limit._under_way == {}


def test_a_user_has_a_number_of_calls_in_any_minute_and_others_their_own() -> None:
    now = 0.0
    rate = PerUserRate(2, 60.0, lambda: now)
    assert [rate.acquire("ana") for _ in range(3)] == [True, True, False]
    now = 30.0
    assert [rate.acquire("priya"), rate.acquire("ana")] == [True, False]
    now = 60.0
    assert [rate.acquire("ana") for _ in range(3)] == [True, True, False]
    now = 120.0
    assert rate.acquire("sam")
    assert list(rate._calls) == ["sam"]
