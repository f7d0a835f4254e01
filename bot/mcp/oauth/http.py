"""HTTP client for authorization servers, and the dependencies that all sign-ins of a process share.

URLs come from the server, so they are untrusted: they are checked like those of admins, redirects are not followed,
and responses are limited in size and time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

import bot
from bot.domain.servers import HttpTransport, ServerConfig
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.logs import out_of_context
from bot.machine import find_proxy
from bot.mcp.config.checks import AllowedTargets, Resolve, check_definition, origin_of, parse_ip, resolve_host
from bot.mcp.errors import COMPRESSED, InvalidDefinition, known_fix, lazy_reason, without_stop
from bot.mcp.redaction import KnownSecrets
from bot.mcp.transports.http import GuardedTransport
from bot.ports import Leases, SignInStore

_SECONDS = 10.0
"""Timeout of one response."""
_CLIENT_SECONDS = 30.0
"""Timeout of all requests of one client."""
_LARGEST = 256 * 1024
"""Maximum size of a response in bytes. Metadata has some thousand."""
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class TokenRequestRejected(ServerTrouble):
    """The authorization server rejects the request for good. `error` is its error code."""

    def __init__(self, cause: str, fix: str, error: str) -> None:
        super().__init__(cause, fix)
        self.error = error

    @property
    def is_unknown_client(self) -> bool:
        """True if the client is unknown."""
        return self.error in ("invalid_client", "unauthorized_client")


class AuthServerClient:
    """Client for the requests of one sign-in or refresh."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Return the whole response, of any status. Raises ServerTrouble."""
        host = request.url.host
        request.headers.update(self._client.headers)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._answer(request)
        except TimeoutError:
            raise ServerTrouble(
                gettext_lazy("{host} did not answer within {seconds} s.", host=host, seconds=f"{_SECONDS:g}"),
                gettext_lazy("try again later"),
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if isinstance(error.__cause__, InvalidDefinition):
                raise ServerTrouble(error.__cause__.cause, error.__cause__.fix) from error
            reason = lazy_reason(error) or without_stop(str(error)) or type(error).__name__
            raise ServerTrouble(
                gettext_lazy("{host} cannot be asked: {reason}.", host=host, reason=reason),
                known_fix(error) or gettext_lazy("try again later"),
            ) from error

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                raise httpx2.ReadError(COMPRESSED)
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _LARGEST:
                    raise httpx2.ReadError(
                        gettext_lazy("its answer is larger than {kibibytes} KiB", kibibytes=_LARGEST // 1024)
                    )
        finally:
            await answer.aclose()
        # JSON is UTF-8 regardless of the header. Python also has codecs such as `zlib`, which a header must not choose.
        headers = [(name, value) for name, value in answer.headers.multi_items() if name.lower() != "content-type"]
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(body), request=request)


@asynccontextmanager
async def open_client(
    network: httpx2.AsyncBaseTransport, purpose: str = gettext_lazy("Signing in")
) -> AsyncIterator[AuthServerClient]:
    """Open a client on this network, and close the network after the block. Raises ServerTrouble on a timeout."""
    headers = {
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": f"countersign/{bot.__version__}",
    }
    client = httpx2.AsyncClient(transport=network, headers=headers, timeout=_SECONDS, trust_env=False)
    try:
        async with asyncio.timeout(_CLIENT_SECONDS), client:
            yield AuthServerClient(client)
    except TimeoutError:
        raise ServerTrouble(
            gettext_lazy("{purpose} took more than {seconds} s.", purpose=purpose, seconds=f"{_CLIENT_SECONDS:g}"),
            gettext_lazy("try again later"),
        ) from None


def open_guarded_transport(
    config: ServerConfig, allowances: AllowedTargets, resolve: Resolve
) -> httpx2.AsyncBaseTransport:
    """Return the network for requests about a sign-in. Even for a server of the operator's file, it reaches only
    that server's host and the targets that admins may use.
    """
    match config.transport:
        case HttpTransport(url=url) if config.from_file:
            return open_operator_transport(url, allowances, resolve)
    return GuardedTransport(allowances, resolve)


def open_operator_transport(url: str, allowances: AllowedTargets, resolve: Resolve) -> httpx2.AsyncBaseTransport:
    """Return the network for requests to the host of the operator's URL, and to the targets that admins may use."""
    host, _ = origin_of(url)
    hosts = allowances.hosts | (_LOOPBACK if is_loopback(host) else {host})
    return GuardedTransport(replace(allowances, hosts=hosts), resolve, find_proxy)


def is_loopback(host: str) -> bool:
    """Return True if the host names this machine, without a DNS lookup."""
    literal = parse_ip(host)
    return host == "localhost" or host.endswith(".localhost") or (literal is not None and literal.is_loopback)


def validate_url(url: str, what: str) -> str:
    """Check a URL that secrets or users are sent to: https, or this machine. Raises ServerTrouble."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        if parts.username is None and parts.password is None and host:
            return url
    elif parts.scheme == "http":
        raise ServerTrouble(
            gettext_lazy(
                "The {endpoint} at {host} begins with http://, so others on the network could read it.",
                endpoint=what,
                host=host,
            ),
            gettext_lazy("its operator has to serve it over https"),
        )
    raise ServerTrouble(
        gettext_lazy("The {endpoint} is not an allowed address.", endpoint=what), gettext_lazy("ask its operator")
    )


@dataclass(frozen=True, slots=True)
class OAuthDependencies:
    """Shared dependencies. `clock` is in epoch seconds, `elapsed` a monotonic clock in seconds. `pause` sleeps for
    a number of seconds.
    """

    store: SignInStore
    leases: Leases
    secrets: KnownSecrets
    allowances: AllowedTargets = AllowedTargets()
    resolve: Resolve = resolve_host
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def client_for(self, config: ServerConfig) -> AbstractAsyncContextManager[AuthServerClient]:
        """Return a client for the authorization server of this server. Raises ServerTrouble if the operator's
        settings forbid the server.
        """
        try:
            check_definition(config, self.allowances)
        except InvalidDefinition as unusable:
            raise ServerTrouble(
                gettext_lazy("Server {server}: {cause}", server=config.name, cause=unusable.cause), unusable.fix
            ) from unusable
        return open_client(open_guarded_transport(config, self.allowances, self.resolve))

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that outlives its caller. Its exceptions are raised to the tasks that await it."""
        with out_of_context():
            task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Retrieve the exception, because the task may have no waiter.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def close(self, limit: float) -> None:
        """Wait for running tasks, at most `limit` seconds, because new tokens must be stored."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=limit)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
