from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from mcp_servers.weather.area_queries import read_overview
from mcp_servers.weather.areas import Place
from mcp_servers.weather.forecasts import DayForecast, in_english, read_forecast
from mcp_servers.weather.jma_json import JST, Unreadable, line, paragraphs
from mcp_servers.weather.sample_data import FORECAST_PATH, OVERVIEW_PATH, Sample, bundled_areas
from tests.fakes.jma import forecast_file

ISSUED = datetime(2026, 4, 1, 11, tzinfo=JST)
TOKYO = Place("130000", "東京都", "Tokyo")


def test_a_day_takes_each_value_from_the_publication_that_has_it() -> None:
    days = read_forecast(forecast_file("130000", issued_at=ISSUED), TOKYO).days
    assert days[0] == DayForecast(date(2026, 4, 1), "100", "Clear", "晴れ", 10, None, 23)
    assert days[1] == DayForecast(date(2026, 4, 2), "101", "Clear, cloudy at times", "晴れ 時々 くもり", 20, 14, 22)
    assert days[2] == DayForecast(date(2026, 4, 3), "300", "Rain", "雨", 80, 12, 16)
    assert days[3] == DayForecast(date(2026, 4, 4), "201", "Cloudy, clear at times", "", 40, 11, 18)


def test_the_first_publication_is_enough() -> None:
    days = read_forecast(forecast_file("130000", issued_at=ISSUED)[:1], TOKYO).days
    assert [day.rain_chance for day in days] == [10, 20, None]


def test_a_wrong_thermometer_is_never_used() -> None:
    file = Sample(lambda: date(2026, 1, 5)).read(FORECAST_PATH.format(code="130000"))
    islands = Place("130000", "東京都", "Tokyo", "130020", "北部", "Northern", "")
    assert read_forecast(file, islands).station == "大島"
    stations: list[Any] = file[0]["timeSeries"][2]["areas"]  # type: ignore[index]  # JSON, of a known shape here
    del stations[3]
    without = read_forecast(file, islands)
    assert (without.station, without.days[1].temperature_max) == ("", None)
    named = Place("130000", "東京都", "Tokyo", "130020", "大島町", "Oshima Town", "")
    assert read_forecast(file, named).days[1].temperature_max == 17


def test_a_week_for_another_part_is_not_passed_off_as_this_ones() -> None:
    file = Sample(lambda: date(2026, 1, 5)).read(FORECAST_PATH.format(code="130000"))
    assert len(read_forecast(file, Place("130000", "", "", "130030")).days) == 3
    assert len(read_forecast(file, Place("130000", "", "", "130040")).days) == 7


BROKEN: list[Any] = [
    None,
    {},
    [],
    ["x"],
    [{"reportDatetime": "soon", "timeSeries": []}],
    [{"reportDatetime": "2026-04-01T11:00:00+09:00", "timeSeries": []}],
    [{"reportDatetime": "2026-04-01T11:00:00+09:00", "timeSeries": [{"areas": [{"weatherCodes": ["100"]}]}]}],
    [{"reportDatetime": "2026-04-01T11:00:00", "timeSeries": [{"areas": [{"weatherCodes": ["100"]}]}]}],
]


@pytest.mark.parametrize("value", BROKEN)
def test_a_response_without_a_forecast_is_unreadable(value: Any) -> None:
    with pytest.raises(Unreadable):
        read_forecast(value, TOKYO)


def test_nonsense_inside_a_forecast_is_passed_over() -> None:
    file = forecast_file("130000", issued_at=ISSUED)
    first = file[0]["timeSeries"]
    first[1]["areas"][0]["pops"] = ["many", 5, None, "99999", "30"]
    first[0]["areas"][0]["weathers"] = ["\x1b[31m" + "雨" * 1000, {}, "晴れ"]
    first[0]["timeDefines"][2] = "never"
    days = read_forecast(file, TOKYO).days
    assert days[0].weather_ja.startswith("[31m雨雨")
    assert len(days[0].weather_ja) == 120
    assert (days[0].rain_chance, days[1].rain_chance) == (None, 30)


@pytest.mark.parametrize(
    "value", [None, [], {"text": "x"}, {"reportDatetime": "2026-04-01T11:00:00+09:00", "text": ""}]
)
def test_a_response_without_an_overview_is_unreadable(value: Any) -> None:
    with pytest.raises(Unreadable):
        read_overview(value)


def test_text_of_the_service_is_bounded_and_clean() -> None:
    overview = read_overview(
        {"reportDatetime": "2026-04-01T11:00:00+09:00", "text": "　雨\r\n\n\x1b]0;x\x07\u202eで\n" * 9999}
    )
    assert len(overview.text) == 4000
    assert overview.text.startswith("雨\n]0;x で\n雨")
    assert line(5) == line(None) == paragraphs({}, 9) == ""


@pytest.mark.parametrize(
    ("code", "english"),
    [("100", "Clear"), ("112", "Clear, brief rain later"), ("212", "Cloudy, brief rain later"), ("300", "Rain"),
     ("450", "Snow with thunder"), ("312", ""), ("900", ""), ("1", ""), ("", ""), ("1000", "")],
)  # fmt: skip
def test_weather_codes_are_put_into_english_where_they_are_known(code: str, english: str) -> None:
    assert in_english(code) == english


@pytest.mark.parametrize(
    "code", sorted({place.code for letter in "aeiou" for place in bundled_areas().find(letter, 99)})
)
def test_the_sample_has_a_week_and_an_overview_for_every_office_from_today_on(code: str) -> None:
    sample = Sample(lambda: date(2026, 12, 29))
    place = bundled_areas().resolve(code)
    forecast = read_forecast(sample.read(FORECAST_PATH.format(code=code)), place)
    assert [day.day.isoformat() for day in forecast.days][::3] == ["2026-12-29", "2027-01-01", "2027-01-04"]
    assert all(day.weather and day.temperature_max is not None for day in forecast.days)
    overview = read_overview(sample.read(OVERVIEW_PATH.format(code=code)))
    assert (overview.area, overview.office) == (place.name, place.station)
    assert overview.text.startswith("これは見本の文章で、実際の概況ではありません。")
