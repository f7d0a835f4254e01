"""Which tools a model may have meant by a name that no tool has, so that it can correct itself. Called by
`call_authorization`, with the tools that are enabled in the conversation: no others are named.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Sequence

from bot.domain.tools import Tool

_MOST = 3
_MOST_TOOLS = 1_000
"""Among more, looking takes too long while others wait; a model has their names from searching then."""
_COMPARED = 12
"""Spellings that are compared letter by letter, which takes longer than all the rest."""
_LONGEST = 64
"""Letters of each: no name that models are given has more, and comparing takes far longer than they are longer."""


def closest_names(written: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """The names of at most three tools that look most like what was written, the likeliest first. Models leave out a
    server's name, too, or put another before it: so the names that servers have for their tools are looked at as well.
    """
    if len(tools) > _MOST_TOOLS:
        return ()
    wanted = written.lower()[:_LONGEST]
    spelled: dict[str, list[str]] = {}
    for tool in tools:
        for spelling in dict.fromkeys((tool.name.lower(), tool.original_name.lower()[:_LONGEST])):
            spelled.setdefault(spelling, []).append(tool.name)
    pairs = _pairs(wanted)
    compared = heapq.nlargest(_COMPARED, spelled, key=lambda spelling: _likeness(pairs, _pairs(spelling)))
    close = difflib.get_close_matches(wanted, compared, n=2 * _MOST)
    return tuple(dict.fromkeys(name for spelling in close for name in spelled[spelling]))[:_MOST]


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


def _likeness(some: set[str], others: set[str]) -> float:
    return len(some & others) / max(1, len(some) + len(others))
