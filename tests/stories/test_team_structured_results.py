"""JSON results are tables for a team and JSON for the model, which gets the instructions of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bot.admin.registry import CommandRegistry
from bot.domain.messages import ToolResult, enclose
from bot.domain.servers import ServerConfig, ServerStatus, StdioTransport
from tests.admin.servers import CommandHarness
from tests.fakes.parts import ask_for, call, say
from tests.fakes.programs import python
from tests.mcp.toolboxes import FAKES, running_toolbox, until
from tests.stories.team import Team

INSTRUCTIONS = "Ask for the list first. @everyone"


@asynccontextmanager
async def at_work(team: Team, folder: Path) -> AsyncIterator[None]:
    """One process of the bot with its commands, connected to the warehouse."""
    file = folder / "instructions.txt"
    file.write_text(INSTRUCTIONS, encoding="utf-8")
    transport = StdioTransport(python(), (str(FAKES / "warehouse.py"),), {"INSTRUCTIONS_FILE": str(file)})
    async with running_toolbox(ServerConfig("w", transport, trusted=True, use_instructions=True)) as servers:
        await until(lambda: servers.servers()[0].status is ServerStatus.CONNECTED)
        team.servers = servers
        team.commands = CommandRegistry(replace(CommandHarness().parts, servers=servers))
        async with team.at_work():
            yield


async def test_a_list_is_counted_on_its_line_and_whole_for_the_model(team: Team, tmp_path: Path) -> None:
    team.allowed = {"w__list_items", "w__show_item"}
    team.model.script = [
        ask_for(call("w__list_items", "c1"), call("w__show_item", "c2", sku="C-3")),
        say("There are three."),
    ]
    async with at_work(team, tmp_path):
        talk = team.ask("what is in stock?")
        await team.reads(talk, "There are three.")
    drawn = team.visible_text(talk)
    assert "3 items: sku, name, stock, price" in drawn
    assert "sku C-3" in drawn
    assert '"sku"' not in drawn
    assert team.notifying_mentions() == set()
    first, second = team.model.requests[0], team.model.requests[-1]
    system, about = first.messages[:2]
    assert INSTRUCTIONS not in system.text
    assert about.text == f"What the server w says about its use:\n{enclose('w', INSTRUCTIONS)}"
    listed, shown = [part for message in second.messages for part in message.parts if isinstance(part, ToolResult)]
    items = [json.loads(part.text) for part in listed.parts]  # type: ignore[union-attr]
    assert [item["sku"] for item in items] == ["A-1", "B-22", "C-3"], "once, and not as structured content once more"
    assert json.loads(shown.text)["price"] == 39
