"""One-time links. Each allows one user to enter one secret of one server on a page of the bot.

The token in the link is not part of these values: anyone who has it may use the link.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.domain.conversations import Author, ConversationKey

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
