"""A language in which every translated text is in ⟦brackets⟧: text outside of brackets is not translated.

It is installed like any other language, as a folder with a catalogue.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from bot.i18n import languages

PSEUDO_LANGUAGE = "eo"
_TRANSLATED = re.compile(r"⟦[^⟦⟧]*⟧")
_WORD = re.compile(r"[A-Za-z]{2,}")


@pytest.fixture(scope="session")
def pseudo_locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of catalogues with the pseudo-language beside the others, made once in a run."""
    locales = tmp_path_factory.mktemp("pseudo") / "locales"
    shutil.copytree(languages.LOCALES, locales)
    _write_catalog(locales)
    return locales


@pytest.fixture
def pseudo_language(pseudo_locales: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install the pseudo-language beside the others, and return its tag."""
    monkeypatch.setattr(languages, "LOCALES", pseudo_locales)
    _clear_caches()
    yield PSEUDO_LANGUAGE
    monkeypatch.undo()
    _clear_caches()


def untranslated_words(text: str) -> list[str]:
    """Return the English words of a shown text that are outside of translated texts."""
    while (rest := _TRANSLATED.sub(" ", text)) != text:
        text = rest
    return _WORD.findall(text)


def _write_catalog(locales: Path) -> None:
    with languages.catalog_path("ja").open("rb") as file:
        messages = read_po(file, locale="ja")
    catalog = Catalog(locale=PSEUDO_LANGUAGE)
    for message in messages:
        if not message.id:
            continue
        forms = [message.id] if isinstance(message.id, str) else list(message.id)
        marked = [f"⟦{form}⟧" for form in forms]
        catalog.add(message.id, marked[0] if isinstance(message.id, str) else marked, context=message.context)
    path = locales / PSEUDO_LANGUAGE / "LC_MESSAGES" / "countersign.po"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        write_po(file, catalog)


def _clear_caches() -> None:
    languages.installed_languages.cache_clear()
    languages.resolve_language.cache_clear()
    languages.translations.cache_clear()
