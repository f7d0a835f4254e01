"""The answers as text: short lines that read well to a model and in a terminal."""

from __future__ import annotations

from mcp_servers.weather.answers import Area, Areas, Day, Forecast, Overview


def areas_text(answer: Areas) -> str:
    """One line to an area, its code first."""
    lines = [_area_line(area) for area in answer.areas]
    if answer.sample:
        lines.append(f"(From the bundled table of areas, because {answer.sample_reason}.)")
    return "\n".join(lines)


def forecast_text(answer: Forecast) -> str:
    """Whose forecast it is, then one line to a day; what it is not comes first of all."""
    return "\n".join((_heading(answer), *map(_day_line, answer.days)))


def overview_text(answer: Overview) -> str:
    """Whose overview it is, the headline if there is one, and the text."""
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
