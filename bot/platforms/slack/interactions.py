"""Handlers of clicks, slash commands, submitted modals and shortcuts.

A click or command is acknowledged before, and handled in the background. Slack waits three seconds for the response to
a submission (docs.slack.dev, "Modals"): a fast result is shown in the modal, a slow one with its progress. A rejection
is an ephemeral message. Delivery edits the cards.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from bot.chat.actions import (
    Action,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
)
from bot.chat.argument_editing import edit_command
from bot.chat.decisions import decide
from bot.chat.interactions import ActionHandler, Actor
from bot.chat.message_handler import split_args
from bot.chat.message_model import Message
from bot.chat.rejection_messages import TOO_MANY_REQUESTS, UNEXPECTED_ERROR, error_message
from bot.chat.thread_context import format_lines
from bot.domain.approvals import DecisionType, Portion
from bot.domain.commands import Form
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import ToolStep
from bot.errors import CountersignError, DeliveryFailed
from bot.platforms.slack.blocks import CommandReply, decode, fallback, fallback_text
from bot.platforms.slack.channels import ChannelRef, conversation, direct_channel
from bot.platforms.slack.command_runner import CommandRunner, TriggerId
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.home import HomeRefresher
from bot.platforms.slack.markup import MentionResolver, defuse_mentions, escape, to_plain_text
from bot.platforms.slack.message_blocks import message_blocks
from bot.platforms.slack.messages import TextCommand
from bot.platforms.slack.modals import (
    Back,
    ConfirmationSubmitted,
    DenySubmitted,
    FormSubmitted,
    Window,
    call_modal,
    confirm_modal,
    deny_modal,
    errors,
    form_to_modal,
    modal,
    note_modal,
    page_of_call,
    read_submission,
    text_input,
    whole_call_modal,
)
from bot.platforms.slack.responders import APART_SECONDS, ResponseTarget, send_ephemeral, text_message
from bot.platforms.slack.users import resolve_mentions
from bot.platforms.slack.web_api import WebApi
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

SOON_SECONDS = 1.8
"""Seconds until a submission without a result is answered with the progress modal; Slack waits three."""
BUSY = "This takes a moment…"
DONE = "Done."
TITLE = "Countersign"
ASK = "cs.ask"
"""`callback_id` of the message shortcut and of its modal."""
QUESTION = "question"
LONGEST_QUOTE = 1_500
RECENT_TURNS = 10

Answer = Mapping[str, Any]
"""Response to a submission; an empty one closes the modal."""
CLEAR: Answer = {"response_action": "clear"}


@dataclass(frozen=True, slots=True)
class ActionPayload:
    """A click on a button. `place` is its location; `view` is its modal, if any."""

    press: Action
    place: ResponseTarget
    trigger: str
    view: str = ""


@dataclass(frozen=True, slots=True)
class SlashCommandPayload:
    """A slash command."""

    command: str
    text: str
    place: ResponseTarget
    trigger: str


def read_press(body: Mapping[str, Any]) -> ActionPayload | None:
    """Parse a click. Return None if the button is not one of the bot's."""
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and actions else None
    if not isinstance(action, dict):
        return None
    press = decode(str(action.get("action_id") or ""), _value(action))
    if press is None:
        return None
    view = _dict(body, "view")
    kept = ResponseTarget.parse(str(view.get("private_metadata") or "")) if view else None
    return ActionPayload(
        press=press,
        # A window remembers where it was opened; who pressed is for Slack to say.
        place=(
            replace(kept, spot=replace(kept.spot, user=user_of(body)))
            if kept is not None
            else ResponseTarget(
                _spot(body), "" if view else str(body.get("response_url") or ""), replaces=_is_private(body)
            )
        ),
        trigger=str(body.get("trigger_id") or ""),
        view=str(view.get("id") or ""),
    )


def read_slash(body: Mapping[str, Any]) -> SlashCommandPayload:
    """Parse a slash command."""
    spot = ChannelRef(
        str(body.get("channel_id") or ""), str(body.get("user_id") or ""), str(body.get("thread_ts") or "")
    )
    return SlashCommandPayload(
        command=str(body.get("command") or "").removeprefix("/").lower(),
        text=str(body.get("text") or ""),
        place=ResponseTarget(spot, str(body.get("response_url") or "")),
        trigger=str(body.get("trigger_id") or ""),
    )


def user_of(body: Mapping[str, Any]) -> str:
    """Return the id of the user."""
    return str(_dict(body, "user").get("id") or body.get("user_id") or "")


def _spot(body: Mapping[str, Any]) -> ChannelRef:
    container, message, channel = _dict(body, "container"), _dict(body, "message"), _dict(body, "channel")
    thread = container.get("thread_ts") or message.get("thread_ts")
    if not (thread or container.get("is_ephemeral")):
        thread = message.get("ts") or container.get("message_ts")
    place = str(channel.get("id") or container.get("channel_id") or "")
    return ChannelRef(place, user_of(body), str(thread or ""))


def _is_private(body: Mapping[str, Any]) -> bool:
    """Return True if the message with the button is visible to this user only; other messages are not replaced."""
    return bool(_dict(body, "container").get("is_ephemeral")) or _spot(body).direct


def _value(action: Mapping[str, Any]) -> str:
    chosen = _dict(action, "selected_option")
    return str(chosen.get("value") or action.get("value") or "")


def _dict(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


class InteractionHandler:
    """Handles buttons and commands."""

    def __init__(self, platform: PlatformContext, invocations: CommandRunner) -> None:
        self._platform = platform
        self._api = platform.api
        self._people = platform.people
        self._invocations = invocations
        self._actions = ActionHandler(platform.engine, platform.records, platform.audience, platform.background_tasks)

    def on_text_command(self, command: TextCommand) -> None:
        """Handle a command in a mention of the bot."""
        place = ResponseTarget(command.spot)
        self.begin(self.command(command.words, place, None), place, "command")

    def on_slash_command(self, body: Mapping[str, Any]) -> None:
        """Handle a slash command."""
        slashed = read_slash(body)
        words = (slashed.command, *split_args(to_plain_text(slashed.text, MentionResolver())))
        self.begin(self.command(words, slashed.place, TriggerId.fresh(slashed.trigger)), slashed.place, "command")

    def on_action(self, body: Mapping[str, Any]) -> None:
        """Handle a click on a button."""
        pressed = read_press(body)
        if pressed is not None:
            self.begin(self._press(pressed, TriggerId.fresh(pressed.trigger)), pressed.place, "press")

    def begin(self, errand: Coroutine[Any, Any, None], place: ResponseTarget, name: str) -> None:
        """Start a task after the acknowledgement; the user is notified if it fails."""
        self._actions.start(errand, place.spot.user, f"slack: {name}", functools.partial(self._whisper, place))

    async def command(self, words: tuple[str, ...], place: ResponseTarget, trigger: TriggerId | None) -> None:
        """Answer a command. Raises DeliveryFailed."""
        member = await self._people.member(place.spot.user)
        if refusal := self._platform.audience.rejection(member):
            await self._whisper(place, refusal)
            return
        await self._invocations.run(words, member, place, trigger)

    async def _whisper(self, place: ResponseTarget, text: str) -> None:
        await send_ephemeral(self._api, place.spot, text_message(text))

    async def _press(self, payload: ActionPayload, trigger: TriggerId | None) -> None:
        if not payload.place.spot.channel:  # the button stands in somebody's Home
            payload = await self._at_home(payload)
        await self._actions.handle(payload.press, SlackClick(self._platform, self, payload, trigger))

    async def _at_home(self, payload: ActionPayload) -> ActionPayload:
        """Return the same payload, answered in the direct conversation with the user."""
        spot = replace(payload.place.spot, channel=await direct_channel(self._api, payload.place.spot.user))
        return replace(payload, place=replace(payload.place, spot=spot), view="")

    async def where(self, place: ResponseTarget) -> ConversationKey:
        """Return the conversation of a target."""
        return conversation((await self._api.identity()).team, place.spot.channel, place.spot.thread)


class SlackClick:
    """A click on a button, which was acknowledged already."""

    def __init__(
        self,
        platform: PlatformContext,
        interactions: InteractionHandler,
        payload: ActionPayload,
        trigger: TriggerId | None,
    ) -> None:
        self._platform = platform
        self._interactions = interactions
        self._payload = payload
        self._place = payload.place
        self._trigger = trigger

    async def acknowledge(self) -> None:
        """Do nothing: the listener has acknowledged the click."""

    async def find_actor(self, about: ConversationKey | None) -> Actor | None:
        """Return the user. An item of another workspace or platform has none."""
        where = await self._interactions.where(self._place)
        if about is not None and about.workspace_key != where.workspace_key:
            return None
        return Actor(await self._platform.people.member(self._place.spot.user), about or where)

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:  # noqa: ARG002 - one workspace
        """Post an ephemeral message."""
        text = await resolve_mentions(self._platform.people, text)
        await send_ephemeral(self._platform.api, self._place.spot, text_message(text))

    async def show(self, message: Message) -> None:
        """Post an ephemeral message with buttons."""
        blocks = message_blocks(message.blocks)
        sheet = CommandReply(tuple(blocks), fallback(fallback_text(blocks)))
        await send_ephemeral(self._platform.api, self._place.spot, sheet)

    async def open_form(self, action: OpenDenyForm | OpenConfirmation) -> None:
        """Open a modal, on top of the one that contains the button."""
        match action:
            case OpenDenyForm(ref):
                window = deny_modal(ref, str(self._place.without_response_url))
            case OpenConfirmation():
                window = confirm_modal(action, str(self._place))
        method = "views.push" if self._payload.view else "views.open"
        await self._platform.api.post(method, trigger_id=self._payload.trigger, view=window)

    async def run_command(self, action: RunCommand | RunCommandInNewReply | Edit) -> None:
        """Answer a command. A card is not replaced by the answer."""
        beside = replace(self._place, replaces=False)
        match action:
            case RunCommand(words):
                await self._interactions.command(words, self._place, self._trigger)
            case RunCommandInNewReply(words):
                await self._interactions.command(words, beside, self._trigger)
            case Edit(ref):
                await self._interactions.command(edit_command(ref), beside, self._trigger)

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        """Return the page of the modal."""
        return page_of_call(step, page)

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        """Show a page of a call in a modal."""
        draw = whole_call_modal if whole else call_modal
        window = draw(step, page, str(self._place.without_response_url))
        if self._payload.view:
            await self._platform.api.edit("views.update", view_id=self._payload.view, view=window)
        else:
            await self._platform.api.post("views.open", trigger_id=self._payload.trigger, view=window)

    async def update_call(self, approval_id: str) -> None:
        """Show the decided call in the modal that contains the button."""
        if self._payload.view and (step := await self._platform.records.find_approval(approval_id)) is not None:
            await self.show_call(step, 1, whole=False)


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


class ShortcutHandler:
    """Handles message shortcuts after their acknowledgement."""

    def __init__(self, platform: PlatformContext, counter: InteractionHandler, tabs: HomeRefresher) -> None:
        self._platform = platform
        self._counter = counter
        self._tabs = tabs

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event other than a message."""
        user = str(event.get("user") or "")
        match event.get("type"):
            case "app_home_opened" if event.get("tab") == "home" and user:
                self._platform.background_tasks.start_for(
                    user, self._tabs.open(user, first_visit="view" not in event), "slack: home"
                )
            case "agent_session_stopped" if user:
                place = ResponseTarget(
                    ChannelRef(str(event.get("channel") or ""), user, str(event.get("thread_ts") or ""))
                )
                self._counter.begin(self._stop_all(place), place, "stop")
            case _:
                return

    def shortcut(self, body: Mapping[str, Any]) -> None:
        """Handle the shortcut on a message: open the modal for a question about it."""
        message, channel, user = (_dict(body, name) for name in ("message", "channel", "user"))
        if body.get("callback_id") != ASK or not message.get("ts"):
            return
        thread = str(message.get("thread_ts") or message["ts"])
        place = ResponseTarget(ChannelRef(str(channel.get("id") or ""), str(user.get("id") or ""), thread))
        said = single_line(str(message.get("text") or ""), LONGEST_QUOTE)
        view = _question_window(place, str(message.get("user") or ""), said)
        self._counter.begin(self._open(str(body.get("trigger_id") or ""), view), place, "shortcut")

    def asked(self, body: Mapping[str, Any]) -> bool:
        """Return True if the modal is the shortcut's; its question is passed on."""
        view, user = _dict(body, "view"), _dict(body, "user")
        if view.get("callback_id") != ASK:
            return False
        kept = json.loads(str(view.get("private_metadata") or "[]"))
        place = ResponseTarget.parse(kept[0]) if len(kept) == 3 else None
        if place is not None:
            place = replace(place, spot=replace(place.spot, user=str(user.get("id") or "")))
            errand = self._ask(str(view.get("id")), _typed(view), place, str(kept[1]), str(kept[2]))
            self._counter.begin(errand, place, "shortcut")
        return True

    async def _stop_all(self, place: ResponseTarget) -> None:
        member = await self._platform.people.member(place.spot.user)
        if self._platform.audience.rejection(member):
            return
        for view in await self._platform.engine.recent_turns(await self._counter.where(place), RECENT_TURNS):
            if not view.turn.status.ended:
                await self._platform.engine.stop(view.turn.id, member.author)

    async def _open(self, trigger: str, view: Window) -> None:
        await self._platform.api.post("views.open", trigger_id=trigger, view=view)

    async def _ask(self, view_id: str, question: str, place: ResponseTarget, author: str, said: str) -> None:
        """Pass on a question with the message it is about; the thread shows who asked."""
        platform, spot = self._platform, place.spot
        member = await platform.people.member(spot.user)
        if refusal := platform.audience.rejection(member):
            await send_ephemeral(platform.api, spot, text_message(refusal))
            return
        name = (await platform.people.person(author)).name if author else "somebody"
        await platform.api.post(
            "chat.postMessage",
            channel=spot.channel,
            thread_ts=spot.thread,
            text=escape(defuse_mentions(f"{member.author.name} asks about this: {question}")),
            unfurl_links=False,
            unfurl_media=False,
        )
        team = (await platform.api.identity()).team
        await platform.engine.receive(
            InboundMessage(
                keys=(f"slack:{team}:window:{view_id}",),
                conversation=conversation(team, spot.channel, spot.thread),
                author=member.author,
                text=question,
                context=format_lines([(name, to_plain_text(said, MentionResolver()))]),
            )
        )


def _question_window(place: ResponseTarget, author: str, said: str) -> Window:
    field = text_input(QUESTION, "What do you want to know about this message?", required=True, longest=2_000)
    kept = json.dumps([str(place.without_response_url), author, said], ensure_ascii=False)
    return modal("Ask about this", [field], callback_id=ASK, metadata=kept, submit="Ask")


def _typed(view: Mapping[str, Any]) -> str:
    field = _dict(_dict(_dict(view, "state"), "values"), QUESTION)
    return str(_dict(field, QUESTION).get("value") or "").strip()
