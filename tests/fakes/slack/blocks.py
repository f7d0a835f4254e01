"""The blocks that the bot uses: the fields of each, and the surfaces that take them."""

from __future__ import annotations

import html
from typing import Any

from tests.fakes.slack.elements import ACTIONS, CONTEXT_ACTIONS, INPUTS, plain, text
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.rich_text import RICH_TEXT
from tests.fakes.slack.shapes import (
    Problems,
    Shape,
    anything,
    by_type,
    flag,
    maybe,
    one_of,
    record,
    rows,
    string,
    url,
)

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
MARKDOWN = 12_000
TABLE = 10_000
"""Characters of a table, all cells together."""
WEIGHT, EACH = 13_200, 100
"""Limit of all blocks of a message, and the weight of each beyond its text. Not documented: others measured about
13,200 for text and a hundred for each header. Here every block counts like a header.
"""

_ID = {"block_id": maybe(string(255))}
_ANY_TEXT = ("plain_text", "mrkdwn")
SECTION = record(
    {
        **_ID,
        "text": maybe(text(3000, *_ANY_TEXT)),
        "fields": maybe(rows(text(2000, *_ANY_TEXT), 10)),
        "accessory": maybe(by_type(ACTIONS, "element")),
        "expand": maybe(flag),
    },
    one_needed=("text", "fields"),
)
CONTEXT_PARTS: dict[str, Shape] = {kind: text(3000, kind) for kind in _ANY_TEXT}
INPUT = record(
    {
        **_ID,
        "label": plain(2000),
        "element": by_type(INPUTS, "element"),
        "hint": maybe(plain(2000)),
        "optional": maybe(flag),
        "dispatch_action": maybe(flag),
    }
)
SOURCE = record({"url": url(), "text": string(256)})
STATUS = one_of("pending", "in_progress", "complete", "error")
CELL: dict[str, Shape] = {
    "raw_text": record({"text": string(TABLE)}),
    "raw_number": anything,
    "rich_text": RICH_TEXT,
}
BLOCKS: dict[str, Shape] = {
    "section": SECTION,
    "divider": record(_ID),
    "header": record({**_ID, "text": plain(150)}),
    "context": record({**_ID, "elements": rows(by_type(CONTEXT_PARTS, "element"), 10)}),
    "actions": record({**_ID, "elements": rows(by_type(ACTIONS, "element"), 25)}),
    "context_actions": record({**_ID, "elements": rows(by_type(CONTEXT_ACTIONS, "element"), 5)}),
    "input": INPUT,
    "markdown": record({**_ID, "text": string(MARKDOWN)}),
    "rich_text": RICH_TEXT,
    "table": record(
        {
            **_ID,
            "rows": rows(rows(by_type(CELL, "cell"), 20), 100),
            "column_settings": maybe(rows(anything, 20, 0)),
        }
    ),
}
ONLY_MESSAGES = frozenset({"markdown", "table", "context_actions"})


def check_blocks(blocks: list[dict[str, Any]], surface: str) -> None:
    """Check the blocks of a 'message', 'modal' or 'home'.

    Raises:
        Refused: invalid_blocks, with a line and a JSON pointer for each problem.
    """
    if lines := problems_in(blocks, surface, "/blocks"):
        messages = [f"[ERROR] {line}" for line in lines]
        raise Refused("invalid_blocks", errors=lines, response_metadata={"messages": messages})
    if sum(block["type"] == "table" for block in blocks) > 1:
        only_one = ["[ERROR] only_one_table_allowed"]
        raise Refused("invalid_attachments", response_metadata={"messages": only_one})


def refuse_blocks(given: dict[str, Any], unsupported: set[str]) -> None:
    """Refuse blocks of kinds that a workspace does not take, in a message or a view.

    Raises:
        Refused: invalid_blocks, for a view invalid_arguments.
    """
    view = given.get("view")
    blocks = view.get("blocks") if isinstance(view, dict) else given.get("blocks")
    for number, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if block.get("type") in unsupported:
            line = f"unsupported type: {block['type']} [json-pointer:/blocks/{number}/type]"
            if isinstance(view, dict):
                raise invalid_arguments(line)
            raise Refused("invalid_blocks", errors=[line], response_metadata={"messages": [f"[ERROR] {line}"]})


def check_weight(blocks: list[dict[str, Any]]) -> None:
    """Check the total size of the blocks of a posted or updated message.

    Raises:
        Refused: msg_blocks_too_long.
    """
    if sum(EACH + _letters(block) for block in blocks) > WEIGHT:
        raise Refused("msg_blocks_too_long")


def problems_in(blocks: Any, surface: str, at: str) -> list[str]:
    """Return the errors of a list of blocks, in Slack's words."""
    problems = Problems(surface)
    most = MESSAGE_BLOCKS if surface == "message" else VIEW_BLOCKS
    rows(_block, most, 0)(blocks, at, problems)
    if problems.markdown > MARKDOWN:
        problems.note(f"markdown blocks must be less than {MARKDOWN + 1} characters together", at)
    return problems.found


def _block(value: Any, at: str, problems: Problems) -> None:
    by_type(BLOCKS, "block")(value, at, problems)
    if not isinstance(value, dict):
        return
    kind, block_id = value.get("type"), value.get("block_id")
    if kind in ONLY_MESSAGES and problems.surface != "message":
        problems.note(f"unsupported block type on this surface: {kind}", f"{at}/type")
    if isinstance(block_id, str):
        if block_id in problems.ids:
            problems.note(f"block_id already exists: {block_id}", f"{at}/block_id")
        problems.ids.add(block_id)
    if kind == "markdown" and isinstance(value.get("text"), str):
        problems.markdown += min(len(value["text"]), MARKDOWN)
    if kind == "table" and _letters(value) > TABLE:
        problems.note(f"must be less than {TABLE + 1} characters together", f"{at}/rows")
    _check_action_ids(value, at, problems)


def _letters(drawn: Any) -> int:
    """Characters of all texts in something, with `&`, `<` and `>` as they are escaped."""
    if isinstance(drawn, list):
        return sum(_letters(item) for item in drawn)
    if not isinstance(drawn, dict):
        return 0
    own = drawn.get("text")
    written = len(html.escape(own, quote=False)) if isinstance(own, str) else 0
    return written + sum(_letters(value) for value in drawn.values())


def _check_action_ids(block: dict[str, Any], at: str, problems: Problems) -> None:
    elements = block.get("elements")
    if not isinstance(elements, list):
        return
    seen: set[str] = set()
    for index, element in enumerate(elements):
        name = element.get("action_id") if isinstance(element, dict) else None
        if isinstance(name, str):
            if name in seen:
                problems.note(f"action_id already exists: {name}", f"{at}/elements/{index}/action_id")
            seen.add(name)
