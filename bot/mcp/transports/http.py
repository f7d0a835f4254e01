"""HTTP client for the MCP library that limits an error to its own request.

Otherwise a connection error would end the library's client with all its requests. The client records the status and
whether the request may have reached the server. Servers of admins are reached at checked addresses only. The read
timeout of a response pauses while a user is asked.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from bot.errors import SettingsError
from bot.i18n import gettext_lazy
from bot.machine import Proxy, find_proxy
from bot.mcp.config.checks import AllowedTargets, Resolve, resolve_allowed
from bot.mcp.errors import (
    COMPRESSED,
    LARGEST_ANSWER,
    TOO_LARGE,
    InvalidDefinition,
    RequestContext,
    current_request,
    known_fix,
    lazy_reason,
    status_phrase,
    without_stop,
)

_QUOTING = (httpx2.ProtocolError, httpx2.ProxyError)
"""Errors with text that may quote the server."""
_NEVER_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)
_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_READ_SECONDS = 300.0
_ERROR_BODY = 2_000
"""Bytes of the body of an HTTP error that are looked at."""
_MOST_DIGITS = 9
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ANY_LENGTH = "text/event-stream"
FindProxy = Callable[[str], Proxy | None]


class ProxyTransport(httpx2.AsyncBaseTransport):
    """Transport that sends each request through the proxy that `find` returns for its URL, or directly."""

    def __init__(self, find: FindProxy = find_proxy) -> None:
        self.find = find
        self._pools: dict[tuple[Proxy | None, str], httpx2.AsyncBaseTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises ConnectError for a variable of this machine that cannot be used."""
        return await self.send(request, self.proxy_for(request))

    def proxy_for(self, request: httpx2.Request) -> Proxy | None:
        """Return the proxy for a request. Raises ConnectError."""
        try:
            return self.find(str(request.url))
        except SettingsError as error:
            raise httpx2.ConnectError(without_stop(error.cause), request=request) from error

    async def send(self, request: httpx2.Request, proxy: Proxy | None) -> httpx2.Response:
        """Send a request through a proxy or directly. Raises TransportError, which names the proxy's variable."""
        from bot.mcp.transports.pool import PoolTransport  # noqa: PLC0415 - heavy, and not every process has servers

        key = (proxy, request.url.scheme)
        try:
            if key not in self._pools:
                self._pools[key] = PoolTransport(*key)
            response = await self._pools[key].handle_async_request(request)
            if proxy is not None and response.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
                await response.aclose()
                raise httpx2.ProxyError(status_phrase(response.status_code))
        except SettingsError as error:
            raise httpx2.ConnectError(without_stop(error.cause), request=request) from error
        except httpx2.TransportError as error:
            if proxy is None:
                raise
            kind = httpx2.ProxyError if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout) else type(error)
            reason = without_stop(lazy_reason(error) or str(error)) or type(error).__name__
            text = gettext_lazy("{reason} (through the proxy of {variable})", reason=reason, variable=proxy.variable)
            raise kind(text, request=request) from SettingsError(text, proxy.fix)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        for each in self._pools.values():
            await each.aclose()


class ReadTimeout:
    """Timeout in seconds, None for no limit, without the time in which users are asked."""

    def __init__(self, seconds: float | None, attempt: RequestContext) -> None:
        self._seconds = seconds
        self._attempt = attempt

    @classmethod
    def take_from(cls, request: httpx2.Request, attempt: RequestContext) -> ReadTimeout:
        """Return the timeout of a request, and remove it from the request."""
        limits = request.extensions.get("timeout", {})
        request.extensions = {**request.extensions, "timeout": {**limits, "read": None}}
        return cls(limits.get("read"), attempt)

    async def receive_response(self, network: httpx2.AsyncBaseTransport, request: httpx2.Request) -> httpx2.Response:
        """Return the response when it begins. Raises ReadTimeout."""
        try:
            async with asyncio.timeout(self._seconds):
                return await network.handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer", request=request) from error

    async def receive_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, None at the end. Raises ReadTimeout."""
        if (seconds := self._seconds) is None:
            return await anext(chunks, None)
        loop, began = asyncio.get_running_loop(), time.monotonic()
        limit = asyncio.timeout(None)
        alarm: asyncio.TimerHandle

        def look() -> None:
            nonlocal alarm
            left = self._attempt.quiet_since(began) + seconds - time.monotonic()
            if left > 0:
                alarm = loop.call_later(left, look)
            else:
                limit.reschedule(loop.time())

        alarm = loop.call_later(seconds, look)
        try:
            async with limit:
                try:
                    return await anext(chunks, None)
                finally:
                    alarm.cancel()
        except TimeoutError as error:
            raise httpx2.ReadTimeout("nothing more") from error


def http_client(
    headers: Mapping[str, str],
    longest_call: float,
    network: httpx2.AsyncBaseTransport,
    read_answers: Callable[[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport] | None = None,
) -> httpx2.AsyncClient:
    """Return a client with these headers. `read_answers` wraps its transport.

    A stream ends after five minutes of silence, but not before a call of `longest_call` seconds. The transport chooses
    proxies. Redirects are not followed. Compressed responses are not accepted, because a small one may unpack to
    gigabytes.
    """
    timeout = httpx2.Timeout(_WRITE_SECONDS, connect=_CONNECT_SECONDS, read=max(_READ_SECONDS, longest_call + 30))
    plainly = {"accept-encoding": "identity"}
    isolating = _ErrorIsolatingTransport(network)
    transport = isolating if read_answers is None else read_answers(isolating)
    return httpx2.AsyncClient(headers={**plainly, **headers}, timeout=timeout, transport=transport, trust_env=False)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Transport that connects only to addresses that admins may use.

    Each request resolves its host, checks all addresses and connects to one of them, so that a later DNS change has
    no effect. The proxy of admins' servers is asked for the checked address, too. With `find`, requests are the
    operator's own: their proxy is asked for the name, which may be unknown here.
    """

    def __init__(self, allowances: AllowedTargets, resolve: Resolve, find: FindProxy | None = None) -> None:
        self._inner = ProxyTransport(find or allowances.proxy_for)
        self._is_own = find is not None
        self._allowances = allowances
        self._resolve = resolve

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a checked address of its host. Raises ConnectError if one of them is forbidden."""
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        proxy = self._inner.proxy_for(request)
        is_named = proxy is not None and (self._is_own or self._allowances.allows_host(host, port))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                addresses = await resolve_allowed(host, port, self._allowances, self._resolve)
        except InvalidDefinition as unusable:
            raise httpx2.ConnectError(without_stop(unusable.cause), request=request) from unusable
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(gettext_lazy("the name was not resolved in time"), request=request) from error
        except OSError as error:
            if not is_named:
                reason = gettext_lazy("the name is not known: {reason}", reason=error.strerror)
                if proxy is not None:
                    reason = gettext_lazy(
                        "the name is not known here, so its addresses cannot be checked before {variable} is asked; "
                        "MCP_ALLOWED_HOSTS may name the host",
                        variable=proxy.variable,
                    )
                raise httpx2.ConnectError(reason, request=request) from error
            addresses = []
        if is_named:
            return await self._inner.send(request, proxy)
        failure: httpx2.TransportError = httpx2.ConnectError(gettext_lazy("the name has no address"), request=request)
        for address in addresses:
            # The Host header and the expected certificate stay those of the host.
            checked = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.send(checked, proxy)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
                failure = error
        raise failure

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class _ErrorIsolatingTransport(httpx2.AsyncBaseTransport):
    """Transport that turns connection errors into responses and records them."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        attempt = current_request()
        attempt.status, attempt.failure, attempt.quotes, attempt.refusal = None, "", False, ""
        attempt.retry_after, attempt.error_body = None, ""
        silence = ReadTimeout.take_from(request, attempt)
        try:
            response = await silence.receive_response(self._inner, request)
        except _NEVER_SENT as error:
            attempt.sent = False
            return _stand_in(request, attempt, error)
        except httpx2.TransportError as error:
            return _stand_in(request, attempt, error)
        attempt.status = response.status_code
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            return _stand_in(request, attempt, httpx2.ReadError(COMPRESSED))
        if isinstance(response.stream, httpx2.AsyncByteStream):
            endless = response.headers.get("content-type", "").lower().startswith(_ANY_LENGTH)
            most = math.inf if endless else LARGEST_ANSWER
            response.stream = _Body(response.stream, attempt, silence, most)
        if response.is_error:
            attempt.retry_after = _retry_after(response)
            with suppress(httpx2.StreamError):  # recorded by the body
                attempt.error_body = (await response.aread())[:_ERROR_BODY].decode("utf-8", "replace")
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of the Retry-After header, None if it has none. A date counts from the server's own clock if
    the server says its time (RFC 9110, 10.2.3).
    """
    value = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value[:_MOST_DIGITS])
    if (until := _moment(value)) is None:
        return None
    return max(0.0, round(until - (_moment(response.headers.get("date", "")) or time.time())))


def _moment(date: str) -> float | None:
    with suppress(ValueError, OverflowError):
        return parsedate_to_datetime(date).timestamp()
    return None


class _Body(httpx2.AsyncByteStream):
    """Response body whose errors the library counts against its own request. A body above `most` bytes is such an
    error.
    """

    def __init__(
        self, inner: httpx2.AsyncByteStream, attempt: RequestContext, silence: ReadTimeout, most: float
    ) -> None:
        self._inner = inner
        self._attempt = attempt
        self._silence = silence
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._inner)
        try:
            while (chunk := await self._silence.receive_chunk(chunks)) is not None:
                self._left -= len(chunk)
                if self._left < 0:
                    raise httpx2.ReadError(TOO_LARGE)
                yield chunk
        except httpx2.TransportError as error:
            _note(self._attempt, error)
            raise httpx2.StreamError(self._attempt.failure) from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def _stand_in(request: httpx2.Request, attempt: RequestContext, error: httpx2.TransportError) -> httpx2.Response:
    from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415 - other HTTP clients than servers' use this transport, too

    _note(attempt, error)
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": attempt.failure}}
    return httpx2.Response(503, json=body, request=request)


def _note(attempt: RequestContext, error: httpx2.TransportError) -> None:
    match error:
        case httpx2.ConnectTimeout():
            attempt.failure = gettext_lazy("no connection within {seconds} s", seconds=f"{_CONNECT_SECONDS:g}")
        case httpx2.ReadTimeout():
            attempt.failure = gettext_lazy("nothing came for too long")
        case _:
            attempt.failure = lazy_reason(error) or without_stop(str(error) or type(error).__name__)
    attempt.fix, attempt.quotes = known_fix(error), isinstance(error, _QUOTING)
