"""Checks of Discord by `countersign doctor`, with cause and fix."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from bot.examination import Check, CheckStatus
from bot.platforms.discord.diagnostics import (
    COMMANDS,
    PERMISSIONS,
    READS_ALL,
    diagnose,
    invite_link,
    permission_integer,
)
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from tests.fakes.discord import Answers, Permission
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


async def found(place: ConnectedBot, people: UserDirectory | None = None) -> list[Check]:
    return [check async for check in diagnose(place.rest, people or place.people)]


def summary(checks: list[Check]) -> list[tuple[str, CheckStatus]]:
    return [(check.name, check.finding) for check in checks]


async def test_a_complete_setup_reports_user_and_places_without_a_connection() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.app.public = False
        known = [{"name": name, "description": "What it does", "type": 1} for name in COMMANDS]
        app = place.discord.app.id
        await place.rest.call("PUT", "/applications/{app_id}/commands", "register", body=known, app_id=app)
        checks = await found(place)
        assert summary(checks) == [
            ("token", CheckStatus.WELL),
            ("message content", CheckStatus.WELL),
            ("invitations", CheckStatus.WELL),
            ("servers", CheckStatus.WELL),
            ("server Acme", CheckStatus.WELL),
            ("commands", CheckStatus.WELL),
        ]
        assert place.discord.app.id in checks[0].detail
        assert checks[1].detail == READS_ALL
        assert not place.discord.gateway.identified
        assert place.discord.token not in str(checks)


async def test_without_the_message_content_intent_it_lists_the_remaining_features() -> None:
    async with connected_bot(listening=False, message_content=False) as place:
        check = (await found(place))[1]
        assert check.finding is CheckStatus.DOUBTFUL
        assert "mention" in check.detail
        assert "Message Content Intent" in check.fix


async def test_a_public_bot_is_reported_unless_its_servers_are_named() -> None:
    async with connected_bot(listening=False) as place:
        check = (await found(place))[2]
        assert check.finding is CheckStatus.DOUBTFUL
        assert "Public Bot" in check.fix
        named = UserDirectory(place.rest, frozenset({place.discord.guild.id}))
        assert (await found(place, named))[2].finding is CheckStatus.WELL


async def test_an_application_with_another_interactions_endpoint_is_reported() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.app.endpoint = "https://old.example/interactions"
        check = (await found(place))[3]
        assert (check.name, check.finding) == ("interactions", CheckStatus.BROKEN)
        assert "https://old.example/interactions" in check.detail
        assert "Interactions Endpoint URL" in check.fix


async def test_missing_permissions_are_named_with_their_purpose() -> None:
    async with connected_bot(listening=False) as place:
        everyone = place.discord.guild.everyone
        everyone.permissions &= ~(Permission.CREATE_PUBLIC_THREADS | Permission.ATTACH_FILES)
        check = next(each for each in await found(place) if each.name == "server Acme")
        assert check.finding is CheckStatus.DOUBTFUL
        assert "Create Public Threads: without it the bot answers in the channel itself" in check.detail
        assert "Attach Files" in check.detail
        assert invite_link(place.discord.app.id) in check.fix
        everyone.permissions &= ~Permission.SEND_MESSAGES
        again = next(each for each in await found(place, UserDirectory(place.rest)) if each.name == "server Acme")
        assert again.finding is CheckStatus.BROKEN


async def test_an_administrator_lacks_nothing() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.guild.everyone.permissions = Permission(0)
        place.discord.bot_role.permissions = Permission.ADMINISTRATOR
        check = next(each for each in await found(place) if each.name == "server Acme")
        assert check.finding is CheckStatus.WELL


async def test_a_server_that_is_to_be_served_and_has_no_bot_gets_an_invitation() -> None:
    async with connected_bot(listening=False) as place:
        people = UserDirectory(place.rest, frozenset({place.discord.guild.id, "99"}))
        check = next(each for each in await found(place, people) if each.name == "servers")
        assert check.finding is CheckStatus.BROKEN
        assert check.detail == "The bot is not in 99."
        assert invite_link(place.discord.app.id) in check.fix


async def test_commands_that_discord_does_not_know_are_named() -> None:
    async with connected_bot(listening=False) as place:
        check = (await found(place))[-1]
        assert (check.name, check.finding) == ("commands", CheckStatus.DOUBTFUL)
        assert "/mcp" in check.detail


async def test_a_wrong_token_is_all_there_is_to_say() -> None:
    async with connected_bot(listening=False) as place, Rest("wrong", url=place.discord.url) as rest:
        checks = [check async for check in diagnose(rest, UserDirectory(rest))]
        assert summary(checks) == [("token", CheckStatus.BROKEN)]
        assert "DISCORD_TOKEN" in checks[0].fix


async def test_trouble_on_the_way_is_said_and_not_raised() -> None:
    async with connected_bot(listening=False) as place:
        place.discord.fail("GET /users/@me/guilds", Answers(403))
        check = (await found(place))[-1]
        assert (check.name, check.finding) == ("servers", CheckStatus.BROKEN)


def test_the_invitation_asks_for_exactly_the_used_permissions() -> None:
    query = parse_qs(urlsplit(invite_link("123")).query)
    assert query == {
        "client_id": ["123"],
        "scope": ["bot applications.commands"],
        "permissions": [str(permission_integer())],
    }
    assert permission_integer() == sum({permission.value for permission in PERMISSIONS})
    assert {Permission(permission.value).name for permission in PERMISSIONS} == {
        "VIEW_CHANNEL",
        "SEND_MESSAGES",
        "SEND_MESSAGES_IN_THREADS",
        "CREATE_PUBLIC_THREADS",
        "READ_MESSAGE_HISTORY",
        "ATTACH_FILES",
        "EMBED_LINKS",
    }
