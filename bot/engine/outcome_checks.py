"""The question with which a person has the model find out whether a call of unknown outcome has happened.

Its text quotes arguments that a model has written. So nothing in it counts as named by the person (`turn_runner`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_BEGINS = "The call "
_ENDS = (
    " was sent, but its answer got lost. Find out whether it happened, with tools that only read, and say what you "
    "found. Do not repeat the call."
)


def check_question(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the question about a call of this tool; `arguments` are as the conversation may read them."""
    return f"{_BEGINS}{name} with {json.dumps(arguments, ensure_ascii=False)}{_ENDS}"


def is_check_question(question: str) -> bool:
    """Return whether a question is one of these. A person who writes the same names nobody either."""
    return question.startswith(_BEGINS) and question.endswith(_ENDS)
