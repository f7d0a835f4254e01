"""Elicitations: a server asks the user during a call to fill in a form or to visit a page (MCP specification
2026-07-28, client/elicitation).

Only the user of the call is asked, and only that user sees the answer or the address. The user may
decline. The bot never accepts by itself; it declines forbidden requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from bot.domain.hosts import is_host, is_this_machine
from bot.domain.secrets import asks_for_secret
from bot.i18n import _, gettext_lazy

MOST_ROUNDS = 10
"""Number of elicitation rounds of one call. The MCP library's own limit."""
EXPIRED_REASON = gettext_lazy("The question expired without an answer.")
"""Reason of an elicitation that was cancelled because its time was over."""


@dataclass(frozen=True, slots=True)
class FormMode:
    """Request for values that match a schema: a flat object of texts, numbers, switches and choices."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UrlMode:
    """Request to visit a page. The bot does not see the user's actions there."""

    url: str


ElicitationMode = FormMode | UrlMode


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """Elicitation request of a server. `key` is the server's own key, unique within one round. `message` is the
    server's text; it is never an instruction.
    """

    key: str
    message: str
    ask: ElicitationMode


class ElicitationAction(StrEnum):
    """Result of an elicitation, in the protocol's terms. `cancel`: the user made no choice."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class ElicitationResult:
    """Reply to the server. `content` holds the values of an accepted form."""

    action: ElicitationAction
    content: Mapping[str, Any] | None = None


CANCELLED = ElicitationResult(ElicitationAction.CANCEL)
DECLINED = ElicitationResult(ElicitationAction.DECLINE)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """Stored elicitation. `id` is random and identifies its card. `round` is the number of earlier rounds of the call.

    `expires_in` is in seconds from the posting of the card. `expires_at` is epoch seconds, None before that or if the
    elicitation never expires. `answered_by` is a user's name, empty without an answer by a user. `reason` explains a
    decline or withdrawal by the bot, a sentence for users.
    """

    id: str
    question: ElicitationRequest
    round: int = 0
    reply: ElicitationResult | None = None
    answered_by: str = ""
    reason: str = ""
    expires_in: float | None = None
    expires_at: float | None = None

    @property
    def open(self) -> bool:
        """True while the elicitation waits for an answer."""
        return self.reply is None


@dataclass(frozen=True, slots=True)
class ElicitationResults:
    """Data sent with a call that is repeated after an elicitation: the answers by key, and the server's opaque
    `requestState`.
    """

    by_key: Mapping[str, ElicitationResult]
    state: str | None = field(default=None, repr=False)


ElicitCallback = Callable[[ElicitationRequest], Awaitable[ElicitationResult]]
"""Ask the user during a call, and wait for the answer."""


async def cancel_without_user(_question: ElicitationRequest) -> ElicitationResult:
    """Return CANCELLED, because no user can be asked."""
    return CANCELLED


def rejection_reason(question: ElicitationRequest) -> str:
    """Return the reason for declining an elicitation without asking the user, a sentence; empty if it is permitted. A
    form must not ask for secrets, because text typed into a chat stays there (client/elicitation: servers MUST NOT).
    """
    match question.ask:
        case FormMode(schema):
            if name := _secret_field(schema):
                return _("It asks for a secret ({name}). Never type one into a chat.", name=name)
        case UrlMode(url):
            if not _may_be_visited(url):
                return _("It wants a page visited whose address is not https, or is not written as addresses are.")
    return ""


def mentions_secret(question: ElicitationRequest) -> bool:
    """Return True if the text of a permitted form mentions a secret: in the message, a field or a choice. Such a form
    only gets a warning, because words in sentences prove nothing.
    """
    match question.ask:
        case FormMode(schema):
            texts = [question.message, schema.get("title"), schema.get("description")]
            texts += (about.get("description") for _, about in _fields(schema))
            return any(asks_for_secret(text) for text in texts if isinstance(text, str))
        case UrlMode():
            return False


def _secret_field(schema: Mapping[str, Any]) -> str:
    for name, about in _fields(schema):
        title, format_ = about.get("title"), about.get("format")
        password = isinstance(format_, str) and format_.lower() == "password"
        if password or asks_for_secret(name) or (isinstance(title, str) and asks_for_secret(title)):
            return name
    return ""


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties = schema.get("properties")
    items = properties.items() if isinstance(properties, Mapping) else ()
    return [(str(name), about if isinstance(about, Mapping) else {}) for name, about in items]


def _may_be_visited(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        named = f"[{host}]" if ":" in host else host
        # Also as browsers parse it, because they may find another host (`a.example\\.b.example`).
        whole = parts.netloc.lower() == (named if parts.port is None else f"{named}:{parts.port}")
    except ValueError:
        return False
    if not url.isprintable() or " " in url or not whole or not is_host(host):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host))
