"""Audience policy: which users the bot responds to. Approver and admin rights are checked elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NOT_FOR_GUESTS = "I may not answer guests of this workspace. Please ask a full member."
NOT_FOR_STRANGERS = "I may not answer people from outside, only members."


class MessageAuthor(Protocol):
    """Facts about a message's author that decide if the bot responds."""

    @property
    def guest(self) -> bool:
        """True for a guest: a member of the workspace with fewer rights."""

    @property
    def external(self) -> bool:
        """True for a user of another workspace, and for a bot."""


@dataclass(frozen=True, slots=True)
class AudiencePolicy:
    """Rules of response. Guests belong to the workspace, external users to another one (Slack Connect); neither gets
    an answer unless the operator allows it. `follow_threads`: the bot also answers unmentioned messages in its
    threads.
    """

    follow_threads: bool = True
    guests: bool = False
    strangers: bool = False

    def rejection(self, who: MessageAuthor) -> str:
        """Why this person is not answered, empty if they are."""
        if who.external and not self.strangers:
            return NOT_FOR_STRANGERS
        return NOT_FOR_GUESTS if who.guest and not self.guests else ""
