"""Errors of TOML files in words for the operator who wrote them."""

from __future__ import annotations

import re

from bot.i18n import gettext_lazy

_LINE = re.compile(r"\(at line (\d+), ")
_BARE = re.compile(r"(?:[^=\n]*[=\[,]|^)\s*[A-Za-z0-9_./~@:-]+")
"""The beginning of a line that has a value without quotes."""


def toml_problem(text: str, error: Exception) -> str:
    """Return the parser's reason with its line and without a full stop, and that texts need quotes if a value on that
    line has none.
    """
    lines = text.splitlines()
    reason = str(error).replace("(at end of document)", f"(at line {len(lines)}, the last)")
    position = _LINE.search(reason)
    line = lines[int(position[1]) - 1] if position and int(position[1]) <= len(lines) else ""
    if not _BARE.match(line) or not reason.startswith(("Invalid value", "Expected newline", "Unclosed array")):
        return reason
    return gettext_lazy('{error}. A text needs quotes, such as name = "value"', error=reason)
