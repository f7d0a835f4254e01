"""A gateway that answers by a script, on a loopback address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

TOKEN = "cs_aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4gH6jK8m"


class Sent(NamedTuple):
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: Any


Answer = tuple[int, Any] | Callable[[], None]
"""Status and body; a callable is run instead, and the connection is closed without an answer."""


@dataclass
class FakeGateway:
    """The requests that arrived, and the answers to come, the last of which stays."""

    url: str = ""
    requests: list[Sent] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a program on the agent's side."""
        return {"COUNTERSIGN_URL": self.url, "COUNTERSIGN_TOKEN": TOKEN}

    @property
    def lines(self) -> list[str]:
        return [request.line for request in self.requests]

    def next_answer(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    """Serve until the block ends."""
    gateway = FakeGateway()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(raw) if raw.startswith(b"{") else raw
            gateway.requests.append(Sent(f"{self.command} {self.path}", dict(self.headers), body))
            answer = gateway.next_answer()
            if not isinstance(answer, tuple):
                answer()
                self.close_connection = True
                return
            status, content = answer
            written = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(written)), **gateway.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(written)

        do_GET = do_POST = answer  # noqa: N815 - names of the library

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    gateway.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
