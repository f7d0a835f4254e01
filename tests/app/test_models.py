"""Which language model is used."""

from __future__ import annotations

import pytest

from bot.app.models import ANTHROPIC_DEFAULT, OPENAI_DEFAULT, choose_model
from bot.errors import SettingsError
from bot.llm.demo.model import DemoModel
from bot.settings import read_settings

SECRET = "sk-test-4711-do-not-show"


@pytest.mark.parametrize(
    ("environment", "wanted", "label"),
    [
        ({}, "", "demo"),
        ({"openai_api_key": SECRET}, "", f"openai:{OPENAI_DEFAULT}"),
        ({"anthropic_api_key": SECRET}, "", f"anthropic:{ANTHROPIC_DEFAULT}"),
        ({"anthropic_api_key": SECRET, "openai_api_key": SECRET}, "", f"anthropic:{ANTHROPIC_DEFAULT}"),
        (
            {"anthropic_api_key": SECRET, "openai_api_key": SECRET, "bot_model": "openai"},
            "",
            f"openai:{OPENAI_DEFAULT}",
        ),
        ({"openai_api_key": SECRET, "bot_model": "openai:small"}, "", "openai:small"),
        ({"openai_api_key": SECRET, "bot_model": "openai:"}, "", f"openai:{OPENAI_DEFAULT}"),
        ({"openai_api_key": SECRET, "bot_model": "demo"}, "", "demo"),
        ({"openai_api_key": SECRET, "bot_model": "demo"}, "openai:llama3:8b", "openai:llama3:8b"),
        ({"openai_api_key": SECRET, "bot_model": "no such provider"}, "demo", "demo"),
        ({"anthropic_api_key": SECRET}, " Anthropic : small ", "anthropic:small"),
        ({"openai_base_url": "http://127.0.0.1:11434/v1"}, "openai:local", "openai:local"),
        ({"openai_base_url": "http://127.0.0.1:11434/v1"}, "", "demo"),
    ],
)
def test_the_command_line_comes_before_the_variable_and_that_before_the_keys(
    environment: dict[str, str], wanted: str, label: str
) -> None:
    assert choose_model(read_settings(**environment), wanted).label == label


@pytest.mark.parametrize(("provider", "other"), [("openai", "anthropic"), ("anthropic", "openai")])
def test_a_model_without_its_key_is_refused_with_the_variable_to_set(provider: str, other: str) -> None:
    settings = read_settings(**{f"{other}_api_key": SECRET})
    with pytest.raises(SettingsError) as caught:
        choose_model(settings, f"{provider}:small")
    assert str(caught.value) == (
        f"The model {provider}:small needs a key. "
        f"Fix: set {provider.upper()}_API_KEY in the environment or in .env, or use --model demo"
    )


def test_a_misspelt_provider_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError) as caught:
        choose_model(read_settings(bot_model="Antropic:small"))
    assert caught.value.cause == "There is no model provider called 'Antropic'. Did you mean anthropic?"
    assert caught.value.fix == "set BOT_MODEL (or --model) to demo, openai:NAME or anthropic:NAME"


@pytest.mark.parametrize("wanted", ["gemini-9", ":", "x:y", ":small"])
def test_an_unknown_provider_is_refused_with_those_there_are(wanted: str) -> None:
    with pytest.raises(SettingsError) as caught:
        choose_model(read_settings(), wanted)
    assert "There is no model provider called" in caught.value.cause
    assert "Did you mean" not in caught.value.cause
    assert "demo, openai:NAME or anthropic:NAME" in caught.value.fix


async def test_the_choice_makes_the_model_it_names() -> None:
    demo = choose_model(read_settings()).create()
    assert isinstance(demo, DemoModel)
    settings = read_settings(openai_api_key=SECRET, anthropic_api_key=SECRET)
    for wanted, module in (("openai", "bot.llm.openai_chat"), ("anthropic", "bot.llm.anthropic")):
        model = choose_model(settings, wanted).create()
        assert type(model).__module__ == module
        await model.close()


def test_a_choice_does_not_show_its_key() -> None:
    choice = choose_model(read_settings(openai_api_key=SECRET), "openai:small")
    assert "openai:small" in repr(choice)
    assert SECRET not in repr(choice)
