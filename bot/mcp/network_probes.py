"""Network checks of an HTTP server: address, DNS, TCP, TLS, HTTP and authentication.

Run them in this order: each uses the result of the one before. Each closes its connections.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import AbstractAsyncContextManager, suppress
from urllib.parse import urlsplit

import httpx2

from bot.domain.health import Check, CheckStatus
from bot.domain.servers import HttpKind, HttpTransport, ServerConfig
from bot.mcp import request_context
from bot.mcp.addresses import (
    AllowedTargets,
    check_definition,
    is_address,
    origin_of,
    parse_ip,
    resolve_allowed,
    resolve_host,
)
from bot.mcp.errors import InvalidDefinition, status_phrase
from bot.mcp.redaction import address
from bot.mcp.session import ConnectionDependencies
from bot.mcp.transports.http_client import http_client
from bot.mcp.transports.open import network

_HANDSHAKE_SECONDS = 8.0
_SOON = 14 * 86_400.0
_CERTIFICATE_PROBLEMS = {
    9: ("The certificate is not valid yet", "check the clocks of both machines"),
    10: ("The certificate has expired", "renew the server's certificate"),
    18: ("The certificate is self-signed", "give the server a certificate that this machine trusts"),
    19: ("The certificate's chain ends in one that is self-signed", "let this machine trust its issuer"),
    20: ("The certificate's issuer is not known here", "send the whole chain, or let this machine trust its issuer"),
    21: ("The certificate's issuer is not known here", "send the whole chain, or let this machine trust its issuer"),
    62: ("The certificate is for another host", "use the host that the certificate names"),
    64: ("The certificate is for another host", "use the host that the certificate names"),
}
"""Cause and fix by OpenSSL's error number (X509_V_ERR_...)."""


class NetworkProbes:
    """Checks of one address. `endpoint` is the transport of `config`."""

    def __init__(self, config: ServerConfig, endpoint: HttpTransport, shared: ConnectionDependencies) -> None:
        self._config = config
        self._endpoint = endpoint
        self._shared = shared
        self._addresses: list[str] = []
        self._status = 0
        self._asked_for = ""
        self._refusal = ""

    @property
    def _allowances(self) -> AllowedTargets:
        return self._shared.allowances

    async def address(self) -> Check:
        """Check that the URL is valid and allowed."""
        url = self._endpoint.url
        if not is_address(url):
            return broken("address", "The url is not an http or https address.", "write https://host/path")
        try:
            check_definition(self._config, self._allowances)
        except InvalidDefinition as unusable:
            return broken("address", unusable.cause, unusable.fix)
        return Check("address", CheckStatus.WELL, address(url))

    async def dns(self) -> Check:
        """Check that the host name resolves to allowed addresses only."""
        host, port = origin_of(self._endpoint.url)
        try:
            if self._config.from_file:
                literal = parse_ip(host)
                self._addresses = [str(literal)] if literal is not None else await resolve_host(host, port)
            else:
                self._addresses = await resolve_allowed(host, port, self._allowances, self._shared.resolve)
        except InvalidDefinition as unusable:
            return broken("DNS", unusable.cause, unusable.fix)
        except OSError as error:
            return broken("DNS", f"{host} is not known: {error.strerror}.", "correct the host, or look at the DNS here")
        return Check("DNS", CheckStatus.WELL, f"{host} is {', '.join(self._addresses[:3])}")

    async def tcp(self) -> Check:
        """Check that the port accepts connections."""
        _, port = origin_of(self._endpoint.url)
        said = ""
        for each in tuple(self._addresses):
            try:
                _, writer = await asyncio.open_connection(each, port)
            except OSError as error:
                said = error.strerror or type(error).__name__
                continue
            self._addresses = [each]
            await _closed(writer)
            return Check("TCP", CheckStatus.WELL, f"{each} listens on port {port}")
        return broken(
            "TCP",
            f"No connection to port {port}: {said}.",
            "check that the server is running, its port, and the firewall between",
        )

    async def tls(self) -> Check:
        """Check that the connection is encrypted and the certificate valid."""
        host, port = origin_of(self._endpoint.url)
        if urlsplit(self._endpoint.url).scheme == "http":
            return Check("TLS", CheckStatus.SKIPPED, "The url begins with http://, so nothing is encrypted.")
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        try:
            _, writer = await asyncio.open_connection(
                self._addresses[0],
                port,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except ssl.SSLCertVerificationError as error:
            cause, fix = _CERTIFICATE_PROBLEMS.get(
                error.verify_code, (f"The certificate is not accepted: {error.verify_message}", "replace it")
            )
            return broken("TLS", f"{cause}.", fix)
        except ssl.SSLError as error:
            why = (error.reason or "no TLS").replace("_", " ").lower()
            return broken("TLS", f"The port does not speak TLS as it should: {why}.", "check the port and the scheme")
        except OSError as error:
            why = error.strerror or "the connection was closed"
            return broken("TLS", f"TLS was refused: {why}.", "check the port, and what stands in front of the server")
        left = _seconds_left(writer)
        await _closed(writer)
        if left is not None and left < _SOON:
            return Check(
                "TLS", CheckStatus.DOUBTFUL, f"The certificate expires in {left / 86_400:.0f} days.", "renew it"
            )
        return Check("TLS", CheckStatus.WELL, "the certificate fits the host")

    async def http(self) -> Check:
        """Check that a web server answers, and its status."""
        with request_context.begin() as attempt:
            below = network(self._config, self._allowances, self._shared.resolve, self._shared.bearer(self._config))
            async with (
                http_client(self._endpoint.headers, self._config.tool_timeout, below) as client,
                self._asked(client) as response,
            ):
                headers = response.headers
        if attempt.failure and attempt.refusal:
            cause, _, fix = attempt.refusal.partition(" Fix: ")
            return broken("HTTP", cause, fix)
        if attempt.failure:
            return broken("HTTP", f"The request failed: {attempt.failure.rstrip('.')}.", "check the server's log")
        self._status = attempt.status or 0
        self._refusal = attempt.refusal
        self._asked_for = headers.get("www-authenticate", "")
        return self._judged(status_phrase(self._status), headers.get("location", ""))

    def _asked(self, client: httpx2.AsyncClient) -> AbstractAsyncContextManager[httpx2.Response]:
        if self._endpoint.kind is HttpKind.SSE:
            return client.stream("GET", self._endpoint.url, headers={"accept": "text/event-stream"})
        return client.stream("POST", self._endpoint.url, json=_QUESTION, headers=_ACCEPTED)

    def _judged(self, phrase: str, location: str) -> Check:
        # The request is not an MCP message, so many healthy servers answer 400.
        said = f"a web server answers ({phrase})"
        match self._status:
            case 301 | 302 | 303 | 307 | 308:
                where = address(location)
                return broken("HTTP", f"The server answers {phrase} and points to {where}.", "use that address instead")
            case 404 | 405 if self._endpoint.kind is HttpKind.AUTO:
                return Check("HTTP", CheckStatus.WELL, f"{said}, as one of HTTP+SSE does")
            case 404 | 405 | 410:
                return Check("HTTP", CheckStatus.DOUBTFUL, said, "if MCP fails below, correct the path of the url")
            case 429 | 500 | 501 | 502 | 503 | 504:
                return Check("HTTP", CheckStatus.DOUBTFUL, said, "check the server's log")
            case _:
                return Check("HTTP", CheckStatus.WELL, said)

    async def authentication(self) -> Check:
        """Check that the server accepts the credentials."""
        sent = next((value for name, value in self._endpoint.headers.items() if name.lower() == "authorization"), "")
        bearer = self._shared.bearer(self._config)
        kind = "Bearer" if bearer is not None and bearer.has_token else _scheme(sent) if sent else ""
        shown = f"an Authorization header of the kind {kind}" if kind else "no Authorization header"
        if self._status not in (401, 403):
            return Check("authentication", CheckStatus.WELL, f"not refused; the bot sends {shown}")
        if self._refusal:
            cause, _, fix = self._refusal.partition(" Fix: ")
            return broken("authentication", cause, fix)
        wants = f" It asks for {_scheme(self._asked_for)}." if self._asked_for else ""
        return broken(
            "authentication",
            f"The server answers {status_phrase(self._status)}.{wants} The bot sends {shown}.",
            "check that the type of authentication is the one the server wants, that the secret is right and still "
            "valid, and the name and form of the header",
        )


_QUESTION = {"jsonrpc": "2.0", "id": "doctor", "method": "ping"}
_ACCEPTED = {"accept": "application/json, text/event-stream"}


def broken(name: str, cause: str, fix: str) -> Check:
    """Return a failed check."""
    return Check(name, CheckStatus.BROKEN, cause, fix)


def _scheme(header: str) -> str:
    """Return the scheme of an authorization header, if it is a scheme and not a secret."""
    word, space, _ = header.strip().partition(" ")
    return word if space and word.isalpha() and len(word) <= 20 else "of its own"


def _seconds_left(writer: asyncio.StreamWriter) -> float | None:
    certificate = writer.get_extra_info("peercert") or {}
    expires = certificate.get("notAfter")
    return None if expires is None else ssl.cert_time_to_seconds(expires) - time.time()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
