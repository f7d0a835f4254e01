"""Whether what a tool has told one person may be told to another.

Called by `turn_runner`, for `read_result` and for what is told of earlier turns (`history_prompt`). A conversation's
people may know what was said there. But a model that asks for somebody whom a rule denies a tool is not given that
tool's results either, be it by a page of one or by a page of that page: else reading on would be a way around the rule.
The same goes for tools that the profile which holds there does not enable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule, is_for_server, is_for_tool
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.engine.builtin_tools.read_result import addressed, is_read_result_call
from bot.engine.builtin_tools.search_steps import is_searching
from bot.engine.policy_evaluation import evaluate
from bot.engine.result_format import ANSWERED, Address
from bot.engine.rule_matching import PolicyRequest
from bot.engine.rules import Rules
from bot.ports import TurnLog

GONE = "What this is a page of is gone."
_DENIED = "A policy forbids {} to whoever asks now, so no more of its results is told to them."
_NOT_ENABLED = "{} is not enabled in this conversation's profile, so no more of its results is told here."


@dataclass(frozen=True, slots=True)
class ResultVisibility:
    """What may be told to `author`, who is `member` there, in the place that `here` is about, by these `rules`;
    `offered` are the tools there are.
    """

    here: Rules
    rules: tuple[Rule, ...]
    offered: ToolSet
    author: Author
    member: Member | None
    log: TurnLog

    def with_everybody(self) -> ResultVisibility:
        """The same of what anybody there may be told later: what a rule denies to some, or in another profile, is
        denied.
        """
        strictest = (replace(rule, askers=frozenset(), profile="") if _denies(rule) else rule for rule in self.rules)
        return replace(self, rules=tuple(rule for rule in strictest if not (rule.askers or rule.profile)))

    @property
    def holds_nothing_back(self) -> bool:
        """Whether nothing is denied to anybody, as far as that is quickly seen."""
        denies = self._denies_the_rest or any(map(_denies, self.rules))
        return self.here.profile.enables_everything and not denies

    async def rejection_reason(self, seq: int, step: ToolStep) -> str:
        """Why the result of a call in the conversation's turn `seq` is not told; empty if it may be."""
        if self.holds_nothing_back:
            return ""
        at: Address = (seq, step.n)
        while is_read_result_call(step.call) and step.status is StepStatus.DONE:
            of = addressed(step.call)
            read = None if of is None or of >= at else await self.log.get_call(self.here.place, *of)
            if of is None or read is None:
                return GONE
            at, step = of, read
        if step.tool is None or not _was_answered(step):
            return ""
        tool = self._tool(step, step.tool)
        if not self.here.profile.enables(tool):
            return _NOT_ENABLED.format(step.call.name)
        return _DENIED.format(step.call.name) if self._is_denied(step, tool) else ""

    def _is_denied(self, step: ToolStep, tool: Tool) -> bool:
        # A conversation may have thousands of results: only rules that may count are looked at closely.
        rules = [rule for rule in self.rules if self._may_count(rule, tool)]
        if not rules and not self._denies_the_rest:
            return False
        case = PolicyRequest(tool, self.here.place, step.call.arguments, self.author, self.member, self.here.profile)
        found = evaluate(rules, case, self.here.file.default, self.here.reviewed)
        return found.ruling.policy is ApprovalPolicy.ALWAYS_DENY

    def _may_count(self, rule: Rule, tool: Tool) -> bool:
        """A rule that denies wins over every other: where the default does not deny, the others change nothing."""
        denies = _denies(rule) or self._denies_the_rest
        return denies and is_for_server(rule, tool) and is_for_tool(rule, tool)

    @property
    def _denies_the_rest(self) -> bool:
        return self.here.file.default is ApprovalPolicy.ALWAYS_DENY

    def _tool(self, step: ToolStep, called: ToolRef) -> Tool:
        """The tool as it is now, whatever its server is called by now. Of one that is gone nothing is believed but its
        name and whose it was.
        """
        now = (tool for tool in self.offered.tools if _is_that(tool, called))
        gone = Tool(step.call.name, called.server, called.name, called.title, server_id=called.server_id)
        return next(now, gone)


def _was_answered(step: ToolStep) -> bool:
    """Whether a server has: of other calls the bot's own words are told."""
    own = is_read_result_call(step.call) or is_searching(step)
    return step.status in ANSWERED and step.result is not None and not own


def _is_that(tool: Tool, called: ToolRef) -> bool:
    """True if it is the tool that was called."""
    return (tool.server_id, tool.original_name) == (called.server_id, called.name)


def _denies(rule: Rule) -> bool:
    return rule.policy is ApprovalPolicy.ALWAYS_DENY
