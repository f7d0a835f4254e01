"""Catalogues: `locales/<language>/LC_MESSAGES/countersign.po`, one folder for each language besides English.

A catalogue is read on first use (about 50 ms for 3,000 texts) and kept. Names of languages are BCP 47 tags, such as
`ja` and `pt-BR`; folders have the names of locales, such as `pt_BR`.
"""

from __future__ import annotations

import gettext
import io
from functools import cache
from pathlib import Path

from babel import Locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

DEFAULT_LANGUAGE = "en"
"""The language of the texts in the code."""

LOCALES = Path(__file__).with_name("locales")


def catalog_path(language: str) -> Path:
    """Return where the catalogue of a language is."""
    return LOCALES / language.replace("-", "_") / "LC_MESSAGES" / "countersign.po"


@cache
def installed_languages() -> tuple[str, ...]:
    """Return the tags of all languages, English first."""
    folders = (path.parts[-3] for path in sorted(LOCALES.glob("*/LC_MESSAGES/countersign.po")))
    return (DEFAULT_LANGUAGE, *(folder.replace("_", "-") for folder in folders))


def resolve_language(tag: str | None) -> str | None:
    """Return the installed language for a tag or locale such as `ja-JP` and `ja_JP.UTF-8`, None if there is none."""
    wanted = (tag or "").split(".")[0].split("@")[0].replace("_", "-").lower()
    by_tag = {language.lower(): language for language in installed_languages()}
    while wanted:
        if wanted in by_tag:
            return by_tag[wanted]
        wanted = wanted.rpartition("-")[0]
    return None


def language_name(language: str) -> str:
    """Return the name of a language in that language: `日本語`."""
    return Locale.parse(language, sep="-").get_display_name() or language


@cache
def translations(language: str) -> gettext.NullTranslations:
    """Return the translations of an installed language; English for any other."""
    if language == DEFAULT_LANGUAGE or language not in installed_languages():
        return gettext.NullTranslations()
    return _read_catalog(catalog_path(language), language)


@cache
def _read_catalog(path: Path, language: str) -> gettext.NullTranslations:
    with path.open("rb") as file:
        catalog = read_po(file, locale=language.replace("-", "_"))
    compiled = io.BytesIO()
    write_mo(compiled, catalog)
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)
