"""User of the terminal, and the keys of their conversations.

The platform is `console`, the workspace `local`. A conversation is a thread of the user's own channel, so that users of
one machine share none.
"""

from __future__ import annotations

import getpass
import os
import secrets
from dataclasses import dataclass, replace

from bot.domain.agents import Addressed, AgentRef, Agents, UnknownName
from bot.domain.conversations import CONSOLE, Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale
from bot.errors import NotFound
from bot.i18n import _

WORKSPACE = "local"
SCRIPT_PREFIX = "script:"
"""Prefix of a key that each message of a script has beside its own."""

_ID_CHARACTERS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Without letters that look like digits."""
_ID_LENGTH = 8


def fresh_conversation() -> str:
    """Return a new conversation id, random and short enough for lists."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


@dataclass(frozen=True, slots=True)
class LocalUser:
    """User at the terminal. Without `--user` the user is the operator. `locale` is that of the terminal. `agent` is the
    name of the one to ask, empty for the one that answers here without a name. `is_script` is True if a program asks
    for the user: no window continues its conversations.
    """

    name: str
    operator: bool = True
    locale: Locale = UNKNOWN
    agent: str = ""
    is_script: bool = False

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
    def key_prefix(self) -> str:
        """Key prefix of the user's conversations."""
        return str(self.key("")).removesuffix(":") + ":"

    def key(self, conversation: str) -> ConversationKey:
        """Return the key of a conversation."""
        return ConversationKey(CONSOLE, WORKSPACE, self.name, conversation)

    def new_message(self, text: str, conversation: str) -> InboundMessage:
        """Return a new message with a unique id."""
        key = self.key(conversation)
        return self.prepare(InboundMessage((f"console:{secrets.token_hex(16)}",), key, self.author, text))

    def prepare(self, message: InboundMessage) -> InboundMessage:
        """Return a message of the user with their locale, marked if a script sends it."""
        marks = tuple(f"{SCRIPT_PREFIX}{key}" for key in message.keys[:1]) if self.is_script else ()
        return replace(message, keys=(*message.keys, *marks), locale=self.locale, author_locale=self.locale)


class Questions:
    """The typed questions of a user, for the agents that they name. The agent of `--agent` is asked first in each
    conversation.
    """

    def __init__(self, user: LocalUser) -> None:
        self._user = user
        self._begun: set[str] = set()

    def read(self, text: str, conversation: str, agents: Agents) -> InboundMessage:
        """Return the message to the engine. Raises NotFound for a name that no agent here has."""
        match agents.read_address(text):
            case Addressed(agent, rest):
                if not rest:
                    raise NotFound(_("The question is missing: write it behind the name."))
                message = replace(self._user.new_message(rest, conversation), agent=agent)
            case UnknownName(meant):
                raise _unknown_agent(agents, meant.agent if meant is not None else None)
            case None:
                message = replace(
                    self._user.new_message(text, conversation), agent=self._first_agent(conversation, agents)
                )
        self._begun.add(conversation)
        return message

    def _first_agent(self, conversation: str, agents: Agents) -> AgentRef | None:
        if not self._user.agent or conversation in self._begun:
            return None
        agent = agents.find(self._user.agent)
        if agent is None:
            raise _unknown_agent(agents, agents.closest(self._user.agent))
        return agent


def _unknown_agent(agents: Agents, meant: AgentRef | None) -> NotFound:
    fixes = [_("Did you mean {name}?", name=meant.name)] if meant is not None else []
    fixes += [_("Agents here: {names}", names=", ".join(agents.names))] if agents.here else []
    return NotFound(_("There is no agent of that name here."), " ".join(fixes))


def login_name() -> str:
    """Return the system's login name; `uid-N` if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user that has no name
        return f"uid-{os.getuid()}"
