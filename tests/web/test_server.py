"""The bot's HTTP server, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
import pytest

from bot.errors import SettingsError
from bot.web.application import application
from bot.web.server import serve
from tests.fakes.parts import until


@dataclass(frozen=True)
class Said:
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Recorder:
    """A hook that echoes the request."""

    path: str = "/hook"
    largest_body: int = 10
    bodies: list[bytes] = field(default_factory=list)

    async def respond(self, headers: Mapping[str, str], body: bytes) -> Said:
        self.bodies.append(body)
        return Said(202, {"x-was": headers.get("x-is", "")}, body.decode())


async def test_it_says_that_it_is_alive_and_hands_requests_to_their_hook() -> None:
    hook = Recorder()
    async with serve(application([hook]), "127.0.0.1", 0) as port, httpx2.AsyncClient() as client:
        base = f"http://127.0.0.1:{port}"
        assert (await client.get(f"{base}/healthz")).text == "ok\n"
        answer = await client.post(f"{base}/hook", content=b"hello", headers={"X-Is": "here"})
        assert (answer.status_code, answer.text, answer.headers["x-was"]) == (202, "hello", "here")
        assert (await client.get(f"{base}/hook")).status_code == 405
        assert (await client.get(f"{base}/")).status_code == 404
        assert "server" not in answer.headers
    assert hook.bodies == [b"hello"]


async def test_a_web_hook_is_handled_although_the_platform_hung_up() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Recorder):
        async def respond(self, headers: Mapping[str, str], body: bytes) -> Said:
            begun.set()
            await go_on.wait()
            return await super().respond(headers, body)

    hook = Slow()
    async with serve(application([hook]), "127.0.0.1", 0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\npress")
        async with asyncio.timeout(10):
            await begun.wait()
            writer.close()
            await writer.wait_closed()
            # Once a later request is answered, the server has noticed the disconnect.
            async with httpx2.AsyncClient() as client:
                await client.get(f"http://127.0.0.1:{port}/healthz")
            go_on.set()
            await until(lambda: hook.bodies == [b"press"])


async def test_a_body_longer_than_the_hook_takes_is_refused_before_it_is_read() -> None:
    hook = Recorder()
    async with serve(application([hook]), "127.0.0.1", 0) as port, httpx2.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}/hook", content=b"hello world")
    assert answer.status_code == 413
    assert hook.bodies == []


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.web.application.READING_SECONDS", 0.05)
    async with serve(application([Recorder()]), "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel")
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()


async def test_an_address_that_is_taken_is_an_error_with_its_fix() -> None:
    async with serve(application([]), "127.0.0.1", 0) as port:
        with pytest.raises(SettingsError, match=f"port {port}.*PORT"):
            async with serve(application([]), "127.0.0.1", port):
                pass
