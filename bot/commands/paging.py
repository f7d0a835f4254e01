"""Pages of ten rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from bot.domain.commands import PageInfo

T = TypeVar("T")
ROWS = 10


def pages(count: int) -> int:
    """Return the number of pages; at least 1."""
    return max((count + ROWS - 1) // ROWS, 1)


def offset(number: int) -> int:
    """Return the index of a page's first row, from 0."""
    return (number - 1) * ROWS


def page_of(number: int, count: int, words: tuple[str, ...]) -> PageInfo | None:
    """Return the position among the pages, None if there is only one."""
    return PageInfo(min(number, pages(count)), pages(count), words) if pages(count) > 1 else None


def cut(rows: Sequence[T], number: int) -> Sequence[T]:
    """Return the rows of one page, or of the last page if the number is too high."""
    begin = offset(min(number, pages(len(rows))))
    return rows[begin : begin + ROWS]
