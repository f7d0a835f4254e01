"""JSON codec of stored values: every field of a dataclass by its name.

Every body carries a version, `v`, because turns can wait across an upgrade. A field that a body lacks has the default
of its dataclass. The bytes of images and files are stored by `turn_records`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from bot.domain.flows import OtherSource, PersonSource, Source, ToolSource
from bot.domain.messages import (
    FilePart,
    ImagePart,
    Part,
    ResourceText,
    ResultPart,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
)
from bot.domain.turns import ModelStep, ToolStep

Body = dict[str, Any]

T = TypeVar("T")

VERSION = 1
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Exceptions of reading a row that a later release wrote or that was changed by hand."""
CONTENT_DELETED = "content_deleted"
"""Key in the bodies of steps without content."""
_strictly = json.JSONEncoder(allow_nan=False).encode
_PART_TYPES = {
    TextPart: "text",
    ResourceText: "resource_text",
    ImagePart: "image",
    FilePart: "file",
    StoredFile: "stored_file",
    ToolCall: "call",
    ToolResult: "result",
}
_COLUMNS: dict[type, tuple[str, ...]] = {}
"""Fields that are omitted from the bodies of a dataclass."""
_STORED_RULING = override(rename="ruling")
"""Key of `ToolStep.policy_result` in stored bodies."""
_IN_TABLES = ("approval", "elicitations", "resume", "times")
"""Fields of a ToolStep that have their own tables or columns."""


def encode(value: Any) -> Body:
    """Return the body of a dataclass."""
    return {"v": VERSION, **converter.unstructure(value)}


def decode(kind: type[T], body: Mapping[str, Any], **columns: Any) -> T:
    """Return a value from its body and from fields with their own columns. Raises UNREADABLE."""
    return converter.structure({**body, **columns}, kind)


def decode_row(kind: type[T], row: Any, body: Mapping[str, Any], **columns: Any) -> T:
    """Return a value from a row: from its body, and from the columns of the fields that are omitted from bodies. Raises
    UNREADABLE.
    """
    stored = row._asdict()
    return decode(kind, body, **{name: stored[name] for name in _COLUMNS[kind] if name in stored}, **columns)


def encode_text(value: Any) -> str:
    """Return the body of a dataclass as JSON text."""
    return json_text(encode(value))


def decode_text(kind: type[T], text: str, **columns: Any) -> T:
    """Return a value from its body as JSON text. Raises UNREADABLE, also for a body of a later release."""
    body = json.loads(text)
    if body["v"] != VERSION:
        raise ValueError(f"a body of version {body['v']}")
    return decode(kind, body, **columns)


def json_text(value: Any) -> str:
    """Return JSON text that every database accepts: NaN and infinities, which models and tools do send, become null."""
    try:
        return _strictly(value)
    except ValueError:
        return _strictly(_finite(value))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def omit_fields(kind: type, *names: str) -> None:
    """Leave fields out of the bodies of a dataclass. Decoding gives them their defaults, or takes them from columns."""
    _COLUMNS[kind] = names
    converter.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, converter, **_omitting(*names)))


def _reject_bytes(part: ImagePart | FilePart) -> NoReturn:
    raise TypeError(f"the bytes of {part.name!r} do not belong into a body")


def _structure_source(body: Any, _kind: object) -> Source:
    """Decode a source. An unknown source, written by a later release, counts as an unknown result."""
    match body:
        case {"principal": _}:
            return converter.structure(body, PersonSource)
        case {"tool": _}:
            return converter.structure(body, ToolSource)
        case _:
            return OtherSource(body) if body in list(OtherSource) else OtherSource.RESULT


def _omitting(*names: str) -> dict[str, Any]:
    return {name: override(omit=True) for name in names}


converter = Converter(detailed_validation=False, unstruct_collection_overrides={frozenset: sorted})
"""Converter of dataclasses for `encode` and `decode`, and for columns with a list of values."""
# Arguments of calls, metadata and structured results are JSON already.
converter.register_unstructure_hook_func(lambda kind: kind is Any, lambda value: value)
converter.register_unstructure_hook_func(lambda kind: kind == Mapping[str, Any], dict)
converter.register_structure_hook_func(lambda kind: kind == Mapping[str, Any], lambda value, _: value)
for _kind in (ImagePart, FilePart):
    converter.register_unstructure_hook(_kind, _reject_bytes)
for _union in (ResultPart, Part):
    configure_tagged_union(_union, converter, _PART_TYPES.__getitem__, "type")
converter.register_unstructure_hook(Source, lambda source: converter.unstructure(source, type(source)))
converter.register_structure_hook(Source, _structure_source)
omit_fields(ModelStep, "n", "use", "created_at")
converter.register_unstructure_hook(
    ToolStep,
    make_dict_unstructure_fn(
        ToolStep,
        converter,
        **_omitting("n", "status", "repeatable", "result", *_IN_TABLES),
        policy_result=_STORED_RULING,
    ),
)
converter.register_structure_hook(
    ToolStep, make_dict_structure_fn(ToolStep, converter, **_omitting(*_IN_TABLES), policy_result=_STORED_RULING)
)
