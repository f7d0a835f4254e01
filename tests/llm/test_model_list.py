"""Model lists of services in their real formats, through the vendors' real clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bot.domain.completions import Capabilities
from bot.errors import ModelBarred, ModelUnavailable
from bot.llm import anthropic, openai_chat, openai_responses
from bot.llm.hosted_model import LARGEST_LIST, OPENAI_HOME, WireFormat, openai_client
from bot.llm.model_list import ListedModel, ModelListPaths
from bot.llm.models import Availability, Available, ListsModels, NotListed, NotReported, Retired
from bot.llm.provider_service import Service
from bot.llm.providers import PROVIDERS
from tests.fakes.llm import Api, FakeLanguageModel, Models, Say, Status
from tests.llm.conversation import asking, complete

KEY = "sk-test-0123456789abcdef"
Made = Callable[[str, str], object]


def chat(provider: str) -> Made:
    """Return the model of the provider of that name at another address."""
    known = PROVIDERS.get(provider)
    assert known is not None
    return lambda name, address: openai_chat.create(
        openai_chat.Config(name, KEY, base_url=address, variables=known.variables, **known.more)
    )


def messages(name: str, address: str) -> object:
    return anthropic.create(anthropic.Config(name, KEY, base_url=address))


def responses(name: str, address: str) -> object:
    return openai_responses.create(openai_responses.Config(name, KEY, base_url=address))


@asynccontextmanager
async def looked_up(models: Models, name: str, made: Made, api: Api = "openai") -> AsyncIterator[Availability]:
    with FakeLanguageModel(api, models=models) as service:
        model = made(name, service.base_url)
        assert isinstance(model, ListsModels)
        try:
            yield await model.look_up()
        finally:
            await model.close()
        assert service.requests == []


async def standing(models: Models, name: str, made: Made, api: Api = "openai") -> Availability:
    async with looked_up(models, name, made, api) as availability:
        return availability


@pytest.mark.parametrize(
    ("models", "name", "made", "api", "availability"),
    [
        (Models("vllm", {"meta/llama-4": 8_096}), "meta/llama-4", chat("openai"), "openai", Available(8_096)),
        (Models("litellm", {"house": 0}), "house", chat("openai"), "openai", Available()),
        (Models("litellm", {"openai/*": 0}), "openai/large", chat("openai"), "openai", Available()),
        (Models("openrouter", {"a/b": 64_000}), "a/b", chat("openrouter"), "openai", Available(64_000)),
        (
            Models("openrouter", {"a/b": 64_000, "c/d": 1}),
            "a/b:online",
            chat("openrouter"),
            "openai",
            Available(64_000),
        ),
        (Models("ollama", {"qwen3:latest": 4_096}), "qwen3", chat("ollama"), "openai", Available()),
        (
            Models("ollama", {"qwen3:8b": 1, "qwen3:latest": 4_096}, running={"qwen3:latest"}),
            "qwen3",
            chat("ollama"),
            "openai",
            Available(4_096),
        ),
        (Models("ollama", {}), "qwen3", chat("ollama"), "openai", NotListed(())),
        (Models("vllm", {"small": 8_096}), "large", chat("openai"), "openai", NotListed(("small",))),
        (Models("vllm", {"small": 8_096}), "small", responses, "responses", Available(8_096)),
        (Models("anthropic", {"house": 200_000}), "house", messages, "anthropic", Available(200_000, "", 64_000)),
        (
            Models("anthropic", {"house": 200_000}, retires={"house": "2027-02-01T00:00:00Z"}),
            "house",
            messages,
            "anthropic",
            Available(200_000, "2027-02-01", 64_000),
        ),
        (Models("anthropic", {"house": 1}, retires={"house": ""}), "house", messages, "anthropic", Retired()),
    ],
)
async def test_a_compatible_server_is_asked_for_its_list(
    models: Models, name: str, made: Made, api: Api, availability: Availability
) -> None:
    assert await standing(models, name, made, api) == availability


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (Status(404, body="404 page not found"), ""),
        (Status(405, body=""), "does not accept the request (405)"),
        (Status(403, "Missing scopes: api.model.read"), "(403): Missing scopes: api.model.read"),
        (Status(200, body="<html>Welcome</html>"), "not a list of models"),
        (Status(200, body='{"models": 3}'), "not a list of models"),
        (Status(200, body='{"data": "none"}'), "not a list of models"),
        (Status(200, body="[" * 100_000), "not a list of models"),
        (Status(200, body='{"data": [{"id": 1' + "0" * 5_000 + "}]}"), "not a list of models"),
        (Status(200, body='{"data": [{"id": "a"}], "links": {"next": "/v1/models?offset=1"}}'), "longer than one page"),
    ],
)
async def test_a_server_without_such_a_list_is_reached_and_says_nothing(instead: Status, said: str) -> None:
    availability = await standing(Models("vllm", {}, instead=instead), "small", chat("openai"))
    assert isinstance(availability, NotReported)
    assert (said in availability.reply) if said else (availability.reply == "")


@pytest.mark.parametrize("size", ["many", -1, 0, True, None, 2.5, 10**9, pytest.param(10**400, id="huge")])
async def test_an_invalid_size_is_no_window(size: object) -> None:
    instead = Status(200, body=json.dumps({"data": [17, {"id": 3}, {"id": "small", "max_model_len": size}]}))
    assert await standing(Models("vllm", {}, instead=instead), "small", chat("openai")) == Available()


@pytest.mark.parametrize(
    ("models", "made", "api"),
    [
        (Models("vllm", {"small": 1}, key="another"), chat("openai"), "openai"),
        (Models("openrouter", {"small": 1}, key="another"), chat("openrouter"), "openai"),
        (Models("anthropic", {"small": 1}, key="another"), messages, "anthropic"),
        (Models("litellm", {"small": 1}, instead=Status(402, "Payment required")), chat("openai"), "openai"),
    ],
)
async def test_a_refused_key_is_reported_even_if_the_list_is_public(models: Models, made: Made, api: Api) -> None:
    with pytest.raises(ModelBarred) as caught:
        await standing(models, "small", made, api)
    assert KEY not in str(caught.value)
    assert caught.value.fix


async def test_a_list_that_is_larger_than_any_is_not_read_to_its_end() -> None:
    whole = json.dumps({"data": [{"id": "small"}, {"id": "x" * LARGEST_LIST}]})
    availability = await standing(Models("vllm", {}, instead=Status(200, body=whole)), "small", chat("openai"))
    assert isinstance(availability, NotReported)


async def test_a_service_that_points_elsewhere_is_not_followed_with_the_key() -> None:
    with FakeLanguageModel("openai", models=Models("vllm", {"small": 8_096})) as elsewhere:
        moved = Status(307, headers={"location": f"{elsewhere.base_url}/models"})
        with pytest.raises(ModelBarred, match="another address"):
            await standing(Models("vllm", {}, instead=moved), "small", chat("openai"))
        assert elsewhere.lookups == []


async def test_an_unreachable_service_is_reported() -> None:
    with FakeLanguageModel("openai") as service:
        address = service.base_url
    model = chat("ollama")("small", address)
    assert isinstance(model, ListsModels)
    try:
        with pytest.raises(ModelUnavailable, match="cannot be reached") as caught:
            await model.look_up()
    finally:
        await model.close()
    assert "OLLAMA_BASE_URL" in caught.value.fix


@pytest.mark.parametrize(
    ("models", "name", "availability"),
    [
        (Models("openai", {"ft:small:org::a1": 1}), "ft:small:org::a1", Available()),
        (Models("openai", {"small": 1}, retires={"small": "2027-02-01"}), "small", Available(until="2027-02-01")),
        (Models("anthropic", {"house": 400_000}), "house", Available(400_000, "", 64_000)),
    ],
)
async def test_the_vendor_is_asked_about_the_one_model(models: Models, name: str, availability: Availability) -> None:
    with FakeLanguageModel("openai", models=models) as service:
        async with at_home(service, name) as catalogue:
            assert await catalogue.look_up() == availability
        assert service.lookups == [f"/v1/models/{name}"]


async def test_a_model_that_the_vendor_does_not_know_is_refused() -> None:
    with FakeLanguageModel("openai", models=Models("openai", {"small": 1})) as service:
        async with at_home(service, "a/b") as catalogue:
            with pytest.raises(ModelBarred, match="does not know the model a/b"):
                await catalogue.look_up()
        assert service.lookups == ["/v1/models/a%2Fb"]


async def test_asking_goes_beside_a_question_on_the_same_client() -> None:
    with FakeLanguageModel("openai", Say("Hello."), models=Models("vllm", {"small": 9_000})) as service:
        model = chat("openai")("small", service.base_url)
        assert isinstance(model, ListsModels)
        assert (await complete(model, asking())).message.text == "Hello."
        assert await model.look_up() == Available(9_000)
        await model.close()


@asynccontextmanager
async def at_home(service: FakeLanguageModel, name: str) -> AsyncIterator[ListedModel]:
    """Yield a model whose service treats the address of the fake as the address of the vendor."""
    elsewhere = Service.for_model(OPENAI_HOME, service.base_url, vendor="OpenAI", prefix="OPENAI", model=name, key=KEY)
    home = replace(elsewhere, own_address=True)
    client = openai_client(home, "/chat/completions")
    protocol = WireFormat(lambda _request, _known: {}, openai_chat.ReplyDraft)
    try:
        yield ListedModel(ModelListPaths(), Capabilities(), client, protocol)
    finally:
        await client.close()
