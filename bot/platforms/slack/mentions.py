"""Names of Slack users and groups in sentences of the engine and the commands: `slack:U1` becomes `@sam`, and
`slack-group:S1` becomes `@ops`.
"""

from __future__ import annotations

from bot.chat import mentions
from bot.domain.commands import Reply
from bot.platforms.slack.users import GROUP, UserDirectory

_PRINCIPALS = r"slack:[UW][A-Z0-9]{1,20}|slack-group:S[A-Z0-9]{1,20}"


async def resolve_mentions(people: UserDirectory, sentence: str) -> str:
    """Replace the principals of a sentence by names."""
    return await mentions.resolve_mentions(_names(people), sentence)


async def resolve_reply_mentions(people: UserDirectory, reply: Reply) -> Reply:
    """Replace the principals of a reply's Markdown by names. Code stays, because it is copied."""
    return await mentions.resolve_reply_mentions(_names(people), reply)


def _names(people: UserDirectory) -> mentions.PrincipalNames:
    async def name(principal: str) -> str:
        if principal.startswith(GROUP):
            return await people.group_name(principal.removeprefix(GROUP))
        return (await people.person(principal.partition(":")[2])).name

    return mentions.PrincipalNames(_PRINCIPALS, name)
