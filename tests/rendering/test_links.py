"""Which links may be drawn, and which deceive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rendering.text_safety import find_urls, is_deceptive, open_label, safe_url


@pytest.mark.parametrize(
    "url", ["https://example.com", "http://example.com/a?b=c#d", "HTTPS://EXAMPLE.COM", "mailto:ana@example.com"]
)
def test_the_web_and_mailboxes_are_safe(url: str) -> None:
    assert safe_url(url) == url


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "slack://open", "file:///etc/passwd", "data:text/html,x", "//example.com", "example.com",
     "https:", "https:///path", "mailto:", "https://exa mple.com", "https://example.com/\x07", "https://[::1", "",
     "https://example.com/" + "x" * 3_000],
)  # fmt: skip
def test_everything_else_is_not(url: str) -> None:
    assert safe_url(url) == ""


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("bank.example", "https://evil.example"),
        ("https://bank.example/login", "https://evil.example"),
        ("Go to bank.example now", "https://bank.example.evil.example"),
        ("bank\N{FULLWIDTH FULL STOP}example", "https://evil.example"),  # noqa: RUF100
        ("here", "https://bank.example@evil.example"),
        ("ana@example.com", "mailto:eve@evil.example"),
        ("example.com", "mailto:eve@evil.example"),
    ],
)
def test_a_label_that_names_another_place_misleads(label: str, url: str) -> None:
    assert is_deceptive(label, url)


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("the docs", "https://example.com"),
        ("example.com", "https://www.example.com/a"),
        ("www.example.com/a", "https://example.com/a"),
        ("https://example.com:8080", "https://example.com:8080/"),
        ("Version 2.0", "https://example.com"),
        ("ana@example.com", "mailto:ana@example.com"),
        ("Ana", "mailto:ana@example.com"),
    ],
)
def test_a_label_that_names_no_other_place_does_not(label: str, url: str) -> None:
    assert not is_deceptive(label, url)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.com/a.", ["https://example.com/a"]),
        ("(https://example.com/a_(b))", ["https://example.com/a_(b)"]),
        ("https://a.example, http://b.example!", ["https://a.example", "http://b.example"]),
        ("**https://a.example**", ["https://a.example"]),
        ("no address, https:// alone", []),
        ("<https://a.example>", ["https://a.example"]),
    ],
)
def test_addresses_end_before_the_punctuation_behind_them(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in find_urls(text)] == found


@given(st.text(max_size=200))
def test_what_is_found_is_safe(text: str) -> None:
    assert all(safe_url(text[start:end]) for start, end in find_urls(text))


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://pay.example.com:8443/c?x=1", "Open pay.example.com"),
        ("https://github.com.signin.account.security.evil.example/", "Open the page"),
        ("https://xn--pypal-4ve.example/", "Open the page"),
        ("https://pаypal.example/", "Open the page"),  # noqa: RUF001 - that is the point
        ("https://[bad", "Open the page"),
    ],
)
def test_a_button_names_the_domain_where_it_can_be_read_to_its_end_and_taken_for_no_other(url: str, label: str) -> None:
    assert open_label(url) == label
