"""Pins of tool definitions, and the status of a tool against its pin. The instructions of a server count as a tool.

A pin is the definition of one tool as it was accepted: at the server's first sync, or later by an admin. The stores
write pins, `bot.mcp` compares them, `/mcp review` shows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bot.domain.tools import Annotations, PartChange, Tool, ToolKind, canonical_json, digest
from bot.i18n import _, format_list, ngettext

Pinned = Mapping[str, str]
"""Pinned definition (`Tool.definition`) by the server's own name for the tool, and REFUSED by a refused definition. A
tool whose name is a refused definition is itself changed: a server can only harm its own tools.
"""
REFUSED = "refused"

FIRST_SYNC = "countersign"
"""Author of the pins of a server's first sync: the bot itself."""

_LINES = re.compile(r"[\n\t]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")
_DEEPEST = 16
"""Levels of a schema that are compared part by part. Deeper parts are compared as one text."""


class ReviewPolicy(StrEnum):
    """Policy for tools without a pinned definition: CHANGED withholds them until an admin pins them, OFF offers
    them.
    """

    CHANGED = "changed"
    OFF = "off"


class ReviewStatus(StrEnum):
    """Status of a tool against its pin. A flagged tool has no pin and has flags for an admin to review. A refused
    definition is not offered, and waits for no review.
    """

    PINNED = "pinned"
    NEW = "new"
    CHANGED = "changed"
    FLAGGED = "flagged"
    REFUSED = "refused"


WAITING = (ReviewStatus.NEW, ReviewStatus.CHANGED, ReviewStatus.FLAGGED)
"""Status of tools that wait for a review."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Accepted definition of one tool. `pinned_tool` is the tool as it was shown, None if this release cannot read it.
    `pinned_by` is a principal or FIRST_SYNC. `pinned_at` is in epoch seconds.
    """

    server_id: str
    tool: str
    definition: str
    pinned_tool: Tool | None
    pinned_by: str
    pinned_at: float


def review_status(tool: Tool, pinned: Pinned) -> ReviewStatus:
    """Return the status of a tool against the pins of its server."""
    known = pinned.get(tool.original_name)
    if known == tool.definition:
        return ReviewStatus.PINNED
    if pinned.get(tool.definition) == REFUSED:
        return ReviewStatus.REFUSED
    if known is None:
        return ReviewStatus.FLAGGED if tool.flags else ReviewStatus.NEW
    return ReviewStatus.CHANGED


def first_pins(tools: Iterable[Tool]) -> dict[str, str]:
    """Return the pins of a server's first sync: all tools without flags."""
    return {tool.original_name: tool.definition for tool in tools if not tool.flags}


def combined_digest(tools: Iterable[Tool]) -> str:
    """Return one digest of the definitions of several tools, for an approval of all of them at once."""
    return digest(sorted([tool.original_name, tool.definition] for tool in tools))


def count_definitions(definitions: Collection[Tool]) -> str:
    """Count tools and instructions: `2 tools and the instructions`."""
    count = sum(tool.kind is not ToolKind.INSTRUCTIONS for tool in definitions)
    counts = [ngettext("{n} tool", "{n} tools", count)] if count else []
    return format_list(counts if count == len(definitions) else [*counts, _("the instructions")])


def definition_changes(before: Tool | None, after: Tool) -> tuple[PartChange, ...]:
    """Return the differences between two definitions of a tool, part by part; all parts without an earlier one."""
    old = dict(_parts(before)) if before is not None else {}
    new = dict(_parts(after))
    return tuple(
        PartChange(part, old.get(part), new.get(part))
        for part in dict.fromkeys((*new, *old))
        if old.get(part) != new.get(part)
    )


def escape_invisible(text: str) -> str:
    """Return a text in a form that is safe to show and different for every text. A text with invisible characters, or
    one that parses as another JSON value, is written as JSON.
    """
    if _LINES.sub("", text).isprintable() and not _reads_as_json(text):
        return text
    return _escape_invisible(canonical_json(text))


def _parts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a definition, each with a path and a text that no other part can have, so that every
    difference is visible.
    """
    if tool.kind is ToolKind.INSTRUCTIONS:
        yield "instructions", escape_invisible(tool.description)
        return
    if tool.title:
        yield "title", escape_invisible(tool.title)
    if tool.description:
        yield "description", escape_invisible(tool.description)
    yield from _hints(tool.annotations)
    yield from _leaves("input", tool.input_schema, _DEEPEST)
    if tool.output_schema is not None:
        yield from _leaves("output", tool.output_schema, _DEEPEST)


def _hints(annotations: Annotations) -> Iterator[tuple[str, str]]:
    hints = {
        "read-only": annotations.read_only,
        "destructive": annotations.destructive,
        "idempotent": annotations.idempotent,
        "open world": annotations.open_world,
    }
    yield from (
        (_("says it is {hint}", hint=name), _("yes") if hint else _("no"))
        for name, hint in hints.items()
        if hint is not None
    )


def _leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the innermost values of a schema."""
    match value:
        case str():
            yield path, escape_invisible(value)
        case Mapping() if value and depth:
            for key, item in value.items():
                yield from _leaves(f"{path}{_step(key)}", item, depth - 1)
        case list() | tuple() if depth and any(isinstance(item, Mapping | list | tuple) for item in value):
            for number, item in enumerate(value):
                yield from _leaves(f"{path}[{number}]", item, depth - 1)
        case _:
            yield path, _escape_invisible(canonical_json(value))


def _step(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{_escape_invisible(canonical_json(key))}]"


def _reads_as_json(text: str) -> bool:
    """Return True if a text parses as another JSON value: `5`, `null`, `["a"]`."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _escape_invisible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
