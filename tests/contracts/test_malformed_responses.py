"""Responses of broken, incompatible or hostile model services, read by each implementation."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.completions import Completion, ModelLimits, ModelRequest, ReasoningDelta, StopReason, TextDelta
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, TextPart, assistant, user
from bot.domain.tools import Tool
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable
from bot.llm import hosted_model
from tests.fakes import llm_anthropic, llm_openai, llm_responses
from tests.fakes.llm import Bytes, Call, FakeLanguageModel, Gate, HangUp, Hold, Raw, Reply, Request, Say, Slow, Status
from tests.llm.conversation import EACH_PROVIDER, KEY, Provider, asking, complete, events, next_seen, talking

pytestmark = EACH_PROVIDER

PROTOCOLS = {"openai": llm_openai, "responses": llm_responses, "anthropic": llm_anthropic}
WHOLE = Say("Räin. 🌧", (Call("look", {"city": "Malmö 🌧"}),), thinking="Hm, 日本.", pieces=4)
PNG = b"\x89PNG\r\n\x1a\n"
TOOL = Tool("look", "s", "look", input_schema={})


def stream_of(provider: Provider, say: Say) -> bytes:
    """Return a whole reply as the service streams it."""
    body = {"model": "m", "stream_options": {"include_usage": True}}
    frames = PROTOCOLS[provider.api].frames(say, Request(provider.api, "", {}, body), 1)
    return b"".join(frames.whole)


def cut_up(stream: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(stream[n : n + size] for n in range(0, len(stream), size))


async def failure(provider: Provider, *replies: Reply, request: ModelRequest | None = None) -> ModelError:
    """Return the error that a request ends with."""
    async with talking(provider, *replies) as (model, _):
        with pytest.raises(ModelError) as caught:
            await events(model, request)
        return caught.value


def completion_parts(completion: Completion) -> tuple[str, list[Mapping[str, Any]], StopReason]:
    calls = [call.arguments for call in completion.message.tool_calls]
    return completion.message.text, calls, completion.stop


# The stream


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "written",
    [
        lambda stream: stream.replace(b"\n", b"\r\n"),
        lambda stream: stream.replace(b"\n", b"\r"),
        lambda stream: b"\xef\xbb\xbf" + stream,
        lambda stream: stream.replace(b"data: ", b"data:"),
        lambda stream: b": ping\n\n" + stream.replace(b"data:", b"id: 7\nretry: 9\n: ping\ndata:"),
        lambda stream: stream.replace(b"data: {", b"data: {\ndata: "),
        lambda stream: stream.rstrip(b"\n"),
        lambda stream: stream.replace(b"data: [DONE]\n\n", b""),
        lambda stream: re.sub(rb"(?m)^event: .*\n", b"", stream),
        lambda stream: b"".join(b"data: " + line + b"\n\n" for line in re.findall(rb"(?m)^data: (.*)$", stream)),
    ],
    ids=["CRLF", "CR", "mark", "no space", "comments", "lines", "no end", "no DONE", "no names", "data alone"],
)
async def test_a_stream_may_be_written_in_many_ways(provider: Provider, written: Any, size: int) -> None:
    stream = written(stream_of(provider, WHOLE))
    async with talking(provider, Bytes(cut_up(stream, size))) as (model, _):
        *deltas, last = await events(model)
    assert isinstance(last, Completion)
    assert completion_parts(last) == ("Räin. 🌧", [{"city": "Malmö 🌧"}], StopReason.TOOLS)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "Hm, 日本."
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Räin. 🌧"


async def test_a_stream_that_is_compressed_against_our_wish_is_read(provider: Provider) -> None:
    pieces = cut_up(gzip.compress(stream_of(provider, WHOLE)), 100)
    async with talking(provider, Bytes(pieces, headers={"content-encoding": "gzip"})) as (model, service):
        assert (await complete(model)).message.text == "Räin. 🌧"
        assert service.requests[0].headers["accept-encoding"] == "identity"


async def test_a_piece_of_ten_megabytes_is_read(provider: Provider) -> None:
    text = "word " * 2**21
    async with talking(provider, Bytes((stream_of(provider, Say(text, pieces=1)),))) as (model, _):
        assert (await complete(model)).message.text == text


async def test_words_are_there_as_soon_as_their_bytes_are(provider: Provider) -> None:
    whole = stream_of(provider, Say("Rain.", pieces=1))
    begun = whole[: whole.index(b"\n\n", whole.index(b"Rain.")) + 2]
    async with talking(provider, Bytes((begun,), ends=False)) as (model, _), aclosing(model.stream(asking())) as stream:
        assert await asyncio.wait_for(next_seen(stream), 30) == TextDelta("Rain.")


async def test_an_error_in_place_of_a_stream_is_reported(provider: Provider) -> None:
    body = json.dumps({"error": {"message": "prompt is too long: 9 > 8", "type": "invalid_request_error"}}, indent=2)
    error = await failure(provider, Bytes((body.encode(),), headers={"content-type": "application/json"}))
    assert type(error) is ContextTooLong


async def test_an_error_event_without_a_type_is_reported(provider: Provider) -> None:
    body = json.dumps({"error": {"message": "So it is.", "code": "429"}})
    error = await failure(provider, Bytes((b"data: " + body.encode() + b"\n\n",)))
    assert isinstance(error, ModelUnavailable)
    assert "asked too much (429): So it is." in error.cause


async def test_an_event_that_is_called_an_error_is_one(provider: Provider) -> None:
    error = await failure(provider, Bytes((b'event: error\ndata: {"message": "So it is."}\n\n',)))
    assert "So it is." in error.cause


async def test_an_error_after_the_end_of_a_reply_costs_nothing(provider: Provider) -> None:
    stream = stream_of(provider, Say("Rain.")).replace(b"data: [DONE]\n\n", b"")
    late = b'data: {"type": "error", "error": {"type": "invalid_request_error", "message": "Too late."}}\n\n'
    async with talking(provider, Bytes((stream, late))) as (model, _):
        assert (await complete(model)).message.text == "Rain."


async def test_a_code_of_any_length_is_no_status(provider: Provider) -> None:
    body = json.dumps({"type": "error", "error": {"message": "So it is.", "code": "0429" + "0" * 9_000}})
    assert isinstance(await failure(provider, Bytes((b"data: " + body.encode() + b"\n\n",))), ModelUnavailable)


# The answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_neither_key_nor_conversation_goes_where_a_service_points(provider: Provider, status: int) -> None:
    with FakeLanguageModel(provider.api, rule=lambda _request: Say("Mine now.")) as other:
        place = f"{other.base_url}{PROTOCOLS[provider.api].PATH}"
        error = await failure(provider, Status(status, headers={"location": place}))
    assert other.requests == []
    assert isinstance(error, ModelBarred)
    assert "points to another address" in error.cause
    assert f"{provider.variables}_BASE_URL" in error.fix


async def test_a_service_that_hangs_up_is_told_from_one_that_is_away(provider: Provider) -> None:
    error = await failure(provider, HangUp())
    assert isinstance(error, ModelUnavailable)
    assert "hung up before it answered" in error.cause


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 99_999 + b"\r\n\r\n"]
)
async def test_a_response_that_is_no_http_is_no_answer(provider: Provider, answer: bytes) -> None:
    gone = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = provider.create(f"http://127.0.0.1:{port}/v1")
        with pytest.raises(ModelUnavailable):
            await events(model)
        await asyncio.wait_for(gone.wait(), 30)
        await model.close()


@pytest.mark.parametrize("charset", ["hex", "undefined", "nonsense", "utf-16"])
async def test_an_error_in_an_unknown_encoding_is_reported(provider: Provider, charset: str) -> None:
    headers = {"content-type": f"application/json; charset={charset}"}
    error = await failure(provider, Status(400, "prompt is too long", headers=headers))
    assert type(error) is ContextTooLong


async def test_an_endless_error_is_reported(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_model, "ERROR_SECONDS", 0.1)
    error = await failure(provider, Bytes((b'{"error": {"mess',), status=401, ends=False))
    assert isinstance(error, ModelBarred)
    assert "does not accept the key (401)" in error.cause


async def test_of_an_error_of_any_size_the_beginning_is_read(provider: Provider) -> None:
    words = b'{"error": {"message": "prompt is too long: ' + b"x" * 2**23
    async with talking(provider, Bytes(cut_up(words, 2**20), status=400, ends=False), Say("Hi.")) as (model, service):
        with pytest.raises(ContextTooLong):
            await events(model)
        await asyncio.wait_for(asyncio.wrap_future(service.requests[0].gone), 30)
        assert (await complete(model)).message.text == "Hi."


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Incorrect API key provided: {key}", "Incorrect"),
        ("Incorrect API key provided: {head}********", "Incorrect"),
        ("Incorrect API key ends with {tail}.", "ends with"),
        ("headers: {{'authorization': 'Bearer {key}', 'x-api-key': '{key}'}}", "authorization"),
    ],
)
@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_no_part_of_the_key_is_shown(provider: Provider, status: int, said: str, kept: str) -> None:
    message = said.format(key=KEY, head=KEY[:12], tail=KEY[-10:])
    body = json.dumps({"error": {"message": message}}).encode()
    error = await failure(provider, Bytes((body,), status=status, headers={"content-type": "application/json"}))
    shown = f"{error} {error!r}"
    assert kept in shown
    assert not any(KEY[n : n + 8] in shown for n in range(len(KEY) - 8))


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ("1e9", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("nan", None),
        ("Fri, 31 Dec 1999 23:59:59 +99999999999999999999", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("-1", None),
        ("", None),
    ],
)
async def test_an_absurd_wait_is_bounded_or_ignored(provider: Provider, wait: str, seconds: float | None) -> None:
    error = await failure(provider, Status(429, headers={"retry-after": wait}))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == seconds


# Time


async def test_a_model_that_thinks_before_its_first_word_has_the_time_of_the_first_byte(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say(""), gate)) as (model, _):
        limits = ModelLimits(first_seconds=5, idle_seconds=0.05)
        reading = asyncio.create_task(complete(model, replace(asking(), limits=limits)))
        await asyncio.wait_for(asyncio.wrap_future(gate.reached), 30)
        done, _pending = await asyncio.wait({reading}, timeout=0.3)
        assert not done
        gate.open()
        assert (await asyncio.wait_for(reading, 30)).message.text == ""


async def test_pings_do_not_keep_a_reply_going_for_ever(provider: Provider) -> None:
    pings = Bytes((b": ping\n\n",) * 3, ends=False)
    async with talking(provider, pings) as (model, _):
        with pytest.raises(ModelUnavailable, match=r"not finished within 0\.2 seconds"):
            await events(model, replace(asking(), limits=ModelLimits(total_seconds=0.2)))


# Tokens


@pytest.mark.parametrize("count", [-5, 1.5e300, 10**30, "7", [7], True, None, {"a": 1}])
async def test_an_absurd_count_is_none(provider: Provider, count: Any) -> None:
    stream = stream_of(provider, Say("Rain."))
    stream = re.sub(
        rb'("(?:\w+_tokens|cached_tokens)": )\d+', lambda found: found[1] + json.dumps(count).encode(), stream
    )
    async with talking(provider, Bytes((stream,))) as (model, _):
        usage = (await complete(model)).usage
    assert usage == type(usage)()


async def test_a_count_with_a_fraction_is_taken_without_it(provider: Provider) -> None:
    stream = stream_of(provider, Say("Rain.")).replace(b'_tokens": 25', b'_tokens": 25.0')
    async with talking(provider, Bytes((stream,))) as (model, _):
        assert (await complete(model)).usage.input_tokens == 25


# Calls


@pytest.mark.parametrize(
    ("arguments", "understood"),
    [
        ('{"n": 1, "n": 2}', False),
        ('{"deep": [{"n": 1, "n": 1}]}', False),
        ('{"n": 123456789012345678901234567890}', True),
        ('{"n": ' + "9" * 5_000 + "}", False),
        ('{"n": -Infinity}', False),
        ('{"' + "a" * 100_000 + '": 1}', True),
        ('{"n": 1} {"n": 2}', False),
        ("\ufeff{}", False),
    ],
    ids=["twice", "twice within", "large", "too large", "infinite", "long name", "two objects", "mark"],
)
async def test_arguments_that_can_be_read_in_two_ways_are_not_read(
    provider: Provider, arguments: str, understood: bool
) -> None:
    async with talking(provider, Say(calls=(Call("look", arguments),))) as (model, _):
        (call,) = (await complete(model)).message.tool_calls
    assert bool(call.unreadable) is not understood
    assert bool(call.arguments) is understood


async def test_names_and_ids_of_any_length_are_cut(provider: Provider) -> None:
    calls = (Call("x" * 10_000, id="y" * 10_000), Call("x" * 10_000, id="y" * 10_000 + "z"))
    async with talking(provider, Say(calls=calls), Say("Sorry.")) as (model, _):
        made = (await complete(model)).message.tool_calls
    assert all(len(call.name) <= 200 and len(call.id) <= 200 for call in made)
    assert made[0].id != made[1].id


# Retries without a rejected feature


IMAGE = Message(MessageRole.USER, (TextPart("What is this?"), ImagePart(PNG, "image/png", "cat.png")))
PDF = Message(MessageRole.USER, (TextPart("And this?"), FilePart(b"%PDF-", "application/pdf", "plan.pdf")))


@pytest.mark.parametrize(
    "refusal",
    [
        Status(400, "Could not process image", "invalid_request_error"),
        Status(400, "messages.0.content.1.image.source.base64.data: image exceeds 5 MB maximum: 9 bytes > 8 bytes"),
        Status(400, "You uploaded an unsupported image.", "invalid_request_error", "image_parse_error"),
    ],
    ids=lambda refusal: refusal.message[:20],
)
async def test_a_service_that_cannot_read_one_image_gets_its_name(provider: Provider, refusal: Status) -> None:
    async with talking(provider, refusal, Say("A cat?"), refusal) as (model, service):
        object.__setattr__(model, "_capabilities", replace(model.capabilities, images=True, documents=True))
        assert (await complete(model, asking(IMAGE, PDF))).message.text == "A cat?"
        assert model.capabilities.images
        sent = json.dumps(service.requests[1].body)
        assert "[image: cat.png]" in sent
        assert "plan.pdf" in sent
        assert "base64" not in sent
        with pytest.raises(ModelError):
            await events(model, asking(user("Nothing attached.")))


async def test_a_quotation_does_not_take_the_tools_away(provider: Provider) -> None:
    quoting = Status(400, "Invalid input: 'my registry.example/library/small does not support tools, does it?'")
    async with talking(provider, quoting, quoting, Say("Hi.")) as (model, service):
        with pytest.raises(ModelRejected):
            await events(model, asking(tools=(TOOL,)))
        assert model.capabilities.tools
        await complete(model, asking(tools=(TOOL,)))
        assert service.requests[2].tool_names == ("look",)


async def test_private_values_of_one_service_are_not_sent_to_another(provider: Provider) -> None:
    async with talking(provider, Say("Yes.", (Call("look"),), thinking="Secretly, no.")) as (model, _):
        reply = (await complete(model)).message
    assert reply.provider_metadata
    transcript = asking(user("?"), assistant("Before."), user("??"), replace(reply, parts=reply.parts[:1]))
    async with talking(provider, Say("Fine.")) as (model, service):
        await complete(model, transcript)
        sent = json.dumps(service.requests[0].body)
    assert "Secretly" not in sent
    assert 'encrypted_content":' not in sent
    assert "signature" not in sent


# Cancellation


@pytest.mark.parametrize(
    "reply",
    [
        Slow(Say("Rain." * 99, (Call("look"),), thinking="Hm." * 99, pieces=99), 0.001),
        Bytes((b'{"error"',), status=500, ends=False),
        Bytes((b": ping\n\n",), ends=False),
    ],
    ids=["within the stream", "within an error", "before the first word"],
)
async def test_cancelling_at_any_moment_hangs_up(provider: Provider, reply: Reply) -> None:
    for rounds in (0, 1, 2, 4, 7, 11):
        async with talking(provider, reply, Say("Again.")) as (model, service):
            task = asyncio.create_task(events(model))
            for _ in range(rounds * rounds):
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                while rounds % 2 and not service.requests:
                    await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for request in service.requests:
                await asyncio.wait_for(asyncio.wrap_future(request.gone), 30)
            if service.requests:
                assert (await complete(model)).message.text == "Again."


async def test_an_event_of_any_shape_is_passed_over_or_an_error(provider: Provider) -> None:
    odd: tuple[Any, ...] = ({"type": {}}, {"error": 0}, {"choices": [[]]}, {"type": "message", "content": [7]})
    async with talking(provider, Raw(tuple(json.dumps(each) for each in odd))) as (model, _):
        with pytest.raises(ModelUnavailable):
            await events(model)
