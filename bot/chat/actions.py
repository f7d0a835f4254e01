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
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
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
class ConfirmApproval:
    """Ask whether to approve this call, which may destroy data, on a platform whose buttons have no such dialog."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class ApproveWithGrant:
    """Approve this call and grant later ones; `offer` is the `word` of a `GrantOption` (`rendering.approval_card`)."""

    card: ApprovalRef
    offer: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Open the form for editing a call's arguments before its approval."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class OpenDenyForm:
    """Open the window that asks for a reason before a call is denied. `inbox_page` is the page of the list of pending
    calls with the button, 0 on a card.
    """

    card: ApprovalRef
    inbox_page: int = 0


@dataclass(frozen=True, slots=True)
class ViewCall:
    """Show a call with all of its arguments, from this page on (the first is 1)."""

    card: ApprovalRef
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
class RunCommand:
    """Run a command: its words, the name first."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCommandInNewReply:
    """Run a command from a card, which stays in place. The reply is shown beside it, to that user alone."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenConfirmation:
    """Open the window in which `text` has to be typed before the command runs. `label` is the label of its button."""

    words: tuple[str, ...]
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


def encode(action: Action) -> str:  # noqa: C901, PLR0912 - one case for each kind of action
    """Return the text that a button carries: the kind of the action, a colon, and its content.

    The text is short, because Discord's limit is 100 characters: ids of turns and approvals are letters and digits.
    """
    match action:
        case Approve(cards):
            content = ",".join(map(_encode_ref, cards))
        case ApproveWithGrant(card, offer):
            content = f"{_encode_ref(card)}:{offer}"
        case ConfirmApproval(card) | Edit(card):
            content = _encode_ref(card)
        case OpenDenyForm(card, page):
            content = f"{_encode_ref(card)}:{page}" if page else _encode_ref(card)
        case ShowInbox(page):
            content = f"{page}"
        case InInbox(inner, page):
            content = f"{page}:{encode(inner)}"
        case ViewCall(card, page):
            content = f"{_encode_ref(card)}:{page}"
        case CheckCallAction(turn_id, n) | RunAgainAction(turn_id, n):
            content = f"{turn_id}:{n}"
        case StopTurnAction(turn_id) | ContinueTurnAction(turn_id) | AskAgain(turn_id):
            content = turn_id
        case SendFeedback(turn_id, opinion):
            content = f"{turn_id}:{opinion}"
        case RunCommand(words) | RunCommandInNewReply(words):
            content = _encode_words(words)
        case OpenConfirmation(words, text, label):
            content = _encode_words((text, label, *words))
        case RunPending(token):
            content = token
    return f"{kind_of(action)}:{content}"


def decode(text: str) -> Action | None:
    """Return the action of a button, or None if the text is not from `encode`."""
    kind, _, content = text.partition(":")
    try:
        return _DECODERS[kind](content)
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


def _decode_words(content: str) -> tuple[str, ...]:
    words: Any = json.loads(content) if content.startswith("[") else content.split()
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(content)
    return tuple(words)


def _decode_ref(approval_id: str, revision: str) -> ApprovalRef:
    return ApprovalRef(approval_id, _decode_number(revision))


def _decode_number(text: str) -> int:
    """Parse a number. Raises ValueError for other digits, signs and numbers too large for the database."""
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        raise ValueError(text)
    return int(text)


def _decode_approve(content: str) -> Action:
    return Approve(tuple(_decode_ref(*_fields(card, 2)) for card in content.split(",")))


def _decode_grant(content: str) -> Action:
    approval_id, revision, offer = _fields(content, 3)
    return ApproveWithGrant(_decode_ref(approval_id, revision), offer)


def _decode_view(content: str) -> Action:
    approval_id, revision, page = _fields(content, 3)
    return ViewCall(_decode_ref(approval_id, revision), _decode_number(page))


def _decode_denial(content: str) -> Action:
    approval_id, revision, *page = content.split(":")
    card = _decode_ref(*_fields(f"{approval_id}:{revision}", 2))
    return OpenDenyForm(card, _decode_number(*page)) if page else OpenDenyForm(card)


def _decode_in_inbox(content: str) -> Action:
    page, _, text = content.partition(":")
    match decode(text):
        case (Approve() | ApproveWithGrant() | ConfirmApproval()) as action:
            return InInbox(action, _decode_number(page))
        case _:
            raise ValueError(content)


def _decode_feedback(content: str) -> Action:
    turn_id, opinion = _fields(content, 2)
    return SendFeedback(turn_id, FeedbackValue(opinion))


def _decode_confirmation(content: str) -> Action:
    text, label, first, *more = _decode_words(content)
    return OpenConfirmation((first, *more), text, label)


def _decode_call(content: str) -> tuple[str, int]:
    turn_id, n = _fields(content, 2)
    return turn_id, _decode_number(n)


def _fields(content: str, count: int) -> list[str]:
    """Split a content. Raises ValueError if a field is missing or empty."""
    fields = content.split(":")
    if len(fields) != count or not all(fields):
        raise ValueError(content)
    return fields


_KINDS: Mapping[type[Action], str] = {
    Approve: "approve",
    ConfirmApproval: "ask",
    ApproveWithGrant: "allow",
    Edit: "edit",
    OpenDenyForm: "deny",
    ViewCall: "view",
    ShowInbox: "inbox",
    InInbox: "listed",
    CheckCallAction: "check",
    RunAgainAction: "again",
    StopTurnAction: "stop",
    ContinueTurnAction: "continue",
    SendFeedback: "rate",
    AskAgain: "edited",
    RunCommand: "run",
    RunCommandInNewReply: "beside",
    OpenConfirmation: "confirm",
    RunPending: "pending",
}
_DECODERS: Mapping[str, Callable[[str], Action]] = {
    "approve": _decode_approve,
    "ask": lambda content: ConfirmApproval(_decode_ref(*_fields(content, 2))),
    "allow": _decode_grant,
    "edit": lambda content: Edit(_decode_ref(*_fields(content, 2))),
    "deny": _decode_denial,
    "view": _decode_view,
    "inbox": lambda content: ShowInbox(_decode_number(content)),
    "listed": _decode_in_inbox,
    "check": lambda content: CheckCallAction(*_decode_call(content)),
    "again": lambda content: RunAgainAction(*_decode_call(content)),
    "stop": lambda content: StopTurnAction(*_fields(content, 1)),
    "continue": lambda content: ContinueTurnAction(*_fields(content, 1)),
    "rate": _decode_feedback,
    "edited": lambda content: AskAgain(*_fields(content, 1)),
    "run": lambda content: RunCommand(_decode_words(content)),
    "beside": lambda content: RunCommandInNewReply(_decode_words(content)),
    "confirm": _decode_confirmation,
    "pending": lambda content: RunPending(*_fields(content, 1)),
}


# -------------------- pending actions
# They are valid in their process only, for as long as an ephemeral message can be edited on Discord. With an
# unknown or expired token, the user gives the command again.

PENDING_SECONDS = 900.0
MOST_PENDING = 2_000
"""Number of tokens; the oldest expire first."""


@dataclass(frozen=True, slots=True)
class _Pending:
    action: PendingAction
    conversation: ConversationKey
    user: str
    until: float


class PendingActions:
    """Actions by token, of users and their conversations. A token can be used repeatedly by its user until it expires.
    `limit` is the maximum length of a button's text on the platform.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._pending: OrderedDict[str, _Pending] = OrderedDict()

    def store(self, action: PendingAction, conversation: ConversationKey, user: str) -> RunPending:
        """Store an action. Its token has 22 letters, digits, dashes and underscores."""
        while self._pending and (len(self._pending) >= MOST_PENDING or self._oldest.until <= self._clock()):
            self._pending.popitem(last=False)
        token = secrets.token_urlsafe(16)
        self._pending[token] = _Pending(action, conversation, user, self._clock() + PENDING_SECONDS)
        return RunPending(token)

    def find(self, token: str, user: str) -> tuple[PendingAction, ConversationKey] | None:
        """Return the action of a token and its conversation; None if it expired or belongs to another user."""
        pending = self._pending.get(token)
        if pending is None or pending.user != user or pending.until <= self._clock():
            return None
        return pending.action, pending.conversation

    @property
    def _oldest(self) -> _Pending:
        return next(iter(self._pending.values()))


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
        case AlreadyDecided(how):
            return single_line(how, 300)
        case NotAllowed(reason):
            return single_line(reason, 300)
        case StaleRevision():
            return str(OUT_OF_DATE)
        case ApprovalNotFound():
            return str(GONE)
        case ViewRequired():
            return str(VIEW_FIRST)
        case _:
            assert_never(result)
