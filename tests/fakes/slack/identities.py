"""Ids that Slack gives to blocks and elements which an app left without."""

from __future__ import annotations

import copy
from typing import Any


def blocks_with_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a copy in which all blocks have a block_id and all interactive elements an action_id."""
    copied = copy.deepcopy(blocks)
    for index, block in enumerate(copied):
        block.setdefault("block_id", f"b{index:03d}")
        inner = [*block.get("elements", []), block.get("accessory"), block.get("element")]
        for at, element in enumerate(inner):
            if isinstance(element, dict) and _touchable(element):
                element.setdefault("action_id", f"a{block['block_id']}{at:02d}")
    return copied


def _touchable(element: dict[str, Any]) -> bool:
    kind = str(element.get("type", ""))
    return not kind.startswith("rich_text") and kind not in {"", "mrkdwn", "plain_text"}
