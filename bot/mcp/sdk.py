"""Dependence on the inner workings of the MCP library: its private modules, its error texts, and facts that it hides.

The library hides HTTP errors, broken streams and foreign protocol versions behind texts. Only this module knows them.
They may change with each minor version: `pyproject.toml` pins it to `PINNED_VERSION`, and a test looks for the texts in
the installed library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp import MCPError
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR, ErrorData

__all__ = [
    "ELICITATION",
    "HTTP_ERROR",
    "PINNED_VERSION",
    "WHOLE_MESSAGES",
    "IncomingStream",
    "OutgoingStream",
    "ReadStream",
    "TransportStreams",
    "WriteStream",
    "get_default_environment",
    "http_error_stand_in",
    "is_elicitation_impossible",
    "is_event_too_large",
    "is_http_error_stand_in",
    "is_stream_end",
    "is_unparsable_response",
    "is_without_answer",
    "request_within_origin",
    "sse_within_origin",
    "terminate_posix_process_tree",
    "unsupported_version",
]

PINNED_VERSION = "2.3"
"""Minor version that this module was written for."""

ELICITATION = "elicitation/create"
"""Method by which a server of the older era asks the user during a call."""
_NO_BACK_CHANNEL = "no back-channel"
"""Part of the library's own server's error in the newer protocol, which has no such requests."""
WHOLE_MESSAGES = ("Sending client message: ", "SSE message: ", "Received server message: ")
"""Beginnings of log lines with whole messages, which may hold users' answers to elicitations."""

HTTP_ERROR = ErrorData(code=INTERNAL_ERROR, message="Server returned an error response")
"""Error that the library makes of an HTTP error without a JSON-RPC body."""
_HTTP_NOT_FOUND = ErrorData(code=METHOD_NOT_FOUND, message="Not Found")
_CLOSED = "Connection closed"
_STREAM = "SSE stream "
_STREAM_FAILED = "SSE stream failed: "
_UNPARSABLE = "Failed to parse"
_EVENT_TOO_LARGE = "byte limit."
"""End of a message of httpx2, which the library quotes."""
_ACCEPTED = "server answered a request with 202 Accepted"
_CONTENT_TYPE = "Unexpected content type: "
_UNSUPPORTED_VERSION = "Unsupported protocol version from the server: "


def http_error_stand_in(status: int) -> ErrorData:
    """Return the error that the library makes of this HTTP status without a JSON-RPC body."""
    return _HTTP_NOT_FOUND if status == 404 else HTTP_ERROR


def is_http_error_stand_in(error: MCPError) -> bool:
    """Return True if the library made this error of an HTTP error without a JSON-RPC body."""
    return (error.code, error.message) in (
        (stand_in.code, stand_in.message) for stand_in in (HTTP_ERROR, _HTTP_NOT_FOUND)
    )


def is_stream_end(error: MCPError) -> bool:
    """Return True if the library made this error because the stream has ended."""
    return error.code == CONNECTION_CLOSED and (error.message == _CLOSED or error.message.startswith(_STREAM))


def is_unparsable_response(error: MCPError) -> bool:
    """Return True if the library made this error because the response is not JSON-RPC."""
    return error.code == PARSE_ERROR and error.message.startswith(_UNPARSABLE)


def is_without_answer(error: MCPError) -> bool:
    """Return True if the library made this error of an HTTP success without a JSON-RPC response."""
    return error.message == _ACCEPTED or error.message.startswith(_CONTENT_TYPE)


def is_event_too_large(error: MCPError) -> bool:
    """Return True if the library made this error because an SSE event is above the size limit."""
    return error.message.startswith(_STREAM_FAILED) and error.message.endswith(_EVENT_TOO_LARGE)


def is_elicitation_impossible(text: str) -> bool:
    """Return True if a server that is written with the library could not ask the user, because the newer protocol has
    no requests of the server.
    """
    return ELICITATION in text and _NO_BACK_CHANNEL in text


def unsupported_version(error: BaseException) -> str:
    """Return the protocol version that the library rejected; empty if the error is another one."""
    text = str(error)
    if not isinstance(error, RuntimeError) or not text.startswith(_UNSUPPORTED_VERSION):
        return ""
    return text.removeprefix(_UNSUPPORTED_VERSION)


class _Stream(ABC):
    """Stream of a transport, which is closed after its block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the stream."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class IncomingStream(_Stream):
    """Read stream of a transport."""

    @abstractmethod
    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream at the end."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class OutgoingStream(_Stream):
    """Write stream of a transport, which accepts messages until it is closed."""

    def __init__(self) -> None:
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Accept a message. Raises anyio.ClosedResourceError if closed."""
        if self._closed:
            raise anyio.ClosedResourceError
        await self._take(item)

    @abstractmethod
    async def _take(self, item: SessionMessage) -> None: ...

    async def aclose(self) -> None:
        """Close the stream."""
        self._closed = True
