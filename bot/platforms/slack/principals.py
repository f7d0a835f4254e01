"""People and groups of Slack in what the engine and the commands say, by their names: `slack:U1` becomes `@sam`, and
`slack-group:S1` becomes `@ops`.

Called by whatever shows such a sentence.
"""

from __future__ import annotations

from bot.domain.commands import Reply
from bot.platforms.slack.people import GROUP, People
from bot.reception import principals

_PRINCIPALS = r"slack:[UW][A-Z0-9]{1,20}|slack-group:S[A-Z0-9]{1,20}"


async def with_names(people: People, sentence: str) -> str:
    """The sentence as it is read by people."""
    return await principals.with_names(_names(people), sentence)


async def reply_with_names(people: People, reply: Reply) -> Reply:
    """A reply whose text, which is Markdown, names people. What stands in code is there to be copied and stays."""
    return await principals.reply_with_names(_names(people), reply)


def _names(people: People) -> principals.Names:
    async def name(principal: str) -> str:
        if principal.startswith(GROUP):
            return await people.handle(principal.removeprefix(GROUP))
        return (await people.person(principal.partition(":")[2])).name

    return principals.Names(_PRINCIPALS, name)
