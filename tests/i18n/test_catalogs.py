"""Every text that people see is in every catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po

from bot.i18n import DEFAULT_LANGUAGE, installed_languages
from bot.i18n.catalogs import catalog_path
from tests.i18n.extraction import ROOT, marked_texts, placeholders, texts_in_f_strings, unmarked_texts

LANGUAGES = [language for language in installed_languages() if language != DEFAULT_LANGUAGE]

NOT_FOR_PEOPLE = {
    "bot/i18n": "the markers themselves",
    "bot/llm": "prompts and answers of models",
    "bot/logs.py": "the log",
    "bot/storage": "SQL, and errors for the log",
}
"""Folders and files without texts for people, each with a reason."""

NOT_YET = ("bot",)

NO_TEXTS: dict[str, frozenset[str]] = {}
"""Literals that look like texts and are none, by file."""


def read_catalog(language: str) -> Catalog:
    with catalog_path(language).open("rb") as file:
        return read_po(file, locale=language.replace("-", "_"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_has_exactly_the_texts_of_the_code(language: str) -> None:
    texts = {message.id if isinstance(message.id, str) else tuple(message.id) for message in read_catalog(language)}
    texts.discard("")
    marked = marked_texts()
    assert sorted(map(str, marked - texts)) == [], "run `make catalogs` and translate these"
    assert sorted(map(str, texts - marked)) == [], "run `make catalogs`: the code lacks these"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated_with_the_same_values(language: str) -> None:
    faults = [f"{message.id}: {fault}" for message in read_catalog(language) if (fault := _fault(message))]
    assert faults == []


def _fault(message: Message) -> str:
    if message.id == "":
        return ""
    if message.fuzzy:
        return "marked as fuzzy"
    english = [message.id] if isinstance(message.id, str) else list(message.id)
    translated = [message.string] if isinstance(message.string, str) else list(message.string or ())
    if not all(translated):
        return "not translated"
    wanted = placeholders(english[-1])
    wrong = [text for text in translated if placeholders(text) != wanted]
    return f"has not the values {sorted(wanted)}" if wrong else ""


def test_no_text_for_people_is_outside_the_catalogues() -> None:
    unmarked = [
        f"{name}:{line}: {text}"
        for path in sorted((ROOT / "bot").rglob("*.py"))
        if not _is_exempt(name := path.relative_to(ROOT).as_posix())
        for line, text in unmarked_texts(path)
        if text not in NO_TEXTS.get(name, ())
    ]
    assert unmarked == [], "mark them with bot.i18n, or list them in NO_TEXTS if people never see them"


def test_no_marked_text_is_inside_an_f_string() -> None:
    hidden = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "bot").rglob("*.py"))
        for line, text in texts_in_f_strings(path)
    ]
    assert hidden == [], "no catalogue gets these: give them a name before the f-string"


def _is_exempt(name: str) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in (*NOT_FOR_PEOPLE, *NOT_YET))


def test_the_files_without_texts_exist() -> None:
    assert [name for name in (*NOT_FOR_PEOPLE, *NO_TEXTS) if not Path(ROOT, name).exists()] == []
