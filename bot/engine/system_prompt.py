"""What a model is told before anything else: the operator's prompt, the profile's persona, the day, and what the place
is like where its words are read.

It is the same from question to question, for a day: services keep the beginnings of requests that do not change, and
answer those faster and for less. So no time of day stands in it, no name and nothing else that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from bot.domain.conversations import ConversationKey
from bot.engine.author_labels import RULE


@dataclass(frozen=True, slots=True)
class PlatformHint:
    """What a conversation's place is like: how it draws text, in words for the model, and whether several people write
    there.
    """

    formatting: str = ""
    shared: bool = False


def no_hint(_conversation: ConversationKey) -> PlatformHint:
    """A place that nothing is known of."""
    return PlatformHint()


def local_today() -> date:
    """The day where this process runs."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """The operator's `prompt`, what is known of places, and the day; no day is named where `today` is None."""

    prompt: str = ""
    place: Callable[[ConversationKey], PlatformHint] = no_hint
    today: Callable[[], date] | None = None

    def text(self, conversation: ConversationKey, persona: str) -> str:
        """The beginning of the system prompt in a conversation."""
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
