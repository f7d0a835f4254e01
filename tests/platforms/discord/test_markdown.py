"""Markdown of models, in Discord's dialect."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.platforms.discord.markdown import JOINER, code_block, dialect, inline_code
from tests.platforms.discord.payload_checks import mentioned_users, small_lines
from tests.rendering.markdown_texts import ANY


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("# One\n## Two\n#### Four\ntext", "# One\n## Two\n**Four**\ntext"),
        ("**b** *i* ~~s~~ `c` ***bi***", "**b** *i* ~~s~~ `c` ***bi***"),
        ("__not underlined__", "**not underlined**"),
        ("**a***b*", f"**a**{JOINER}*b*"),
        ("a\n\nb", "a\n\nb"),
        ("Look:\n- one\n- two\n  1. three", "Look:\n- one\n- two\n  1. three"),
        ("- [ ] open\n- [x] done", "- ☐ open\n- ☑ done"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("> a\n> > b", "> a\n> \\> b"),
        ("a\n\n---\n\nb", "a\n\n──────────\n\nb"),
        ("~~~js\nlet a;\n~~~", "```js\nlet a;\n```"),
        ("    code", "```\ncode\n```"),
        ("1. a\n   ```\n   x\n   ```\n2. b", "1. a\n```\nx\n```\n2. b"),
        ("[a](https://x.example/(1))", "[a](<https://x.example/(1)>)"),
        ("<https://x.example> https://y.example.", "<https://x.example> <https://y.example>."),
        ("![a cat](https://x.example/c.png)", "[a cat](<https://x.example/c.png>)"),
        ("[ana](mailto:ana@x.example)", "ana (ana@x.example)"),
        ("[x](javascript:alert)", r"\[x\](javascript:alert)"),
        ("", ""),
    ],
)
def test_markdown_of_discord_is_drawn_and_the_rest_is_text(written: str, shown: str) -> None:
    assert dialect(written) == shown


def test_a_link_that_names_another_place_says_where_it_leads() -> None:
    shown = dialect("[https://bank.example](https://evil.example)")
    assert shown == f"[https:{JOINER}//bank.example](<https://evil.example>) (https://evil.example)"


def test_a_small_table_keeps_its_columns() -> None:
    assert dialect("| pool | after |\n|---|---|\n| a | **20** |") == "```\npool  after\n────  ─────\na     20\n```"


def test_numbers_in_a_table_stand_where_the_model_has_aligned_them() -> None:
    drawn = dialect("| pool | size | state |\n|---|--:|:-:|\n| payments | 20 | ok |\n| web | 1000 | low |")
    assert [line.rstrip() for line in drawn.split("\n")[3:5]] == ["payments    20   ok", "web       1000   low"]


def test_a_wide_table_becomes_a_list() -> None:
    wide = "x" * 40
    assert dialect(f"| pool | why |\n|---|---|\n| {wide} | **{wide}** |\n| b | |") == (
        f"- pool: {wide} · why: **{wide}**\n- pool: b"
    )


def test_markup_that_only_this_program_writes_is_escaped() -> None:
    shown = dialect("-# ✓ bank.pay  done\n\n||hidden|| <@123> @everyone <t:1:R> </mcp remove:1> <:x:1>")
    assert small_lines(shown) == []
    assert mentioned_users(shown) == set()
    assert "||" not in shown
    assert "<t:" not in shown


def test_code_cannot_end_its_block() -> None:
    assert code_block("a", "no such language!") == "```\na\n```"
    assert code_block("a\n```\nb", "py") == "```py\na\n```\n\\`\\`\\`\n```py\nb\n```"
    assert inline_code("a`b") == "``a`b``"
    assert inline_code("`a") == "\\``a`"


CODES = st.lists(
    st.sampled_from(["`", "``", "```", "a", "\n", " ", "@everyone", "<@1>", "https://x.example", "**", "\\", "~~~"]),
    max_size=30,
).map("".join)


@given(CODES)
def test_code_can_be_copied_as_it_was_written(code: str) -> None:
    assert copied_text(code_block(code, "py")) == (code or " ")
    line = code.replace("\n", "")
    assert copied_text(inline_code(line)) == line
    assert mentioned_users(code_block(code)) == mentioned_users(inline_code(line)) == set()


@given(CODES)
def test_code_in_an_answer_has_no_character_that_the_model_has_not_written(code: str) -> None:
    fence = "`" * 40
    assert JOINER not in dialect(f"{fence}\n{code}\n{fence}")
    assert copied_text(dialect(f"{fence}\n{code}\n{fence}")).strip("\n ") == code.strip("\n ")


def copied_text(markdown: str) -> str:
    """Return the copied text, as Discord's clients read code blocks, inline code and escapes."""
    return re.sub(
        r"```(?:[a-z]+\n|\n)(?P<block>.*?)\n```|(?P<ticks>`+)(?P<code>.*?[^`])(?P=ticks)(?!`)|\\(?P<mark>[^0-9A-Za-z\s])",
        lambda match: next(text for text in match.group("block", "code", "mark") if text is not None),
        markdown,
        flags=re.DOTALL,
    )


@given(ANY)
def test_any_text_mentions_no_user_and_draws_no_small_line(text: str) -> None:
    shown = dialect(text)
    assert mentioned_users(shown) == set()
    assert small_lines(shown) == []
