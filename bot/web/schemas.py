"""What all shapes on the wire have in common: names in camelCase, times as ISO 8601.

Shapes of single subjects stand beside their routes.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ResponseModel(BaseModel):
    """A shape that is sent."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)


class RequestModel(BaseModel):
    """A shape that is taken: fields that it does not name are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


def moment(seconds: float) -> str:
    """Epoch seconds as ISO 8601 in UTC, to the millisecond: `2026-08-31T14:30:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
