"""Payloads and calls that Discord rejects are rejected by the fake, as the real client reports it.

The tests of the bot rely on that: Discord would have accepted each message that they find in the fake. They also rely
on the fake to report every mention and every link preview of a message, so that an empty set means that there is none.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import discord as discord_py
import pytest
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from tests.fakes.discord import Channel, FakeDiscord, Flag, Interaction, Kind, Message, Permission, User

Json = dict[str, Any]

V2, HIDDEN = int(Flag.IS_COMPONENTS_V2), int(Flag.EPHEMERAL)
POST = "POST /channels/{channel}/messages"
FORM = (400, 50035)
"""Status and code of "Invalid Form Body"."""


@pytest.fixture
async def discord() -> AsyncIterator[FakeDiscord]:
    async with FakeDiscord() as fake:
        fake.pace.strict = False
        yield fake


@pytest.fixture
async def client(discord: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[discord_py.Client]:
    """The real client, signed in for REST calls."""
    monkeypatch.setattr(Route, "BASE", discord.url)
    monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(discord.world.gateway_url))
    async with discord_py.Client(intents=discord_py.Intents.none()) as opened:
        await opened.login(discord.token)
        yield opened


@pytest.fixture
def ana(discord: FakeDiscord) -> User:
    return discord.user("Ana")


@pytest.fixture
def room(discord: FakeDiscord) -> Channel:
    return discord.channel("general")


class Api:
    """Calls through the real client's own HTTP layer, with bodies as the test wrote them."""

    def __init__(self, client: discord_py.Client, discord: FakeDiscord) -> None:
        self._http, self.discord = client.http, discord

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await self._http.request(Route(method, path), **({} if body is None else {"json": body}))

    async def post(self, room: Channel, **body: Any) -> Any:
        return await self.call("POST", f"/channels/{room.id}/messages", body)

    async def post_message(self, room: Channel, content: str = "hello") -> Message:
        await self.post(room, content=content)
        return self.discord.bot_messages(room)[-1]

    async def edit(self, message: Message, **body: Any) -> Any:
        return await self.call("PATCH", f"/channels/{message.channel.id}/messages/{message.id}", body)

    async def respond(self, interaction: Interaction, kind: int, data: Any = None) -> Any:
        body = {"type": kind} | ({} if data is None else {"data": data})
        return await self.call("POST", f"/interactions/{interaction.id}/{interaction.token}/callback", body)

    async def follow_up(self, interaction: Interaction, method: str, body: Any = None, message: str = "") -> Any:
        path = f"/webhooks/{self.discord.app.id}/{interaction.token}" + (f"/messages/{message}" if message else "")
        return await self.call(method, path, body)

    async def register(self, *commands: Json) -> Any:
        return await self.call("PUT", f"/applications/{self.discord.app.id}/commands", list(commands))


@pytest.fixture
def api(client: discord_py.Client, discord: FakeDiscord) -> Api:
    return Api(client, discord)


async def refusal(call: Awaitable[object]) -> tuple[int, int]:
    """Return status and code of a call that Discord rejects."""
    with pytest.raises(discord_py.HTTPException) as caught:
        await call
    return caught.value.status, caught.value.code


async def errors(call: Awaitable[object]) -> dict[str, str]:
    """Return the messages of an invalid form by their field."""
    with pytest.raises(discord_py.HTTPException) as caught:
        await call
    assert (caught.value.status, caught.value.code) == FORM
    lines = [line.removeprefix("In ").partition(": ") for line in caught.value.text.splitlines()[1:]]
    return {field: message for field, _, message in lines}


async def wrong_field(call: Awaitable[object]) -> str:
    """Return the field that Discord rejects a form for."""
    (field,) = await errors(call)
    return field


@asynccontextmanager
async def interaction(discord: FakeDiscord, action: Awaitable[Interaction]) -> AsyncIterator[Interaction]:
    """Let a user act, and wait until the test has responded or has let it fail."""
    before = len(discord.interactions)
    task = asyncio.ensure_future(action)
    await discord.until(lambda: len(discord.interactions) > before or task.done())
    yield discord.interactions[-1]
    await task


# Components


def button(custom_id: str = "b", **more: Any) -> Json:
    return {"type": 2, "style": 1, "label": "Go", "custom_id": custom_id} | more


def link(**more: Any) -> Json:
    return {"type": 2, "style": 5, "label": "Go", "url": "https://a.example"} | more


def row(*children: Json) -> Json:
    return {"type": 1, "components": list(children)}


def text(content: str = "words") -> Json:
    return {"type": 10, "content": content}


def container(*children: Json, **more: Any) -> Json:
    return {"type": 17, "components": list(children)} | more


def options(count: int) -> list[Json]:
    return [{"label": f"l{n}", "value": f"v{n}"} for n in range(count)]


def select(count: int = 2, **more: Any) -> Json:
    return {"type": 3, "custom_id": "s", "options": options(count)} | more


ACCEPTED_COMPONENTS = [
    [text("x" * 4000)],
    [text("x" * 2000), text("x" * 2000)],
    [text()] * 40,
    [container(*[text()] * 39)],
    [row(*(button(str(n)) for n in range(5)))],
    [row(button("x" * 100, label="x" * 80))],
    [row(link())],
    [row(select(25, max_values=25, min_values=0, placeholder="x" * 150))],
    [container({"type": 14, "divider": True, "spacing": 2}, row(button()), accent_color=0xFFFFFF)],
]
REJECTED_COMPONENTS: list[tuple[str, list[Json], str]] = [
    ("text together", [text("x" * 4000), text("x")], "components"),
    ("one text", [text("x" * 4001)], "components.0.content"),
    ("no text", [text("")], "components.0.content"),
    ("count", [text()] * 41, "components"),
    ("nested count", [container(*[text()] * 40)], "components"),
    ("buttons in a row", [row(*(button(str(n)) for n in range(6)))], "components.0.components"),
    ("an empty row", [row()], "components.0.components"),
    ("label", [row(button(label="x" * 81))], "components.0.components.0.label"),
    ("neither label nor emoji", [row(button(label=""))], "components.0.components.0"),
    ("custom id", [row(button("x" * 101))], "components.0.components.0.custom_id"),
    ("no custom id", [row(button(""))], "components.0.components.0.custom_id"),
    ("same custom ids", [row(button(), button())], "components"),
    ("same ids", [text() | {"id": 3}, text() | {"id": 3}], "components"),
    ("style", [row(button(style=7))], "components.0.components.0.style"),
    ("link with custom id", [row(link(custom_id="x"))], "components.0.components.0"),
    ("button with a link", [row(button(url="https://a.example"))], "components.0.components.0"),
    ("scheme", [row(link(url="javascript:alert(1)"))], "components.0.components.0.url"),
    ("url", [row(link(url="https://" + "x" * 505))], "components.0.components.0.url"),
    ("options", [row(select(26))], "components.0.components.0.options"),
    ("no options", [row(select(0))], "components.0.components.0.options"),
    ("same options", [row(select(options=options(1) * 2))], "components.0.components.0.options"),
    (
        "option label",
        [row(select(options=[{"label": "x" * 101, "value": "a"}]))],
        "components.0.components.0.options.0.label",
    ),
    ("placeholder", [row(select(placeholder="x" * 151))], "components.0.components.0.placeholder"),
    ("values", [row(select(2, max_values=3))], "components.0.components.0.max_values"),
    ("row width", [row(select(), button())], "components.0.components"),
    ("button outside a row", [button()], "components.0.type"),
    ("container in a container", [container(container(text()))], "components.0.components.0.type"),
    ("empty container", [container()], "components.0.components"),
    ("colour", [container(text(), accent_color=0x1000000)], "components.0.accent_color"),
    ("text input", [row({"type": 4, "custom_id": "x", "style": 1})], "components.0.components.0.type"),
]


@pytest.mark.parametrize("components", ACCEPTED_COMPONENTS)
async def test_components_within_the_limits_are_accepted(api: Api, room: Channel, components: list[Json]) -> None:
    await api.post(room, components=components, flags=V2)


@pytest.mark.parametrize(
    ("components", "field"), [case[1:] for case in REJECTED_COMPONENTS], ids=[name for name, *_ in REJECTED_COMPONENTS]
)
async def test_components_beyond_a_limit_are_rejected(
    discord: FakeDiscord, api: Api, room: Channel, components: list[Json], field: str
) -> None:
    assert await wrong_field(api.post(room, components=components, flags=V2)) == field
    assert discord.bot_messages(room) == []


async def test_texts_beyond_ten_thousand_bytes_are_a_server_error(discord: FakeDiscord, room: Channel) -> None:
    # Without the real client, which tries five times in 25 seconds before it says so.
    headers = {"Authorization": f"Bot {discord.token}"}
    address = f"{discord.url}/channels/{room.id}/messages"
    async with aiohttp.ClientSession(headers=headers) as session:
        for letters, status in ((3386, 200), (3387, 500)):
            body = {"components": [text("語" * letters)], "flags": V2}
            async with session.post(address, json=body) as answer:
                assert answer.status == status


async def test_display_components_need_their_flag_and_no_content(api: Api, room: Channel) -> None:
    rows = [row(button(str(n))) for n in range(6)]
    await api.post(room, content="x", components=rows[:5])
    assert await wrong_field(api.post(room, content="x", components=rows)) == "components"
    assert await wrong_field(api.post(room, content="x", components=[text()])) == "components.0.type"
    assert await wrong_field(api.post(room, content="x", components=[text()], flags=V2)) == "content"
    assert await wrong_field(api.post(room, embeds=[{"title": "x"}], components=[text()], flags=V2)) == "embeds"
    message = await api.post_message(room, "words")
    assert await wrong_field(api.edit(message, components=[text()], flags=V2)) == "content"
    await api.edit(message, content=None, components=[text()], flags=V2)
    assert await wrong_field(api.edit(message, flags=0)) == "flags"
    assert await refusal(api.edit(message, components=[])) == (400, 50006)


# Modals


def modal(*components: Json, **more: Any) -> Json:
    return {"custom_id": "m", "title": "Add", "components": list(components)} | more


def label(component: Json, **more: Any) -> Json:
    return {"type": 18, "label": "Name", "component": component} | more


def field(**more: Any) -> Json:
    return {"type": 4, "style": 1, "custom_id": "name"} | more


REJECTED_MODALS: list[tuple[str, Json, str]] = [
    ("title", modal(label(field()), title="x" * 46), "title"),
    ("custom id", modal(label(field()), custom_id="x" * 101), "custom_id"),
    ("no component", modal(), "components"),
    ("six components", modal(*(label(field(custom_id=str(n))) for n in range(6))), "components"),
    ("label", modal(label(field(), label="x" * 46)), "components.0.label"),
    ("description", modal(label(field(), description="x" * 101)), "components.0.description"),
    ("value", modal(label(field(value="x" * 4001))), "components.0.component.value"),
    ("max length", modal(label(field(max_length=4001))), "components.0.component.max_length"),
    ("placeholder", modal(label(field(placeholder="x" * 101))), "components.0.component.placeholder"),
    ("two labels", modal(label(field(label="x"))), "components.0.component.label"),
    ("same custom ids", modal(label(field()), label(field())), "components"),
    (
        "radio options",
        modal(label({"type": 21, "custom_id": "r", "options": options(1)})),
        "components.0.component.options",
    ),
    ("select options", modal(label(select(26))), "components.0.component.options"),
    ("button", modal({"type": 2, "label": "x", "custom_id": "x"}), "components.0.type"),
]


@pytest.fixture
async def mcp(api: Api) -> None:
    """A command `/mcp` that every user has."""
    await api.register(command("mcp", option("s")))


@pytest.mark.usefixtures("mcp")
@pytest.mark.parametrize(
    ("body", "field"), [case[1:] for case in REJECTED_MODALS], ids=[name for name, *_ in REJECTED_MODALS]
)
async def test_a_modal_beyond_a_limit_is_rejected(
    discord: FakeDiscord, api: Api, ana: User, body: Json, field: str
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", discord.dm(ana))) as asked:
        assert await wrong_field(api.respond(asked, 9, body)) == f"data.{field}"
        await api.respond(asked, 5)


@pytest.mark.usefixtures("mcp")
async def test_a_modal_is_the_first_response_to_anything_but_a_modal(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        await api.respond(asked, 9, modal(label(field(min_length=3, max_length=5))))
        assert await refusal(api.respond(asked, 9, modal(label(field())))) == (400, 40060)
    for value in ("", "ab", "abcdef"):
        with pytest.raises(AssertionError):
            await discord.submit(ana, {"Name": value})
    with pytest.raises(LookupError):
        await discord.submit(ana, {"Nickname": "abcd"})
    async with interaction(discord, discord.submit(ana, {"Name": "abcd"})) as submitted:
        assert await wrong_field(api.respond(submitted, 9, modal(label(field())))) == "type"
        assert await wrong_field(api.respond(submitted, 6)) == "type"
        await api.respond(submitted, 5)


# Commands


def command(name: str = "mcp", *parameters: Json, **more: Any) -> Json:
    return {"name": name, "description": "Servers", "options": list(parameters)} | more


def option(name: str = "server", kind: int = 3, **more: Any) -> Json:
    return {"type": kind, "name": name, "description": "Which"} | more


def subcommand(name: str, *parameters: Json) -> Json:
    return option(name, 1, options=list(parameters))


def choices(count: int) -> list[Json]:
    return [{"name": f"n{n}", "value": f"v{n}"} for n in range(count)]


REJECTED_COMMANDS: list[tuple[str, Json, str]] = [
    ("capitals", command("Mcp"), "0.name"),
    ("spaces", command("mcp add"), "0.name"),
    ("long name", command("x" * 33), "0.name"),
    ("no description", command(description=""), "0.description"),
    ("long description", command(description="x" * 101), "0.description"),
    ("options", command("mcp", *(option(f"o{n}") for n in range(26))), "0.options"),
    ("subcommands", command("mcp", *(subcommand(f"s{n}") for n in range(26))), "0.options"),
    ("choices", command("mcp", option(choices=choices(26))), "0.options.0.choices"),
    ("choice", command("mcp", option(choices=[{"name": "x" * 101, "value": "x"}])), "0.options.0.choices.0.name"),
    (
        "choices and completion",
        command("mcp", option(choices=choices(1), autocomplete=True)),
        "0.options.0.autocomplete",
    ),
    ("subcommands beside options", command("mcp", subcommand("list"), option()), "0.options"),
    ("required after optional", command("mcp", option("a"), option("b", required=True)), "0.options.1"),
    ("same options", command("mcp", option(), option()), "0.options"),
    ("too deep", command("mcp", option("a", 2, options=[option("b", 2, options=[])])), "0.options.0"),
    (
        "size",
        command(
            "mcp", *(subcommand(f"s{n}", *(option(f"o{m}", description="x" * 90) for m in range(4))) for n in range(25))
        ),
        "0",
    ),
    ("unknown context", command(contexts=[3]), "0.contexts.0"),
    ("no context", command(contexts=[]), "0.contexts"),
    ("contexts twice", command(contexts=[0, 0]), "0.contexts"),
    ("between users without an installation by them", command(contexts=[2]), "0.contexts"),
    ("installation that the portal does not allow", command(integration_types=[0, 1]), "0.integration_types.1"),
    ("context menu with a description", {"name": "Ask", "type": 3, "description": "x"}, "0.description"),
]


async def test_commands_within_the_limits_are_accepted(api: Api) -> None:
    registered = await api.register(
        *(command(f"c{n}") for n in range(97)),
        command("x" * 32, *(subcommand(f"s{n}") for n in range(25)), description="x" * 100),
        command("group", option("tools", 2, options=[subcommand("list", *(option(f"o{n}") for n in range(25)))])),
        command("pick", option(choices=choices(25))),
        *({"name": f"Ask about this {n}", "type": 3} for n in range(15)),
    )
    assert len({entry["id"] for entry in registered}) == 115


@pytest.mark.parametrize(
    ("body", "field"), [case[1:] for case in REJECTED_COMMANDS], ids=[name for name, *_ in REJECTED_COMMANDS]
)
async def test_a_command_beyond_a_limit_is_rejected(discord: FakeDiscord, api: Api, body: Json, field: str) -> None:
    assert await wrong_field(api.register(body)) == field
    assert discord.app.commands == {}


async def test_the_commands_of_an_app_are_limited_in_number(discord: FakeDiscord, api: Api) -> None:
    assert await refusal(api.register(*(command(f"c{n}") for n in range(101)))) == (400, 30032)
    assert await refusal(api.register(*({"name": f"c{n}", "type": 3} for n in range(16)))) == (400, 30032)
    with pytest.raises(discord_py.HTTPException):
        await api.register(command(), command())
    discord.limits.commands_a_day = 2
    await api.register(command("a"), command("b"))
    assert await refusal(api.register(command("a"), command("c"))) == (400, 30034)
    discord.clock.advance(86_401)
    await api.register(command("a"), command("c"))


async def test_a_user_is_offered_a_command_by_context_and_permission(discord: FakeDiscord, api: Api, ana: User) -> None:
    needs = str(int(Permission.MANAGE_GUILD))
    await api.register(
        command("mcp", option(required=True), contexts=[0], default_member_permissions=needs),
        command("group", subcommand("list")),
    )
    boss, room = discord.user("Boss", admin=True), discord.channel("general")
    discord.limits.answer_within = 0
    for user, place in ((ana, room), (boss, discord.dm(boss))):
        with pytest.raises(LookupError):
            await discord.command(user, "mcp", place, {"server": "x"})
    for name in ("group", "group hide"):
        with pytest.raises(LookupError):
            await discord.command(boss, name, room)
    with pytest.raises(AssertionError):
        await discord.command(boss, "mcp", room)
    await discord.command(boss, "mcp", room, {"server": "x"})


async def test_a_user_who_has_installed_the_app_takes_its_commands_along(
    discord: FakeDiscord, api: Api, ana: User
) -> None:
    discord.app.user_install = True
    await api.register(
        command("here", integration_types=[0], contexts=[0, 1]),
        command("anywhere", integration_types=[0, 1], contexts=[0, 1, 2]),
    )
    away = discord.another_guild("Away", with_bot=False)
    discord.join(ana, away)
    lounge, private = discord.channel("lounge", guild=away), discord.private(ana, discord.user("Sam"))
    discord.limits.answer_within = 0
    for place in (lounge, private):
        with pytest.raises(LookupError):
            await discord.command(ana, "anywhere", place)
    discord.install(ana)
    for place in (lounge, private):
        used = await discord.command(ana, "anywhere", place)
        assert used.payload["authorizing_integration_owners"] == {"1": ana.id}
        with pytest.raises(LookupError):
            await discord.command(ana, "here", place)
    assert (await discord.command(ana, "here", discord.dm(ana))).payload["context"] == 1


async def test_where_the_app_is_not_a_use_has_five_follow_ups_and_no_channel(
    discord: FakeDiscord, api: Api, ana: User
) -> None:
    discord.app.user_install = True
    await api.register(command("anywhere", integration_types=[1], contexts=[0]))
    away = discord.another_guild("Away", with_bot=False)
    discord.join(ana, away)
    discord.install(ana)
    lounge = discord.channel("lounge", guild=away)
    using = asyncio.create_task(discord.command(ana, "anywhere", lounge))
    await discord.until(lambda: discord.interactions)
    (used,) = discord.interactions
    await api.respond(used, 4, {"content": "hi", "flags": 64})
    await using
    for number in range(5):
        await api.follow_up(used, "POST", {"content": f"{number}", "flags": 64})
    assert await refusal(api.follow_up(used, "POST", {"content": "more", "flags": 64})) == (400, 40094)
    assert await refusal(api.post(lounge, content="hi")) == (404, 10003)


async def test_a_completion_offers_at_most_twenty_five_choices(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    await api.register(command("mcp", option(autocomplete=True)))
    typing = asyncio.ensure_future(discord.suggest(ana, "mcp", room, "server", "gi"))
    await discord.until(lambda: discord.interactions)
    asked = discord.interactions[-1]
    assert await wrong_field(api.respond(asked, 4, {"content": "x"})) == "type"
    assert await wrong_field(api.respond(asked, 8, {"choices": choices(26)})) == "data.choices"
    long = [{"name": "x", "value": "x" * 101}]
    assert await wrong_field(api.respond(asked, 8, {"choices": long})) == "data.choices.0.value"
    await api.respond(asked, 8, {"choices": choices(25)})
    assert await typing == choices(25)


# Interactions


@pytest.mark.usefixtures("mcp")
async def test_an_interaction_is_responded_to_once_within_three_seconds(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        assert await refusal(api.follow_up(asked, "POST", {"content": "early"})) == (404, 10015)
        unknown = api.call("POST", f"/interactions/{asked.id}/nonsense/callback", {"type": 5})
        assert await refusal(unknown) == (404, 10062)
        for kind in (6, 7, 8):
            assert await wrong_field(api.respond(asked, kind, {})) == "type"
        assert await wrong_field(api.respond(asked, 4, {"content": "x" * 2001})) == "content"
        assert await refusal(api.respond(asked, 4, {"content": ""})) == (400, 50006)
        await api.respond(asked, 4, {"content": "one"})
        assert await refusal(api.respond(asked, 4, {"content": "two"})) == (400, 40060)
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        discord.clock.advance(3.1)
        assert await refusal(api.respond(asked, 4, {"content": "late"})) == (404, 10062)
    assert asked.failed
    thread = discord.thread(ana, room, "more")
    discord.archive(thread, locked=True)
    async with interaction(discord, discord.command(ana, "mcp", thread)) as asked:
        assert await refusal(api.respond(asked, 4, {"content": "x"})) == (400, 50083)
        discord.clock.advance(3.1)


@pytest.mark.usefixtures("mcp")
async def test_the_token_of_an_interaction_is_valid_for_fifteen_minutes(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        assert await wrong_field(api.respond(asked, 5, {"flags": V2})) == "data.flags"
        await api.respond(asked, 5)
    discord.unknown.clear()
    discord.clock.advance(890)
    await api.follow_up(asked, "PATCH", {"content": "in time"}, "@original")
    assert await refusal(api.follow_up(asked, "GET", message="1")) == (404, 10008)
    discord.clock.advance(11)
    for method, message in (("PATCH", "@original"), ("POST", ""), ("GET", "@original"), ("DELETE", "@original")):
        body = {"content": "late"} if method in {"PATCH", "POST"} else None
        assert await refusal(api.follow_up(asked, method, body, message)) == (401, 50027)


@pytest.mark.usefixtures("mcp")
async def test_an_ephemeral_response_is_visible_to_one_user_until_a_reload(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        await api.respond(asked, 4, {"content": "secret", "flags": HIDDEN})
    assert [sight.words for sight in discord.what_user_sees(ana, room)] == ["secret"]
    assert discord.what_user_sees(discord.user("Sam"), room) == []
    assert await refusal(api.edit(asked.messages[0], content="x")) == (404, 10008)
    discord.reload(ana)
    assert discord.what_user_sees(ana, room) == []


async def test_a_button_is_pressed_by_a_member_who_sees_it(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    await api.post(room, content="card", components=[row(button(label="Approve"))])
    card = discord.bot_messages(room)[-1]
    async with interaction(discord, discord.press(ana, card, "Approve")) as pressed:
        await api.respond(pressed, 7, {"content": "approved", "components": []})
    with pytest.raises(LookupError):
        await discord.press(ana, card, "Approve")
    async with interaction(discord, discord.press(ana, card, "Approve", hidden=True)) as pressed:
        discord.delete(card)
        assert await refusal(api.respond(pressed, 7, {"content": "x"})) == (404, 10008)
        await api.respond(pressed, 5)
    room.forbid(ana, Permission.VIEW_CHANNEL)
    with pytest.raises(AssertionError):
        await discord.press(ana, card, "Approve", hidden=True)


# Messages


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": "x" * 2001}, "content"),
        ({"content": "x", "nonce": "n" * 26}, "nonce"),
        ({"content": "x", "message_reference": {"message_id": "1"}}, "message_reference"),
        ({"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}, "allowed_mentions"),
        ({"embeds": [{"title": "x"}] * 11}, "embeds"),
        ({"embeds": [{"title": "x" * 257}]}, "embeds.0.title"),
        ({"embeds": [{"description": "x" * 4097}]}, "embeds.0.description"),
        ({"embeds": [{"fields": [{"name": "n", "value": "v"}] * 26}]}, "embeds.0.fields"),
        ({"embeds": [{"fields": [{"name": "n", "value": "x" * 1025}]}]}, "embeds.0.fields.0.value"),
        ({"embeds": [{"description": "x" * 3500}, {"description": "x" * 2501}]}, "embeds"),
    ],
)
async def test_a_message_beyond_a_limit_is_rejected(api: Api, room: Channel, body: Json, field: str) -> None:
    assert await wrong_field(api.post(room, **body)) == field
    await api.post(room, content="x" * 2000, nonce="n" * 25)


@pytest.mark.parametrize("body", [{}, {"content": ""}, {"content": "  \n"}, {"embeds": []}])
async def test_an_empty_message_is_rejected(api: Api, room: Channel, body: Json) -> None:
    assert await refusal(api.post(room, **body)) == (400, 50006)


async def test_unknown_fields_flags_routes_and_parameters_are_rejected_and_fail_the_test(
    discord: FakeDiscord, api: Api, room: Channel
) -> None:
    assert await wrong_field(api.post(room, content="hi", colour="red")) == "colour"
    assert await wrong_field(api.post(room, content="hi", flags=HIDDEN)) == "flags"
    assert (await refusal(api.call("GET", "/stickers")))[0] == 404
    assert (await refusal(api.call("GET", f"/channels/{room.id}/messages?newest=1")))[0] == 400
    assert await refusal(api.call("GET", f"/channels/{room.id}/messages?limit=101")) == FORM
    assert len(discord.unknown) == 4
    discord.unknown.clear()
    with pytest.raises(AssertionError, match="GET /nowhere"):
        async with FakeDiscord() as other:
            other.unknown.append("GET /nowhere")


async def test_an_edit_changes_an_own_message_and_an_old_one_rarely(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    foreign = discord.say(ana, room, "mine")
    assert await refusal(api.edit(foreign, content="yours")) == (403, 50005)
    assert await refusal(api.call("DELETE", f"/channels/{room.id}/messages/{foreign.id}")) == (403, 50013)
    message = await api.post_message(room, "first")
    assert await refusal(api.edit(message, content="second", embeds=[{"title": "x" * 257}])) == FORM
    assert await wrong_field(api.edit(message, attachments=[{"id": "9"}])) == "attachments.0.id"
    assert message.content == "first"
    discord.clock.advance(3601)
    discord.limits.old_edits, discord.limits.old_edit_window = 0, 0.01
    assert await refusal(api.edit(message, content="more")) == (429, 30046)


async def test_the_same_enforced_nonce_posts_once(discord: FakeDiscord, api: Api, room: Channel) -> None:
    first, second = [await api.post(room, content=text, nonce="t1-0", enforce_nonce=True) for text in ("one", "two")]
    assert first["id"] == second["id"]
    discord.clock.advance(discord.limits.nonce_lifetime + 1)
    await api.post(room, content="two", nonce="t1-0", enforce_nonce=True)
    assert [message.content for message in discord.bot_messages(room)] == ["one", "two"]


async def test_files_are_limited_in_size_and_number(
    discord: FakeDiscord, client: discord_py.Client, room: Channel
) -> None:
    channel = await client.fetch_channel(int(room.id))
    assert isinstance(channel, discord_py.TextChannel)

    def files(count: int, size: int) -> list[discord_py.File]:
        return [discord_py.File(io.BytesIO(b"x" * size), f"{n}.txt") for n in range(count)]

    discord.limits.attachment_size = 10
    await channel.send(files=files(10, 10))
    assert await refusal(channel.send(files=files(1, 11))) == (413, 40005)
    room.forbid(discord.bot, Permission.ATTACH_FILES)
    assert await refusal(channel.send(files=files(1, 1))) == (403, 50013)
    discord.limits.request_size = 100
    assert await refusal(channel.send("x" * 200)) == (413, 40005)


# Channels, threads and permissions


@pytest.mark.parametrize(
    ("permission", "method", "path", "body"),
    [
        (Permission.SEND_MESSAGES, "POST", "/messages", {"content": "hi"}),
        (Permission.SEND_MESSAGES, "POST", "/typing", None),
        (Permission.CREATE_PUBLIC_THREADS, "POST", "/messages/{message}/threads", {"name": "x"}),
        (Permission.READ_MESSAGE_HISTORY, "GET", "/messages/{message}", None),
        (Permission.MANAGE_CHANNELS, "PATCH", "", {"name": "x"}),
    ],
)
async def test_each_permission_is_required(  # noqa: PLR0917 - one case a row
    discord: FakeDiscord, api: Api, permission: Permission, method: str, path: str, body: Json | None
) -> None:
    room = discord.channel("general")
    message = discord.say(discord.user("Ana"), room, "hi")
    room.forbid(discord.bot, permission)
    assert await refusal(api.call(method, f"/channels/{room.id}" + path.format(message=message.id), body)) == (
        403,
        50013,
    )


async def test_roles_and_overwrites_add_up(discord: FakeDiscord, room: Channel) -> None:
    now = discord.clock.now()
    ops = discord.role("ops", permissions=Permission.MANAGE_MESSAGES)
    ana, boss = discord.user("Ana", ops), discord.user("Boss", admin=True)
    room.forbid(ops, Permission.SEND_MESSAGES, Permission.MANAGE_MESSAGES)
    assert not room.permissions(ana, now) & (Permission.SEND_MESSAGES | Permission.MANAGE_MESSAGES)
    room.permit(ana, Permission.SEND_MESSAGES)
    assert room.permissions(ana, now) & Permission.SEND_MESSAGES
    discord.time_out(ana, 60)
    assert room.permissions(ana, now) == Permission.VIEW_CHANNEL | Permission.READ_MESSAGE_HISTORY
    room.forbid(discord.guild.everyone, Permission.VIEW_CHANNEL)
    assert room.permissions(ana, now) == Permission(0)
    assert room.permissions(boss, now) & Permission.SEND_MESSAGES


async def test_an_object_that_the_app_cannot_see_is_forbidden_or_unknown(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    secret = discord.channel("secret", ana, with_bot=False)
    assert await refusal(api.post(secret, content="hi")) == (403, 50001)
    assert await refusal(api.call("GET", f"/channels/{secret.id}/messages")) == (403, 50001)
    assert await refusal(api.call("GET", f"/guilds/{discord.guild.id}/members")) == (403, 50001)
    for path, code in (
        ("/channels/1", 10003),
        (f"/channels/{room.id}/messages/1", 10008),
        ("/guilds/1", 10004),
        ("/users/1", 10013),
        (f"/guilds/{discord.guild.id}/members/1", 10013),
    ):
        assert await refusal(api.call("GET", path)) == (404, code)
    discord.leave(ana)
    assert await refusal(api.call("GET", f"/guilds/{discord.guild.id}/members/{ana.id}")) == (404, 10007)
    asked = discord.say(discord.user("Sam"), room, "why?")
    room.forbid(discord.bot, Permission.READ_MESSAGE_HISTORY)
    assert await api.call("GET", f"/channels/{room.id}/messages") == []
    reply = api.post(room, content="because", message_reference={"message_id": asked.id})
    assert await refusal(reply) == (400, 160002)
    discord.expel(discord.guild)
    assert await refusal(api.post(room, content="hi")) == (404, 10003)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "x", "auto_archive_duration": 61}, "auto_archive_duration"),
    ],
)
async def test_a_thread_has_a_name_and_a_known_duration(
    discord: FakeDiscord, api: Api, ana: User, body: Json, field: str
) -> None:
    room = discord.channel("general")
    path = f"/channels/{room.id}/messages/{discord.say(ana, room, 'why?').id}/threads"
    assert await wrong_field(api.call("POST", path, body)) == field
    await api.call("POST", path, {"name": "x"})
    assert await refusal(api.call("POST", path, {"name": "x"})) == (400, 160004)


async def test_an_archived_or_locked_thread_rejects_the_app(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    thread = discord.thread(ana, room, "why?")
    message = await api.post_message(thread)
    discord.archive(thread)
    assert await refusal(api.edit(message, content="more")) == (400, 50083)
    assert await refusal(api.call("PATCH", f"/channels/{thread.id}", {"name": "x"})) == (403, 50013)
    await api.post_message(thread)
    room.forbid(discord.bot, Permission.SEND_MESSAGES)
    await api.post_message(thread)
    room.forbid(discord.bot, Permission.SEND_MESSAGES_IN_THREADS)
    assert await refusal(api.post(thread, content="hi")) == (403, 50013)
    locked = discord.thread(ana, discord.channel("other"), "why?")
    discord.archive(locked, locked=True)
    assert await refusal(api.post(locked, content="hi")) == (400, 50083)
    assert await refusal(api.call("PATCH", f"/channels/{locked.id}", {"archived": False})) == (403, 50013)


async def test_a_direct_message_and_a_thread_need_a_channel_for_them(discord: FakeDiscord, api: Api, ana: User) -> None:
    direct = discord.dm(ana)
    for place in (direct, discord.channel("talk", kind=Kind.VOICE)):
        path = f"/channels/{place.id}/messages/{discord.say(ana, place, 'why?').id}/threads"
        assert await refusal(api.call("POST", path, {"name": "x"})) == (400, 50024)
    assert await refusal(api.post(discord.channel("files", kind=Kind.CATEGORY), content="x")) == (400, 50008)
    await api.post(direct, content="hi")
    ana.takes_dms = False
    assert await refusal(api.post(direct, content="hi")) == (403, 50007)
    assert await refusal(api.post(discord.dm(discord.user("Una", stranger=True)), content="hi")) == (403, 50007)
    robot = discord.other_bot()
    assert await refusal(api.call("POST", "/users/@me/channels", {"recipient_id": robot.id})) == (403, 50007)


async def test_content_is_withheld_without_the_intent(discord: FakeDiscord, api: Api, ana: User, room: Channel) -> None:
    discord.app.message_content = False
    messages = [
        discord.say(ana, room, "among us", files=[("a.txt", b"x")]),
        discord.say(ana, room, f"{discord.bot.mention} hello"),
        discord.say(ana, discord.dm(ana), "for you"),
        await api.post_message(room, "mine"),
    ]
    messages.append(discord.reply(ana, messages[3], "without", ping=False))
    read = [await api.call("GET", f"/channels/{message.channel.id}/messages/{message.id}") for message in messages]
    assert [message["content"] for message in read] == ["", f"{discord.bot.mention} hello", "for you", "mine", ""]


# Sign-in, gateway and rate limits


async def test_a_wrong_token_and_a_disabled_intent_are_rejected(
    discord: FakeDiscord, client: discord_py.Client
) -> None:
    async with discord_py.Client(intents=discord_py.Intents.none()) as stranger:
        with pytest.raises(discord_py.LoginFailure):
            await stranger.login("wrong")
    intents = discord_py.Intents.none()
    intents.message_content = True
    discord.app.message_content = False
    async with discord_py.Client(intents=intents) as curious:
        with pytest.raises(discord_py.PrivilegedIntentsRequired):
            await curious.start(discord.token)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (['{"op": 2, "d": {"token": "wrong", "intents": 1, "properties": {}}}'], 4004),
        (['{"op": 6, "d": {"token": "wrong", "session_id": "x", "seq": 0}}'], 4004),
        (['{"op": 8, "d": {"guild_id": "1"}}'], 4003),
        (["{"], 4002),
        (['{"op": 1, "d": "' + "x" * 4096 + '"}'], 4002),
        (['{"op": 1, "d": null}'] * 4, 4008),
    ],
)
async def test_the_gateway_closes_on_a_frame_that_it_does_not_allow(
    discord: FakeDiscord, frames: list[str], code: int
) -> None:
    discord.limits.gateway_sends = 3
    url = f"{discord.world.gateway_url}?v=10&encoding=json"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket, asyncio.timeout(30):
        for frame in frames:
            await socket.send_str(frame)
        while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert socket.close_code == code


@pytest.mark.parametrize(
    ("shard", "code"), [([4, 4], 4010), ([0], 4010), ("0", 4010), ([0, 2], 4011), (None, 4011), ([3, 4], 1000)]
)
async def test_a_session_is_of_one_of_enough_shards(discord: FakeDiscord, shard: Any, code: int) -> None:
    discord.limits.fewest_shards = 4
    identify: Json = {"token": discord.token, "intents": 1, "properties": {}} | ({"shard": shard} if shard else {})
    url = f"{discord.world.gateway_url}?v=10&encoding=json"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket, asyncio.timeout(30):
        await socket.receive()
        await socket.send_json({"op": 2, "d": identify})
        frame = await socket.receive()
        if code == 1000:
            assert frame.json()["d"]["shard"] == shard
        else:
            assert socket.close_code == code


async def test_sessions_of_a_bucket_begin_apart_and_get_the_events_of_their_guilds(
    discord: FakeDiscord, ana: User
) -> None:
    discord.limits.identify_every = 5
    identify = {"token": discord.token, "intents": 1 << 15 | 1 << 12 | 1 << 9 | 1, "properties": {}}
    url = f"{discord.world.gateway_url}?v=10&encoding=json"
    invalid_session, ready, sockets = 9, 0, []
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        for number, seconds, op in ((0, 0, ready), (1, 4, invalid_session), (1, 5, ready)):
            discord.clock.advance(seconds)
            socket = await session.ws_connect(url)
            sockets.append(socket)
            await socket.receive()
            await socket.send_json({"op": 2, "d": identify | {"shard": [number, 2]}})
            assert (await socket.receive()).json()["op"] == op
        assert discord.gateway.hasty == 1
        discord.say(ana, discord.dm(ana), "directly")
        discord.say(ana, discord.channel("general"), "in the guild")
        heard = [[event["content"] for event in live.events("MESSAGE_CREATE")] for live in discord.gateway.live]
    number = (int(discord.guild.id) >> 22) % 2
    assert heard == ([["directly", "in the guild"], []] if number == 0 else [["directly"], ["in the guild"]])


async def test_a_bucket_and_the_whole_bot_have_a_rate_limit(discord: FakeDiscord) -> None:
    discord.pace.strict = True
    discord.clock.stop()
    room, headers = discord.channel("general"), {"Authorization": f"Bot {discord.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        url = f"{discord.url}/channels/{room.id}/messages"
        for left in ("4", "3", "2", "1", "0"):
            async with session.post(url, json={"content": "x"}) as response:
                assert (response.status, response.headers["X-RateLimit-Remaining"]) == (200, left)
        async with session.post(url, json={"content": "x"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "5")
            assert (await response.json())["global"] is False
        for n in range(46):
            async with session.get(f"{discord.url}/channels/{discord.channel(f'c{n}').id}") as response:
                assert (n, response.status) == (n, 200 if n < 45 else 429)
        assert response.headers["X-RateLimit-Global"] == "true"


# Mentions and link previews


async def test_every_mention_is_reported(discord: FakeDiscord, api: Api, ana: User, room: Channel) -> None:
    sam, ops = discord.user("Sam"), discord.role("ops", mentionable=True)
    everyone = f"{ana.mention} {ops.mention} @everyone @here `{discord.bot.mention}`"
    message = await api.post_message(room, everyone)
    assert discord.notified_ids(message) == {ana.id, ops.id, "everyone", "here"}
    content = f"{ana.mention} {sam.mention} @everyone"
    for allowed, called in (
        ({"parse": []}, set()),
        ({"users": [ana.id]}, {ana.id}),
        ({"parse": ["everyone"]}, {"everyone"}),
    ):
        await api.post(room, content=content, allowed_mentions=allowed)
        assert discord.notified_ids(discord.bot_messages(room)[-1]) == called
    message = await api.post_message(room)
    await api.edit(message, content=sam.mention, allowed_mentions={"parse": []})
    assert discord.notified_ids(message) == set()
    await api.edit(message, content=sam.mention)
    assert discord.notified_ids(message) == {sam.id}
    asked = discord.say(ana, room, "why?")
    await api.post(room, content="because", message_reference={"message_id": asked.id})
    assert discord.notified_ids(discord.bot_messages(room)[-1]) == {ana.id}
    await api.post(room, components=[text(f"{ana.mention} https://a.example")], flags=V2)
    assert discord.notified_ids(discord.bot_messages(room)[-1]) == {ana.id}
    assert discord.fetched_addresses(discord.bot_messages(room)[-1]) == set()


async def test_a_role_that_cannot_be_mentioned_needs_a_permission(
    discord: FakeDiscord, api: Api, room: Channel
) -> None:
    ops = discord.role("ops")
    assert discord.notified_ids(await api.post_message(room, ops.mention)) == {ops.id}
    discord.guild.everyone.permissions &= ~Permission.MENTION_EVERYONE
    assert discord.notified_ids(await api.post_message(room, f"{ops.mention} @everyone")) == set()


@pytest.mark.usefixtures("mcp")
async def test_a_response_mentions_users_alone_by_default(
    discord: FakeDiscord, api: Api, ana: User, room: Channel
) -> None:
    async with interaction(discord, discord.command(ana, "mcp", room)) as asked:
        await api.respond(asked, 4, {"content": f"@everyone {ana.mention}"})
    assert discord.notified_ids(asked.messages[0]) == {ana.id}


async def test_every_link_preview_is_reported(discord: FakeDiscord, api: Api, room: Channel) -> None:
    message = await api.post_message(room, "see https://a.example/1 and <https://b.example> and `https://c.example`")
    assert discord.fetched_addresses(message) == {"https://a.example/1"}
    await api.edit(message, flags=int(Flag.SUPPRESS_EMBEDS))
    assert discord.fetched_addresses(message) == set()
