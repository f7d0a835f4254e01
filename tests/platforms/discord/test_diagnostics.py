"""Checks of Discord by `countersign doctor`, with cause and fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

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
from tests.fakes.discord import Answers, FakeDiscord, Permission
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


async def run_checks(place: ConnectedBot, people: UserDirectory | None = None) -> list[Check]:
    return [check async for check in diagnose(place.rest, people or place.people)]


def summary(checks: list[Check]) -> list[tuple[str, CheckStatus]]:
    return [(check.name, check.finding) for check in checks]


async def test_a_complete_setup_reports_user_and_places_without_a_connection(worker: ConnectedBot) -> None:
    worker.discord.app.public = False
    known = [{"name": name, "description": "What it does", "type": 1} for name in COMMANDS]
    app = worker.discord.app.id
    await worker.rest.call("PUT", "/applications/{app_id}/commands", "register", body=known, app_id=app)
    checks = await run_checks(worker)
    assert summary(checks) == [
        ("token", CheckStatus.WELL),
        ("message content", CheckStatus.WELL),
        ("invitations", CheckStatus.WELL),
        ("servers", CheckStatus.WELL),
        ("server Acme", CheckStatus.WELL),
        ("commands", CheckStatus.WELL),
    ]
    assert worker.discord.app.id in checks[0].detail
    assert checks[1].detail == READS_ALL
    assert not worker.discord.gateway.identify_count
    assert worker.discord.token not in str(checks)


def _take(*permissions: Permission) -> Callable[[FakeDiscord], None]:
    def change(discord: FakeDiscord) -> None:
        for permission in permissions:
            discord.guild.everyone.permissions &= ~permission

    return change


def _make_administrator(discord: FakeDiscord) -> None:
    discord.guild.everyone.permissions = Permission(0)
    discord.bot_role.permissions = Permission.ADMINISTRATOR


@pytest.mark.parametrize(
    ("change", "name", "finding", "detail", "fix"),
    [
        (lambda _discord: None, "invitations", CheckStatus.DOUBTFUL, "Every Discord user", "Public Bot"),
        (lambda _discord: None, "commands", CheckStatus.DOUBTFUL, "/mcp", "start the bot once"),
        (
            lambda discord: setattr(discord.app, "endpoint", "https://old.example/interactions"),
            "interactions",
            CheckStatus.BROKEN,
            "https://old.example/interactions",
            "Interactions Endpoint URL",
        ),
        (
            _take(Permission.CREATE_PUBLIC_THREADS, Permission.ATTACH_FILES),
            "server Acme",
            CheckStatus.DOUBTFUL,
            "Create Public Threads: without it the bot answers in the channel itself .*; Attach Files",
            "https://discord.com/oauth2/authorize",
        ),
        (_take(Permission.SEND_MESSAGES), "server Acme", CheckStatus.BROKEN, "Send Messages", "invite it again"),
        (_make_administrator, "server Acme", CheckStatus.WELL, "what it needs", ""),
        (lambda discord: discord.fail("GET /users/@me/guilds", Answers(403)), "servers", CheckStatus.BROKEN, ".", ""),
    ],
    ids=["public", "commands", "endpoint", "fewer rights", "too few rights", "administrator", "an error"],
)
async def test_what_may_be_wrong_is_found(
    change: Callable[[FakeDiscord], None], name: str, finding: CheckStatus, detail: str, fix: str
) -> None:
    async with connected_bot(listening=False) as place:
        change(place.discord)
        check = next(check for check in await run_checks(place) if check.name == name)
    assert check.finding is finding
    assert re.search(detail, check.detail)
    assert fix in check.fix


async def test_without_the_message_content_intent_it_lists_the_remaining_features() -> None:
    async with connected_bot(listening=False, message_content=False) as place:
        check = (await run_checks(place))[1]
    assert check.finding is CheckStatus.DOUBTFUL
    assert "mention" in check.detail
    assert "Message Content Intent" in check.fix


async def test_named_servers_are_looked_for_and_a_public_bot_is_well_with_them(worker: ConnectedBot) -> None:
    people = UserDirectory(worker.rest, frozenset({worker.discord.guild.id, "99"}))
    checks = {check.name: check for check in await run_checks(worker, people)}
    assert checks["invitations"].finding is CheckStatus.WELL
    assert (checks["servers"].finding, checks["servers"].detail) == (CheckStatus.BROKEN, "The bot is not in 99.")
    assert invite_link(worker.discord.app.id) in checks["servers"].fix


async def test_a_wrong_token_is_all_there_is_to_say() -> None:
    async with connected_bot(listening=False) as place, Rest("wrong", url=place.discord.url) as rest:
        checks = [check async for check in diagnose(rest, UserDirectory(rest))]
        assert summary(checks) == [("token", CheckStatus.BROKEN)]
        assert "DISCORD_TOKEN" in checks[0].fix


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
