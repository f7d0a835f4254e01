"""What a button or a form is for, kept here where it does not fit into the 100 characters that Discord carries along.

A ticket lives in the memory of the process that holds the gateway, for as long as Discord lets an answer that one
person sees be changed. Whoever comes with one that is gone is told so, and says the command again.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from bot.domain.commands import Form
from bot.domain.conversations import ConversationKey

SECONDS = 900.0
MOST = 2_000
"""So many are kept; the oldest go first."""
GONE = "This button is too old. Give the command again."
FORM_GONE = "This form is no longer open. Nothing was saved; start again with the command."


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Say a command: the words with its name first. `where` is the conversation it is about, which need not be the one
    the button stands in.
    """

    words: tuple[str, ...]
    where: ConversationKey


@dataclass(frozen=True, slots=True)
class ConfirmCommand:
    """Ask for `text` to be typed before the command is said. `label` is what the button says."""

    words: tuple[str, ...]
    text: str
    label: str
    where: ConversationKey


@dataclass(frozen=True, slots=True)
class OpenForm:
    """Open a form, or take it back."""

    form: Form
    where: ConversationKey


Deed = SendMessage | ConfirmCommand | OpenForm


@dataclass(frozen=True, slots=True)
class _Kept:
    deed: Deed
    holder: str
    until: float


class PendingActions:
    """Hands tickets out and takes them back. One can be used until it is gone, by whom it was made out to."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def store(self, deed: Deed, holder: str) -> str:
        """A ticket for this deed, good for the person whose id `holder` is: 22 letters, digits, dashes and
        underscores.
        """
        while self._kept and (len(self._kept) >= MOST or self._oldest.until <= self._clock()):
            self._kept.popitem(last=False)
        ticket = secrets.token_urlsafe(16)
        self._kept[ticket] = _Kept(deed, holder, self._clock() + SECONDS)
        return ticket

    def take(self, ticket: str, holder: str) -> Deed | None:
        """What the ticket is for; None if it is gone or somebody else's."""
        kept = self._kept.get(ticket)
        if kept is None or kept.holder != holder or kept.until <= self._clock():
            return None
        return kept.deed

    @property
    def _oldest(self) -> _Kept:
        return next(iter(self._kept.values()))
