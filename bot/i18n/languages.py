"""Installed languages with their catalogues, the language of the running task, and its numbers, dates and lists.

Catalogues: `locales/<language>/LC_MESSAGES/countersign.po`, one folder for each language besides English. One is read
on first use (about 50 ms for 3,000 texts) and kept. Names of languages are BCP 47 tags, such as `ja` and `pt-BR`;
folders have the names of locales, such as `pt_BR`.

Formats of English are those of international readers: `31 Aug 2026`. All languages have the 24-hour clock. Times are in
epoch seconds.
"""

from __future__ import annotations

import gettext
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, tzinfo
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

# The library fails to load for a TZ such as "Asia". It is asked about named zones only, so it need not see TZ.
_machine_zone = os.environ.pop("TZ", None)
try:
    from babel import Locale, dates, lists, numbers
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po
finally:
    if _machine_zone is not None:
        os.environ["TZ"] = _machine_zone

DEFAULT_LANGUAGE = "en"
"""The language of the texts in the code."""

LOCALES = Path(__file__).with_name("locales")
_language: ContextVar[str] = ContextVar("language", default=DEFAULT_LANGUAGE)
_time_zone: ContextVar[tzinfo] = ContextVar("time_zone", default=UTC)


def catalog_path(language: str) -> Path:
    """Return where the catalogue of a language is."""
    return LOCALES / language.replace("-", "_") / "LC_MESSAGES" / "countersign.po"


@cache
def installed_languages() -> tuple[str, ...]:
    """Return the tags of all languages, English first."""
    folders = (path.parts[-3] for path in sorted(LOCALES.glob("*/LC_MESSAGES/countersign.po")))
    return (DEFAULT_LANGUAGE, *(folder.replace("_", "-") for folder in folders))


@lru_cache(maxsize=256)
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


def current_language() -> str:
    """Return the language of the running task."""
    return _language.get()


def current_time_zone() -> tzinfo:
    """Return the time zone of the running task."""
    return _time_zone.get()


@contextmanager
def use_language(tag: str | None) -> Iterator[None]:
    """Speak this language inside the block: the installed one for a tag such as `ja-JP`, else English. None changes
    nothing.
    """
    if tag is None:
        yield
        return
    token = _language.set(resolve_language(tag) or DEFAULT_LANGUAGE)
    try:
        yield
    finally:
        _language.reset(token)


@contextmanager
def use_time_zone(zone: str | tzinfo | None) -> Iterator[None]:
    """Show times in this zone inside the block. None changes nothing. Raises ZoneInfoNotFoundError, ValueError."""
    if zone is None:
        yield
        return
    token = _time_zone.set(ZoneInfo(zone) if isinstance(zone, str) else zone)
    try:
        yield
    finally:
        _time_zone.reset(token)


def _locale() -> str:
    language = current_language()
    return "en_001" if language == DEFAULT_LANGUAGE else language.replace("-", "_")


def format_number(number: float) -> str:
    """Format a number with the separators of the language: `12,345.5`."""
    if isinstance(number, int) and 0 <= number < 1000:
        return str(number)
    return numbers.format_decimal(number, locale=_locale())


def format_date(moment: float | date, style: Literal["medium", "full"] = "medium") -> str:
    """Format a day: `31 Aug 2026`, with the weekday if it is `full`."""
    day = moment if isinstance(moment, date) else datetime.fromtimestamp(moment, current_time_zone()).date()
    return dates.format_date(day, style, locale=_locale())


def weekdays() -> dict[str, int]:
    """Return the numbers of the weekdays by their names in English and in the language, Monday first."""
    numbers_by_name: dict[str, int] = {}
    for locale in ("en", _locale()):
        for width in ("wide", "abbreviated"):
            names = dates.get_day_names(width, locale=locale)
            numbers_by_name |= {name.casefold(): number for number, name in names.items()}
    return numbers_by_name


def format_time(moment: float) -> str:
    """Format a time of day: `17:00`."""
    return dates.format_skeleton("Hm", datetime.fromtimestamp(moment, current_time_zone()), locale=_locale())


def format_time_zone() -> str:
    """Return the name of the time zone: `Asia/Tokyo`, `UTC`."""
    return str(current_time_zone())


def format_datetime(moment: float) -> str:
    """Format a day with its time: `31 Aug 2026, 17:00`."""
    pattern = str(dates.get_datetime_format("medium", locale=_locale())).replace("'", "")
    return pattern.replace("{0}", format_time(moment)).replace("{1}", format_date(moment))


def format_list(items: Sequence[str]) -> str:
    """Format a list with the word of the language before its last item: `a, b and c`."""
    return lists.format_list(list(items), locale=_locale())


def format_alternatives(items: Sequence[str]) -> str:
    """Format alternatives: `a, b or c`."""
    return lists.format_list(list(items), "or", locale=_locale())


def script_name(code: str) -> str:
    """Return the name of a script by its code of ISO 15924: `Cyrillic` for `Cyrl`."""
    names = (Locale.parse(locale).scripts.get(code) for locale in (_locale(), DEFAULT_LANGUAGE))
    return next(filter(None, names), code)
