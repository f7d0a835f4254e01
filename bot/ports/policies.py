"""The stores of rules and of grants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import Grant
from bot.domain.policies import Rule
from bot.domain.turns import ToolStep


class PolicyStore(Protocol):
    """Rules set by admins. The operator's file has further ones."""

    async def rules(self) -> Sequence[Rule]:
        """Return all rules of all workspaces."""

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        """Save a rule, replacing the rule of its workspace with the same conditions. Return the stored rule with its
        id. Raises NotFound if its server is gone.
        """

    async def clear_rule(self, rule_id: str, by: Author) -> bool:
        """Delete a rule. Return False if it does not exist."""

    async def stored_results(self, named: str, reach: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Return past calls with their policy results, in conversations with the key prefix `reach`. `named` is the
        beginning of an approval's id, a turn's id, or a turn's id and step number (`TURN:N`).
        """


class GrantStore(Protocol):
    """Store of grants. Grants are given with an approval (`bot.ports.TurnLog.grant`)."""

    async def active_grants(self, home: str) -> Sequence[Grant]:
        """Return the active grants of a workspace (`platform:workspace`), newest first."""

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """Revoke a grant for later calls. Return False if it is not active."""
