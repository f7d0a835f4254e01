"""The store of the tokens of API clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author


class TokenStore(Protocol):
    """Tokens of the HTTP API, created and revoked by the operator."""

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Create a token that is valid for `lifetime` seconds; None means without an end. Return its record and the
        token itself, which is not stored. Raises Conflict if a valid token has the same name.
        """

    async def tokens(self) -> Sequence[ApiToken]:
        """Return all tokens by name, with revoked and expired ones."""

    async def find_by_secret(self, token: str) -> ApiToken | None:
        """Return the record of a valid token, or None."""

    async def revoke(self, name: str, by: Author) -> bool:
        """Revoke a token. Return False if it is missing or already revoked."""
