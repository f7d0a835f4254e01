"""A team that reads and presses Japanese, for stories in English.

The catalogue translates texts for the team back into English, and pressed labels into Japanese. A story that passes for
it shows that the same texts are shown, each in Japanese.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import pytest
from babel.messages.pofile import read_po

from bot.domain.locales import Locale
from bot.engine.locales import LocaleResolver
from bot.i18n import gettext, use_language
from bot.i18n.languages import catalog_path
from tests.stories.team import PATIENCE, Team


@pytest.fixture(params=["en", pytest.param("ja", marks=pytest.mark.long)], name="language")
def both_languages(request: pytest.FixtureRequest) -> str:
    """The languages of a module with stories in both."""
    return str(request.param)


if TYPE_CHECKING:
    from tests.stories.slack_team import SlackTeam as _AnyTeam
else:
    _AnyTeam = Team

JAPANESE = Locale("ja", "UTC")
_VALUE, _LAST_VALUE = r"[^\n]*?", r"[^·\n]*"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def speak_japanese(team: Team) -> Team:
    """Return the team with a Japanese workspace, Japanese people, and texts as its stories expect them."""
    kind = type(team)
    team.__class__ = type(f"Japanese{kind.__name__}", (JapaneseTeam, kind), {})
    team.locales = LocaleResolver(JAPANESE)
    for person in (team.priya, team.sam):
        team.localize(person, "ja", "UTC")
    return team


class JapaneseTeam(_AnyTeam):
    """The team with translated labels and texts."""

    def person(self, name: str, *, admin: bool = False) -> Any:
        person = super().person(name, admin=admin)
        self.localize(person, "ja", "UTC")
        return person

    def stranger(self, name: str) -> Any:
        stranger = super().stranger(name)
        self.localize(stranger, "ja", "UTC")
        return stranger

    async def press(self, person: Any, message: Any, label: str, *, old: Any = None) -> None:
        shown = super().buttons(message)
        same = (one for one in shown if any(each.startswith(label) for each in english_labels(one)))
        await super().press(person, message, next(same, japanese(label)), old=old)

    async def press_opened(self, person: Any, label: str) -> None:
        await super().press_opened(person, japanese(label))

    async def fill_in(self, person: Any, fields: Mapping[str, str]) -> None:
        await super().fill_in(
            person, {japanese(name) if name[:1].isupper() else name: value for name, value in fields.items()}
        )

    def label(self, english: str) -> str:
        return japanese(english)

    async def sees(self, person: Any, label: str, seconds: float = PATIENCE) -> Any:
        return await super().sees(person, english_labels(label)[0], seconds)

    def words(self, message: Any) -> str:
        return english(super().words(message))

    def buttons(self, message: Any) -> list[str]:
        return [english_labels(label)[0] for label in super().buttons(message)]

    def private_replies(self, person: Any) -> list[str]:
        return [english(text) for text in super().private_replies(person)]

    def sent_text(self) -> str:
        return english(super().sent_text())

    def last_private_reply(self, person: Any) -> str:
        return english(super().last_private_reply(person))


def japanese(label: str) -> str:
    """Translate a label; one that is in Japanese already, or a name, stays."""
    with use_language("ja"):
        return gettext(label)


@lru_cache(maxsize=10_000)
def english_labels(label: str) -> tuple[str, ...]:
    """Return the labels of which this one is the translation, capitals and short ones first; a name stays."""
    labels = [
        _filled_message(text, found)
        for literal, pattern, texts in _patterns()
        if literal in label and (found := pattern.fullmatch(label)) is not None
        for text in texts
    ]
    return tuple(sorted(labels, key=lambda text: (not text[:1].isupper(), len(text), text))) or (label,)


@lru_cache(maxsize=10_000)
def english(text: str) -> str:
    """Translate every Japanese text of the catalogue within a text back, the longest first. Where several English texts
    have one translation, all are there.
    """
    for literal, pattern, texts in _patterns():
        if literal in text and len(_NOT_ASCII.findall(literal)) > 1:
            text = pattern.sub(partial(_all_filled, texts), text)
    return text.replace("。", ".")


def _all_filled(messages: tuple[str, ...], found: re.Match[str]) -> str:
    return " / ".join(_filled_message(message, found) for message in messages)


def _filled_message(message: str, found: re.Match[str]) -> str:
    values = {name: english(value) if _NOT_ASCII.search(value) else value for name, value in found.groupdict().items()}
    return message.format(**values) if values else message


@cache
def _patterns() -> list[tuple[str, re.Pattern[str], tuple[str, ...]]]:
    """Return the longest fixed part, the pattern and the English texts of each translation, the longest first."""
    with catalog_path("ja").open("rb") as file:
        messages = [message for message in read_po(file, locale="ja") if message.id]
    originals: dict[str, list[str]] = {}
    for message in messages:
        for form in [message.string] if isinstance(message.string, str) else message.string or []:
            originals.setdefault(form, []).append(message.id if isinstance(message.id, str) else message.id[-1])
    parts_of = {translation: _parts(translation) for translation in originals}
    longest = {text: max((literal.strip() for literal, _ in parts), key=len) for text, parts in parts_of.items()}
    by_length = sorted(parts_of, key=lambda text: -sum(len(literal) for literal, _ in parts_of[text]))
    return [
        (longest[text], _pattern(parts_of[text]), tuple(dict.fromkeys(originals[text])))
        for text in by_length
        if _NOT_ASCII.search(longest[text])
    ]


def _parts(text: str) -> list[tuple[str, str | None]]:
    """Return the fixed parts of a text, each with the name of the value after it. Not every brace is one of a value."""
    try:
        parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    except ValueError:
        return [(text, None)]
    return parts if all(name is None or name.isidentifier() for _, name in parts) else [(text, None)]


def _pattern(parts: list[tuple[str, str | None]]) -> re.Pattern[str]:
    """A mention or a link beside a fixed part is on a line of its own, or is not read at all."""
    written, seen = "", set[str]()
    for position, (literal, name) in enumerate(parts):
        written += (
            r"\s*".join(map(re.escape, filter(None, re.split(r"(?:^\s+|\s+$)", literal)))) if literal.strip() else ""
        )
        if name is not None:
            value = _LAST_VALUE if position == len(parts) - 1 else _VALUE
            written += rf"\s*(?P={name})\s*" if name in seen else rf"\s*(?P<{name}>{value})\s*"
            seen.add(name)
    return re.compile(written)
