"""Names of Discord users and roles in sentences of the engine and the commands: `discord:7` becomes `@sam`, and
`discord-role:9` becomes `@ops`.
"""

from __future__ import annotations

from bot.chat import mentions
from bot.domain.commands import Reply
from bot.platforms.discord.ids import ROLE
from bot.platforms.discord.users import UserDirectory

_PRINCIPALS = r"discord:\d{1,20}|discord-role:\d{1,20}"


async def resolve_mentions(people: UserDirectory, server: str, sentence: str) -> str:
    """Replace the principals of a sentence by names in that guild."""
    return await mentions.resolve_mentions(_names(people, server), sentence)


async def resolve_reply_mentions(people: UserDirectory, server: str, reply: Reply) -> Reply:
    """Replace the principals of a reply's Markdown by names. Code stays, because it is copied."""
    return await mentions.resolve_reply_mentions(_names(people, server), reply)


def _names(people: UserDirectory, server: str) -> mentions.PrincipalNames:
    async def name(principal: str) -> str:
        if principal.startswith(ROLE):
            return await people.role_name(principal.removeprefix(ROLE), server)
        return (await people.person(principal.partition(":")[2], server)).name

    return mentions.PrincipalNames(_PRINCIPALS, name)
