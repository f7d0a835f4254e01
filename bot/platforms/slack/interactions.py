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
from types import MappingProxyType
from typing import Any

from bot.chat.actions import (
    FORM_EXPIRED,
    TOO_MANY_REQUESTS,
    Action,
    InteractionRejected,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingActions,
)
from bot.chat.command_runner import CommandRunner
from bot.chat.context import ChatContext
from bot.chat.forms import ConfirmationSubmitted, FormSubmitted, Submission
from bot.chat.interactions import ELSEWHERE, Actor, InteractionHandler, ModalAction, Viewer
from bot.chat.message_handler import append_file_names, split_args
from bot.chat.message_model import Message
from bot.domain.approvals import Portion
from bot.domain.commands import WHOLE_TEXT, Form, Reply
from bot.domain.conversations import ConversationKey
from bot.domain.locales import use_locale
from bot.domain.turns import ToolStep
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.platforms.slack.blocks import (
    BUTTON_VALUE,
    LINK_PRESSED,
    PREFIX,
    CommandReply,
    decode,
    defuse_mentions,
    escape,
    fallback,
    fallback_text,
)
from bot.platforms.slack.home import HomeRefresher, SuggestedPrompts, opened_pane
from bot.platforms.slack.message_blocks import command_reply, message_blocks
from bot.platforms.slack.messages import MentionResolver, to_command_text, to_plain_text, to_thread_message
from bot.platforms.slack.modals import (
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
from bot.platforms.slack.users import UserDirectory, resolve_mentions, resolve_reply_mentions
from bot.platforms.slack.web_api import PLATFORM, ChannelRef, WebApi, conversation, direct_channel, is_member, object_in
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 2.5
"""Seconds that a trigger id is used. Slack allows three; the rest is for the network."""
SOON_SECONDS = 1.8
"""Seconds until a submission without a result is answered with the progress modal; Slack waits three."""
BUSY = gettext_lazy("This takes a moment…")
DONE = gettext_lazy("Done.")
TITLE = "Countersign"
ASK = "cs.ask"
"""`callback_id` of the message shortcut and of its modal."""
QUESTION = "question"
LONGEST_QUOTE = 1_500
RECENT_TURNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(ChatContext):
    """Dependencies of the handlers of one workspace."""

    api: WebApi
    people: UserDirectory


_NO_BODY: Mapping[str, Any] = MappingProxyType({})
Answer = Mapping[str, Any]
"""Response to a submission; an empty one closes the modal."""
CLEAR: Answer = {"response_action": "clear"}


@dataclass(frozen=True, slots=True)
class ActionPayload:
    """A click on a button; `action` is None for a button of another release. `target` is its location; `view` is its
    modal, if any.
    """

    action: Action | None
    target: ResponseTarget
    view: str = ""


def read_press(body: Mapping[str, Any]) -> ActionPayload | None:
    """Parse a click. Return None if the button is not one of the bot's, or a link."""
    elements = body.get("actions")
    element = elements[0] if isinstance(elements, list) and elements else None
    if not isinstance(element, dict):
        return None
    action_id = str(element.get("action_id") or "")
    if action_id.startswith(LINK_PRESSED) or not action_id.startswith(f"{PREFIX}."):
        return None
    view, ref = object_in(body, "view"), _ref(body)
    target = ResponseTarget.parse(str(view.get("private_metadata") or "")) if view else None
    if target is not None:
        # A modal remembers where it was opened; the user is the one that Slack says.
        target = replace(target, ref=replace(target.ref, user=user_of(body)))
    else:
        url = "" if view else str(body.get("response_url") or "")
        target = ResponseTarget(ref, url, replaces=_is_private(body))
    # A button of Home has no channel, and its view is not a modal.
    modal_id = str(view.get("id") or "") if target.ref.channel else ""
    return ActionPayload(decode(action_id, _value(element)), target, modal_id)


def read_slash(body: Mapping[str, Any]) -> tuple[tuple[str, ...], ResponseTarget]:
    """Return the words of a slash command, its name first, and its location."""
    ref = ChannelRef(
        str(body.get("channel_id") or ""), str(body.get("user_id") or ""), str(body.get("thread_ts") or "")
    )
    command = str(body.get("command") or "").removeprefix("/").lower()
    text = str(body.get("text") or "")
    is_question = command in WHOLE_TEXT
    words = (to_plain_text(text, MentionResolver()),) if is_question else split_args(to_command_text(text))
    return (command, *words), ResponseTarget(ref, str(body.get("response_url") or ""))


def user_of(body: Mapping[str, Any]) -> str:
    """Return the id of the user."""
    return str(object_in(body, "user").get("id") or body.get("user_id") or "")


def _ref(body: Mapping[str, Any]) -> ChannelRef:
    container, message, channel = object_in(body, "container"), object_in(body, "message"), object_in(body, "channel")
    thread = container.get("thread_ts") or message.get("thread_ts")
    if not (thread or container.get("is_ephemeral")):
        thread = message.get("ts") or container.get("message_ts")
    channel_id = str(channel.get("id") or container.get("channel_id") or "")
    return ChannelRef(channel_id, user_of(body), str(thread or ""))


def _is_private(body: Mapping[str, Any]) -> bool:
    """Return True if the message with the button is visible to this user only; other messages are not replaced."""
    return bool(object_in(body, "container").get("is_ephemeral")) or _ref(body).direct


def _value(action: Mapping[str, Any]) -> str:
    chosen = object_in(action, "selected_option")
    return str(chosen.get("value") or action.get("value") or "")


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
                platform.commands, platform.engine, self._resolve_mentions, platform.records.locales
            ),
            pending=PendingActions(BUTTON_VALUE),
        )

    def on_text_command(self, words: tuple[str, ...], ref: ChannelRef) -> None:
        """Handle a command in a message."""
        self._handler.on_command(words, SlackInteraction(self._platform, ResponseTarget(ref)))

    def on_slash_command(self, body: Mapping[str, Any]) -> None:
        """Handle a slash command."""
        words, target = read_slash(body)
        self._handler.on_command(words, SlackInteraction(self._platform, target, body))

    def on_action(self, body: Mapping[str, Any]) -> None:
        """Handle a click on a button."""
        if (payload := read_press(body)) is not None:
            interaction = SlackInteraction(self._platform, payload.target, body, payload.view)
            if not payload.target.ref.channel:
                interaction.tab = self._tabs
            self._handler.on_action(payload.action, interaction)

    async def on_submission(self, body: Mapping[str, Any]) -> Answer:
        """Return the response to a submitted modal."""
        view = object_in(body, "view")
        if view.get("callback_id") == ASK:
            return self._on_question(view, body)
        if (submitted := read_submission(view)) is None:
            return {}
        submission, keep = submitted
        target = ResponseTarget.parse(keep)
        if target is None or target.ref.user != user_of(body):
            return _update(note_modal(TITLE, FORM_EXPIRED))
        if isinstance(submission, ConfirmationSubmitted):
            self._handler.on_submission(submission, SlackInteraction(self._platform, target, body))
            return CLEAR
        interaction = SlackSubmission(self._platform, target, body, submission)
        with use_locale(await self._handler.locale_of(interaction)):
            if not self._handler.on_submission(submission, interaction):
                return _update(note_modal(TITLE, TOO_MANY_REQUESTS))
            return await interaction.answer()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event other than a message."""
        user = str(event.get("user") or "")
        if (pane := opened_pane(event)) is not None:
            self._platform.background_tasks.start_for(pane.user, self._prompts.show(pane), "slack: prompts")
        match event.get("type"):
            case "app_home_opened" if event.get("tab") == "home" and user:
                self._platform.background_tasks.start_for(
                    user, self._tabs.open(user, first_visit="view" not in event), "slack: home"
                )
            case "agent_session_stopped" | "agent_session_title_changed" as kind if user:
                ref = ChannelRef(str(event.get("channel") or ""), user, str(event.get("thread_ts") or ""))
                interaction = SlackInteraction(self._platform, ResponseTarget(ref))
                renames = kind == "agent_session_title_changed"
                title = str(event.get("title") or "")
                act = self._rename(interaction, title) if renames else self._stop_all(interaction)
                self._handler.start(act, interaction, "rename" if renames else "stop")
            case _:
                return

    def on_shortcut(self, body: Mapping[str, Any]) -> None:
        """Handle the shortcut on a message: open the modal for a question about it."""
        message, channel = object_in(body, "message"), object_in(body, "channel")
        if body.get("callback_id") != ASK or not message.get("ts"):
            return
        thread = str(message.get("thread_ts") or message["ts"])
        ref = ChannelRef(str(channel.get("id") or ""), user_of(body), thread)
        target = ResponseTarget(ref, str(body.get("response_url") or ""))
        read = to_thread_message(message)
        quote = single_line(append_file_names(read.text, read.files) if read is not None else "", LONGEST_QUOTE)
        interaction = SlackInteraction(self._platform, target, body)

        async def ask() -> None:
            await interaction.open_view(_question_modal(target, str(message.get("user") or ""), quote))

        self._handler.start(ask(), interaction, "shortcut")

    def _on_question(self, view: Mapping[str, Any], body: Mapping[str, Any]) -> Answer:
        keep = json.loads(str(view.get("private_metadata") or "[]"))
        target = ResponseTarget.parse(keep[0]) if len(keep) == 3 else None
        if target is not None and target.ref.user == user_of(body):
            question = SlackQuestion(self._platform, view, target.ref, (str(keep[1]), str(keep[2])))
            self._handler.on_question(question, SlackInteraction(self._platform, target, body))
        return {}

    async def _stop_all(self, interaction: SlackInteraction) -> None:
        actor = await self._handler.find_member(interaction)
        for view in await self._platform.engine.recent_turns(actor.conversation, RECENT_TURNS):
            if not view.turn.status.ended:
                await self._platform.engine.stop(view.turn.id, actor.member.author)

    async def _rename(self, interaction: SlackInteraction, title: str) -> None:
        actor = await self._handler.find_member(interaction)
        await self._platform.engine.rename(actor.conversation, title)

    async def _resolve_mentions(self, _where: ConversationKey, reply: Reply) -> Reply:
        return await resolve_reply_mentions(self._platform.people, reply)


class SlackInteraction:
    """An interaction that was acknowledged already. `body` is Slack's request, empty for a message; `view` is the modal
    that contains the button, if any.
    """

    def __init__(
        self, platform: PlatformContext, target: ResponseTarget, body: Mapping[str, Any] = _NO_BODY, view: str = ""
    ) -> None:
        self._platform = platform
        self._target = target
        self._team = str(object_in(body, "user").get("team_id") or body.get("team_id") or "")
        self._trigger = str(body.get("trigger_id") or "")
        self._trigger_until = asyncio.get_running_loop().time() + TRIGGER_SECONDS
        self._view = view
        self.tab: HomeRefresher | None = None
        """The Home with the button, if any."""

    @property
    def user(self) -> str:
        """Id of the user."""
        return self._target.ref.user

    def responding(self) -> AbstractAsyncContextManager[None]:
        """Return an empty context: Slack waits for nothing any more."""
        return nullcontext()

    async def acknowledge(self) -> None:
        """Do nothing: the listener has acknowledged the interaction."""

    async def find_viewer(self) -> Viewer:
        """Return the user with the locale of the last lookup."""
        return Viewer(await self._platform.people.locale(self.user), await self._conversation_if_known())

    async def _conversation_if_known(self) -> ConversationKey | None:
        ref = self._target.ref
        try:
            return conversation((await self._platform.api.identity()).team, ref.channel, ref.thread)
        except DeliveryFailed:
            return None

    async def find_actor(self, about: ConversationKey | None) -> Actor:
        """Return the user. Raises InteractionRejected for an item of another workspace or platform."""
        ref = await self._ref()
        here = conversation((await self._platform.api.identity()).team, ref.channel, ref.thread)
        if about is not None and about.workspace_key != here.workspace_key:
            raise InteractionRejected(ELSEWHERE)
        direct = ref.direct and about in (None, here)
        member = await self._platform.people.member(self.user, self._team)
        return Actor(member, about or here, direct=direct)

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:  # noqa: ARG002 - one workspace
        """Post an ephemeral message."""
        text = await resolve_mentions(self._platform.people, text)
        await self._ref()
        await send_private(self._platform.api, self._target, text_message(text))

    async def show(self, message: Message) -> None:
        """Post an ephemeral message with buttons."""
        await self._ref()
        await send_private(self._platform.api, self._target, _private_reply(message))

    async def show_in_place(self, message: Message) -> None:
        """Show a message to the user alone, in place of the ephemeral message with the button, if any."""
        await self._ref()
        await display_for(self._platform.api, self._target).finish(_private_reply(message))

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:  # noqa: ARG002 - one target
        """Open a modal, on top of the one that contains the button."""
        await self._ref()
        match action:
            case OpenDenyForm():
                # The list of pending calls is replaced after the denial, by its response_url.
                target = self._target if action.inbox_page else self._target.without_response_url
                view = deny_modal(action, str(target))
            case OpenConfirmation():
                view = confirm_modal(action, str(self._target))
            case OpenForm(form):
                view = form_to_modal(form, str(self._target))
        if not self._trigger or asyncio.get_running_loop().time() >= self._trigger_until:
            return False
        try:
            await self.open_view(view, on_top=not isinstance(action, OpenForm))
        except DeliveryFailed as error:
            log.warning("modal not opened: %s", error)
            return False
        return True

    async def open_view(self, view: View, *, on_top: bool = False) -> None:
        """Open a modal; `on_top` of the one that contains the button, if any. Raises DeliveryFailed."""
        method = "views.push" if self._view and on_top else "views.open"
        await self._platform.api.post(method, trigger_id=self._trigger, view=view)

    def responder(self, actor: Actor, *, in_new_message: bool) -> CommandResponder:  # noqa: ARG002 - one target
        """Return the responder to a command."""
        return CommandResponder(self._platform.api, self._reply_target(in_new_message=in_new_message), self.open_form)

    async def open_form(self, form: Form) -> bool:
        """Open the form of a command in a modal."""
        return await self.open_modal(OpenForm(form), None)

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        """Return the page of the modal."""
        return page_of_call(step, page)

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        """Show a page of a call in a modal."""
        await self._ref()
        view = call_modal(step, page, str(self._target.without_response_url), whole=whole)
        if self._view:
            await self._platform.api.edit("views.update", view_id=self._view, view=view)
        else:
            await self.open_view(view)

    async def update_call(self, approval_id: str) -> None:
        """Show the decided call in the modal that contains the button, or the Home without it."""
        if self.tab is not None:
            await self.tab.open(self.user, first_visit=False)
        elif self._view and (step := await self._platform.records.find_approval(approval_id)) is not None:
            await self.show_call(step, 1, whole=False)

    def _reply_target(self, *, in_new_message: bool) -> ResponseTarget:
        if in_new_message:
            self._target = replace(self._target, replaces=False)
        return self._target

    async def _ref(self) -> ChannelRef:
        """Return the location; that of a button in Home is the direct conversation."""
        if not self._target.ref.channel:
            channel = await direct_channel(self._platform.api, self.user)
            self._target = replace(self._target, ref=replace(self._target.ref, channel=channel))
        return self._target.ref


class SlackSubmission(SlackInteraction):
    """A submitted modal, which shows the result: a text, errors below the fields, the next form, or progress."""

    def __init__(
        self, platform: PlatformContext, target: ResponseTarget, body: Mapping[str, Any], submission: Submission
    ) -> None:
        super().__init__(platform, target, body)
        self._submission = submission
        self._modal = str(object_in(body, "view").get("id") or "")
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
        return _update(self._progress_modal())

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
        self._show(note_modal(TITLE, await resolve_mentions(self._platform.people, text)))

    def responder(self, actor: Actor, *, in_new_message: bool) -> CommandResponder:  # noqa: ARG002 - one target
        """Return a responder that shows progress and forms in the modal, and the last reply in the conversation."""
        return _SubmissionResponder(self, self._platform.api, self._reply_target(in_new_message=in_new_message))

    async def update_call(self, approval_id: str) -> None:
        """Do nothing: the modal of the call is closed with this one."""

    async def show_progress(self, text: str) -> None:
        """Show progress in the modal, at most every APART_SECONDS."""
        self._progress = text or str(BUSY)
        is_recent = monotonic() - self._progress_at < APART_SECONDS
        if not self._answer.done() or is_recent or not self._platform.api.pacing.has_headroom("views.update"):
            return
        try:
            await self._update_modal(self._progress_modal())
        except DeliveryFailed as error:
            log.info("progress not shown in a modal: %s", error)

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:  # noqa: ARG002 - one target
        """Show a form in the modal: errors below its fields, or another form in its target."""
        if not isinstance(action, OpenForm):
            return False
        form, sent = action.form, self._submission
        self._show(form_to_modal(form, str(self._target)))
        messages = errors(form)
        if messages and isinstance(sent, FormSubmitted) and form.id == sent.form and not _differs(form, sent.values):
            self._result = {"response_action": "errors", "errors": messages}
        return True

    def _show(self, view: View) -> None:
        self._result, self._result_view = _update(view), view

    def _progress_modal(self) -> View:
        self._progress_at = monotonic()
        return note_modal(TITLE, self._progress)

    async def _update_modal(self, view: View) -> None:
        await self._platform.api.edit("views.update", view_id=self._modal, view=view)


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

    def __init__(
        self, platform: PlatformContext, view: Mapping[str, Any], ref: ChannelRef, about: tuple[str, str]
    ) -> None:
        self._platform = platform
        self._ref = ref
        self._about = about
        field = object_in(object_in(object_in(object_in(view, "state"), "values"), QUESTION), QUESTION)
        self.is_answered_directly = False
        self.id = f"window:{view.get('id')}"
        self.text = str(field.get("value") or "").strip()

    async def open_conversation(self, actor: Actor, announcement: str) -> ConversationKey:
        """Return the thread of the message, or a new one in the direct conversation where the bot is not a member. Post
        the announcement there. Raises DeliveryFailed.
        """
        ref, text = self._ref, escape(defuse_mentions(announcement))
        if not await is_member(self._platform.api, ref):
            self.is_answered_directly = True
            ref = ChannelRef(await direct_channel(self._platform.api, ref.user), ref.user)
            text += f"\n>{escape(defuse_mentions(single_line(self._about[1], LONGEST_QUOTE)))}"
        posted = await self._platform.api.post(
            "chat.postMessage",
            channel=ref.channel,
            thread_ts=ref.thread or None,
            text=text,
            unfurl_links=False,
            unfurl_media=False,
        )
        return conversation(actor.conversation.workspace, ref.channel, ref.thread or str(posted.get("ts") or ""))

    async def read_message(self) -> tuple[str, str]:
        """Return the name of the author and the text. Raises DeliveryFailed."""
        user, text = self._about
        name = (await self._platform.people.person(user)).name if user else "somebody"
        return name, to_plain_text(text, MentionResolver())


def _private_reply(message: Message) -> CommandReply:
    blocks = message_blocks(message.blocks)
    return CommandReply(tuple(blocks), fallback(fallback_text(blocks)))


def _differs(form: Form, values: Mapping[str, str]) -> bool:
    """Return True if the form shows other fields or values than were submitted, so that a response with errors is not
    enough.
    """
    return any(values.get(field.name, "") != field.value for field in form.fields)


def _update(view: View) -> Answer:
    return {"response_action": "update", "view": view}


def _question_modal(target: ResponseTarget, author: str, quote: str) -> View:
    field = text_input(QUESTION, _("What do you want to know about this message?"), required=True, longest=2_000)
    keep = json.dumps([str(target), author, quote], ensure_ascii=False)
    return modal(_("Ask about this"), [field], callback_id=ASK, metadata=keep, submit=_("Ask"))
