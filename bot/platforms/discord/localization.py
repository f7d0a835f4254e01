"""Translations of the application commands, which Discord shows to each user in the language of their client.

Names of commands and options are typed, so they are the same in all languages.
"""

from __future__ import annotations

from typing import Any

import discord
from discord import app_commands

from bot.i18n import DEFAULT_LANGUAGE, LazyText, resolve_language, use_language
from bot.rendering.text_safety import single_line

_TEXT, _LIMIT = "text", "limit"


def localized(text: str, limit: int) -> app_commands.locale_str:
    """Return a text of at most `limit` characters for a registration, with its translations if it has any."""
    with use_language(DEFAULT_LANGUAGE):
        english = single_line(text, limit)
    return app_commands.locale_str(english, **{_TEXT: text, _LIMIT: limit})


class CommandTranslator(app_commands.Translator):
    """Translates the texts of `localized` into all installed languages."""

    async def translate(
        self,
        string: app_commands.locale_str,
        locale: discord.Locale,
        context: app_commands.TranslationContextTypes,  # noqa: ARG002 - a text has one translation everywhere
    ) -> str | None:
        """Return a text in the language of a locale, None for English and for a language that is not installed."""
        language, extras = resolve_language(locale.value), dict[str, Any](string.extras)
        text = extras.get(_TEXT)
        if language is None or language == DEFAULT_LANGUAGE or not isinstance(text, LazyText):
            return None
        with use_language(language):
            return single_line(text, extras[_LIMIT])
