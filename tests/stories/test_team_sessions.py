"""Two conversations with a stateful server share no state, on every platform."""

from __future__ import annotations

from bot.domain.messages import ToolCall, ToolResult
from bot.domain.servers import ServerConfig, SessionScope, StdioTransport
from tests.fakes.parts import ask_for, call, say
from tests.fakes.programs import python
from tests.mcp.toolboxes import running_toolbox
from tests.stories.team import Team

REMEMBER, RECALL = "memory__remember", "memory__recall"


async def test_two_conversations_do_not_share_the_state_of_a_server(team: Team) -> None:
    transport = StdioTransport(python(), ("-m", "tests.fakes.mcp.stateful", "stdio"))
    team.allowed = {REMEMBER, RECALL}
    async with running_toolbox(ServerConfig("memory", transport, sessions=SessionScope.CONVERSATION)) as servers:
        team.servers = servers
        async with team.at_work():
            assert await _result(team, call(REMEMBER, text="the offer is 400"), "Noted.") == "kept"
            other = await _result(team, call(RECALL), "Nothing here.")
            assert "400" not in other
            assert len(servers.servers()[0].sessions) == 2
    assert team.failed_calls() == []


async def _result(team: Team, tool_call: ToolCall, answer: str) -> str:
    """Ask in a conversation of its own; the result that the model got."""
    team.model.script = [ask_for(tool_call), say(answer)]
    await team.reads(team.ask("the memory, please"), answer)
    parts = [part for message in team.model.requests[-1].messages for part in message.parts]
    [result] = [part.text for part in parts if isinstance(part, ToolResult)]
    return result
