"""Remote cards: posted before the thread links to them, and updated after it.

A card goes only to channels of the call's guild and to users who may approve it at that moment, because its arguments
are visible to them alone. A call whose card reaches no channel must not wait for an approval.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import groupby
from time import monotonic

from bot.domain.approvals import ChannelTarget, DirectTarget
from bot.domain.turns import Turn
from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.discord.cards import RemoteCard, remote_cards
from bot.platforms.discord.channel_ref import ChannelRef, MessageRef, channel_id_of, from_json
from bot.platforms.discord.errors import DiscordApiError
from bot.platforms.discord.outgoing import OutgoingMessage
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.sending import Sender
from bot.platforms.discord.threads import direct_channel
from bot.platforms.discord.users import TtlCache, UserDirectory
from bot.rendering.remote_cards import NO_MEMBER, NOT_THERE, UNREACHED, remote_approvals

log = logging.getLogger(__name__)

LOCKED_OUT = 401
ANOTHER_SERVER = "That channel is not on this server."


class RemoteCardPublisher:
    """Posts and edits cards outside of their conversation."""

    def __init__(self, rest: Rest, people: UserDirectory, sender: Sender) -> None:
        self._rest = rest
        self._people = people
        self._sender = sender
        self._direct = TtlCache[str, bool](monotonic)

    async def post_pending(
        self, view: TurnView, refs: MessageRefs, now: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Post the pending cards that have not been posted. A decided approval needs no remote card. Raises
        DeliveryFailed, permanent if a card cannot be posted in any of its channels.
        """
        taken = set(refs.values())
        for _, places in groupby(await self._copies(view, now), lambda each: each.card):
            out, failure = False, None
            missed: list[RemoteCard] = []
            for copy in places:
                if copy.slot.name in refs or not copy.slot.asks:
                    out = True
                    continue
                try:
                    slot = await self._placed(copy, view.turn)
                    ref = await self._sender.post(view.turn, slot, search=search, taken=taken)
                except DeliveryFailed as error:
                    if not _is_of_this_place(error):
                        raise
                    log.warning("turn %s: remote card not posted in a channel: %s", view.turn.id, error)
                    failure = error
                    missed.append(copy)
                else:
                    out = True
                    taken.add(str(ref))
                    yield PostedMessage(copy.slot.name, str(ref))
            if failure is not None and not out:
                raise DeliveryFailed(NOT_THERE.format(failure.cause), failure.fix, permanent=True) from failure
            for copy in missed:
                yield PostedMessage(copy.slot.name, UNREACHED)

    async def update(self, view: TurnView, refs: MessageRefs, now: float) -> AsyncGenerator[PostedMessage, None]:
        """Update the posted cards. A card that cannot be edited stays: its buttons are checked when a user clicks.
        Raises DeliveryFailed.
        """
        for copy in await self._copies(view, now):
            ref = MessageRef.parse(refs.get(copy.slot.name, ""))
            if ref is None or self._sender.unchanged(view.turn, copy.slot):
                continue
            slot = replace(copy.slot, place=ref.channel)
            try:
                shown = await self._sender.edit(view.turn, slot, ref)
            except DeliveryFailed as error:
                if not _is_of_this_place(error):
                    raise
                log.warning("turn %s: remote card not updated in a channel: %s", view.turn.id, error)
                continue
            yield PostedMessage(slot.name, str(shown))

    async def _copies(self, view: TurnView, now: float) -> list[RemoteCard]:
        if not remote_approvals(view):
            return []
        origin = channel_id_of(view.turn.conversation)
        return [*remote_cards(view, now, direct=await self._direct.get(origin, lambda: self._is_direct(origin)))]

    async def _placed(self, copy: RemoteCard, turn: Turn) -> OutgoingMessage:
        """Return the card with the channel it goes to. Raises DeliveryFailed."""
        match copy.place:
            case ChannelTarget(channel):
                spot = await self._spot(channel)
                if spot is None or spot.server != turn.conversation.workspace:
                    raise DeliveryFailed(ANOTHER_SERVER, permanent=True)
                return replace(copy.slot, place=channel)
            case DirectTarget(user):
                member = await self._people.member(user, turn.conversation.workspace)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return replace(copy.slot, place=await direct_channel(self._rest, user))

    async def _is_direct(self, channel: str) -> bool:
        spot = await self._spot(channel)
        return spot is not None and spot.direct

    async def _spot(self, channel: str) -> ChannelRef | None:
        if not channel.isdecimal():
            return None
        found = await self._rest.call("GET", "/channels/{channel_id}", "look at a channel", channel_id=channel)
        return from_json(found) if isinstance(found, dict) else None


def _is_of_this_place(error: DeliveryFailed) -> bool:
    """Return True if the error concerns one channel only and a retry cannot help."""
    return error.permanent and not (isinstance(error, DiscordApiError) and error.status == LOCKED_OUT)
