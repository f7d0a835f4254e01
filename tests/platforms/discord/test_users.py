"""User lookups: fresh for decisions, cached for display, empty rights for unknown users."""

from __future__ import annotations

import asyncio

import pytest

from bot.chat.users import TTL_SECONDS
from bot.domain.conversations import Author
from bot.domain.locales import Locale
from bot.platforms.discord.users import UserDirectory
from tests.fakes.discord import Fails, Permission
from tests.platforms.discord.connected_bot import connected_bot

MEMBER = "GET /guilds/{guild}/members/{user}"
GUILD = "GET /guilds/{guild}"


async def test_rights_are_those_of_the_server() -> None:
    async with connected_bot(listening=False) as place:
        discord, server = place.discord, place.discord.guild.id
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
        members = {name: await place.people.member(user.id, server) for name, user in people.items()}
        assert {name for name, each in members.items() if each.platform_admin} == {"admin", "owner", "manager"}
        assert {name for name, each in members.items() if each.external} == {"new", "silenced", "stranger", "bot"}
        assert members["manager"].roles == {f"discord-role:{managers.id}"}
        assert not any(member.guest for member in members.values())


async def test_a_right_that_was_taken_away_is_gone_at_the_next_decision() -> None:
    async with connected_bot(listening=False) as place:
        approvers = place.discord.role("approvers", place.priya, permissions=Permission.MANAGE_GUILD)
        author = Author("discord", place.priya.id, "Priya")
        before = await place.surface.member(author, place.key(place.channel))
        assert before.roles == {f"discord-role:{approvers.id}"}
        assert before.platform_admin
        place.discord.take(place.priya, approvers)
        after = await place.surface.member(author, place.key(place.channel))
        assert after.roles == frozenset()
        assert not after.platform_admin


async def test_a_role_that_lost_its_rights_gives_none_at_the_next_decision() -> None:
    async with connected_bot(listening=False) as place:
        managers = place.discord.role("managers", place.priya, permissions=Permission.MANAGE_GUILD)
        assert (await place.people.member(place.priya.id, place.discord.guild.id)).platform_admin
        managers.permissions = Permission(0)
        assert not (await place.people.member(place.priya.id, place.discord.guild.id)).platform_admin


async def test_no_member_of_an_unserved_server_has_any_rights() -> None:
    async with connected_bot(listening=False) as place:
        elsewhere = place.discord.another_guild("Other")
        ada = place.discord.user("Ada", admin=True, guild=elsewhere)
        people = UserDirectory(place.rest, frozenset({place.discord.guild.id}))
        member = await people.member(ada.id, elsewhere.id)
        assert member.external
        assert not member.platform_admin
        assert await people.servers() == (place.discord.guild.id,)


async def test_names_are_those_of_the_server_and_asked_for_once_in_five_minutes_however_many_want_them() -> None:
    async with connected_bot(listening=False) as place:
        now, server = [0.0], place.discord.guild.id
        place.discord.guild.members[place.priya.id].nick = "Pri"
        people = UserDirectory(place.rest, clock=lambda: now[0])
        assert people.cached_name(place.priya.id, server) == place.priya.id
        results = await asyncio.gather(*(people.person(place.priya.id, server) for _ in range(10)))
        assert {person.name for person in results} == {"Pri"}
        assert people.cached_name(place.priya.id, server) == "Pri"
        assert len(place.discord.calls.of(MEMBER)) == len(place.discord.calls.of(GUILD)) == 1
        now[0] += TTL_SECONDS
        await people.person(place.priya.id, server)
        assert len(place.discord.calls.of(MEMBER)) == 2


async def test_roles_have_names() -> None:
    async with connected_bot(listening=False) as place:
        role = place.discord.role("approvers")
        assert await place.people.role_name(role.id, place.discord.guild.id) == "approvers"
        assert await place.people.role_name("1", place.discord.guild.id) == ""


async def test_a_direct_conversation_belongs_to_the_first_served_server_the_person_is_a_member_of() -> None:
    async with connected_bot(listening=False) as place:
        second = place.discord.another_guild("Second")
        lee = place.discord.user("Lee", guild=second)
        place.discord.join(place.priya, second)
        stranger = place.discord.user("Stella", stranger=True)
        assert await place.people.home_of(place.priya.id) == place.discord.guild.id
        assert await place.people.home_of(lee.id) == second.id
        assert await place.people.home_of(stranger.id) == ""
        only_second = UserDirectory(place.rest, frozenset({second.id}))
        assert await only_second.home_of(place.priya.id) == second.id


async def test_a_server_that_sent_the_bot_away_is_nobodys_home() -> None:
    async with connected_bot(listening=False) as place:
        second = place.discord.another_guild("Second")
        lee = place.discord.user("Lee", guild=second)
        place.discord.fail(MEMBER, Fails(50001))
        assert await place.people.home_of(lee.id) == second.id


@pytest.mark.parametrize(("features", "language"), [(["COMMUNITY"], "ja"), ([], "en")])
async def test_only_a_community_has_chosen_its_language(features: list[str], language: str) -> None:
    async with connected_bot(listening=False) as place:
        place.discord.guild.features += features
        place.discord.guild.locale = "ja"
        async with place.running():
            place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} hello")
            await place.received(1)
        (message,) = place.engine.received
        assert message.locale.language == language


async def test_the_language_of_a_user_is_that_of_the_last_interaction_in_any_server() -> None:
    async with connected_bot(listening=False) as place:
        server = place.discord.guild.id
        assert (await place.people.member(place.priya.id, server)).language is None
        place.people.remember_language(place.priya.id, "ja")
        assert (await place.people.member(place.priya.id, server)).language == "ja"
        assert (await place.people.cached_member(place.priya.id, server)).language == "ja"
        assert place.people.locale(place.priya.id) == Locale("ja")
        assert place.people.locale("404") == Locale()
