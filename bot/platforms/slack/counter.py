"""Presses and commands: each one is acknowledged at once, and done afterwards.

Who did it is asked for anew, and whether they may is decided by the engine or by the command; nothing that a button
carries is believed. Whoever may not hears of it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from bot.domain.approvals import Verdict
from bot.domain.conversations import ConversationKey
from bot.domain.turns import ToolStep
from bot.errors import CountersignError
from bot.platforms.slack.answers import Place
from bot.platforms.slack.desk import Desk
from bot.platforms.slack.drawings import Window
from bot.platforms.slack.interaction import Pressed, Slashed, read_press, read_slash
from bot.platforms.slack.invocations import Invocations, Trigger
from bot.platforms.slack.principals import with_names
from bot.platforms.slack.reception import Asked
from bot.platforms.slack.references import conversation
from bot.platforms.slack.telling import plain_sheet, whisper
from bot.platforms.slack.uploads import direct_channel
from bot.platforms.slack.windows import call_window, confirm_window, deny_window, page_of_whole, whole_call_window
from bot.platforms.slack.wording import Names, worded
from bot.reception.editing import opening
from bot.reception.presses import (
    Allow,
    Approve,
    AskToConfirm,
    AskWhyNot,
    CardRef,
    Edit,
    Rate,
    Review,
    Run,
    RunBeside,
    ViewAll,
)
from bot.reception.refusals import ENOUGH, GONE, OUT_OF_DATE, told_of
from bot.reception.taken_up import rate, take_up
from bot.reception.typed_commands import shell_words
from bot.reception.verdicts import allow, decide, find_call, open_whole
from bot.rendering.offers import Check, RunAgain, Stop

log = logging.getLogger(__name__)

NO_OUTSIDERS = "Only full members of this workspace may see that."


class Counter:
    """Takes what people do with buttons and commands."""

    def __init__(self, desk: Desk, invocations: Invocations) -> None:
        self._desk = desk
        self._api = desk.api
        self._people = desk.people
        self._engine = desk.engine
        self._invocations = invocations

    def asked(self, asked: Asked) -> None:
        """A command was said to the bot."""
        place = Place(asked.spot)
        self.begin(self.command(asked.words, place, None), place, "command")

    def slashed(self, body: Mapping[str, Any]) -> None:
        """A command was typed behind a slash."""
        slashed = read_slash(body)
        self.begin(self._slash(slashed, Trigger.fresh(slashed.trigger)), slashed.place, "command")

    def pressed(self, body: Mapping[str, Any]) -> None:
        """A button was pressed."""
        pressed = read_press(body)
        if pressed is not None:
            self.begin(self._press(pressed, Trigger.fresh(pressed.trigger)), pressed.place, "press")

    def begin(self, errand: Coroutine[Any, Any, None], place: Place, name: str) -> None:
        """Do something after the acknowledgement; whoever wanted it hears if it does not work."""
        told = self._told(errand, place)
        if not self._desk.errands.start_for(
            place.spot.user, told, f"slack: {name}", lambda: self._whisper(place, ENOUGH)
        ):
            errand.close()

    async def command(self, words: tuple[str, ...], place: Place, trigger: Trigger | None) -> None:
        """Answer a command of the person who stands there. Raises DeliveryFailed."""
        member = await self._people.member(place.spot.user)
        if refusal := self._desk.manners.refusal(member):
            await self._whisper(place, refusal)
            return
        await self._invocations.run(words, member, place, trigger)

    async def _told(self, errand: Coroutine[Any, Any, None], place: Place) -> None:
        try:
            await errand
        except (CountersignError, TimeoutError) as error:
            log.warning("something that was pressed or typed in Slack did not work: %s", error)
            await self._whisper(place, told_of(error))

    async def _whisper(self, place: Place, text: str) -> None:
        await whisper(self._api, place.spot, plain_sheet(text))

    async def _slash(self, slashed: Slashed, trigger: Trigger | None) -> None:
        words = (slashed.command, *shell_words(worded(slashed.text, Names())))
        await self.command(words, slashed.place, trigger)

    async def _press(self, pressed: Pressed, trigger: Trigger | None) -> None:  # noqa: C901 - one case for each kind
        if not pressed.place.spot.channel:  # the button stands in somebody's Home
            pressed = await self._at_home(pressed)
        place = pressed.place
        match pressed.press:
            case Approve(cards):
                await self._approve(cards, pressed)
            case Allow(ref, offer):
                await self._allow(ref, offer, pressed)
            case Edit(ref):
                await self._beside(opening(ref), place, trigger)
            case RunBeside(words):
                await self._beside(words, place, trigger)
            case AskWhyNot(ref):
                await self._open(deny_window(ref, str(place.unheard)), pressed)
            case ViewAll() | Review():
                await self._show_call(pressed.press, pressed)
            case Run(words):
                await self.command(words, place, trigger)
            case AskToConfirm():
                await self._open(confirm_window(pressed.press, str(place)), pressed)
            case Rate() as rated:
                await self._rate(rated, place)
            case Check() | RunAgain() | Stop():
                await self._take_up(pressed.press, place)

    async def _beside(self, words: tuple[str, ...], place: Place, trigger: Trigger | None) -> None:
        """Answer what was pressed on a card: what comes of it takes the card's place nowhere."""
        await self.command(words, replace(place, replaces=False), trigger)

    async def _approve(self, cards: tuple[CardRef, ...], pressed: Pressed) -> None:
        member = await self._people.member(pressed.place.spot.user)
        await self._answered(await decide(self._engine, cards, Verdict.APPROVE, member), cards[0], pressed)

    async def _allow(self, card: CardRef, offer: str, pressed: Pressed) -> None:
        member = await self._people.member(pressed.place.spot.user)
        await self._answered(await allow(self._engine, card, offer, member), card, pressed)

    async def _answered(self, told: str, card: CardRef, pressed: Pressed) -> None:
        """Say what there is to say of a signature, or show in a window that it counts."""
        if told:
            await self._whisper(pressed.place, await with_names(self._people, told))
        elif pressed.view and (step := await self._desk.records.asked(card.approval_id)) is not None:
            # A card is redrawn by whoever draws the turn, a window by nobody.
            window = call_window(step, keep=str(pressed.place.unheard))
            await self._api.edit("views.update", view_id=pressed.view, view=window)

    async def _take_up(self, offer: Check | RunAgain | Stop, place: Place) -> None:
        member = await self._people.member(place.spot.user)
        if refusal := self._desk.manners.refusal(member):
            await self._whisper(place, refusal)
            return
        if told := await take_up(self._engine, offer, member.author):
            await self._whisper(place, told)

    async def _rate(self, rated: Rate, place: Place) -> None:
        person = await self._people.person(place.spot.user)
        refusal = self._desk.manners.refusal(person)
        await self._whisper(place, refusal or await rate(self._desk.records, rated, person.author))

    async def _show_call(self, press: ViewAll | Review, pressed: Pressed) -> None:
        if await self._is_outsider(pressed):
            return
        match press:
            case ViewAll(ref, page):
                step, missing = await self._find(ref, pressed.place), OUT_OF_DATE
            case Review(approval_id):
                step, page, missing = await self._desk.records.asked(approval_id), 1, GONE
        if step is None:
            await self._whisper(pressed.place, missing)
            return
        member = await self._people.member(pressed.place.spot.user)
        draw = (
            whole_call_window
            if await open_whole(self._engine, step, member, page_of_whole(step, page))
            else call_window
        )
        window = draw(step, page, str(pressed.place.unheard))
        if pressed.view:
            await self._api.edit("views.update", view_id=pressed.view, view=window)
        else:
            await self._api.post("views.open", trigger_id=pressed.trigger, view=window)

    async def _find(self, card: CardRef, place: Place) -> ToolStep | None:
        return await find_call(self._engine, self._desk.records, await self.where(place), card)

    async def _is_outsider(self, pressed: Pressed) -> bool:
        """Whether somebody may not see what a call would do; if so, they have been told."""
        member = await self._people.member(pressed.place.spot.user)
        if outside := member.guest or member.external:
            await self._whisper(pressed.place, NO_OUTSIDERS)
        return outside

    async def _open(self, window: Window, pressed: Pressed) -> None:
        """Open a window, on top of the one in which the button stands."""
        method = "views.push" if pressed.view else "views.open"
        await self._api.post(method, trigger_id=pressed.trigger, view=window)

    async def _at_home(self, pressed: Pressed) -> Pressed:
        """The same press, answered in the direct conversation with whoever pressed."""
        spot = replace(pressed.place.spot, channel=await direct_channel(self._api, pressed.place.spot.user))
        return replace(pressed, place=replace(pressed.place, spot=spot), view="")

    async def where(self, place: Place) -> ConversationKey:
        """The conversation of a place."""
        return conversation((await self._api.identity()).team, place.spot.channel, place.spot.thread)
