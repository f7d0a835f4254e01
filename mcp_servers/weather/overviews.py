"""The agency's overview: a few paragraphs in Japanese by the forecaster on duty."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mcp_servers.weather.jma_json import JST, Unreadable, line, mapping, paragraphs

LONGEST_TEXT = 4000
"""Characters. The longest overviews, before a typhoon, are about half of that."""


@dataclass(frozen=True, slots=True)
class PlaceOverview:
    """The overview of an office's district; `headline` is empty unless there is something to warn of."""

    area: str
    office: str
    issued_at: datetime
    headline: str
    text: str


def read_overview(value: object) -> PlaceOverview:
    """Read an overview file. Raises Unreadable."""
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
