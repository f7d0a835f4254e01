"""An ASGI program on a loopback port in a thread of its own, behind its authentication."""

from __future__ import annotations

import base64
import hmac
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

START_SECONDS = 30.0


class Doorkeeper:
    """Accept requests with this header, and answer others with 401. `rejected_page` counts them."""

    def __init__(self, app: App, header: str, value: str, challenge: str = "") -> None:
        self._app = app
        self._header = header.lower().encode()
        self._value = value.encode()
        self._challenge = challenge.encode()
        self.turned_away = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or any(
            name == self._header and hmac.compare_digest(value, self._value) for name, value in scope["headers"]
        ):
            await self._app(scope, receive, send)
            return
        self.turned_away += 1
        headers = [(b"www-authenticate", self._challenge)] if self._challenge else []
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"Unauthorized"})


def basic(user: str, password: str) -> str:
    """Return the value of an Authorization header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def serve_app(app: App) -> Iterator[str]:
    """Serve until the block ends; the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a body waits 40 ms behind its headers
    program = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=program.run, args=([listener],), name="served")
    thread.start()
    try:
        ends = time.monotonic() + START_SECONDS
        while not program.started:
            assert thread.is_alive(), "the server has ended"
            assert time.monotonic() < ends, "the server does not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        program.should_exit = True
        thread.join(START_SECONDS)
        listener.close()
