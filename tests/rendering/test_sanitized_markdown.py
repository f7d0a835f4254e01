"""Sanitized Markdown: no mentions, no fetched images, no deceptive links."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rendering.markdown import JOINER, sanitize, sanitize_partial
from bot.rendering.text_safety import safe_url, strip_control
from tests.rendering.markdown_texts import ANY

_MENTION = re.compile(r"<[!@#]|(?<![\w.+/?=&%-])[@#][A-Za-z]")
_LINK = re.compile(r"(!?)\[[^\[\]\n]*\]\(([^()\s]*)")


def test_ordinary_markdown_stays_as_it_is() -> None:
    text = "# Why\n\n**bold** `code` [docs](https://example.com/a) a@example.com C# a < b\n\n| a | b |\n|---|---|"
    assert sanitize(text) == text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("<!channel>", f"<{JOINER}!channel>"),
        ("<@U123>", f"<{JOINER}@{JOINER}U123>"),
        ("&lt;!channel&gt; &#x3C;@U1>", f"&lt;{JOINER}!channel&gt; &#x3C;{JOINER}@{JOINER}U1>"),
        ("@here and #general", f"@{JOINER}here and #{JOINER}general"),
        ("![x](https://evil.example/a.png)", "[x](https://evil.example/a.png)"),
        ("[x](javascript:alert)", f"[x]{JOINER}(javascript:alert)"),
        ("[bank.example](https://evil.example)", "[bank.example](https://evil.example) (https://evil.example)"),
        ("[docs](https://a.example/<!channel>)", f"[docs]{JOINER}(https://a.example/<{JOINER}!channel>)"),
        ("<https://a.example/&lt;!here&gt;>", f"<{JOINER}https://a.example/&lt;{JOINER}!here&gt;>"),
        ("<https://example.com>", "<https://example.com>"),
        ("<https://evil.example|bank>", f"<{JOINER}https://evil.example|bank>"),
        ("[x][1]\n\n[1]: slack://open", f"[x]{JOINER}[1]\n\n[1]{JOINER}: slack://open"),
        ("https://example.com/#part", "https://example.com/#part"),
    ],
)
def test_active_markup_does_nothing(text: str, made: str) -> None:
    assert sanitize(text) == made


@given(ANY)
def test_nothing_in_it_mentions_fetches_or_leads_astray_and_no_letter_is_changed(text: str) -> None:
    made = sanitize(text)
    assert not _MENTION.search(made)
    for picture, target in _LINK.findall(made):
        assert not picture
        assert safe_url(target) or not target
    rest = iter(made)
    assert all(letter in rest for letter in strip_control(text).replace("![", "["))


@given(ANY, st.integers(0, 5_000))
def test_shown_text_is_never_taken_back(text: str, end: int) -> None:
    assert sanitize(text).startswith(sanitize_partial(text[:end]))


def test_text_that_may_still_become_a_link_waits() -> None:
    assert sanitize_partial("see [bank.example](https://ev") == "see"
    assert sanitize_partial("see <!cha") == "see"
    assert sanitize_partial("see [a list, that is long") == "see"
    assert sanitize_partial("a < b and so on") == "a < b and so on"
