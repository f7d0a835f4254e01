"""The weather server as a host sees it, over a fake agency on a real socket."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from mcp import Client

from mcp_servers.weather.server import create_server
from mcp_servers.weather.settings import SampleMode, Settings
from tests.fakes.jma import JST, Behaviour, Cut, FakeJma, Raw, Slow, Status, refusing
from tests.mcp_servers.processes import process, structured_output, text_of


def here(base_url: str, mode: SampleMode = SampleMode.AUTO) -> Client:
    """Return a client of the same server in this process."""
    return Client(create_server(Settings(base_url, mode)), read_timeout_seconds=20)


async def test_a_host_finds_an_area_and_reads_its_forecast_and_overview() -> None:
    with FakeJma() as jma:
        async with process("weather", {"WEATHER_BASE_URL": jma.base_url, "WEATHER_SAMPLE": ""}) as client:
            found = structured_output(await client.call_tool("find_area", {"name": "大阪"}))
            forecast = await client.call_tool("forecast", {"area": "Tokyo", "days": 2})
            overview = await client.call_tool("overview", {"area": "130000"})
    assert [(a["code"], a["name"], a["english_name"]) for a in found["areas"]] == [("270000", "大阪府", "Osaka")]
    today = datetime.now(JST).date()
    assert text_of(forecast).splitlines() == [
        f"Tokyo (東京都), issued {today} 11:00 JST by 気象庁:",
        f"{today:%a} {today}: Clear (晴れ), rain 10%, high 23°C",
        text_of(forecast).splitlines()[2],
    ]
    answer = structured_output(forecast)
    assert (answer["sample"], answer["sample_reason"], answer["code"]) == (False, None, "130000")
    assert answer["days"][1] == {
        "day": answer["days"][1]["day"],
        "weather": "Clear, cloudy at times",
        "weather_ja": "晴れ 時々 くもり",
        "rain_chance_percent": 20,
        "temperature_min_c": 14,
        "temperature_max_c": 22,
    }
    assert "東京都は、晴れています。" in structured_output(overview)["text"]
    assert structured_output(overview)["sample"] is False


async def test_every_tool_says_truthfully_that_it_only_reads_and_describes_what_it_takes() -> None:
    async with here("http://127.0.0.1:9", SampleMode.ALWAYS) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["find_area", "forecast", "overview"]
    for tool in tools:
        assert tool.title
        assert tool.annotations is not None
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
        assert (hints.idempotent_hint, hints.open_world_hint) == (True, True)
        assert tool.output_schema is not None
        assert all(each["description"] for each in tool.input_schema["properties"].values())


async def test_seven_days_come_from_both_publications() -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            days = structured_output(await client.call_tool("forecast", {"area": "Fukuoka", "days": 8}))["days"]
    assert [day["temperature_max_c"] for day in days] == [23, 22, 16, 18, 19, 20, 21]
    assert [day["temperature_min_c"] for day in days] == [None, 14, 12, 11, 10, 9, 9]
    assert [day["rain_chance_percent"] for day in days] == [10, 20, 80, 40, 30, 0, 10]


@pytest.mark.parametrize("name", ["Sapporo", "札幌", "sapporo city", "Sapporo, Japan", "016000", "Ishikari"])
async def test_a_city_is_found_under_the_office_that_forecasts_for_it(name: str) -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            assert structured_output(await client.call_tool("forecast", {"area": name}))["code"] == "016000"
        assert jma.requests == ["/bosai/forecast/data/forecast/016000.json"]


async def test_a_municipality_that_only_the_service_knows_is_found_through_its_table() -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            found = structured_output(await client.call_tool("forecast", {"area": "Suginami"}))
            areas = structured_output(await client.call_tool("find_area", {"name": "杉並"}))["areas"]
    assert (found["area"], found["code"]) == ("Suginami City (杉並区)", "130000")
    assert (areas[0]["code"], areas[0]["local_code"]) == ("130000", "130010")


async def test_an_office_without_a_file_of_its_own_is_read_from_its_neighbours() -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            forecast = structured_output(await client.call_tool("forecast", {"area": "Obihiro"}))
            overview = structured_output(await client.call_tool("overview", {"area": "014030"}))
    assert (forecast["code"], forecast["part"], forecast["station"]) == ("014030", "十勝地方", "帯広")
    assert forecast["days"][1]["temperature_max_c"] == 24
    assert overview["text"].endswith("十勝地方は、晴れています。")


async def test_a_missing_overview_is_replaced_by_the_one_of_the_office_that_shares_its_file() -> None:
    with FakeJma() as jma:
        jma.answers["overview_forecast/014030"] = Status(404)
        async with here(jma.base_url) as client:
            overview = structured_output(await client.call_tool("overview", {"area": "Tokachi"}))
    assert (overview["sample"], overview["office"]) == (False, "釧路地方気象台")


async def test_a_name_that_several_areas_share_is_refused_with_their_codes() -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            result = await client.call_tool("forecast", {"area": "Fuchu"})
            assert jma.count("data/forecast") == 0
    assert result.is_error
    assert "130010 Fuchu City (府中市) in Tokyo; 260010 Fuchu City (府中市) in Kyoto. Ask again" in text_of(result)


@pytest.mark.parametrize(("tool", "argument"), [("find_area", "name"), ("forecast", "area"), ("overview", "area")])
async def test_a_place_outside_japan_is_an_error_with_a_suggestion(tool: str, argument: str) -> None:
    with FakeJma() as jma:
        async with here(jma.base_url) as client:
            unknown = await client.call_tool(tool, {argument: "Atlantis\n\x1b[2J"})
            empty = await client.call_tool(tool, {argument: "  "})
    assert unknown.is_error
    assert "Places elsewhere are not known." in text_of(unknown)
    assert "No area in Japan matches 'Atlantis [2J'" in text_of(unknown)
    assert empty.is_error
    assert "No area was given" in text_of(empty)


FAILURES = pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Status(500), "the weather service answered with HTTP status 500"),
        (Status(302), "the weather service answered with HTTP status 302"),
        (Status(404), "the weather service has no data for this area (HTTP 404)"),
        (Raw(b"<html>\xff"), "the weather service sent something that is not JSON"),
        (Raw(b"[" * 100_000), "the weather service sent something that is not JSON"),
        (Raw(b"[]"), "the weather service sent a forecast file without a forecast"),
        (Raw(b'[{"reportDatetime": 5}]'), "the weather service sent a forecast file without a date of issue"),
        (Raw(b'"' + b"x" * 5_000_000 + b'"'), "the weather service sent more than any of its files should hold"),
        (Cut(), "the weather service could not be reached at http://127.0.0.1:"),
    ],
)


@FAILURES
async def test_an_error_of_the_service_is_named_and_a_labelled_sample_given(behaviour: Behaviour, reason: str) -> None:
    with FakeJma({"forecast/130000": behaviour}) as jma:
        async with here(jma.base_url) as client:
            result = await client.call_tool("forecast", {"area": "Tokyo"})
    assert structured_output(result)["sample"] is True
    assert structured_output(result)["sample_reason"].startswith(reason)
    assert text_of(result).startswith(f"SAMPLE DATA, not a real forecast, because {reason}")
    assert "internal detail" not in text_of(result)


@FAILURES
async def test_without_sample_the_same_is_an_error(behaviour: Behaviour, reason: str) -> None:
    with FakeJma({"forecast/130000": behaviour}) as jma:
        async with here(jma.base_url, SampleMode.NEVER) as client:
            result = await client.call_tool("forecast", {"area": "Tokyo"})
    assert result.is_error
    assert f"There is no data, because {reason}" in text_of(result)
    assert "internal detail" not in text_of(result)


async def test_a_refused_connection_gives_a_sample_that_starts_today_in_text_and_structure() -> None:
    with refusing() as address:
        async with process("weather", {"WEATHER_BASE_URL": address, "WEATHER_SAMPLE": "auto"}) as client:
            forecast = await client.call_tool("forecast", {"area": "Tokyo", "days": 7})
            overview = await client.call_tool("overview", {"area": "Osaka"})
            areas = structured_output(await client.call_tool("find_area", {"name": "Naha"}))
    answer = structured_output(forecast)
    assert answer["sample_reason"] == f"the weather service could not be reached at {address} (ConnectError)"
    assert len(answer["days"]) == 7
    assert answer["days"][0]["day"] == str(datetime.now(JST).date())
    assert text_of(overview).startswith("SAMPLE DATA, not a real forecast")
    assert (areas["sample"], areas["areas"][0]["code"]) == (True, "471000")


async def test_a_slow_service_is_waited_for_two_seconds_once_and_then_left_alone() -> None:
    with FakeJma({"": Slow(60)}) as jma:
        async with here(jma.base_url) as client:
            start = time.monotonic()
            first = structured_output(await client.call_tool("forecast", {"area": "Ishikari Sorachi"}))
            waited = time.monotonic() - start
            again = structured_output(await client.call_tool("overview", {"area": "Kyoto"}))
            in_all = time.monotonic() - start
        assert len(jma.requests) == 1
    assert 1.9 < waited < 12
    assert in_all - waited < 1.9
    assert first["sample_reason"] == again["sample_reason"] == "the weather service did not answer within 2 seconds"


async def test_an_area_missing_from_the_bundled_table_is_blamed_on_the_outage() -> None:
    with refusing() as address:
        async with here(address) as client:
            forecast = await client.call_tool("forecast", {"area": "Suginami"})
            found = await client.call_tool("find_area", {"name": "Suginami"})
    for result in (forecast, found):
        assert result.is_error
        assert "Only the bundled table was searched, because the weather service could not be" in text_of(result)


async def test_always_never_touches_the_network() -> None:
    with FakeJma() as jma:
        async with here(jma.base_url, SampleMode.ALWAYS) as client:
            answers: list[dict[str, Any]] = [
                structured_output(await client.call_tool("find_area", {"name": "Kobe"})),
                structured_output(await client.call_tool("forecast", {"area": "Kobe"})),
                structured_output(await client.call_tool("overview", {"area": "Kobe"})),
            ]
        assert jma.requests == []
    assert {answer["sample_reason"] for answer in answers} == {"WEATHER_SAMPLE is set to always"}
