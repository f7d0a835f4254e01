"""MCP servers as an operator defines them and as people see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ServerStatus(StrEnum):
    """How a server stands (checklist E, C11)."""

    PENDING = "pending"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A local process that speaks MCP on its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A streamable HTTP endpoint. `headers` may hold secrets and are never shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


Transport = StdioTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server. Times are in seconds."""

    name: str
    transport: Transport
    trusted: bool = False
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    connect_timeout: float = 30.0
    tool_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server stands now. `problem` is a sentence with cause and fix, empty while all is well."""

    config: ServerConfig
    status: ServerStatus
    problem: str = ""
    protocol: str = ""
    server_version: str = ""
    tool_count: int = 0
    connected_at: float | None = None
