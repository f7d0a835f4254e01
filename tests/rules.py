"""Rules as tests write them, and what they come to."""

from __future__ import annotations

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import ANY, Rule
from bot.domain.tools import Tool
from bot.engine.policy.rules import Policies, RuleBook
from tests.fakes.parts import HALL


def plain(server_id: str, tool: str, policy: ApprovalPolicy, **more: object) -> Rule:
    """An admin's rule for a tool, or for a whole server (no tool)."""
    return Rule(policy, server_id=server_id, tool=tool or ANY, **more)  # type: ignore[arg-type]


def policy_of(file: Policies, server: str, tool: str) -> ApprovalPolicy:
    """Result of the operator's file alone for a tool."""
    return RuleBook(file).rules(HALL).policy_of(Tool(f"{server}__{tool}", server, tool, server_id=f"file:{server}"))
