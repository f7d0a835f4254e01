"""Whose language and time zone count.

What one user sees alone (ephemeral replies, direct conversations, forms, lists) has the user's own, else those of the
place, else those of the settings. What everybody in a channel sees has those of the channel's profile, else those of
the place as its platform says them, else those of the settings. Times there have the asker's time zone where neither
the profile nor the place has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bot.domain.conversations import ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.profiles import DEFAULT, Profile


def _no_profile(_conversation: ConversationKey) -> Profile:
    return DEFAULT


@dataclass(frozen=True, slots=True)
class LocaleResolver:
    """Resolves locales. `default` is that of the settings; `profile_of` returns the profile of a conversation."""

    default: Locale = Locale("en", "UTC")
    profile_of: Callable[[ConversationKey], Profile] = _no_profile

    def for_user(self, user: Locale, conversation: ConversationKey | None, place: Locale = UNKNOWN) -> Locale:
        """Return the locale of what one user sees alone. `place` is as the platform says it."""
        profile = self.profile_of(conversation).locale if conversation is not None else UNKNOWN
        return user.or_else(profile).or_else(place).or_else(self.default)

    def for_conversation(
        self, author: Locale, conversation: ConversationKey, place: Locale = UNKNOWN, *, direct: bool = False
    ) -> Locale:
        """Return the locale of what everybody in a conversation sees. In a `direct` one that is its user alone."""
        if direct:
            return self.for_user(author, conversation, place)
        shared = self.profile_of(conversation).locale.or_else(place)
        return shared.or_else(Locale(time_zone=author.time_zone)).or_else(self.default)

    def with_locales(
        self, message: InboundMessage, member: Member, place: Locale = UNKNOWN, *, direct: bool = False
    ) -> InboundMessage:
        """Return a message of this member with the locales of its conversation and its author."""
        return replace(
            message,
            locale=self.for_conversation(member.locale, message.conversation, place, direct=direct),
            author_locale=self.for_user(member.locale, message.conversation, place),
        )
