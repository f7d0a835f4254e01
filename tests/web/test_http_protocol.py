"""Limits of connections, over real sockets, for slow and for many clients."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bot.web.application import RequestMiddleware, application
from bot.web.limits import CapacityMiddleware, ConnectionLimits, ConnectionTable, TrustedProxies
from bot.web.server import serve
from tests.fakes.parts import until

LIMIT = 60.0
LONG = 20_000_000
HELLO = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


HASTY = ConnectionLimits(head_seconds=0.2, stalled_seconds=0.2)
NARROW = ConnectionLimits(most=64)
"""Allows 16 connections per address and 48 concurrent requests."""
PROMPT = 10.0
"""Seconds that a request may take during a flood. The limit is high because this process also runs the clients."""
HALF = b"POST /hook HTTP/1.1\r\nHost: x\r\n"
SLOW_BODY = HALF + b"Content-Length: 1000\r\n\r\nx"
FLOODS = {
    "connections without a request": b"",
    "half a head": HALF,
    "half a body": SLOW_BODY,
    "idle connections": HELLO,
    "unread responses": b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n",
}


async def long(_request: Request) -> Response:
    return PlainTextResponse("x" * LONG)


async def endless(_request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)  # lets the event loop notice the disconnect

    return StreamingResponse(pieces())


@contextlib.asynccontextmanager
async def open_client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes received until the peer closes the connection."""
    found = bytearray()
    async with asyncio.timeout(LIMIT):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                found += piece
    return bytes(found)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
    ],
)
async def test_a_client_whose_request_is_not_whole_in_time_is_cut_off(said: bytes) -> None:
    async with serve(application(), "127.0.0.1", 0, HASTY) as port, open_client(port) as (reader, writer):
        writer.write(said)
        assert await ends(reader) == b""


async def test_asking_drop_by_drop_gives_no_more_time() -> None:
    async with serve(application(), "127.0.0.1", 0, HASTY) as port, open_client(port) as (reader, writer):
        ended = asyncio.create_task(ends(reader))
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        while not ended.done():
            writer.write(b"X-More: x\r\n")
            await asyncio.wait({ended}, timeout=0.02)
        assert await ended == b""


async def test_a_body_that_goes_on_behind_its_answer_is_not_waited_for() -> None:
    async with serve(application(), "127.0.0.1", 0, HASTY) as port, open_client(port) as (reader, writer):
        ended = asyncio.create_task(ends(reader))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait({ended}, timeout=0.02)
        assert (await ended).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_reads_nothing_of_its_response_is_cut_off() -> None:
    slow = application(pages=[Route("/long", long)])
    async with serve(slow, "127.0.0.1", 0, HASTY) as port, open_client(port) as (reader, writer):
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT):
            await reader.readline()
            while not reader.at_eof() and reader.exception() is None:
                # A client that does not read notices the disconnect only by writing.
                writer.write(b"\r\n")
                await asyncio.sleep(0.02)
        assert len(await ends(reader)) < LONG


async def test_a_connection_is_kept_for_the_next_question() -> None:
    async with serve(application(), "127.0.0.1", 0, HASTY) as port, open_client(port) as (reader, writer):
        for _ in range(3):
            writer.write(HELLO)
            async with asyncio.timeout(LIMIT):
                assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(2 * HASTY.head_seconds / 3)


@pytest.mark.parametrize("path", ["/healthz", "/nowhere"])
async def test_a_connection_that_pipelines_gets_the_first_response_and_is_closed(path: str) -> None:
    request = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode()
    async with serve(application(), "127.0.0.1", 0) as port, open_client(port) as (reader, writer):
        writer.write(request * 200)
        responses = (await ends(reader)).lower().split(b"http/1.1 ")[1:]
        assert [b"connection: close" in response for response in responses] == [True]


async def test_pipelined_bytes_do_not_cost_the_response_that_is_under_way() -> None:
    go_on = asyncio.Event()

    async def two_parts(_request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await go_on.wait()
            yield b"second"

        return StreamingResponse(parts())

    app = application(pages=[Route("/parts", two_parts)])
    async with serve(app, "127.0.0.1", 0) as port, open_client(port) as (reader, writer):
        writer.write(b"GET /parts HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT):
            await reader.readuntil(b"first\r\n")
        writer.write(HELLO)
        assert (await send_request(port, whole("/healthz"))).endswith(b"ok\n")  # the server has read both by now
        go_on.set()
        assert await ends(reader) == b"6\r\nsecond\r\n0\r\n\r\n"


@dataclasses.dataclass
class Hook:
    path: str = "/hook"
    largest_body: int = 2_000

    async def respond(self, headers: Mapping[str, str], body: bytes) -> Hook.Taken:
        return Hook.Taken(body=body.decode())

    @dataclasses.dataclass
    class Taken:
        status: int = 200
        headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
        body: str = ""


@contextlib.asynccontextmanager
async def running_flood(port: int, said: bytes, *, addresses: int, clients: int) -> AsyncIterator[list[int]]:
    """Run clients of several addresses that reconnect after each disconnect. Yield a list with the number of
    connections.
    """
    opened = [0]

    async def flood(address: str) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024, local_addr=(address, 0))
                opened[0] += 1
                try:
                    writer.write(said)
                    if b"/endless" in said:
                        # The limit of the reader stops it: most of the response stays unread.
                        await asyncio.Event().wait()
                    while await reader.read(1024):
                        pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(flood(f"127.0.0.{2 + n % addresses}")) for n in range(clients)]
        try:
            yield opened
        finally:
            for task in tasks:
                task.cancel()


async def send_request(port: int, request: bytes, *, address: str = "127.0.0.1") -> bytes:
    """Return the response to a request on its own connection; empty if the server refused the request before reading
    it.
    """
    async with asyncio.timeout(PROMPT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:
            return b""  # refused before the request was read
        finally:
            writer.transport.abort()


def whole(path: str, body: bytes = b"") -> bytes:
    method = b"POST" if body else b"GET"
    return b"%b %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (
        method,
        path.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize("trusted", [(), ("*",)], ids=["clients", "proxies"])
@pytest.mark.parametrize("said", FLOODS.values(), ids=FLOODS)
async def test_health_and_hooks_answer_during_a_flood(
    said: bytes, trusted: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = application([Hook()], pages=[Route("/endless", endless)], limits=NARROW)
    async with (
        serve(app, "127.0.0.1", 0, NARROW, TrustedProxies(trusted)) as port,
        running_flood(port, said, addresses=10, clients=100) as opened,
    ):
        async with asyncio.timeout(LIMIT):
            while opened[0] < 100:
                await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await send_request(port, whole("/healthz"))).endswith(b"ok\n")
            assert (await send_request(port, whole("/hook", b"hello"))).endswith(b"hello")
    assert len([record for record in caplog.records if "connections:" in record.message]) == 1


async def test_a_thousand_half_sent_requests_do_not_keep_an_address_from_asking() -> None:
    async with (
        serve(application(), "127.0.0.1", 0, ConnectionLimits(most=400)) as port,
        running_flood(port, HALF, addresses=1, clients=150) as opened,
    ):
        async with asyncio.timeout(LIMIT):
            while opened[0] < 1_000:
                await asyncio.sleep(0.01)
        assert (await send_request(port, whole("/healthz"), address="127.0.0.2")).endswith(b"ok\n")


async def test_an_address_with_its_share_of_connections_at_work_gets_503_and_others_are_served() -> None:
    go_on = asyncio.Event()

    async def work(_request: Request) -> Response:
        await go_on.wait()
        return PlainTextResponse("done")

    async with (
        serve(application(pages=[Route("/work", work)]), "127.0.0.1", 0, NARROW, TrustedProxies()) as port,
        asyncio.TaskGroup() as group,
    ):
        share = NARROW.per_address
        working = [group.create_task(send_request(port, whole("/work"), address="127.0.0.2")) for _ in range(share)]
        async with asyncio.timeout(LIMIT):
            while (await send_request(port, whole("/healthz"), address="127.0.0.2")).endswith(b"ok\n"):
                await asyncio.sleep(0.01)
        assert (await send_request(port, whole("/healthz"), address="127.0.0.3")).endswith(b"ok\n")
        go_on.set()
        assert all([(await each).endswith(b"done") for each in working])
        assert (await send_request(port, whole("/healthz"), address="127.0.0.2")).endswith(b"ok\n")


async def test_requests_at_work_leave_room_for_health_and_for_bodies_that_are_on_their_way() -> None:
    go_on, working = asyncio.Event(), list[str]()

    async def work(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/work":
            while (await receive()).get("more_body"):
                pass
            working.append(scope["method"])
            await go_on.wait()
        await PlainTextResponse("done")(scope, receive, send)

    app = RequestMiddleware(CapacityMiddleware(work, {"/healthz"}, most=2))
    async with (
        serve(app, "127.0.0.1", 0) as port,
        open_client(port) as (reader, writer),
        asyncio.TaskGroup() as group,
    ):
        writer.write(b"POST /work HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1")
        requests = [group.create_task(send_request(port, whole("/work", body))) for body in (b"", b"{}")]
        await until(lambda: sorted(working) == ["GET", "POST"])
        refused = await send_request(port, whole("/other"))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in refused.lower()
        assert (await send_request(port, whole("/healthz"))).endswith(b"done")
        go_on.set()
        assert [(await request).endswith(b"done") for request in requests] == [True, True]
        writer.write(b"2")
        async with asyncio.timeout(LIMIT):
            await reader.readuntil(b"done")


async def test_a_connection_that_waits_makes_room_before_one_that_is_at_work() -> None:
    victims: list[str] = []

    @dataclasses.dataclass(eq=False)
    class Peer:
        address: str
        name: str

        def evict(self) -> None:
            victims.append(self.name)

    table = ConnectionTable(ConnectionLimits(most=4), TrustedProxies(["127.0.0.9"]))
    peers = [Peer("127.0.0.9", "first"), Peer("127.0.0.9", "second"), Peer("127.0.0.9", "third")]
    for peer in peers:
        assert table.admit(peer)
    table.wait(peers[0])
    table.wait(peers[1])
    table.work(peers[0])
    assert table.admit(Peer("2001:db8::1", "fourth"))
    assert table.admit(Peer("127.0.0.1", "fifth"))
    assert victims == ["second"]
    assert not table.admit(Peer("127.0.0.2", "sixth"))
    assert len(table) == 4


async def test_addresses_of_one_ipv6_site_have_one_share() -> None:
    @dataclasses.dataclass(eq=False)
    class Peer:
        address: str
        evicted: bool = False

        def evict(self) -> None:
            self.evicted = True

    table = ConnectionTable(ConnectionLimits(most=8), TrustedProxies())
    assert table.admit(Peer("2001:db8::1"))
    assert table.admit(Peer("2001:db8::2"))
    assert not table.admit(Peer("2001:db8::3"))
    assert table.admit(Peer("2001:db8:0:1::1"))
    assert table.admit(Peer("::ffff:10.0.0.1"))
    assert table.admit(Peer("10.0.0.1"))
    assert not table.admit(Peer("::ffff:10.0.0.1"))
