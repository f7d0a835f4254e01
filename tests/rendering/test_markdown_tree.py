"""Markdown as a tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.rendering.links import misleads, safe_target
from bot.rendering.markdown_tree import (
    DEEPEST,
    Code,
    Grid,
    Heading,
    Items,
    Link,
    Paragraph,
    Quote,
    Rule,
    Style,
    Words,
    line_text,
    tree,
)
from tests.rendering.markdown_texts import ANY


def test_every_kind_of_block_is_told_apart() -> None:
    made = tree(
        "# One\n\ntwo\nthree\n\n- a\n- b\n\n3. c\n\n> d\n\n```py x\ne\n```\n\n    f\n\n---\n\n| g |\n|:-:|\n| h |\n"
    )
    assert made == (
        Heading(1, (Words("One"),)),
        Paragraph((Words("two"), Words("\n"), Words("three"))),
        Items(((Paragraph((Words("a"),)),), (Paragraph((Words("b"),)),))),
        Items(((Paragraph((Words("c"),)),),), start=3),
        Quote((Paragraph((Words("d"),)),)),
        Code("e", "py"),
        Code("f"),
        Rule(),
        Grid((((Words("g"),),), ((Words("h"),),)), ("center",)),
    )


def test_styles_go_into_each_other() -> None:
    (made,) = tree("**a *b* ~~c~~** `d`")
    assert made == Paragraph(
        (
            Words("a ", Style(bold=True)),
            Words("b", Style(bold=True, italic=True)),
            Words(" ", Style(bold=True)),
            Words("c", Style(bold=True, struck=True)),
            Words(" "),
            Words("d", Style(code=True)),
        )
    )


def test_nothing_is_swallowed_html_definitions_and_what_is_too_deep() -> None:
    assert tree("<b>x</b>") == (Paragraph((Words("<b>x</b>"),)),)
    (definition,) = tree("[x]: slack://open")
    assert isinstance(definition, Paragraph)
    assert line_text(definition.line) == "[x]: slack://open"
    deep = ">" * (DEEPEST + 5) + " here"
    (flat,) = tree(deep)
    assert isinstance(flat, Paragraph)
    assert line_text(flat.line) == deep


def test_a_picture_is_a_link_to_itself_and_is_not_fetched() -> None:
    assert tree("![chart](https://example.com/x.png)") == (Paragraph((Link("https://example.com/x.png", "chart"),)),)


def test_an_address_in_code_is_no_link() -> None:
    assert tree("`https://example.com`") == (Paragraph((Words("https://example.com", Style(code=True)),)),)


def links(node: object) -> list[tuple[Link, str]]:
    """Every link with what is said behind it."""
    match node:
        case Paragraph(line) | Heading(_, line):
            texts = [each.text for each in line[1:]] + [""]
            return [(each, text) for each, text in zip(line, texts, strict=False) if isinstance(each, Link)]
        case Items(items):
            return [found for item in items for inner in item for found in links(inner)]
        case Quote(nodes):
            return [found for inner in nodes for found in links(inner)]
        case _:
            return []


@settings(deadline=None)
@given(st.one_of(ANY, st.builds("[{}]({})".format, st.text(max_size=20), st.text(max_size=20))))
def test_every_link_is_safe_and_shows_its_target_where_its_label_misleads(markdown: str) -> None:
    for link, behind in (found for node in tree(markdown) for found in links(node)):
        assert safe_target(link.url)
        if link.text != link.url and misleads(link.text, link.url):
            assert behind.startswith(f" ({link.url})")


@pytest.mark.parametrize("text", ["[" * 8_000, "![a](https://example.com) " * 1_001])
def test_what_would_take_long_to_read_is_text(text: str) -> None:
    (made,) = tree(text)
    assert isinstance(made, Paragraph)
    assert line_text(made.line) == text


def test_a_label_without_end_is_not_trusted() -> None:
    (made,) = tree("[" + "a" * 301 + "](https://example.com)")
    assert isinstance(made, Paragraph)
    assert line_text(made.line).endswith("a (https://example.com)")
