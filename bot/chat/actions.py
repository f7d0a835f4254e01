"""Actions of buttons, menus and forms, as values, the text in which a button carries one, and their rejections.

A button holds names and numbers only. The user's rights are checked at the press, against stored data. An action that
exceeds the platform's limit is kept in memory under a token (`PendingActions`). A rejection is a text for one user
alone: why a button, a form, a message or a command changed nothing.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from time import monotonic
from typing import Any, assert_never

from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    Decided,
    DecisionResult,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
    ViewRequired,
)
from bot.domain.commands import Form
from bot.domain.conversations import ConversationKey
from bot.errors import ContentDeleted, CountersignError, QueueFull
from bot.i18n import _, gettext_lazy
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import CheckCallAction, ContinueTurnAction, RunAgainAction, StopTurnAction


@dataclass(frozen=True, slots=True)
class ApprovalRef:
    """One revision of one approval."""

    approval_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve these calls, exactly as their card shows them."""

    cards: tuple[ApprovalRef, ...]


@dataclass(frozen=True, slots=True)
class _OfCard:
    card: ApprovalRef


class ConfirmApproval(_OfCard):
    """Ask whether to approve this call, which may destroy data, on a platform whose buttons have no such dialog."""


class Edit(_OfCard):
    """Open the form for editing a call's arguments before its approval."""


@dataclass(frozen=True, slots=True)
class ApproveWithGrant(_OfCard):
    """Approve this call and grant later ones; `offer` is the `word` of a `GrantOption` (`rendering.approval_card`)."""

    offer: str


@dataclass(frozen=True, slots=True)
class OpenDenyForm(_OfCard):
    """Open the window that asks for a reason before a call is denied. `inbox_page` is the page of the list of pending
    calls with the button, 0 on a card.
    """

    inbox_page: int = 0


@dataclass(frozen=True, slots=True)
class ViewCall(_OfCard):
    """Show a call with all of its arguments, from this page on (the first is 1)."""

    page: int = 1


@dataclass(frozen=True, slots=True)
class ShowInbox:
    """Show a page of the user's list of pending calls, in place of the one with the button."""

    page: int


@dataclass(frozen=True, slots=True)
class InInbox:
    """Decide a call from this page of the user's list of pending calls, and update the list."""

    action: Approve | ApproveWithGrant | ConfirmApproval
    page: int


class FeedbackValue(StrEnum):
    """Feedback on an answer."""

    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class SendFeedback:
    """Give feedback on the answer of a turn."""

    turn_id: str
    opinion: FeedbackValue


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask the edited text of a turn's message, in place of that turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class _OfCommand:
    words: tuple[str, ...]


class RunCommand(_OfCommand):
    """Run a command: its words, the name first."""


class RunCommandInNewReply(_OfCommand):
    """Run a command from a card, which stays in place. The reply is shown beside it, to that user alone."""


@dataclass(frozen=True, slots=True)
class OpenConfirmation(_OfCommand):
    """Open the window in which `text` has to be typed before the command runs. `label` is the label of its button."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class RunPending:
    """Run the pending action of a token, or take back the form that it opened."""

    token: str


Action = (
    Approve
    | ConfirmApproval
    | ApproveWithGrant
    | Edit
    | OpenDenyForm
    | ViewCall
    | ShowInbox
    | InInbox
    | CheckCallAction
    | RunAgainAction
    | StopTurnAction
    | ContinueTurnAction
    | SendFeedback
    | AskAgain
    | RunCommand
    | RunCommandInNewReply
    | OpenConfirmation
    | RunPending
)


@dataclass(frozen=True, slots=True)
class OpenForm:
    """Open the form of a command, or take it back. It is a pending action on every platform."""

    form: Form


PendingAction = Action | OpenForm


def with_question(action: Action) -> Action:
    """Return the action that asks in a message before it approves one call, for platforms whose buttons have no dialog;
    other actions are unchanged.
    """
    match action:
        case Approve((card,)):
            return ConfirmApproval(card)
        case InInbox(Approve((card,)), page):
            return InInbox(ConfirmApproval(card), page)
        case _:
            return action


def encode(action: Action) -> str:
    """Return the text that a button carries: the kind of the action, a colon, and its content.

    The text is short, because Discord's limit is 100 characters: ids of turns and approvals are letters and digits.
    """
    match action:
        case Approve(cards):
            content = ",".join(map(_encode_ref, cards))
        case InInbox(inner, page):
            content = f"{page}:{encode(inner)}"
        case RunCommand(words) | RunCommandInNewReply(words):
            content = _encode_words(words)
        case OpenConfirmation(words, text, label):
            content = _encode_words((text, label, *words))
        case OpenDenyForm(card, 0):
            content = _encode_ref(card)
        case _:
            values = (getattr(action, field.name) for field in fields(action))
            content = ":".join(_encode_ref(value) if isinstance(value, ApprovalRef) else str(value) for value in values)
    return f"{kind_of(action)}:{content}"


def decode(text: str) -> Action | None:
    """Return the action of a button, or None if the text is not from `encode`."""
    kind, _, content = text.partition(":")
    try:
        _type, split, build = _CODECS[kind]
        return build(*split(content))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def kind_of(action: Action) -> str:
    """Return the word for the kind of an action, with which its text begins."""
    return _KINDS[type(action)]


def _encode_ref(card: ApprovalRef) -> str:
    return f"{card.approval_id}:{card.revision}"


def _encode_words(words: tuple[str, ...]) -> str:
    """Words without blanks are separated by blanks; others are a JSON list."""
    simple = all(word.split() == [word] for word in words) and not words[0].startswith("[")
    return " ".join(words) if simple else json.dumps(words, ensure_ascii=False, separators=(",", ":"))


def _decode_words(content: str) -> Sequence[str]:
    words: Any = json.loads(content) if content.startswith("[") else content.split()
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(content)
    return tuple(words)


def _fields(content: str) -> Sequence[str]:
    """Split a content. Raises ValueError if a field is empty."""
    fields = content.split(":")
    if not all(fields):
        raise ValueError(content)
    return fields


def _number(text: str) -> int:
    """Parse a number. Raises ValueError for other digits, signs and numbers too large for the database."""
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        raise ValueError(text)
    return int(text)


def _ref(approval_id: str, revision: str) -> ApprovalRef:
    return ApprovalRef(approval_id, _number(revision))


def _listed(page: str, text: str) -> Action:
    action = decode(text)
    if not isinstance(action, Approve | ApproveWithGrant | ConfirmApproval):
        raise TypeError(action)
    return InInbox(action, _number(page))


def _confirmation(text: str, label: str, first: str, *words: str) -> Action:
    return OpenConfirmation((first, *words), text, label)


_CODECS: Mapping[str, tuple[type[Action], Callable[[str], Sequence[str]], Callable[..., Action]]] = {
    "approve": (Approve, lambda text: text.split(","), lambda *cards: Approve(tuple(_ref(*_fields(c)) for c in cards))),
    "ask": (ConfirmApproval, _fields, lambda *ref: ConfirmApproval(_ref(*ref))),
    "allow": (ApproveWithGrant, _fields, lambda i, revision, offer: ApproveWithGrant(_ref(i, revision), offer)),
    "edit": (Edit, _fields, lambda *ref: Edit(_ref(*ref))),
    "deny": (OpenDenyForm, _fields, lambda i, revision, page="0": OpenDenyForm(_ref(i, revision), _number(page))),
    "view": (ViewCall, _fields, lambda i, revision, page: ViewCall(_ref(i, revision), _number(page))),
    "inbox": (ShowInbox, _fields, lambda page: ShowInbox(_number(page))),
    "listed": (InInbox, lambda text: text.split(":", 1), _listed),
    "check": (CheckCallAction, _fields, lambda turn_id, n: CheckCallAction(turn_id, _number(n))),
    "again": (RunAgainAction, _fields, lambda turn_id, n: RunAgainAction(turn_id, _number(n))),
    "stop": (StopTurnAction, _fields, StopTurnAction),
    "continue": (ContinueTurnAction, _fields, ContinueTurnAction),
    "rate": (SendFeedback, _fields, lambda turn_id, value: SendFeedback(turn_id, FeedbackValue(value))),
    "edited": (AskAgain, _fields, AskAgain),
    "run": (RunCommand, _decode_words, lambda *words: RunCommand(words)),
    "beside": (RunCommandInNewReply, _decode_words, lambda *words: RunCommandInNewReply(words)),
    "confirm": (OpenConfirmation, _decode_words, _confirmation),
    "pending": (RunPending, _fields, RunPending),
}
"""Type, parser of the content and constructor of each kind. A TypeError says that the number of values is wrong."""
_KINDS = {action_type: kind for kind, (action_type, _split, _build) in _CODECS.items()}


# -------------------- pending actions
# They are valid in their process only, for as long as an ephemeral message can be edited on Discord. With an
# unknown or expired token, the user gives the command again.

PENDING_SECONDS = 900.0
MOST_PENDING = 2_000
"""Number of tokens; the oldest expire first."""


class PendingActions:
    """Actions by token, of users and their conversations. A token can be used repeatedly by its user until it expires.
    `limit` is the maximum length of a button's text on the platform.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._pending: OrderedDict[str, tuple[PendingAction, ConversationKey, str, float]] = OrderedDict()

    def store(self, action: PendingAction, conversation: ConversationKey, user: str) -> RunPending:
        """Store an action. Its token has 22 letters, digits, dashes and underscores."""
        pending, now = self._pending, self._clock()
        while pending and (len(pending) >= MOST_PENDING or next(iter(pending.values()))[3] <= now):
            pending.popitem(last=False)
        token = secrets.token_urlsafe(16)
        pending[token] = (action, conversation, user, now + PENDING_SECONDS)
        return RunPending(token)

    def find(self, token: str, user: str) -> tuple[PendingAction, ConversationKey] | None:
        """Return the action of a token and its conversation; None if it expired or belongs to another user."""
        match self._pending.get(token):
            case action, conversation, owner, until if owner == user and until > self._clock():
                return action, conversation
            case _:
                return None


@dataclass(frozen=True, slots=True)
class ActionEncoder:
    """Encodes the actions of one user in a conversation within the platform's limit. `here` is True for buttons in that
    conversation, so that a click identifies it.
    """

    pending: PendingActions
    user: str
    conversation: ConversationKey
    here: bool = True

    def encode(self, action: PendingAction, others: Container[str] = ()) -> str:
        """Return the text of a button that differs from those of `others`: that of the action, or that of a token."""
        if isinstance(action, RunPending):
            return encode(action)
        if self.here and not isinstance(action, OpenForm):
            text = encode(action)
            if len(text) <= self.pending.limit and text not in others:
                return text
        return encode(self.store(action))

    def store(self, action: PendingAction) -> RunPending:
        """Store an action of the user in the conversation."""
        return self.pending.store(action, self.conversation, self.user)


# -------------------- rejections

VIEW_FIRST = gettext_lazy(
    "Part of this call looks like a secret and is hidden. Open the whole call and approve it from there."
)
OUT_OF_DATE = gettext_lazy("This card is out of date. See the newer one.")
GONE = gettext_lazy("This approval no longer exists.")
BUTTON_EXPIRED = gettext_lazy("This button does nothing any more.")
PENDING_EXPIRED = gettext_lazy("This button is too old. Give the command again.")
FORM_EXPIRED = gettext_lazy("This form is no longer open. Nothing was saved; start again with the command.")
UNEXPECTED_ERROR = gettext_lazy("That did not work. Please try again.")
TOO_SLOW = gettext_lazy("That took too long. Please try again.")
NOT_STORED = gettext_lazy(
    "Your message is not stored yet: my database takes no writes. I try again by myself. If there is no answer in 15 "
    "minutes, send it again."
)
TOO_MANY_REQUESTS = gettext_lazy("Several of your requests are still running. Try again when one of them is done.")


class InteractionRejected(CountersignError):
    """An interaction was not carried out; the error's cause is the text for the user."""


def not_shared_text(name: str) -> str:
    """Return the text about a file that could not be shared."""
    return _("The file {name} could not be shared: it may be too large.", name=name)


def error_message(error: Exception) -> str:
    """Return the text for the user of a failed request: the reason if the user can resolve it."""
    match error:
        case QueueFull():
            return str(error.user_message)
        case InteractionRejected() | ContentDeleted():
            return str(error.cause)
        case TimeoutError():
            return str(TOO_SLOW)
        case _:
            return str(UNEXPECTED_ERROR)


def rejection_message(result: DecisionResult) -> str:
    """Return the reason of a rejection; empty for a decision that counts, also as one of several."""
    match result:
        case Decided() | MoreApprovalsNeeded():
            return ""
        case AlreadyDecided(reason) | NotAllowed(reason):
            return single_line(reason, 300)
        case StaleRevision():
            return str(OUT_OF_DATE)
        case ApprovalNotFound():
            return str(GONE)
        case ViewRequired():
            return str(VIEW_FIRST)
        case _:
            assert_never(result)
