"""The calls that wait for one user's approval, as a private list in which the user decides them: `/approvals`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    ConfirmApproval,
    InInbox,
    OpenDenyForm,
    ShowInbox,
)
from bot.chat.card_messages import DIRECT_CONVERSATION, OPEN_CARD, confirmation_message, open_call_buttons, pending_call
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    ChannelLink,
    Footer,
    Heading,
    Link,
    Message,
    Paragraph,
    Rule,
    Span,
    Text,
)
from bot.domain.conversations import Member
from bot.domain.turns import ToolStep, Turn
from bot.rendering.approval_card import ApprovalCard, approval_card

COMMAND = "approvals"
CALLS_A_PAGE = 3
"""Calls with all of their buttons in one message of Discord."""
NOTHING_WAITS = "Nothing waits for you."
NOT_ALL_READ = "Too many calls wait for others to look through all of them. The cards in their threads show the rest."


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that this user may decide. `card_url` is the URL of its card, empty if it has none. `is_direct` is True if
    it was asked for in a direct conversation.
    """

    turn: Turn
    step: ToolStep
    card_url: str = ""
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Some of the calls that this user may decide, oldest first. `count` is the number of all; `all_counted` is False
    if more calls wait than were read.
    """

    calls: Sequence[PendingCall] = ()
    count: int = 0
    all_counted: bool = True


ReadPendingCalls = Callable[[Member, str, int, int], Awaitable[PendingCalls]]
"""Return the calls that a user may decide in a workspace (its key), from this one on and at most so many."""


def is_inbox_command(words: Sequence[str]) -> bool:
    """Return True if a command (its words, the name first) asks for the list."""
    return list(words) in ([COMMAND], [COMMAND, "list"])


def inbox_message(pending: PendingCalls, page: int, now: float) -> Message:
    """Return a page of the list."""
    return Message("inbox", tuple(_blocks(pending, page, now)))


def inbox_confirmation(step: ToolStep, card: ApprovalCard, page: int) -> Message:
    """Return the question before a call is approved that may destroy data, in place of the list."""
    message = confirmation_message(step, card)
    *before, buttons = message.blocks
    assert isinstance(buttons, Buttons)
    asked = _in_inbox(buttons, page)
    return replace(message, blocks=(*before, replace(asked, buttons=(*asked.buttons, Button("Back", ShowInbox(page))))))


def pending_call_blocks(call: PendingCall, now: float) -> Iterator[Block]:
    """Yield a call with who asked, where, until when, and with the buttons of its card."""
    card = approval_card(call.step)
    if card is None:
        return
    yield from pending_call(call.step, card, now)
    yield Footer(_place(call))
    yield open_call_buttons(call.step, card)


def page_count(pending: PendingCalls) -> int:
    """Return the number of pages of the list."""
    return max(1, -(-pending.count // CALLS_A_PAGE))


def _blocks(pending: PendingCalls, page: int, now: float) -> Iterator[Block]:
    number = f"{pending.count}" if pending.all_counted else f"at least {pending.count}"
    yield Heading(f"Waiting for you ({number})" if pending.count else "Waiting for you")
    if not pending.calls:
        yield Paragraph((Text(NOTHING_WAITS if pending.all_counted else NOT_ALL_READ),))
    for call in pending.calls:
        yield Rule()
        for block in pending_call_blocks(call, now):
            yield _in_inbox(block, page) if isinstance(block, Buttons) else block
    pages = page_count(pending)
    buttons = [Button("Back", ShowInbox(page - 1))] if page > 1 else []
    buttons.append(Button("Refresh", ShowInbox(page)))
    buttons += [Button("More", ShowInbox(page + 1))] if page < pages else []
    if pages > 1:
        yield Footer((Text(f"Page {page} of {pages}"),))
    yield Buttons(tuple(buttons))


def _place(call: PendingCall) -> tuple[Span, ...]:
    place = Text(DIRECT_CONVERSATION) if call.is_direct else ChannelLink(call.turn.conversation.channel)
    link: tuple[Span, ...] = (Text(" · "), Link(call.card_url, OPEN_CARD)) if call.card_url else ()
    return (Text("In "), place, *link)


def _in_inbox(buttons: Buttons, page: int) -> Buttons:
    """Return the buttons of a card with actions that update the list, without the rarer ones."""
    return Buttons(tuple(replace(button, action=_from_page(button.action, page)) for button in buttons.buttons))


def _from_page(action: Action, page: int) -> Action:
    match action:
        case Approve((ApprovalRef(),)) | ApproveWithGrant() | ConfirmApproval():
            return InInbox(action, page)
        case OpenDenyForm(card):
            return OpenDenyForm(card, inbox_page=page)
        case _:
            return action
