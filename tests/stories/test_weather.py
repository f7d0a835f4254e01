"""A person opens the chat and asks for the weather: no account, no key, and sometimes no network."""

from __future__ import annotations

from pathlib import Path

from bot.platforms.console.lines import PROMPT
from tests.fakes.jma import FakeJma, Status, refusing
from tests.fakes.llm import Call, FakeLanguageModel, Request, Say
from tests.stories.installation import Installation

SAMPLE = "SAMPLE DATA, not a real forecast"


async def test_the_weather_is_asked_for_in_the_terminal_and_a_sample_stands_in_when_the_service_fails(
    tmp_path: Path,
) -> None:
    with FakeJma() as jma:
        async with Installation(tmp_path, WEATHER_BASE_URL=jma.base_url).terminal() as terminal:
            await terminal.asks("What is the weather in Tokyo?")
            await terminal.shows(
                f"{PROMPT} What is the weather in Tokyo?", "✓ weather.forecast", "Tokyo (東京都)", "23°C"
            )
            await terminal.shows("This was the demo model")
            assert jma.count("forecast/130000") == 1
            assert SAMPLE not in terminal.text
            assert terminal.text.count("weather.forecast") == 1

            jma.answers[""] = Status(503)
            await terminal.asks("and the weather in Osaka?", "Osaka (大阪府)", "HTTP status 503")
            assert SAMPLE in terminal.text

            await terminal.prompts()
            assert await terminal.leaves() == 0
            assert terminal.is_restored


def test_without_a_network_and_without_samples_it_is_said_that_there_is_no_forecast(tmp_path: Path) -> None:
    with refusing() as address:
        said = Installation(tmp_path, WEATHER_BASE_URL=address, WEATHER_SAMPLE="never").chat("-m", "weather in Tokyo?")
    assert said.code == 0, said.err
    assert "could not be reached" in said.out
    assert "✗ weather.forecast" in said.err
    assert "°C" not in said.out


def test_with_a_real_model_an_outage_is_an_error_and_no_figures_are_invented(tmp_path: Path) -> None:
    def forecasting(request: Request) -> Say:
        return Say("It failed.") if request.results else Say(calls=(Call("weather__forecast", {"area": "Tokyo"}),))

    with refusing() as address, FakeLanguageModel("openai", rule=forecasting) as model:
        said = Installation(tmp_path, model=model, WEATHER_BASE_URL=address).chat("-m", "weather in Tokyo?")
    assert said.code == 0, said.err
    assert "✗ weather.forecast" in said.err
    (result,) = model.requests[-1].results
    assert "could not be reached" in result
    assert "°C" not in result


def test_the_model_that_the_command_line_names_decides_about_samples(tmp_path: Path) -> None:
    with refusing() as address, FakeLanguageModel("openai") as model:
        place = Installation(tmp_path, model=model, WEATHER_BASE_URL=address)
        said = place.chat("--model", "demo", "-m", "weather in Tokyo?")
    assert SAMPLE in said.out


def test_a_question_about_this_assistant_is_answered_from_its_own_guides(tmp_path: Path) -> None:
    said = Installation(tmp_path).chat("-m", "How do I add a server?")
    assert said.code == 0, said.err
    assert "✓ knowledge.search" in said.err
    assert "servers.md#" in said.out


def test_samples_can_be_had_without_a_network_at_all(tmp_path: Path) -> None:
    with FakeJma() as jma:
        place = Installation(tmp_path, WEATHER_BASE_URL=jma.base_url, WEATHER_SAMPLE="always")
        said = place.chat("-m", "weather in Sapporo?")
    assert said.code == 0, said.err
    assert f"{SAMPLE}, because WEATHER_SAMPLE is set to always." in said.out
    assert "°C" in said.out
    assert jma.requests == []
