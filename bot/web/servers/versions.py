"""Optimistic locking over HTTP: a version in the request has to be the current one.

In a body it is `version`, and a mismatch is a conflict (409). In the header it is `If-Match`, and a mismatch is a
failed precondition (412, RFC 9110 section 13.1.1).
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header

from bot.commands.text_format import format_moment
from bot.domain.profiles import Profile
from bot.domain.servers import ServerRecord
from bot.web.problems import Problem

IfMatch = Annotated[str | None, Header(description="A version as in `ETag`: nothing is done if it is another by now.")]
_TAG = re.compile(r'(?:W/)?"?(\d{1,18})"?')


def tag(version: int) -> str:
    """Format a version as an `ETag`."""
    return f'"{version}"'


def check(present: ServerRecord | Profile, version: int | None, if_match: str | None) -> None:
    """Raise Problem if the version in the request is not the current one. The message names the last editor."""
    if if_match is not None and if_match.strip() != "*":
        wanted = {found[1] for found in map(_TAG.fullmatch, map(str.strip, if_match.split(","))) if found}
        if str(present.version) not in wanted:
            raise overtaken(present, 412)
    if version is not None and version != present.version:
        raise overtaken(present)


def overtaken(present: ServerRecord | Profile, status: int = 409) -> Problem:
    """Return the problem for a record that was changed meanwhile."""
    who, when = present.updated_by or "somebody", format_moment(present.updated_at)
    return Problem(
        status,
        "conflict" if status == 409 else "changed",
        f"It was changed by {who}{f' at {when} UTC' if when else ''}: it has version {present.version} now. "
        "Nothing was saved.",
        "read it again, and send the change with that version",
        {"version": str(present.version)},
        headers={"ETag": tag(present.version)},
    )
