"""User lookups: fresh for decisions, cached for display, empty rights for unknown users."""

from __future__ import annotations

import asyncio

import pytest

from bot.chat.users import TTL_SECONDS
from bot.domain.conversations import Author
from bot.domain.locales import Locale
from bot.platforms.discord.users import UserDirectory
from tests.fakes.discord import Fails, Permission
from tests.platforms.discord.connected_bot import ConnectedBot

MEMBER = "GET /guilds/{guild}/members/{user}"
GUILD = "GET /guilds/{guild}"


async def test_rights_are_those_of_the_server(worker: ConnectedBot) -> None:
    discord, server = worker.discord, worker.discord.guild.id
    managers = discord.role("managers", permissions=Permission.MANAGE_GUILD)
    people = {
        "admin": discord.user("Ada", admin=True),
        "owner": discord.user("Olga", owner=True),
        "manager": discord.user("Mia", managers),
        "member": discord.user("Mo"),
        "new": discord.user("Ned", managers, pending=True),
        "silenced": discord.user("Sid", managers),
        "stranger": discord.user("Stella", stranger=True),
        "bot": discord.other_bot("Alerts"),
    }
    discord.time_out(people["silenced"], 600)
    members = {name: await worker.people.member(user.id, server) for name, user in people.items()}
    assert {name for name, each in members.items() if each.platform_admin} == {"admin", "owner", "manager"}
    assert {name for name, each in members.items() if each.external} == {"new", "silenced", "stranger", "bot"}
    assert members["manager"].roles == {f"discord-role:{managers.id}"}
    assert not any(member.guest for member in members.values())


async def test_a_right_that_was_taken_away_is_gone_at_the_next_decision(worker: ConnectedBot) -> None:
    approvers = worker.discord.role("approvers", worker.priya, permissions=Permission.MANAGE_GUILD)
    author = Author("discord", worker.priya.id, "Priya")
    before = await worker.surface.member(author, worker.key(worker.channel))
    assert before.roles == {f"discord-role:{approvers.id}"}
    assert before.platform_admin
    worker.discord.take(worker.priya, approvers)
    after = await worker.surface.member(author, worker.key(worker.channel))
    assert after.roles == frozenset()
    assert not after.platform_admin


async def test_a_role_that_lost_its_rights_gives_none_at_the_next_decision(worker: ConnectedBot) -> None:
    managers = worker.discord.role("managers", worker.priya, permissions=Permission.MANAGE_GUILD)
    assert (await worker.people.member(worker.priya.id, worker.discord.guild.id)).platform_admin
    managers.permissions = Permission(0)
    assert not (await worker.people.member(worker.priya.id, worker.discord.guild.id)).platform_admin


async def test_no_member_of_an_unserved_server_has_any_rights(worker: ConnectedBot) -> None:
    elsewhere = worker.discord.another_guild("Other")
    ada = worker.discord.user("Ada", admin=True, guild=elsewhere)
    people = UserDirectory(worker.rest, frozenset({worker.discord.guild.id}))
    member = await people.member(ada.id, elsewhere.id)
    assert member.external
    assert not member.platform_admin
    assert await people.servers() == (worker.discord.guild.id,)


async def test_names_are_those_of_the_server_and_asked_for_once_in_five_minutes_however_many_want_them(
    worker: ConnectedBot,
) -> None:
    now, server = [0.0], worker.discord.guild.id
    worker.discord.guild.members[worker.priya.id].nick = "Pri"
    people = UserDirectory(worker.rest, clock=lambda: now[0])
    assert people.cached_name(worker.priya.id, server) == worker.priya.id
    results = await asyncio.gather(*(people.person(worker.priya.id, server) for _ in range(10)))
    assert {person.name for person in results} == {"Pri"}
    assert people.cached_name(worker.priya.id, server) == "Pri"
    assert len(worker.discord.calls.of(MEMBER)) == len(worker.discord.calls.of(GUILD)) == 1
    now[0] += TTL_SECONDS
    await people.person(worker.priya.id, server)
    assert len(worker.discord.calls.of(MEMBER)) == 2


async def test_roles_have_names(worker: ConnectedBot) -> None:
    role = worker.discord.role("approvers")
    assert await worker.people.role_name(role.id, worker.discord.guild.id) == "approvers"
    assert await worker.people.role_name("1", worker.discord.guild.id) == ""


async def test_a_direct_conversation_belongs_to_the_first_served_server_the_person_is_a_member_of(
    worker: ConnectedBot,
) -> None:
    second = worker.discord.another_guild("Second")
    lee = worker.discord.user("Lee", guild=second)
    worker.discord.join(worker.priya, second)
    stranger = worker.discord.user("Stella", stranger=True)
    assert await worker.people.home_of(worker.priya.id) == worker.discord.guild.id
    assert await worker.people.home_of(lee.id) == second.id
    assert await worker.people.home_of(stranger.id) == ""
    only_second = UserDirectory(worker.rest, frozenset({second.id}))
    assert await only_second.home_of(worker.priya.id) == second.id


async def test_a_server_that_sent_the_bot_away_is_nobodys_home(worker: ConnectedBot) -> None:
    second = worker.discord.another_guild("Second")
    lee = worker.discord.user("Lee", guild=second)
    worker.discord.fail(MEMBER, Fails(50001))
    assert await worker.people.home_of(lee.id) == second.id


@pytest.mark.parametrize(("features", "language"), [(["COMMUNITY"], "ja"), ([], "en")])
async def test_only_a_community_has_chosen_its_language(
    worker: ConnectedBot, features: list[str], language: str
) -> None:
    worker.discord.guild.features += features
    worker.discord.guild.locale = "ja"
    async with worker.running():
        worker.discord.say(worker.priya, worker.channel, f"{worker.discord.bot.mention} hello")
        await worker.wait_for_messages(1)
    (message,) = worker.engine.received
    assert message.locale.language == language


async def test_the_language_of_a_user_is_that_of_the_last_interaction_in_any_server(worker: ConnectedBot) -> None:
    server = worker.discord.guild.id
    assert (await worker.people.member(worker.priya.id, server)).language is None
    worker.people.remember_language(worker.priya.id, "ja")
    assert (await worker.people.member(worker.priya.id, server)).language == "ja"
    assert (await worker.people.cached_member(worker.priya.id, server)).language == "ja"
    assert worker.people.locale(worker.priya.id) == Locale("ja")
    assert worker.people.locale("404") == Locale()
