"""Keeping apart what one server says and what another can send away.

What a tool returns may hold instructions of strangers. Once a turn has read such words, a call that could carry what
the turn knows to another place is signed by a person, even where a rule lets it run: reading secrets, reading strangers
and writing to the outside are harmless two by two and dangerous together. A server that an operator trusts and that
says its tools stay in a closed world (`openWorldHint` false) neither brings strangers' words in nor lets anything out.
Calls of one server alone are not affected: what it says it knew before. What another has said it did not, be that one
closed or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import Judgement
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import ToolStep
from bot.engine.outcomes import ANSWERED
from bot.engine.tool_search_steps import is_searching

WHY = "It would run on words of {}, which may be a stranger's, and could send them and more away: so a person signs."


@dataclass(frozen=True, slots=True)
class Taint:
    """The servers whose words a turn has read, names by ids: those that may be strangers' (`servers`), and those of
    servers in a closed world (`closed`), which nobody else has to know.
    """

    servers: tuple[tuple[str, str], ...] = ()
    closed: tuple[tuple[str, str], ...] = ()

    def ruled(self, tool: Tool, found: Judgement) -> Judgement:
        """What holds for a call of this tool after all."""
        elsewhere = any(server_id != tool.server_id for server_id, _ in (*self.servers, *self.closed))
        open_and_runs = is_open(tool) and found.ruling.policy is ApprovalPolicy.ALWAYS_ALLOW
        if not (self.servers and elsewhere and open_and_runs):
            return found
        others = [name for server_id, name in self.servers if server_id != tool.server_id] or [tool.server]
        why = " ".join(filter(None, (found.ruling.why, WHY.format(" and ".join(others)))))
        return replace(found, ruling=replace(found.ruling, policy=ApprovalPolicy.ASK_USER, why=why))


UNTAINTED = Taint()


def taint_of(steps: Iterable[ToolStep], offered: ToolSet) -> Taint:
    """Whose words the calls of a turn have brought in so far. A tool that is gone, or is another one by now, may have
    brought in anything.
    """
    servers: dict[str, str] = {}
    closed: dict[str, str] = {}
    for step in steps:
        if step.tool is None or step.status not in ANSWERED or step.result is None or is_searching(step):
            continue
        tool = offered.find(step.call.name)
        known = tool is not None and tool.server_id == step.tool.server_id and step.tool.is_still(tool)
        brought = servers if tool is None or not known or is_open(tool) else closed
        brought.setdefault(step.tool.server_id, step.tool.server)
    return Taint(tuple(servers.items()), tuple(closed.items()))


def is_open(tool: Tool) -> bool:
    """Whether a tool deals with the world outside, as everything does that is not known to be otherwise."""
    return not (tool.trusted and tool.annotations.open_world is False)
