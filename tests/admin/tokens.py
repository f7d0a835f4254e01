"""Fake `bot.ports.TokenStore`, in memory."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author


@dataclass
class MemoryTokens:
    entries: dict[str, ApiToken] = field(default_factory=dict)
    """Records by their token."""

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        token = f"cs_{secrets.token_urlsafe(32)}"
        self.entries[token] = ApiToken(name, name, role, workspace, by.principal)
        return self.entries[token], token

    async def tokens(self) -> Sequence[ApiToken]:
        return list(self.entries.values())

    async def find_by_secret(self, token: str) -> ApiToken | None:
        return self.entries.get(token)

    async def revoke(self, name: str, by: Author) -> bool:
        found = [token for token, each in self.entries.items() if each.name == name]
        self.entries = {token: each for token, each in self.entries.items() if token not in found}
        return bool(found)

    async def for_whom(self, name: str, role: ApiRole, workspace: str) -> str:
        """Return the token of this name, role and workspace. Create it if it is missing."""
        for token, each in self.entries.items():
            if (each.name, each.role, each.workspace) == (name, role, workspace):
                return token
        return (await self.create(name, role, workspace, None, Author("test", "op", "Op")))[1]
