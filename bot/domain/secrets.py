"""Secrets by their source, and one-time links to enter them.

The value itself is not part of anything that is shown, compared or logged. A link allows one user to enter one secret
of one server on a page of the bot. Its token is not part of these values: anyone who has it may use the link.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from bot.domain.conversations import Author, ConversationKey
from bot.i18n import gettext_lazy

LINK_SECONDS = 600.0
"""Lifetime of a link, in seconds: long enough to fetch a key from another page."""

TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
"""Token of a link: 256 random bits in URL-safe base64."""


@dataclass(frozen=True, slots=True)
class SecretLink:
    """Purpose and expiry of a link (epoch seconds, by the database's clock). `person` requested it in `conversation`:
    values are stored in that user's name, if still authorized.
    """

    server_id: str
    slot: str
    person: Author
    conversation: ConversationKey
    expires_at: float = 0.0


class SecretSource(StrEnum):
    """Storage of a secret."""

    STORED = "stored"
    ENVIRONMENT = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Reference to a secret: `env:NAME`, `file:PATH` or `stored`. The text form is for people and never holds the
    secret. `vouched` is True if the operator has given the reference, for the server's place at that time. Every other
    use needs a grant.
    """

    source: SecretSource
    place: str = ""
    vouched: bool = False

    def same_place(self, other: SecretReference) -> bool:
        """Return True if both name the same secret."""
        return (self.source, self.place) == (other.source, other.place)

    def __str__(self) -> str:
        return f"{self.source}:{self.place}" if self.place else self.source.value

    @classmethod
    def parse(cls, text: str) -> SecretReference:
        """Parse `env:NAME` or `file:PATH`. Raises ValueError without the text, because it may be a secret."""
        source, _, place = text.partition(":")
        match source:
            case "env" if _VARIABLE.fullmatch(place):
                return cls(SecretSource.ENVIRONMENT, place)
            case "file" if place.startswith("/") and place.isprintable():
                return cls(SecretSource.FILE, place)
        raise ValueError(gettext_lazy("a reference is env:NAME or file:/absolute/path"))


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """Characters `start` to `end` (exclusive) of a text that are a known secret. `label` names the secret for people:
    `header Authorization`.
    """

    start: int
    end: int
    label: str


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
