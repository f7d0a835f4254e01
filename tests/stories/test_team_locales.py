"""Languages and time zones of a team, on every chat platform."""

from __future__ import annotations

from bot.commands.registry import CommandRegistry
from bot.domain.locales import Locale
from bot.domain.profiles import Profile
from bot.domain.turns import TurnInput
from bot.engine.engine import Engine
from bot.engine.locales import LocaleResolver
from tests.commands.servers import CommandHarness
from tests.fakes.parts import say
from tests.stories.team import Talk, Team

SETTINGS = Locale("en", "UTC")


async def question(team: Team, engine: Engine, talk: Talk) -> TurnInput:
    """The input of the turn in answer to a message, once it is answered."""
    await team.until(lambda: any("Done." in team.words(message) for message in team.messages(talk)))
    (view,) = await engine.recent_turns(team.conversation(talk), 1)
    return view.turn.question


async def test_a_turn_has_the_locales_of_its_author_and_of_the_place(team: Team) -> None:
    profile = Profile("p1", "support", language="de", time_zone="")
    team.locales = LocaleResolver(SETTINGS, lambda _conversation: profile)
    team.model.script = [say("Done."), say("Done.")]
    team.commands = CommandRegistry(CommandHarness().parts)
    team.localize(team.priya, "ja", "Asia/Tokyo")
    async with team.at_work() as engine:
        await team.command(team.priya, "mcp list")  # Discord tells the language of users with their interactions only
        await team.until(lambda: "No servers" in team.sent())
        zone = "Asia/Tokyo" if team.tells_time_zones else "UTC"
        asked = await question(team, engine, team.ask("What is new?"))
        assert (asked.author_locale, asked.locale) == (Locale("ja", zone), Locale("de", zone))
        directly = await question(team, engine, team.ask_directly("And now?"))
        assert (directly.author_locale, directly.locale) == (Locale("ja", zone), Locale("ja", zone))


async def test_users_whose_platform_tells_nothing_have_the_locale_of_the_settings(team: Team) -> None:
    team.locales = LocaleResolver(Locale("ja", "Asia/Tokyo"))
    team.model.script = [say("Done.")]
    team.localize(team.sam, "", "")
    async with team.at_work() as engine:
        asked = await question(team, engine, team.ask("What is new?", by=team.sam))
        assert asked.author_locale == asked.locale == Locale("ja", "Asia/Tokyo")
