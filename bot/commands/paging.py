"""Long lists in pages of ten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from bot.domain.commands import PageInfo

T = TypeVar("T")
ROWS = 10


def pages(count: int) -> int:
    """How many pages so many rows take; none take one."""
    return max((count + ROWS - 1) // ROWS, 1)


def offset(number: int) -> int:
    """The first row of a page, from 0."""
    return (number - 1) * ROWS


def page_of(number: int, count: int, words: tuple[str, ...]) -> PageInfo | None:
    """Which page this is, None where there is one alone."""
    return PageInfo(min(number, pages(count)), pages(count), words) if pages(count) > 1 else None


def cut(rows: Sequence[T], number: int) -> Sequence[T]:
    """The rows of one page; of the last where there are fewer."""
    begin = offset(min(number, pages(len(rows))))
    return rows[begin : begin + ROWS]
