"""Command replies on screens of any width: words that fit a line are not broken."""

from __future__ import annotations

import pytest

from bot.domain.commands import Reply, Table
from bot.platforms.console.lines import ConsoleTheme, cells
from bot.platforms.console.markdown_renderer import MarkdownRenderer

HEADINGS = ("server", "state", "transport", "tools", "policy", "problem")
ROWS = (
    ("● issue-tracker", "connecting", "streamable HTTP", "11 (11 write)", "2 asks, 9 runs", ""),
    ("○ notes", "disabled", "stdio", "0", "", ""),
)
LIST = Reply("MCP servers", Table(HEADINGS, ROWS))


def reply_lines(reply: Reply, width: int) -> list[str]:
    return MarkdownRenderer(ConsoleTheme(colour=False, unicode=True)).reply(reply, width).split("\n")


def test_a_table_that_fits_stands_in_columns_without_those_that_are_empty() -> None:
    assert reply_lines(LIST, 80)[2:] == [
        "server            state        transport         tools           policy",
        "─" * 79,
        "● issue-tracker   connecting   streamable HTTP   11 (11 write)   2 asks, 9 runs",
        "○ notes           disabled     stdio             0",
    ]


def test_a_table_that_does_not_fit_stands_row_by_row() -> None:
    assert reply_lines(LIST, 50)[2:] == [
        "● issue-tracker",
        "  state      connecting",
        "  transport  streamable HTTP",
        "  tools      11 (11 write)",
        "  policy     2 asks, 9 runs",
        "",
        "○ notes",
        "  state      disabled",
        "  transport  stdio",
        "  tools      0",
    ]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_width_breaks_a_word_that_fits_and_no_line_is_too_wide(width: int) -> None:
    lines = reply_lines(LIST, width)
    assert all(cells(line) <= width for line in lines)
    for word in ("issue-tracker", "connecting", "streamable", "disabled"):
        assert any(word in line for line in lines), word


def test_values_stand_below_names_that_leave_no_room_beside() -> None:
    details = (("--transport streamable_http|stdio", "how it is reached"), ("--url URL", "its address"))
    assert reply_lines(Reply("Options", details=details), 80)[2:] == [
        "--transport streamable_http|stdio  how it is reached",
        "--url URL                          its address",
    ]
    assert reply_lines(Reply("Options", details=details), 50)[2:] == [
        "--transport streamable_http|stdio",
        "  how it is reached",
        "--url URL",
        "  its address",
    ]


def test_a_table_without_rows_is_its_headings() -> None:
    assert reply_lines(Reply("", Table(("one", "two"), ())), 40)[0] == "one   two"
