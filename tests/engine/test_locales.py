"""Language and time zone of views: the viewer's in private, the conversation's in shared views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale, use_locale
from bot.domain.profiles import Profile
from bot.domain.turns import TurnStatus
from bot.engine.locales import LocaleResolver
from bot.i18n import current_language, current_time_zone, format_time
from tests.admin.memory_stores import MemoryLocales
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import message, running

HALL = ConversationKey("slack", "T1", "C1", "1.0")
AKI, BEN = Author("slack", "U1", "Aki"), Author("slack", "U2", "Ben")
TOLD = Locale("ja-JP", "Asia/Tokyo")
OWN = Locale("ja", "Asia/Tokyo")
JAPANESE = Locale("ja")
SETTINGS = Locale("en", "America/New_York")


def resolver(language: str = "", time_zone: str = "", default: Locale = SETTINGS) -> LocaleResolver:
    profile = Profile("p1", "support", language=language, time_zone=time_zone)
    return LocaleResolver(default, lambda _conversation: profile)


async def test_a_private_view_has_the_users_own_then_the_places_then_the_settings() -> None:
    assert await resolver("en", "Europe/Berlin").for_user(AKI, TOLD, HALL, JAPANESE) == OWN
    assert await resolver("ja", "Europe/Berlin").for_user(AKI, UNKNOWN, HALL) == Locale("ja", "Europe/Berlin")
    assert await resolver().for_user(AKI, UNKNOWN, HALL, JAPANESE) == Locale("ja", "America/New_York")
    assert await resolver("ja").for_user(AKI, UNKNOWN, None) == SETTINGS


async def test_a_shared_view_has_the_profiles_then_the_places_then_the_settings() -> None:
    assert resolver("en", "Europe/Berlin").for_place(HALL, OWN, JAPANESE) == Locale("en", "Europe/Berlin")
    assert resolver("en").for_place(HALL, OWN, JAPANESE) == Locale("en", "Asia/Tokyo")
    assert resolver().for_place(HALL, OWN, JAPANESE) == Locale("ja", "Asia/Tokyo")
    assert resolver().for_place(HALL, OWN) == Locale("en", "Asia/Tokyo")
    assert resolver().for_place(HALL) == SETTINGS


async def test_a_language_without_texts_counts_for_nothing() -> None:
    klingon = Locale("tlh", "Europe/Berlin")
    assert await resolver("ja").for_user(AKI, klingon, HALL) == Locale("ja", "Europe/Berlin")
    assert resolver("tlh").for_place(HALL, OWN, JAPANESE) == OWN


async def test_a_users_preference_wins_over_the_locale_of_the_platform() -> None:
    store = MemoryLocales()
    await store.choose("slack:U1", Locale("en"))
    chosen = LocaleResolver(SETTINGS, store=store)
    assert await chosen.for_user(AKI, TOLD, HALL) == Locale("en", "Asia/Tokyo")
    assert await chosen.for_user(BEN, TOLD, HALL) == OWN


async def test_a_language_that_a_client_has_told_counts_while_the_platform_says_none() -> None:
    told = LocaleResolver(SETTINGS, store=MemoryLocales())
    await told.remember(AKI, "ja")
    assert await told.for_user(AKI, UNKNOWN, HALL) == Locale("ja", "America/New_York")
    assert await told.for_user(AKI, Locale("en-US"), HALL) == SETTINGS


async def test_no_turn_waits_for_preferences_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.engine.locales.STORED_SECONDS", 0.01)
    for store in (MemoryLocales(away=True), MemoryLocales(seconds=60)):
        away = LocaleResolver(SETTINGS, store=store)
        assert await away.for_user(AKI, TOLD, HALL) == OWN
    await LocaleResolver(SETTINGS, store=MemoryLocales(away=True)).remember(AKI, "ja")


async def test_a_message_carries_the_locales_of_its_place_and_its_author() -> None:
    member = Member(AKI, language="ja-JP", time_zone="Asia/Tokyo")
    message = InboundMessage(("k",), HALL, AKI, "Hello.")
    shared = await resolver("en").with_locales(message, member)
    assert (shared.locale, shared.author_locale) == (Locale("en", "Asia/Tokyo"), OWN)
    direct = await resolver("en", "UTC").with_locales(message, member, direct=True)
    assert (direct.locale, direct.author_locale) == (OWN, OWN)


def test_a_locale_is_in_use_inside_a_block() -> None:
    with use_locale(TOLD):
        assert (current_language(), str(current_time_zone()), format_time(0)) == ("ja", "Asia/Tokyo", "9:00")
        with use_locale(UNKNOWN):
            assert (current_language(), str(current_time_zone())) == ("ja", "Asia/Tokyo")
    assert (current_language(), format_time(0)) == ("en", "00:00")


async def test_the_reason_of_a_failure_is_in_the_language_of_the_conversation(harness: EngineHarness) -> None:
    harness.model.script = [RuntimeError("a bug"), RuntimeError("a bug")]
    failures = []
    engine = harness.engine()
    async with running(engine):
        for language in ("ja", "en"):
            asked = replace(message(f"Well, {language}?"), locale=Locale(language, "UTC"))
            view = await harness.surface.wait_for_end((await engine.receive(asked)).turn_id)
            assert view.turn.status is TurnStatus.FAILED
            failures.append(view.turn.failure)
    japanese, english = failures
    assert "Something broke on my end" in english
    assert "Something" not in japanese
    assert not japanese.isascii()
