"""Conversations, their participants and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from bot.domain.messages import ToolCall

HTTP = "api"
"""The platform of conversations that are held over HTTP."""


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """The address of a conversation. Its text form, `platform:workspace:channel:thread`, is its identity on disk."""

    platform: str
    workspace: str
    channel: str
    thread: str

    def __str__(self) -> str:
        return _text(self)

    @property
    def workspace_key(self) -> str:
        """The workspace with its platform, `slack:T1`, as servers and profiles name it. A conversation over HTTP may be
        held in another platform's workspace, with its servers and under its rules: then its workspace is `slack:T1`.
        """
        if self.platform == HTTP and ":" in self.workspace:
            return self.workspace
        return ":".join(str(self).split(":", 2)[:2])

    @classmethod
    def parse(cls, text: str) -> ConversationKey:
        """Read the text form back. Raises ValueError for anything else."""
        parts = [unquote(part) for part in text.split(":")]
        if len(parts) != 4:
            raise ValueError(f"not a conversation key: {text!r}")
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class Author:
    """A person on a platform. `id` is the platform's; the name is for show and decides nothing."""

    platform: str
    id: str
    name: str

    @property
    def principal(self) -> str:
        """The person as settings name them: `slack:U123`, `console:ana`."""
        return f"{self.platform}:{self.id}"


@dataclass(frozen=True, slots=True)
class Member:
    """A user in a workspace as the platform reports it, recent enough to authorize by."""

    author: Author
    roles: frozenset[str] = frozenset()
    """Groups and roles as settings name them: `slack-group:S1`, `discord-role:7`."""
    platform_admin: bool = False
    guest: bool = False
    external: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message; its bytes are fetched by the surface it came from. `size` is in bytes."""

    id: str
    name: str
    mime_type: str
    size: int


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """Something a person said to the bot.

    `keys` are the platform's names for this very message: if any of them was seen before, this is a redelivery.
    `context` is what others said in the same place before, oldest first, for the model to read. `call` is a tool call
    to be run by hand instead of asking the model; `again` says that it was made before and nobody knows its outcome.
    """

    keys: tuple[str, ...]
    conversation: ConversationKey
    author: Author
    text: str
    attachments: tuple[Attachment, ...] = ()
    context: tuple[str, ...] = ()
    call: ToolCall | None = None
    again: bool = False


@lru_cache(maxsize=4096)
def _text(key: ConversationKey) -> str:
    return ":".join(quote(part, safe="") for part in (key.platform, key.workspace, key.channel, key.thread))
