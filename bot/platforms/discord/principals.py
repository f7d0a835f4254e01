"""People and roles of Discord in what the engine and the commands say, by their names: `discord:7` becomes `@sam`, and
`discord-role:9` becomes `@ops`.

Called by whatever shows such a sentence.
"""

from __future__ import annotations

from bot.domain.commands import Reply
from bot.platforms.discord.people import People
from bot.platforms.discord.references import ROLE
from bot.reception import principals

_PRINCIPALS = r"discord:\d{1,20}|discord-role:\d{1,20}"


async def with_names(people: People, server: str, sentence: str) -> str:
    """The sentence as it is read by people of that server."""
    return await principals.with_names(_names(people, server), sentence)


async def reply_with_names(people: People, server: str, reply: Reply) -> Reply:
    """A reply whose text, which is Markdown, names people. What stands in code is there to be copied and stays."""
    return await principals.reply_with_names(_names(people, server), reply)


def _names(people: People, server: str) -> principals.Names:
    async def name(principal: str) -> str:
        if principal.startswith(ROLE):
            return await people.role_name(principal.removeprefix(ROLE), server)
        return (await people.person(principal.partition(":")[2], server)).name

    return principals.Names(_PRINCIPALS, name)
