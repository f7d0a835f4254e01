"""Answers of the demo to the question if a call of unknown outcome has run: it looks once, with a tool that reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.messages import ToolResult
from bot.domain.outcome_checks import CheckedCall
from bot.domain.tools import Tool
from bot.i18n import _, gettext_lazy
from bot.llm.demo.arguments import parameters
from bot.llm.demo.request import request_terms
from bot.llm.demo.vocabulary import VERBS

NO_WAY_TO_LOOK = gettext_lazy("I have no tool that could tell whether this call has run.")
_SHORTEST = 2
_LONGEST = 200


def find_check(checked: CheckedCall, tools: Sequence[Tool]) -> tuple[Tool, Mapping[str, Any]] | None:
    """Return the call that looks for what the checked one does: a list of the same server, else a search for its text.
    None if no tool can.
    """
    server = checked.name.partition("__")[0]
    reading = [tool for tool in tools if tool.annotations.read_only and tool.name.partition("__")[0] == server]
    searches = []
    for tool in sorted(reading, key=lambda tool: (not _lists(tool), tool.name)):
        required = [parameter for parameter in parameters(tool.input_schema) if parameter.required]
        if not required:
            return tool, {}
        if len(required) == 1 and (texts := [text for text in _texts(checked) if required[0].accepts(text)]):
            searches.append((tool, {required[0].name: texts[0]}))
    return searches[0] if searches else None


def find_traces(checked: CheckedCall, results: Sequence[ToolResult]) -> str:
    """Return a sentence that says if the texts of the checked call are in what was read; empty if it cannot be said."""
    read = [" ".join(result.text.split()).casefold() for result in results if not result.is_error]
    texts = _texts(checked)
    if not read or not texts:
        return ""
    named = ", ".join(f"\u201c{text}\u201d" for text in texts)
    is_there = all(any(_stands_in(text, result) for result in read) for text in texts)
    return (
        _("I looked: {texts} is there.", texts=named) if is_there else _("I looked: {texts} is not there.", texts=named)
    )


def _texts(checked: CheckedCall) -> list[str]:
    """Return the arguments that can be looked for, the longest first."""
    values = [str(value) for value in checked.arguments.values() if isinstance(value, str | int) and value is not True]
    lines = [" ".join(value.split())[:_LONGEST] for value in values]
    texts = [line for line in lines if len(line) >= _SHORTEST]
    return sorted(texts or [line for line in lines if line], key=len, reverse=True)[:3]


def _stands_in(text: str, result: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(text.casefold())}(?!\w)", result) is not None


def _lists(tool: Tool) -> bool:
    actions = (VERBS[term] for term in request_terms(tool.original_name or tool.name) if term in VERBS)
    return any("list" in action for action in actions)
