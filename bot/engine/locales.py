"""Language and time zone of a reader or a place.

Private views (ephemeral replies, direct conversations, forms, lists) have the user's own, else those of the place, else
those of the settings. Shared views of a channel have those of the channel's profile, else those of the place as its
platform says them, else those of the settings. Their times have the asker's time zone where neither the profile nor the
place has one. A language without a catalogue counts for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale, UserLocale
from bot.domain.profiles import DEFAULT, Profile
from bot.errors import DatabaseError
from bot.i18n import resolve_language
from bot.ports import LocaleStore
from bot.ports.platform import UserLocales

STORED_SECONDS = 0.5
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocaleResolver:
    """Resolves locales. `default` is that of the settings. `profile_of` returns the profile of a conversation. `store`
    holds the choices of users; it may be missing.
    """

    default: Locale = Locale("en", "UTC")
    profile_of: Callable[[ConversationKey], Profile] = lambda _conversation: DEFAULT
    store: LocaleStore | None = None

    async def for_user(
        self, user: Author, told: Locale, conversation: ConversationKey | None, place: Locale = UNKNOWN
    ) -> Locale:
        """Return the locale of texts for one user alone. `told` is the user's and `place` the conversation's, as the
        platform says them.
        """
        return self._complete(await self._own_locale(user, told), conversation, place)

    async def for_reader(self, surface: object, user: Author, conversation: ConversationKey) -> Locale:
        """Return the locale of texts for one user of a surface alone."""
        told = await surface.user_locale(user.id, conversation) if isinstance(surface, UserLocales) else UNKNOWN
        return await self.for_user(user, told, conversation)

    def for_place(self, conversation: ConversationKey, asker: Locale = UNKNOWN, place: Locale = UNKNOWN) -> Locale:
        """Return the locale of texts for all users of a conversation. `asker` is that of the turn's author."""
        shared = _installed(self.profile_of(conversation).locale).or_else(_installed(place))
        return shared.or_else(Locale(time_zone=asker.time_zone)).or_else(self.default)

    async def with_locales(
        self, message: InboundMessage, member: Member, place: Locale = UNKNOWN, *, direct: bool = False
    ) -> InboundMessage:
        """Return a message of this member with the locales of its conversation and its author. In a `direct` one they
        are the same.
        """
        own = await self._own_locale(member.author, member.locale)
        return self.with_known(message, self._complete(own, message.conversation, place), place, direct=direct)

    def with_known(self, message: InboundMessage, own: Locale, place: Locale, *, direct: bool) -> InboundMessage:
        """As `with_locales`, with the result of `for_user` for its author."""
        shared = own if direct else self.for_place(message.conversation, own, place)
        return replace(message, locale=shared, author_locale=own)

    async def remember(self, user: Author, language: str) -> None:
        """Store the language that a user's client has told, for times at which it tells none."""
        if self.store is None or not language:
            return
        try:
            await self.store.remember(user.principal, language)
        except DatabaseError as error:
            log.debug("language of a user not stored: %s", error)

    def _complete(self, own: Locale, conversation: ConversationKey | None, place: Locale) -> Locale:
        profile = self.profile_of(conversation).locale if conversation is not None else UNKNOWN
        return own.or_else(_installed(profile)).or_else(_installed(place)).or_else(self.default)

    async def _own_locale(self, user: Author, told: Locale) -> Locale:
        """Return the choice of a user, else `told`. Preferences are not read while the database is away or slow,
        because users wait.
        """
        stored = UserLocale()
        if self.store is not None:
            try:
                async with asyncio.timeout(STORED_SECONDS):
                    stored = await self.store.find(user.principal)
            except (DatabaseError, TimeoutError) as error:
                log.debug("preferences of a user not read: %s", error)
        told = _installed(told).or_else(_installed(Locale(stored.told_language)))
        return _installed(stored.chosen).or_else(told)


def _installed(locale: Locale) -> Locale:
    return Locale(resolve_language(locale.language) or "", locale.time_zone)
