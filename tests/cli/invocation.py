"""The outcome of one command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """Exit status and output of a program."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """The one JSON object it wrote."""
        [line] = self.out.splitlines()
        told: dict[str, Any] = json.loads(line)
        return told

    @property
    def complaint(self) -> str:
        """The one line it complained with."""
        assert self.out == ""
        [line] = self.err.splitlines()
        assert line.startswith("countersign: ")
        return line.removeprefix("countersign: ")


Countersign = Callable[..., Ended]
