"""Short constructors of rules, and the policy that results from them."""

from __future__ import annotations

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import ANY, Rule
from bot.domain.tools import Tool
from bot.engine.policy.rules import Policies, RuleBook
from tests.fakes.parts import HALL


def plain(server_id: str, tool: str, policy: ApprovalPolicy, **more: object) -> Rule:
    """Return an admin's rule for a tool, or for a whole server if `tool` is empty."""
    return Rule(policy, server_id=server_id, tool=tool or ANY, **more)  # type: ignore[arg-type]


def policy_of(file: Policies, server: str, tool: str) -> ApprovalPolicy:
    """Return the policy of a tool by the operator's file alone."""
    return RuleBook(file).rules(HALL).policy_of(Tool(f"{server}__{tool}", server, tool, server_id=f"file:{server}"))
