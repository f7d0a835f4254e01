"""How one server is approached: by which transport, and whether it is asked for its protocol first.

Some servers of the protocol before 2026 die of that question, or let it run into its limit: what was found out is kept
with what the server offers, and counts for a week, or until the server is defined to be elsewhere or says that it is
of another version. Kept by the
`connection`, which tells it how each try went.
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
    """The next try's way to a server. `known` is what was found out of it before, when it said to be of this `version`;
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
        """The server, with the transport that is tried: never `auto`."""
        transport = self._config.transport
        if not isinstance(transport, HttpTransport) or transport.kind is not HttpKind.AUTO:
            return self._config
        known = self._remembered
        kind = HttpKind.SSE if self._older or (known and known.transport == HttpKind.SSE) else HttpKind.STREAMABLE
        return replace(self._config, transport=replace(transport, kind=kind))

    @property
    def mode(self) -> str:
        """The MCP library's word for how the protocol's version is found out. HTTP+SSE is older than the question."""
        asked = not (self._mute or self._remembered or self._word == HttpKind.SSE)
        return "auto" if asked else "legacy"

    def protocol_label(self, protocol: str) -> str:
        """What people are told is spoken: a server without MCP does not speak this version of it either."""
        return "JSON-RPC 2.0" if self._word == HttpKind.JSONRPC else protocol

    def on_connected(self, protocol: str, version: str = "") -> Handshake | None:
        """It has answered, in this version of the protocol, and says which version it is of itself. What is worth
        knowing of it at the next start: one that has become another since is asked again then.
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
        """It could not be connected to; whether there is another way, to be tried at once. `hung_up`: the other side
        did, and without an error the time was over, which is what some do when they are asked for the protocol: the
        next try does not ask. What was known is not
        counted on in every second try: the server may be down, or another one by now.
        """
        streamable, asked = self._word == HttpKind.STREAMABLE, self.mode == "auto"
        self._doubted = self._remembered is not None
        self._mute = asked and (hung_up or error is None)
        self._older = (
            kind_of(self._config.transport) == HttpKind.AUTO and streamable and _knows_no_better(error, attempt)
        )
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


def _knows_no_better(error: BaseException | None, attempt: RequestContext) -> bool:
    """Whether a server has refused streamable HTTP as one of HTTP+SSE does (MCP specification 2026-07-28,
    basic/transports, backwards compatibility).
    """
    cause = None if error is None else root_cause(error)
    modern = isinstance(cause, MCPError) and cause.code in _MODERN
    return attempt.status in _NOT_STREAMABLE and not attempt.failure and not modern
