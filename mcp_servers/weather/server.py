"""The weather server: three read-only tools over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from mcp_servers.weather import area_queries
from mcp_servers.weather.answers import Area, Areas, Day, Forecast, Overview
from mcp_servers.weather.sample_data import Sample
from mcp_servers.weather.service import Service
from mcp_servers.weather.settings import InvalidSetting, Settings, read_settings
from mcp_servers.weather.source import Source

# -------------------- messages


def areas_text(answer: Areas) -> str:
    """Return one line for each area, its code first."""
    lines = [_area_line(area) for area in answer.areas]
    if answer.sample:
        lines.append(f"(From the bundled table of areas, because {answer.sample_reason}.)")
    return "\n".join(lines)


def forecast_text(answer: Forecast) -> str:
    """Return area and publisher, then one line for each day. A note about sample data comes first."""
    return "\n".join((_heading(answer), *map(_day_line, answer.days)))


def overview_text(answer: Overview) -> str:
    """Return area and publisher, the headline if there is one, and the text."""
    return "\n".join(filter(None, (_heading(answer), answer.headline, answer.text)))


def _heading(answer: Forecast | Overview) -> str:
    if answer.sample:
        return f"SAMPLE DATA, not a real forecast, because {answer.sample_reason}.\n{answer.area}:"
    return f"{answer.area}, issued {answer.issued_at:%Y-%m-%d %H:%M} JST by {answer.office}:"


def _area_line(area: Area) -> str:
    line = f"{area.code} {area.english_name} ({area.name})"
    return f"{line}, for {area.found} (part {area.local_code})" if area.found else line


def _day_line(day: Day) -> str:
    weather = " ".join(filter(None, (day.weather, f"({day.weather_ja})" if day.weather_ja else None)))
    rain = None if day.rain_chance_percent is None else f"rain {day.rain_chance_percent}%"
    parts = (weather or "no weather given", rain, _temperatures(day.temperature_min_c, day.temperature_max_c))
    return f"{day.day:%a} {day.day.isoformat()}: {', '.join(filter(None, parts))}"


def _temperatures(low: int | None, high: int | None) -> str | None:
    match low, high:
        case None, None:
            return None
        case None, _:
            return f"high {high}°C"
        case _, None:
            return f"low {low}°C"
        case _:
            return f"{low} to {high}°C"


VERSION = "1.0.0"

INSTRUCTIONS = (
    "Weather forecasts for Japan by the Japan Meteorological Agency. Give the place as the user said it; names are "
    "resolved here. An answer that says SAMPLE DATA is invented: tell the user so."
)

FIND_AREA = (
    "Find the code of a forecast area in Japan by a part of its name. `forecast` and `overview` also take names, so "
    "this is only needed to choose among several areas."
)
FORECAST = "Weather forecast for a place in Japan, day by day: weather, chance of rain, lowest and highest temperature."
OVERVIEW = (
    "The Japan Meteorological Agency's overview of the weather in an area: a few paragraphs in Japanese on causes, "
    "development and warnings."
)

Answer = TypeVar("Answer")
PlaceName = Annotated[
    str,
    Field(
        description=(
            "A place in Japan: city, prefecture or district, in English or Japanese (Tokyo, Sapporo, 大阪), "
            "or an area code from find_area (130000)"
        ),
        max_length=200,
    ),
]


def create_server(settings: Settings) -> MCPServer[None]:
    """Create the server with its tools."""
    source = Source(Service(settings.base_url), Sample(), settings.sample)

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await source.close()

    server = MCPServer(
        "weather",
        title="Weather in Japan",
        instructions=INSTRUCTIONS,
        version=VERSION,
        log_level="WARNING",
        lifespan=lifespan,
    )

    @server.tool(title="Find an area", description=FIND_AREA, annotations=_reading("Find an area"))
    async def find_area(
        name: Annotated[
            str,
            Field(
                description="A part of the name of a prefecture, district or city in English or Japanese, or a code",
                max_length=200,
            ),
        ],
    ) -> Annotated[CallToolResult, Areas]:
        answer = await _map_errors(area_queries.find_area(source, name))
        return _result(areas_text(answer), answer)

    @server.tool(title="Weather forecast", description=FORECAST, annotations=_reading("Weather forecast"))
    async def forecast(
        area: PlaceName,
        days: Annotated[int, Field(description="How many days, today included", ge=1, le=8)] = 3,
    ) -> Annotated[CallToolResult, Forecast]:
        answer = await _map_errors(area_queries.forecast(source, area, days))
        return _result(forecast_text(answer), answer)

    @server.tool(title="Weather overview", description=OVERVIEW, annotations=_reading("Weather overview"))
    async def overview(area: PlaceName) -> Annotated[CallToolResult, Overview]:
        answer = await _map_errors(area_queries.overview(source, area))
        return _result(overview_text(answer), answer)

    return server


def main() -> None:
    """Run until standard input ends. An error of the settings is printed to standard error, with exit code 2."""
    try:
        settings = read_settings(os.environ)
    except InvalidSetting as problem:
        sys.stderr.write(f"weather: {problem}\n")
        sys.exit(2)
    try:
        create_server(settings).run()
    except* BrokenPipeError:
        # The client is gone: an orderly exit would try to flush output that cannot be written.
        os._exit(0)


def _reading(title: str) -> ToolAnnotations:
    return ToolAnnotations(
        title=title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
    )


async def _map_errors(question: Awaitable[Answer]) -> Answer:
    try:
        return await question
    except area_queries.Unanswered as problem:
        raise ToolError(str(problem)) from problem


def _result(text: str, answer: BaseModel) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=answer.model_dump(mode="json")
    )
