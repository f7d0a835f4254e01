"""The published schema of a turn's events, and the rule by which a program joins the pieces of a reply."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

PUBLISHED = Path(__file__).parents[1] / "docs/turn-events.schema.json"


@cache
def _validator() -> Any:
    return Draft202012Validator(json.loads(PUBLISHED.read_text()))


def check_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Validate an event against the published schema and return it. Undescribed events and fields are errors."""
    schemas = {each["properties"]["event"]["const"]: each for each in _validator().schema["oneOf"]}
    assert event["event"] in schemas, event
    _validator().validate(event)
    shape = schemas[event["event"]]["properties"]["data"]["$ref"].rpartition("/")[2]
    described = _validator().schema["$defs"][shape]["properties"]
    assert event["data"].keys() <= described.keys(), event["event"]
    return event


def reply_texts(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the texts of the replies by their ids, joined from the pieces."""
    texts: dict[str, str] = {}
    for event in events:
        if event["event"] == "message":
            piece = event["data"]
            texts[piece["id"]] = texts.get(piece["id"], "")[: piece["offset"]] + piece["delta"]
    return texts
