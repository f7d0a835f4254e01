"""Submitted modals: a fast result is shown in the modal, a slow one with its progress.

Slack waits three seconds for the response to a submission (docs.slack.dev, "Modals").
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

from bot.chat.actions import ApprovalRef
from bot.chat.decisions import decide
from bot.chat.rejection_messages import TOO_MANY_REQUESTS, UNEXPECTED_ERROR, error_message
from bot.domain.approvals import DecisionType
from bot.domain.commands import Form
from bot.errors import CountersignError, DeliveryFailed
from bot.platforms.slack.command_runner import CommandRunner, TriggerId
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.interactions import InteractionHandler
from bot.platforms.slack.modals import (
    CONFIRM,
    DENY,
    FIELD,
    FORM,
    REASON,
    TYPED,
    Back,
    ConfirmationSubmitted,
    DenySubmitted,
    FormSubmitted,
    Window,
    decode_state,
    errors,
    form_to_modal,
    note_modal,
)
from bot.platforms.slack.outgoing import CommandReply, fallback_text
from bot.platforms.slack.payloads import user_of
from bot.platforms.slack.responders import APART_SECONDS, ResponseTarget
from bot.platforms.slack.users import resolve_mentions
from bot.platforms.slack.web_api import WebApi

# -------------------- modal parsing


def read_submission(view: Mapping[str, Any]) -> Back | None:
    """Parse a submission. Return None if the modal is not one of the bot's."""
    metadata = str(view.get("private_metadata") or "")
    typed = _typed(view)
    try:
        match view.get("callback_id"):
            case str(name) if name == DENY:
                keep, approval_id, revision = json.loads(metadata)
                return DenySubmitted(
                    ApprovalRef(str(approval_id), int(revision)), typed.get(REASON, "").strip(), str(keep)
                )
            case str(name) if name == CONFIRM:
                keep, *words = map(str, json.loads(metadata))
                return ConfirmationSubmitted(tuple(words), typed.get(TYPED, "").strip(), keep)
            case str(name) if name == FORM:
                luggage = decode_state(metadata)
                filled = {name.removeprefix(FIELD): value for name, value in typed.items() if name.startswith(FIELD)}
                return FormSubmitted(luggage.form, {**luggage.carried, **filled}, luggage.keep)
            case _:
                return None
    except (ValueError, TypeError):
        return None


def _typed(view: Mapping[str, Any]) -> dict[str, str]:
    """Return the value of every field by its block id; empty for a missing one."""
    values = (view.get("state") or {}).get("values") or {}
    return {
        str(block): _value(element)
        for block, elements in values.items()
        for element in (elements or {}).values()
        if isinstance(element, Mapping)
    }


def _value(element: Mapping[str, Any]) -> str:
    match element.get("type"):
        case "radio_buttons" | "static_select":
            return str((element.get("selected_option") or {}).get("value") or "")
        case _:
            return str(element.get("value") or "")


log = logging.getLogger(__name__)

SOON_SECONDS = 1.8
BUSY = "This takes a moment…"
DONE = "Done."
TITLE = "Countersign"

Answer = Mapping[str, Any]
"""Response to a submission; an empty one closes the modal."""
CLEAR: Answer = {"response_action": "clear"}


class _Meanwhile:
    """Progress of a slow submission in its modal: shows the latest reply before the final one."""

    def __init__(self, api: WebApi, view_id: str) -> None:
        self._api = api
        self._view_id = view_id
        self._text = BUSY
        self._changed: float | None = None

    def window(self) -> Window:
        """Return the progress modal, which may be updated from now on."""
        self._changed = monotonic()
        return note_modal(TITLE, self._text)

    async def say(self, sheet: CommandReply) -> None:
        """Show progress. Never raises."""
        self._text = fallback_text(sheet.blocks) or BUSY
        if self._changed is None or monotonic() - self._changed < APART_SECONDS:
            return
        if self._api.pacing.has_headroom("views.update"):
            try:
                await self._api.edit("views.update", view_id=self._view_id, view=self.window())
            except DeliveryFailed as error:
                log.info("progress not shown in a modal: %s", error)


class ModalSubmissionHandler:
    """Takes sent windows."""

    def __init__(self, platform: PlatformContext, invocations: CommandRunner, counter: InteractionHandler) -> None:
        self._platform = platform
        self._invocations = invocations
        self._counter = counter

    async def take(self, body: Mapping[str, Any]) -> Answer:
        """Return the response to a submission."""
        view = body.get("view")
        if not isinstance(view, dict) or (submission := read_submission(view)) is None:
            return {}
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        trigger = TriggerId.fresh(str(body.get("trigger_id") or ""))
        view_id = str(view.get("id") or "")
        meanwhile = _Meanwhile(self._platform.api, view_id)
        answering = functools.partial(self._answer, submission, user_of(body), trigger, meanwhile)
        work = self._work(answering, outcome, view_id)
        if not self._platform.background_tasks.start_for(user_of(body), work, "slack: window"):
            return _update(note_modal(TITLE, TOO_MANY_REQUESTS))
        await asyncio.wait({outcome}, timeout=SOON_SECONDS)
        if outcome.done() and not outcome.cancelled():
            return outcome.result()
        outcome.cancel()
        return _update(meanwhile.window())

    async def _work(
        self, answering: Callable[[], Awaitable[Answer]], outcome: asyncio.Future[Answer], view_id: str
    ) -> None:
        answer = _update(note_modal(TITLE, UNEXPECTED_ERROR))
        try:
            answer = await answering()
        except (CountersignError, TimeoutError) as error:
            log.warning("modal submission failed: %s", error)
            answer = _update(note_modal(TITLE, error_message(error)))
        finally:
            late = outcome.done()
            if not late:
                outcome.set_result(answer)
        if late:  # the window says by now that it takes longer
            window = answer.get("view") or note_modal(TITLE, DONE)
            await self._platform.api.edit("views.update", view_id=view_id, view=window)

    async def _answer(self, sent: Back, user: str, trigger: TriggerId | None, meanwhile: _Meanwhile) -> Answer:
        match sent:
            case DenySubmitted(ref, reason):
                member = await self._platform.people.member(user)
                if told := await decide(self._platform.engine, [ref], DecisionType.DENY, member, reason):
                    return _update(note_modal("Deny", await resolve_mentions(self._platform.people, told)))
                return CLEAR
            case ConfirmationSubmitted(words, typed, kept):
                if (place := _place(kept, user)) is not None:
                    errand = self._counter.command((*words, "--confirm", typed), place, trigger)
                    self._counter.begin(errand, place, "command")
                return CLEAR
            case FormSubmitted(form, fields, kept):
                place = _place(kept, user)
                return CLEAR if place is None else await self._filled(form, fields, user, place, meanwhile)

    async def _filled(
        self, form: str, fields: Mapping[str, str], user: str, place: ResponseTarget, meanwhile: _Meanwhile
    ) -> Answer:
        member = await self._platform.people.member(user)
        if refusal := self._platform.audience.rejection(member):
            return _update(note_modal(TITLE, refusal))
        answer = await self._invocations.submit(form, fields, member, place, meanwhile.say)
        if not isinstance(answer, Form):
            return CLEAR
        wrong = errors(answer)
        if wrong and answer.id == form and not _differ(answer, fields):
            return {"response_action": "errors", "errors": wrong}
        return _update(form_to_modal(answer, str(place)))


def _differ(form: Form, fields: Mapping[str, str]) -> bool:
    """Return True if the form shows other fields or values than were submitted, so that a response with errors is not
    enough.
    """
    return any(fields.get(field.name, "") != field.value for field in form.fields)


def _update(window: Window) -> Answer:
    return {"response_action": "update", "view": window}


def _place(kept: str, user: str) -> ResponseTarget | None:
    """Return the target the modal was opened in, or None if another user opened it."""
    place = ResponseTarget.parse(kept)
    return place if place is not None and place.spot.user == user else None
