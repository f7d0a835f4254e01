"""Slack's rate limits are never exceeded, and calls wait no longer than necessary."""

from __future__ import annotations

import pytest

from bot.domain.metrics import MetricEvent, PlatformLimited
from bot.errors import DeliveryFailed
from bot.platforms.slack.rate_limits import POSTS_AT_ONCE, RateLimiter


class Time:
    """A clock that advances with each pause."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def pause(self, seconds: float) -> None:
        self.now += seconds


def make_limiter(time: Time) -> RateLimiter:
    return RateLimiter(clock=lambda: time.now, pause=time.pause)


async def test_calls_within_a_methods_limit_wait_for_nothing() -> None:
    time = Time()
    pacing = make_limiter(time)
    for _ in range(47):
        await pacing.take("chat.update")
    assert time.now == 1000.0


async def test_a_wait_that_is_too_long_is_said_instead() -> None:
    pacing = make_limiter(Time())
    for _ in range(47):
        await pacing.take("chat.update")
    with pytest.raises(DeliveryFailed) as failure:
        await pacing.take("chat.update")
    assert failure.value.retry_after == pytest.approx(60)


async def test_no_minute_has_more_calls_than_slack_takes() -> None:
    time = Time()
    pacing = make_limiter(time)
    times = []
    while time.now < 1300:
        try:
            await pacing.take("chat.update")
        except DeliveryFailed as failure:
            time.now += failure.retry_after or 0
            continue
        times.append(time.now)
        time.now += 0.5
    assert all(sum(at <= each < at + 60 for each in times) <= 50 for at in times)
    assert len(times) > 200


async def test_posts_in_one_channel_keep_their_distance_and_leave_others_alone() -> None:
    time = Time()
    pacing = make_limiter(time)
    for _ in range(POSTS_AT_ONCE):
        await pacing.take("chat.postMessage", "C1")
    assert time.now == 1000.0
    await pacing.take("chat.postMessage", "C2")
    assert time.now == 1000.0
    await pacing.take("chat.postMessage", "C1")
    assert time.now > 1001


async def test_a_pause_that_slack_asks_for_holds_for_that_method() -> None:
    time = Time()
    pacing = make_limiter(time)
    await pacing.close("chat.update", 7)
    await pacing.take("chat.postMessage", "C1")
    assert time.now == 1000.0
    await pacing.take("chat.update")
    assert time.now == 1007.0


async def test_a_pause_of_one_channel_is_one_of_the_workspace_only_if_another_channel_is_paused_too() -> None:
    time = Time()
    pacing = make_limiter(time)
    for channel in ("C1", "C2", "C3"):
        await pacing.take("chat.postMessage", channel)
    await pacing.close("chat.postMessage", 7, "C1")
    await pacing.close("chat.postMessage", 7, "C1")
    await pacing.take("chat.postMessage", "C2")
    assert time.now == 1000.0
    await pacing.close("chat.postMessage", 7, "C2")
    await pacing.take("chat.postMessage", "C3")
    assert time.now == 1007.0


async def test_waits_and_pauses_are_measured_by_how_long_they_are() -> None:
    time, found = Time(), list[MetricEvent]()
    pacing = RateLimiter(clock=lambda: time.now, pause=time.pause, observe=found.append)
    for _ in range(POSTS_AT_ONCE + 1):
        await pacing.take("chat.postMessage", "C1")
    await pacing.close("chat.update", 7.0)
    waited, paused = found
    assert isinstance(waited, PlatformLimited)
    assert waited.seconds == pytest.approx(time.now - 1000.0)
    assert waited.seconds > 0
    assert paused == PlatformLimited("slack", 7.0)


async def test_a_reserve_is_kept_for_urgent_messages() -> None:
    pacing = make_limiter(Time())
    asked = 0
    while pacing.has_headroom("chat.update"):
        await pacing.take("chat.update")
        asked += 1
    assert 30 < asked < 40
    assert asked - 1 < pacing.remaining("chat.update") <= asked
