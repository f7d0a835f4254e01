"""Visibility of earlier tool results for another author.

All users of a conversation may know its messages. But if a rule denies a tool to an author, or the present profile does
not enable it, the model does not get the tool's results on their behalf, not even as a page of a page: otherwise
`read_result` would bypass the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule, is_for_server, is_for_tool
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.engine.builtin_tools.read_result import is_read_result_call, parse_address
from bot.engine.policy.evaluation import PolicyRequest, evaluate
from bot.engine.policy.rules import Rules
from bot.engine.prompt.text_format import ANSWERED, Address
from bot.i18n import gettext_lazy
from bot.ports import TurnHistory

GONE = gettext_lazy("The result of this page no longer exists.")
_DENIED = "A policy forbids {} to the present author, so its results are not shown."
_NOT_ENABLED = "{} is not enabled in this conversation's profile, so its results are not shown here."


@dataclass(frozen=True, slots=True)
class ResultVisibility:
    """Visibility of results for `author` (`member`) in the conversation of `here`. `rules` are the rules to check,
    `offered` the tools of the workspace.
    """

    here: Rules
    rules: tuple[Rule, ...]
    offered: ToolSet
    author: Author
    member: Member | None
    log: TurnHistory

    def with_everybody(self) -> ResultVisibility:
        """Return the visibility for all later authors: a tool denied to some counts as denied."""
        strictest = (replace(rule, askers=frozenset(), profile="") if _denies(rule) else rule for rule in self.rules)
        return replace(self, rules=tuple(rule for rule in strictest if not (rule.askers or rule.profile)))

    @property
    def shows_everything(self) -> bool:
        """True if a quick check finds nothing denied to anyone."""
        denies = self._denies_by_default or any(map(_denies, self.rules))
        return self.here.profile.enables_everything and not denies

    async def rejection_reason(self, seq: int, step: ToolStep) -> str:
        """Return the reason why the result of a call in turn `seq` is not visible; empty if it is."""
        if self.shows_everything:
            return ""
        address: Address = (seq, step.n)
        while is_read_result_call(step.call) and step.status is StepStatus.DONE:
            target = parse_address(step.call)
            is_earlier = target is not None and target < address
            target_step = await self.log.get_call(self.here.conversation, *target) if target and is_earlier else None
            if target is None or target_step is None:
                return GONE
            address, step = target, target_step
        if step.tool is None or not _is_server_result(step):
            return ""
        tool = self._tool(step, step.tool)
        if not self.here.profile.enables(tool):
            return _NOT_ENABLED.format(step.call.name)
        return _DENIED.format(step.call.name) if self._is_denied(step, tool) else ""

    def _is_denied(self, step: ToolStep, tool: Tool) -> bool:
        # Filtered first because a conversation may have thousands of results.
        rules = [rule for rule in self.rules if self._may_count(rule, tool)]
        if not rules and not self._denies_by_default:
            return False
        request = PolicyRequest(
            tool, self.here.conversation, step.call.arguments, self.author, self.member, self.here.profile
        )
        result = evaluate(rules, request, self.here.file.default, self.here.reviewed)
        return result.stored.policy is ApprovalPolicy.ALWAYS_DENY

    def _may_count(self, rule: Rule, tool: Tool) -> bool:
        """Return True if the rule can lead to a denial of the tool. Other rules change nothing: a denial wins."""
        denies = _denies(rule) or self._denies_by_default
        return denies and is_for_server(rule, tool) and is_for_tool(rule, tool)

    @property
    def _denies_by_default(self) -> bool:
        return self.here.file.default is ApprovalPolicy.ALWAYS_DENY

    def _tool(self, step: ToolStep, called: ToolRef) -> Tool:
        """Return the present tool, found by server id. A missing tool keeps only its name and server."""
        current = (tool for tool in self.offered.callable_tools if _is_same_tool(tool, called))
        missing = Tool(step.call.name, called.server, called.name, called.title, server_id=called.server_id)
        return next(current, missing)


def _is_server_result(step: ToolStep) -> bool:
    """Return True if the result is the server's, not the bot's own text."""
    is_own = step.tool is not None and step.tool.is_builtin
    return step.status in ANSWERED and step.result is not None and not is_own


def _is_same_tool(tool: Tool, called: ToolRef) -> bool:
    return (tool.server_id, tool.original_name) == (called.server_id, called.name)


def _denies(rule: Rule) -> bool:
    return rule.policy is ApprovalPolicy.ALWAYS_DENY
