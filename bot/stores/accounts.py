"""What is kept of those who use the bot: tokens of programs, and what was asked of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.callers import ApiToken, Role
from bot.domain.conversations import Author
from bot.domain.usage import Spent, SpentBy, UsageQuery


class TokenStore(Protocol):
    """Tokens of the HTTP API. Made and revoked by the operator."""

    async def create(
        self, name: str, role: Role, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Make a token, good for `lifetime` seconds; what is known of it, and the token itself, which nobody can find
        out again. Raises Conflict if the name is taken by one that is still good.
        """

    async def tokens(self) -> Sequence[ApiToken]:
        """All of them, by name, those that are good for nothing any more included."""

    async def found(self, token: str) -> ApiToken | None:
        """The token that this is, if it is good for something now."""

    async def revoke(self, name: str, by: Author) -> bool:
        """Let it be good for nothing from now on. False if there is no such token, or it is revoked."""


class UsageStore(Protocol):
    """What was asked of models. The rows are written with the replies they are about (`bot.ports.TurnLog`)."""

    async def sums(self, queries: Sequence[UsageQuery]) -> Sequence[Spent]:
        """What fits each query, added up."""

    async def by(self, query: UsageQuery, by: SpentBy) -> Sequence[tuple[str, Spent]]:
        """What fits, added up by name, the most expensive first; where nothing has a price, the most tokens."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than that; how many there were."""
