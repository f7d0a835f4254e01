"""Who sits at the terminal, and what their conversations are called.

Called by everything in this folder. One person on platform `console`, workspace `local`; a conversation is a thread
of that person's own channel, so that no two people on one machine meet.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member

PLATFORM = "console"
WORKSPACE = "local"


def fresh_conversation() -> str:
    """A conversation id that nobody has used: the day, so that lists read well, and some chance."""
    return f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class LocalUser:
    """The person at the terminal. The operator is whoever started the program without `--user`."""

    name: str
    operator: bool = True

    @property
    def author(self) -> Author:
        """The person as an author."""
        return Author(PLATFORM, self.name, self.name)

    @property
    def member(self) -> Member:
        """The person with their rights: the operator administers."""
        return Member(self.author, platform_admin=self.operator)

    @property
    def reach(self) -> str:
        """The beginning of the keys of all their conversations."""
        return str(self.key("")).removesuffix(":") + ":"

    def key(self, conversation: str) -> ConversationKey:
        """The address of one of their conversations."""
        return ConversationKey(PLATFORM, WORKSPACE, self.name, conversation)

    def says(self, text: str, conversation: str) -> InboundMessage:
        """A new message of theirs, unlike any other."""
        return InboundMessage((f"console:{secrets.token_hex(16)}",), self.key(conversation), self.author, text)
