"""Application commands: what may be registered, who is offered what, and completion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.discord import FakeDiscord, Permission
from tests.fakes.discord_api import DiscordApi, Said


def command(name: str = "mcp", *options: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Servers", "options": list(options)} | more


def option(name: str = "server", kind: int = 3, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "description": "Which"} | more


def subcommand(name: str, *options: dict[str, Any]) -> dict[str, Any]:
    return option(name, 1, options=list(options))


def choices(count: int) -> list[dict[str, str]]:
    return [{"name": f"n{n}", "value": f"v{n}"} for n in range(count)]


async def put(api: DiscordApi, *commands: dict[str, Any], guild: str = "") -> Said:
    where = f"/guilds/{guild}" if guild else ""
    return await api.call("PUT", f"/applications/{api.discord.app.id}{where}/commands", list(commands))


async def test_what_is_just_within_the_limits_is_taken(api: DiscordApi) -> None:
    said = await put(
        api,
        *(command(f"c{n}") for n in range(97)),
        command("x" * 32, *(subcommand(f"s{n}") for n in range(25)), description="x" * 100),
        command("group", option("tools", 2, options=[subcommand("list", *(option(f"o{n}") for n in range(25)))])),
        command("pick", option(choices=choices(25))),
        *({"name": f"Ask about this {n}", "type": 3} for n in range(15)),
    )
    assert said.status == 200, said
    assert len({each["id"] for each in said.body}) == 115


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("capitals", command("Mcp"), "0.name", "APPLICATION_COMMAND_INVALID_NAME"),
    ("spaces", command("mcp add"), "0.name", "APPLICATION_COMMAND_INVALID_NAME"),
    ("long name", command("x" * 33), "0.name", "BASE_TYPE_BAD_LENGTH"),
    ("no description", command(description=""), "0.description", "BASE_TYPE_REQUIRED"),
    ("long description", command(description="x" * 101), "0.description", "BASE_TYPE_BAD_LENGTH"),
    ("options", command("mcp", *(option(f"o{n}") for n in range(26))), "0.options", "BASE_TYPE_MAX_LENGTH"),
    ("subcommands", command("mcp", *(subcommand(f"s{n}") for n in range(26))), "0.options", "BASE_TYPE_MAX_LENGTH"),
    ("choices", command("mcp", option(choices=choices(26))), "0.options.0.choices", "BASE_TYPE_MAX_LENGTH"),
    (
        "choice name",
        command("mcp", option(choices=[{"name": "x" * 101, "value": "x"}])),
        "0.options.0.choices.0.name",
        "BASE_TYPE_BAD_LENGTH",
    ),
    (
        "choices and completion",
        command("mcp", option(choices=choices(1), autocomplete=True)),
        "0.options.0.autocomplete",
        "APPLICATION_COMMAND_AUTOCOMPLETE_CHOICES",
    ),
    (
        "subcommands beside options",
        command("mcp", subcommand("list"), option()),
        "0.options",
        "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID",
    ),
    (
        "required after optional",
        command("mcp", option("a"), option("b", required=True)),
        "0.options.1",
        "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID",
    ),
    ("same options", command("mcp", option(), option()), "0.options", "APPLICATION_COMMAND_OPTIONS_NAME_INVALID"),
    (
        "too deep",
        command("mcp", option("a", 2, options=[option("b", 2, options=[])])),
        "0.options.0",
        "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID",
    ),
    (
        "size",
        command(
            "mcp", *(subcommand(f"s{n}", *(option(f"o{m}", description="x" * 90) for m in range(4))) for n in range(25))
        ),
        "0",
        "APPLICATION_COMMAND_TOO_LARGE",
    ),
    (
        "context menu with a description",
        {"name": "Ask", "type": 3, "description": "x"},
        "0.description",
        "APPLICATION_COMMAND_CONTEXT_MENU",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=[name for name, *_ in REFUSED])
async def test_a_command_beyond_a_limit_is_refused(
    discord: FakeDiscord, api: DiscordApi, case: tuple[str, dict[str, Any], str, str]
) -> None:
    _, given, where, error = case
    said = await put(api, given)
    assert (said.refusal, said.errors) == ((400, 50035), {where: error})
    assert discord.app.commands == {}


async def test_there_are_a_hundred_commands_at_most_with_names_of_their_own(api: DiscordApi) -> None:
    assert (await put(api, *(command(f"c{n}") for n in range(101)))).refusal == (400, 30032)
    assert (await put(api, *({"name": f"c{n}", "type": 3} for n in range(16)))).refusal == (400, 30032)
    assert (await put(api, command(), command())).errors == {"": "APPLICATION_COMMANDS_DUPLICATE_NAME"}


async def test_only_so_many_new_commands_are_taken_a_day(discord: FakeDiscord, api: DiscordApi) -> None:
    discord.limits.commands_a_day = 2
    assert (await put(api, command("a"), command("b"))).status == 200
    assert (await put(api, command("a"), command("b"))).status == 200
    assert (await put(api, command("a"), command("c"))).refusal == (400, 30034)
    discord.clock.advance(86_401)
    assert (await put(api, command("a"), command("c"))).status == 200


async def test_a_command_keeps_its_id_while_it_keeps_its_name(api: DiscordApi) -> None:
    first = (await put(api, command(), command("other"))).body[0]
    second = (await put(api, command(description="New"))).body
    assert [each["id"] for each in second] == [first["id"]]
    kept = await api.call("GET", f"/applications/{api.discord.app.id}/commands")
    assert [each["description"] for each in kept.body] == ["New"]


async def test_commands_of_a_guild_are_offered_there_alone(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    await put(api, command(), guild=discord.guild.id)
    discord.limits.answer_within = 0
    assert (await discord.command(ana, "mcp", room)).data["guild_id"] == discord.guild.id
    with pytest.raises(LookupError):
        await discord.command(ana, "mcp", discord.dm(ana))
    elsewhere = discord.another_guild("Elsewhere")
    discord.join(ana, elsewhere)
    with pytest.raises(LookupError):
        await discord.command(ana, "mcp", discord.channel("general", guild=elsewhere))


async def test_contexts_and_default_permissions_say_who_is_offered_a_command(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    needs = str(int(Permission.MANAGE_GUILD))
    await put(api, command(contexts=[0], default_member_permissions=needs), command("open"))
    ana, boss, room = discord.user("Ana"), discord.user("Boss", admin=True), discord.channel("general")
    discord.limits.answer_within = 0
    with pytest.raises(LookupError):
        await discord.command(ana, "mcp", room)
    with pytest.raises(LookupError):
        await discord.command(boss, "mcp", discord.dm(boss))
    await discord.command(boss, "mcp", room)
    await discord.command(ana, "open", discord.dm(ana))
    discord.give(ana, discord.role("managers", permissions=Permission.MANAGE_GUILD))
    await discord.command(ana, "mcp", room)


async def test_subcommands_are_typed_with_their_options_and_the_base_cannot_be(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    shown = [subcommand("show", option(required=True), option("user", 6), option("file", 11))]
    await put(api, command("mcp", *shown))
    ana, room = discord.user("Ana"), discord.channel("general")
    discord.limits.answer_within = 0
    given = {"server": "github", "user": ana, "file": ("a.txt", b"x")}
    typed = await discord.command(ana, "mcp show", room, given)
    inner = typed.data["options"][0]
    assert (inner["name"], inner["options"][0]["value"], inner["options"][1]["value"]) == ("show", "github", ana.id)
    assert typed.data["resolved"]["users"][ana.id]["username"] == "ana"
    assert typed.data["resolved"]["members"][ana.id]["roles"] == []
    assert [each["filename"] for each in typed.data["resolved"]["attachments"].values()] == ["a.txt"]
    for words in ("mcp", "mcp hide"):
        with pytest.raises(LookupError):
            await discord.command(ana, words, room)
    with pytest.raises(AssertionError):
        await discord.command(ana, "mcp show", room)


async def test_a_shortcut_carries_the_message(discord: FakeDiscord, api: DiscordApi) -> None:
    await put(api, {"name": "Ask about this", "type": 3})
    ana, room = discord.user("Ana"), discord.channel("general")
    message = discord.say(discord.user("Sam"), room, "look")
    discord.app.message_content = False
    discord.limits.answer_within = 0
    used = await discord.shortcut(ana, "Ask about this", message)
    assert used.data["resolved"]["messages"][used.data["target_id"]]["content"] == "look"


@pytest.mark.parametrize(
    ("offered", "status"), [(choices(25), 200), (choices(26), 400), ([{"name": "x", "value": "x" * 101}], 400)]
)
async def test_completion_offers_twenty_five_choices_at_most(
    discord: FakeDiscord, api: DiscordApi, offered: list[dict[str, str]], status: int
) -> None:
    await put(api, command("mcp", option(autocomplete=True)))
    typing = asyncio.ensure_future(discord.suggest(discord.user("Ana"), "mcp", discord.channel("g"), "server", "gi"))
    await discord.until(lambda: discord.interactions)
    interaction = discord.interactions[-1]
    assert interaction.payload["data"]["options"] == [{"type": 3, "name": "server", "value": "gi", "focused": True}]
    assert (await api.answer(interaction, 4, {"content": "x"})).status == 400
    assert (await api.answer(interaction, 8, {"choices": offered})).status == status
    if status != 200:
        await api.answer(interaction, 8, {"choices": []})
    assert await typing == (offered if status == 200 else [])
