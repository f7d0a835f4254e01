"""Language and time zone of a task, and the format of its texts, dates and numbers."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle

import pytest

from bot.i18n import (
    LazyText,
    _,
    current_language,
    english,
    format_date,
    format_datetime,
    format_enumeration,
    format_list,
    format_number,
    format_time,
    gettext_lazy,
    installed_languages,
    join_lazy,
    language_name,
    ngettext,
    pgettext,
    pgettext_lazy,
    resolve_language,
    use_language,
    use_time_zone,
)
from tests.i18n.pseudo_language import PSEUDO_LANGUAGE

AUTUMN = 1_793_000_000.0  # 2026-10-26, 07:33:20 in UTC


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("ja", "ja"),
        ("ja-JP", "ja"),
        ("ja_JP.UTF-8", "ja"),
        ("JA", "ja"),
        ("en-GB", "en"),
        ("en_US.UTF-8@euro", "en"),
        ("tlh", None),
        ("C.UTF-8", None),
        ("", None),
        (None, None),
    ],
)
def test_a_locale_of_a_platform_selects_an_installed_language(tag: str | None, language: str | None) -> None:
    assert resolve_language(tag) == language


def test_languages_are_named_in_themselves() -> None:
    names = [language_name(language) for language in installed_languages()]
    assert names[:2] == ["English", "日本語"]


async def test_a_task_keeps_its_language_beside_a_task_with_another() -> None:
    both_inside = asyncio.Barrier(2)

    async def speak(tag: str) -> str:
        with use_language(tag):
            await both_inside.wait()
            return current_language()

    assert list(await asyncio.gather(speak("ja"), speak("en"))) == ["ja", "en"]
    assert current_language() == "en"


def test_a_language_that_is_not_installed_is_english() -> None:
    with use_language("ja"), use_language("tlh"):
        assert current_language() == "en"
    with use_language("ja"), use_language(None):
        assert current_language() == "ja"


def test_values_are_never_read_as_a_format() -> None:
    assert _("by {name}", name="{secret.__class__} {0}") == "by {secret.__class__} {0}"
    assert _("a JSON {} without values") == "a JSON {} without values"


@pytest.mark.usefixtures("pseudo_language")
def test_a_lazy_text_is_translated_when_it_is_shown_and_english_in_rows() -> None:
    text = gettext_lazy("just now")
    with use_language(PSEUDO_LANGUAGE):
        assert str(text) == "⟦just now⟧"
        assert f"{text}: x" == "⟦just now⟧: x"
        assert text + ": x" == "⟦just now⟧: x"
        assert "x: " + text == "x: ⟦just now⟧"
        assert _(text) == "⟦just now⟧"
        assert json.dumps(text) == '"just now"'
        assert text == "just now"
    assert str(text) == "just now"


def test_a_lazy_text_can_be_copied_with_its_values() -> None:
    text = gettext_lazy("by {name}", name="Ada")
    for same in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert isinstance(same, LazyText)
        assert same == "by Ada"
        assert same.message == "by {name}"
        assert same.values == {"name": "Ada"}


def test_counts_follow_the_plural_rules_and_the_separators() -> None:
    assert ngettext("{n} call", "{n} calls", 1) == "1 call"
    assert ngettext("{n} call", "{n} calls", 12345) == "12,345 calls"
    assert pgettext("policy", "ask") == "ask"


def test_a_word_with_a_context_is_translated_by_it() -> None:
    text = pgettext_lazy("heading", "in")
    with use_language("ja"):
        assert str(copy.deepcopy(text)) == str(text) == pgettext("heading", "in") != "in"
    assert text == "in"


def test_dates_and_numbers_follow_the_language_and_the_zone() -> None:
    assert format_datetime(AUTUMN) == "26 Oct 2026, 07:33"
    with use_language("ja"), use_time_zone("Asia/Tokyo"):
        assert format_datetime(AUTUMN) == "2026/10/26 16:33"
        assert format_date(AUTUMN) == "2026/10/26"
        assert format_time(AUTUMN) == "16:33"
        assert format_number(1234567) == "1,234,567"
        assert format_list(["a", "b", "c"]) == format_enumeration(["a", "b", "c"]) == "a、b、c"
    assert format_list(["a", "b", "c"]) == "a, b and c"
    assert format_enumeration(iter(["a", "b", "c"])) == "a, b, c"
    assert format_enumeration([]) == ""


def test_a_time_zone_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError), use_time_zone("Asia/Atlantis"):
        pass


@pytest.mark.usefixtures("pseudo_language")
def test_sentences_are_joined_and_changed_before_their_language_is_known() -> None:
    cause = gettext_lazy("Server {server} is disabled.", server="secret-of-s")
    text = join_lazy(cause, "", gettext_lazy("just now"))
    redacted = text.map(lambda value: value.map(str.upper) if isinstance(value, LazyText) else value)
    clause = gettext_lazy("just now").as_clause()
    with use_language(PSEUDO_LANGUAGE):
        assert str(redacted) == "⟦Server SECRET-OF-S is disabled.⟧ ⟦just now⟧"
        assert english(redacted) == "Server SECRET-OF-S is disabled. just now"
        assert english("any other") == "any other"
        assert str(copy.deepcopy(clause)) == "⟦just now⟧"
    with use_language("ja"):
        assert str(cause) == "サーバー secret-of-s は無効です。"
        assert str(pickle.loads(pickle.dumps(cause.as_clause()))) == "サーバー secret-of-s は無効です"
    assert cause.as_clause() == "Server secret-of-s is disabled"
    assert join_lazy() == ""
