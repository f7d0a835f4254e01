"""The store of the tokens of API clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author


class TokenStore(Protocol):
    """Tokens of the HTTP API. Made and revoked by the operator."""

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Make a token, good for `lifetime` seconds; what is known of it, and the token itself, which nobody can find
        out again. Raises Conflict if the name is taken by one that is still good.
        """

    async def tokens(self) -> Sequence[ApiToken]:
        """All of them, by name, those that are good for nothing any more included."""

    async def find_by_secret(self, token: str) -> ApiToken | None:
        """The token that this is, if it is good for something now."""

    async def revoke(self, name: str, by: Author) -> bool:
        """Let it be good for nothing from now on. False if there is no such token, or it is revoked."""
