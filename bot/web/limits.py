"""Limits of the HTTP server: connections, requests at work, request bodies, and requests of one API client.

A connection WAITS while its peer owes the next step: a request that has not arrived as a whole, or a response that the
peer does not read. A waiting connection can be closed without loss, so it never keeps a new one out.

A request that is held open costs a connection and memory for as long as the client wants, so each client has a share.
The counts are those of this process.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.domain.api_clients import ApiClient
from bot.domain.lenient_json import DEEPEST, DuplicateName, exceeds_json_depth, unique_names
from bot.i18n import _, ngettext
from bot.web.problems import Problem, problem_of_status, to_response

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST = 2_000
"""Most connections of one server."""
LARGEST_BODY = 1024 * 1024
"""Longest request body in bytes."""
READING_SECONDS = 15.0
"""Seconds within which a body must arrive."""
_MOST_STREAMS = 1_000
_RETRY = {"Retry-After": "5"}
_LOG_SECONDS = 60.0
_JSON_TYPE = re.compile(r"application/(json|.*\+json)")
_IPV6_SITE = 64
"""Bits of an IPv6 address that name a site: its owner has all addresses below them."""


def most_connections() -> int:
    """Return half of the files that the process may open, at most MOST: the rest is for database and platforms."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


class Evictable(Protocol):
    """A connection in the table."""

    @property
    def address(self) -> str:
        """IP address of the peer, empty if it has none."""

    def evict(self) -> None:
        """Close the connection now. Unsent data is lost."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one server: `most` connections in all. The head of a request must arrive within `head_seconds`. A peer
    that reads nothing of its response for `stalled_seconds` is cut off.
    """

    head_seconds: float = 10.0
    stalled_seconds: float = 60.0
    most: int = field(default_factory=most_connections)

    @property
    def per_address(self) -> int:
        """Connections of one address: a quarter of all."""
        return max(1, self.most // 4)

    @property
    def at_work(self) -> int:
        """Requests that are served at the same time: three quarters of the connections. The last quarter waits for its
        peers, so that one of it can make room.
        """
        return max(1, self.most * 3 // 4)


class TrustedProxies:
    """Addresses of reverse proxies, from IP addresses and networks; `*` is every address. Raises ValueError."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._every = "*" in names
        self.names = ["*"] if self._every else sorted(names)
        self._networks = [ipaddress.ip_network(name) for name in names if name != "*"]

    def __contains__(self, address: str) -> bool:
        if self._every:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


@dataclass(slots=True)
class _Peer:
    """Connections of one address. `waiting` is ordered, the longest wait first."""

    is_proxy: bool
    total: int = 0
    waiting: OrderedDict[Evictable, None] = field(default_factory=OrderedDict)


class ConnectionTable:
    """The connections that one server holds. A proxy's address has no share of its own: it stands for many clients, and
    limits them itself.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        proxies: TrustedProxies,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._proxies = proxies
        self._clock = clock
        self._total = 0
        self._peers: dict[str, _Peer] = {}
        self._warned_at = -_LOG_SECONDS

    def __len__(self) -> int:
        return self._total

    def admit(self, connection: Evictable) -> bool:
        """Add a connection, if need be in place of one that waits. Return False if every other is at work."""
        name = _peer_name(connection.address)
        peer = self._peers.get(name)
        if peer is not None and not peer.is_proxy and peer.total >= self._limits.per_address:
            self._warn("address %s has all of its %d connections", name, peer.total)
            if not self._evict(peer):
                return False
        if self._total >= self._limits.most:
            self._warn("all %d connections are taken, the last by %s", self._total, name)
            # A proxy only if no other address has a waiting connection.
            peers = self._peers.values()
            if not self._evict(
                max(peers, key=lambda peer: (not peer.is_proxy and bool(peer.waiting), len(peer.waiting)))
            ):
                return False
        # An eviction may have removed the address.
        peer = self._peers.setdefault(name, _Peer(connection.address in self._proxies))
        peer.total += 1
        self._total += 1
        return True

    def wait(self, connection: Evictable) -> None:
        """Mark a connection as waiting for its peer. A waiting connection keeps its position in the order."""
        self._peers[_peer_name(connection.address)].waiting.setdefault(connection)

    def work(self, connection: Evictable) -> None:
        """Mark a connection as served: it is not closed in favor of another."""
        self._peers[_peer_name(connection.address)].waiting.pop(connection, None)

    def remove(self, connection: Evictable) -> None:
        """Remove an admitted connection."""
        self.work(connection)
        name = _peer_name(connection.address)
        self._peers[name].total -= 1
        self._total -= 1
        if not self._peers[name].total:
            del self._peers[name]

    def _evict(self, peer: _Peer) -> bool:
        oldest = next(iter(peer.waiting), None)
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.evict()
        return True

    def _warn(self, text: str, *values: object) -> None:
        """Log a warning at most once a minute."""
        now = self._clock()
        if now - self._warned_at >= _LOG_SECONDS:
            self._warned_at = now
            log.warning(
                f"connections: {text}; the oldest unfinished ones make room. Fix: if the address is a reverse proxy, "  # noqa: G004 - our own text
                "name it in FORWARDED_ALLOW_IPS",
                *values,
            )


def _peer_name(address: str) -> str:
    """Return the name that connections are counted by: an IPv4 address, or the site of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if (mapped := parsed.ipv4_mapped) is not None:
        return str(mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_SITE), strict=False))


# -------------------- request bodies and requests at work


class BodyLimitMiddleware:
    """Middleware that reads and checks bodies. `largest` is in bytes; a body must arrive within `seconds`."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY, seconds: float = READING_SECONDS) -> None:
        self._app = app
        self._largest = largest
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its complete body, or answer with a problem."""
        try:
            if "\0" in scope["path"]:
                # No id or name contains a NUL, and PostgreSQL fails on it.
                raise problem_of_status(404)
            request = Request(scope, receive)
            body = await read_body(request, self._largest, self._seconds)
            problem = _body_problem(request.headers.get("content-type", ""), body) if body else None
            if problem is not None:
                raise problem
        except Problem as rejected:
            await to_response(rejected, scope["state"]["request_id"])(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def next_message() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, next_message, send)


async def read_body(request: Request, largest: int, seconds: float) -> bytes:
    """Return the body. Raises Problem: 413 above `largest` bytes, 408 after `seconds`, 400 after a disconnect."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > largest:
                    raise Problem(
                        413,
                        "too_large",
                        _("The body is larger than {size} bytes.", size=largest),
                        _("send less at once"),
                    )
    except TimeoutError:
        raise problem_of_status(408, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise problem_of_status(400) from None
    return bytes(body)


def _body_problem(content_type: str, body: bytes) -> Problem | None:  # noqa: PLR0911 - one for each error
    """Return the error of a body that is not JSON, also of one that the framework's parser accepts: UTF-16, NaN, 1e999,
    half a surrogate pair, duplicate members.
    """
    if not _JSON_TYPE.fullmatch(content_type.partition(";")[0].strip().lower()):
        return Problem(415, "not_json", _("The body must be JSON."), _("send Content-Type: application/json"))
    too_deep = _("The body is nested deeper than {levels} levels.", levels=DEEPEST), _("send it flatter")
    try:
        value = json.loads(body.decode("utf-8-sig"), object_pairs_hook=unique_names)
        if exceeds_json_depth(value):
            return Problem(400, "too_deep", *too_deep)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except DuplicateName as error:
        message = _("The body cannot be used: the name {name} is there twice.", name=f"{error.name!r:.80}")
        return Problem(400, "duplicate_name", message, _("send each name once"))
    except UnicodeEncodeError:
        return Problem(400, "not_text", _("A text in the body holds half a character."), _("send whole characters"))
    except RecursionError:
        return Problem(400, "too_deep", *too_deep)
    except ValueError:
        return Problem(400, "not_json", _("The body is not JSON in UTF-8."), _("send one JSON object"))
    return None


class CapacityMiddleware:
    """Middleware that answers 503 beyond `most` requests, except at the paths in `served_always`. A request counts
    after its complete body has arrived: until then its connection can be evicted.
    """

    def __init__(self, app: ASGIApp, served_always: Collection[str], most: int) -> None:
        self._app = app
        self._served_always = frozenset(served_always)
        self._most = most
        self._in_flight: set[object] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] in self._served_always:
            await self._app(scope, receive, send)
            return
        if len(self._in_flight) >= self._most:
            busy, fix = _("Too many requests are being served."), _("try again in a moment")
            problem = Problem(503, "too_busy", busy, fix, headers=_RETRY)
            await to_response(problem, scope["state"]["request_id"])(scope, receive, send)
            return
        request = object()

        async def next_message() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                self._in_flight.add(request)
            return message

        headers = Headers(scope=scope)
        if not (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
            self._in_flight.add(request)
        try:
            await self._app(scope, next_message, send)
        finally:
            self._in_flight.discard(request)


# -------------------- requests of one API client


def most_streams() -> int:
    """Return the limit of the streams of all clients: at most half of the requests that may be at work."""
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
        self._by_caller: Counter[str] = Counter()
        self._by_subject: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        caller = scope["state"]["caller"]
        assert isinstance(caller, ApiClient)
        name = caller.name
        if self._requests[name] >= self._shares.requests:
            problem = _too_many_requests(
                ngettext(
                    "This token has {n} request in flight, as many as it may.",
                    "This token has {n} requests in flight, as many as it may.",
                    self._shares.requests,
                )
            )
            await to_response(problem, scope["state"]["request_id"])(scope, receive, send)
            return
        self._requests[name] += 1
        place = StreamPlace(self._shares, self._by_caller, self._by_subject, name)
        scope["state"]["stream_place"] = place
        try:
            await self._app(scope, receive, send)
        finally:
            place.release()
            _count_down(self._requests, name)


class StreamPlace:
    """Right of one request to stay open. The middleware releases it. `by_caller` counts the streams and waits of all
    clients, `by_subject` those of a client on one response or server.
    """

    def __init__(
        self, shares: CallerShares, by_caller: Counter[str], by_subject: Counter[tuple[str, str]], caller: str
    ) -> None:
        self._shares = shares
        self._by_caller = by_caller
        self._by_subject = by_subject
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
                _("Too many responses are being followed."),
                _("try again in a moment"),
                headers=_RETRY,
            )

    def take_to_wait(self) -> bool:
        """Take a place for a wait. Return False if all clients together have every place: answer without a wait. Raises
        Problem with 429.
        """
        if self._by_caller[self._caller] >= self._shares.streams:
            raise _too_many_requests(
                ngettext(
                    "This token keeps {n} request open, streams included, as many as it may.",
                    "This token keeps {n} requests open, streams included, as many as it may.",
                    self._shares.streams,
                )
            )
        self._taken = self._by_caller.total() < self._shares.all_streams
        if self._taken:
            self._by_caller[self._caller] += 1
        return self._taken

    def follow(self, subject: str) -> None:
        """Set the id of the response or server that a request with a place follows. Raises Problem with 429."""
        if not self._taken:
            return
        key = (self._caller, subject)
        if self._by_subject[key] >= self._shares.streams_per_response:
            raise _too_many_requests(
                ngettext(
                    "This token follows this {n} time, as often as it may.",
                    "This token follows this {n} times, as often as it may.",
                    self._shares.streams_per_response,
                )
            )
        self._subject = key
        self._by_subject[key] += 1

    def release(self) -> None:
        """Release the places."""
        if self._taken:
            self._taken = False
            _count_down(self._by_caller, self._caller)
        if self._subject is not None:
            _count_down(self._by_subject, self._subject)
            self._subject = None


def _too_many_requests(message: str) -> Problem:
    return Problem(
        429,
        "too_many_requests",
        message,
        _("end one, or wait until one has ended"),
        headers=_RETRY,
    )


def _count_down(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
