"""One-time links: by each one person enters one secret of one server, on a page of the bot's own.

What is in the link itself is no part of these values: whoever has it may use it.
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
