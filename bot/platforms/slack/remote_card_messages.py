"""Remote cards as messages: the card in its channel, and the line in the thread that links to it.

Links are built from message refs without a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bot.domain.approval_targets import ChannelTarget, Destination, DirectTarget
from bot.domain.conversations import ConversationKey
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.slack.blocks import Element, channel, fallback, link, person, rich_section, rich_text, words
from bot.platforms.slack.cards import card_messages
from bot.platforms.slack.ids import MessageRef
from bot.platforms.slack.notification_text import fallback_text
from bot.platforms.slack.outgoing import OutgoingMessage
from bot.rendering.remote_cards import group_by_target, is_pending, remote_approvals, remote_slot, targets_of
from bot.rendering.status_text import tool_text
from bot.rendering.timeline import ApprovalEntry
from bot.rendering.tool_status import tool_status

DIRECTLY = "a direct conversation"


@dataclass(frozen=True, slots=True)
class SentCards:
    """Posted remote cards of a turn, and the URL of the workspace."""

    url: str = ""
    refs: MessageRefs = field(default_factory=dict)

    def address(self, slot: str) -> str:
        """Return the permalink of a message; empty if it is not posted."""
        ref = MessageRef.parse(self.refs.get(slot, ""))
        return message_address(self.url, ref) if ref is not None else ""


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    slot: OutgoingMessage


def approval_messages(
    asking: ApprovalEntry, view: TurnView, now: float, outside: SentCards
) -> Iterator[OutgoingMessage]:
    """Return the messages for calls that were requested together: cards, or lines that link to remote cards."""
    for each in group_by_target(asking):
        slots = card_messages(each, view, now)
        if targets_of(each) and is_pending(each):
            yield from (_line(slot.name, each, view, outside) for slot in slots[:1])
        else:
            yield from slots


def remote_cards(view: TurnView, now: float, url: str) -> Iterator[RemoteCard]:
    """Return the remote cards of a turn by channel, each with a link to its conversation."""
    asked_in = rich_text(rich_section(words("Asked in "), _origin(view.turn.conversation, url)))
    for asking in remote_approvals(view):
        for slot in card_messages(asking, view, now):
            whole = replace(slot, blocks=(*slot.blocks, asked_in))
            for place in targets_of(asking):
                yield RemoteCard(slot.name, place, replace(whole, name=remote_slot(slot.name, place)))


def message_address(url: str, ref: MessageRef) -> str:
    """Return the permalink of a message, as chat.getPermalink would, without a request."""
    return f"{url.rstrip('/')}/archives/{ref.channel}/p{ref.ts.replace('.', '')}" if url else ""


def _origin(where: ConversationKey, url: str) -> Element:
    if where.channel.startswith("D"):
        return words(DIRECTLY)
    address = message_address(url, MessageRef(where.channel, where.thread)) if where.thread else ""
    return link(address, "this thread") if address else channel(where.channel)


def _line(name: str, asking: ApprovalEntry, view: TurnView, outside: SentCards) -> OutgoingMessage:
    """Return one line for each call: its remote card, or its outcome."""
    places = _places(name, targets_of(asking), outside)
    sections = [rich_section(*_told(step, view, places)) for step in asking.calls]
    blocks = (rich_text(*sections),)
    return OutgoingMessage(name, blocks, fallback(fallback_text(blocks)))


def _told(step: ToolStep, view: TurnView, places: Sequence[Element]) -> list[Element]:
    line = words(tool_text(replace(tool_status(step, view), summary="", more="")))
    return [line, *places] if step.status is StepStatus.AWAITING else [line]


def _places(card: str, places: Sequence[Destination], outside: SentCards) -> list[Element]:
    elements: list[Element] = []
    for number, place in enumerate(places):
        elements.append(words(", " if number else " "))
        match place:
            case ChannelTarget(id):
                elements += [words("in "), channel(id)]
                if address := outside.address(remote_slot(card, place)):
                    elements += [words(" ("), link(address, "card"), words(")")]
            case DirectTarget(id):
                elements += [words("by "), person(id)]
    return elements
