"""Identity of a server's endpoint, which approvals and sign-ins are bound to."""

from __future__ import annotations

import pytest

from bot.domain.servers import HttpTransport, ServerConfig
from bot.domain.tools import digest
from bot.mcp.config.checks import endpoint_fingerprint


def place(url: str) -> str:
    return endpoint_fingerprint(ServerConfig("s", HttpTransport(url)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://sk-aaaaaaaaaaaaaaaa.example.com/mcp", "https://sk-bbbbbbbbbbbbbbbb.example.com/mcp"),
        ("https://xapp-tenant-one.example.com/", "https://xapp-tenant-two.example.com/"),
        ("https://my-secret:443/mcp", "https://my-secret:444/mcp"),
        ("https://my-secret:443/mcp", "https://my-secret:443/other"),
        ("https://eyJaaaaaaaaaa.bbbbbbbbbb.cc/", "https://eyJaaaaaaaaaa.dddddddddd.ee/"),
    ],
)
def test_another_host_is_another_place_however_much_its_name_looks_like_a_token(one: str, other: str) -> None:
    assert place(one) != place(other)


def test_credentials_and_keys_in_an_address_are_not_in_it() -> None:
    assert place("https://ana:pw@example.com/mcp") == place("https://example.com/mcp")
    assert place("https://example.com/mcp?api_key=1234567") == place("https://example.com/mcp?api_key=7654321")


def test_an_address_has_the_same_digest_in_every_release() -> None:
    assert place("https://example.com/mcp") == digest(["http", "https://example.com", "/mcp"])
