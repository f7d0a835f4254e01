"""User of the terminal, and the keys of their conversations.

The platform is `console`, the workspace `local`. A conversation is a thread of the user's own channel, so that users of
one machine share none.
"""

from __future__ import annotations

import getpass
import os
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bot.domain.conversations import CONSOLE, Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale

WORKSPACE = "local"


def fresh_conversation() -> str:
    """Return a new conversation id: the date and a random part."""
    return f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class LocalUser:
    """User at the terminal. Without `--user` the user is the operator. `locale` is that of the terminal."""

    name: str
    operator: bool = True
    locale: Locale = UNKNOWN

    @property
    def author(self) -> Author:
        """User as an author."""
        return Author(CONSOLE, self.name, self.name)

    @property
    def member(self) -> Member:
        """User with rights: the operator is an admin."""
        locale = self.locale
        return Member(
            self.author,
            platform_admin=self.operator,
            language=locale.language or None,
            time_zone=locale.time_zone or None,
        )

    @property
    def reach(self) -> str:
        """Key prefix of the user's conversations."""
        return str(self.key("")).removesuffix(":") + ":"

    def key(self, conversation: str) -> ConversationKey:
        """Return the key of a conversation."""
        return ConversationKey(CONSOLE, WORKSPACE, self.name, conversation)

    def says(self, text: str, conversation: str) -> InboundMessage:
        """Return a new message with a unique id."""
        key = self.key(conversation)
        return self.localized(InboundMessage((f"console:{secrets.token_hex(16)}",), key, self.author, text))

    def localized(self, message: InboundMessage) -> InboundMessage:
        """Return a message of the user with their locale."""
        return replace(message, locale=self.locale, author_locale=self.locale)


def login_name() -> str:
    """Return the system's login name; `uid-N` if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user that has no name
        return f"uid-{os.getuid()}"
