"""Languages: the texts that people see, in the language of the person or of the place.

A text for people is written in English where it is used and marked for the catalogues:

    _("Approved by {name}", name=author.name)                translated now, into the current language
    ngettext("{n} call", "{n} calls", n)                     by the plural rules of the language; `n` is a value
    pgettext("policy", "ask")                                a short word that needs a context
    gettext_lazy("The server {name} is off.", name=slug)     translated when it is shown
    join_lazy(cause, advice)                                 sentences, translated when they are shown
    english(text)                                            the English of a lazy text, for a model or a row

Values go in by name, so that a translation can place them; they are never parsed as a format. Module constants, and
errors that are raised below the chat, take `gettext_lazy`, `ngettext_lazy` and `pgettext_lazy`. Classes such as `Verb`
take plain literals: `PLACES` of `scripts/extract_texts.py` names their arguments. Texts for models, logs and the audit
log stay English and are not marked.

The current language and time zone belong to the running task: `with use_language("ja"):`. The chat layer, the web
application and the terminal set them for each viewer. Outside of them texts are English and times are in UTC.

Catalogues: `locales/<language>/LC_MESSAGES/countersign.po`. `make catalogs` brings them up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar, cast

from bot.i18n.languages import (
    DEFAULT_LANGUAGE,
    current_language,
    current_time_zone,
    format_alternatives,
    format_date,
    format_datetime,
    format_list,
    format_number,
    format_time,
    format_time_zone,
    installed_languages,
    language_name,
    resolve_language,
    script_name,
    translations,
    use_language,
    use_time_zone,
    weekdays,
)

_FULL_STOPS = ".。"
T = TypeVar("T")


def gettext(message: str, /, **values: object) -> str:
    """Translate a text and put in its values. A LazyText is translated with its own values."""
    if isinstance(message, LazyText):
        return str(message)
    text = translations(current_language()).gettext(message) if message else ""
    return text.format(**values) if values else text


def ngettext(singular: str, plural: str, n: int, /, **values: object) -> str:
    """Translate a text with a count, by the plural rules of the language. `{n}` is the formatted count."""
    text = translations(current_language()).ngettext(singular, plural, n)
    return text.format(n=format_number(n), **values)


def pgettext(context: str, message: str, /, **values: object) -> str:
    """Translate a text that needs a context, such as a single word."""
    text = translations(current_language()).pgettext(context, message)
    return text.format(**values) if values else text


def format_enumeration(items: Iterable[str]) -> str:
    """Format a list without a word before its last item: `a, b, c`."""
    text = ""
    for item in items:
        text = pgettext("enumeration", "{items}, {item}", items=text, item=item) if text else str(item)
    return text


class LazyText(str):
    """A text that is translated when it is shown: by `str(text)`, in an f-string, by `+`, and by `gettext(text)`.

    Its raw value is the English text with its values: comparisons, JSON and stored rows have that. Values that are
    texts for people are lazy, too.
    """

    __slots__ = ("context", "is_clause", "message", "plural", "values")
    context: str
    message: str
    plural: str
    values: dict[str, object]
    is_clause: bool
    """The full stop is left out."""

    def __new__(  # noqa: D102 - the class says it
        cls, message: str, plural: str, values: dict[str, object], context: str = "", *, is_clause: bool = False
    ) -> LazyText:
        english = message
        if values:
            with use_language(DEFAULT_LANGUAGE):
                english = _translate(message, plural, values, context)
        text = super().__new__(cls, english.rstrip(_FULL_STOPS) if is_clause else english)
        text.message, text.plural, text.values, text.context = message, plural, values, context
        text.is_clause = is_clause
        return text

    def __str__(self) -> str:
        text = _translate(self.message, self.plural, self.values, self.context)
        return text.rstrip(_FULL_STOPS) if self.is_clause else text

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)

    @property
    def english(self) -> str:
        """The raw value as a plain string."""
        return self[:]

    def map(self, change: Callable[[str], str]) -> LazyText:
        """Return the text with each value that is a text changed: redacted, for example."""
        values = {name: change(value) if isinstance(value, str) else value for name, value in self.values.items()}
        return LazyText(self.message, self.plural, values, self.context, is_clause=self.is_clause)

    def as_clause(self) -> LazyText:
        """Return the text without its full stop, as a part of a sentence."""
        return LazyText(self.message, self.plural, self.values, self.context, is_clause=True)

    def __getnewargs_ex__(self) -> tuple[tuple[str, str, dict[str, object], str], dict[str, bool]]:
        return (self.message, self.plural, self.values, self.context), {"is_clause": self.is_clause}


def gettext_lazy(message: str, /, **values: object) -> LazyText:
    """Mark a text for the catalogues, to be translated when it is shown."""
    return LazyText(message, "", values)


def ngettext_lazy(singular: str, plural: str, n: int, /, **values: object) -> LazyText:
    """Mark a text with a count for the catalogues, to be translated when it is shown. `{n}` is the formatted count."""
    return LazyText(singular, plural, {"n": n, **values})


def pgettext_lazy(context: str, message: str, /, **values: object) -> LazyText:
    """Mark a text that needs a context, to be translated when it is shown."""
    return LazyText(message, "", values, context)


def make_lazy(texts: T, /, **values: object) -> T:
    """Return literals so that they are translated when they are shown: one, or a tuple of them. Empty texts and lazy
    ones stay.
    """
    lazy: object = texts
    if isinstance(texts, tuple):
        lazy = tuple(make_lazy(text, **values) for text in texts)
    elif isinstance(texts, str) and texts and not isinstance(texts, LazyText):
        lazy = gettext_lazy(texts, **values)
    return cast("T", lazy)


class LazyFields:
    """Base of a dataclass whose fields in `TEXTS` take literals, and make them lazy. None of them holds text from
    outside.
    """

    __slots__ = ()
    TEXTS: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for name in self.TEXTS:
            object.__setattr__(self, name, make_lazy(getattr(self, name)))


def english(text: str) -> str:
    """Return the English of a lazy text, for a model or a row; any other text as it is."""
    return text.english if isinstance(text, LazyText) else text


def join_lazy(*texts: str) -> LazyText:
    """Join sentences, without empty ones, to be translated when they are shown."""
    values: dict[str, object] = {f"sentence{number}": text for number, text in enumerate(filter(None, texts), start=1)}
    return LazyText(" ".join(f"{{{name}}}" for name in values), "", values)


def in_all_languages(text: LazyText) -> frozenset[str]:
    """Return a text in every installed language, to recognize it where it was written in another one."""
    texts: set[str] = set()
    for language in installed_languages():
        with use_language(language):
            texts.add(str(text))
    return frozenset(texts)


def _translate(message: str, plural: str, values: dict[str, object], context: str) -> str:
    if context:
        return pgettext(context, message, **values)
    if not plural:
        return gettext(message, **values)
    count = values["n"]
    assert isinstance(count, int)
    return ngettext(message, plural, count, **{name: value for name, value in values.items() if name != "n"})


_ = gettext

__all__ = [
    "DEFAULT_LANGUAGE",
    "LazyFields",
    "LazyText",
    "_",
    "current_language",
    "current_time_zone",
    "english",
    "format_alternatives",
    "format_date",
    "format_datetime",
    "format_enumeration",
    "format_list",
    "format_number",
    "format_time",
    "format_time_zone",
    "gettext",
    "gettext_lazy",
    "in_all_languages",
    "installed_languages",
    "join_lazy",
    "language_name",
    "make_lazy",
    "ngettext",
    "ngettext_lazy",
    "pgettext",
    "pgettext_lazy",
    "resolve_language",
    "script_name",
    "use_language",
    "use_time_zone",
    "weekdays",
]
