"""Bundled sample in the format and paths of the agency's files.

The table of areas is real. Forecasts and overviews are invented, moved to begin today, and reused for areas without
their own. Callers must label them as sample data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime
from functools import cache
from pathlib import Path

from mcp_servers.weather.areas import AreaTable
from mcp_servers.weather.jma_json import JST, Unreadable, mapping, sequence

AREA_PATH = "/bosai/common/const/area.json"
FORECAST_PATH = "/bosai/forecast/data/forecast/{code}.json"
OVERVIEW_PATH = "/bosai/forecast/data/overview_forecast/{code}.json"

_FOLDER = Path(__file__).parent / "data"
_FIRST_DAY = date(2026, 1, 5)
_DATE = re.compile(r"\b2026-01-\d\d(?=T)")
_TEMPLATES = {"01": "016000", "02": "130000", "20": "230000", "25": "270000", "40": "400000"}
"""First two digits of a range of office codes, north to south, and the sample for that range."""


def today_in_japan() -> date:
    """Return the date in Japan."""
    return datetime.now(JST).date()


class Sample:
    """Sample files as of `today`, the date in Japan."""

    def __init__(self, today: Callable[[], date] = today_in_japan) -> None:
        self._today = today

    def read(self, path: str) -> object:
        """Return the JSON value at one of the three paths. Raises Unreadable for another path."""
        if path == AREA_PATH:
            return _load_sample("area.json")
        match = re.fullmatch(r"/bosai/forecast/data/(forecast|overview)(?:_forecast)?/(\d{6})\.json", path)
        if match is None:
            raise Unreadable(f"the sample has nothing at {path}")
        kind, code = match[1], match[2]
        template = code if (_FOLDER / f"{kind}_{code}.json").exists() else _nearest(code)
        value: object = json.loads(self._shift_dates(_text(f"{kind}_{template}.json")))
        return value if template == code else _for_office(value, code)

    def _shift_dates(self, text: str) -> str:
        shift = self._today() - _FIRST_DAY
        return _DATE.sub(lambda found: (date.fromisoformat(found[0]) + shift).isoformat(), text)


@cache
def bundled_areas() -> AreaTable:
    """Return the bundled table of areas."""
    return AreaTable.read(_load_sample("area.json"))


def _nearest(code: str) -> str:
    return next(template for start, template in reversed(_TEMPLATES.items()) if code[:2] >= start or start == "01")


def _for_office(value: object, code: str) -> object:
    """Return a forecast or an overview for another office, reduced to one part and one station."""
    office = mapping(mapping(mapping(_load_sample("area.json")).get("offices")).get(code))
    name, publisher = office.get("name", code), office.get("officeName", "")
    if isinstance(value, dict):
        first, _, rest = str(value["text"]).partition("\n")
        # The sentences name places of another district; keep the first one, which says "sample".
        sentences = [
            sentence
            for sentence in rest.split("\n")
            if sentence.startswith("　") and mapping(value)["targetArea"] not in sentence
        ]
        text = "\n\n".join((first, *(sentence for sentence in sentences if "地方は" not in sentence)))
        return {**value, "publishingOffice": publisher, "targetArea": name, "text": text}
    return [
        {
            **publication,
            "publishingOffice": publisher,
            "timeSeries": [
                {**series, "areas": [{**series["areas"][0], "area": {"name": name, "code": code}}]}
                for series in publication["timeSeries"]
            ],
        }
        for publication in map(mapping, sequence(value))
    ]


@cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _load_sample(name: str) -> object:
    value: object = json.loads(_text(name))
    return value
