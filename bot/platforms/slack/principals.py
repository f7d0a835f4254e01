"""Principals in what the engine and the commands say, by the names people know: `slack:U1` becomes `@sam`, and
`slack-group:S1` becomes `@ops`.

Called by whatever shows such a sentence. A name is text and calls nobody; where Slack does not tell one, the principal
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from bot.domain.commands import Reply
from bot.errors import DeliveryFailed
from bot.platforms.slack.people import GROUP, People
from bot.rendering.plain import one_line

MOST = 20
"""So many names are looked up for one sentence."""
LONGEST_NAME = 80
_PRINCIPAL = re.compile(r"`[^`]*`|(?<![\w:-])(slack:[UW][A-Z0-9]{1,20}|slack-group:S[A-Z0-9]{1,20})\b")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


async def with_names(people: People, sentence: str) -> str:
    """The sentence as it is read by people."""
    return await _named(people, sentence, lambda name: name)


async def reply_with_names(people: People, reply: Reply) -> Reply:
    """A reply whose text, which is Markdown, names people. What stands in code is there to be copied and stays."""
    return replace(reply, text=await _named(people, reply.text, _as_markdown))


async def _named(people: People, text: str, write: Callable[[str], str]) -> str:
    principals = list(dict.fromkeys(match[1] for match in _PRINCIPAL.finditer(text) if match[1]))
    names = {each: write(await _name(people, each)) for each in principals[:MOST]}
    return _PRINCIPAL.sub(lambda match: names.get(match[1], match[0]), text) if names else text


async def _name(people: People, principal: str) -> str:
    try:
        if principal.startswith(GROUP):
            name = await people.handle(principal.removeprefix(GROUP))
        else:
            name = (await people.person(principal.partition(":")[2])).name
    except DeliveryFailed:
        return principal
    # An address in somebody's name would become a link.
    name = one_line(name.replace("://", " "), LONGEST_NAME)
    return f"@{name}" if name and name not in principal else principal


def _as_markdown(name: str) -> str:
    """Text in which nothing means anything to a reader of Markdown."""
    return _PUNCTUATION.sub(r"\\\1", name)
