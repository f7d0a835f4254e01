"""Addresses that look like one that is none, for whoever has mistyped it. Called by `routes`, for callers that the gate
has let in: nobody else learns what there is.

What is named is written as the routes are, `/api/responses/{responseId}`: nothing that was sent is repeated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST = 3
_LONGEST = 200
_LEAST, _NO_WORSE = 0.6, 0.1
"""How like an address has to be, and how much less than the likeliest."""
_PARAMETER, _NAMED = re.compile(r"\{(\w+)(?::\w+)?\}"), r"{\1}"


@dataclass(frozen=True, slots=True)
class Address:
    """A route as callers write it: what a router in a router has for a path is only its own."""

    path: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


def closest_routes(method: str, path: str, addresses: Iterable[Address]) -> Sequence[str]:
    """At most three addresses that look most like this path and about as much as each other, each behind its method:
    those that take the method, or any if none of them does.
    """
    wanted = "GET" if method == "HEAD" else method
    every = [(each, _likeness(path.lower()[:_LONGEST], each.path)) for each in addresses]
    close = sorted((found for found in every if found[1] >= _LEAST), key=lambda found: -found[1])
    close = [found for found in close if wanted in found[0].methods] or close
    told = (
        f"{one} {_PARAMETER.sub(_NAMED, each.path)}"
        for each, likeness in close
        for one in ([wanted] if wanted in each.methods else sorted(each.methods))
        if likeness >= close[0][1] - _NO_WORSE
    )
    return tuple(dict.fromkeys(told))[:_MOST]


def _likeness(given: str, path: str) -> float:
    """How like the two are, from 0 to 1, whatever stands for the route's parameters."""
    parts = given.split("/")
    filled = "/".join(
        parts[place] if _PARAMETER.fullmatch(part) and place < len(parts) and parts[place] else part
        for place, part in enumerate(path.split("/"))
    )
    return difflib.SequenceMatcher(None, filled.lower(), given).ratio()
