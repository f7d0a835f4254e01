"""Where a reference within a JSON Schema points to.

Called by `schema_simplify`. Nothing is ever fetched: a reference that leaves the document points nowhere (MCP
specification 2026-07-28: MUST NOT).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_SHELVES = ("$defs", "definitions")
NOWHERE = object()


def resolve_ref(document: Mapping[str, Any], reference: object) -> Any:
    """What `reference` means in `document`: by JSON pointer (RFC 6901), by anchor, or by the `$id` of a definition.
    `NOWHERE` if that is not in the document.
    """
    if not isinstance(reference, str):
        return NOWHERE
    own = document.get("$id")
    if isinstance(own, str) and own and reference.startswith(own.rstrip("#") + "#"):
        reference = reference[len(own.rstrip("#")) :]
    if reference == "#":
        return document
    if reference.startswith("#/"):
        return _pointed(document, unquote(reference[2:]).split("/"))
    return _named(document, reference)


def _pointed(document: Any, path: list[str]) -> Any:
    found = document
    for escaped in path:
        step = escaped.replace("~1", "/").replace("~0", "~")
        match found:
            case Mapping() if step in found:
                found = found[step]
            case list() if step.isascii() and step.isdigit() and len(step) < 6 and int(step) < len(found):
                found = found[int(step)]
            case _:
                return NOWHERE
    return found


def _named(document: Mapping[str, Any], name: str) -> Any:
    for shelf in _SHELVES:
        definitions = document.get(shelf)
        for each in definitions.values() if isinstance(definitions, Mapping) else ():
            if isinstance(each, Mapping) and name in (each.get("$id"), f"#{each.get('$anchor')}"):
                return each
    return NOWHERE
