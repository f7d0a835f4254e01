"""Headers of a server that are no secret, such as `X-Team: red`: kept readable, and shown."""

from __future__ import annotations

from bot.domain.secret_detection import is_secret_name, looks_like_secret
from bot.domain.secret_strength import weakness

_LONGEST = 200
_CREDENTIAL_NAMES = ("token", "secret", "key", "pass", "auth", "cred", "cookie", "session", "signature")
"""Parts of the names of headers whose values are secrets, whatever they are."""
_ELSEWHERE = ("env:", "file:", "***")
"""Beginnings of values that stand for a secret that is kept elsewhere."""


def is_plain_header(name: str, value: str) -> bool:
    """Return True if a header holds no secret: its name is not that of a credential, and its value is one that could
    not be a stored secret because it is too easy to guess.
    """
    if is_secret_name(name) or any(part in name.lower() for part in _CREDENTIAL_NAMES):
        return False
    sendable = bool(value) and len(value) <= _LONGEST and value.isascii() and value.isprintable()
    return sendable and not value.startswith(_ELSEWHERE) and not looks_like_secret(value) and bool(weakness(value))
