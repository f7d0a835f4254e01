"""Whose language and time zone count: those of the viewer in private, those of the place in shared views."""

from __future__ import annotations

from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.profiles import Profile
from bot.engine.locales import LocaleResolver

HALL = ConversationKey("slack", "T1", "C1", "1.0")
AKI = Locale("ja-JP", "Asia/Tokyo")
COMMUNITY = Locale("fr")
SETTINGS = Locale("en", "America/New_York")


def resolver(language: str = "", time_zone: str = "") -> LocaleResolver:
    profile = Profile("p1", "support", language=language, time_zone=time_zone)
    return LocaleResolver(SETTINGS, lambda _conversation: profile)


def test_a_private_view_has_the_users_own_then_the_places_then_the_settings() -> None:
    assert resolver("de", "Europe/Berlin").for_user(AKI, HALL, COMMUNITY) == AKI
    assert resolver("de", "Europe/Berlin").for_user(UNKNOWN, HALL, COMMUNITY) == Locale("de", "Europe/Berlin")
    assert resolver().for_user(UNKNOWN, HALL, COMMUNITY) == Locale("fr", "America/New_York")
    assert resolver().for_user(Locale("ja"), None) == Locale("ja", "America/New_York")


def test_a_shared_view_has_the_profiles_then_the_places_then_the_settings() -> None:
    assert resolver("de", "Europe/Berlin").for_conversation(AKI, HALL, COMMUNITY) == Locale("de", "Europe/Berlin")
    assert resolver("de").for_conversation(AKI, HALL, COMMUNITY) == Locale("de", "Asia/Tokyo")
    assert resolver().for_conversation(AKI, HALL, COMMUNITY) == Locale("fr", "Asia/Tokyo")
    assert resolver().for_conversation(UNKNOWN, HALL) == SETTINGS


def test_in_a_direct_conversation_the_users_own_is_first() -> None:
    assert resolver("de", "Europe/Berlin").for_conversation(AKI, HALL, direct=True) == AKI


def test_a_message_carries_both() -> None:
    aki = Author("slack", "U1", "Aki")
    member = Member(aki, language="ja-JP", time_zone="Asia/Tokyo")
    message = resolver("de").with_locales(InboundMessage(("k",), HALL, aki, "Hello."), member)
    assert (message.locale, message.author_locale) == (Locale("de", "Asia/Tokyo"), AKI)
