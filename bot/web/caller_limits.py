"""Limits of one API client: requests in flight, and the streams and waits among them.

A request that is held open costs a connection and memory for as long as the client wants, so each client has a share.
The counts are those of this process. A request is counted down when it ends, however it ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.domain.api_clients import ApiClient
from bot.web.connection_table import ConnectionLimits
from bot.web.problems import Problem, to_response

T = TypeVar("T")

_RETRY = {"Retry-After": "5"}
_MOST_STREAMS = 1_000


def most_streams() -> int:
    """Streams of all clients: at most half of the requests that may be at work."""
    return min(_MOST_STREAMS, max(1, ConnectionLimits().at_work // 2))


@dataclass(frozen=True, slots=True)
class CallerShares:
    """Limits of one client: `requests` in flight, `streams` and waits among them, and `streams_per_response` of one
    response or server. `all_streams` is for all clients together.
    """

    requests: int = 100
    streams: int = 50
    streams_per_response: int = 10
    all_streams: int = field(default_factory=most_streams)


class CallerLimits:
    """Middleware that counts the requests of each API client, and answers 429 beyond its share. Runs after
    authentication.
    """

    def __init__(self, app: ASGIApp, shares: CallerShares) -> None:
        self._app = app
        self._shares = shares
        self._requests: Counter[str] = Counter()
        self._streams = _Streams(shares)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        caller = scope["state"]["caller"]
        assert isinstance(caller, ApiClient)
        name = caller.name
        if self._requests[name] >= self._shares.requests:
            problem = _too_many(f"This token has {self._shares.requests} requests in flight, as many as it may.")
            await to_response(problem, scope["state"]["request_id"])(scope, receive, send)
            return
        self._requests[name] += 1
        place = StreamPlace(self._streams, name)
        scope["state"]["stream_place"] = place
        try:
            await self._app(scope, receive, send)
        finally:
            place.release()
            _count_down(self._requests, name)


@dataclass(slots=True)
class _Streams:
    """Streams and waits of all clients, by client, and by client and subject."""

    shares: CallerShares
    by_caller: Counter[str] = field(default_factory=Counter)
    by_subject: Counter[tuple[str, str]] = field(default_factory=Counter)


class StreamPlace:
    """Right of one request to stay open. The middleware releases it."""

    def __init__(self, streams: _Streams, caller: str) -> None:
        self._streams = streams
        self._caller = caller
        self._subject: tuple[str, str] | None = None
        self._taken = False

    def take(self) -> None:
        """Take a place for a stream, before the request has an effect. Raises Problem: 429 beyond the caller's share,
        503 if all clients together have every place.
        """
        if not self.take_to_wait():
            raise Problem(
                503,
                "too_many_streams",
                "Too many responses are being followed.",
                "try again in a moment",
                headers=_RETRY,
            )

    def take_to_wait(self) -> bool:
        """Take a place for a wait. Return False if all clients together have every place: answer without a wait. Raises
        Problem with 429.
        """
        by_caller, shares = self._streams.by_caller, self._streams.shares
        if by_caller[self._caller] >= shares.streams:
            raise _too_many(f"This token keeps {shares.streams} requests open, streams included, as many as it may.")
        self._taken = by_caller.total() < shares.all_streams
        if self._taken:
            by_caller[self._caller] += 1
        return self._taken

    def follow(self, subject: str) -> None:
        """Set the id of the response or server that a request with a place follows. Raises Problem with 429."""
        if not self._taken:
            return
        key = (self._caller, subject)
        if self._streams.by_subject[key] >= self._streams.shares.streams_per_response:
            raise _too_many(
                f"This token follows this {self._streams.shares.streams_per_response} times, as often as it may."
            )
        self._subject = key
        self._streams.by_subject[key] += 1

    def release(self) -> None:
        """Release the places that were taken."""
        if self._taken:
            self._taken = False
            _count_down(self._streams.by_caller, self._caller)
        if self._subject is not None:
            _count_down(self._streams.by_subject, self._subject)
            self._subject = None


def _place_of(request: Request) -> StreamPlace:
    place = request.state.stream_place
    assert isinstance(place, StreamPlace)
    return place


RequestStreamPlace = Annotated[StreamPlace, Depends(_place_of)]
"""Dependency of a route that streams or waits."""


def _too_many(message: str) -> Problem:
    return Problem(
        429,
        "too_many_requests",
        message,
        "end one, or wait until one has ended",
        headers=_RETRY,
    )


def _count_down(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
