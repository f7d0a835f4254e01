"""The words that commands have in common."""

from __future__ import annotations

import pytest

from bot.commands.text_format import format_ago, format_expiry

NOW = 1_800_000_000.0
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "just now"),
        (59, "just now"),
        (MINUTE, "1 min ago"),
        (HOUR - 1, "59 min ago"),
        (HOUR, "1 h ago"),
        (47 * HOUR, "47 h ago"),
        (48 * HOUR, "2 days ago"),
        (29 * DAY, "29 days ago"),
        (31 * DAY, "on 15 Dec 2026"),
    ],
)
def test_how_long_ago_is_said_in_the_unit_that_people_count_in(seconds: float, said: str) -> None:
    assert format_ago(NOW - seconds, NOW) == said


@pytest.mark.parametrize("never", [None, 0.0])
def test_what_has_not_been_is_never(never: float | None) -> None:
    assert format_ago(never, NOW) == "never"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "in 0 s"),
        (119, "in 119 s"),
        (120, "in 2 min"),
        (119 * MINUTE, "in 119 min"),
        (120 * MINUTE, "in 2 h"),
        (47 * HOUR, "in 47 h"),
        (48 * HOUR, "in 2 days"),
    ],
)
def test_how_long_it_lasts_is_said_in_the_unit_that_leaves_at_least_two(seconds: float, said: str) -> None:
    assert format_expiry(NOW + seconds, NOW) == said
