"""A fake model service on a real loopback socket: Chat Completions, Responses or Messages, streamed as the vendors
stream them.

It runs in a thread with its own loop, so that it serves both async tests and programs in other processes:

    with FakeLanguageModel("openai", Say(calls=(Call("get_weather", {"city": "Oslo"}),)), Say("Rain.")) as model:
        ...  # model.base_url, model.requests

Replies are taken from the script in order. When the script is used up, the rule answers: a function from the request to
a reply. Requests that the real service would refuse are refused and appended to `refusals`. On exit, the service fails
the test if a request had no reply or a rule raised. `models` answers requests for the list of models, which are counted
in `lookups` and not in `requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from threading import Thread
from types import TracebackType
from typing import Any, Protocol

from tests.fakes import llm_anthropic, llm_openai, llm_responses
from tests.fakes.llm_models import NO_ROUTE, Models
from tests.fakes.llm_script import (
    Api,
    Bytes,
    Call,
    Cut,
    ErrorEvent,
    Frames,
    Gate,
    HangUp,
    Hold,
    Linger,
    Raw,
    Reply,
    Request,
    Rule,
    Say,
    Silence,
    Slow,
    Status,
    Tokens,
)

__all__ = [
    "Api",
    "Bytes",
    "Call",
    "Cut",
    "ErrorEvent",
    "FakeLanguageModel",
    "Gate",
    "HangUp",
    "Hold",
    "Linger",
    "Models",
    "Raw",
    "Reply",
    "Request",
    "Rule",
    "Say",
    "Silence",
    "Slow",
    "Status",
    "Tokens",
]


class _Protocol(Protocol):
    """Interface that the fakes' modules share."""

    PATH: str

    def frames(self, say: Say, request: Request, number: int) -> Frames: ...
    def event(self, data: Any) -> bytes: ...
    def error_event(self, error: ErrorEvent) -> bytes: ...
    def error_body(self, status: Status) -> dict[str, Any]: ...
    def complaint(self, request: Request) -> Status | None: ...


_PROTOCOLS: dict[Api, _Protocol] = {
    "openai": llm_openai,
    "responses": llm_responses,
    "anthropic": llm_anthropic,
}


class FakeLanguageModel:
    """The service. A context manager for sync and async tests alike."""

    def __init__(
        self,
        api: Api,
        *replies: Reply,
        rule: Rule | None = None,
        tls: ssl.SSLContext | None = None,
        models: Models | None = None,
    ) -> None:
        self.api: Api = api
        self._tls = tls
        self.models = models
        self.requests: list[Request] = []
        self.lookups: list[str] = []
        self.refusals: list[str] = []
        self.connections = 0
        self._protocol = _PROTOCOLS[api]
        self._script = deque(replies)
        self._rule = rule
        self._failures: list[BaseException] = []
        self._served = 0
        self._port = 0
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name=f"fake {api}", daemon=True)
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()

    @property
    def base_url(self) -> str:
        """The address as the vendor's client wants it."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}" + ("" if self.api == "anthropic" else "/v1")

    def script(self, *replies: Reply) -> None:
        """Answer the next requests with these."""
        self._script.extend(replies)

    def __enter__(self) -> FakeLanguageModel:
        self._thread.start()
        self._ready.result(timeout=10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ready.result().call_soon_threadsafe(self._over.set)
        self._thread.join(timeout=10)
        for failure in self._failures:
            if error is None:
                raise AssertionError(f"the fake model service failed: {failure!r}") from failure
            error.add_note(f"The fake model service failed: {failure!r}")

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.create_task(self._connection(_Connection(reader, writer)))
            connections.add(task)
            task.add_done_callback(connections.discard)
            # A client that has closed its connection reads no more, and a task may end before it begins.
            task.add_done_callback(lambda _task: writer.transport.abort())

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set_result(asyncio.get_running_loop())
        await self._over.wait()
        # A server that is closed at once drops new connections half-way and leaves them open.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        for _ in range(5):  # rounds of the loop in which they come in
            await asyncio.sleep(0)
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, connection: _Connection) -> None:
        try:
            while (request := await connection.request(self.api)) is not None:
                await self._answer(connection, request)
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001  any error of a test's rule must reach the test
            self._failures.append(error)

    async def _answer(self, connection: _Connection, request: Request) -> None:
        if request.method == "GET":
            self.lookups.append(request.path)
            await self._tell(connection, request)
            return
        self.requests.append(request)
        reply = self._reply(request)
        try:
            await self._play(connection, request, reply)
        except ConnectionError:
            if not request.gone.done():
                request.gone.set_result(None)
            raise

    async def _tell(self, connection: _Connection, request: Request) -> None:
        match self.models.answer(request.path, request.headers) if self.models else NO_ROUTE:
            case Status() as status:
                await connection.send_error(status, self._protocol.error_body(status))
            case told:
                await connection.send_json(told)

    def _reply(self, request: Request) -> Reply:
        if request.path != self._protocol.PATH:
            return Status(404, f"Unknown request URL: {request.path}", "invalid_request_error")
        if complaint := self._protocol.complaint(request):
            self.refusals.append(complaint.message)
            return complaint
        self._served += 1
        if self._script:
            return self._script.popleft()
        if self._rule is None:
            self._failures.append(AssertionError("a request came for which the script has no reply"))
            return Status(400, "The script has no more replies.", "invalid_request_error")
        return self._rule(request)

    async def _play(self, connection: _Connection, request: Request, reply: Reply) -> None:
        match reply:
            case Status():
                await connection.send_error(reply, self._protocol.error_body(reply))
            case Silence():
                await connection.hold(asyncio.Event().wait())
            case HangUp():
                connection.drop()
            case Bytes():
                await self._play_bytes(connection, reply)
            case Raw(events):
                await connection.stream([self._protocol.event(event) for event in events])
            case Say():
                await connection.stream(self._frames(reply, request).whole)
            case Slow(say, pause):
                await connection.stream(self._frames(say, request).whole, pause=pause)
            case ErrorEvent(reply=say):
                await connection.stream([*self._frames(say, request).body, self._protocol.error_event(reply)])
            case Cut() | Linger() | Hold():
                await self._play_unended(connection, self._frames(reply.reply, request), reply)

    @staticmethod
    async def _play_bytes(connection: _Connection, reply: Bytes) -> None:
        headers = {"content-type": "text/event-stream", **reply.headers}
        await connection.stream(reply.pieces, end=reply.ends, status=reply.status, headers=headers)
        if not reply.ends:
            await connection.hold(asyncio.Event().wait())

    async def _play_unended(self, connection: _Connection, frames: Frames, reply: Cut | Linger | Hold) -> None:
        match reply:
            case Cut():
                await self._play_cut(connection, frames, reply)
            case Linger(hangs_up=hangs_up):
                await connection.stream(frames.whole, end=False)
                if hangs_up:
                    connection.drop()
                else:
                    await connection.hold(asyncio.Event().wait())
            case Hold(gate=gate):
                await self._play_held(connection, frames, gate)

    async def _play_held(self, connection: _Connection, frames: Frames, gate: Gate) -> None:
        await connection.stream(frames.body, end=False)
        await self._stand_before(gate, connection)
        await connection.stream(frames.ending, begin=False)

    async def _play_cut(self, connection: _Connection, frames: Frames, cut: Cut) -> None:
        await connection.stream(frames.body, end=False)
        if cut.gate:
            await self._stand_before(cut.gate, connection)
        if cut.politely:
            await connection.stream((), begin=False)
        else:
            connection.drop()

    @staticmethod
    async def _stand_before(gate: Gate, connection: _Connection) -> None:
        if not gate.reached.done():
            gate.reached.set_result(None)
        await connection.hold(_wait_for_gate(gate))

    def _frames(self, say: Say, request: Request) -> Frames:
        return self._protocol.frames(say, request, self._served)


_EVENTS = {"content-type": "text/event-stream; charset=utf-8"}


async def _wait_for_gate(gate: Gate) -> None:
    # Not `wrap_future`: a client that hangs up would cancel the gate with it, and let the next one through.
    loop, opened = asyncio.get_running_loop(), asyncio.Event()

    def wake(_gate: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the service may be gone by then
            loop.call_soon_threadsafe(opened.set)

    gate.opened.add_done_callback(wake)
    await opened.wait()


@dataclass(frozen=True, slots=True)
class _Connection:
    """HTTP/1.1, as little of it as the clients need. Raises ConnectionError when the client has gone."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self, api: Api) -> Request | None:
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ")
        return Request(api, path, headers, json.loads(body or b"{}"), method)

    async def send_error(self, status: Status, body: dict[str, Any]) -> None:
        content = (json.dumps(body) if status.body is None else status.body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(content)), **status.headers}
        await self._write(self._head(status.status, headers) + content)

    async def send_json(self, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(content))}
        await self._write(self._head(200, headers) + content)

    async def stream(
        self,
        frames: Iterable[bytes],
        *,
        begin: bool = True,
        end: bool = True,
        pause: float = 0.0,
        status: int = 200,
        headers: Mapping[str, str] = _EVENTS,
    ) -> None:
        if begin:
            await self._write(self._head(status, {**headers, "transfer-encoding": "chunked"}))
        for frame in frames:
            await self._write(b"%x\r\n%s\r\n" % (len(frame), frame))
            if pause:
                await self.hold(asyncio.sleep(pause))
        if end:
            await self._write(b"0\r\n\r\n")

    async def hold(self, until: Coroutine[Any, Any, object]) -> None:
        """Wait for something while watching whether the client is still there."""
        waiting = asyncio.create_task(until)
        hung_up = asyncio.create_task(self.reader.read(1))
        try:
            await asyncio.wait({waiting, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if hung_up.done():
                raise ConnectionResetError("the client has gone")
        finally:
            for task in (waiting, hung_up):
                task.cancel()
            await asyncio.gather(waiting, hung_up, return_exceptions=True)

    def drop(self) -> None:
        self.writer.transport.abort()

    @staticmethod
    def _head(status: int, headers: dict[str, str]) -> bytes:
        known = {each.value: each.phrase for each in HTTPStatus}
        lines = [f"HTTP/1.1 {status} {known.get(status, 'Overloaded')}"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
