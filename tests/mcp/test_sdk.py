"""Private parts and error texts of the MCP library that the client depends on."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import httpx2
import mcp.client.session
import mcp.client.sse
import mcp.client.streamable_http
import mcp.shared.exceptions
import mcp.shared.jsonrpc_dispatcher
import pytest
from mcp import MCPError
from mcp.client import session, streamable_http
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from bot.domain.servers import LAST_HANDSHAKE_VERSION, Protocol
from bot.mcp import sdk, toolbox

HTTP, SESSION = mcp.client.streamable_http, mcp.client.session
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_library_has_the_pinned_version() -> None:
    assert version("mcp").rpartition(".")[0] == sdk.PINNED_VERSION


def test_the_project_requires_the_pinned_version() -> None:
    major, minor = map(int, sdk.PINNED_VERSION.split("."))
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert f"mcp>={major}.{minor},<{major}.{minor + 1}" in dependencies


def test_only_one_module_imports_private_modules_of_the_library() -> None:
    files = [path for path in Path(sdk.__file__).parent.rglob("*.py") if path != Path(sdk.__file__)]
    private = ("from mcp.client._", "from mcp.shared._", "from mcp.os.")
    assert len(files) > 30
    assert [path.name for path in files if any(module in path.read_text() for module in private)] == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (HTTP, 'code=INTERNAL_ERROR, message="Server returned an error response"'),
        (HTTP, 'code=METHOD_NOT_FOUND, message="Not Found"'),
        (HTTP, 'f"SSE stream failed: {exc}"'),
        (HTTP, '"SSE stream ended without a response"'),
        (HTTP, '"SSE stream ended and reconnection attempts were exhausted"'),
        (HTTP, 'code=PARSE_ERROR, message=f"Failed to parse JSON response: '),
        (HTTP, 'code=PARSE_ERROR, message=f"Failed to parse SSE message: '),
        (HTTP, 'f"Sending client message: '),
        (HTTP, 'f"SSE message: '),
        (mcp.client.sse, 'f"Received server message: '),
        (mcp.client.sse, 'f"Sending client message: '),
        (mcp.shared.jsonrpc_dispatcher, 'code=CONNECTION_CLOSED, message="Connection closed"'),
        (SESSION, 'RuntimeError(f"Unsupported protocol version from the server: '),
        (httpx2._sse, ' byte limit."'),
        (mcp.shared.exceptions, "has no back-channel for server-initiated requests."),
    ],
    ids=lambda value: "" if isinstance(value, ModuleType) else value,
)
def test_the_library_still_has_the_text(module: ModuleType, text: str) -> None:
    assert text in inspect.getsource(module)


def test_a_server_can_be_spoken_to_in_each_version_of_the_library() -> None:
    versions = [protocol for protocol in Protocol if protocol is not Protocol.AUTO]
    assert versions == list(KNOWN_PROTOCOL_VERSIONS)
    assert [version for version in versions if version.begins_with_handshake] == list(HANDSHAKE_PROTOCOL_VERSIONS)
    assert LAST_HANDSHAKE_VERSION == LATEST_HANDSHAKE_VERSION


def test_the_library_logs_under_the_known_names() -> None:
    assert {session.logger.name.partition(".")[0], streamable_http.logger.name.partition(".")[0]} == set(
        toolbox.LIBRARY_LOGGERS
    )


def test_errors_are_recognized_by_their_texts() -> None:
    not_found = MCPError(METHOD_NOT_FOUND, "Not Found")
    failed = MCPError(INTERNAL_ERROR, "Server returned an error response")
    closed = MCPError(CONNECTION_CLOSED, "Connection closed")
    broken = MCPError(CONNECTION_CLOSED, "SSE stream ended without a response")
    large = MCPError(CONNECTION_CLOSED, "SSE stream failed: Server-sent event exceeded the 8 byte limit.")
    unparsable = MCPError(PARSE_ERROR, "Failed to parse JSON response: it is HTML")
    others = [
        MCPError(INTERNAL_ERROR, "Not Found"),
        MCPError(PARSE_ERROR, "Parse error"),
        MCPError(CONNECTION_CLOSED, "closed"),
    ]
    errors = [not_found, failed, closed, broken, large, unparsable, *others]
    assert [error for error in errors if sdk.is_http_error_stand_in(error)] == [not_found, failed]
    assert [error for error in errors if sdk.is_stream_end(error)] == [closed, broken, large]
    assert [error for error in errors if sdk.is_event_too_large(error)] == [large]
    assert [error for error in errors if sdk.is_unparsable_response(error)] == [unparsable]


def test_a_rejected_version_is_read_from_the_error() -> None:
    text = "Unsupported protocol version from the server: 1999-01-01"
    assert sdk.unsupported_version(RuntimeError(text)) == "1999-01-01"
    assert sdk.unsupported_version(ValueError(text)) == ""
    assert sdk.unsupported_version(RuntimeError(f"Another error. {text}")) == ""
