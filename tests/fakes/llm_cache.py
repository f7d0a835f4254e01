"""Prompt cache of a fake service: the beginnings of the requests that it has answered.

OpenAI keeps them by itself; Anthropic keeps what is marked, and looks from each mark back over twenty blocks
(platform.claude.com, prompt caching). Tokens are letters by four. How long a beginning must be, and when it is
forgotten, is left out.
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
    """One service's. `seen` are the counts of every request, in order."""

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
    """The request from its beginning, in the order in which services read it: each piece, and whether it is marked."""
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
