"""Remote cards as messages: the card in its channel, and the line in the thread that links to it.

Links are built from message refs without a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.domain.approval_targets import ChannelTarget, Destination, DirectTarget
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.cards import card_messages, person
from bot.platforms.discord.components import text
from bot.platforms.discord.escaping import escape
from bot.platforms.discord.ids import PLATFORM, MessageRef, channel_id_of
from bot.platforms.discord.outgoing import OutgoingMessage
from bot.rendering.remote_cards import group_by_target, is_pending, remote_approvals, remote_slot, targets_of
from bot.rendering.status_text import tool_text
from bot.rendering.timeline import ApprovalEntry
from bot.rendering.tool_status import tool_status

ADDRESS = "https://discord.com/channels"
DIRECTLY = "a direct conversation"


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    slot: OutgoingMessage


def approval_messages(
    asking: ApprovalEntry, view: TurnView, now: float, refs: MessageRefs
) -> Iterator[OutgoingMessage]:
    """Return the messages for calls that were requested together: cards, or lines that link to remote cards. `refs` are
    of the posted messages.
    """
    for each in group_by_target(asking):
        slots = card_messages(each, view, now)
        if targets_of(each) and is_pending(each):
            yield from (_line(slot.name, each, view, refs) for slot in slots[:1])
        else:
            yield from slots


def remote_cards(view: TurnView, now: float, *, direct: bool) -> Iterator[RemoteCard]:
    """Return the remote cards of a turn by channel, each with a link to its conversation; `direct` is True for a direct
    conversation, which other users cannot open.
    """
    origin = DIRECTLY if direct else channel_name(channel_id_of(view.turn.conversation))
    for asking in remote_approvals(view):
        for slot in card_messages(asking, view, now):
            whole = replace(slot, components=(*slot.components, text(f"-# Asked in {origin}")))
            for place in targets_of(asking):
                yield RemoteCard(slot.name, place, replace(whole, name=remote_slot(slot.name, place)))


def channel_name(channel: str) -> str:
    """Return a channel link, which shows the name only to users with access."""
    return f"<#{channel}>" if channel.isdecimal() else escape(channel)


def message_address(where: ConversationKey, ref: MessageRef) -> str:
    """Return the URL of a message in the conversation's guild."""
    return f"{ADDRESS}/{where.workspace}/{ref.channel}/{ref.message}"


def _line(name: str, asking: ApprovalEntry, view: TurnView, refs: MessageRefs) -> OutgoingMessage:
    """Return one line for each call: its remote card, or its outcome."""
    places = ", ".join(_place(name, each, view, refs) for each in targets_of(asking))
    return OutgoingMessage(name, components=(text("\n".join(_told(step, view, places) for step in asking.calls)),))


def _told(step: ToolStep, view: TurnView, places: str) -> str:
    line = escape(tool_text(replace(tool_status(step, view), summary="", more="")))
    return f"{line} {places}" if step.status is StepStatus.AWAITING else line


def _place(card: str, place: Destination, view: TurnView, refs: MessageRefs) -> str:
    match place:
        case ChannelTarget(channel):
            ref = MessageRef.parse(refs.get(remote_slot(card, place), ""))
            link = f" ({message_address(view.turn.conversation, ref)})" if ref is not None else ""
            return f"in {channel_name(channel)}{link}"
        case DirectTarget(user):
            return f"by {person(Author(PLATFORM, user, ''))}"
