"""The language and the time zone in which the running task speaks to its viewer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from bot.i18n.catalogs import DEFAULT_LANGUAGE, resolve_language

_language: ContextVar[str] = ContextVar("language", default=DEFAULT_LANGUAGE)
_time_zone: ContextVar[tzinfo] = ContextVar("time_zone", default=UTC)


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
