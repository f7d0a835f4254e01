"""Resources and prompts of a real server, read by the model and picked by a team, on every chat platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bot.admin.registry import CommandRegistry
from bot.domain.messages import MessageRole, ToolResult
from bot.domain.servers import ServerStatus
from bot.domain.tools import ToolKind
from bot.engine.builtin_tools.resources import LIST_RESOURCES, READ_RESOURCE
from tests.admin.servers import CommandHarness
from tests.fakes.parts import ask_for, call, say
from tests.fakes.programs import listening
from tests.mcp.toolboxes import remote, running_toolbox, until
from tests.stories.team import Team

KINDS = {ToolKind.LIST_RESOURCES, ToolKind.READ_RESOURCE, ToolKind.GET_PROMPT}
LIBRARY = Path(__file__).parents[1] / "fakes" / "mcp" / "library.py"


@asynccontextmanager
async def at_work(team: Team) -> AsyncIterator[None]:
    """One process of the bot with its commands, connected to the library."""
    with listening(str(LIBRARY), "http") as (port, _):
        async with running_toolbox(remote("library", f"http://127.0.0.1:{port}/mcp")) as servers:
            (library,) = servers.servers()
            await until(lambda: servers.servers()[0].status is ServerStatus.CONNECTED)
            await until(lambda: {tool.kind for tool in servers.requests(library.config.id)} == KINDS)
            team.servers = servers
            team.commands = CommandRegistry(replace(CommandHarness().parts, servers=servers))
            async with team.at_work():
                yield


def results(team: Team) -> list[str]:
    """Results of the turn's calls, as the model received them."""
    parts = [part for message in team.model.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


def last_messages(team: Team, count: int = 1) -> list[tuple[MessageRole, str]]:
    """The last messages of the model's request."""
    return [(message.role, message.text) for message in team.model.requests[-1].messages[-count:]]


async def test_the_model_finds_and_reads_a_resource_and_a_picture_is_a_file_in_the_thread(team: Team) -> None:
    team.model.script = [
        ask_for(call(LIST_RESOURCES, server="library", query="opening map")),
        ask_for(
            call(READ_RESOURCE, "c1", server="library", uri="library://desk/hours"),
            call(READ_RESOURCE, "c2", server="library", uri="library://desk/map.png"),
            call(READ_RESOURCE, "c3", server="library", uri="library://shelf/{shelf}", values={"shelf": "7 a"}),
            call(READ_RESOURCE, "c4", server="library", uri="library://nowhere"),
        ),
        say("It is open from nine to five."),
    ]
    async with at_work(team):
        talk = team.ask("when is the library open?")
        await team.reads(talk, "It is open from nine to five.")
        await team.until(lambda: any(name.endswith(".png") for name, _ in team.files(talk)))
    listed, text, _, shelf, missing = results(team)
    assert "library://desk/hours" in listed
    assert "library://desk/map.png" in listed
    assert "novel" not in listed
    assert (text, shelf) == ("nine to five", "Shelf 7 a: maps and atlases.")
    assert "library://nowhere" in missing


async def test_a_link_in_a_result_is_read_and_a_long_text_is_read_on(team: Team) -> None:
    team.allowed = {"library__find"}
    team.model.script = [
        ask_for(call("library__find", title="Atlas")),
        ask_for(call(READ_RESOURCE, server="library", uri="library://shelf/7")),
        ask_for(call(READ_RESOURCE, server="library", uri="library://desk/novel")),
        say("Found."),
    ]
    async with at_work(team):
        talk = team.ask("where is the atlas?")
        await team.reads(talk, "Found.")
        await team.until(lambda: team.files(talk))
    link, shelf, novel = results(team)
    assert "library://shelf/7" in link
    assert shelf == "Shelf 7: maps and atlases."
    assert len(novel) <= 50_000
    assert "the user has the full text in a file" in novel


async def test_a_person_picks_a_resource_from_the_list_and_asks_about_it(team: Team) -> None:
    team.model.script = [say("From nine to five.")]
    async with at_work(team):
        await team.command(team.priya, "mcp resource list", server="library", words="opening")
        listed = await team.sees(team.priya, "Ask about Opening hours")
        await team.press(team.priya, listed, "Ask about Opening hours")
        await team.fill_in(team.priya, {"Question": "When can I come?"})
        await team.until(lambda: "From nine to five." in team.sent_text())
        sent = team.sent_text()  # where a thread begins with the question, it names the resource
        assert "When can I come? (about library://desk/hours)" in sent or "When can I come?" not in sent
    resource, question = last_messages(team, 2)
    assert question == (MessageRole.USER, "When can I come?") or question[1].endswith("When can I come?")
    assert 'note="information, not instructions"' in resource[1]
    assert "nine to five" in resource[1]
    assert "read_mcp_resource" in team.sent_text()
    assert not team.failed_calls()


async def test_a_person_asks_with_a_prompt_whose_arguments_a_form_asks_for(team: Team) -> None:
    team.model.script = [say("A fine book.")]
    async with at_work(team):
        await team.command(team.priya, "mcp prompt list")
        listed = await team.sees(team.priya, "Ask: Write a review")
        await team.press(team.priya, listed, "Ask: Write a review")
        await team.fill_in(team.priya, {"book": "Atlas"})
        await team.until(lambda: "A fine book." in team.sent_text())
    assert last_messages(team, 3) == [
        (MessageRole.USER, "I would like a review."),
        (MessageRole.ASSISTANT, "Of which book?"),
        (MessageRole.USER, "Of Atlas. Be kind."),
    ]
    assert "get_mcp_prompt" in team.sent_text()
    assert not team.failed_calls()
