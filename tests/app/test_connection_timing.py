"""Connection timing as set by the environment."""

from __future__ import annotations

import pytest

from bot.app.runtime import connection_timing
from bot.errors import SettingsError
from bot.mcp.server.retry import ConnectionTiming
from bot.settings import read_settings


def test_without_a_word_from_the_operator_the_times_are_the_products_own() -> None:
    assert connection_timing(read_settings()) == ConnectionTiming()


def test_every_time_can_be_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SESSION_IDLE_TIMEOUT", "10m")
    monkeypatch.setenv("MCP_HEALTHCHECK_INTERVAL", "5m")
    monkeypatch.setenv("MCP_RECONNECTION_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("MCP_RECONNECTION_INITIAL_DELAY_MS", "1500")
    monkeypatch.setenv("MCP_RECONNECTION_MULTIPLIER", "3")
    monkeypatch.setenv("MCP_RECONNECTION_MAX_DELAY_MS", "4000")
    pacing = connection_timing(read_settings())
    assert (pacing.idle_after, pacing.quiet_after, pacing.retries.tries) == (600, 300, 2)
    assert [pacing.retries.pause(failures, 0.5) for failures in (1, 2)] == [1.5, 4.0]


@pytest.mark.parametrize("never", ["never", "0", "0s"])
def test_a_server_may_be_kept_for_ever_and_never_be_asked_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch, never: str
) -> None:
    monkeypatch.setenv("MCP_SESSION_IDLE_TIMEOUT", never)
    monkeypatch.setenv("MCP_HEALTHCHECK_INTERVAL", never)
    pacing = connection_timing(read_settings())
    assert (pacing.idle_after, pacing.quiet_after) == (None, None)


def test_without_reconnecting_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_RECONNECTION_ENABLED", "false")
    assert connection_timing(read_settings()) == ConnectionTiming().without_reconnecting()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MCP_RECONNECTION_MAX_ATTEMPTS", "-1"),
        ("MCP_RECONNECTION_INITIAL_DELAY_MS", "0"),
        ("MCP_RECONNECTION_MULTIPLIER", "0.5"),
        ("MCP_SESSION_IDLE_TIMEOUT", "soon"),
    ],
)
def test_a_time_that_makes_no_sense_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name):
        read_settings()
