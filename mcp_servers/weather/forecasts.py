"""Parser of the agency's forecast file, for the days of one place.

A file holds two publications of an office: the next two or three days (weather by part of the district, chance of
rain by six hours, temperatures by station), and the week after. The agency does not document the format; this
follows its own web pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from mcp_servers.weather.areas import Place
from mcp_servers.weather.jma_json import JST, Unreadable, line, mapping, sequence

# -------------------- conditions: the agency's weather codes in English. The first digit is the prevailing weather (1
# clear, 2 cloudy, 3 rain, 4 snow), the rest its change and time. The agency's forecast pages list the codes.

_PREVAILING = {"1": "Clear", "2": "Cloudy", "3": "Rain", "4": "Snow"}

_SKY = {
    "00": "",
    "01": "cloudy at times",
    "02": "brief rain",
    "03": "rain at times",
    "04": "brief snow",
    "05": "snow at times",
    "06": "brief rain or snow",
    "07": "rain or snow at times",
    "08": "brief rain or thunderstorms",
    "10": "cloudy at times later",
    "11": "cloudy later",
    "12": "brief rain later",
    "13": "rain at times later",
    "14": "rain later",
    "15": "brief snow later",
    "16": "snow at times later",
    "17": "snow later",
    "18": "rain or snow later",
    "19": "rain or thunderstorms later",
    "20": "brief rain in the morning and evening",
    "21": "brief rain in the morning",
    "22": "brief rain in the evening",
    "24": "rain from around noon",
    "25": "rain from the evening",
    "26": "rain at night",
    "28": "snow from around noon",
    "29": "snow from the evening",
    "30": "snow at night",
    "31": "fog or drizzle at sea and on the coast",
    "40": "rain at times with thunder",
    "50": "snow at times with thunder",
    "60": "brief snow or rain",
    "70": "snow or rain at times",
    "81": "snow or rain later",
}
"""Meaning of the last two digits for a clear or cloudy sky, if it is the same for both."""

_OWN = {
    "123": "Clear, thunderstorms near mountains",
    "124": "Clear, snow near mountains",
    "125": "Clear, thunderstorms in the afternoon",
    "126": "Clear, rain from around noon",
    "127": "Clear, rain from the evening",
    "128": "Clear, rain at night",
    "130": "Fog in the morning, then clear",
    "131": "Clear, fog around dawn",
    "132": "Clear, cloudy in the morning and evening",
    "201": "Cloudy, clear at times",
    "209": "Fog",
    "210": "Cloudy, clear at times later",
    "211": "Cloudy, clear later",
    "223": "Cloudy, clear at times during the day",
    "301": "Rain, clear at times",
    "302": "Rain on and off",
    "303": "Rain, snow at times",
    "304": "Rain or snow",
    "306": "Heavy rain",
    "308": "Rain with storm winds",
    "309": "Rain, brief snow",
    "311": "Rain, clear later",
    "313": "Rain, cloudy later",
    "314": "Rain, snow at times later",
    "315": "Rain, snow later",
    "316": "Rain or snow, clear later",
    "317": "Rain or snow, cloudy later",
    "320": "Rain in the morning, then clear",
    "321": "Rain in the morning, then cloudy",
    "322": "Rain, brief snow in the morning and evening",
    "323": "Rain, clear from around noon",
    "324": "Rain, clear from the evening",
    "325": "Rain, clear at night",
    "326": "Rain, snow from the evening",
    "327": "Rain, snow at night",
    "328": "Rain, briefly heavy",
    "329": "Rain, brief sleet",
    "340": "Snow or rain",
    "350": "Rain with thunder",
    "361": "Snow or rain, clear later",
    "371": "Snow or rain, cloudy later",
    "401": "Snow, clear at times",
    "402": "Snow on and off",
    "403": "Snow, rain at times",
    "405": "Heavy snow",
    "406": "Snowstorm",
    "407": "Severe snowstorm",
    "409": "Snow, brief rain",
    "411": "Snow, clear later",
    "413": "Snow, cloudy later",
    "414": "Snow, rain later",
    "420": "Snow in the morning, then clear",
    "421": "Snow in the morning, then cloudy",
    "422": "Snow, rain from around noon",
    "423": "Snow, rain from the evening",
    "425": "Snow, briefly heavy",
    "426": "Snow, sleet later",
    "427": "Snow, brief sleet",
    "450": "Snow with thunder",
}


def in_english(code: str) -> str:
    """Return the weather of a code in English; empty for an unknown code."""
    if code in _OWN:
        return _OWN[code]
    prevailing = _PREVAILING.get(code[:1])
    if prevailing is None or len(code) != 3:
        return ""
    if code[1:] == "00":
        return prevailing
    added = _SKY.get(code[1:], "") if code[0] in "12" else ""
    return f"{prevailing}, {added}" if added else ""


_FILES_OF_NEIGHBOURS = {"014030": "014100", "460040": "460100"}
"""Offices whose forecast is in another office's file: Tokachi in Kushiro's, Amami in Kagoshima's."""


@dataclass(frozen=True, slots=True)
class DayForecast:
    """One day. `weather` is English (empty for an unknown code), `weather_ja` the agency's text. Chance of rain in
    percent, the maximum of the day's six-hour spans; temperatures in degrees Celsius. None without a forecast.
    """

    day: date
    code: str = ""
    weather: str = ""
    weather_ja: str = ""
    rain_chance: int | None = None
    temperature_min: int | None = None
    temperature_max: int | None = None


@dataclass(frozen=True, slots=True)
class PlaceForecast:
    """Forecast for one part of an office's district. `station` is the place of the thermometer."""

    area: str
    office: str
    issued_at: datetime
    station: str
    days: tuple[DayForecast, ...]


def file_code(office: str) -> str:
    """Return the code of the file with an office's forecast."""
    return _FILES_OF_NEIGHBOURS.get(office, office)


def read_forecast(value: object, place: Place) -> PlaceForecast:
    """Parse the forecast of a place. Raises Unreadable."""
    publications = [_Publication(publication) for publication in sequence(value)[:2]]
    if not publications:
        raise Unreadable("the weather service sent a forecast file without a forecast")
    soon = publications[0]
    wanted = place.local_code or (place.code if file_code(place.code) != place.code else "")
    index, area = soon.area("weatherCodes", wanted)
    station_index, station = soon.station(_station_hints(place), index)
    days: dict[date, DayForecast] = {}
    if len(publications) > 1:
        _add_week(days, publications[1], _code(area), index, _code(station))
    _add_soon(days, soon, index, station_index)
    if not days:
        raise Unreadable("the weather service sent a forecast file without a single day in it")
    return PlaceForecast(
        _name(area), soon.office, soon.issued_at, _name(station), tuple(days[day] for day in sorted(days))
    )


class _Publication:
    """One publication. Series are identified by their keys, because their order is undocumented."""

    def __init__(self, value: object) -> None:
        data = mapping(value)
        moment = _moment(data.get("reportDatetime"))
        if moment is None:
            raise Unreadable("the weather service sent a forecast file without a date of issue")
        self.issued_at = moment
        self.office = line(data.get("publishingOffice"))
        self._series = [mapping(series) for series in sequence(data.get("timeSeries"))[:5]]

    def series(self, key: str) -> tuple[Sequence[datetime | None], Sequence[Mapping[str, Any]]]:
        """Return the times and the areas of the series that has `key`."""
        for entry in self._series:
            areas = [mapping(area) for area in sequence(entry.get("areas"))[:100]]
            if areas and key in areas[0]:
                return [_moment(time) for time in sequence(entry.get("timeDefines"))[:50]], areas
        return (), ()

    def area(self, key: str, code: str) -> tuple[int, Mapping[str, Any]]:
        """Return the area with this code and its index, or the first, which is the district's main part."""
        _, areas = self.series(key)
        if not areas:
            raise Unreadable("the weather service sent a forecast file without weather in it")
        index = next((number for number, area in enumerate(areas) if code and _code(area) == code), 0)
        return index, areas[index]

    def station(self, hints: Sequence[str], area_index: int) -> tuple[int | None, Mapping[str, Any]]:
        """Return the station of a place: by name, or by position if the place is the main part or each part has one
        station. Otherwise None, because a wrong temperature is worse than none.
        """
        _, stations = self.series("temps")
        for number, station in enumerate(stations):
            if _name(station) and any(hint.startswith(_name(station)) for hint in hints):
                return number, station
        _, areas = self.series("weatherCodes")
        if stations and (area_index == 0 or len(stations) == len(areas)):
            return area_index, stations[area_index]
        return None, {}

    def values(self, key: str, index: int | None) -> Iterator[tuple[datetime, str]]:
        """Yield the values of an area with their times; nothing for a missing area."""
        times, areas = self.series(key)
        if index is None or index >= len(areas):
            return
        for time, value in zip(times, sequence(areas[index].get(key)), strict=False):
            if time is not None and isinstance(value, str) and value:
                yield time, value

    def position(self, key: str, code: str) -> int | None:
        """Return the index of the area with this code."""
        _, areas = self.series(key)
        return next((n for n, area in enumerate(areas) if code and _code(area) == code), None)

    def size(self, key: str) -> int:
        """Return the number of areas of a series."""
        return len(self.series(key)[1])


def _add_soon(days: dict[date, DayForecast], soon: _Publication, index: int, station: int | None) -> None:
    for time, code in soon.values("weatherCodes", index):
        _set(days, time, code=line(code, 3), weather=in_english(code))
    for time, text in soon.values("weathers", index):
        _set(days, time, weather_ja=line(text, 120))
    chances: dict[date, int] = {}
    for time, value in soon.values("pops", index):
        chance = _number(value)
        if chance is not None:
            chances[time.date()] = max(chance, chances.get(time.date(), 0))
    for day, chance in chances.items():
        days[day] = replace(days.get(day, DayForecast(day)), rain_chance=chance)
    for time, value in soon.values("temps", station):
        if time.hour != 0:
            _set(days, time, temperature_max=_number(value))
        elif time.date() != soon.issued_at.date():
            # The file repeats the maximum for the night of the issue day, and the agency shows a dash.
            _set(days, time, temperature_min=_number(value))


def _add_week(days: dict[date, DayForecast], week: _Publication, code: str, index: int, station: str) -> None:
    # Weekly forecasts are for larger parts. Only the same part, the main one or the only one certainly contains the
    # place.
    part = week.position("weatherCodes", code)
    if part is None and (index == 0 or week.size("weatherCodes") == 1):
        part = 0
    for time, weather in week.values("weatherCodes", part):
        _set(days, time, code=line(weather, 3), weather=in_english(weather))
    for time, value in week.values("pops", part):
        _set(days, time, rain_chance=_number(value))
    measured = week.position("tempsMin", station)
    if measured is None and week.size("tempsMin") == week.size("weatherCodes"):
        measured = part
    for time, value in week.values("tempsMin", measured):
        _set(days, time, temperature_min=_number(value))
    for time, value in week.values("tempsMax", measured):
        _set(days, time, temperature_max=_number(value))


def _set(days: dict[date, DayForecast], time: datetime, **fields: Any) -> None:
    day = time.date()
    days[day] = replace(days.get(day, DayForecast(day)), **fields)


def _station_hints(place: Place) -> tuple[str, ...]:
    """Return possible beginnings of the station's name: the requested city, and the office's location if it shares
    a file.
    """
    own_file = file_code(place.code) == place.code
    return tuple(name for name in (place.spoken, "" if own_file else place.station) if name)


def _code(area: Mapping[str, Any]) -> str:
    return line(mapping(area.get("area")).get("code"), 10)


def _name(area: Mapping[str, Any]) -> str:
    return line(mapping(area.get("area")).get("name"))


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.astimezone(JST) if moment is not None and moment.tzinfo is not None else None


def _number(text: str) -> int | None:
    try:
        return int(text) if len(text) <= 4 else None
    except ValueError:
        return None
