"""The server's three queries: areas, forecast and overview. Errors are `Unanswered`, with a text for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from mcp_servers.weather.answers import Area, Areas, Day, Forecast, Overview
from mcp_servers.weather.areas import CANDIDATES, AmbiguousArea, AreaTable, Place, UnknownArea
from mcp_servers.weather.forecasts import DayForecast, file_code, read_forecast
from mcp_servers.weather.jma_json import JST, Unreadable, line, mapping, paragraphs
from mcp_servers.weather.sample_data import AREA_PATH, FORECAST_PATH, OVERVIEW_PATH, bundled_areas, today_in_japan
from mcp_servers.weather.service import ServiceProblem
from mcp_servers.weather.source import Question, Source

LONGEST_TEXT = 4000
"""Maximum number of characters. The longest overviews, before a typhoon, have about half of that."""


@dataclass(frozen=True, slots=True)
class PlaceOverview:
    """Overview of an office's district; `headline` is empty without a warning."""

    area: str
    office: str
    issued_at: datetime
    headline: str
    text: str


def read_overview(value: object) -> PlaceOverview:
    """Parse an overview file. Raises Unreadable."""
    data = mapping(value)
    text = paragraphs(data.get("text"), LONGEST_TEXT)
    try:
        issued_at = datetime.fromisoformat(line(data.get("reportDatetime"))).astimezone(JST)
    except ValueError:
        raise Unreadable("the weather service sent an overview without a date of issue") from None
    if not text:
        raise Unreadable("the weather service sent an overview without a text")
    return PlaceOverview(
        line(data.get("targetArea")),
        line(data.get("publishingOffice")),
        issued_at,
        paragraphs(data.get("headlineText"), 500),
        text,
    )


MOST_AREAS = 10


class Unanswered(Exception):
    """There is no answer. The message has the reason and a remedy."""


async def find_area(source: Source, text: str) -> Areas:
    """Find areas by code or name. Raises Unanswered."""
    try:
        table = await source.question().read((AREA_PATH,), AreaTable.read)
    except ServiceProblem as problem:
        raise _no_data(problem) from problem
    places = table.value.find(text, MOST_AREAS) or bundled_areas().find(text, MOST_AREAS)
    if not places:
        raise _unknown(text, table.sample_reason)
    reason = table.sample_reason or None
    return Areas(areas=[_area(place) for place in places], sample=reason is not None, sample_reason=reason)


async def forecast(source: Source, area: str, days: int) -> Forecast:
    """Return the next `days` days of an area. Raises Unanswered."""
    question = source.question()
    try:
        place = await _place(question, area)
        path = FORECAST_PATH.format(code=file_code(place.code))
        reading = await question.read((path,), lambda value: read_forecast(value, place))
    except ServiceProblem as problem:
        raise _no_data(problem) from problem
    published, reason = reading.value, reading.sample_reason or None
    return Forecast(
        area=place.label,
        code=place.code,
        part=published.area,
        station=published.station or None,
        office=published.office,
        issued_at=published.issued_at,
        days=[_day(day) for day in _from_today(published.days)[:days]],
        sample=reason is not None,
        sample_reason=reason,
    )


async def overview(source: Source, area: str) -> Overview:
    """Return the forecaster's overview of an area. Raises Unanswered."""
    question = source.question()
    try:
        place = await _place(question, area)
        # Offices that share a forecast file may have an overview of their own; the shared one is next best.
        codes = dict.fromkeys((place.code, file_code(place.code)))
        reading = await question.read([OVERVIEW_PATH.format(code=code) for code in codes], read_overview)
    except ServiceProblem as problem:
        raise _no_data(problem) from problem
    published, reason = reading.value, reading.sample_reason or None
    return Overview(
        area=place.label,
        code=place.code,
        office=published.office,
        issued_at=published.issued_at,
        headline=published.headline or None,
        text=published.text,
        sample=reason is not None,
        sample_reason=reason,
    )


async def _place(question: Question, text: str) -> Place:
    """Resolve a place by the bundled table if it has this exact name or code, which saves a request, else by the
    service's table, which has every municipality.
    """
    known = bundled_areas().exactly(text)
    if known is not None:
        return known
    table = await question.read((AREA_PATH,), AreaTable.read)
    try:
        try:
            return table.value.resolve(text)
        except UnknownArea:
            return bundled_areas().resolve(text)
    except UnknownArea:
        raise _unknown(text, table.sample_reason) from None
    except AmbiguousArea as several:
        raise Unanswered(_ambiguous(text, several.candidates)) from None


def _from_today(days: Sequence[DayForecast]) -> Sequence[DayForecast]:
    """Return the days without past ones, which a file of last night begins with. If all are past, return all."""
    today: date = today_in_japan()
    return [day for day in days if day.day >= today] or days


def _area(place: Place) -> Area:
    return Area(
        code=place.code,
        name=place.name,
        english_name=place.english_name,
        found=place.label if place.local_code else None,
        local_code=place.local_code or None,
    )


def _day(day: DayForecast) -> Day:
    return Day(
        day=day.day,
        weather=day.weather or None,
        weather_ja=day.weather_ja or None,
        rain_chance_percent=day.rain_chance,
        temperature_min_c=day.temperature_min,
        temperature_max_c=day.temperature_max,
    )


def _ambiguous(text: str, candidates: Sequence[Place]) -> str:
    names = "; ".join(f"{place.local_code or place.code} {_full_name(place)}" for place in candidates[:CANDIDATES])
    more = f"; and {len(candidates) - CANDIDATES} more" if len(candidates) > CANDIDATES else ""
    return f"{line(text)!r} could be several areas: {names}{more}. Ask again with one of these codes."


def _full_name(place: Place) -> str:
    return f"{place.label} in {place.english_name}" if place.spoken else place.label


def _unknown(text: str, sample_reason: str) -> Unanswered:
    if not text.strip():
        return Unanswered("No area was given. Give a place in Japan such as Tokyo or 大阪, or an area code.")
    limits = f" Only the bundled table was searched, because {sample_reason}." if sample_reason else ""
    return Unanswered(
        f"No area in Japan matches {line(text)!r}.{limits} "
        "Places elsewhere are not known. In Japan, try the prefecture, a larger city nearby, or the name in Japanese."
    )


def _no_data(problem: ServiceProblem) -> Unanswered:
    return Unanswered(
        f"There is no data, because {problem}. Try again later; "
        "with WEATHER_SAMPLE=auto this server gives labelled sample data instead."
    )
