"""The arguments of a call, however they came: JSON keeps its types, a form or a query has only strings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.fakes.slack.refusals import Refused, invalid_arguments, missing_argument


@dataclass(frozen=True)
class Arguments:
    """Arguments of a method."""

    given: dict[str, Any]

    def has(self, name: str) -> bool:
        """Was it given, and not as null or an empty string?"""
        return self.given.get(name) not in {None, ""} if not isinstance(self.given.get(name), list | dict) else True

    def text(self, name: str, default: str = "") -> str:
        """Return a string; a number is converted as Slack does."""
        value = self.given.get(name)
        if value is None:
            return default
        if isinstance(value, bool | list | dict):
            raise invalid_arguments(f"must provide a string [json-pointer:/{name}]")
        return str(value)

    def required_text(self, name: str) -> str:
        """Return a string that must be there.

        Raises:
            Refused: invalid_arguments.
        """
        value = self.text(name)
        if not value:
            raise missing_argument(name)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean: true, "true", 1 and "1" are yes."""
        value = self.given.get(name)
        return default if value is None else str(value).lower() in {"true", "1"}

    def number(self, name: str, default: int) -> int:
        """Return a whole number, given as one or as its digits."""
        try:
            return int(self.given.get(name) or default)
        except (TypeError, ValueError):
            raise invalid_arguments(f"must provide an integer [json-pointer:/{name}]") from None

    def json(self, name: str, wrong: str = "invalid_arguments") -> Any:
        """Return a value that is plain in JSON and a string of JSON in a form; None if it is missing.

        Raises:
            Refused: `wrong`, if it is a string that is not JSON.
        """
        value = self.given.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            raise Refused(wrong) from None

    def rows(self, name: str, wrong: str) -> list[dict[str, Any]] | None:
        """Return a list of objects; None if it is missing.

        Raises:
            Refused: `wrong`, if it is of another type.
        """
        value = self.json(name, wrong)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise Refused(wrong)
        return value
