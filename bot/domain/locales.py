"""Languages and time zones of people and of places.

A language is a BCP 47 tag as the platform says it: `ja`, `en-US`. A time zone is an IANA name: `Asia/Tokyo`. The
package `tzdata` has the zones where the system has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from bot.i18n import use_language, use_time_zone

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
_NOT_A_LANGUAGE = ("c", "posix")
"""Locales of a process that speaks no language."""
_LOCAL_TIME = Path("/etc/localtime")
_SHORTEST_CITY = 3
_NAMES_OF_UTC = frozenset({"utc", "etc/utc", "uct", "etc/uct", "zulu", "etc/zulu", "universal", "etc/universal"})


@dataclass(frozen=True, slots=True)
class Locale:
    """Language and time zone of a user or a place, each empty if it is unknown."""

    language: str = ""
    time_zone: str = ""

    def or_else(self, other: Locale) -> Locale:
        """Return the locale, completed by another one."""
        return Locale(self.language or other.language, self.time_zone or other.time_zone)


UNKNOWN = Locale()


@dataclass(frozen=True, slots=True)
class UserLocale:
    """The stored locale of a user: the choice, which wins, and the language that the user's client has told, on
    platforms that do not know it by themselves.
    """

    chosen: Locale = UNKNOWN
    told_language: str = ""


@contextmanager
def use_locale(locale: Locale) -> Iterator[None]:
    """Speak the language and show times in the zone inside the block. What is unknown stays as it is outside."""
    zone = zone_info(locale.time_zone) if locale.time_zone else None
    with use_language(locale.language or None), use_time_zone(zone):
        yield


def language_tag(text: object) -> str | None:
    """Return the tag of a platform's or a system's locale: `ja-JP` for `ja_JP.UTF-8`. None for other text."""
    name = re.split(r"[.@]", text.strip())[0] if isinstance(text, str) else ""
    if not _LANGUAGE.fullmatch(name) or name.lower() in _NOT_A_LANGUAGE:
        return None
    return name.replace("_", "-")


def time_zone_name(text: object) -> str | None:
    """Return the name of a time zone in its own letter case, None if there is no such zone."""
    wanted = text.strip().lower() if isinstance(text, str) else ""
    if wanted in _NAMES_OF_UTC:
        return "UTC"
    return _zones_by_lower_case().get(wanted) if wanted else None


def close_time_zones(text: str) -> tuple[str, ...]:
    """Return up to three names like this one, or with this city."""
    zones = _zones_by_lower_case()
    wanted = text.strip().lower().replace(" ", "_")
    if len(wanted) < _SHORTEST_CITY:
        return ()
    cities = {zone.rpartition("/")[2]: zone for zone in zones if "/" in zone and not zone.startswith("etc/")}
    close = sorted(zone for city, zone in cities.items() if f"_{city}".find(f"_{wanted}") >= 0)
    close = close or get_close_matches(wanted, cities.values(), n=3, cutoff=0.8)
    close = close or [cities[city] for city in get_close_matches(wanted.rpartition("/")[2], cities, n=3, cutoff=0.7)]
    return tuple(zones[zone] for zone in close[:3])


def system_locale(environment: Mapping[str, str]) -> Locale:
    """Return the locale of this machine's user, by LC_ALL, LC_MESSAGES or LANG, and TZ or the machine's time zone."""
    values = (environment.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    value = next(filter(None, values), "")
    return Locale(language_tag(value) or "", machine_time_zone(environment))


def machine_time_zone(environment: Mapping[str, str] = os.environ) -> str:
    """Return the time zone of this machine: TZ, else the one that is set up; `UTC` if it has no name."""
    return zone_of_variable(environment.get("TZ", "")) or zone_of_variable(str(_LOCAL_TIME)) or "UTC"


def zone_of_variable(value: str) -> str | None:
    """Return the time zone of a value of TZ: a name or the path of a file, perhaps behind a colon. None for others."""
    path = name = value.strip().removeprefix(":")
    if path.startswith("/"):
        _, is_zone, name = os.path.realpath(path).rpartition("/zoneinfo/")
        name = name if is_zone else ""
    # A copy of a zone has no name.
    return time_zone_name(name.removeprefix("posix/")) or ("UTC" if path == str(_LOCAL_TIME) else None)


def zone_info(name: str) -> ZoneInfo:
    """Return a time zone; UTC for an empty or unknown name, because the data of zones may differ between machines."""
    return ZoneInfo(time_zone_name(name) or "UTC")


def time_zone_names() -> Iterable[str]:
    """Return the names of all time zones."""
    return sorted(_zones_by_lower_case().values())


@cache
def _zones_by_lower_case() -> Mapping[str, str]:
    # Zones that only repeat others for old programs would be odd suggestions, but are accepted.
    return {zone.lower(): zone for zone in available_timezones() if not zone.startswith(("posix/", "right/"))}
