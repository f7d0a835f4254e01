"""Markdown as Slack's rich text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given

from bot.platforms.slack.blocks import MESSAGE_WEIGHT, Block, RichTextBuilder, fallback_text
from bot.rendering.markdown import SizeLimit, split
from bot.rendering.text_safety import strip_control
from tests.platforms.slack.payload_checks import check_harmless, check_message
from tests.platforms.slack.payload_checks import parts as objects
from tests.rendering.markdown_texts import ANY


def rich_blocks(markdown: str) -> list[Block]:
    """Return the rich text blocks of a Markdown text."""
    builder = RichTextBuilder()
    builder.markdown(markdown)
    return builder.blocks


def elements(markdown: str) -> list[dict[str, Any]]:
    """Return the elements of a text with one block."""
    (block,) = rich_blocks(markdown)
    return list(block["elements"])


def text(content: str, **style: bool) -> dict[str, Any]:
    return {"type": "text", "text": content, **({"style": style} if style else {})}


def section(*inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": list(inner)}


def test_styles_survive() -> None:
    assert elements("a **b** *c* ~~d~~ `e` ***f***") == [
        section(
            text("a "), text("b", bold=True), text(" "), text("c", italic=True), text(" "), text("d", strike=True),
            text(" "), text("e", code=True), text(" "), text("f", bold=True, italic=True),
        )
    ]  # fmt: skip


def test_headings_are_bold_and_paragraphs_stand_apart() -> None:
    assert elements("# Why\n\nBecause.") == [section(text("Why", bold=True), text("\n\n"), text("Because."))]


def test_a_line_end_is_a_line_end() -> None:
    assert fallback_text(rich_blocks("one\ntwo")) == "one\ntwo"


def test_a_nested_list_goes_on_counting_after_an_interruption() -> None:
    made = elements("1. a\n   - b\n2. c\n   ```\n   code\n   ```\n3. d")
    assert [(each["type"], each.get("indent"), each.get("offset")) for each in made] == [
        ("rich_text_list", 0, None),
        ("rich_text_list", 1, None),
        ("rich_text_list", 0, 1),
        ("rich_text_preformatted", None, None),
        ("rich_text_list", 0, 2),
    ]


def test_tasks_are_boxes() -> None:
    assert fallback_text(rich_blocks("- [ ] write\n- [x] read")) == "☐ write\n☑ read"


def test_code_is_literal() -> None:
    assert elements("```html\n<!DOCTYPE html> **no** @here\n```") == [
        {"type": "rich_text_preformatted", "elements": [text("<!DOCTYPE html> **no** @here")]}
    ]


def test_a_quote_keeps_its_content() -> None:
    (quote,) = elements("> one\n>\n> - two\n>   `three`")
    assert quote["type"] == "rich_text_quote"
    assert fallback_text([{"type": "rich_text", "elements": [quote]}]) == "one\n• two\nthree"


def test_a_table_is_a_table_and_several_are_all_columns() -> None:
    table = "| a | b |\n|---|--:|\n| 1 | **2** |\n"
    (first,) = rich_blocks(table)
    assert first["column_settings"] == [
        {"align": "left", "is_wrapped": True},
        {"align": "right", "is_wrapped": True},
    ]
    cells = [[cell["elements"][0]["elements"] for cell in row] for row in first["rows"]]
    assert cells == [[[text("a", bold=True)], [text("b", bold=True)]], [[text("1")], [text("2", bold=True)]]]
    several = rich_blocks(f"{table}\n{table}\nand\n\n{table}")
    assert {block["type"] for block in several} == {"rich_text"}
    assert fallback_text(several).count("a  b\n─  ─\n1  2") == 3
    check_message(several, "x")


def test_an_empty_cell_is_a_blank() -> None:
    (made,) = rich_blocks("| a | b |\n|---|---|\n| 1 | |")
    check_message([made], "x")


def test_a_table_too_large_for_slack_loses_no_row() -> None:
    rows = "\n".join(f"| {number} | x |" for number in range(150))
    (made,) = rich_blocks(f"| n | v |\n|---|---|\n{rows}")
    assert made["type"] == "rich_text"
    assert all(f"\n{number}" in fallback_text([made]) for number in range(150))


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("[docs](https://example.com/a)", "docs"),
        ("[example.com](https://example.com/a)", "example.com"),
        ("[bank.example](https://evil.example/)", "bank.example (https://evil.example/)"),
        ("[https://bank.example](https://bank.example@evil.example)",
         "https://bank.example (https://bank.example@evil.example)"),
        ("[open](slack://channel?id=C1)", "open (slack://channel?id=C1)"),
        ("![a chart](https://evil.example/?q=secret)", "a chart"),
        ("[write](mailto:ana@example.com)", "write"),
    ],
)  # fmt: skip
def test_a_link_shows_where_it_leads_when_it_says_otherwise(markdown: str, shown: str) -> None:
    assert fallback_text(rich_blocks(markdown)) == shown
    check_harmless(rich_blocks(markdown))


def test_an_address_in_the_text_is_a_link_without_the_full_stop_behind_it() -> None:
    assert elements("See https://example.com/a_(b).") == [
        section(
            text("See "),
            {"type": "link", "url": "https://example.com/a_(b)", "text": "https://example.com/a_(b)"},
            text("."),
        )
    ]


@pytest.mark.parametrize(
    "attempt",
    ["<!channel>", "<!here|here>", "<@U12345678>", "<#C123|general>", "<!subteam^S1>", "@everyone", "&lt;!here&gt;"],
)
def test_a_mention_of_a_user_is_text(attempt: str) -> None:
    blocks = rich_blocks(
        f"{attempt}\n\n- {attempt}\n\n> {attempt}\n\n`{attempt}`\n\n| {attempt} |\n|---|\n| {attempt} |"
    )
    check_message(blocks, "x")
    assert attempt.replace("&lt;", "<").replace("&gt;", ">").split("|")[0] in fallback_text(blocks)


def letters(content: str) -> str:
    return "".join(re.findall(r"[^\W_]", content))


def visible_text(blocks: list[Block]) -> str:
    """Return the texts and link targets, in order."""
    found = [part for part in objects(blocks) if part.get("type") in ("text", "link")]
    return "".join(part["text"] + part.get("url", "") for part in found)


def begins_with_all_of(longer: str, shorter: str) -> bool:
    """Return True if the letters of the shorter text are in the longer text, in order."""
    rest = iter(longer)
    return all(letter in rest for letter in shorter)


@given(ANY)
def test_any_text_is_within_the_limits_of_slack_and_harmless(markdown: str) -> None:
    for part in split(strip_control(markdown), SizeLimit(MESSAGE_WEIGHT * 2 // 3, MESSAGE_WEIGHT - 600)):
        if blocks := rich_blocks(part):
            check_message(blocks, "x")


@given(ANY)
def test_no_word_is_lost(markdown: str) -> None:
    words = re.sub(r"(?m)^(\s|>|[-*+] |\d+[.)] )*(```|~~~+|````)[^\n`]*$|&lt;|&gt;|&amp;", "", strip_control(markdown))
    wanted = letters(re.sub(r"(?m)^[ >]*(\d{1,9})(?=[.)](\s|$))", "", words))
    assert begins_with_all_of(letters(visible_text(rich_blocks(markdown))), wanted)


def test_very_many_pieces_are_not_too_many_for_slack() -> None:
    for markdown in ("`a` b " * 1_200, "- a\n" * 2_000, "```\n```\n" * 1_000, "a\n\n" * 2_500, ">>>" * 500 + " deep"):
        for part in split(markdown, SizeLimit(6_000, 8_400)):
            check_message(rich_blocks(part), "x")


def test_links_of_very_many_keep_their_targets() -> None:
    text = "`a` [b](https://example.com/{}) " * 250
    for markdown in (text, f"- {text}", f"> {text}"):
        blocks = rich_blocks(markdown.format(*range(250)))
        check_message(blocks, "x")
        assert all(f"example.com/{number}" in str(blocks) for number in range(250))


def test_pieces_of_markdown_stand_among_other_blocks() -> None:
    prose = RichTextBuilder()
    prose.markdown("one")
    prose.block({"type": "divider"})
    prose.markdown("| a |\n|---|\n| 1 |")
    prose.markdown("| b |\n|---|\n| 2 |")
    assert [block["type"] for block in prose.blocks] == ["rich_text", "divider", "rich_text", "rich_text"]
