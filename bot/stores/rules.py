"""What is kept of what may be done: policies, grants and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import Grant
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.turns import ToolStep


class PolicyStore(Protocol):
    """Rules that admins have set, beside those of the operator's file."""

    async def rules(self) -> Sequence[Rule]:
        """All of them, of all workspaces."""

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        """Keep a rule, in the place of the one of its workspace that is about the same calls; as it is kept, with its
        id. Raises NotFound if its server is gone.
        """

    async def clear_rule(self, rule_id: str, by: Author) -> bool:
        """Take a rule away. False if there was none."""

    async def past(self, named: str, reach: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Calls that were asked for, with what was ruled of them then, in conversations whose key begins with `reach`:
        by the beginning of their approval's id, by their turn's id, or by that and their number (`TURN:N`).
        """


class GrantStore(Protocol):
    """What was allowed beforehand. Grants are given with a signature (`bot.ports.TurnLog.grant`)."""

    async def in_force(self, home: str) -> Sequence[Grant]:
        """The grants in force in a workspace (`platform:workspace`), the latest first."""

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """End a grant, for calls that are asked for from now on. False if it is not in force."""


class ProfileStore(Protocol):
    """Profiles and where they hold."""

    async def profiles(self) -> Sequence[Profile]:
        """All of them, by name."""

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Keep a new profile (version 0) or replace one of the same version. Raises Conflict, NotFound."""

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. False if there was none."""

    async def bindings(self) -> Sequence[Binding]:
        """Which profile holds where."""

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Let a profile hold in a place, instead of the one before. Raises NotFound."""

    async def unbind(self, place: str, by: Author) -> bool:
        """Let none hold there. False if none did."""
