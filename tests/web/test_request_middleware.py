"""Middleware of every route: ids, log lines, headers, bodies, methods, errors, disconnects, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, SecretStr
from starlette.responses import StreamingResponse

from bot.admin.command import CommandRejected, ForbiddenRejection, NotFoundRejection
from bot.domain.lenient_json import DEEPEST
from bot.errors import (
    Conflict,
    CountersignError,
    DatabaseError,
    DatabaseUnavailable,
    ModelUnavailable,
    NotFound,
    SecretUnavailable,
    ServerTrouble,
    SettingsError,
)
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem
from bot.web.server import serve
from tests.fakes.parts import until
from tests.web.minimal_api import OPERATORS, client_of, serve_routes, small_application

LIMIT = 60.0


class Note(BaseModel, extra="forbid"):
    text: str
    number: int = 0
    secret: SecretStr = SecretStr("")


@dataclass
class FakeRuntime:
    """Routes, and a record of their requests."""

    trouble: Exception | None = None
    notes: list[Note] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def router(self) -> APIRouter:
        router = APIRouter()

        @router.get("/api/notes/{name}")
        async def show(_caller: MemberCaller, name: str, most: int = 1) -> dict[str, str]:
            if self.trouble is not None:
                raise self.trouble
            return {"name": name}

        @router.put("/api/notes/{name}")
        async def change(_caller: MemberCaller, name: str, note: Note) -> None:
            self.notes.append(note)

        @router.post("/api/long")
        async def long(_caller: MemberCaller) -> str:
            self.begun.set()
            try:
                await self.go_on.wait()
            finally:
                self.ended.set()
            return "done"

        async def tidy_up() -> None:
            await self.go_on.wait()
            self.ended.set()

        @router.get("/api/tidy")
        async def tidy(_caller: MemberCaller, background: BackgroundTasks) -> str:
            background.add_task(tidy_up)
            return "done"

        inner = APIRouter()

        @inner.get("/inner/{name}")
        async def inside(_caller: MemberCaller, name: str) -> str:
            return name

        router.include_router(inner, prefix="/api/outer")

        @router.get("/api/events")
        async def events(_caller: MemberCaller) -> StreamingResponse:
            return StreamingResponse(self._events(), media_type="text/event-stream")

        return router

    async def _events(self) -> AsyncIterator[str]:
        try:
            yield "data: first\n\n"
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
async def client(runtime: FakeRuntime) -> AsyncIterator[httpx2.AsyncClient]:
    async with serve_routes(runtime.router()) as client:
        yield client


def error(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert set(said) == {"error", "requestId"}
    assert set(said["error"]) == {"code", "message", "fix", "fields"}
    assert said["requestId"] == answer.headers["x-request-id"]
    found: dict[str, Any] = said["error"]
    return found


def access_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bot.web.access"]


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(LIMIT):
        await event.wait()


async def test_a_request_has_an_id_in_its_answer_and_in_the_log(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    given = await client.get("/api/notes/secret-name?most=2", headers={"X-Request-Id": "deploy-7.a"})
    assert given.headers["x-request-id"] == "deploy-7.a"
    made = [(await client.get("/api/notes/a")).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for strange in ("a b", "x" * 65, "<script>"):
        answer = await client.get("/api/notes/a", headers={"X-Request-Id": strange})
        assert answer.headers["x-request-id"] not in (strange, "")
    # The line is written after the response is sent.
    await until(lambda: len(access_lines(caplog)) == 6)
    lines = access_lines(caplog)
    assert lines[0].startswith("GET /api/notes/{name} 200 ")
    assert lines[0].endswith(" ms caller=admin")
    for hidden in ("secret-name", "most", OPERATORS):
        assert hidden not in "\n".join(lines)
    # uvicorn's own lines would contain all of these, but they reach no handler.
    assert not logging.getLogger("uvicorn.access").propagate


async def test_the_log_names_the_whole_route_of_a_router_in_a_router_and_none_that_is_unknown(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await client.get("/api/outer/inner/secret-name")
    await client.get("/api/secret-name")
    await until(lambda: len(access_lines(caplog)) == 2)
    assert [line.rsplit(" ", 3)[0] for line in access_lines(caplog)] == ["GET /api/outer/inner/{name} 200", "GET - 404"]


async def test_probes_and_scrapes_fill_no_log(client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert (await client.get("/healthz")).text == "ok\n"
    await client.get("/api/notes/a")
    await until(lambda: access_lines(caplog) != [])
    assert len(access_lines(caplog)) == 1


async def test_no_answer_is_kept_guessed_at_framed_or_read_from_another_site(client: httpx2.AsyncClient) -> None:
    for path in ("/api/notes/a", "/api/nothing", "/healthz"):
        headers = (await client.get(path, headers={"Origin": "https://elsewhere.example"})).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_an_unknown_address_and_a_wrong_method_are_told_in_the_same_shape(client: httpx2.AsyncClient) -> None:
    unknown = await client.get("/api/nothing")
    assert (unknown.status_code, error(unknown)["code"]) == (404, "not_found")
    assert (await client.get("/api/notes/a/")).status_code == 404, "no redirect to an address nobody asked for"
    wrong = await client.delete("/api/notes/a")
    assert (wrong.status_code, error(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, HEAD, OPTIONS, PUT"
    inner = await client.delete("/api/outer/inner/a")
    assert (inner.status_code, inner.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    options = await client.options("/api/notes/a")
    assert (options.status_code, options.headers["allow"], options.text) == (204, "GET, HEAD, OPTIONS, PUT", "")
    head = await client.head("/api/notes/a")
    assert (head.status_code, head.text, head.headers["content-type"]) == (200, "", "application/json")


async def test_a_head_of_a_stream_ends(client: httpx2.AsyncClient, runtime: FakeRuntime) -> None:
    async with asyncio.timeout(LIMIT):
        answer = await client.head("/api/events")
    assert (answer.status_code, answer.text) == (200, "")


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{}" + b" " * 99, "application/json", 413, "too_large"),
        (b'{"text": "a"}', "text/plain", 415, "not_json"),
        (b"text=a", "application/x-www-form-urlencoded", 415, "not_json"),
        (b"<a/>", "", 415, "not_json"),
        (b'{"text": ', "application/json", 400, "not_json"),
        (b"\xff\xfe", "application/json", 400, "not_json"),
        (b"[" * 100, "application/json", 400, "not_json"),
        (b"[]", "application/json", 422, "invalid"),
        (b"", "application/json", 422, "invalid"),
        (b'{"text": "\\uD800"}', "application/json", 400, "not_text"),
        ('{"text": "\\ud800"}'.encode("utf-16"), "application/json", 400, "not_json"),
        ('{"text": "\\ud800"}'.encode("utf-16-le"), "application/json", 400, "not_json"),
        (b'{"text": "a", "number": NaN}', "application/json", 400, "not_json"),
        (b'{"text": "a", "number": -1e999}', "application/json", 400, "not_json"),
        (b'{"text": "a", "text": "b"}', "application/json", 400, "duplicate_name"),
        (b'{"text": "a", "t\\u0065xt": "a"}', "application/json", 400, "duplicate_name"),
        (b'{"text": "a", "more": [{"x": 1, "x": 1}]}', "application/json", 400, "duplicate_name"),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused(
    client: httpx2.AsyncClient, runtime: FakeRuntime, *, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = await client.put("/api/notes/a", content=content, headers={"Content-Type": kind} if kind else {})
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    assert runtime.notes == []


async def test_nothing_is_at_an_address_that_no_database_could_look_up(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/notes/a%00b")
    assert (answer.status_code, error(answer)["code"]) == (404, "not_found")


async def test_a_body_may_be_nested_deeply_and_not_more(runtime: FakeRuntime) -> None:
    def nested_body(levels: int) -> bytes:
        return b"[" * levels + b"]" * levels

    async with serve_routes(runtime.router(), largest=100_000) as client:
        for body, status, code in (
            (nested_body(DEEPEST), 422, "invalid"),
            (nested_body(DEEPEST + 1), 400, "too_deep"),
            (b'{"text":' * DEEPEST + b"{}" + b"}" * DEEPEST, 400, "too_deep"),
            (nested_body(40_000), 400, "too_deep"),
        ):
            headers = {"Content-Type": "application/json"}
            answer = await client.put("/api/notes/a", content=body, headers=headers)
            assert (answer.status_code, error(answer)["code"]) == (status, code)


async def test_a_body_in_any_sort_of_json_is_taken(client: httpx2.AsyncClient, runtime: FakeRuntime) -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"):
        answer = await client.put("/api/notes/a", content=b'{"text": "a"}', headers={"Content-Type": kind})
        assert answer.status_code == 200
    assert [note.text for note in runtime.notes] == ["a"] * 3


async def test_fields_that_cannot_be_used_are_named_and_nothing_that_was_sent_is_repeated(
    client: httpx2.AsyncClient,
) -> None:
    sent = {"text": 4711, "number": "hunter2", "secret": ["hunter2"], "secrett": "hunter2"}
    answer = await client.put("/api/notes/a", json=sent)
    assert answer.status_code == 422
    assert error(answer)["fields"] == {
        "text": "It must be text.",
        "number": "It must be a whole number.",
        "secret": "It must be text.",
        "secrett": "It is not known here. Did you mean `secret`?",
    }
    assert "hunter2" not in answer.text
    query = await client.get("/api/notes/a?most=hunter2")
    assert (query.status_code, list(error(query)["fields"])) == (422, ["most"])
    many = await client.put("/api/notes/a", content=json.dumps({f"{n}": 1 for n in range(12)}).encode()[:100])
    assert many.status_code in (400, 415)


@pytest.mark.parametrize(
    ("trouble", "status", "code", "told"),
    [
        (Problem(418, "teapot", "It is a teapot.", "take another"), 418, "teapot", True),
        (NotFound("There is none.", "look again"), 404, "not_found", True),
        (Conflict("It was changed.", "look again", field="name"), 409, "conflict", True),
        (SettingsError("It cannot be used.", "change it"), 422, "unusable", True),
        (SecretUnavailable("It is not there.", "set it"), 409, "secret_unavailable", True),
        (ServerTrouble("It hung up.", "start it"), 502, "server_trouble", True),
        (ModelUnavailable("It is busy."), 503, "model_unavailable", True),
        (DatabaseUnavailable("db.internal is away."), 503, "database_unavailable", False),
        (DatabaseError("db.internal is full of holes."), 500, "broken", False),
        (CountersignError("Nobody thought of this."), 500, "broken", False),
        (ZeroDivisionError("by 4711"), 500, "broken", False),
        (CommandRejected("It is not possible."), 422, "refused", True),
        (NotFoundRejection("There is none."), 404, "not_found", True),
        (ForbiddenRejection("It is somebody else's."), 403, "forbidden", True),
    ],
)
async def test_an_error_has_its_status_its_code_and_a_reason_if_the_caller_may_know_it(
    client: httpx2.AsyncClient, runtime: FakeRuntime, trouble: Exception, status: int, code: str, *, told: bool
) -> None:
    runtime.trouble = trouble
    answer = await client.get("/api/notes/a")
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    cause = getattr(trouble, "cause", str(trouble))
    assert (error(answer)["message"] == cause) is told
    assert error(answer)["fix"] == (getattr(trouble, "fix", "") if told else error(answer)["fix"])
    assert ("retry-after" in answer.headers) is (status == 503)
    if code == "conflict":
        assert error(answer)["fields"] == {"name": "It was changed."}
    if not told:
        assert cause not in answer.text


async def test_a_failure_of_the_program_is_in_the_log_under_the_requests_id_and_nowhere_else(
    client: httpx2.AsyncClient, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.trouble = ZeroDivisionError("by 4711")
    answer = await client.get("/api/notes/a")
    assert error(answer) == {
        "code": "broken",
        "message": "Something broke. The log has the reason, under this request's id.",
        "fix": "",
        "fields": {},
    }
    await until(lambda: "ZeroDivisionError: by 4711" in caplog.text)
    runtime.trouble = None
    assert (await client.get("/api/notes/a")).status_code == 200


async def test_a_body_that_does_not_arrive_is_given_up(runtime: FakeRuntime) -> None:
    async with serve_routes(runtime.router(), seconds=0.05) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(
            b"PUT /api/notes/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 20\r\n"
            b"authorization: Bearer " + OPERATORS.encode() + b"\r\n\r\n{"
        )
        async with asyncio.timeout(LIMIT):
            assert b" 408 " in await reader.readline()
            assert b'"too_slow"' in await reader.read()
        writer.close()


async def test_no_body_is_read_of_a_caller_without_a_token(runtime: FakeRuntime) -> None:
    async with serve_routes(runtime.router(), seconds=60) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(b"PUT /api/notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
        async with asyncio.timeout(LIMIT):
            assert b" 401 " in await reader.readline()
        writer.close()


async def test_clean_up_behind_a_response_is_not_cut_off(client: httpx2.AsyncClient, runtime: FakeRuntime) -> None:
    assert (await client.get("/api/tidy")).json() == "done"
    await client.get("/healthz")
    runtime.go_on.set()
    await soon(runtime.ended)


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/long"), ("GET", "/api/events")])
async def test_a_request_whose_caller_goes_away_ends(
    client: httpx2.AsyncClient, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    caplog.set_level(logging.INFO)
    request = asyncio.create_task(client.request(method, path))
    await soon(runtime.begun)
    request.cancel()
    await soon(runtime.ended)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_shutting_down_ends_streams_at_once_and_lets_requests_finish(runtime: FakeRuntime) -> None:
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(small_application(runtime.router()), "127.0.0.1", 0))
        async with client_of(port) as client:
            stream = asyncio.create_task(client.get("/api/events"))
            await soon(runtime.begun)
            runtime.begun.clear()
            request = asyncio.create_task(client.post("/api/long"))
            await soon(runtime.begun)
            closing = asyncio.create_task(stack.aclose())
            async with asyncio.timeout(LIMIT):
                assert (await stream).text == "data: first\n\n"
                assert not closing.done()
                runtime.go_on.set()
                assert (await request).json() == "done"
                await closing


async def test_an_endless_request_holds_up_no_other(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.web.server._GOODBYE_SECONDS", 0.1)
    async with asyncio.timeout(LIMIT), contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(small_application(runtime.router()), "127.0.0.1", 0))
        async with client_of(port) as client:
            request = asyncio.create_task(client.post("/api/long"))
            await soon(runtime.begun)
            await stack.aclose()
            assert runtime.ended.is_set()
            with contextlib.suppress(httpx2.HTTPError):
                await request
