"""Markdown as a tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rendering.markdown import (
    DEEPEST,
    Code,
    Heading,
    HorizontalRule,
    Link,
    List,
    MarkdownTable,
    Paragraph,
    Quote,
    Style,
    Text,
    line_text,
    parse,
)
from bot.rendering.text_safety import is_deceptive, safe_url
from tests.rendering.markdown_texts import ANY


def test_every_kind_of_block_is_told_apart() -> None:
    made = parse(
        "# One\n\ntwo\nthree\n\n- a\n- b\n\n3. c\n\n> d\n\n```py x\ne\n```\n\n    f\n\n---\n\n| g |\n|:-:|\n| h |\n"
    )
    assert made == (
        Heading(1, (Text("One"),)),
        Paragraph((Text("two"), Text("\n"), Text("three"))),
        List(((Paragraph((Text("a"),)),), (Paragraph((Text("b"),)),))),
        List(((Paragraph((Text("c"),)),),), start=3),
        Quote((Paragraph((Text("d"),)),)),
        Code("e", "py"),
        Code("f"),
        HorizontalRule(),
        MarkdownTable((((Text("g"),),), ((Text("h"),),)), ("center",)),
    )


def test_styles_go_into_each_other() -> None:
    (made,) = parse("**a *b* ~~c~~** `d`")
    assert made == Paragraph(
        (
            Text("a ", Style(bold=True)),
            Text("b", Style(bold=True, italic=True)),
            Text(" ", Style(bold=True)),
            Text("c", Style(bold=True, struck=True)),
            Text(" "),
            Text("d", Style(code=True)),
        )
    )


def test_html_definitions_and_deep_nesting_are_shown_as_text() -> None:
    assert parse("<b>x</b>") == (Paragraph((Text("<b>x</b>"),)),)
    (definition,) = parse("[x]: slack://open")
    assert isinstance(definition, Paragraph)
    assert line_text(definition.line) == "[x]: slack://open"
    deep = ">" * (DEEPEST + 5) + " here"
    (flat,) = parse(deep)
    assert isinstance(flat, Paragraph)
    assert line_text(flat.line) == deep


def test_a_picture_is_a_link_to_itself_and_is_not_fetched() -> None:
    assert parse("![chart](https://example.com/x.png)") == (Paragraph((Link("https://example.com/x.png", "chart"),)),)


def test_an_address_in_code_is_no_link() -> None:
    assert parse("`https://example.com`") == (Paragraph((Text("https://example.com", Style(code=True)),)),)


def links(node: object) -> list[tuple[Link, str]]:
    """Return each link with the text after it."""
    match node:
        case Paragraph(line) | Heading(_, line):
            texts = [each.text for each in line[1:]] + [""]
            return [(each, text) for each, text in zip(line, texts, strict=False) if isinstance(each, Link)]
        case List(items):
            return [found for item in items for inner in item for found in links(inner)]
        case Quote(nodes):
            return [found for inner in nodes for found in links(inner)]
        case _:
            return []


@given(st.one_of(ANY, st.builds("[{}]({})".format, st.text(max_size=20), st.text(max_size=20))))
def test_every_link_is_safe_and_shows_its_target_where_its_label_misleads(markdown: str) -> None:
    for link, behind in (found for node in parse(markdown) for found in links(node)):
        assert safe_url(link.url)
        if link.text != link.url and is_deceptive(link.text, link.url):
            assert behind.startswith(f" ({link.url})")


@pytest.mark.parametrize("text", ["[" * 8_000, "![a](https://example.com) " * 1_001])
def test_markdown_that_takes_long_to_parse_is_text(text: str) -> None:
    (made,) = parse(text)
    assert isinstance(made, Paragraph)
    assert line_text(made.line) == text


def test_a_label_without_end_is_not_trusted() -> None:
    (made,) = parse("[" + "a" * 301 + "](https://example.com)")
    assert isinstance(made, Paragraph)
    assert line_text(made.line).endswith("a (https://example.com)")
