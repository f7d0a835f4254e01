"""People and groups of Slack in what the engine and the commands say, by their names: `slack:U1` becomes `@sam`, and
`slack-group:S1` becomes `@ops`.

Called by whatever shows such a sentence.
"""

from __future__ import annotations

from bot.chat import mentions
from bot.domain.commands import Reply
from bot.platforms.slack.users import GROUP, UserDirectory

_PRINCIPALS = r"slack:[UW][A-Z0-9]{1,20}|slack-group:S[A-Z0-9]{1,20}"


async def resolve_mentions(people: UserDirectory, sentence: str) -> str:
    """The sentence as it is read by people."""
    return await mentions.resolve_mentions(_names(people), sentence)


async def resolve_reply_mentions(people: UserDirectory, reply: Reply) -> Reply:
    """A reply whose text, which is Markdown, names people. What stands in code is there to be copied and stays."""
    return await mentions.resolve_reply_mentions(_names(people), reply)


def _names(people: UserDirectory) -> mentions.PrincipalNames:
    async def name(principal: str) -> str:
        if principal.startswith(GROUP):
            return await people.group_name(principal.removeprefix(GROUP))
        return (await people.person(principal.partition(":")[2])).name

    return mentions.PrincipalNames(_PRINCIPALS, name)
