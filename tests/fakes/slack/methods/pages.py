"""Pages: a limit and a cursor that says where the next one begins."""

from __future__ import annotations

import base64
from typing import TypeVar

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.refusals import Refused

T = TypeVar("T")


def page_and_cursor(args: Arguments, items: list[T], *, default: int, most: int = 1000) -> tuple[list[T], Json]:
    """Return the items of this page, and the fields of the cursor to the next.

    Raises:
        Refused: invalid_limit, invalid_cursor.
    """
    limit = args.number("limit", default)
    if not 1 <= limit <= most:
        raise Refused("invalid_limit")
    start = 0
    if cursor := args.text("cursor"):
        try:
            start = int(base64.b64decode(cursor, validate=True).decode().removeprefix("next:"))
        except ValueError:
            raise Refused("invalid_cursor") from None
    end = start + limit
    cursor = base64.b64encode(f"next:{end}".encode()).decode() if end < len(items) else ""
    return items[start:end], {"response_metadata": {"next_cursor": cursor}}
