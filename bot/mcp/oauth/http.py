"""Asking authorization servers: every request of an errand goes through here.

What is asked comes from the server's own words, so nothing is trusted: addresses are checked as those that admins give,
redirects are not followed, answers are small and come soon. Knows HTTP and nothing of OAuth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx2

import bot
from bot.domain.servers import HttpTransport, ServerConfig
from bot.errors import ServerTrouble
from bot.mcp.addresses import AllowedTargets, Resolve, origin_of, parse_ip
from bot.mcp.errors import InvalidDefinition
from bot.mcp.transports.http_client import GuardedTransport

_SECONDS = 10.0
"""For one answer."""
_ERRAND_SECONDS = 30.0
"""For everything that one errand asks."""
_LARGEST = 256 * 1024
"""Bytes of an answer: metadata has some thousand."""
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class AuthServerClient:
    """Sends the requests of one errand."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, read to its end, whatever its status. Raises ServerTrouble."""
        host = request.url.host
        request.headers.update(self._client.headers)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._answer(request)
        except TimeoutError:
            raise ServerTrouble(f"{host} did not answer within {_SECONDS:g} s.", "try again later") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if isinstance(error.__cause__, InvalidDefinition):
                raise ServerTrouble(error.__cause__.cause, error.__cause__.fix) from error
            said = str(error).rstrip(".") or type(error).__name__
            raise ServerTrouble(f"{host} cannot be asked: {said}.", "try again later") from error

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                raise httpx2.ReadError("its answer is compressed, though it was asked not to")
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _LARGEST:
                    raise httpx2.ReadError(f"its answer is larger than {_LARGEST // 1024} KiB")
        finally:
            await answer.aclose()
        # JSON is UTF-8 whatever its header says, and Python knows encodings that are none: `zlib` for one.
        headers = [(name, value) for name, value in answer.headers.multi_items() if name.lower() != "content-type"]
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(body), request=request)


@asynccontextmanager
async def open_client(network: httpx2.AsyncBaseTransport) -> AsyncIterator[AuthServerClient]:
    """Somebody who asks over this network, which is closed after the block. Raises ServerTrouble if it takes long."""
    headers = {
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": f"countersign/{bot.__version__}",
    }
    client = httpx2.AsyncClient(transport=network, headers=headers, timeout=_SECONDS, trust_env=False)
    try:
        async with asyncio.timeout(_ERRAND_SECONDS), client:
            yield AuthServerClient(client)
    except TimeoutError:
        raise ServerTrouble(f"Signing in took more than {_ERRAND_SECONDS:g} s.", "try again later") from None


def open_guarded_transport(
    config: ServerConfig, allowances: AllowedTargets, resolve: Resolve
) -> httpx2.AsyncBaseTransport:
    """The network for what a server says about signing in. Its words are not the operator's, even if its address is: to
    the host that the operator has written down, and wherever admins may go.
    """
    hosts = allowances.hosts
    match config.transport:
        case HttpTransport(url=url) if config.from_file:
            host, _ = origin_of(url)
            hosts |= _LOOPBACK if is_loopback(host) else {host}
        case _:
            pass
    return GuardedTransport(replace(allowances, hosts=hosts), resolve)


def is_loopback(host: str) -> bool:
    """It names this machine, without anybody being asked."""
    literal = parse_ip(host)
    return host == "localhost" or host.endswith(".localhost") or (literal is not None and literal.is_loopback)


def validate_url(url: str, what: str) -> str:
    """An address that secrets or people are sent to: over TLS, or on this machine. Raises ServerTrouble."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        if parts.username is None and parts.password is None and host:
            return url
    elif parts.scheme == "http":
        raise ServerTrouble(
            f"The {what} at {host} begins with http://, so everybody on the way could read along.",
            "whoever runs the authorization server has to serve it over https",
        )
    raise ServerTrouble(f"The {what} is no address that anybody may be sent to.", "ask whoever runs the server")
