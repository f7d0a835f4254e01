"""Next steps of a reply, as lines to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bot.domain.commands import Form, Reply
from bot.platforms.console.lines import safe_lines
from bot.rendering.text_safety import single_line

ARROW, BACK, ON = "→", "◀", "▶"
Step = tuple[str, str, str]
"""A mark, the line to type, and its effect."""


def next_steps(reply: Reply) -> Iterator[Step]:
    """Yield the actions of a reply, then its pages."""
    for action in reply.actions:
        confirm = ("--confirm", action.confirm) if action.confirm else ()
        yield ARROW, command_line((*action.words, *confirm)), single_line(action.label, 60)
    page = reply.page
    if page is None:
        return
    for mark, number in ((BACK, page.number - 1), (ON, page.number + 1)):
        if 1 <= number <= page.of:
            yield mark, command_line((*page.words, "--page", str(number))), f"page {number} of {page.of}"


def command_line(words: tuple[str, ...]) -> str:
    """Return words quoted, so that they parse to the same words."""
    return single_line(safe_lines(f"/{shlex.join(words)}"), 400)


def instead_of(form: Form) -> str:
    """Return the command line that replaces a form."""
    fields = ", ".join(f"{each.label}: {each.error}" for each in form.fields if each.error)
    trouble = f" {single_line(fields, 400)}" if fields else ""
    how = f" On one line: {form.instead}" if form.instead else ""
    return f"{single_line(form.title, 200)}: no terminal is open to fill in the form.{trouble}{how}"
