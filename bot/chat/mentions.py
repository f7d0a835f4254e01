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
"""Names that are looked up for one sentence."""
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
    """Return a sentence with names."""
    return await _replace(names, sentence, lambda name: name)


async def resolve_reply_mentions(names: PrincipalNames, reply: Reply) -> Reply:
    """Return a reply with names in its Markdown text. Code stays unchanged, because it is there to be copied."""
    return replace(reply, text=await _replace(names, reply.text, _escape_markdown))


async def _replace(names: PrincipalNames, text: str, write: Callable[[str], str]) -> str:
    pattern = re.compile(rf"`[^`]*`|(?<![\w:-])({names.principals})\b")
    principals = list(dict.fromkeys(match[1] for match in pattern.finditer(text) if match[1]))
    replacements = {principal: write(await _name(names, principal)) for principal in principals[:MOST]}
    return pattern.sub(lambda match: replacements.get(match[1], match[0]), text) if replacements else text


async def _name(names: PrincipalNames, principal: str) -> str:
    try:
        name = await names.name(principal)
    except DeliveryFailed:
        return principal
    # A URL in a name would become a link.
    name = single_line(name.replace("://", " "), LONGEST_NAME)
    return f"@{name}" if name and name not in principal else principal


def _escape_markdown(name: str) -> str:
    return _PUNCTUATION.sub(r"\\\1", name)
