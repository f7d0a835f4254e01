"""How every language model fails, and how it lets go: asked of each implementation that talks to a service."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from bot.domain.completions import Limits, TextDelta
from bot.errors import ModelError, ModelRejected, ModelUnavailable
from tests.fakes.llm import (
    Call,
    Cut,
    ErrorEvent,
    FakeLanguageModel,
    Gate,
    Hold,
    Raw,
    Reply,
    Say,
    Silence,
    Slow,
    Status,
)
from tests.llm.conversation import EACH_PROVIDER, KEY, MODEL, Provider, asking, complete, events, talking

pytestmark = EACH_PROVIDER


async def failure(provider: Provider, reply: Reply, limits: Limits | None = None) -> ModelError:
    """How a reply fails."""
    async with talking(provider, reply) as (model, _):
        with pytest.raises(ModelError) as caught:
            await events(model, replace(asking(), limits=limits or Limits()))
        return caught.value


@pytest.mark.parametrize("politely", [True, False], ids=["closed", "dropped"])
@pytest.mark.parametrize(
    "reply", [Say("Rai"), Say(calls=(Call("clock__now"),)), Say("")], ids=["text", "call", "empty"]
)
async def test_a_cut_stream_is_unavailable_not_an_answer(provider: Provider, reply: Say, politely: bool) -> None:
    error = await failure(provider, Cut(reply, politely=politely))
    assert isinstance(error, ModelUnavailable)
    assert "cut off" in error.cause


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_trouble_that_passes_is_unavailable(provider: Provider, status: int) -> None:
    error = await failure(provider, Status(status, "Try later."))
    assert isinstance(error, ModelUnavailable)
    assert str(status) in error.cause
    assert "Try later." in error.cause
    assert error.retry_after is None


async def test_the_client_does_not_try_again_by_itself(provider: Provider) -> None:
    async with talking(provider, Status(503), Say("Never asked.")) as (model, service):
        with pytest.raises(ModelUnavailable):
            await events(model)
        assert len(service.requests) == 1
        assert (await complete(model)).message.text == "Never asked."


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
async def test_the_wait_the_service_asks_for_is_passed_on(
    provider: Provider, headers: dict[str, str], seconds: float | None
) -> None:
    error = await failure(provider, Status(429, headers=headers))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == seconds


async def test_the_wait_may_be_a_date(provider: Provider) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    error = await failure(provider, Status(429, headers={"retry-after": at}))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after is not None
    assert 50 < error.retry_after <= 60


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_names_its_variable_and_never_the_key(provider: Provider, status: int) -> None:
    message = f"Incorrect API key provided: {KEY}. Also not: sk-abc***xyz9, Bearer abcdef0123456789."
    error = await failure(provider, Status(status, message, "authentication_error"))
    assert isinstance(error, ModelRejected)
    assert f"{provider.variables}_API_KEY" in error.fix
    for secret in (KEY, "sk-abc", "abcdef0123456789"):
        assert secret not in str(error)


async def test_an_unknown_model_points_to_its_setting(provider: Provider) -> None:
    error = await failure(provider, Status(404, "The model does not exist.", "not_found_error"))
    assert isinstance(error, ModelRejected)
    assert MODEL in error.cause
    assert "BOT_MODEL" in error.fix


@pytest.mark.parametrize("status", [400, 402, 413, 422])
async def test_a_refused_request_says_why(provider: Provider, status: int) -> None:
    error = await failure(provider, Status(status, "prompt is too long:\n  210000 tokens > 200000 maximum"))
    assert isinstance(error, ModelRejected)
    assert "prompt is too long: 210000 tokens > 200000 maximum" in error.cause


async def test_what_the_service_says_is_quoted_in_one_bounded_line(provider: Provider) -> None:
    error = await failure(provider, Status(400, "no\r\n\x1b[31m" + "x" * 10_000))
    assert error.cause.isprintable()
    assert len(error.cause) < 500


@pytest.mark.parametrize("body", ["<html><h1>Bad gateway</h1></html>", "", "[1]", "null", '{"error": "busy"}'])
async def test_an_error_without_the_usual_body_is_still_told(provider: Provider, body: str) -> None:
    error = await failure(provider, Status(502, body=body))
    assert isinstance(error, ModelUnavailable)
    assert "502" in error.cause
    assert "<" not in error.cause


@pytest.mark.parametrize(
    ("kind", "rejected"),
    [
        ("overloaded_error", False),
        ("api_error", False),
        ("rate_limit_error", False),
        ("something_new", False),
        ("invalid_request_error", True),
    ],
)
@pytest.mark.parametrize("said", [Say(), Say("Rai")], ids=["at once", "within the text"])
async def test_an_error_event_is_no_answer(provider: Provider, kind: str, rejected: bool, said: Say) -> None:
    error = await failure(provider, ErrorEvent(kind, "So it is.", said))
    assert isinstance(error, ModelRejected if rejected else ModelUnavailable)
    assert "So it is." in error.cause


@pytest.mark.parametrize("event", ["{", "<html>", "\x00", "[" * 100_000], ids=lambda event: event[:6])
async def test_an_event_that_is_no_json_is_unavailable(provider: Provider, event: str) -> None:
    assert isinstance(await failure(provider, Raw((event,))), ModelUnavailable)


@pytest.mark.parametrize("event", ["[]", "7", "null", '"text"', "{}"])
async def test_an_event_of_an_unknown_shape_is_passed_over(provider: Provider, event: str) -> None:
    error = await failure(provider, Raw((event,)))
    assert isinstance(error, ModelUnavailable)
    assert "cut off" in error.cause


async def test_nobody_at_the_address_is_unavailable(provider: Provider) -> None:
    with FakeLanguageModel(provider.api) as service:
        address = service.base_url
    model = provider.create(address)
    with pytest.raises(ModelUnavailable, match="cannot be reached") as caught:
        await events(model)
    await model.close()
    assert f"{provider.variables}_BASE_URL" in caught.value.fix


@pytest.mark.parametrize(
    "reply", [Silence(), Hold(Say("Rain."), Gate())], ids=["before the first byte", "within the stream"]
)
async def test_silence_is_unavailable(provider: Provider, reply: Reply) -> None:
    error = await failure(provider, reply, Limits(idle_seconds=0.1))
    assert isinstance(error, ModelUnavailable)
    assert "sent nothing for 0.1 seconds" in error.cause


@pytest.mark.parametrize("reply", [Silence(), Slow(Say("Rain." * 99, pieces=99), 0.02)], ids=["silent", "slow"])
async def test_a_reply_that_takes_too_long_in_all_is_unavailable(provider: Provider, reply: Reply) -> None:
    error = await failure(provider, reply, Limits(idle_seconds=30, total_seconds=0.2))
    assert isinstance(error, ModelUnavailable)
    assert "not finished within 0.2 seconds" in error.cause


async def test_vendor_errors_are_kept_as_causes(provider: Provider) -> None:
    error = await failure(provider, Status(500))
    assert error.__cause__ is not None
    assert type(error.__cause__).__module__.split(".")[0] == provider.api


# Letting go


async def test_cancelling_hangs_up(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say("Rain."), gate), Say("Again.")) as (model, service):
        task = asyncio.create_task(events(model))
        await asyncio.wait_for(asyncio.wrap_future(gate.reached), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(asyncio.wrap_future(service.requests[0].gone), 5)
        assert (await complete(model)).message.text == "Again."


async def test_closing_the_iterator_hangs_up(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say("Rain.", pieces=1), gate)) as (model, service):
        stream = model.stream(asking())
        assert await anext(stream) == TextDelta("Rain.")
        await stream.aclose()
        await asyncio.wait_for(asyncio.wrap_future(service.requests[0].gone), 5)


async def test_time_that_the_reader_takes_is_not_cut_into_by_a_timeout(provider: Provider) -> None:
    """A timeout that spans a `yield` would cancel whatever the reader does."""
    async with talking(provider, Hold(Say("Rain.", pieces=1), Gate())) as (model, _):
        stream = model.stream(replace(asking(), limits=Limits(total_seconds=0.2)))
        assert await anext(stream) == TextDelta("Rain.")
        with pytest.raises(TimeoutError):  # the reader's own, longer than the model's
            await asyncio.wait_for(asyncio.Event().wait(), 0.4)
        with pytest.raises(ModelUnavailable, match="not finished within"):
            await anext(stream)
