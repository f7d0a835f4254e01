"""Sessions of users in a browser, on the pages of the console (ADR 65).

A session acts as its user in the conversation in which it began: a chat's, or that of an API client. `rights` is a
digest of the user's groups and rights at that time; with other ones the session ends. The secret of a session is not
part of its record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from bot.domain.conversations import Author, ConversationKey, Member

IDLE_SECONDS = 8 * 3600.0
"""Seconds without a request until a session ends, unless the operator sets others."""
SESSION_SECONDS = 7 * 86_400.0
"""Seconds until a session ends in any case, unless the operator sets others."""
CONSOLE_SLOT = "console"
"""Slot of a one-time link that begins a session; such a link is of no server."""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session. Times are epoch seconds; `used_at` is up to a minute old."""

    id: str
    author: Author
    conversation: ConversationKey
    rights: str
    created_at: float = 0.0
    used_at: float = 0.0
    expires_at: float = 0.0


def rights_digest(member: Member, salt: str = "") -> str:
    """Return a digest of all that the rights of a member depend on. `salt` stands for a secret
    or an issuer by which the member signed in.
    """
    rights = (sorted(member.roles), member.platform_admin, member.guest, member.external)
    facts = (*rights, member.since, member.email, salt)
    return hashlib.sha256(repr(facts).encode()).hexdigest()
