"""Heuristics for suspicious tool definitions: hidden text, instructions to the model, names of other servers'
tools.

The scan reads the definition as the server sent it. A finding makes the tool wait for an admin's review. A
definition without findings is still untrusted data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from mcp import types

from bot.domain.characters import visible

_LONGEST = 100_000
"""Maximum number of characters of a definition that are scanned."""
_LONGEST_QUOTE = 60
_SHORTEST_NAME = 6

_ESCAPES = re.compile(r"\x1b[\[\]]|\x9b")
# Allowed: all line ends, a byte order mark at the beginning, and joiners, which emoji and some scripts need.
_HIDDEN = re.compile(
    "(?<=[^\n])\ufeff|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\u200b\u2060-\u2064\ud800-\udfff]"
    "|[\u202a-\u202e\u2066-\u2069]|[\U000e0000-\U000e007f]|[\U000e0100-\U000e01ef]"
    "|(?<=[A-Za-z0-9 ])[\u200c\u200d](?=[A-Za-z0-9 ])"
)
_COMMENT = re.compile(r"<!--")
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[0-9])"
                      r"[A-Za-z0-9+/]{80,}={0,2}")  # fmt: skip
_PATHS = re.compile(
    r"~/\.(?:ssh|aws|gnupg|kube|netrc|cursor|npmrc|docker/config)\b|/etc/(?:passwd|shadow)\b"
    r"|\bid_(?:rsa|ed25519|ecdsa)\b|\.(?:aws/credentials|cursor/mcp\.json|ssh/)",
    re.IGNORECASE,
)
_ORDERS = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override)\s+(?:(?:all|any|of|the|your)\s+)*
        (?:previous|prior|above|earlier|preceding|other|system)\s+
        (?:instruction|rule|prompt|message|tool|guideline|direction)s?
    | \b(?:do\s+not|don\Wt|never|must\s+not|without)\s+
        (?:tell|inform|mention|reveal|notify|show|alert|warn)(?:ing)?\s+(?:\w+\s+){0,4}?(?:user|human|person)s?\b
    | \bwithout\s+asking\s+(?:the\s+)?(?:user|human)s?\b
    | \b(?:hide|conceal|secret|hidden)\s+(?:this\s+|it\s+)?from\s+(?:the\s+)?(?:user|human)s?\b
    | <\s{0,3}/?\s{0,3}(?:important|system|instructions?|secret|assistant|critical)\s{0,3}>
    | \[\s{0,3}(?:system|important\s+instructions?)\s{0,3}\]
    | \bbefore\s+(?:using|calling|invoking|running)\s+(?:this|any|every|all|other|any\s+other)\s+(?:tool|function)s?
    | \bsystem\s+prompt\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_COMPOSED = re.compile(r"[A-Za-z0-9][_-]+[A-Za-z0-9]|[a-z][A-Z]")
_PROSE = ("title", "description")


def scan_definition(tool: types.Tool, foreign: Collection[str]) -> tuple[str, ...]:
    """Return the findings as short phrases; empty if there are none. `foreign` are tool names of other servers."""
    text = "\n".join(_texts(tool))
    if len(text) > _LONGEST:
        return (f"it is longer than {_LONGEST:,} characters",)
    return tuple(reason for reason in (*_of_text(text), _of_names(tool, foreign)) if reason)


def distinctive(name: str) -> bool:
    """Return True for a tool name that rarely occurs by chance: `create_issue` and `createIssue`, not `search`."""
    return len(name) >= _SHORTEST_NAME and bool(_COMPOSED.search(name))


def _of_text(text: str) -> Iterator[str]:
    kinds = (
        (_ESCAPES, "there are a terminal's escape sequences in it"),
        (_HIDDEN, "there are invisible characters in it"),
        (_COMMENT, "there is an HTML comment in it, which most displays hide"),
        (_ENCODED, "there is a long piece in it that looks encoded"),
    )
    yield from (reason for kind, reason in kinds if kind.search(text))
    # Invisible characters may split an instruction.
    seen = visible(text)
    for kind, reason in ((_ORDERS, "it gives orders to the model"), (_PATHS, "it names files that hold secrets")):
        if match := kind.search(seen):
            yield f"{reason}: \u201c{' '.join(match[0].split())[:_LONGEST_QUOTE]}\u201d"


def _of_names(tool: types.Tool, foreign: Collection[str]) -> str:
    if not foreign:
        return ""
    said = {word for text in _prose(tool) for word in _WORD.findall(text)}
    named = sorted(said.intersection(foreign))
    return f"it names tools of other servers: {', '.join(named)[:_LONGEST_QUOTE]}" if named else ""


def _prose(tool: types.Tool) -> Iterator[str]:
    """Yield the texts for users and models, without values of a schema, which may equal tool names."""
    yield from _top(tool)
    for schema in (tool.input_schema, tool.output_schema):
        yield from _described(schema)


def _described(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            for key, value in schema.items():
                if key in _PROSE and isinstance(value, str):
                    yield value
                else:
                    yield from _described(value)
        case list():
            for each in schema:
                yield from _described(each)


def _texts(tool: types.Tool) -> Iterator[str]:
    """Yield every text of the definition, argument names included."""
    yield tool.name
    yield from _top(tool)
    for schema in (tool.input_schema, tool.output_schema):
        yield from _strings(schema)


def _top(tool: types.Tool) -> Iterator[str]:
    title = tool.annotations.title if tool.annotations is not None else None
    yield from (text for text in (tool.title, title, tool.description) if text)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, each in value.items():
                yield str(key)
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
