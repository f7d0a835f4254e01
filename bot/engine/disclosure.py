"""Whether what a tool has told one person may be told to another.

Called by `turn`, for `reading_on` and for what is told of earlier turns (`recollection`). A conversation's people may
know what was said there. But a model that asks for somebody whom a rule denies a tool is not given that tool's results
either, be it by a page of one or by a page of that page: else reading on would be a way around the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule, is_for_server, is_for_tool
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.engine.judging import judge
from bot.engine.matching import Case
from bot.engine.outcomes import Address
from bot.engine.reading_on import addressed, is_reading
from bot.engine.rules import Rules
from bot.engine.tool_search_steps import is_searching
from bot.ports import TurnLog

GONE = "What this is a page of is gone."
_RUN = frozenset({StepStatus.DONE, StepStatus.FAILED})
_DENIED = "A policy forbids {} to whoever asks now, so its results are not read to them either."


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What may be told to `author`, who is `member` there, in the place that `here` is about, by these `rules`;
    `offered` are the tools there are.
    """

    here: Rules
    rules: tuple[Rule, ...]
    offered: ToolSet
    author: Author
    member: Member | None
    log: TurnLog

    def with_everybody(self) -> Disclosure:
        """The same of what anybody there may be told later: what is denied to some is denied."""
        strictest = (replace(rule, askers=frozenset()) if _denies(rule) else rule for rule in self.rules)
        return replace(self, rules=tuple(rule for rule in strictest if not rule.askers))

    @property
    def holds_nothing_back(self) -> bool:
        """Whether nothing is denied to anybody, as far as that is quickly seen."""
        return not self._denies_the_rest and not any(map(_denies, self.rules))

    async def objection(self, seq: int, step: ToolStep) -> str:
        """Why the result of a call in the conversation's turn `seq` is not told; empty if it may be."""
        if self.holds_nothing_back:
            return ""
        at: Address = (seq, step.n)
        while is_reading(step.call) and step.status is StepStatus.DONE:
            of = addressed(step.call)
            read = None if of is None or of >= at else await self.log.call_at(self.here.place, *of)
            if of is None or read is None:
                return GONE
            at, step = of, read
        return _DENIED.format(step.call.name) if self._is_denied(step) else ""

    def _is_denied(self, step: ToolStep) -> bool:
        if step.tool is None or step.status not in _RUN or is_reading(step.call) or is_searching(step):
            return False  # what stands there are the bot's own words
        tool = self._tool(step, step.tool)
        # A conversation may have thousands of results: only rules that may count are looked at closely.
        rules = [rule for rule in self.rules if self._may_count(rule, tool)]
        if not rules and not self._denies_the_rest:
            return False
        case = Case(tool, self.here.place, step.call.arguments, self.author, self.member, self.here.profile)
        found = judge(rules, case, self.here.file.default, self.here.reviewed)
        return found.ruling.policy is ApprovalPolicy.ALWAYS_DENY

    def _may_count(self, rule: Rule, tool: Tool) -> bool:
        """A rule that denies wins over every other: where the default does not deny, the others change nothing."""
        denies = _denies(rule) or self._denies_the_rest
        return denies and is_for_server(rule, tool) and is_for_tool(rule, tool)

    @property
    def _denies_the_rest(self) -> bool:
        return self.here.file.default is ApprovalPolicy.ALWAYS_DENY

    def _tool(self, step: ToolStep, called: ToolRef) -> Tool:
        """The tool as it is now. Of one that is gone nothing is believed but its name and whose it was."""
        now = self.offered.find(step.call.name)
        if now is not None and (now.server_id, now.original_name) == (called.server_id, called.name):
            return now
        return Tool(step.call.name, called.server, called.name, called.title, server_id=called.server_id)


def _denies(rule: Rule) -> bool:
    return rule.policy is ApprovalPolicy.ALWAYS_DENY
