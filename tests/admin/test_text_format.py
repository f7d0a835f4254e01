"""Formats of text that commands share."""

from __future__ import annotations

from datetime import datetime

import pytest

from bot.admin.text_format import format_ago, format_expiry, format_moment, parse_end, parse_time
from bot.i18n import use_language, use_time_zone

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
def test_a_time_that_has_not_been_is_never(never: float | None) -> None:
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


BERLIN, TOKYO, CAIRO = "Europe/Berlin", "Asia/Tokyo", "Africa/Cairo"


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("UTC", "2026-08-31T14:30", "2026-08-31T14:30+00:00"),
        (TOKYO, "2026-08-31T14:30", "2026-08-31T05:30+00:00"),
        (TOKYO, "2026-08-31", "2026-08-30T15:00+00:00"),
        (TOKYO, "2026-08-31T14:30Z", "2026-08-31T14:30+00:00"),
        (BERLIN, "2026-03-29", "2026-03-28T23:00+00:00"),
        (BERLIN, "2026-03-29T02:30", "2026-03-29T01:30+00:00"),
        (BERLIN, "2026-03-29T03:00", "2026-03-29T01:00+00:00"),
        (BERLIN, "2026-10-25T02:30", "2026-10-25T00:30+00:00"),
        (BERLIN, "2026-10-25T03:00", "2026-10-25T02:00+00:00"),
        (CAIRO, "2026-04-24", "2026-04-23T22:00+00:00"),
    ],
    ids=str,
)
def test_a_time_is_read_in_the_time_zone_of_the_user_also_when_clocks_change(zone: str, text: str, moment: str) -> None:
    with use_time_zone(zone):
        assert parse_time(text, 0) == datetime.fromisoformat(moment).timestamp()


def test_a_time_ago_does_not_depend_on_the_time_zone() -> None:
    with use_time_zone(BERLIN):
        now = datetime.fromisoformat("2026-03-29T12:00+02:00").timestamp()
        assert parse_time("1d", now) == now - 86_400


def test_a_time_that_is_shown_can_be_typed() -> None:
    for zone in ("UTC", TOKYO, BERLIN, "America/St_Johns"):
        with use_time_zone(zone):
            assert parse_time(format_moment(1_800_000_000.0), 0) == 1_800_000_000.0
    with use_time_zone(TOKYO):
        assert format_moment(1_800_000_000.0) == "2027-01-15 17:00:00"


@pytest.mark.parametrize("zone", ["America/Los_Angeles", TOKYO])
def test_years_that_cannot_be_written_are_refused_in_every_zone(zone: str) -> None:
    with use_time_zone(zone), pytest.raises(ValueError, match="year"):
        parse_time("0001-01-01T00:00Z" if zone != TOKYO else "0001-01-01", 0)


@pytest.mark.parametrize(
    ("language", "text", "end"),
    [
        ("en", "for 3 days", "2026-12-04T17:00+09:00"),
        ("en", "12h", "2026-12-02T05:00+09:00"),
        ("en", "until Friday", "2026-12-05T00:00+09:00"),
        ("en", "until Tue", "2026-12-02T00:00+09:00"),
        ("en", "until monday", "2026-12-08T00:00+09:00"),
        ("en", "tomorrow", "2026-12-03T00:00+09:00"),
        ("en", "until 2026-12-04", "2026-12-05T00:00+09:00"),
        ("en", "until 2026-12-04T18:30", "2026-12-04T18:30+09:00"),
        ("ja", "金曜日まで", "2026-12-05T00:00+09:00"),
        ("ja", "明日まで", "2026-12-03T00:00+09:00"),
    ],
)
def test_an_end_in_words_is_that_of_the_users_day(language: str, text: str, end: str) -> None:
    now = datetime.fromisoformat("2026-12-01T17:00+09:00").timestamp()  # a Tuesday
    with use_time_zone(TOKYO), use_language(language):
        assert parse_end(text, now) == datetime.fromisoformat(end).timestamp()
