"""The agency's table of areas, and the lookup of places in it.

The table has levels: regions (`centers`), forecast offices (`offices`, one or a few to a prefecture), their parts
(`class10s`), and municipalities (`class20s`, reached through `class15s`). Forecasts are published by office.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcp_servers.weather.jma_json import Unreadable, line, mapping

CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Forecast office, and optionally a part of its district.

    `local_code` is the code of the part. `spoken` and `english_spoken` are the names of the match (a city or the
    part itself). `station` is the office's location, which names the thermometer of offices without a file of their
    own.
    """

    code: str
    name: str
    english_name: str
    local_code: str = ""
    spoken: str = ""
    english_spoken: str = ""
    station: str = ""

    @property
    def label(self) -> str:
        """Label for a sentence: the English name and the Japanese one."""
        english, japanese = self.english_spoken or self.english_name, self.spoken or self.name
        return f"{english} ({japanese})" if english and japanese else english or japanese or self.code


class UnknownArea(Exception):
    """No area has this code or name."""


class AmbiguousArea(Exception):
    """Several areas match."""

    def __init__(self, candidates: Sequence[Place]) -> None:
        super().__init__("several areas could be meant")
        self.candidates = tuple(candidates)


@dataclass(frozen=True, slots=True)
class _Area:
    level: str
    code: str
    name: str
    english_name: str
    parent: str
    station: str

    @property
    def keys(self) -> tuple[str, str]:
        return spelling(self.name), spelling(self.english_name)


_LEVELS = ("centers", "offices", "class10s", "class15s", "class20s")
_LOCAL = ("class10s", "class20s")


class AreaTable:
    """Contents of one area file."""

    def __init__(self, areas: Sequence[_Area]) -> None:
        self._areas = {level: {area.code: area for area in areas if area.level == level} for level in _LEVELS}

    @classmethod
    def read(cls, value: object) -> AreaTable:
        """Parse a file of the agency. Raises Unreadable if it has no office."""
        areas = [
            _Area(
                level,
                str(code)[:10],
                line(row.get("name")),
                line(row.get("enName")),
                line(row.get("parent")),
                line(row.get("officeName")),
            )
            for level in _LEVELS
            for code, row in mapping(mapping(value).get(level)).items()
            if isinstance(row, dict)
        ]
        if not any(area.level == "offices" for area in areas):
            raise Unreadable("the weather service's table of areas has no offices in it")
        return cls(areas)

    def find(self, text: str, limit: int) -> list[Place]:
        """Return the areas that match a code or a part of a name, best matches first, one for each office or part."""
        found: dict[tuple[str, str], Place] = {}
        for group in self._match_groups(text):
            for place in group:
                if (place.code, "") not in found:
                    found.setdefault((place.code, place.local_code), place)
        return list(found.values())[:limit]

    def resolve(self, text: str) -> Place:
        """Return the one area that matches. Raises UnknownArea and AmbiguousArea."""
        for group in self._match_groups(text):
            if len({place.code for place in group}) > 1:
                raise AmbiguousArea(list({place.code: place for place in group}.values()))
            if group:
                return group[0]
        raise UnknownArea(text)

    def exactly(self, text: str) -> Place | None:
        """Return the area with exactly this code or name, if there is exactly one."""
        for group in self._exact(text.strip(), spelling(text)):
            if group:
                return group[0] if len({place.code for place in group}) == 1 else None
        return None

    def _match_groups(self, text: str) -> Iterator[list[Place]]:
        """Yield ever wider groups of matches. The caller stops at the first that is not empty."""
        wanted = spelling(text)
        if not wanted:
            return
        yield from self._exact(text.strip(), wanted)
        for fits in (_has_words, _contains):
            for levels in (("offices",), _LOCAL):
                yield self._matching(levels, _matches_key(wanted, fits))
        named = _matches_key(wanted, _has_words)
        regions = {area.code for area in self._areas["centers"].values() if named(area)}
        yield self._matching(("offices",), lambda area: area.parent in regions)

    def _exact(self, code: str, wanted: str) -> Iterator[list[Place]]:
        for level in ("offices", *_LOCAL):
            yield self._matching((level,), lambda area: area.code == code)
        for levels in (("offices",), _LOCAL):
            yield self._matching(levels, lambda area: bool(wanted) and wanted in area.keys)

    def _matching(self, levels: Sequence[str], wanted: Callable[[_Area], bool]) -> list[Place]:
        areas = (area for level in levels for area in self._areas[level].values() if wanted(area))
        return [place for place in map(self._place, areas) if place is not None]

    def _place(self, area: _Area) -> Place | None:
        if area.level == "offices":
            return Place(area.code, area.name, area.english_name, station=area.station)
        local, office = self._part_and_office(area)
        if office is None:
            return None
        return Place(
            office.code, office.name, office.english_name, local, area.name, area.english_name, station=office.station
        )

    def _part_and_office(self, area: _Area) -> tuple[str, _Area | None]:
        """Return the part of a district that contains an area, and the office. Codes repeat between levels, so only
        parents are searched.
        """
        while area.level != "class10s":
            above = _LEVELS[2 : _LEVELS.index(area.level)]
            parent = next(
                (self._areas[level][area.parent] for level in above if area.parent in self._areas[level]), None
            )
            if parent is None:
                return "", None
            area = parent
        return area.code, self._areas["offices"].get(area.parent)


_GENERIC = {"japan", "prefecture", "pref", "city", "town", "village", "ward", "region", "district", "area"}
_JAPANESE_ENDINGS = re.compile(r"(?<=東京)都$|(?<=..)(?:府|県|地方|町|村|区)$|(?<=.)市$")


def spelling(text: str) -> str:
    """Normalize a name for comparison: no case, no accents, no "City" or 県, nothing after a comma."""
    plain = unicodedata.normalize("NFKD", text.replace("、", ",").split(",")[0])
    plain = unicodedata.normalize("NFC", re.sub(r"[\u0300-\u036f]", "", plain)).casefold()
    words = [word for word in re.split(r"[^\w]+", plain) if word]
    while len(words) > 1 and words[-1] in _GENERIC:
        words.pop()
    return _JAPANESE_ENDINGS.sub("", " ".join(words))


def _matches_key(wanted: str, fits: Callable[[str, str], bool]) -> Callable[[_Area], bool]:
    return lambda area: any(fits(key, wanted) for key in area.keys)


def _has_words(name: str, wanted: str) -> bool:
    return f" {wanted} " in f" {name} "


def _contains(name: str, wanted: str) -> bool:
    return wanted in name
