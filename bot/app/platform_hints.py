"""What models are told about the places where their words are read."""

from __future__ import annotations

from bot.domain.conversations import HTTP, ConversationKey
from bot.engine.system_prompt import PlatformHint

_SLACK = (
    "Your words are read in Slack. Write Markdown: it is drawn there with headings, lists, quotes, code and tables. "
    "Pictures are not drawn. Keep tables narrow and one to an answer."
)
_DISCORD = (
    "Your words are read in Discord. Write Markdown: it is drawn there with headings, lists, quotes and code. A small "
    "table becomes columns of letters, a wide one a list. Pictures are not drawn. Keep lines and answers short."
)
_CONSOLE = "Your words are read in a terminal. Write Markdown: it is drawn there, tables and code included."
_DIRECT = "D"
"""What ids of direct conversations begin with (docs.slack.dev, conversations)."""


def platform_hint(conversation: ConversationKey) -> PlatformHint:
    """How a conversation's platform draws text, and whether several people write there. A direct conversation of
    Discord's cannot be told from a channel by its key: there, too, the person is named.
    """
    match conversation.platform:
        case "slack":
            return PlatformHint(_SLACK, shared=not conversation.channel.startswith(_DIRECT))
        case "discord":
            return PlatformHint(_DISCORD, shared=True)
        case "console":
            return PlatformHint(_CONSOLE)
        case platform if platform == HTTP:
            return PlatformHint("Your words are read by a program, which may draw Markdown.")
        case _:
            return PlatformHint()
