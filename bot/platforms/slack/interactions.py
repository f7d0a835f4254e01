"""Handlers of clicks, slash commands, submitted modals and shortcuts.

A click or command is acknowledged before, and handled in the background. Slack waits three seconds for the response to
a submission (docs.slack.dev, "Modals"): a fast result is shown in the modal, a slow one with its progress. Opening a
modal needs a trigger id, which lives for three seconds; without one the reply is a button that opens the form.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Self

from bot.chat.actions import (
    FORM_EXPIRED,
    TOO_MANY_REQUESTS,
    Action,
    InteractionRejected,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingActions,
    RunCommand,
)
from bot.chat.command_runner import CommandRunner
from bot.chat.context import ChatContext
from bot.chat.forms import FormSubmitted, Submission
from bot.chat.interactions import ELSEWHERE, Actor, InteractionHandler, ModalAction
from bot.chat.message_handler import append_file_names, split_args
from bot.chat.message_model import Message
from bot.chat.users import resolve_mentions, resolve_reply_mentions
from bot.domain.approvals import Portion
from bot.domain.commands import WHOLE_TEXT, Form
from bot.domain.conversations import ConversationKey
from bot.domain.locales import UNKNOWN, Locale, use_locale
from bot.domain.turns import ToolStep
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.platforms.slack.blocks import (
    BUTTON_VALUE,
    LINK_PRESSED,
    PREFIX,
    decode,
    defuse_mentions,
    escape,
    fallback_text,
)
from bot.platforms.slack.home import HomeRefresher, SuggestedPrompts, opened_pane
from bot.platforms.slack.message_blocks import command_reply, private_reply
from bot.platforms.slack.messages import MentionResolver, to_command_text, to_plain_text, to_thread_message
from bot.platforms.slack.modals import (
    ASK,
    ModalView,
    View,
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
)
from bot.platforms.slack.responders import (
    APART_SECONDS,
    CommandResponder,
    ResponseTarget,
    display_for,
    send_private,
    text_message,
)
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import (
    PLATFORM,
    ChannelRef,
    WebApi,
    conversation,
    direct_channel,
    is_member,
    object_in,
    objects_in,
    text_in,
)
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 2.5
"""Seconds that a trigger id is used. Slack allows three; the rest is for the network."""
SOON_SECONDS = 1.8
"""Seconds until a submission without a result is answered with the progress modal; Slack waits three."""
BUSY = gettext_lazy("This takes a moment…")
DONE = gettext_lazy("Done.")
TITLE = "Countersign"
QUESTION = "question"
LONGEST_QUOTE = 1_500
RECENT_TURNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(ChatContext):
    """Dependencies of the handlers of one workspace."""

    api: WebApi
    people: UserDirectory


NO_MODAL = ModalView()
Answer = Mapping[str, Any]
"""Response to a submission; an empty one closes the modal."""
CLEAR: Answer = {"response_action": "clear"}


@dataclass(frozen=True, slots=True)
class SlackRequest:
    """A command, click, submission or shortcut: its location, the workspace of its user, the id that opens a modal, and
    the modal that it comes from.
    """

    target: ResponseTarget
    team: str = ""
    trigger: str = ""
    modal: ModalView = NO_MODAL

    @classmethod
    def read(cls, body: Mapping[str, Any], target: ResponseTarget, modal: ModalView = NO_MODAL) -> Self:
        """Read a request of Slack that is made at this location."""
        team = text_in(body, "user", "team_id") or text_in(body, "team_id")
        return cls(target, team, text_in(body, "trigger_id"), modal)


def read_press(body: Mapping[str, Any]) -> tuple[Action | None, SlackRequest] | None:
    """Read a click on a button; its action is None for a button of another release. Return None if the button is not
    one of the bot's, or a link.
    """
    element = next(iter(objects_in(body, "actions")), {})
    action_id = text_in(element, "action_id")
    if action_id.startswith(LINK_PRESSED) or not action_id.startswith(f"{PREFIX}."):
        return None
    modal, ref = ModalView.read(object_in(body, "view")), _ref(body)
    target = ResponseTarget.parse(modal.metadata)
    if target is not None:
        # A modal remembers where it was opened; the user is the one that Slack says.
        target = replace(target, ref=replace(target.ref, user=ref.user))
    else:
        # Only a message that this user alone sees is replaced.
        is_private = bool(object_in(body, "container").get("is_ephemeral")) or ref.direct
        target = ResponseTarget(ref, "" if body.get("view") else text_in(body, "response_url"), replaces=is_private)
    # A button of Home has no channel, and its view is not a modal.
    request = SlackRequest.read(body, target, modal if target.ref.channel else NO_MODAL)
    value = text_in(element, "selected_option", "value") or text_in(element, "value")
    return decode(action_id, value), request


def read_slash(body: Mapping[str, Any]) -> tuple[tuple[str, ...], SlackRequest]:
    """Read a slash command: its words, its name first, and the request."""
    ref = ChannelRef(*(text_in(body, name) for name in ("channel_id", "user_id", "thread_ts")))
    command, text = text_in(body, "command").removeprefix("/").lower(), text_in(body, "text")
    is_question = command in WHOLE_TEXT
    words = (to_plain_text(text, MentionResolver()),) if is_question else split_args(to_command_text(text))
    return (command, *words), SlackRequest.read(body, ResponseTarget(ref, text_in(body, "response_url")))


def user_of(body: Mapping[str, Any]) -> str:
    """Return the id of the user."""
    return text_in(body, "user", "id") or text_in(body, "user_id")


def _ref(body: Mapping[str, Any]) -> ChannelRef:
    thread = text_in(body, "container", "thread_ts") or text_in(body, "message", "thread_ts")
    if not (thread or text_in(body, "container", "is_ephemeral")):
        thread = text_in(body, "message", "ts") or text_in(body, "container", "message_ts")
    return ChannelRef(text_in(body, "channel", "id") or text_in(body, "container", "channel_id"), user_of(body), thread)


class SlackInteractions:
    """Dispatches clicks, commands, submitted modals and shortcuts to the handler of interactions."""

    def __init__(self, platform: PlatformContext, tabs: HomeRefresher) -> None:
        self._platform = platform
        self._tabs = tabs
        self._prompts = SuggestedPrompts(
            platform.api, platform.people, platform.audience, platform.records.prompts, platform.records.locales
        )
        self._handler = InteractionHandler(
            platform,
            platform=PLATFORM,
            commands=CommandRunner(
                platform.commands,
                platform.engine,
                lambda _where, reply: resolve_reply_mentions(platform.people.names, reply),
                platform.records.locales,
            ),
            pending=PendingActions(BUTTON_VALUE),
        )

    def on_text_command(self, words: tuple[str, ...], ref: ChannelRef) -> None:
        """Handle a command in a message."""
        self._handler.on_command(words, SlackInteraction(self._platform, SlackRequest(ResponseTarget(ref))))

    def on_slash_command(self, body: Mapping[str, Any]) -> None:
        """Handle a slash command."""
        words, request = read_slash(body)
        self._handler.on_command(words, SlackInteraction(self._platform, request))

    def on_action(self, body: Mapping[str, Any]) -> None:
        """Handle a click on a button."""
        if (press := read_press(body)) is not None:
            action, request = press
            tab = None if request.target.ref.channel else self._tabs
            self._handler.on_action(action, SlackInteraction(self._platform, request, tab))

    async def on_submission(self, body: Mapping[str, Any]) -> Answer:
        """Return the response to a submitted modal."""
        modal, user = ModalView.read(object_in(body, "view")), user_of(body)
        if modal.callback_id == ASK:
            keep = json.loads(modal.metadata or "[]")
            target = ResponseTarget.parse(keep[0]) if len(keep) == 3 else None
            if target is not None and target.ref.user == user:
                question = SlackQuestion(self._platform, modal, target.ref, (str(keep[1]), str(keep[2])))
                self._handler.on_question(question, SlackInteraction(self._platform, SlackRequest.read(body, target)))
            return {}
        if (submitted := read_submission(modal)) is None:
            return {}
        submission, kept = submitted
        target = ResponseTarget.parse(kept)
        if target is None or target.ref.user != user:
            return _update(note_modal(TITLE, FORM_EXPIRED))
        if isinstance(submission, RunCommand):
            interaction = SlackInteraction(self._platform, SlackRequest.read(body, target))
            self._handler.on_submission(submission, interaction)
            return CLEAR
        form = SlackSubmission(self._platform, SlackRequest.read(body, target, modal), submission)
        with use_locale(await self._handler.locale_of(form)):
            if not self._handler.on_submission(submission, form):
                return _update(note_modal(TITLE, TOO_MANY_REQUESTS))
            return await form.answer()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event other than a message."""
        start_for, user = self._platform.background_tasks.start_for, text_in(event, "user")
        if (pane := opened_pane(event)) is not None:
            start_for(pane.user, self._prompts.show(pane), "slack: prompts")
        if not user:
            return
        ref = ChannelRef(text_in(event, "channel"), user, text_in(event, "thread_ts"))
        interaction = SlackInteraction(self._platform, SlackRequest(ResponseTarget(ref)))
        match event:
            case {"type": "app_home_opened", "tab": "home"}:
                start_for(user, self._tabs.open(user, first_visit="view" not in event), "slack: home")
            case {"type": "agent_session_stopped"}:
                self._handler.start(self._stop_all(interaction), interaction, "stop")
            case {"type": "agent_session_title_changed"}:
                self._handler.start(self._rename(interaction, text_in(event, "title")), interaction, "rename")
            case _:
                return

    def on_shortcut(self, body: Mapping[str, Any]) -> None:
        """Handle the shortcut on a message: open the modal for a question about it."""
        message = object_in(body, "message")
        if body.get("callback_id") != ASK or not message.get("ts"):
            return
        thread = text_in(message, "thread_ts") or text_in(message, "ts")
        ref = ChannelRef(text_in(body, "channel", "id"), user_of(body), thread)
        target = ResponseTarget(ref, text_in(body, "response_url"))
        read = to_thread_message(message)
        quote = single_line(append_file_names(read.text, read.files) if read is not None else "", LONGEST_QUOTE)
        interaction = SlackInteraction(self._platform, SlackRequest.read(body, target))

        async def ask() -> None:
            field = text_input(
                QUESTION, _("What do you want to know about this message?"), required=True, longest=2_000
            )
            keep = json.dumps([str(target), text_in(message, "user"), quote], ensure_ascii=False)
            view = modal(_("Ask about this"), [field], callback_id=ASK, metadata=keep, submit=_("Ask"))
            await interaction.open_view(view)

        self._handler.start(ask(), interaction, "shortcut")

    async def _stop_all(self, interaction: SlackInteraction) -> None:
        actor = await self._handler.find_member(interaction)
        for view in await self._platform.engine.recent_turns(actor.conversation, RECENT_TURNS):
            if not view.turn.status.ended:
                await self._platform.engine.stop(view.turn.id, actor.member.author)

    async def _rename(self, interaction: SlackInteraction, title: str) -> None:
        actor = await self._handler.find_member(interaction)
        await self._platform.engine.rename(actor.conversation, title)


class SlackInteraction:
    """An interaction that was acknowledged already. `tab` is the Home with the button, if any."""

    def __init__(self, platform: PlatformContext, request: SlackRequest, tab: HomeRefresher | None = None) -> None:
        self._platform = platform
        self._request = request
        self._target = request.target
        self._trigger_until = asyncio.get_running_loop().time() + TRIGGER_SECONDS
        self._tab = tab

    @property
    def user(self) -> str:
        """Id of the user."""
        return self._target.ref.user

    def responding(self) -> AbstractAsyncContextManager[None]:
        """Return an empty context: Slack waits for nothing any more."""
        return nullcontext()

    async def acknowledge(self) -> None:
        """Do nothing: the listener has acknowledged the interaction."""

    async def find_viewer(self) -> tuple[Locale, ConversationKey | None, Locale]:
        """Return the locale of the last lookup, and the conversation."""
        locale, ref = await self._platform.people.locale(self.user), self._target.ref
        try:
            where = conversation((await self._platform.api.identity()).team, ref.channel, ref.thread)
        except DeliveryFailed:
            return locale, None, UNKNOWN
        return locale, where, UNKNOWN

    async def find_actor(self, about: ConversationKey | None) -> Actor:
        """Return the user. Raises InteractionRejected for an item of another workspace or platform."""
        ref = await self._ref()
        here = conversation((await self._platform.api.identity()).team, ref.channel, ref.thread)
        if about is not None and about.workspace_key != here.workspace_key:
            raise InteractionRejected(ELSEWHERE)
        direct = ref.direct and about in (None, here)
        member = await self._platform.people.member(self.user, self._request.team)
        return Actor(member, about or here, direct=direct)

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:  # noqa: ARG002 - one workspace
        """Post an ephemeral message."""
        text = await resolve_mentions(self._platform.people.names, text)
        await self._ref()
        await send_private(self._platform.api, self._target, text_message(text))

    async def show(self, message: Message) -> None:
        """Post an ephemeral message with buttons."""
        await self._ref()
        await send_private(self._platform.api, self._target, private_reply(message))

    async def show_in_place(self, message: Message) -> None:
        """Show a message to the user alone, in place of the ephemeral message with the button, if any."""
        await self._ref()
        await display_for(self._platform.api, self._target).finish(private_reply(message))

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:  # noqa: ARG002 - one target
        """Open a modal, on top of the one that contains the button."""
        await self._ref()
        match action:
            case OpenDenyForm():
                # The list of pending calls is replaced after the denial, by its response_url.
                target = self._target if action.inbox_page else replace(self._target, url="")
                view = deny_modal(action, str(target))
            case OpenConfirmation():
                view = confirm_modal(action, str(self._target))
            case OpenForm(form):
                view = form_to_modal(form, str(self._target))
        if not self._request.trigger or asyncio.get_running_loop().time() >= self._trigger_until:
            return False
        try:
            await self.open_view(view, on_top=not isinstance(action, OpenForm))
        except DeliveryFailed as error:
            log.warning("modal not opened: %s", error)
            return False
        return True

    async def open_view(self, view: View, *, on_top: bool = False) -> None:
        """Open a modal; `on_top` of the one that contains the button, if any. Raises DeliveryFailed."""
        method = "views.push" if self._request.modal.id and on_top else "views.open"
        await self._platform.api.post(method, trigger_id=self._request.trigger, view=view)

    def responder(self, actor: Actor, *, in_new_message: bool) -> CommandResponder:  # noqa: ARG002 - one target
        """Return the responder to a command."""
        if in_new_message:
            self._target = replace(self._target, replaces=False)
        return self._command_responder()

    def _command_responder(self) -> CommandResponder:
        return CommandResponder(self._platform.api, self._target, self.open_form)

    async def open_form(self, form: Form) -> bool:
        """Open the form of a command in a modal."""
        return await self.open_modal(OpenForm(form), None)

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        """Return the page of the modal."""
        return page_of_call(step, page)

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        """Show a page of a call in a modal."""
        await self._ref()
        view = call_modal(step, page, str(replace(self._target, url="")), whole=whole)
        if self._request.modal.id:
            await self._platform.api.edit("views.update", view_id=self._request.modal.id, view=view)
        else:
            await self.open_view(view)

    async def update_call(self, approval_id: str) -> None:
        """Show the decided call in the modal that contains the button, or the Home without it."""
        if self._tab is not None:
            await self._tab.open(self.user, first_visit=False)
        elif self._request.modal.id and (step := await self._platform.records.find_approval(approval_id)) is not None:
            await self.show_call(step, 1, whole=False)

    async def _ref(self) -> ChannelRef:
        """Return the location; that of a button in Home is the direct conversation."""
        if not self._target.ref.channel:
            channel = await direct_channel(self._platform.api, self.user)
            self._target = replace(self._target, ref=replace(self._target.ref, channel=channel))
        return self._target.ref


class SlackSubmission(SlackInteraction):
    """A submitted modal, which shows the result: a text, errors below the fields, the next form, or progress."""

    def __init__(self, platform: PlatformContext, request: SlackRequest, submission: Submission) -> None:
        super().__init__(platform, request)
        self._submission = submission
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._result: Answer = CLEAR
        self._result_view: View | None = None
        self._progress = str(BUSY)
        self._progress_at = float("-inf")

    async def answer(self) -> Answer:
        """Return the response to the submission: the result, or the progress modal if the result takes longer."""
        await asyncio.wait({self._answer}, timeout=SOON_SECONDS)
        if self._answer.done():
            return self._answer.result()
        self._answer.cancel()
        self._progress_at = monotonic()
        return _update(note_modal(TITLE, self._progress))

    @asynccontextmanager
    async def _responding(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            is_late = self._answer.done()
            if not is_late:
                self._answer.set_result(self._result)
        if is_late:  # the modal says by now that it takes longer
            await self._update_modal(self._result_view or note_modal(TITLE, DONE))

    def responding(self) -> AbstractAsyncContextManager[None]:
        """Return a context that shows the result at its end."""
        return self._responding()

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:  # noqa: ARG002 - one workspace
        """Show a text in the modal."""
        self._show(note_modal(TITLE, await resolve_mentions(self._platform.people.names, text)))

    def _command_responder(self) -> CommandResponder:
        """Return a responder that shows progress and forms in the modal, and the last reply in the conversation."""
        return _SubmissionResponder(self, self._platform.api, self._target)

    async def update_call(self, approval_id: str) -> None:
        """Do nothing: the modal of the call is closed with this one."""

    async def show_progress(self, text: str) -> None:
        """Show progress in the modal, at most every APART_SECONDS."""
        self._progress = text or str(BUSY)
        is_recent = monotonic() - self._progress_at < APART_SECONDS
        if not self._answer.done() or is_recent or not self._platform.api.pacing.has_headroom("views.update"):
            return
        self._progress_at = monotonic()
        try:
            await self._update_modal(note_modal(TITLE, self._progress))
        except DeliveryFailed as error:
            log.info("progress not shown in a modal: %s", error)

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:  # noqa: ARG002 - one target
        """Show a form in the modal: errors below its fields, or another form in its target."""
        if not isinstance(action, OpenForm):
            return False
        form, sent = action.form, self._submission
        self._show(form_to_modal(form, str(self._target)))
        messages = errors(form)
        # Errors alone are not enough if the form shows other fields or values than were submitted.
        if (
            messages
            and isinstance(sent, FormSubmitted)
            and form.id == sent.form
            and all(sent.values.get(field.name, "") == field.value for field in form.fields)
        ):
            self._result = {"response_action": "errors", "errors": messages}
        return True

    def _show(self, view: View) -> None:
        self._result, self._result_view = _update(view), view

    async def _update_modal(self, view: View) -> None:
        await self._platform.api.edit("views.update", view_id=self._request.modal.id, view=view)


class _SubmissionResponder(CommandResponder):
    """Earlier replies are shown in the modal, because they could not be replaced behind a slash command."""

    def __init__(self, interaction: SlackSubmission, api: WebApi, target: ResponseTarget) -> None:
        super().__init__(api, target, interaction.open_form)
        self._interaction = interaction

    async def progress(self, reply: Message) -> None:
        """Show progress in the modal."""
        await self._interaction.show_progress(fallback_text(command_reply(reply).blocks))


class SlackQuestion:
    """A question about a message: `about` are the id of its author and its text, which the modal has kept."""

    def __init__(self, platform: PlatformContext, modal: ModalView, ref: ChannelRef, about: tuple[str, str]) -> None:
        self._platform = platform
        self._ref = ref
        self._about = about
        self.is_answered_directly = False
        self.id = f"window:{modal.id}"
        self.text = modal.values.get(QUESTION, "").strip()

    async def open_conversation(self, actor: Actor, announcement: str) -> ConversationKey:
        """Return the thread of the message, or a new one in the direct conversation where the bot is not a member. Post
        the announcement there. Raises DeliveryFailed.
        """
        ref, text = self._ref, escape(defuse_mentions(announcement))
        if not await is_member(self._platform.api, ref):
            self.is_answered_directly = True
            ref = ChannelRef(await direct_channel(self._platform.api, ref.user), ref.user)
            text += f"\n>{escape(defuse_mentions(single_line(self._about[1], LONGEST_QUOTE)))}"
        posted = await self._platform.api.post_message(ref.channel, ref.thread, text=text)
        return conversation(actor.conversation.workspace, ref.channel, ref.thread or posted.ts)

    async def read_message(self) -> tuple[str, str]:
        """Return the name of the author and the text. Raises DeliveryFailed."""
        user, text = self._about
        name = (await self._platform.people.person(user)).name if user else "somebody"
        return name, to_plain_text(text, MentionResolver())


def _update(view: View) -> Answer:
    return {"response_action": "update", "view": view}
