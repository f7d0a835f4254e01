"""Choice of the language model."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from bot.app.models import select_model
from bot.app.runtime import model_limits
from bot.domain.completions import Completion, ModelLimits, ModelRequest
from bot.domain.messages import user
from bot.errors import ModelUnavailable, SettingsError
from bot.llm.demo import DemoModel
from bot.llm.models import Models
from bot.llm.providers import PROVIDERS, Provider, always
from bot.settings import read_settings
from tests.fakes.llm import FakeLanguageModel, Say, Silence, Status
from tests.fakes.llm import Models as Listing
from tests.fakes.parts import ScriptedModel, say
from tests.llm.conversation import complete
from tests.web.api_server import ScriptedChoice

ANTHROPIC_DEFAULT = "claude-sonnet-5-5"
OPENAI_DEFAULT = "gpt-5.5"
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
        ({}, "ollama:llama3:8b", "ollama:llama3:8b"),
    ],
)
def test_the_command_line_comes_before_the_variable_and_that_before_the_keys(
    environment: dict[str, str], wanted: str, label: str
) -> None:
    assert select_model(read_settings(**environment), wanted).label == label


@pytest.mark.parametrize(("provider", "other"), [("openai", "anthropic"), ("anthropic", "openai")])
def test_a_model_without_its_key_is_refused_with_the_variable_to_set(provider: str, other: str) -> None:
    settings = read_settings(**{f"{other}_api_key": SECRET})
    with pytest.raises(SettingsError) as caught:
        select_model(settings, f"{provider}:small")
    assert str(caught.value) == (
        f"The model {provider}:small needs a key. "
        f"Fix: set {provider.upper()}_API_KEY in the environment or in .env, or use --model demo"
    )


@pytest.mark.parametrize("key", ["sk-" + "ant-api03-abcdefghijklmnopqrst", "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"])
def test_a_key_in_the_place_of_a_model_is_not_repeated(key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        select_model(read_settings(bot_model=key))
    assert key not in str(caught.value)
    assert "There is no model provider called" in caught.value.cause


def test_a_misspelt_provider_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError) as caught:
        select_model(read_settings(bot_model="Antropic:small"))
    assert caught.value.cause == "There is no model provider called 'Antropic'. Did you mean anthropic?"
    assert caught.value.fix == (
        "set BOT_MODEL (or --model) to demo, or to PROVIDER:NAME with anthropic, ollama, openai, openai-chat,"
        " openai-responses or openrouter as the provider, and a comma between each two of several"
    )


@pytest.mark.parametrize("wanted", ["gemini-9", ":", "x:y", ":small"])
def test_an_unknown_provider_is_refused_with_those_there_are(wanted: str) -> None:
    with pytest.raises(SettingsError) as caught:
        select_model(read_settings(), wanted)
    assert "There is no model provider called" in caught.value.cause
    assert "Did you mean" not in caught.value.cause
    assert "PROVIDER:NAME" in caught.value.fix


LOCAL = "http://127.0.0.1:8000/v1"
EUROPE = "https://eu.api.openai.com/v1"


@pytest.mark.parametrize(
    ("wanted", "environment", "module"),
    [
        ("demo", {}, "demo"),
        ("anthropic", {}, "anthropic"),
        ("openai", {}, "openai_responses"),
        ("openai", {"openai_base_url": EUROPE}, "openai_responses"),
        ("openai", {"openai_base_url": LOCAL}, "openai_chat"),
        ("openai", {"openai_api": "chat"}, "openai_chat"),
        ("openai", {"openai_api": "responses", "openai_base_url": LOCAL}, "openai_responses"),
        ("openai-chat", {"openai_api": "responses"}, "openai_chat"),
        ("openai-responses", {"openai_base_url": LOCAL}, "openai_responses"),
        ("ollama:llama3", {"openai_api": "responses"}, "openai_chat"),
    ],
)
def test_a_provider_speaks_the_protocol_that_its_service_has(
    wanted: str, environment: dict[str, str], module: str
) -> None:
    keys = {"openai_api_key": SECRET, "anthropic_api_key": SECRET}
    assert select_model(read_settings(**keys, **environment), wanted).module == module


async def test_several_models_stand_in_for_one_another_in_their_order() -> None:
    settings = read_settings(
        openai_api_key=SECRET, bot_model="openai:large, ollama:small,openai:large , demo", model_images="ollama:*=off"
    )
    choice = select_model(settings)
    assert choice.label == "openai:large, else ollama:small, else demo"
    models = Models(choice, lambda name: select_model(settings, name))
    own = await models.get("")
    assert own.capabilities.images
    assert not (await models.get("ollama:small,demo")).capabilities.images
    await models.close()


def test_a_mistake_in_any_of_several_models_is_reported() -> None:
    with pytest.raises(SettingsError, match="no model provider called 'olama'"):
        select_model(read_settings(), "demo, olama:small")
    with pytest.raises(SettingsError, match="anthropic:claude-sonnet-5-5 needs a key"):
        select_model(read_settings(), "demo, anthropic")


def test_each_of_several_models_needs_its_key() -> None:
    with pytest.raises(SettingsError) as caught:
        select_model(read_settings(openai_api_key=SECRET), "openai:large, anthropic:small")
    assert str(caught.value) == (
        "The model anthropic:small needs a key. Fix: set ANTHROPIC_API_KEY in the environment or in .env,"
        " or leave anthropic:small out of the list of models"
    )


@pytest.mark.parametrize(
    "wanted", ["ollama:a,,demo", "ollama:a,demo,", " , ollama:a , demo , ", "ollama:a,demo,OLLAMA:a"]
)
def test_a_comma_too_many_and_a_model_twice_change_nothing(wanted: str) -> None:
    assert select_model(read_settings(), wanted).names == ("ollama:a", "demo")


@pytest.mark.parametrize("wanted", [",", " , ", " "])
def test_a_list_without_a_model_is_refused(wanted: str) -> None:
    with pytest.raises(SettingsError, match="names no model") as caught:
        select_model(read_settings(), wanted)
    assert "PROVIDER:NAME" in caught.value.fix


@pytest.mark.parametrize("wanted", ["ollama:a ollama:b", "ollama:a; demo", "demo, ollama:a | OpenAI:b"])
def test_a_forgotten_comma_is_reported(wanted: str) -> None:
    with pytest.raises(SettingsError, match="are several models") as caught:
        select_model(read_settings(), wanted)
    assert "comma" in caught.value.fix


def test_a_blank_within_a_name_is_no_comma_that_was_forgotten() -> None:
    assert select_model(read_settings(), "ollama:my model:latest").name == "ollama:my model:latest"


async def test_each_of_several_models_has_its_own_window() -> None:
    settings = read_settings(
        openai_api_key=SECRET, anthropic_api_key=SECRET, context_tokens="ollama:*=32_768, openai:small*=8000"
    )
    choice = select_model(settings, "anthropic:large, openai:small-1, ollama:qwen3")
    assert [each.window for each in choice.all] == [None, 8_000, 32_768]
    for each, window in zip(choice.all, (200_000, 8_000, 32_768), strict=True):
        model = each.create()
        assert model.capabilities.context_tokens == window
        await model.close()


@pytest.mark.parametrize("pattern", ["OpenAI:small", "openai: small", " OPENAI : s*"])
def test_a_window_is_for_the_model_however_its_provider_is_written(pattern: str) -> None:
    settings = read_settings(openai_api_key=SECRET, context_tokens=f"{pattern}=8000")
    assert select_model(settings, "OpenAI: small").window == 8_000


async def test_the_window_is_that_of_the_model_asked_next() -> None:
    settings = read_settings(context_tokens="ollama:first=8000,9000", model_max_tokens="700")
    with FakeLanguageModel("openai", Status(503), Say("Hello.")) as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_BASE_URL", service.base_url)
        models = Models(select_model(settings, "ollama:first, ollama:second"), pytest.fail)
        model = await models.get("")
        assert (model.capabilities.model, model.capabilities.context_tokens) == ("ollama:first", 8_000)
        assert (await complete(model)).model == "ollama:second"
        assert (model.capabilities.model, model.capabilities.context_tokens) == ("ollama:second", 9_000)
        await models.close()
        assert service.lookups == []


async def test_a_reply_may_take_as_long_as_the_settings_say() -> None:
    settings = read_settings(model_first_timeout="1s", model_total_timeout="20m", bot_model="ollama:first")
    assert model_limits(settings) == ModelLimits(first_seconds=1.0, total_seconds=1_200.0)
    with FakeLanguageModel("openai", Silence()) as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_BASE_URL", service.base_url)
        models = Models(select_model(settings), pytest.fail, limits=model_limits(settings))
        with pytest.raises(ModelUnavailable, match="sent nothing for 1 seconds"):
            await complete(await models.get(""))
        await models.close()


@pytest.mark.parametrize("value", ["never", "0", "0.5s", "2h", "soon"])
def test_a_time_limit_of_a_reply_that_makes_no_sense_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match="MODEL_TOTAL_TIMEOUT"):
        read_settings(model_total_timeout=value)


async def test_a_window_that_the_settings_do_not_say_is_the_services() -> None:
    listed = Listing("ollama", {"first:latest": 4_096}, running={"first:latest"})
    with (
        FakeLanguageModel("openai", Say("Hello."), models=listed) as service,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OLLAMA_BASE_URL", service.base_url)
        models = Models(select_model(read_settings(), "ollama:first"), pytest.fail)
        model = await models.get("")
        assert model.capabilities.context_tokens == 128_000
        assert (await complete(model)).message.text == "Hello."
        async with asyncio.timeout(10):
            while model.capabilities.context_tokens != 4_096:
                await asyncio.sleep(0.01)
        await models.close()
        assert service.lookups == ["/v1/models", "/api/ps"]


@pytest.mark.parametrize("wanted", ["demo", "anthropic", "openai", "openai-chat", "ollama:llama3"])
async def test_the_choice_makes_the_model_it_names(wanted: str) -> None:
    model = select_model(read_settings(openai_api_key=SECRET, anthropic_api_key=SECRET), wanted).create()
    assert isinstance(model, DemoModel) == (wanted == "demo")
    assert model.capabilities.context_tokens > 0
    await model.close()


def test_a_provider_may_have_variables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="set OPENROUTER_API_KEY"):
        select_model(read_settings(), "openrouter:some/model")
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://models:11434/v1")
    choice = select_model(read_settings(), "openrouter:some/model:free")
    assert (choice.label, choice.config["api_key"]) == ("openrouter:some/model:free", SECRET)
    assert choice.config["base_url"] == "https://openrouter.ai/api/v1"
    assert select_model(read_settings(), "ollama:llama3").config["base_url"] == "http://models:11434/v1"
    assert SECRET in read_settings().secrets


def test_an_address_of_its_own_is_checked_without_being_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "pass-word@host")
    with pytest.raises(SettingsError, match="OLLAMA_BASE_URL") as caught:
        select_model(read_settings(), "ollama:llama3")
    assert "pass-word" not in str(caught.value)


def test_a_provider_of_many_models_wants_one_named() -> None:
    with pytest.raises(SettingsError, match="ollama has many models") as caught:
        select_model(read_settings(), "ollama")
    assert "ollama:NAME" in caught.value.fix


def test_a_provider_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = Provider(always("openai_chat"), "ACME", "acme-1", "https://models.acme.example/v1")
    monkeypatch.setitem(PROVIDERS, "acme-ai", acme)
    monkeypatch.setenv("ACME_API_KEY", SECRET)
    choice = select_model(read_settings(bot_model="acme-ai"))
    assert choice.label == "acme-ai:acme-1"
    assert choice.config["base_url"] == "https://models.acme.example/v1"
    assert choice.create().capabilities.tools


def test_a_choice_does_not_show_its_key() -> None:
    choice = select_model(read_settings(openai_api_key=SECRET), "openai:small")
    assert "openai:small" in repr(choice)
    assert SECRET not in repr(choice)


async def test_an_answer_names_the_model_of_several_that_gave_it() -> None:
    away = ScriptedChoice("first", "scripted", model=ScriptedModel([ModelUnavailable("It is away.")]))
    there = ScriptedChoice("second", "scripted", model=ScriptedModel([say("Hello.")]))
    models = Models(replace(away, others=(there,)), pytest.fail)
    async with aclosing((await models.get("")).stream(ModelRequest((user("hi"),)))) as events:
        *_, last = [event async for event in events]
    assert isinstance(last, Completion)
    assert last.model == "second"
    await models.close()
