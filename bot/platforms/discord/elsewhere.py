"""Cards that are signed elsewhere, as messages: the card in its place, and the line that stands for it in the thread.

Called by the drawing of a turn and by the courier. Links are made from the references of what is out, so that drawing
takes no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.domain.conversations import Author, ConversationKey
from bot.domain.destinations import Channel, Destination, Direct
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import Refs, TurnView
from bot.platforms.discord.cards import card_slots, person
from bot.platforms.discord.components import text
from bot.platforms.discord.references import PLATFORM, MessageRef, place_of
from bot.platforms.discord.slots import Slot
from bot.platforms.discord.wording import escaped
from bot.rendering.elsewhere import asked_elsewhere, awaits, by_place, copy_name, places_of
from bot.rendering.passages import Asking
from bot.rendering.thread_lines import tool_text
from bot.rendering.tool_lines import tool_line

ADDRESS = "https://discord.com/channels"
DIRECTLY = "a direct conversation"


@dataclass(frozen=True, slots=True)
class Copy:
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    slot: Slot


def asked_slots(asking: Asking, view: TurnView, now: float, refs: Refs) -> Iterator[Slot]:
    """Calls that were asked for together, as the conversation shows them: cards, or lines that say where they are.
    `refs` are of what is out.
    """
    for each in by_place(asking):
        slots = card_slots(each, view, now)
        if places_of(each) and awaits(each):
            yield from (_line(slot.name, each, view, refs) for slot in slots[:1])
        else:
            yield from slots


def copies(view: TurnView, now: float, *, direct: bool) -> Iterator[Copy]:
    """The cards of a turn that stand elsewhere, place by place, each saying where it was asked for; `direct` says that
    this was in a direct conversation, which nobody else can open.
    """
    origin = DIRECTLY if direct else channel_name(place_of(view.turn.conversation))
    for asking in asked_elsewhere(view):
        for slot in card_slots(asking, view, now):
            whole = replace(slot, components=(*slot.components, text(f"-# Asked in {origin}")))
            for place in places_of(asking):
                yield Copy(slot.name, place, replace(whole, name=copy_name(slot.name, place)))


def channel_name(channel: str) -> str:
    """A channel or thread, by its name on the screens of those who may know it."""
    return f"<#{channel}>" if channel.isdecimal() else escaped(channel)


def message_address(where: ConversationKey, ref: MessageRef) -> str:
    """The address of a message on the conversation's server."""
    return f"{ADDRESS}/{where.workspace}/{ref.channel}/{ref.message}"


def _line(name: str, asking: Asking, view: TurnView, refs: Refs) -> Slot:
    """Where the calls are signed, one line each; what is decided already says so."""
    places = ", ".join(_place(name, each, view, refs) for each in places_of(asking))
    return Slot(name, components=(text("\n".join(_told(step, view, places) for step in asking.calls)),))


def _told(step: ToolStep, view: TurnView, places: str) -> str:
    line = escaped(tool_text(replace(tool_line(step, view), summary="", more="")))
    return f"{line} {places}" if step.status is StepStatus.AWAITING else line


def _place(card: str, place: Destination, view: TurnView, refs: Refs) -> str:
    match place:
        case Channel(channel):
            ref = MessageRef.parse(refs.get(copy_name(card, place), ""))
            link = f" ({message_address(view.turn.conversation, ref)})" if ref is not None else ""
            return f"in {channel_name(channel)}{link}"
        case Direct(user):
            return f"by {person(Author(PLATFORM, user, ''))}"
