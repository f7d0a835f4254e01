"""Languages and time zones of a team, on every chat platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.admin.registry import CommandRegistry
from bot.chat import turn_messages as chat_turns
from bot.chat.turn_messages import turn_messages
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.locales import Locale
from bot.domain.profiles import Profile
from bot.domain.turns import TurnInput, TurnView
from bot.engine.engine import Engine
from bot.engine.locales import LocaleResolver
from bot.i18n import current_language, current_time_zone
from tests.admin.memory_stores import MemoryLocales
from tests.admin.servers import CommandHarness
from tests.fakes.parts import say
from tests.stories.team import Talk, Team

SETTINGS = Locale("ja", "UTC")


class SpeakingCommands(CommandRegistry):
    """Commands that record the language and the time zone in which they answer."""

    def __init__(self) -> None:
        super().__init__(CommandHarness().parts)
        self.spoken: list[tuple[str, str]] = []

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        self.spoken.append((current_language(), str(current_time_zone())))
        async for answer in super().handle(request):
            yield answer


async def question(team: Team, engine: Engine, talk: Talk) -> TurnInput:
    """The input of the turn in answer to a message, once it is answered."""
    await team.until(lambda: any("Done." in team.words(message) for message in team.messages(talk)))
    (view,) = await engine.recent_turns(team.conversation(talk), 1)
    return view.turn.question


async def test_a_turn_has_the_locales_of_its_author_and_of_the_place(team: Team) -> None:
    profile = Profile("p1", "support", language="en")
    team.locales = LocaleResolver(SETTINGS, lambda _conversation: profile)
    team.model.script = [say("Done."), say("Done.")]
    team.commands = commands = SpeakingCommands()
    team.localize(team.priya, "ja", "Asia/Tokyo")
    async with team.at_work() as engine:
        await team.command(team.priya, "mcp list")  # Discord tells the language of users with their interactions only
        await team.until(lambda: commands.spoken)
        zone = "Asia/Tokyo" if team.tells_time_zones else "UTC"
        asked = await question(team, engine, team.ask("What is new?"))
        assert (asked.author_locale, asked.locale) == (Locale("ja", zone), Locale("en", zone))
        directly = await question(team, engine, team.ask_directly("And now?"))
        assert (directly.author_locale, directly.locale) == (Locale("ja", zone), Locale("ja", zone))


async def test_users_whose_platform_tells_nothing_have_the_locale_of_the_settings(team: Team) -> None:
    team.locales = LocaleResolver(Locale("ja", "Asia/Tokyo"))
    team.model.script = [say("Done.")]
    team.localize(team.sam, "", "")
    async with team.at_work() as engine:
        asked = await question(team, engine, team.ask("What is new?", by=team.sam))
        assert asked.author_locale == asked.locale == Locale("ja", "Asia/Tokyo")


async def test_a_private_reply_is_in_the_language_of_its_reader(team: Team) -> None:
    commands = SpeakingCommands()
    team.commands = commands
    team.locales = LocaleResolver(SETTINGS)
    team.localize(team.priya, "en", "America/New_York")
    async with team.at_work():
        await team.command(team.priya, "mcp list")
        await team.until(lambda: commands.spoken)
        zone = "America/New_York" if team.tells_time_zones else "UTC"
        assert commands.spoken == [("en", zone)]


async def test_a_turn_is_shown_in_the_language_and_the_time_zone_of_its_place(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: set[tuple[str, str]] = set()

    def compose(view: TurnView, *args: Any, **options: Any) -> Any:
        shown.add((current_language(), str(current_time_zone())))
        return turn_messages(view, *args, **options)

    monkeypatch.setattr(chat_turns, "turn_messages", compose)
    profile = Profile("p1", "support", language="en", time_zone="Europe/Berlin")
    team.locales = LocaleResolver(SETTINGS, lambda _conversation: profile)
    team.model.script = [say("Done.")]
    async with team.at_work() as engine:
        await question(team, engine, team.ask("What is new?"))
    assert shown == {("en", "Europe/Berlin")}


async def test_a_time_zone_that_a_user_has_chosen_counts_for_their_questions(team: Team) -> None:
    store = MemoryLocales()
    harness = CommandHarness(locales=store)
    team.commands = CommandRegistry(harness.parts)
    team.locales = LocaleResolver(Locale("en", "UTC"), store=store)
    team.model.script = [say("Done.")]
    async with team.at_work() as engine:
        await team.command(team.priya, "preferences set")
        await team.fill_in(team.priya, {"Time zone": "Asia/Tokyo"})
        await team.until(lambda: store.entries)
        asked = await question(team, engine, team.ask("What is new today?"))
        assert asked.author_locale.time_zone == asked.locale.time_zone == "Asia/Tokyo"


async def test_a_language_that_only_interactions_tell_is_known_after_a_restart(team: Team) -> None:
    store = MemoryLocales()
    team.locales = LocaleResolver(Locale("en", "UTC"), store=store)
    team.model.script = [say("Done.")]
    team.localize(team.priya, "ja", "Asia/Tokyo")
    team.commands = commands = SpeakingCommands()
    async with team.at_work():
        await team.command(team.priya, "mcp list")
        await team.until(lambda: commands.spoken and (team.tells_time_zones or store.entries))
    async with team.at_work() as engine:
        asked = await question(team, engine, team.ask("What is new?"))
        assert asked.author_locale.language == "ja"
