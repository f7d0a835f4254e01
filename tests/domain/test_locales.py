"""Languages and time zones of users and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain import locales
from bot.domain.locales import (
    UNKNOWN,
    Locale,
    close_time_zones,
    language_tag,
    machine_time_zone,
    system_locale,
    time_zone_name,
    zone_info,
)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("ja", "ja"),
        ("ja-JP", "ja-JP"),
        ("ja_JP.UTF-8", "ja-JP"),
        ("de_AT@euro", "de-AT"),
        ("zh-Hant-TW", "zh-Hant-TW"),
        ("C", None),
        ("C.UTF-8", None),
        ("POSIX", None),
        ("", None),
        ("*", None),
        ("日本語", None),
        (None, None),
        (7, None),
    ],
)
def test_languages_are_tags_however_a_system_writes_them(text: object, tag: str | None) -> None:
    assert language_tag(text) == tag


def test_time_zones_are_known_in_any_letter_case() -> None:
    assert time_zone_name("asia/tokyo") == "Asia/Tokyo"
    assert time_zone_name(" UTC ") == "UTC"
    assert [time_zone_name(text) for text in ("Asia/Tokio", "", "../../etc/passwd", None, 9)] == [None] * 5


def test_a_wrong_time_zone_leads_to_close_ones() -> None:
    assert close_time_zones("new york") == ("America/New_York",)
    assert "Asia/Tokyo" in close_time_zones("Asia/Tokio")
    assert "Asia/Tokyo" in close_time_zones("Tokio")
    assert close_time_zones("§") == ()


def test_an_unknown_zone_is_utc() -> None:
    assert zone_info("Asia/Tokyo").key == "Asia/Tokyo"
    assert zone_info("").key == zone_info("Mars/Base").key == "UTC"


def test_a_terminal_has_the_language_and_the_zone_of_its_environment() -> None:
    given = {"LANG": "de_DE.UTF-8", "LC_MESSAGES": "ja_JP.UTF-8", "TZ": "Asia/Tokyo"}
    assert system_locale(given) == Locale("ja-JP", "Asia/Tokyo")
    assert system_locale({**given, "LC_ALL": "en_GB.UTF-8"}) == Locale("en-GB", "Asia/Tokyo")
    assert system_locale({"LANG": "C.UTF-8", "TZ": ":Europe/Berlin"}) == Locale("", "Europe/Berlin")


def test_the_zone_of_a_machine_is_that_of_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = tmp_path / "zoneinfo" / "Asia" / "Tokyo"
    zone.parent.mkdir(parents=True)
    zone.write_bytes(b"")
    clock = tmp_path / "localtime"
    clock.symlink_to(zone)
    monkeypatch.setattr(locales, "_LOCAL_TIME", clock)
    assert machine_time_zone({}) == "Asia/Tokyo"
    assert machine_time_zone({"TZ": "Nowhere/Land"}) == "Asia/Tokyo"
    monkeypatch.setattr(locales, "_LOCAL_TIME", tmp_path / "missing")
    assert machine_time_zone({}) == "UTC"


def test_a_locale_is_completed_by_another_one() -> None:
    assert Locale("ja").or_else(Locale("en", "UTC")) == Locale("ja", "UTC")
    assert UNKNOWN.or_else(Locale("en", "UTC")) == Locale("en", "UTC")
