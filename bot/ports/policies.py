"""The stores of rules and of grants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import Grant
from bot.domain.policies import Rule
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

    async def stored_results(self, named: str, reach: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Calls that were asked for, with what was ruled of them then, in conversations whose key begins with `reach`:
        by the beginning of their approval's id, by their turn's id, or by that and their number (`TURN:N`).
        """


class GrantStore(Protocol):
    """Store of grants. Grants are given with an approval (`bot.ports.TurnLog.grant`)."""

    async def active_grants(self, home: str) -> Sequence[Grant]:
        """The grants in force in a workspace (`platform:workspace`), the latest first."""

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """End a grant, for calls that are asked for from now on. False if it is not in force."""
