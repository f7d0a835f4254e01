"""Markdown of a streaming answer: the finished blocks and the tail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.platforms.console.markdown_renderer import MarkdownRenderer

split_blocks = MarkdownRenderer.split_blocks
LINES = st.sampled_from([
    "", " ", "word", "two words", "# Title", "## ", "#no title", "- item", "* item", "1. one", "10) ten", "  inner",
    "    code", "\tcode", "```", "```python", "````", "~~~", "``` a`b", "  ```", "- ```", "---", "***", "- - -",
    "| a | b |", "|---|---|", "> quote", "\u2028", "a\rb",
])  # fmt: skip
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(LINES, max_size=14), st.sampled_from(["", "\n"]))


def blocks(text: str) -> list[str]:
    """Return the finished blocks without the blank lines between them, and the tail."""
    finished, tail = split_blocks(text)
    return [block.strip("\n") for block in (*finished, tail) if block.strip()]


@given(TEXTS)
def test_nothing_is_lost(text: str) -> None:
    finished, tail = split_blocks(text)
    assert "".join(finished) + tail == text


@given(TEXTS, st.data())
def test_finished_blocks_stay_finished_as_the_text_grows(text: str, data: st.DataObject) -> None:
    early, _ = split_blocks(text[: data.draw(st.integers(0, len(text)))])
    assert split_blocks(text)[0][: len(early)] == early


@given(TEXTS)
def test_a_line_that_is_being_written_is_never_finished(text: str) -> None:
    assert all(block.endswith("\n") for block in split_blocks(text)[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("one\n\ntwo\n\nthr", ["one\n\n", "two\n\n", "thr"], id="paragraphs"),
        pytest.param("one\nstill one", ["one\nstill one"], id="a paragraph of two lines"),
        pytest.param("# T\ntext\n\n", ["# T\n", "text\n\n"], id="a heading stands alone"),
        pytest.param("text\n# T\nmore", ["text\n", "# T\n", "more"], id="a heading ends a paragraph"),
        pytest.param("```py\na\n\nb\n```\nafter", ["```py\na\n\nb\n```\n", "after"], id="code with a blank line"),
        pytest.param("text\n```\na\n```\n", ["text\n", "```\na\n```\n"], id="code ends a paragraph"),
        pytest.param("````\n```\n````\n", ["````\n```\n````\n"], id="a fence within a longer one"),
        pytest.param("~~~\n```\n~~~\n", ["~~~\n```\n~~~\n"], id="a fence within another kind"),
        pytest.param("```\nnever closed\n\nmore\n", ["```\nnever closed\n\nmore\n"], id="code that is never closed"),
        pytest.param("- a\n- b\n\n- c\n\ntext\n", ["- a\n- b\n\n- c\n\n", "text\n"], id="a list with blank lines"),
        pytest.param("- a\n\n  more of a\n- b", ["- a\n\n  more of a\n- b"], id="an item of two paragraphs"),
        pytest.param("- a\n  ```\n  x\n\n  y\n  ```\n- b", ["- a\n  ```\n  x\n\n  y\n  ```\n- b"], id="code in items"),
        pytest.param("1. a\n2. b\n\n---\n", ["1. a\n2. b\n\n", "---\n"], id="a rule ends a list"),
        pytest.param("text\n- a\n- b\n", ["text\n", "- a\n- b\n"], id="a list after a paragraph"),
        pytest.param("| a |\n|---|\n| 1 |\n\nafter", ["| a |\n|---|\n| 1 |\n\n", "after"], id="a table"),
        pytest.param("> one\n> two\n\nafter", ["> one\n> two\n\n", "after"], id="a quote"),
    ],
)  # fmt: skip
def test_blocks_that_belong_together_stay_together(text: str, expected: list[str]) -> None:
    assert blocks(text) == [block.strip("\n") for block in expected]


def test_a_growing_answer_gives_up_each_block_once_and_at_once() -> None:
    text = "# Weather\n\nIt is **sunny**.\n\n- high 20\n- low 10\n\n```\ncode\n```\nDone.\n\n"
    given_out: list[str] = []
    for length in range(len(text) + 1):
        finished, _ = split_blocks(text[:length])
        given_out += finished[len(given_out) :]
    assert [block.strip("\n") for block in given_out] == [
        "# Weather",
        "It is **sunny**.",
        "- high 20\n- low 10",
        "```\ncode\n```",
        "Done.",
    ]
