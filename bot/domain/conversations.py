"""Conversations, their participants and their messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote

from bot.domain.agents import AgentRef
from bot.domain.gateway import GatewayRequest
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.messages import ToolCall

HTTP = "api"
"""Platform of conversations over the HTTP API."""
CONSOLE = "console"
"""Platform of conversations in the operator's terminal: no platform to ask for rights, and no other users."""
OIDC = "oidc"
"""Platform of users who are known by the OpenID Connect issuer alone. Their conversations are over HTTP."""


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """Address of a conversation. Its text form, `platform:workspace:channel:thread`, identifies it in the database."""

    platform: str
    workspace: str
    channel: str
    thread: str

    def __str__(self) -> str:
        return _text(self)

    @property
    def workspace_key(self) -> str:
        """Workspace with its platform, `slack:T1`, as in servers and profiles. A conversation over HTTP may belong to
        another platform's workspace, with that workspace's servers and rules; its own `workspace` is then `slack:T1`.
        """
        if self.platform == HTTP and ":" in self.workspace:
            return self.workspace
        return ":".join(str(self).split(":", 2)[:2])

    @property
    def author_platform(self) -> str:
        """Platform of its users. A user of a chat may have conversations over HTTP, from the console: their channel is
        the user's principal, `slack:U1`; that of an API client is its name, which has no colon.
        """
        user_platform, colon, _user = self.channel.partition(":")
        return user_platform if colon and self.platform == HTTP else self.platform

    @classmethod
    def parse(cls, text: str) -> ConversationKey:
        """Parse the text form. Raises ValueError for any other text."""
        parts = [unquote(part) for part in text.split(":")]
        if len(parts) != 4:
            raise ValueError(f"not a conversation key: {text!r}")
        return cls(*parts)


def workspace_prefixes(workspace_key: str) -> tuple[str, str]:
    """Return the key prefixes of the conversations of a workspace, by its `workspace_key`: on its platform, and over
    HTTP.
    """
    platform, _colon, workspace = workspace_key.partition(":")
    return f"{platform}:{quote(workspace, safe='%')}:", f"{HTTP}:{quote(workspace_key, safe='')}:"


@dataclass(frozen=True, slots=True)
class Author:
    """User of a platform. `id` is the platform's. `name` is for display only."""

    platform: str
    id: str
    name: str

    @property
    def principal(self) -> str:
        """Identity of the user in settings: `slack:U123`, `console:ana`."""
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
    language: str | None = None
    """BCP 47 tag, as the platform says it; None if it says none."""
    since: float = 0.0
    """Epoch seconds. Another user had the id before."""
    time_zone: str | None = None
    """IANA name; None if the platform says none."""
    email: str = field(default="", repr=False)
    """E-mail address; empty if the platform says none."""

    @property
    def locale(self) -> Locale:
        """Language and time zone."""
        return Locale(self.language or "", self.time_zone or "")


@dataclass(frozen=True, slots=True)
class Attachment:
    """File attached to a message. Its platform fetches the bytes. `size` is in bytes."""

    id: str
    name: str
    mime_type: str
    size: int


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """Message of a user to the bot.

    `keys` are the platform's ids of this message: if any of them is known, this is a redelivery. `context` are earlier
    messages of others in the same place, oldest first, for the model. `call` is a tool call to run by hand instead of
    asking the model. `again` is True if that call was asked for before, `may_have_run` if its outcome is unknown.
    `message_id` is that of the user's message on its platform, if it is one. The results of `attached` calls go to
    the model with the text. `model` is one that the user chose, `provider:name`. `locale` is that of the
    conversation, for what everybody there reads; `author_locale` is the author's own. `agent` is one that the user
    has named; without it, the one of the conversation answers. `gateway` is the request of an agent for `call`.
    """

    keys: tuple[str, ...]
    conversation: ConversationKey
    author: Author
    text: str
    attachments: tuple[Attachment, ...] = ()
    context: tuple[str, ...] = ()
    call: ToolCall | None = None
    again: bool = False
    message_id: str = ""
    attached: tuple[ToolCall, ...] = ()
    model: str = ""
    locale: Locale = UNKNOWN
    author_locale: Locale = UNKNOWN
    agent: AgentRef | None = None
    may_have_run: bool = False
    gateway: GatewayRequest | None = None


@lru_cache(maxsize=4096)
def _text(key: ConversationKey) -> str:
    return ":".join(quote(part, safe="") for part in (key.platform, key.workspace, key.channel, key.thread))
