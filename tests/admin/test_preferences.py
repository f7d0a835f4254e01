"""`/preferences`: a user's own language and time zone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.commands import Invocation, Reply
from bot.domain.conversations import CONSOLE, Author, Member
from bot.domain.locales import Locale, UserLocale, use_locale
from tests.admin.servers import GUEST, CommandHarness, command_harness
from tests.fakes.parts import HALL

AKI = replace(GUEST, language="ja-JP", time_zone="Asia/Tokyo")
WHO = GUEST.author.principal


@pytest.fixture
def held() -> CommandHarness:
    return command_harness()


async def test_everybody_sees_their_language_and_time_zone_and_where_they_come_from(held: CommandHarness) -> None:
    for line in ("preferences", "preferences show"):
        reply = await held.ask(line, GUEST)
        assert dict(reply.details) == {
            "language": "English (en), of this place or of the bot",
            "time zone": "UTC, of this place or of the bot",
            "local time": "2027-01-15 08:00:00",
        }
    with use_locale(Locale("", "Asia/Tokyo")):
        reply = await held.ask("preferences", AKI)
    assert dict(reply.details)["language"] == "English (en), from your account"
    assert dict(reply.details)["time zone"] == "Asia/Tokyo, from your account"
    assert dict(reply.details)["local time"] == "2027-01-15 17:00:00"


async def test_preferences_are_stored_shown_and_deleted_without_an_entry_in_the_audit(held: CommandHarness) -> None:
    reply = await held.ask("preferences set --timezone europe/berlin", GUEST)
    assert dict(reply.details)["time zone"] == "Europe/Berlin, chosen by you"
    assert dict(reply.details)["local time"] == "2027-01-15 09:00:00"
    await held.ask("preferences set --language ja", GUEST)
    assert held.locales.entries == {WHO: UserLocale(Locale("ja", "Europe/Berlin"))}
    shown = await held.ask("preferences", GUEST)
    assert shown.data is not None
    assert shown.data["chosen"] == {"language": "ja", "timeZone": "Europe/Berlin"}
    assert [action.words for action in shown.actions] == [("preferences", "set"), ("preferences", "clear")]
    assert not (await held.ask("preferences clear", GUEST)).failed
    assert held.locales.entries[WHO].chosen == Locale()
    assert held.store.audit == []


async def test_the_reply_to_a_choice_is_in_the_chosen_language(held: CommandHarness) -> None:
    reply = await held.ask("preferences set --language ja --timezone Asia/Tokyo", GUEST)
    assert "日本語 (ja)" in dict(reply.details)["言語"]


async def test_a_wrong_time_zone_leads_to_close_ones_and_changes_nothing(held: CommandHarness) -> None:
    reply = await held.ask("preferences set --timezone Tokio --language ja", GUEST)
    assert reply.failed
    assert dict(reply.details) == {"--timezone": "There is no such time zone. Did you mean Asia/Tokyo?"}
    assert held.locales.entries == {}
    assert (await held.ask("preferences set --language tlh", GUEST)).failed


async def test_a_form_asks_for_both_and_corrects_errors(held: CommandHarness) -> None:
    await held.ask("preferences set --timezone UTC", GUEST)
    form = await held.form("preferences set", GUEST)
    assert {field.name: field.value for field in form.fields} == {"language": "", "timezone": "UTC"}
    again = await held.next_form(form, {"language": "ja", "timezone": "Tokio"}, GUEST)
    assert [field.name for field in again.fields if field.error] == ["timezone"]
    await held.reply_to(again, {"language": "ja", "timezone": ""}, GUEST)
    assert held.locales.entries[WHO].chosen == Locale("ja")


async def test_in_a_terminal_the_environment_says_it(held: CommandHarness) -> None:
    person = Member(Author(CONSOLE, "ana", "ana"), platform_admin=True)
    for words in (("set", "--timezone", "UTC"), ("show",), ("clear",)):
        invocation = Invocation("preferences", words, person, HALL)
        (reply,) = [answer async for answer in held.registry.handle(invocation)]
        assert isinstance(reply, Reply)
        assert (reply.failed, "`TZ`" in reply.text) == (True, True)
    assert held.locales.entries == {}


async def test_time_zones_are_completed(held: CommandHarness) -> None:
    completed = held.registry.complete("preferences set --timezone Asia/Tok", HALL)
    assert [line.rpartition(" ")[2].strip("'") for line in completed] in (["Asia/Tokyo"], ["'Asia/Tokyo"])
