"""Base of the models that programs read, with names in camelCase and times as ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from bot.i18n import LazyText


class ResponseModel(BaseModel):
    """A response body."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, values: object) -> object:
        """Translate lazy texts, of which pydantic would keep the English."""
        return {name: _translated(value) for name, value in values.items()} if isinstance(values, dict) else values


def _translated(value: object) -> object:
    match value:
        case LazyText():
            return str(value)
        case list() | tuple():
            return [_translated(item) for item in value]
        case dict():
            return {name: _translated(item) for name, item in value.items()}
    return value


def format_time(seconds: float) -> str:
    """Format epoch seconds as ISO 8601 in UTC, to the millisecond: `2026-08-31T14:30:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
