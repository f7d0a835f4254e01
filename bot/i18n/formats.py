"""Numbers, dates, times and lists in the current language and time zone. Epoch times are in seconds.

English is that of international readers: `31 Aug 2026`. All languages have the 24-hour clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from babel import Locale, dates, lists, numbers

from bot.i18n.catalogs import DEFAULT_LANGUAGE
from bot.i18n.context import current_language, current_time_zone


def _locale() -> str:
    language = current_language()
    return "en_001" if language == DEFAULT_LANGUAGE else language.replace("-", "_")


def format_number(number: float) -> str:
    """Format a number with the separators of the language: `12,345.5`."""
    if isinstance(number, int) and 0 <= number < 1000:
        return str(number)
    return numbers.format_decimal(number, locale=_locale())


def format_date(moment: float | date) -> str:
    """Format a day: `31 Aug 2026`."""
    day = moment if isinstance(moment, date) else datetime.fromtimestamp(moment, current_time_zone()).date()
    return dates.format_date(day, "medium", locale=_locale())


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
