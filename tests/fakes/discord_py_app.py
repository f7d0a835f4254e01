"""A small app of the real discord.py that the tests of the fake Discord talk to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import discord
import pytest
import yarl
from discord import app_commands, ui
from discord.gateway import DiscordWebSocket
from discord.http import Route

from tests.fakes.discord import FakeDiscord

Seen = discord.Interaction[discord.Client]


class AddModal(ui.Modal, title="Add"):
    """A name to type and a kind to choose."""

    def __init__(self) -> None:
        super().__init__(custom_id="add")
        self.name: ui.TextInput[Any] = ui.TextInput(custom_id="name", max_length=40)
        kinds = [discord.SelectOption(label=kind.title(), value=kind) for kind in ("stdio", "http")]
        self.kind: ui.Select[Any] = ui.Select(custom_id="kind", options=kinds)
        self.add_item(ui.Label(text="Name", component=self.name))
        self.add_item(ui.Label(text="Kind", component=self.kind))

    async def on_submit(self, interaction: Seen) -> None:
        said = f"added {self.name.value} over {self.kind.values[0]}"
        await interaction.response.send_message(said, ephemeral=True)


class Approve(ui.DynamicItem[ui.Button[Any]], template=r"cs:approve:(?P<card>\d+)"):
    """A button that works after a restart."""

    def __init__(self, card: str) -> None:
        button: ui.Button[Any] = ui.Button(label="Approve", custom_id=f"cs:approve:{card}")
        super().__init__(button)
        self.card = card

    @classmethod
    async def from_custom_id(cls, interaction: Seen, item: Any, match: Any) -> Approve:
        return cls(match["card"])

    async def callback(self, interaction: Seen) -> None:
        await interaction.response.edit_message(view=drawn(f"approved {self.card}"))


def drawn(text: str, *buttons: ui.Item[Any]) -> ui.LayoutView:
    """A card of display components."""
    view = ui.LayoutView(timeout=None)
    container: ui.Container[Any] = ui.Container(ui.TextDisplay(text))
    if buttons:
        container.add_item(ui.ActionRow(*buttons))
    view.add_item(container)
    return view


class App(discord.Client):
    """An app that notes what it gets in `heard`."""

    def __init__(self, **more: Any) -> None:
        intents = discord.Intents.default()
        intents.message_content = more.pop("message_content", True)
        more |= {"guild_ready_timeout": 0.05, "allowed_mentions": discord.AllowedMentions.none()}
        super().__init__(intents=intents, **more)
        self.heard: list[str] = []
        self.said: list[discord.Message] = []
        self.tree = app_commands.CommandTree(self)

    async def setup_hook(self) -> None:
        self.add_dynamic_items(Approve)
        mcp = app_commands.Group(name="mcp", description="Servers")

        @mcp.command(name="show", description="Show one")
        async def show(interaction: Seen, server: str) -> None:
            await interaction.response.defer(thinking=True, ephemeral=True)
            await interaction.edit_original_response(view=drawn(f"this is {server}"))

        @show.autocomplete("server")
        async def complete(interaction: Seen, typed: str) -> list[app_commands.Choice[str]]:
            return [app_commands.Choice(name=name, value=name) for name in ("github", "files") if typed in name]

        @mcp.command(name="add", description="Add one")
        async def add(interaction: Seen) -> None:
            await interaction.response.send_modal(AddModal())

        @self.tree.context_menu(name="Ask about this")
        async def ask(interaction: Seen, message: discord.Message) -> None:
            await interaction.response.send_message(f"about {message.content}", ephemeral=True)

        self.tree.add_command(mcp)
        await self.tree.sync()

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Do not wait five seconds before identifying again."""

    async def on_ready(self) -> None:
        self.heard.append("ready")

    async def on_resumed(self) -> None:
        self.heard.append("resumed")

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            self.heard.append(message.content)
            self.said.append(message)


@asynccontextmanager
async def connected(fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch, **more: Any) -> AsyncIterator[App]:
    """An app that is connected and ready."""
    monkeypatch.setattr(Route, "BASE", fake.url)
    monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(fake.world.gateway_url))
    async with App(**more) as app:
        running = asyncio.create_task(app.start(fake.token))
        try:
            await fake.until(lambda: "ready" in app.heard or running.done())
            if running.done():
                await running
            yield app
        finally:
            await app.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
