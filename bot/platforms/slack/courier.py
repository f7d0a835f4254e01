"""Cards that are signed elsewhere: brought there before the thread says so, and kept up to date after it.

Called by the surface with every view. A card goes only to people who could sign it, asked for at that moment: what a
call would do is nothing for anybody else. One that reaches none of its places must not wait for a signature.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import groupby

from bot.domain.destinations import Channel, Direct
from bot.domain.views import Drawn, Refs, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.elsewhere import Copy, Outside, copies
from bot.platforms.slack.faults import LOCKED_OUT, SlackRefusal
from bot.platforms.slack.people import People
from bot.platforms.slack.references import MessageRef
from bot.platforms.slack.sending import Sender
from bot.platforms.slack.slots import Slot
from bot.platforms.slack.uploads import direct_channel
from bot.platforms.slack.web_api import WebApi
from bot.rendering.elsewhere import NO_MEMBER, NOT_THERE, UNREACHED, asked_elsewhere

log = logging.getLogger(__name__)


class Courier:
    """Posts and edits cards outside of their conversation."""

    def __init__(self, api: WebApi, people: People, sender: Sender) -> None:
        self._api = api
        self._people = people
        self._sender = sender

    async def outside(self, view: TurnView, refs: Refs) -> Outside:
        """What the conversation says of the cards elsewhere is made of this. Raises DeliveryFailed."""
        return Outside((await self._api.identity()).url, dict(refs)) if asked_elsewhere(view) else Outside()

    async def bring(self, view: TurnView, refs: Refs, now: float, *, search: bool) -> AsyncGenerator[Drawn, None]:
        """Post the cards that wait for a signature and are not out yet; what is settled by now need not be seen there.
        Raises DeliveryFailed, for good if a card can be posted in none of its places.
        """
        for _, places in groupby(await self._copies(view, now), lambda each: each.card):
            out, failure = False, None
            missed: list[Copy] = []
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
                    yield Drawn(copy.slot.name, str(ref))
            if failure is not None and not out:
                raise DeliveryFailed(NOT_THERE.format(failure.cause), failure.fix, permanent=True) from failure
            for copy in missed:
                yield Drawn(copy.slot.name, UNREACHED)

    async def refresh(self, view: TurnView, refs: Refs, now: float) -> AsyncGenerator[Drawn, None]:
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
            yield Drawn(slot.name, str(shown))

    async def _copies(self, view: TurnView, now: float) -> list[Copy]:
        if not asked_elsewhere(view):
            return []
        return [*copies(view, now, (await self._api.identity()).url)]

    async def _placed(self, copy: Copy) -> Slot:
        """The card with the channel it goes to. Raises DeliveryFailed."""
        match copy.place:
            case Channel(channel):
                return replace(copy.slot, place=channel)
            case Direct(user):
                member = await self._people.member(user)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return replace(copy.slot, place=await direct_channel(self._api, user))


def _is_of_this_place(error: DeliveryFailed) -> bool:
    """Whether the trouble is one that other places need not have, and waiting does not help."""
    return error.permanent and not (isinstance(error, SlackRefusal) and error.code in LOCKED_OUT)
