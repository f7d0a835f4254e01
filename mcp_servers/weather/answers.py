"""Structured output of the tools. Descriptions of fields are for the model."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from pydantic import BaseModel, Field

Sample = Annotated[bool, Field(description="True if this is invented sample data, not the agency's")]
SampleReason = Annotated[str | None, Field(description="Why sample data is given; null for real data")]
IssuedAt = Annotated[datetime, Field(description="When it was published, Japan Standard Time")]
Celsius = Annotated[int | None, Field(description="Degrees Celsius; null where nothing is forecast")]


class Area(BaseModel):
    """An area with a forecast."""

    code: str = Field(description="Code of the forecast office's district, six digits")
    name: str = Field(description="Name in Japanese")
    english_name: str = Field(description="Name in English")
    found: str | None = Field(
        description="The city or part of the district that matched, if it was not the district itself"
    )
    local_code: str | None = Field(description="Code of that part of the district; `forecast` takes it as well")


class Areas(BaseModel):
    """Areas that match."""

    areas: list[Area] = Field(description="The best matches first")
    sample: bool = Field(
        description="True if the bundled table was searched instead of the service's; the codes and names are facts"
    )
    sample_reason: SampleReason = None


class Day(BaseModel):
    """One day's forecast."""

    day: date
    weather: str | None = Field(description="In English; null for a weather code that is not known")
    weather_ja: str | None = Field(description="The agency's own words, in Japanese; given for the next days only")
    rain_chance_percent: int | None = Field(description="The day's highest chance of rain; null if none is given")
    temperature_min_c: Celsius
    temperature_max_c: Celsius


class Forecast(BaseModel):
    """The next days in one area."""

    area: str = Field(description="The area that was asked for")
    code: str = Field(description="Code of its forecast office's district")
    part: str = Field(description="The part of the district the forecast is for, in Japanese")
    station: str | None = Field(description="Where the temperatures are measured, in Japanese")
    office: str = Field(description="The office that published it, in Japanese")
    issued_at: IssuedAt
    days: list[Day]
    sample: Sample
    sample_reason: SampleReason = None


class Overview(BaseModel):
    """The forecaster's overview of one area."""

    area: str = Field(description="The area that was asked for")
    code: str = Field(description="Code of its forecast office's district")
    office: str = Field(description="The office that published it, in Japanese")
    issued_at: IssuedAt
    headline: str | None = Field(description="A warning in one sentence, in Japanese; null if there is none")
    text: str = Field(description="The overview, in Japanese")
    sample: Sample
    sample_reason: SampleReason = None
