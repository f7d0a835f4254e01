"""Untrusted text is shown literally."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.platforms.discord.markdown import (
    JOINER,
    defuse_mentions,
    escape,
    escape_code_fence,
    escape_to_limit,
    truncate,
    utf16_length,
)
from tests.platforms.discord.payload_checks import mentioned_users, small_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** _it_ ~~s~~ ||x||", r"\*\*bold\*\* \_it\_ \~\~s\~\~ \|\|x\|\|"),
        ("notes.add_note took ~5 s | a", "notes.add_note took ~5 s | a"),
        ("a__b__c", r"a\_\_b\_\_c"),
        ("-# small", r"\-# small"),
        ("# big\n### less\n#tag", "\\# big\n\\### less\n#tag"),
        ("> said\n>>> all", "\\> said\n\\>>> all"),
        ("- one\n  - two\n12. three\nv1.2", "\\- one\n  \\- two\n12\\. three\nv1.2"),
        ("[a](https://x.example)", r"\[a\](https://x.example)"),
        (r"C:\dir", r"C:\\dir"),
        ("\u00e9_x_\u00e9 a_b_c", "\u00e9\\_x\\_\u00e9 a_b_c"),
        ("#\u00a0big\n\u3000#\tbig\n-#\u00a0small", "\\#\u00a0big\n\u3000\\#\tbig\n\\-#\u00a0small"),
        ("see https://x.example/a_b_*c*?d=~~e.", "see https://x.example/a_b_*c*?d=~~e."),
    ],
)
def test_marks_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_no_user_role_or_channel_is_mentioned() -> None:
    text = "<@1> <@!1> <@&2> <#3> <t:1:R> </mcp list:4> <:a:5> <a:b:6> <id:browse> @everyone @HERE @ana <https://x.example>"
    shown = defuse_mentions(text)
    assert mentioned_users(shown) == set()
    assert shown.replace(JOINER, "") == text
    assert shown.endswith("@ana <https://x.example>")


@given(st.lists(st.sampled_from(["`", "``", "```", "a", "\n", "~"]), max_size=30))
def test_no_text_ends_the_block_it_stands_in(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "``" not in escape_code_fence(text)
    assert escape_code_fence(text).replace(JOINER, "") == text


@given(st.text(max_size=400), st.integers(1, 200))
def test_a_fitted_text_fits(text: str, limit: int) -> None:
    shown = escape_to_limit(text, limit)
    assert utf16_length(shown) <= limit
    assert "\n" not in shown
    assert mentioned_users(shown) == set()


@given(st.text(max_size=400), st.integers(0, 200))
def test_a_cut_text_fits_and_is_the_beginning(text: str, limit: int) -> None:
    shown = truncate(text, limit)
    assert text.startswith(shown)
    assert utf16_length(shown) <= limit
    assert shown == text or utf16_length(text[: len(shown) + 1]) > limit - 1


@given(st.text(alphabet="-# >\n_*`x@", max_size=60))
def test_nothing_from_outside_is_drawn_small(text: str) -> None:
    assert small_lines(escape(text)) == []
