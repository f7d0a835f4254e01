"""Whom the bot answers and serves. Who may sign or administer is for the engine and the commands to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NOT_FOR_GUESTS = "I may not answer guests of this workspace. Please ask a full member."
NOT_FOR_STRANGERS = "I may not answer people from outside, only members."


class MessageAuthor(Protocol):
    """As much of a person as decides whether they are answered."""

    @property
    def guest(self) -> bool:
        """Somebody of the place's own, with fewer rights."""

    @property
    def external(self) -> bool:
        """Somebody from elsewhere, or a bot."""


@dataclass(frozen=True, slots=True)
class AudiencePolicy:
    """How the bot behaves towards people. Guests are the place's own, strangers come from another one (Slack Connect);
    neither is answered unless the operator says so. `follow_threads`: a thread in which the bot has answered goes on
    without a mention.
    """

    follow_threads: bool = True
    guests: bool = False
    strangers: bool = False

    def rejection(self, who: MessageAuthor) -> str:
        """Why this person is not answered, empty if they are."""
        if who.external and not self.strangers:
            return NOT_FOR_STRANGERS
        return NOT_FOR_GUESTS if who.guest and not self.guests else ""
