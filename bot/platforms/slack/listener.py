"""Slack listener: events, interactions and commands by Socket Mode, HTTP, or both.

A message is acknowledged after its insert (`EngineApi.receive`). Without an acknowledgement, for example because the
insert failed, Slack sends it again. Interactions are handled after their acknowledgement.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.signature import SignatureVerifier

from bot.chat.argument_editing import ArgumentEditForms
from bot.chat.audience import AudiencePolicy
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.elicitation_forms import ElicitationForms
from bot.chat.retry import retry_until_available
from bot.chat.thread_context import format_lines
from bot.domain.conversations import InboundMessage
from bot.domain.health import ListenerStatus
from bot.errors import CountersignError, DeliveryFailed, SettingsError
from bot.logs import in_context
from bot.platforms.slack.command_runner import CommandRunner
from bot.platforms.slack.context import PlatformContext, SlackLookups
from bot.platforms.slack.home_refresher import HomeRefresher
from bot.platforms.slack.ids import conversation
from bot.platforms.slack.interactions import InteractionHandler
from bot.platforms.slack.markup import MentionResolver, defuse_mentions, escape, to_plain_text
from bot.platforms.slack.messages import MessageHandler
from bot.platforms.slack.modal_submissions import ModalSubmissionHandler
from bot.platforms.slack.modals import Window, modal, text_input
from bot.platforms.slack.responders import ChannelRef, ResponseTarget, send_ephemeral, text_message
from bot.platforms.slack.socket_mode import SocketStatus, receive_by_socket
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import LOCKED_OUT, Identity, SlackWebApiError, WebApi, library_log
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import single_line

# -------------------- shortcuts

ASK = "cs.ask"
QUESTION = "question"
LONGEST_QUOTE = 1_500
RECENT_TURNS = 10
NOT_HERE = "I cannot read along here. Invite me to the channel first."


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


def _dict(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


# -------------------- events endpoint
# Independent of a web framework. Requests without a signature of the last five minutes, and requests above Slack's
# maximum size, are rejected before they are parsed.

PATH = "/slack/events"
LARGEST_BODY = 1024 * 1024
"""In bytes. Slack's own are below a quarter of that, a modal of 250 kB included."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Response to a request of Slack."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class EventsEndpoint:
    """Takes the requests that arrive at `PATH`; `largest_body` is for the server to stop reading at."""

    path = PATH
    largest_body = LARGEST_BODY

    def __init__(self, signing_secret: str) -> None:
        self._verifier = SignatureVerifier(signing_secret)
        self._app: AsyncApp | None = None

    @property
    def ready(self) -> bool:
        """True while events are accepted."""
        return self._app is not None

    def attach(self, app: AsyncApp) -> None:
        """Accept events from now on."""
        self._app = app

    def detach(self) -> None:
        """Stop accepting events: Slack sends later ones again."""
        self._app = None

    async def answer(self, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Answer one POST request. Never raises."""
        if len(body) > LARGEST_BODY:
            return HttpAnswer(413)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return HttpAnswer(400)
        given = {name.lower(): value for name, value in headers.items()}
        if not self._signed(given, text):
            return HttpAnswer(401)
        if self._app is None:
            return HttpAnswer(503, {"Retry-After": "5"})
        try:
            request = AsyncBoltRequest(body=text, headers={name: [value] for name, value in given.items()})
            response = await self._app.async_dispatch(request)
        except Exception:
            log.exception("event from Slack not processed")
            return HttpAnswer(500)
        return HttpAnswer(response.status, {name: value[0] for name, value in response.headers.items()}, response.body)

    def _signed(self, headers: Mapping[str, str], body: str) -> bool:
        timestamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 13 and signature.isascii()):
            return False
        return self._verifier.is_valid(body, timestamp, signature)


# -------------------- token revocation
# An event only triggers a check of the token, because the app may have been installed again at the same moment.


class RevocationWatcher:
    """Watches for a revoked token or a removed app."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._doubted = asyncio.Event()

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event other than a message."""
        match event.get("type"):
            case "app_uninstalled" | "tokens_revoked":
                self._doubted.set()
            case _:
                return

    def refused(self, error: Exception) -> None:
        """Check the token after an error, because Slack may not have reported its revocation."""
        if isinstance(error, SlackWebApiError) and error.code in LOCKED_OUT:
            self._doubted.set()

    async def wait_revoked(self) -> None:
        """Wait until the token is revoked. Never returns; raises DeliveryFailed then."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            try:
                await retry_until_available(functools.partial(self._api.edit, "auth.test"), "Slack")
            except DeliveryFailed as failure:
                raise DeliveryFailed(
                    f"The app was removed from Slack, or its token was revoked. {failure.cause}",
                    failure.fix,
                    permanent=True,
                ) from failure
            log.warning("Slack says that tokens of the app were revoked; the bot's own is still good")


log = logging.getLogger(__name__)

_ANY = re.compile(".*", re.DOTALL)


class SlackListener:
    """Receives from Slack: Socket Mode with an app token; `hook` takes requests with a signing secret.

    Raises SettingsError if both are missing.
    """

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        *,
        app_token: str = "",
        signing_secret: str = "",
        audience: AudiencePolicy | None = None,
        records: SlackLookups | None = None,
    ) -> None:
        if not (app_token or signing_secret):
            raise SettingsError(
                "Slack has no way to reach the bot.", "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"
            )
        self._api = api
        self._people = people
        self._app_token = app_token
        self._manners = audience or AudiencePolicy()
        self._records = records or SlackLookups()
        self.hook = EventsEndpoint(signing_secret) if signing_secret else None
        self._line = SocketStatus()

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled; tasks in progress get a short time to finish. Raises DeliveryFailed if Slack rejects
        or revokes the tokens.
        """
        identity = await retry_until_available(self._api.identity, "Slack")
        background_tasks = BackgroundTasks()
        app = self._app(identity)
        forms = ElicitationForms(engine, ArgumentEditForms(engine, commands))
        platform = PlatformContext(
            self._api, self._people, self._manners, background_tasks, engine, forms, self._records
        )
        access, tabs = RevocationWatcher(self._api), HomeRefresher(platform)
        _Handlers(app, platform, access, tabs)
        log.info("receiving from Slack as %s in %s", identity.name, identity.url or identity.team)
        try:
            if self.hook is not None:
                self.hook.attach(app)
            await _until_one_ends(self._receive(app), access.wait_revoked(), tabs.run())
        finally:
            if self.hook is not None:
                self.hook.detach()
            await background_tasks.close()

    async def listening(self) -> ListenerStatus:
        """Status of the listener; with Socket Mode, that of the connection."""
        arrive = await self._line.is_connected() if self._app_token else self.hook is not None and self.hook.ready
        return ListenerStatus.CONNECTED if arrive else ListenerStatus.CONNECTING

    async def _receive(self, app: AsyncApp) -> None:
        if self._app_token:
            await receive_by_socket(app, self._api, self._app_token, self._line)
        else:
            await asyncio.Event().wait()

    def _app(self, identity: Identity) -> AsyncApp:
        """Return Bolt's app with a known identity, because it would otherwise ask Slack at each event."""

        async def authorize() -> AuthorizeResult:
            return AuthorizeResult(
                enterprise_id=identity.enterprise or None,
                team_id=identity.team,
                bot_user_id=identity.user,
                bot_id=identity.bot,
                bot_token="-",  # noqa: S106 - nobody calls Slack through Bolt's own clients
            )

        return AsyncApp(
            logger=library_log("bolt"),
            name="countersign",
            process_before_response=True,
            authorize=authorize,
            signing_secret="-",  # noqa: S106 - the hook has looked at the signature
            request_verification_enabled=False,
            ssl_check_enabled=False,
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )


class _Handlers:
    """Dispatches the events of Bolt to their handlers."""

    def __init__(
        self, app: AsyncApp, platform: PlatformContext, access: RevocationWatcher, tabs: HomeRefresher
    ) -> None:
        invocations = CommandRunner(platform)
        self._access = access
        self._counter = InteractionHandler(platform, invocations)
        self._windows = ModalSubmissionHandler(platform, invocations, self._counter)
        self._reception = MessageHandler(platform, self._counter.on_text_command)
        self._gestures = ShortcutHandler(platform, self._counter, tabs)
        app.event(_ANY)(self._event)
        app.command(_ANY)(self._command)
        app.action({"type": "block_actions", "action_id": _ANY})(self._press)
        app.view({"type": "view_submission", "callback_id": _ANY})(self._submission)
        app.view({"type": "view_closed", "callback_id": _ANY})(self._nothing)
        app.shortcut(_ANY)(self._shortcut)
        app.error(self._failed)

    async def _event(self, body: dict[str, Any]) -> None:
        event = body.get("event")
        if isinstance(event, dict) and event.get("type") not in ("message", "app_mention"):
            self._access.event(event)
            self._gestures.event(event)
            return
        with in_context(request=str(body.get("event_id") or "")):
            await self._reception.handle(body)

    async def _command(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack()
        self._counter.on_slash_command(body)

    async def _press(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack()
        self._counter.on_action(body)

    async def _submission(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        if self._gestures.asked(body):
            await ack()
            return
        await ack(**await self._windows.take(body))

    async def _shortcut(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack()
        self._gestures.shortcut(body)

    async def _nothing(self, ack: AsyncAck) -> None:
        await ack()

    async def _failed(self, error: Exception) -> BoltResponse:
        """Return an error status, so that Slack sends the event again."""
        self._access.refused(error)
        if isinstance(error, CountersignError):
            log.warning("event from Slack not processed, Slack sends it again: %s", error)
        else:
            log.error("event from Slack not processed, Slack sends it again", exc_info=error)
        return BoltResponse(status=503)


async def _until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all tasks until one ends. Raises its error."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
