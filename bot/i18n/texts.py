"""Texts in the current language, translated now (`gettext`, `ngettext`, `pgettext`) or when shown (`LazyText`)."""

from __future__ import annotations

from bot.i18n.catalogs import DEFAULT_LANGUAGE, installed_languages, translations
from bot.i18n.context import current_language, use_language
from bot.i18n.formats import format_number


def gettext(message: str, /, **values: object) -> str:
    """Translate a text and put in its values. A LazyText is translated with its own values."""
    if isinstance(message, LazyText):
        return str(message)
    text = translations(current_language()).gettext(message)
    return text.format(**values) if values else text


def ngettext(singular: str, plural: str, n: int, /, **values: object) -> str:
    """Translate a text with a count, by the plural rules of the language. `{n}` is the formatted count."""
    text = translations(current_language()).ngettext(singular, plural, n)
    return text.format(n=format_number(n), **values)


def pgettext(context: str, message: str, /, **values: object) -> str:
    """Translate a text whose meaning needs a context, such as a single word."""
    text = translations(current_language()).pgettext(context, message)
    return text.format(**values) if values else text


class LazyText(str):
    """A text that is translated when it is shown: by `str(text)`, in an f-string, by `+`, and by `gettext(text)`.

    Its raw value is the English text with its values: comparisons, JSON and stored rows have that. Values that are
    texts for people are lazy, too.
    """

    __slots__ = ("context", "message", "plural", "values")
    context: str
    message: str
    plural: str
    values: dict[str, object]

    def __new__(  # noqa: D102 - the class says it
        cls, message: str, plural: str, values: dict[str, object], context: str = ""
    ) -> LazyText:
        with use_language(DEFAULT_LANGUAGE):
            text = super().__new__(cls, _translate(message, plural, values, context))
        text.message, text.plural, text.values, text.context = message, plural, values, context
        return text

    def __str__(self) -> str:
        return _translate(self.message, self.plural, self.values, self.context)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)

    def __getnewargs__(self) -> tuple[str, str, dict[str, object], str]:  # type: ignore[override]
        return self.message, self.plural, self.values, self.context


def gettext_lazy(message: str, /, **values: object) -> LazyText:
    """Mark a text for the catalogues, to be translated when it is shown."""
    return LazyText(message, "", values)


def ngettext_lazy(singular: str, plural: str, n: int, /, **values: object) -> LazyText:
    """Mark a text with a count for the catalogues, to be translated when it is shown. `{n}` is the formatted count."""
    return LazyText(singular, plural, {"n": n, **values})


def pgettext_lazy(context: str, message: str, /, **values: object) -> LazyText:
    """Mark a text whose meaning needs a context, to be translated when it is shown."""
    return LazyText(message, "", values, context)


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
