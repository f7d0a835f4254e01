"""Prompt cache of a fake service: prefixes of answered requests.

OpenAI caches all prefixes; Anthropic caches up to each mark, and looks back over twenty blocks from each mark
(platform.claude.com, prompt caching). A token is four characters. Minimum length and expiry of a prefix are not
simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tests.fakes.llm_script import Request, Tokens

_LOOKS_BACK = 20


@dataclass
class PromptCache:
    """Prompt cache of one service. `seen` are the counts of all requests, in order."""

    seen: list[Tokens] = field(default_factory=list)
    _written: set[str] = field(default_factory=set)

    def count(self, request: Request, output: int = 20) -> Tokens:
        """Return the usage of the request, and cache the prefixes that it marks."""
        items = list(_items(request))
        beginnings = list(accumulate((text for text, _ in items), lambda before, text: f"{before}\n{text}"))
        marks = [n for n, (_, marked) in enumerate(items) if marked]
        if request.api != "anthropic":
            marks, reach = list(range(len(items))), len(items)
        else:
            reach = _LOOKS_BACK
            if "cache_control" in request.body:
                marks.append(len(items) - 1)
        found = (at for mark in marks for at in range(max(0, mark - reach + 1), mark + 1))
        cached = max((at for at in found if beginnings[at] in self._written), default=-1)
        self._written.update(beginnings[mark] for mark in marks)
        sizes = [len(text) // 4 for text, _ in items]
        counted = Tokens(sum(sizes), output, sum(sizes[: cached + 1]))
        self.seen.append(counted)
        return counted


def _items(request: Request) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a request in the services' order, each with True if it is marked."""
    body = request.body
    yield from ((json.dumps(tool), False) for tool in body.get("tools", ()))
    if "instructions" in body:
        yield body["instructions"], False
    yield from map(_block, body.get("system", ()))
    for message in request.messages:
        content = message.get("content")
        if request.api == "anthropic" and isinstance(content, list):
            yield from ((f"{message['role']}: {text}", marked) for text, marked in map(_block, content))
        else:
            yield json.dumps(message), False


def _block(block: Mapping[str, Any]) -> tuple[str, bool]:
    rest = {name: value for name, value in block.items() if name != "cache_control"}
    return json.dumps(rest), "cache_control" in block
