"""What a thread is called that begins with a question: its first line, as far as Discord takes it.

A name is plain text on Discord: nothing in it formats or calls anybody.
"""

from __future__ import annotations

import re

from bot.platforms.discord.sizes import measure
from bot.rendering.plain import ELLIPSIS, one_line

LONGEST = 100
UNNAMED = "Question"
_MARKS = re.compile(r"^(?:\s*(?:[>#*+-]|-#|\d+[.)]))+\s+|[*_~`|]{2,}|(?<!\w)[*_`](?=\w)|(?<=\w)[*_`](?!\w)")


def thread_name(question: str) -> str:
    """A name for the thread of this question, which is plain text without mentions. Never empty."""
    lines = (_MARKS.sub("", line) for line in question.splitlines())
    line = next((found for each in lines if (found := one_line(each, LONGEST * 2)).strip(" `*_~|>#-")), "")
    if measure(line) <= LONGEST:
        return line or UNNAMED
    kept = line[:LONGEST]
    while measure(kept) > LONGEST:
        kept = kept[:-1]
    beginning, _, _ = kept.rpartition(" ")
    return (beginning.rstrip(" ,.;:-") or kept[:-1]) + ELLIPSIS
