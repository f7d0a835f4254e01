"""Two servers of one fallback group: a call approved for the first never runs on the second, on every platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.domain.messages import ToolResult
from tests.fakes.mcp.endpoint import FakeEndpoint, Message, Reaction, result
from tests.fakes.parts import ask_for, call, say
from tests.mcp.toolboxes import FAST, remote, running_toolbox
from tests.stories.team import Team

TOOL = "pay__send"


@asynccontextmanager
async def endpoint(name: str) -> AsyncIterator[FakeEndpoint]:
    """A server with one tool, which returns the name of the server."""

    def answer(message: Message) -> Reaction:
        return result(message, {"content": [{"type": "text", "text": f"sent by {name}"}]})

    async with FakeEndpoint() as server:
        server.speak_modern("send")
        server.on["tools/call"] = answer
        yield server


def calls(server: FakeEndpoint) -> int:
    return server.methods().count("tools/call")


async def test_an_approved_call_is_not_sent_to_the_server_that_stands_in_which_asks_anew(team: Team) -> None:
    async with endpoint("main") as main, endpoint("spare") as spare:
        first = remote("main", main.url, fallback_group="pay", fallback_order=1, connect_timeout=2.0)
        second = remote("spare", spare.url, fallback_group="pay", fallback_order=2, connect_timeout=2.0)
        async with running_toolbox(first, second, pacing=FAST) as servers:
            team.servers = servers
            async with team.at_work():
                team.model.script = [ask_for(call(TOOL)), ask_for(call(TOOL)), say("Done.")]
                talk = team.ask("pay, please")
                card = await team.card(talk)
                assert "main" in team.words(card)
                await main.stop()
                await team.press(team.sam, card, "Approve: Send")
                await team.until(lambda: any("spare" in team.words(message) for message in team.messages(talk)))
                again = await team.offers(talk, "Approve: Send")
                assert (calls(main), calls(spare)) == (0, 0), "nothing was sent without an approval for it"
                await team.press(team.sam, again, "Approve: Send")
                await team.reads(talk, "Done.")
    parts = [part for message in team.model.requests[-1].messages for part in message.parts]
    refused, sent = [part.text for part in parts if isinstance(part, ToolResult)]
    assert refused.startswith("Not run:")
    assert "spare" in refused
    assert sent == "sent by spare"
    assert (calls(main), calls(spare)) == (0, 1)
