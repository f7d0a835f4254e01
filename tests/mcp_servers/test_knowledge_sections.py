from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_servers.knowledge.answers import snippet
from mcp_servers.knowledge.sections import LONGEST_SECTION, markdown_document, parts, plain_document

MARKDOWN = st.lists(
    st.sampled_from(
        ["# A", "## B ##", "A", "===", "---", "```", "~~~~", "", "text", "- item", "    # code", "#", "***"]
    )
    | st.text(max_size=20)
).map("\n".join)


@given(MARKDOWN)
def test_the_sections_are_the_whole_text_and_each_has_a_name_of_its_own(text: str) -> None:
    for document in (markdown_document(text, "name"), plain_document(text, "name")):
        assert "".join(section.text for section in document.sections) == text
        slugs = [section.slug for section in document.sections]
        assert len(set(slugs)) == len(slugs) > 0
        assert all(slugs)
        assert "#" not in "".join(slugs)


@given(st.text(alphabet="ab \n", max_size=200), st.integers(min_value=1, max_value=20))
def test_parts_are_the_whole_text_and_none_is_too_long(text: str, longest: int) -> None:
    divided = parts(text, longest)
    assert "".join(divided) == text
    assert all(len(part) <= longest for part in divided)


def headings(text: str) -> list[tuple[str, ...]]:
    """Return the heading paths of the sections of a Markdown text."""
    return [section.headings for section in markdown_document(text, "name").sections]


def test_a_section_knows_the_headings_above_it() -> None:
    text = "before\n# One\na\n### Deep\nb\n## Two\nc\n# Three\nd\n"
    assert headings(text) == [(), ("One",), ("One", "Deep"), ("One", "Two"), ("Three",)]


def test_a_heading_with_nothing_under_it_belongs_to_the_next_section() -> None:
    (section,) = markdown_document("# Title\n\n## Part\n\ntext\n", "name").sections
    assert (section.slug, section.headings) == ("part", ("Title", "Part"))
    assert headings("# Title\ntext\n# Last") == [("Title",), ("Last",)]


@pytest.mark.parametrize(
    "text",
    [
        "```\n# comment\n```",
        "~~~ sh\n# comment\n```\n# comment\n~~~",
        "    # code",
        "#hashtag",
        "####### seven",
        "- item\n---",
        "one\ntwo\n---",
        "text\n\n---\n\nmore",
        "| a |\n---",
        "\\# escaped",
    ],
)
def test_a_line_that_only_looks_like_a_heading_is_none(text: str) -> None:
    assert headings(text) == [()]


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("# Plain", "Plain"),
        ("## Closed ##", "Closed"),
        ("# C#", "C#"),
        ("Underlined\n=====", "Underlined"),
        ("Underlined\n--", "Underlined"),
        ("# The `read` [tool](x.md), *soon*", "The read tool, soon"),
        ("# ALWAYS_ALLOW", "ALWAYS_ALLOW"),
    ],
)
def test_headings_are_read_without_their_marks(text: str, heading: str) -> None:
    assert headings(text + "\ntext") == [(heading,)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: 'From above'\nx: 1\n---\n# Heading\n", "From above"),
        ("---\nno end\n\n# Heading\n", "Heading"),
        ("text\n## Second\n# First\n", "First"),
        ("text\n## Second\n", "Second"),
        ("text", "name"),
        ("#\n", "name"),
    ],
)
def test_the_title_comes_from_above_or_from_the_first_heading_or_is_the_files_name(text: str, title: str) -> None:
    assert markdown_document(text, "name").title == title


def test_names_of_sections_are_those_of_links_and_count_up() -> None:
    text = "intro\n# A b, c!\na\n# A b, c!\nb\n# 承認 期限\nc\n# ?!\nd\n# Start\ne\n"
    slugs = [section.slug for section in markdown_document(text, "name").sections]
    assert slugs == ["start", "a-b-c", "a-b-c-1", "承認-期限", "start-1", "start-2"]


def test_a_long_section_is_divided_between_paragraphs() -> None:
    paragraph = "word " * 300 + "\n\n"
    sections = markdown_document("# Long\n" + paragraph * 6, "name").sections
    assert [section.slug for section in sections] == ["long", "long-part-2", "long-part-3"]
    assert all(section.headings == ("Long",) for section in sections)
    assert all(section.text.endswith("\n\n") and len(section.text) <= LONGEST_SECTION for section in sections)


def test_an_endless_line_is_divided_without_taking_for_ever() -> None:
    text = "# " + " #" * 400_000 + " " * 400_000 + "\n" + "[" * 400_000
    document = markdown_document(text, "name")
    assert "".join(section.text for section in document.sections) == text


def test_a_short_section_is_shown_whole_without_its_headings_and_blank_lines() -> None:
    assert snippet("# Title\n\n## Part\n\none\n\n\ntwo\n", ["two"]) == "one\ntwo"
    assert snippet("# Title\n", ["title"]) == "# Title"


def test_of_a_long_section_the_stretch_with_most_of_the_words_is_shown() -> None:
    text = (
        "lorem " * 200
        + "the kettle is described. "
        + "ipsum " * 200
        + "Kettles, and how to descale them. "
        + "dolor " * 200
    )
    shown = snippet(text, ["kettle", "descaling"])
    assert "Kettles, and how to descale them." in shown
    assert shown.startswith("…ipsum")
    assert shown.endswith("…")
    assert len(shown) <= 602


def test_text_without_spaces_is_cut_as_well() -> None:
    text = "漢" * 1000 + "承認" + "漢" * 1000
    shown = snippet(text, ["承認"])
    assert "承認" in shown
    assert len(shown) == 602


@given(st.text(alphabet="ab \n\u3000ﷺ承#", max_size=120), st.lists(st.sampled_from(["a", "b", "ab", "承"])))
def test_a_snippet_is_never_longer_than_wanted_and_never_empty_for_a_text(text: str, terms: list[str]) -> None:
    shown = snippet(text, terms, longest=20)
    assert len(shown) <= 22
    assert bool(shown) == bool(text.strip())
