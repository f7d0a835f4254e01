"""Questions that ask a model if a call of unknown outcome has run, and the tools for the answer.

The question is a message of its conversation, so that all users there see it. Writing the same text by hand gives no
additional rights: it only removes tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.tools import Tool, ToolKind, ToolSet

_PREFIX = "The call "
_SUFFIX = (
    " was sent, but its answer got lost. Find out whether it happened, with tools that only read, and say what you "
    "found. Do not repeat the call."
)
_QUESTION = re.compile(rf"{_PREFIX}(\S{{1,200}}) with (.*){re.escape(_SUFFIX)}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call of unknown outcome: the tool's offered name, and the arguments, masked. Unreadable arguments are empty."""

    name: str
    arguments: Mapping[str, Any]


def check_question(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the question about a call of this tool, with masked `arguments`."""
    return f"{_PREFIX}{name} with {json.dumps(arguments, ensure_ascii=False)}{_SUFFIX}"


def parse_check_question(question: str) -> CheckedCall | None:
    """Return the call that a question asks about; None for any other question."""
    match = _QUESTION.fullmatch(question)
    if match is None:
        return None
    try:
        arguments = json.loads(match[2])
    except (ValueError, RecursionError):
        arguments = {}
    return CheckedCall(match[1], arguments if isinstance(arguments, dict) else {})


def tools_for_check(offered: ToolSet, checked: CheckedCall) -> ToolSet:
    """Return the tools without the checked one and without those whose hints say that they change data."""

    def allowed(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        return tuple(tool for tool in tools if tool.name != checked.name and not _changes(tool))

    tools = allowed(offered.tools)
    return replace(offered, tools=tools, requests=allowed(offered.requests), by_server=allowed(offered.by_server))


def _changes(tool: Tool) -> bool:
    """Return True if the hints of a tool say that it changes data; without hints, the rules decide."""
    hints = tool.annotations
    return tool.kind is ToolKind.CALL and (hints.read_only is False or bool(hints.destructive and not hints.read_only))
