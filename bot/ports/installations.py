"""Installations of the bot's app in workspaces, with their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bot.domain.conversations import Author
from bot.domain.installations import Installation


class InstallationStore(Protocol):
    """Installations by platform and workspace, stored encrypted. A removed one stays without its tokens, so that
    operators see what happened to it. All methods raise DatabaseError; those that encrypt or decrypt also raise
    SecretUnavailable.
    """

    async def versions(self, platform: str) -> Mapping[str, int]:
        """Return the version of every installation, removed ones included, by workspace."""

    async def find(self, platform: str, workspace: str) -> Installation | None:
        """Return an installation, also a removed one; None if it is missing or unreadable by this release."""

    async def save(self, installation: Installation, by: Author) -> Installation:
        """Store an installation in place of any earlier one of the workspace. Audited."""

    async def renew(self, installation: Installation) -> Installation | None:
        """Store renewed tokens under the next version. Return None if the stored version is another, or the app was
        removed.
        """

    async def remove(self, installation: Installation) -> bool:
        """Delete the tokens of an installation whose app the platform reports as removed. Return False if the stored
        version is another: the app was installed again, or removed already. Audited.
        """

    async def use_state(self, state: str, seconds: float) -> bool:
        """Use up the state of an installation in a browser, which is remembered for `seconds`. Return False if it was
        used before.
        """
