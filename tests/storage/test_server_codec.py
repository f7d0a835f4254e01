"""Definitions of servers as rows, and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bot.domain.servers import Authentication, AuthenticationKind, HttpTransport, ServerConfig, ServerRecord
from bot.storage.servers import decode_server, encode_server

RECORD = ServerRecord(
    ServerConfig("jira", HttpTransport("https://jira.example/mcp"), id="1", workspace="test:1"),
    Authentication(AuthenticationKind.OAUTH, client_id="bot", scope="read write"),
)
KEPT = {"id": "1", "version": 1, "created_at": 0.0, "created_by": "", "updated_at": 0.0, "updated_by": ""}


def read(row: dict[str, Any]) -> ServerRecord:
    return decode_server(SimpleNamespace(**KEPT, **row), {})


def test_how_a_server_is_signed_in_to_comes_back() -> None:
    assert read(encode_server(RECORD)).authentication == RECORD.authentication
