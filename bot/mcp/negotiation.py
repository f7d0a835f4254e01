"""Negotiation with one server: transport and protocol version.

Some servers of the protocol before 2026 crash or hang on the discovery request. The result is therefore cached for
a week, or until the server's endpoint or version changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mcp import MCPError
from mcp.types import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bot.domain.capabilities import Handshake
from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, kind_of
from bot.mcp.endpoint_fingerprint import endpoint_fingerprint
from bot.mcp.errors import root_cause
from bot.mcp.request_context import RequestContext

_KNOWN_SECONDS = 7 * 86_400.0
_NOT_STREAMABLE = frozenset((400, 404, 405))
_MODERN = frozenset((HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION))


class ProtocolNegotiation:
    """Choice of the next attempt's transport and mode. `known` is the cached handshake of server version `version`.
    `clock` is in epoch seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        known: Handshake | None,
        clock: Callable[[], float] = time.time,
        *,
        version: str = "",
    ) -> None:
        self._config = config
        self._version = version
        self._clock = clock
        self._known = known if known is not None and self._fits(known) else None
        self._doubted = False
        self._mute = False
        self._older = False

    @property
    def config(self) -> ServerConfig:
        """The server with the transport to try, never `auto`."""
        transport = self._config.transport
        if not isinstance(transport, HttpTransport) or transport.kind is not HttpKind.AUTO:
            return self._config
        known = self._remembered
        kind = HttpKind.SSE if self._older or (known and known.transport == HttpKind.SSE) else HttpKind.STREAMABLE
        return replace(self._config, transport=replace(transport, kind=kind))

    @property
    def mode(self) -> str:
        """Negotiation mode of the MCP library. HTTP+SSE is older than the discovery request."""
        asked = not (self._mute or self._remembered or self._word == HttpKind.SSE)
        return "auto" if asked else "legacy"

    def protocol_label(self, protocol: str) -> str:
        """Return the protocol to display. A server without MCP does not speak this version."""
        return "JSON-RPC 2.0" if self._word == HttpKind.JSONRPC else protocol

    def on_connected(self, protocol: str, version: str = "") -> Handshake | None:
        """Return the handshake to cache after a connection, or None. `version` is the server's own version: a
        changed one is negotiated again.
        """
        another = self._remembered is not None and version != self._version
        self._version = version
        if another or protocol in MODERN_PROTOCOL_VERSIONS:
            self._known = None
        elif self._remembered is None or self._remembered.transport != self._word:
            self._known = Handshake(self._word, endpoint_fingerprint(self._config), self._clock())
        self._doubted = self._mute = self._older = False
        return self._known

    def on_failed(self, error: BaseException | None, attempt: RequestContext, *, hung_up: bool) -> bool:
        """Record a failed attempt. Return True if another way is to be tried at once.

        `hung_up`: the server closed the connection. No `error` means a timeout. Both can be caused by the discovery
        request, so the next attempt leaves it out. The cached handshake is ignored in every second attempt, because
        the server may have changed.
        """
        streamable, asked = self._word == HttpKind.STREAMABLE, self.mode == "auto"
        self._doubted = self._remembered is not None
        self._mute = asked and (hung_up or error is None)
        self._older = kind_of(self._config.transport) == HttpKind.AUTO and streamable and _is_sse_server(error, attempt)
        return self._older

    @property
    def _word(self) -> str:
        return kind_of(self.config.transport)

    @property
    def _remembered(self) -> Handshake | None:
        if self._known is None or self._doubted:
            return None
        return self._known if 0 <= self._clock() - self._known.found_at < _KNOWN_SECONDS else None

    def _fits(self, known: Handshake) -> bool:
        word = kind_of(self._config.transport)
        return known.place == endpoint_fingerprint(self._config) and word in (known.transport, HttpKind.AUTO)


def _is_sse_server(error: BaseException | None, attempt: RequestContext) -> bool:
    """Return True if a server rejected streamable HTTP like one of HTTP+SSE (MCP specification 2026-07-28,
    basic/transports, backwards compatibility).
    """
    cause = None if error is None else root_cause(error)
    modern = isinstance(cause, MCPError) and cause.code in _MODERN
    return attempt.status in _NOT_STREAMABLE and not attempt.failure and not modern
