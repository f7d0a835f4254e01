"""Cards that are signed elsewhere: brought there before the thread says so, and kept up to date after it.

Called by the surface with every view. A card goes only to people who could sign it, asked for at that moment: what a
call would do is nothing for anybody else. One that reaches none of its places must not wait for a signature.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import groupby

from bot.domain.approval_targets import ChannelTarget, DirectTarget
from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.errors import LOCKED_OUT, SlackWebApiError
from bot.platforms.slack.ids import MessageRef
from bot.platforms.slack.outgoing import OutgoingMessage
from bot.platforms.slack.remote_card_messages import RemoteCard, SentCards, remote_cards
from bot.platforms.slack.sending import Sender
from bot.platforms.slack.uploads import direct_channel
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.rendering.remote_cards import NO_MEMBER, NOT_THERE, UNREACHED, remote_approvals

log = logging.getLogger(__name__)


class RemoteCardPublisher:
    """Posts and edits cards outside of their conversation."""

    def __init__(self, api: WebApi, people: UserDirectory, sender: Sender) -> None:
        self._api = api
        self._people = people
        self._sender = sender

    async def outside(self, view: TurnView, refs: MessageRefs) -> SentCards:
        """What the conversation says of the cards elsewhere is made of this. Raises DeliveryFailed."""
        return SentCards((await self._api.identity()).url, dict(refs)) if remote_approvals(view) else SentCards()

    async def post_pending(
        self, view: TurnView, refs: MessageRefs, now: float, *, search: bool
    ) -> AsyncGenerator[PostedMessage, None]:
        """Post the cards that wait for a signature and are not out yet; what is settled by now need not be seen there.
        Raises DeliveryFailed, for good if a card can be posted in none of its places.
        """
        for _, places in groupby(await self._copies(view, now), lambda each: each.card):
            out, failure = False, None
            missed: list[RemoteCard] = []
            for copy in places:
                if copy.slot.name in refs or not copy.slot.asks:
                    out = True
                    continue
                try:
                    ref = await self._sender.post(
                        view.turn.id, await self._placed(copy), view.turn.conversation, search=search
                    )
                except DeliveryFailed as error:
                    if not _is_of_this_place(error):
                        raise
                    log.warning("a card of turn %s could not be posted in one of its places: %s", view.turn.id, error)
                    failure = error
                    missed.append(copy)
                else:
                    out = True
                    yield PostedMessage(copy.slot.name, str(ref))
            if failure is not None and not out:
                raise DeliveryFailed(NOT_THERE.format(failure.cause), failure.fix, permanent=True) from failure
            for copy in missed:
                yield PostedMessage(copy.slot.name, UNREACHED)

    async def update(self, view: TurnView, refs: MessageRefs, now: float) -> AsyncGenerator[PostedMessage, None]:
        """Bring the cards that are out up to date. What cannot be changed any more stays as it is: its buttons are
        judged when they are pressed. Raises DeliveryFailed.
        """
        for copy in await self._copies(view, now):
            ref = MessageRef.parse(refs.get(copy.slot.name, ""))
            if ref is None or self._sender.unchanged(view.turn.id, copy.slot):
                continue
            slot = replace(copy.slot, place=ref.channel)
            try:
                shown = await self._sender.edit(view.turn.id, slot, view.turn.conversation, ref)
            except DeliveryFailed as error:
                if not _is_of_this_place(error):
                    raise
                log.warning("a card of turn %s could not be redrawn in one of its places: %s", view.turn.id, error)
                continue
            yield PostedMessage(slot.name, str(shown))

    async def _copies(self, view: TurnView, now: float) -> list[RemoteCard]:
        if not remote_approvals(view):
            return []
        return [*remote_cards(view, now, (await self._api.identity()).url)]

    async def _placed(self, copy: RemoteCard) -> OutgoingMessage:
        """The card with the channel it goes to. Raises DeliveryFailed."""
        match copy.place:
            case ChannelTarget(channel):
                return replace(copy.slot, place=channel)
            case DirectTarget(user):
                member = await self._people.member(user)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return replace(copy.slot, place=await direct_channel(self._api, user))


def _is_of_this_place(error: DeliveryFailed) -> bool:
    """Whether the trouble is one that other places need not have, and waiting does not help."""
    return error.permanent and not (isinstance(error, SlackWebApiError) and error.code in LOCKED_OUT)
