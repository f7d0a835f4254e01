"""Older blocks in place of those that a workspace refuses, with the same content.

Not every workspace takes each kind of block: Slack introduces them plan by plan, and clients of governments later. A
refused request is sent again with older kinds. Refused kinds are not sent to the workspace for an hour: Slack has the
same code for a layout with a mistake, so one refusal is no proof of what the workspace takes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bot.platforms.slack.blocks import (
    PLAIN_TEXT,
    Block,
    buttons,
    fallback_text,
    plain_text,
    preformatted,
    rich_text,
    section,
)
from bot.rendering.text_columns import columns

log = logging.getLogger(__name__)

REFUSALS = frozenset({"invalid_blocks", "invalid_blocks_format", "invalid_arguments"})
"""Codes for a layout that Slack does not take; `invalid_arguments` is that of a view."""
STEPS = (frozenset({"table", "context_actions"}), frozenset({"rich_text"}))
"""Kinds of blocks that are replaced, the newest first."""
REFUSED_SECONDS = 3600.0
T = TypeVar("T")


class BlockSupport:
    """Kinds of blocks that the workspace takes. `code_of` returns Slack's code of a rejection, empty for others.
    `clock` is in seconds.
    """

    def __init__(self, code_of: Callable[[Exception], str], clock: Callable[[], float]) -> None:
        self._code_of = code_of
        self._clock = clock
        self._refused: frozenset[str] = frozenset()
        self._until = clock()

    @property
    def refused(self) -> frozenset[str]:
        """Kinds that the workspace refused within the last hour."""
        return self._refused if self._clock() < self._until else frozenset()

    async def send(self, arguments: Mapping[str, Any], request: Callable[[Mapping[str, Any]], Awaitable[T]]) -> T:
        """Return the result of a request with these arguments; older blocks replace those that the workspace refuses.
        Raises the errors of `request`.
        """
        if not _kinds(arguments):
            return await request(arguments)
        known = refused = self.refused
        while True:
            try:
                result = await request(_with_older_blocks(arguments, refused))
            except Exception as error:
                more = next((step for step in STEPS if step & _kinds(arguments) - refused), frozenset())
                if self._code_of(error) not in REFUSALS or not more:
                    raise
                refused |= more & _kinds(arguments)
            else:
                if refused != known:
                    log.warning(
                        "Slack takes no blocks of these kinds here, using older ones for an hour: %s",
                        ", ".join(sorted(refused)),
                    )
                    self._refused, self._until = self.refused | refused, self._clock() + REFUSED_SECONDS
                return result


def _blocks(arguments: Mapping[str, Any]) -> Sequence[Block]:
    view = arguments.get("view")
    blocks = view.get("blocks") if isinstance(view, dict) else arguments.get("blocks")
    return blocks if isinstance(blocks, list) else ()


def _kinds(arguments: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(block.get("type")) for block in _blocks(arguments))


def _with_older_blocks(arguments: Mapping[str, Any], refused: frozenset[str]) -> Mapping[str, Any]:
    if not refused & _kinds(arguments):
        return arguments
    blocks = [older for block in _blocks(arguments) for older in _older(block, refused)]
    view = arguments.get("view")
    return {**arguments, **({"view": {**view, "blocks": blocks}} if isinstance(view, dict) else {"blocks": blocks})}


def _older(block: Block, refused: frozenset[str]) -> Iterator[Block]:
    kind = block.get("type")
    if kind not in refused:
        yield block
        return
    match kind:
        case "table":
            rows = [[fallback_text([cell]) for cell in row] for row in block["rows"]]
            aligned = [settings["align"] for settings in block.get("column_settings", ())]
            yield from _older(rich_text(preformatted(columns(rows, aligned))), refused)
        case "context_actions":
            yield from _feedback(block)
        case _:
            text = fallback_text([block])
            for start in range(0, len(text), PLAIN_TEXT):
                yield section(text[start : start + PLAIN_TEXT])


def _feedback(block: Block) -> Iterator[Block]:
    """Yield the two buttons for feedback as ordinary buttons."""
    made = [
        {
            "type": "button",
            "text": plain_text(element[side]["text"]["text"]),
            "action_id": element["action_id"],
            "value": element[side]["value"],
        }
        for element in block["elements"]
        for side in ("positive_button", "negative_button")
    ]
    yield from buttons(made)
