"""Principals in texts of the engine and the commands, replaced by names: `slack:U1` becomes `@sam`, and
`slack-group:S1` becomes `@ops`.

A name is plain text and notifies no user. A principal without a name stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bot.domain.commands import Reply
from bot.errors import DeliveryFailed
from bot.rendering.text_safety import single_line

MOST = 20
"""So many names are looked up for one sentence."""
LONGEST_NAME = 80
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


@dataclass(frozen=True, slots=True)
class PrincipalNames:
    """Names of one platform's principals. `principals` is a pattern for them, without groups. `name` returns the name
    of one, empty if there is none, or raises DeliveryFailed.
    """

    principals: str
    name: Callable[[str], Awaitable[str]]


async def resolve_mentions(names: PrincipalNames, sentence: str) -> str:
    """The sentence as it is read by people."""
    return await _named(names, sentence, lambda name: name)


async def resolve_reply_mentions(names: PrincipalNames, reply: Reply) -> Reply:
    """Return a reply with names in its Markdown text. Code stays unchanged, because it is there to be copied."""
    return replace(reply, text=await _named(names, reply.text, _as_markdown))


async def _named(names: PrincipalNames, text: str, write: Callable[[str], str]) -> str:
    pattern = re.compile(rf"`[^`]*`|(?<![\w:-])({names.principals})\b")
    found = list(dict.fromkeys(match[1] for match in pattern.finditer(text) if match[1]))
    written = {each: write(await _name(names, each)) for each in found[:MOST]}
    return pattern.sub(lambda match: written.get(match[1], match[0]), text) if written else text


async def _name(names: PrincipalNames, principal: str) -> str:
    try:
        name = await names.name(principal)
    except DeliveryFailed:
        return principal
    # An address in somebody's name would become a link.
    name = single_line(name.replace("://", " "), LONGEST_NAME)
    return f"@{name}" if name and name not in principal else principal


def _as_markdown(name: str) -> str:
    """Text in which nothing means anything to a reader of Markdown."""
    return _PUNCTUATION.sub(r"\\\1", name)
