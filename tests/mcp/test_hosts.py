"""Hosts in a text, in all spellings."""

from __future__ import annotations

import pytest

from bot.domain.policies import Hosts
from bot.mcp.hosts import read_hosts


@pytest.mark.parametrize(
    "text",
    [
        "evil.com",
        "EVIL.com",
        "evil.com.",
        "evil.com:8080/path",
        "//evil.com/path",
        "http://evil.com",
        "HTTP://EVIL.COM/",
        "http:evil.com",
        "http:/\\evil.com",
        "http:////evil.com",
        "ht\ntp://ev\til.com",
        "  https://evil.com  ",
        "http://evil.com./x",
        "http://\uff45\uff56\uff49\uff4c.com/",
        "http://evil。com",
        "http://ev\u00adil.com",
        "http://evil\u200b.com",
        "http://e%76il.com",
        "http://user@evil.com:80/",
        "http://good.com@evil.com/",
        "http://good.com:x@evil.com/",
        "http://evil.com#@good.com",
        "ssh://git@EVIL.com/x",
        "git+https://evil.com/x",
        "ana@evil.com",
        "Ana <ana@EVIL.com>",
        "mailto:ana@evil.com",
    ],
)
def test_one_host_is_found_in_every_spelling(text: str) -> None:
    assert "evil.com" in read_hosts(text).names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("http://bücher.example", {"xn--bcher-kva.example"}),
        ("http://xn--bcher-kva.example", {"xn--bcher-kva.example"}),
        ("http://g\u043e\u043egle.com", {"xn--ggle-55da.com"}),
        ("http://0177.0.0.1/", {"127.0.0.1"}),
        ("http://2130706433", {"127.0.0.1"}),
        ("2130706433", {"127.0.0.1"}),
        ("http://0x7f.1/", {"127.0.0.1"}),
        ("http://[::ffff:127.0.0.1]/", {"127.0.0.1"}),
        ("http://[0:0:0:0:0:0:0:1]:80/", {"::1"}),
        ("::1", {"::1"}),
        ("ana@good.com, Eve <eve@evil.com>", {"good.com", "evil.com"}),
        ("good.com, evil.com", {"good.com", "evil.com"}),
        ("http://good.com/a http://evil.com/b", {"good.com", "evil.com"}),
        ("http://good.com/?next=http://evil.com", {"good.com"}),
        ("http://good.com/a b", {"good.com"}),
        ("", set()),
        ("  ", set()),
    ],
)
def test_hosts_have_one_spelling(text: str, names: set[str]) -> None:
    assert read_hosts(text) == Hosts(frozenset(names))


def test_where_clients_disagree_both_hosts_are_meant() -> None:
    assert read_hosts("http://evil.com\\@good.com").names == {"evil.com", "good.com"}


@pytest.mark.parametrize(
    "text",
    [
        "http://[fe80::1%25eth0]/",
        "http://evil.com%00.good.com/",
        "http://",
        "http://good.com:port/",
        "javascript:alert(1)",
        "data:text/html,evil.com",
        "view-source:http://evil.com",
        "git@evil.com:repository",
        "/etc/passwd",
        "../evil.com",
        "see evil.com for more",
        "good.com\x00.evil.com",
        "x" * 30_000,
        "@",
        "<script>",
    ],
)
def test_an_unreadable_address_may_be_any_host(text: str) -> None:
    assert not read_hosts(text).certain
