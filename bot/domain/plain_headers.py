"""Headers of a server that are not secret, such as `X-Team: red`: stored readable, and shown."""

from __future__ import annotations

from bot.domain.secret_detection import is_secret_name, looks_like_secret
from bot.domain.secret_strength import weakness

_LONGEST = 200
_CREDENTIAL_NAMES = ("token", "secret", "key", "pass", "auth", "cred", "cookie", "session", "signature")
"""Parts of header names whose values always count as secret."""
_ELSEWHERE = ("env:", "file:", "***")
"""Prefixes of values that refer to a secret stored elsewhere."""


def is_plain_header(name: str, value: str) -> bool:
    """Return True if a header is not secret: its name is not that of a credential, and its value is too easy to guess
    for a stored secret.
    """
    if is_secret_name(name) or any(part in name.lower() for part in _CREDENTIAL_NAMES):
        return False
    sendable = bool(value) and len(value) <= _LONGEST and value.isascii() and value.isprintable()
    return sendable and not value.startswith(_ELSEWHERE) and not looks_like_secret(value) and bool(weakness(value))
