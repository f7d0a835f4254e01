"""Message metadata of an app."""

from __future__ import annotations

import json

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.refusals import Refused

SIZE = 15_000


def metadata_of(args: Arguments) -> Json | None:
    """Return the given metadata, or None.

    Raises:
        Refused: invalid_metadata_format, invalid_metadata_schema, metadata_too_large.
    """
    given = args.json("metadata", "invalid_metadata_format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Refused("invalid_metadata_format")
    if given and (not isinstance(given.get("event_type"), str) or not isinstance(given.get("event_payload"), dict)):
        raise Refused("invalid_metadata_schema")
    if len(json.dumps(given)) > SIZE:
        raise Refused("metadata_too_large")
    return given
