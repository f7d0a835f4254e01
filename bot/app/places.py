"""What models are told about the places where their words are read."""

from __future__ import annotations

from bot.domain.conversations import HTTP, ConversationKey
from bot.engine.instructions import Place

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


def place_of(conversation: ConversationKey) -> Place:
    """How a conversation's platform draws text, and whether several people write there. A direct conversation of
    Discord's cannot be told from a channel by its key: there, too, the person is named.
    """
    match conversation.platform:
        case "slack":
            return Place(_SLACK, shared=not conversation.channel.startswith(_DIRECT))
        case "discord":
            return Place(_DISCORD, shared=True)
        case "console":
            return Place(_CONSOLE)
        case platform if platform == HTTP:
            return Place("Your words are read by a program, which may draw Markdown.")
        case _:
            return Place()
