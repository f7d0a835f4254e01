"""Windows that were sent: what comes of one soon is put into it, for what takes longer it says so.

Slack waits three seconds for what becomes of a window (docs.slack.dev, "Modals").
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from bot.domain.approvals import Verdict
from bot.domain.commands import Form
from bot.errors import CountersignError
from bot.platforms.slack.answers import Place
from bot.platforms.slack.counter import TROUBLE, Counter
from bot.platforms.slack.desk import Desk
from bot.platforms.slack.drawings import Back, ConfirmationBack, FormBack, ReasonBack, Window
from bot.platforms.slack.forms import errors, form_window
from bot.platforms.slack.interaction import user_of
from bot.platforms.slack.invocations import Invocations, Trigger
from bot.platforms.slack.principals import with_names
from bot.platforms.slack.submissions import read_submission
from bot.platforms.slack.windows import note_window
from bot.reception.verdicts import decide

log = logging.getLogger(__name__)

SOON_SECONDS = 1.8
BUSY = "This takes a moment…"
DONE = "Done."
TITLE = "Countersign"

Answer = Mapping[str, Any]
"""How Slack wants to be answered; an empty one closes the window."""
CLEAR: Answer = {"response_action": "clear"}


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
        work = self._work(sent, user_of(body), trigger, outcome, str(view.get("id") or ""))
        if not self._desk.errands.start(work, "slack: window"):
            return _update(note_window(TITLE, TROUBLE))
        await asyncio.wait({outcome}, timeout=SOON_SECONDS)
        if outcome.done() and not outcome.cancelled():
            return outcome.result()
        outcome.cancel()
        return _update(note_window(TITLE, BUSY))

    async def _work(
        self, sent: Back, user: str, trigger: Trigger | None, outcome: asyncio.Future[Answer], view_id: str
    ) -> None:
        answer = _update(note_window(TITLE, TROUBLE))
        try:
            answer = await self._answer(sent, user, trigger)
        except (CountersignError, TimeoutError) as error:
            log.warning("a window that was sent in Slack did not work: %s", error)
        finally:
            late = outcome.done()
            if not late:
                outcome.set_result(answer)
        if late:  # the window says by now that it takes longer
            window = answer.get("view") or note_window(TITLE, DONE)
            await self._desk.api.edit("views.update", view_id=view_id, view=window)

    async def _answer(self, sent: Back, user: str, trigger: Trigger | None) -> Answer:
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
                return CLEAR if place is None else await self._filled(form, fields, user, place)

    async def _filled(self, form: str, fields: Mapping[str, str], user: str, place: Place) -> Answer:
        member = await self._desk.people.member(user)
        if refusal := self._desk.manners.refusal(member):
            return _update(note_window(TITLE, refusal))
        answer = await self._invocations.submit(form, fields, member, place)
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
