"""Failures and cancellation of every language model of a service."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from bot.domain.completions import ModelEvent, ModelLimits, TextDelta, UsageReported
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant, tool_results, user
from bot.domain.tools import Tool
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable
from tests.fakes.llm import (
    Bytes,
    Call,
    Cut,
    ErrorEvent,
    FakeLanguageModel,
    Gate,
    HangUp,
    Hold,
    Linger,
    Raw,
    Reply,
    Say,
    Silence,
    Slow,
    Status,
)
from tests.fakes.mcp.certificates import self_signed
from tests.llm.conversation import EACH_PROVIDER, KEY, MODEL, Provider, asking, complete, events, next_seen, talking

pytestmark = EACH_PROVIDER


async def failure(provider: Provider, reply: Reply, limits: ModelLimits | None = None) -> ModelError:
    """Return the error that a reply ends with."""
    async with talking(provider, reply) as (model, _):
        with pytest.raises(ModelError) as caught:
            await events(model, replace(asking(), limits=limits or ModelLimits()))
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
    assert isinstance(error, ModelBarred)
    assert f"The operator has to check {provider.variables}_API_KEY" in error.fix
    for secret in (KEY, "sk-abc", "abcdef0123456789"):
        assert secret not in str(error)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("kind", ["authentication_error", "server_error", "rate_limit_error", ""])
async def test_a_denial_shows_no_address_and_never_asks_for_patience(
    provider: Provider, status: int, kind: str
) -> None:
    said = "No key at http://10.1.2.3:4000/v1, see https://platform.example/keys. Host 10.1.2.3 and 127.0.0.1:4000."
    error = await failure(provider, Status(status, said, kind))
    assert isinstance(error, ModelBarred)
    assert f"does not accept the key ({status}): No key at …, see …. Host … and …." in error.cause
    assert "127.0.0.1" not in str(error)
    assert "in a while" not in str(error)


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


async def test_the_message_of_the_service_is_quoted_in_one_bounded_line(provider: Provider) -> None:
    error = await failure(provider, Status(400, "no\r\n\x1b[31m" + "x" * 10_000))
    assert error.cause.isprintable()
    assert len(error.cause) < 500


@pytest.mark.parametrize("body", ["<html><h1>Bad gateway</h1></html>", "", "[1]", "null", '{"error": "busy"}'])
async def test_an_error_without_the_usual_body_is_still_reported(provider: Provider, body: str) -> None:
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


async def test_a_page_in_place_of_a_reply_points_to_the_address(provider: Provider) -> None:
    error = await failure(provider, Status(200, body="<html><h1>Welcome</h1></html>"))
    assert isinstance(error, ModelUnavailable)
    assert "not a reply" in error.cause
    assert f"{provider.variables}_BASE_URL" in error.fix


async def test_an_address_without_a_service_is_unavailable(provider: Provider) -> None:
    with FakeLanguageModel(provider.api) as service:
        address = service.base_url
    model = provider.create(address)
    with pytest.raises(ModelUnavailable, match="cannot be reached: connection refused") as caught:
        await events(model)
    await model.close()
    assert f"{provider.variables}_BASE_URL" in caught.value.fix


@pytest.mark.parametrize(
    "reply", [Silence(), Hold(Say("Rain."), Gate())], ids=["before the first byte", "within the stream"]
)
async def test_silence_is_unavailable(provider: Provider, reply: Reply) -> None:
    error = await failure(provider, reply, ModelLimits(first_seconds=0.1, idle_seconds=0.1))
    assert isinstance(error, ModelUnavailable)
    assert "sent nothing for 0.1 seconds" in error.cause


@pytest.mark.parametrize("reply", [Silence(), Slow(Say("Rain." * 99, pieces=99), 0.02)], ids=["silent", "slow"])
async def test_a_reply_that_takes_too_long_in_all_is_unavailable(provider: Provider, reply: Reply) -> None:
    error = await failure(provider, reply, ModelLimits(first_seconds=30, idle_seconds=30, total_seconds=0.2))
    assert isinstance(error, ModelUnavailable)
    assert "not finished within 0.2 seconds" in error.cause


@pytest.mark.parametrize(
    ("limits", "reply"),
    [
        (ModelLimits(first_seconds=0.1, idle_seconds=30), Silence()),
        (ModelLimits(first_seconds=30, idle_seconds=0.1), Hold(Say("Rain."), Gate())),
    ],
    ids=["the first byte", "the next byte"],
)
async def test_the_first_byte_has_a_limit_of_its_own(provider: Provider, limits: ModelLimits, reply: Reply) -> None:
    error = await failure(provider, reply, limits)
    assert "sent nothing for 0.1 seconds" in error.cause


@pytest.mark.parametrize(
    ("limits", "reply", "setting"),
    [
        (ModelLimits(first_seconds=0.1), Silence(), "MODEL_FIRST_TIMEOUT"),
        (ModelLimits(idle_seconds=0.1), Hold(Say("Rain."), Gate()), "MODEL_IDLE_TIMEOUT"),
        (ModelLimits(total_seconds=0.1), Hold(Say("Rain."), Gate()), "MODEL_TOTAL_TIMEOUT"),
    ],
    ids=["first", "idle", "total"],
)
async def test_a_time_limit_names_its_setting(
    provider: Provider, limits: ModelLimits, reply: Reply, setting: str
) -> None:
    assert setting in (await failure(provider, reply, limits)).fix


async def test_comments_and_empty_events_are_no_first_piece(provider: Provider) -> None:
    pings = Bytes(
        (b": processing\n\n",) * 2 + (b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n',), ends=False
    )
    error = await failure(provider, pings, ModelLimits(first_seconds=0.2, idle_seconds=30))
    assert "sent nothing for 0.2 seconds" in error.cause


@pytest.mark.parametrize("hangs_up", [True, False], ids=["cut", "never ended"])
async def test_an_error_after_the_end_of_a_reply_is_ignored(provider: Provider, hangs_up: bool) -> None:
    async with talking(provider, Linger(Say("Rain."), hangs_up=hangs_up)) as (model, _):
        request = replace(asking(), limits=ModelLimits(first_seconds=5, idle_seconds=0.1))
        assert (await complete(model, request)).message.text == "Rain."


async def test_a_connection_serves_one_reply_after_the_other(provider: Provider) -> None:
    async with talking(provider, Say("One."), Say("Two.")) as (model, service):
        await complete(model)
        await complete(model)
        assert service.connections == 1


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (Status(529, "Overloaded", "overloaded_error"), ModelUnavailable, "is overloaded (529)"),
        (Status(429, "You exceeded your current quota.", "insufficient_quota"), ModelBarred, "paid first"),
        (Status(400, "Your credit balance is too low.", "invalid_request_error"), ModelBarred, "paid first"),
        (Status(400, "prompt is too long: 9 tokens > 8 maximum"), ContextTooLong, "cannot read that much"),
        (Status(400, "This model's maximum context length is 8 tokens."), ContextTooLong, "cannot read that much"),
        (Status(400, "Your input exceeds the context window of this model."), ContextTooLong, "that much"),
        (Status(413, "Request exceeds the maximum size", "request_too_large"), ContextTooLong, "that much"),
        (Status(429, "Request too large for m on tokens per min (TPM)."), ContextTooLong, "that much"),
        (
            Status(400, "Output blocked by content filtering policy", code="content_filter"),
            ModelRejected,
            "this content",
        ),
        (Status(404, "The model `m` does not exist", "invalid_request_error", "model_not_found"), ModelBarred, MODEL),
    ],
    ids=lambda value: value.message[:24] if isinstance(value, Status) else None,
)
async def test_each_failure_is_told_in_one_line_of_its_kind(
    provider: Provider, reply: Status, kind: type[ModelError], said: str
) -> None:
    error = await failure(provider, reply)
    assert type(error) is kind
    assert said in error.cause
    assert "\n" not in str(error)
    assert error.fix


async def test_a_service_behind_tls_is_asked_if_its_certificate_is_trusted(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = self_signed(tmp_path)
    with FakeLanguageModel(provider.api, Say("Hi."), tls=tls) as service:
        stranger = provider.create(service.base_url)
        with pytest.raises(ModelUnavailable, match="cannot be reached: its certificate is not trusted"):
            await events(stranger)
        await stranger.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        model = provider.create(service.base_url)
        assert (await complete(model)).message.text == "Hi."
        await model.close()


# Retries without a rejected feature


async def test_a_model_without_tools_answers_without_them(provider: Provider) -> None:
    refusal = Status(400, "registry.example/library/small does not support tools", "invalid_request_error")
    tool = Tool("clock__now", "clock", "now", input_schema={})
    called = assistant("", ToolCall("c", "clock__now", {"zone": "UTC"}))
    transcript = (user("Time?"), called, tool_results(ToolResult("c", (TextPart("noon"),))))
    async with talking(provider, refusal, Say("Hi."), Say("Noon.")) as (model, service):
        assert (await complete(model, asking(tools=(tool,)))).message.text == "Hi."
        assert not model.capabilities.tools
        assert (await complete(model, asking(*transcript, tools=(tool,)))).message.text == "Noon."
        assert service.refusals == []
        assert [bool(request.tool_names) for request in service.requests] == [True, False, False]
        sent = json.dumps(service.requests[2].body)
        assert "tool_use" not in sent
        assert "function_call" not in sent
        assert "noon" in sent


async def test_reasoning_that_the_service_cannot_read_any_more_is_left_out(provider: Provider) -> None:
    refusal = Status(400, "messages.1.content.0: Invalid `signature` in `thinking` block", "invalid_request_error")
    async with talking(provider, Say("Yes.", thinking="Secretly, no."), refusal, Say("Fine.")) as (model, service):
        reply = (await complete(model)).message
        again = asking(user("?"), replace(reply, provider_metadata={**reply.provider_metadata, "x": 1}), user("Sure?"))
        assert (await complete(model, again)).message.text == "Fine."
        assert "reasoning" not in str([item.get("type") for item in service.requests[2].messages])
        assert "signature" not in json.dumps(service.requests[2].body)


async def test_a_service_that_refuses_everything_is_not_asked_for_ever(provider: Provider) -> None:
    def refuse(_request: object) -> Status:
        return Status(400, "The encrypted content could not be verified; max_tokens is not supported")

    async with talking(provider, rule=refuse) as (model, service):
        with pytest.raises(ModelRejected):
            await events(model)
        assert len(service.requests) <= 3


# Causes of errors


async def test_vendor_errors_are_kept_as_causes(provider: Provider) -> None:
    error = await failure(provider, Status(500))
    assert error.__cause__ is not None
    assert type(error.__cause__).__module__.split(".")[0] == provider.variables.lower()


# Cancellation


async def test_cancelling_hangs_up(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say("Rain."), gate), Say("Again.")) as (model, service):
        task = asyncio.create_task(events(model))
        await asyncio.wait_for(asyncio.wrap_future(gate.reached), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(asyncio.wrap_future(service.requests[0].gone), 30)
        assert (await complete(model)).message.text == "Again."


async def until_it_failed(provider: Provider, reply: Reply) -> list[ModelEvent]:
    """Return the events of a reply before its failure."""
    seen: list[ModelEvent] = []
    async with talking(provider, reply) as (model, _), aclosing(model.stream(asking())) as stream:
        try:
            async for event in stream:
                seen.append(event)  # noqa: PERF401 - what came before the error counts
        except ModelError:
            return seen
    pytest.fail("the reply did not break off")


async def test_of_a_reply_that_breaks_off_it_is_known_that_it_had_begun(provider: Provider) -> None:
    for reply in (
        Cut(Say("Rain.")),
        Cut(Say(calls=(Call("look"),))),
        ErrorEvent("overloaded_error", reply=Say("Rain.")),
    ):
        assert isinstance((await until_it_failed(provider, reply))[0], UsageReported)


async def test_of_a_request_that_is_refused_nothing_has_begun(provider: Provider) -> None:
    nothing = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    for reply in (Status(429), HangUp(), Raw((nothing,)), Bytes((b"<html>Welcome.</html>",))):
        assert await until_it_failed(provider, reply) == []


async def test_closing_the_iterator_hangs_up(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say("Rain.", pieces=1), gate)) as (model, service):
        stream = model.stream(asking())
        assert await next_seen(stream) == TextDelta("Rain.")
        await stream.aclose()
        await asyncio.wait_for(asyncio.wrap_future(service.requests[0].gone), 30)


async def test_time_that_the_reader_takes_is_not_cut_into_by_a_timeout(provider: Provider) -> None:
    """A timeout that spans a `yield` would cancel the reader's own work."""
    async with talking(provider, Hold(Say("Rain.", pieces=1), Gate())) as (model, _):
        stream = model.stream(replace(asking(), limits=ModelLimits(total_seconds=0.2)))
        assert await next_seen(stream) == TextDelta("Rain.")
        with pytest.raises(TimeoutError):  # the reader's own, longer than the model's
            await asyncio.wait_for(asyncio.Event().wait(), 0.4)
        with pytest.raises(ModelUnavailable, match="not finished within"):
            await anext(stream)
