"""Windows that were sent: what comes of one soon is put into it, while it takes longer it says how far that is.

Slack waits three seconds for what becomes of a window (docs.slack.dev, "Modals").
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

from bot.domain.approvals import Verdict
from bot.domain.commands import Form
from bot.errors import CountersignError, DeliveryFailed
from bot.platforms.slack.answers import APART_SECONDS, Place
from bot.platforms.slack.counter import Counter
from bot.platforms.slack.desk import Desk
from bot.platforms.slack.drawings import Back, ConfirmationBack, FormBack, ReasonBack, Window
from bot.platforms.slack.forms import errors, form_window
from bot.platforms.slack.interaction import user_of
from bot.platforms.slack.invocations import Invocations, Trigger
from bot.platforms.slack.principals import with_names
from bot.platforms.slack.slots import Sheet
from bot.platforms.slack.spoken import spoken
from bot.platforms.slack.submissions import read_submission
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.windows import note_window
from bot.reception.refusals import ENOUGH, TROUBLE, told_of
from bot.reception.verdicts import decide

log = logging.getLogger(__name__)

SOON_SECONDS = 1.8
BUSY = "This takes a moment…"
DONE = "Done."
TITLE = "Countersign"

Answer = Mapping[str, Any]
"""How Slack wants to be answered; an empty one closes the window."""
CLEAR: Answer = {"response_action": "clear"}


class _Meanwhile:
    """What a window says while something takes longer: the latest answer that is not the last."""

    def __init__(self, api: WebApi, view_id: str) -> None:
        self._api = api
        self._view_id = view_id
        self._text = BUSY
        self._changed: float | None = None

    def window(self) -> Window:
        """The window, which from now on is there to be changed."""
        self._changed = monotonic()
        return note_window(TITLE, self._text)

    async def say(self, sheet: Sheet) -> None:
        """It is that far by now. Never raises."""
        self._text = spoken(sheet.blocks) or BUSY
        if self._changed is None or monotonic() - self._changed < APART_SECONDS:
            return
        if self._api.pacing.spare("views.update"):
            try:
                await self._api.edit("views.update", view_id=self._view_id, view=self.window())
            except DeliveryFailed as error:
                log.info("a window could not say how far something is: %s", error)


class SentWindows:
    """Takes sent windows."""

    def __init__(self, desk: Desk, invocations: Invocations, counter: Counter) -> None:
        self._desk = desk
        self._invocations = invocations
        self._counter = counter

    async def take(self, body: Mapping[str, Any]) -> Answer:
        """What becomes of a window that was sent."""
        view = body.get("view")
        if not isinstance(view, dict) or (sent := read_submission(view)) is None:
            return {}
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        trigger = Trigger.fresh(str(body.get("trigger_id") or ""))
        view_id = str(view.get("id") or "")
        meanwhile = _Meanwhile(self._desk.api, view_id)
        answering = functools.partial(self._answer, sent, user_of(body), trigger, meanwhile)
        work = self._work(answering, outcome, view_id)
        if not self._desk.errands.start_for(user_of(body), work, "slack: window"):
            return _update(note_window(TITLE, ENOUGH))
        await asyncio.wait({outcome}, timeout=SOON_SECONDS)
        if outcome.done() and not outcome.cancelled():
            return outcome.result()
        outcome.cancel()
        return _update(meanwhile.window())

    async def _work(
        self, answering: Callable[[], Awaitable[Answer]], outcome: asyncio.Future[Answer], view_id: str
    ) -> None:
        answer = _update(note_window(TITLE, TROUBLE))
        try:
            answer = await answering()
        except (CountersignError, TimeoutError) as error:
            log.warning("a window that was sent in Slack did not work: %s", error)
            answer = _update(note_window(TITLE, told_of(error)))
        finally:
            late = outcome.done()
            if not late:
                outcome.set_result(answer)
        if late:  # the window says by now that it takes longer
            window = answer.get("view") or note_window(TITLE, DONE)
            await self._desk.api.edit("views.update", view_id=view_id, view=window)

    async def _answer(self, sent: Back, user: str, trigger: Trigger | None, meanwhile: _Meanwhile) -> Answer:
        match sent:
            case ReasonBack(ref, reason):
                member = await self._desk.people.member(user)
                if told := await decide(self._desk.engine, [ref], Verdict.DENY, member, reason):
                    return _update(note_window("Deny", await with_names(self._desk.people, told)))
                return CLEAR
            case ConfirmationBack(words, typed, kept):
                if (place := _place(kept, user)) is not None:
                    errand = self._counter.command((*words, "--confirm", typed), place, trigger)
                    self._counter.begin(errand, place, "command")
                return CLEAR
            case FormBack(form, fields, kept):
                place = _place(kept, user)
                return CLEAR if place is None else await self._filled(form, fields, user, place, meanwhile)

    async def _filled(
        self, form: str, fields: Mapping[str, str], user: str, place: Place, meanwhile: _Meanwhile
    ) -> Answer:
        member = await self._desk.people.member(user)
        if refusal := self._desk.manners.refusal(member):
            return _update(note_window(TITLE, refusal))
        answer = await self._invocations.submit(form, fields, member, place, meanwhile.say)
        if not isinstance(answer, Form):
            return CLEAR
        wrong = errors(answer)
        if wrong and answer.id == form and not _differ(answer, fields):
            return {"response_action": "errors", "errors": wrong}
        return _update(form_window(answer, str(place)))


def _differ(form: Form, fields: Mapping[str, str]) -> bool:
    """Whether the form shows other fields than were sent, or other values in them: then errors alone would not do."""
    return any(fields.get(field.name, "") != field.value for field in form.fields)


def _update(window: Window) -> Answer:
    return {"response_action": "update", "view": window}


def _place(kept: str, user: str) -> Place | None:
    """Where the window was opened, for whoever sends it: nobody else's place is theirs."""
    place = Place.parse(kept)
    return place if place is not None and place.spot.user == user else None
