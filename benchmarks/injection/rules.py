"""The compared rules: the first one, which looked at servers within one turn, and the current one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author
from bot.domain.flows import UNSET, ToolSource
from bot.domain.messages import ToolCall
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import StepStatus
from bot.engine.policy.authorization import CallAuthorizer
from bot.engine.policy.information_flow import Taint, taint_sources
from bot.engine.policy.rules import Policies, Rules

_EVERYTHING_RUNS = Rules(Policies(ApprovalPolicy.ALWAYS_ALLOW))
_ASKER = Author("benchmark", "asker", "Asker")


class Conversation(Protocol):
    """State of a rule in one conversation."""

    def ask(self, prompt: str) -> None:
        """Begin a turn."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Make a call and read its result. Return the reason for an approval, empty if none is needed."""


@dataclass
class Before:
    """First rule: a call of an open tool needs an approval if the turn has read a tool of another server and any
    open tool. (Closed: a trusted server with `openWorldHint` false.) The next turn starts clean.
    """

    tools: Mapping[str, Tool]
    read: list[Tool] = field(default_factory=list)

    def ask(self, prompt: str) -> None:
        self.read.clear()

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        tool = self.tools[name]
        elsewhere = any(each.server_id != tool.server_id for each in self.read)
        asks = _is_open(tool) and elsewhere and any(map(_is_open, self.read))
        self.read.append(tool)
        return "An open tool of another server was read." if asks else ""


def _is_open(tool: Tool) -> bool:
    return not (tool.trusted and tool.annotations.open_world is False)


@dataclass
class Now:
    """Current rule, in a conversation where all calls are allowed."""

    tools: Mapping[str, Tool]
    sources: list[ToolSource] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def ask(self, prompt: str) -> None:
        self.asked.append(prompt)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        tool, offered = self.tools[name], ToolSet(tuple(self.tools.values()))
        taint = Taint(taint_sources(self.sources, offered, _ASKER.principal), tuple(self.asked), offered)
        step = CallAuthorizer(_EVERYTHING_RUNS, taint=taint).authorize(
            1, ToolCall("c", name, arguments), offered, _ASKER
        )
        self.sources.append(ToolSource(tool.server, tool.original_name, tool.server_id, tool.definition, tool.place))
        return taint.approval_reason(tool, arguments) if step.status is StepStatus.AWAITING else ""


def by_hints_alone(tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools without settings of the operator."""
    return [replace(tool, flow=UNSET) for tool in tools]
