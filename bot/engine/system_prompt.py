"""System prompt: the operator's prompt, the persona, the date and a platform hint.

The text is constant for a day, because services cache unchanged prefixes. So it holds no time of day and no names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from bot.domain.conversations import ConversationKey
from bot.engine.author_labels import RULE


@dataclass(frozen=True, slots=True)
class PlatformHint:
    """Platform hint: the supported formatting, as text for the model. `shared` is True if several users write."""

    formatting: str = ""
    shared: bool = False


def no_hint(_conversation: ConversationKey) -> PlatformHint:
    """Return an empty hint."""
    return PlatformHint()


def local_today() -> date:
    """Return the local date."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """Parts of the system prompt. `place` returns a conversation's hint. Without `today` no date is included."""

    prompt: str = ""
    place: Callable[[ConversationKey], PlatformHint] = no_hint
    today: Callable[[], date] | None = None

    def text(self, conversation: ConversationKey, persona: str) -> str:
        """Return the system prompt of a conversation."""
        place = self.place(conversation)
        parts = [
            self.prompt,
            persona,
            f"Today is {self.today():%A, %Y-%m-%d}." if self.today else "",
            place.formatting,
            RULE if place.shared else "",
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())


NO_INSTRUCTIONS = SystemPrompt()
