"""Connections to one server, as a transport of httpx2 on aiohttp.

The library's own transport takes three times the CPU for a request: it sends head and body one by one, and each read
and write passes several layers.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import lru_cache

import aiohttp
import httpx2
from yarl import URL

from bot.i18n import gettext_lazy
from bot.machine import Proxy, check_certificates

KEPT_SECONDS = 1.5
"""Seconds until an unused connection is closed. Servers close theirs after two (gunicorn) or five seconds (uvicorn,
Node); a request sent at that moment would have an unknown outcome.
"""
_MOST_CONNECTIONS = 100
_LONGEST_HEADER = 2**16
_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError], str], ...] = (
    (aiohttp.ClientProxyConnectionError, httpx2.ProxyError, ""),
    (aiohttp.ClientHttpProxyError, httpx2.ProxyError, ""),
    (aiohttp.ConnectionTimeoutError, httpx2.ConnectTimeout, ""),
    (TimeoutError, httpx2.ReadTimeout, ""),
    (aiohttp.ClientConnectorCertificateError, httpx2.ConnectError, ""),
    (aiohttp.ClientConnectorError, httpx2.ConnectError, ""),
    (aiohttp.InvalidURL, httpx2.UnsupportedProtocol, ""),
    (aiohttp.ServerDisconnectedError, httpx2.RemoteProtocolError, gettext_lazy("the server closed the connection")),
    (aiohttp.ClientPayloadError, httpx2.RemoteProtocolError, gettext_lazy("the answer broke off")),
    (aiohttp.ClientResponseError, httpx2.RemoteProtocolError, gettext_lazy("the answer is not valid HTTP")),
)
"""Errors of aiohttp, those of httpx2, and a reason if the error quotes the answer. The first that fits counts."""
_OWN_HEADERS = ("accept", "accept-encoding", "content-type", "user-agent")


class PoolTransport(httpx2.AsyncBaseTransport):
    """Connections to servers of one scheme, directly or through a proxy. Of a request's extensions, `timeout` has its
    limits and `sni_hostname` the name in the certificate. Raises httpx2's TransportError, and SettingsError if the
    certificates cannot be read.
    """

    def __init__(self, proxy: Proxy | None, scheme: str) -> None:
        self._proxy = None if proxy is None else httpx2.URL(proxy.url)
        self._trust: ssl.SSLContext | bool = False
        if scheme == "https":
            self._trust = _trust(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its response when it begins."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=_MOST_CONNECTIONS, keepalive_timeout=KEPT_SECONDS, ssl=self._trust
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_OWN_HEADERS,
                max_line_size=_LONGEST_HEADER,
                max_field_size=_LONGEST_HEADER,
            )
        limits = request.extensions.get("timeout", {})
        with _mapped_errors(request):
            response = await self._session.request(
                request.method,
                URL(str(request.url.copy_with(userinfo=b"")), encoded=True),  # it is in a header already
                headers=[(name.decode(), value.decode()) for name, value in request.headers.raw],
                data=await request.aread() or None,
                allow_redirects=False,
                server_hostname=request.extensions.get("sni_hostname"),
                proxy=None if self._proxy is None else str(self._proxy),
                timeout=aiohttp.ClientTimeout(
                    connect=limits.get("pool"), sock_connect=limits.get("connect"), sock_read=limits.get("read")
                ),
            )
        return httpx2.Response(
            response.status, headers=response.raw_headers, stream=_Body(response, request), request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped_errors(self._request):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        self._response.release()

    def __del__(self) -> None:
        # A response that came in the moment in which its request was cancelled has no reader.
        self._response.close()


@contextmanager
def _mapped_errors(request: httpx2.Request) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise _to_transport_error(error, request) from error


def _to_transport_error(error: Exception, request: httpx2.Request) -> httpx2.TransportError:
    kind, reason = next(
        ((kind, reason) for theirs, kind, reason in _ERRORS if isinstance(error, theirs)), (httpx2.ReadError, "")
    )
    match error:
        case aiohttp.ClientHttpProxyError(status=status, message=message):
            reason = f"{status} {message}"
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            reason = str(cause)
        case aiohttp.ClientConnectorError(os_error=cause):
            reason = str(cause)
        case _:
            reason = reason or str(error)
    return kind(reason, request=request)


@lru_cache(maxsize=4)
def _trust(_file: str, _folder: str) -> ssl.SSLContext:
    """Return the TLS context, loaded once for all servers because that takes 40 ms and most of a megabyte.
    Raises SettingsError if they cannot be read.
    """
    check_certificates()
    return httpx2.create_ssl_context()
