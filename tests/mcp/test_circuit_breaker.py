"""Pauses for a server that keeps failing, and the moment of the next connection, on a fake clock."""

from __future__ import annotations

import math

import pytest

from bot.mcp.active_calls import ActivityTracker
from bot.mcp.server.retry import (
    AT_ONCE,
    BreakerSettings,
    CircuitBreaker,
    ConnectionTiming,
    ReconnectBackoff,
    RetryTiming,
)
from tests.mcp.toolboxes import Clock


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(BreakerSettings(), clock)


@pytest.fixture
def schedule() -> ReconnectBackoff:
    return ReconnectBackoff(RetryTiming(), lambda: 0.5)


def failed_at(breaker: CircuitBreaker, clock: Clock, *moments: float) -> list[float]:
    """Return the seconds for which the breaker is open after each of the failures."""
    began, left = clock.now, []
    for moment in moments:
        clock.now = began + moment
        breaker.record_failure()
        left.append(breaker.left)
    return left


# the breaker


def test_three_failures_close_together_open_it_for_half_a_minute(breaker: CircuitBreaker, clock: Clock) -> None:
    assert failed_at(breaker, clock, 0, 60, 119) == [0, 0, 30]
    clock.now += 29.5
    assert breaker.left == 0.5
    clock.now += 0.5
    assert breaker.left == 0


def test_failures_far_apart_do_not_open_it(breaker: CircuitBreaker, clock: Clock) -> None:
    assert failed_at(breaker, clock, 0, 100, 200, 300, 400) == [0, 0, 0, 0, 0]


def test_it_stays_open_twice_as_long_after_each_try_in_vain_and_five_minutes_at_most(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    failed_at(breaker, clock, 0, 1, 2)
    assert failed_at(breaker, clock, 400, 800, 1200, 1600, 2000) == [60, 120, 240, 300, 300]


def test_a_server_that_works_is_forgiven_its_failures(breaker: CircuitBreaker, clock: Clock) -> None:
    failed_at(breaker, clock, 0, 1, 2, 3)
    breaker.record_success()
    assert breaker.left == 0
    assert failed_at(breaker, clock, 0, 1, 2) == [0, 0, 30]


def test_seven_lost_connections_within_three_quarters_of_a_minute_open_it_though_each_had_worked(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    left = []
    for _ in range(7):
        breaker.record_success()
        breaker.record_loss()
        left.append(breaker.left)
        clock.now += 7
    assert left == [0, 0, 0, 0, 0, 0, 15]
    breaker.record_success()
    assert breaker.left == 8


def test_losses_far_apart_do_not_open_it(breaker: CircuitBreaker, clock: Clock) -> None:
    for _ in range(20):
        breaker.record_loss()
        assert breaker.left == 0
        clock.now += 8


def test_a_requested_try_closes_the_breaker(breaker: CircuitBreaker, clock: Clock) -> None:
    failed_at(breaker, clock, 0, 0, 0)
    for _ in range(7):
        breaker.record_loss()
    breaker.reset()
    assert breaker.left == 0
    breaker.record_loss()
    assert failed_at(breaker, clock, 0, 0, 0) == [0, 0, 30]


@pytest.mark.parametrize("what", [CircuitBreaker.record_failure, CircuitBreaker.record_loss])
def test_a_breaker_that_opens_at_once_stays_open_until_it_is_closed(clock: Clock, what: object) -> None:
    breaker = CircuitBreaker(AT_ONCE, clock)
    assert callable(what)
    what(breaker)
    clock.now += 1e9
    assert breaker.left == math.inf
    breaker.reset()
    assert breaker.left == 0


# the schedule


@pytest.mark.parametrize(
    ("chance", "expected"),
    [(0.5, [5, 10, 20, 40, 60]), (0.0, [3.75, 7.5, 15, 30, 45]), (1.0, [6.25, 12.5, 25, 50, 75])],
)
def test_five_tries_with_growing_pauses_that_vary_by_a_quarter_and_then_none(
    chance: float, expected: list[float]
) -> None:
    schedule = ReconnectBackoff(RetryTiming(), lambda: chance)
    assert [schedule.failure_pause() for _ in range(7)] == [*expected, None, None]


def test_a_lost_connection_that_lived_long_is_made_again_at_once_and_has_all_tries_before_it(
    schedule: ReconnectBackoff,
) -> None:
    for _ in range(6):
        schedule.failure_pause()
    assert schedule.loss_pause(lifetime=3600) == 0.2
    assert [schedule.failure_pause() for _ in range(6)] == [5, 10, 20, 40, 60, None]


def test_a_server_that_never_stays_is_made_again_more_and_more_slowly_and_then_not_at_all(
    schedule: ReconnectBackoff,
) -> None:
    assert [schedule.loss_pause(lifetime=1) for _ in range(7)] == [0.2, 5, 10, 20, 40, 60, None]


def test_a_requested_try_gives_a_server_all_tries(schedule: ReconnectBackoff) -> None:
    for _ in range(9):
        schedule.failure_pause()
    schedule.reset()
    assert schedule.failure_pause() == 5


def test_without_reconnecting_nothing_is_planned_after_a_failure_and_after_a_loss() -> None:
    schedule = ReconnectBackoff(ConnectionTiming().without_reconnecting().retries, lambda: 0.5)
    assert schedule.loss_pause(lifetime=3600) is None
    assert schedule.loss_pause(lifetime=1) is None
    assert schedule.failure_pause() is None


# the use


def test_a_server_is_used_until_the_last_of_its_calls_has_ended(clock: Clock) -> None:
    ended: list[int] = []
    use = ActivityTracker(clock, lambda: ended.append(use.running))
    with use.track_user():
        clock.now += 100
        with use.track_user():
            clock.now += 100
        clock.now += 100
        assert use.unused_since == clock.now
    clock.now += 50
    assert use.unused_since == clock.now - 50
    assert ended == [1, 0]


def test_requests_of_the_program_itself_are_no_use_of_a_server(clock: Clock) -> None:
    use = ActivityTracker(clock, lambda: None)
    began = clock.now
    clock.now += 100
    with use.track_internal():
        assert use.unused_since == clock.now
    assert use.unused_since == began
