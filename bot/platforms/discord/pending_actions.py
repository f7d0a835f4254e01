"""Actions of buttons and forms that exceed Discord's 100 characters, kept in memory by token.

A token is valid in the process that holds the gateway, for as long as an ephemeral message can be edited. An expired
token is answered with a notice: the user runs the command again.
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
"""Number of tokens; the oldest expire first."""
GONE = "This button is too old. Give the command again."
FORM_GONE = "This form is no longer open. Nothing was saved; start again with the command."


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Run a command: the words with its name first. `where` is its conversation, which may differ from the button's."""

    words: tuple[str, ...]
    where: ConversationKey


@dataclass(frozen=True, slots=True)
class ConfirmCommand:
    """Ask for `text` to be typed before the command runs. `label` is that of the button."""

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
    """Stores actions by token. A token can be used repeatedly by its user until it expires."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def store(self, deed: Deed, holder: str) -> str:
        """Store an action for the user `holder` and return its token: 22 letters, digits, dashes and underscores."""
        while self._kept and (len(self._kept) >= MOST or self._oldest.until <= self._clock()):
            self._kept.popitem(last=False)
        ticket = secrets.token_urlsafe(16)
        self._kept[ticket] = _Kept(deed, holder, self._clock() + SECONDS)
        return ticket

    def take(self, ticket: str, holder: str) -> Deed | None:
        """Return the action of a token; None if it expired or belongs to another user."""
        kept = self._kept.get(ticket)
        if kept is None or kept.holder != holder or kept.until <= self._clock():
            return None
        return kept.deed

    @property
    def _oldest(self) -> _Kept:
        return next(iter(self._kept.values()))
