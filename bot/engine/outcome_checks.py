"""The question that lets the model find out if a call of unknown outcome has run.

Its text quotes arguments that a model has written, so it names no recipients (`turn_runner`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PREFIX = "The call "
_SUFFIX = (
    " was sent, but its answer got lost. Find out whether it happened, with tools that only read, and say what you "
    "found. Do not repeat the call."
)


def check_question(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the question about a call of this tool, with masked `arguments`."""
    return f"{_PREFIX}{name} with {json.dumps(arguments, ensure_ascii=False)}{_SUFFIX}"


def is_check_question(question: str) -> bool:
    """Return True if the text has the form of a check question, even one written by a user."""
    return question.startswith(_PREFIX) and question.endswith(_SUFFIX)
