"""Slack listener: events, interactions and commands by Socket Mode, HTTP, or both, and messages that were missed while
no process received.

A message is acknowledged after its insert (`EngineApi.receive`). Without an acknowledgement, for example because the
insert failed, Slack sends it again. Interactions are handled after their acknowledgement.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.context.async_context import AsyncBoltContext
from slack_bolt.error import BoltError
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.signature import SignatureVerifier

from bot.chat.backfill import Backfill
from bot.chat.background_tasks import BackgroundTasks, retry_until_available
from bot.chat.context import Lookups, with_card_forms
from bot.chat.listener_leases import ListenerLease
from bot.chat.message_handler import MessageHandler
from bot.chat.users import AudiencePolicy
from bot.domain.health import ListenerStatus
from bot.errors import CountersignError, DeliveryFailed, SettingsError
from bot.i18n import gettext_lazy
from bot.logs import in_context
from bot.platforms.slack.home import HomeRefresher
from bot.platforms.slack.interactions import PlatformContext, SlackInteractions
from bot.platforms.slack.messages import (
    MessageDeletion,
    SlackMessage,
    SlackMessagePlatform,
    SlackMissedMessages,
    mentioned_people,
    parse_event,
)
from bot.platforms.slack.users import GROUP_EVENTS
from bot.platforms.slack.web_api import (
    NO_TEAM_ACCESS,
    PLATFORM,
    Identity,
    SlackWebApiError,
    WebApi,
    library_log,
    object_in,
    objects_in,
    text_in,
)
from bot.platforms.slack.workspaces import (
    INSTALL_AGAIN,
    REVOCATION_EVENTS,
    RevocationWatcher,
    SlackWorkspace,
    SlackWorkspaces,
    retry_until_stored,
)
from bot.ports import Commands, EngineApi

log = logging.getLogger(__name__)
PATH = "/slack/events"
LARGEST_BODY = 1024 * 1024
"""In bytes. Slack's requests are below a quarter of that, including a modal of 250 kB."""
PING_SECONDS = 10.0
AGAIN_SECONDS = 30.0
"""Seconds until a workspace is tried again that could not be received from."""
REMOVED = frozenset({"account_inactive", "invalid_auth", "token_revoked"})
"""Codes for a token that is gone for good."""
CHECK_SECONDS = 5.0
FAILED_CHECKS = 3
"""Consecutive checks without a connection before the URL is replaced."""
_ANY = re.compile(".*", re.DOTALL)
_MESSAGES = frozenset({"message", "app_mention"})


# -------------------- Socket Mode
# Slack's client reconnects by itself. Added here: a URL that does not connect is replaced, a rejected token ends the
# program, and the client's tasks are closed at shutdown. Slack sends unacknowledged events again.


class SocketMode:
    """Connection of the app by Socket Mode."""

    def __init__(self, api: WebApi, app_token: str) -> None:
        self._api = api
        self._app_token = app_token
        self._client: Any = None

    async def is_connected(self) -> bool:
        """Return True if Slack's client reports a connection."""
        return self._client is not None and bool(await self._client.is_connected())

    async def receive(self, app: AsyncApp, on_reconnect: Callable[[], None] = lambda: None) -> None:
        """Receive until cancelled. `on_reconnect` is called when a connection stands again that was away for long.
        Raises DeliveryFailed if Slack rejects the app's token.
        """
        url = await retry_until_available(self._url, "Slack")
        handler: Any = AsyncSocketModeHandler(
            app, self._app_token, logger=library_log(), web_client=self._api.client(), ping_interval=PING_SECONDS
        )
        self._client = client = handler.client
        # Slack returns about one URL a minute: the first one is used to check the token and to connect.
        client.wss_uri = url
        client.proxy = self._api.proxy  # the library ignores NO_PROXY
        try:
            connecting = asyncio.create_task(client.connect(), name="slack: connect")
            try:
                await self._watch(client, on_reconnect)
            finally:
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)
        finally:
            self._client = None
            await client.close()
            tasks = (client.message_processor, client.current_session_monitor, client.message_receiver)
            await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    async def _watch(self, client: Any, on_reconnect: Callable[[], None]) -> None:
        """Replace a URL that does not work; Slack's client has to retry if there is none for now. Raises DeliveryFailed
        if the token is rejected.
        """
        failed_checks, was_away = 0, False
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if await client.is_connected():
                failed_checks = 0
                if was_away:
                    on_reconnect()
                    was_away = False
                continue
            failed_checks += 1
            if failed_checks < FAILED_CHECKS:
                continue
            try:
                client.wss_uri = await self._url()
            except DeliveryFailed as failure:
                if failure.permanent:
                    raise
                client.wss_uri = None
            failed_checks, was_away = 0, True

    async def _url(self) -> str:
        return await socket_url(self._api, self._app_token)


async def socket_url(api: WebApi, app_token: str) -> str:
    """Return a URL for one connection. Raises DeliveryFailed."""
    try:
        return text_in(await api.with_token(app_token, "apps.connections.open"), "url")
    except SlackWebApiError as error:
        if not error.permanent:
            raise
        raise DeliveryFailed(
            gettext_lazy("Slack does not open a connection for the app ({code}).", code=error.code),
            gettext_lazy("check SLACK_APP_TOKEN (xapp-…, scope connections:write) and that Socket Mode is on"),
            permanent=True,
        ) from error


# -------------------- events endpoint
# Independent of a web framework. Requests without a signature of the last five minutes, and requests above Slack's
# maximum size, are rejected before they are parsed.


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response to a request of Slack."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, BoltError)
"""Errors of Bolt and of the handlers for a body that is no request of Slack, or has fields of other types."""
TRY_AGAIN = HttpResponse(503, {"Retry-After": "5"})
BAD_REQUEST = HttpResponse(400, body="not a request of Slack: neither an event in JSON nor a form\n")


class EventsEndpoint:
    """Takes the requests that arrive at `PATH`; `largest_body` is for the server to stop reading at."""

    path = PATH
    largest_body = LARGEST_BODY

    def __init__(self, signing_secret: str) -> None:
        self._verifier = SignatureVerifier(signing_secret)
        self.app: AsyncApp | None = None
        """Handles the events while they are accepted: without it Slack sends them again."""

    @property
    def ready(self) -> bool:
        """True while events are accepted."""
        return self.app is not None

    async def respond(self, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Return the response to a POST request. Never raises."""
        if len(body) > LARGEST_BODY:
            return HttpResponse(413)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return BAD_REQUEST
        lower_headers = {name.lower(): value for name, value in headers.items()}
        if not self._is_signed(lower_headers, text):
            return HttpResponse(401)
        return await self._dispatch(self.app, lower_headers, text)

    async def _dispatch(self, app: AsyncApp | None, headers: Mapping[str, str], body: str) -> HttpResponse:
        if app is None:
            return TRY_AGAIN
        try:
            request = AsyncBoltRequest(body=body, headers={name: [value] for name, value in headers.items()})
            response = await app.async_dispatch(request)
        except _MALFORMED as error:
            log.warning("request from Slack not understood: %s", type(error).__name__)
            return BAD_REQUEST
        except Exception:
            log.exception("event from Slack not processed")
            return TRY_AGAIN
        if response.status in (400, 404):  # Bolt has found no handler for it
            return BAD_REQUEST
        return HttpResponse(
            response.status, {name: value[0] for name, value in response.headers.items()}, response.body
        )

    def _is_signed(self, headers: Mapping[str, str], body: str) -> bool:
        timestamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 13 and signature.isascii()):
            return False
        return self._verifier.is_valid(body, timestamp, signature)


# -------------------- workspaces


def read_ids(body: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the ids of the workspaces that an event or interaction may belong to, the likeliest first, and that of the
    organization of an organization-wide installation, empty for others. Some of them Bolt has found. The one of an
    installation goes first: in a shared channel, others name the workspace of the sender.
    """
    authorized = [entry.get("team_id") for entry in objects_in(body, "authorizations")]
    organization = text_in(context, "enterprise_id") if context.get("is_enterprise_install") else ""
    # A message with buttons is the bot's: its workspace is that of the installation, whoever presses one.
    pressed = text_in(body, "message", "team") if body.get("type") == "block_actions" else ""
    received = text_in(body, "context_team_id") if organization else ""
    # Without a workspace in an interaction there is one of the message or of the user.
    parts = [text_in(body, part, name) for part in ("message", "view", "user") for name in ("team", "team_id")]
    candidates = (pressed, context.get("team_id"), *authorized, received, body.get("team_id"), *parts)
    # In an organization, an authorization may name the organization in place of a workspace.
    teams = dict.fromkeys(str(team) for team in candidates if team and team != organization)
    return tuple(teams), organization


class WorkspaceReceiver:
    """Receives for one workspace: its handlers, its Home tabs, and the messages that it missed."""

    def __init__(
        self, workspace: SlackWorkspace, identity: Identity, platform: PlatformContext, read_missed: ReadMissed
    ) -> None:
        build_home, here = platform.records.build_home, f"{PLATFORM}:{identity.team}"
        self.workspace = workspace
        self.identity = identity
        self.access = RevocationWatcher(workspace.api, INSTALL_AGAIN if workspace.installation else "")
        self._tabs = HomeRefresher(
            workspace.api,
            workspace.people,
            platform.audience,
            None if build_home is None else lambda member: build_home(member, here),
            platform.records.locales,
        )
        self.interactions = SlackInteractions(platform, self._tabs)
        self.messages = MessageHandler[SlackMessage](
            SlackMessagePlatform(platform.api, platform.people, self.interactions.on_text_command), platform
        )
        self.has_missed = asyncio.Event()
        self.has_missed.set()
        self._platform = platform
        self._read_missed = read_missed

    async def run(self) -> None:
        """Run until cancelled. Raises DeliveryFailed if the token is revoked."""
        await _until_one_ends(self.access.wait_revoked(), self._tabs.run(), self._read_missed(self))

    async def on_event(self, body: dict[str, Any]) -> None:
        """Handle an event. Raises CountersignError if it has to come again."""
        event = object_in(body, "event")
        if (kind := text_in(event, "type")) not in _MESSAGES:
            if kind in REVOCATION_EVENTS:
                self.access.suspect()
            elif kind in GROUP_EVENTS:
                self.workspace.people.forget_groups()
            self.interactions.on_event(event)
            return
        with in_context(request=text_in(body, "event_id")):
            match parse_event(event, self.identity):
                case MessageDeletion(message_id, keys):
                    await self.messages.handle_deletion(message_id, keys)
                case SlackMessage(is_edit=True) as edited:
                    await self.messages.handle_edit(edited)
                case SlackMessage() as message:
                    await self.messages.handle(message)

    async def close(self) -> None:
        """Give tasks in progress a short time to finish."""
        await self._platform.background_tasks.close()

    def backfill(self, engine: EngineApi) -> Backfill[SlackMessage]:
        """Return the backfill of the workspace."""
        return Backfill(
            f"{PLATFORM}:{self.identity.team}",
            SlackMissedMessages(self.workspace.api),
            self.messages,
            engine,
            self._platform.records.active_conversations,
        )


ReadMissed = Callable[[WorkspaceReceiver], Coroutine[Any, Any, None]]


class WorkspaceReceivers:
    """The receivers of all workspaces, which come and go with installations. `build` returns one."""

    def __init__(
        self, workspaces: SlackWorkspaces, build: Callable[[SlackWorkspace, Identity], WorkspaceReceiver]
    ) -> None:
        self._workspaces = workspaces
        self._build = build
        self._receivers: dict[SlackWorkspace, WorkspaceReceiver] = {}
        self._tasks: dict[SlackWorkspace, asyncio.Task[None]] = {}
        self._building = asyncio.Lock()

    async def start(self) -> None:
        """Wait until Slack names the owner of the bot's token. Raises DeliveryFailed if it is rejected, unless there
        may be other workspaces.
        """
        own = self._workspaces.own
        if own is None:
            return
        try:
            await retry_until_available(own.api.identity, "Slack")
        except DeliveryFailed as failure:
            if self._workspaces.installed is None:
                raise
            log.error("SLACK_BOT_TOKEN is not served: %s", failure)
            return
        await self.of(own)

    async def run(self) -> None:
        """Receive for all workspaces until cancelled. Raises DeliveryFailed if the only token is revoked."""
        installed = self._workspaces.installed
        changed = asyncio.Event() if installed is None else installed.changed
        while True:
            changed.clear()
            await self._follow()
            waiting = asyncio.create_task(changed.wait(), name="slack: workspaces")
            is_whole = len(self._receivers) == len(self._workspaces.known())
            try:
                await asyncio.wait(
                    {waiting, *self._tasks.values()},
                    timeout=None if is_whole else AGAIN_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                waiting.cancel()
            for workspace, task in list(self._tasks.items()):
                if task.done():
                    await self._end(workspace, task)

    async def find(self, teams: Sequence[str], organization: str, *, is_message: bool) -> WorkspaceReceiver | None:
        """Return the receiver of an event or interaction by its ids, None if the app does not serve its workspace.
        Raises CountersignError.
        """
        for team in teams or ((organization,) if organization else ()):
            workspace = await self._workspaces.find(team, organization)
            if workspace is not None and (receiver := await self.of(workspace)).identity.team == team:
                return receiver
        own = self._workspaces.own
        if is_message or own is None or self._workspaces.installed is not None:
            return None
        # An interaction of a user of another workspace, in a shared channel, may name that workspace alone.
        return await self.of(own)

    def suspect_revoked(self, teams: Collection[str]) -> None:
        """Check the access to workspaces that the token of their organization may have lost."""
        for receiver in self._receivers.values():
            if receiver.identity.team in teams:
                receiver.access.suspect()

    def mentioned(self, text: str) -> Sequence[WorkspaceReceiver]:
        """Return the receivers of mentioned bots."""
        people = mentioned_people(text)
        return [receiver for receiver in self._receivers.values() if receiver.identity.user in people]

    async def of(self, workspace: SlackWorkspace) -> WorkspaceReceiver:
        """Return the receiver of a workspace. Raises DeliveryFailed."""
        if (known := self._receivers.get(workspace)) is not None:
            return known
        async with self._building:
            if workspace not in self._receivers:
                receiver = self._build(workspace, await workspace.api.identity())
                self._receivers[workspace] = receiver
                self._tasks[workspace] = asyncio.create_task(receiver.run(), name="slack: workspace")
                where = receiver.identity.url or receiver.identity.team
                log.info("receiving from Slack as %s in %s", receiver.identity.name, where)
            return self._receivers[workspace]

    def read_missed(self) -> None:
        """Read missed messages of all workspaces."""
        for receiver in self._receivers.values():
            receiver.has_missed.set()

    async def close(self) -> None:
        """End all receivers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))

    async def _follow(self) -> None:
        """Build the receivers of new workspaces, and end those of workspaces that are gone."""
        known = set(self._workspaces.known())
        for workspace in self._receivers.keys() - known:
            self._tasks[workspace].cancel()
        for workspace in known - self._receivers.keys():
            try:
                await self.of(workspace)
            except DeliveryFailed as error:
                log.warning("a Slack workspace is not received from yet: %s", error)
                await self._forget_removed(workspace, error)

    async def _end(self, workspace: SlackWorkspace, task: asyncio.Task[None]) -> None:
        """Drop a receiver that has ended. Raises its error if there is no other workspace to go on for."""
        receiver = self._receivers.pop(workspace)
        del self._tasks[workspace]
        installed = self._workspaces.installed
        error = None if task.cancelled() else task.exception()
        if error is not None and (installed is None or not isinstance(error, DeliveryFailed)):
            self._receivers[workspace], self._tasks[workspace] = receiver, task  # closed by `close`
            raise error
        await receiver.close()
        if error is None:
            return
        log.warning("not receiving from Slack workspace %s any more: %s", receiver.identity.team, error)
        await self._forget_removed(workspace, error)

    async def _forget_removed(self, workspace: SlackWorkspace, error: BaseException) -> None:
        """Forget a workspace from which the app was removed, maybe while no process received; keep it after any other
        error.
        """
        installed = self._workspaces.installed
        rejection = error if isinstance(error, SlackWebApiError) else error.__cause__
        if installed is None or not isinstance(rejection, SlackWebApiError):
            return
        if rejection.code == NO_TEAM_ACCESS:
            installed.remove_from_organization(workspace)
        if rejection.code not in REMOVED:
            return
        if workspace.installation:
            await retry_until_stored(functools.partial(installed.remove, workspace.installation))
        elif workspace is self._workspaces.own:
            self._workspaces.own = None


# -------------------- listener


class SlackListener:
    """Receives from Slack for all workspaces: Socket Mode with an app token; `hook` takes requests with a signing
    secret. `app_api` calls Slack for the app as a whole. Missed messages are read under the lease that `backfill_lease`
    returns for a name; without it they are not read.

    Raises SettingsError if both secrets are missing.
    """

    def __init__(
        self,
        workspaces: SlackWorkspaces,
        app_api: WebApi,
        *,
        app_token: str = "",
        signing_secret: str = "",
        audience: AudiencePolicy | None = None,
        records: Lookups | None = None,
        backfill_lease: Callable[[str], ListenerLease] | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        if not (app_token or signing_secret):
            raise SettingsError(
                gettext_lazy("Slack has no way to reach the bot."),
                gettext_lazy("set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"),
            )
        self._workspaces = workspaces
        self._app_token = app_token
        self._audience = audience or AudiencePolicy()
        self._records = records or Lookups()
        self._backfill_lease = backfill_lease
        self._clock = clock
        self.hook = EventsEndpoint(signing_secret) if signing_secret else None
        self._socket = SocketMode(app_api, app_token)

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled; tasks in progress get a short time to finish. Raises DeliveryFailed if Slack rejects
        or revokes the tokens, unless there may be other workspaces.
        """
        commands = with_card_forms(engine, commands, self._records)

        def build(workspace: SlackWorkspace, identity: Identity) -> WorkspaceReceiver:
            platform = PlatformContext(
                engine=engine,
                commands=commands,
                audience=self._audience,
                background_tasks=BackgroundTasks(),
                records=self._records,
                api=workspace.api,
                people=workspace.people,
            )
            return WorkspaceReceiver(workspace, identity, platform, functools.partial(self._read_missed, engine))

        receivers = WorkspaceReceivers(self._workspaces, build)
        app = _Dispatcher(receivers).app()
        try:
            await receivers.start()
            if self.hook is not None:
                self.hook.app = app
            receiving = (self._socket.receive(app, receivers.read_missed),) if self._app_token else ()
            await _until_one_ends(*receiving, receivers.run())
        finally:
            if self.hook is not None:
                self.hook.app = None
            await receivers.close()

    async def listening(self) -> ListenerStatus:
        """Status of the listener; with Socket Mode, that of the connection."""
        is_connected = (
            await self._socket.is_connected() if self._app_token else self.hook is not None and self.hook.ready
        )
        return ListenerStatus.CONNECTED if is_connected else ListenerStatus.CONNECTING

    async def _read_missed(self, engine: EngineApi, receiver: WorkspaceReceiver) -> None:
        """Read missed messages of a workspace now and after each long disconnection, one process at a time. Never
        returns.
        """
        backfill = receiver.backfill(engine)
        while True:
            await receiver.has_missed.wait()
            receiver.has_missed.clear()
            if self._backfill_lease is None:
                continue
            lease = self._backfill_lease(f"slack-backfill:{receiver.identity.team}")
            try:
                await lease.run_while_held(functools.partial(backfill.run, self._clock()))
            except CountersignError as error:
                log.warning("missed messages of Slack not read: %s", error)
            except Exception:
                log.exception("missed messages of Slack not read")


_RECEIVER = "receiver"
"""Key of the receiver of a request in Bolt's context."""
_NOT_SERVED = gettext_lazy(
    "This app is not set up for your workspace, or was removed from it. Ask whoever operates the bot."
)


def _acknowledged(handle: Callable[[SlackInteractions, dict[str, Any]], None]) -> Callable[..., Awaitable[None]]:
    """Return a handler of Bolt that acknowledges a request before it is handled."""

    async def acknowledge(ack: AsyncAck, body: dict[str, Any], context: AsyncBoltContext) -> None:
        await ack()
        handle(_receiver_of(context).interactions, body)

    return acknowledge


class _App(AsyncApp):
    """Bolt's app, except that messages go to `take_message`: Bolt's search for a handler costs more than the rest of
    what a message needs until it is stored.
    """

    take_message: Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]

    async def async_dispatch(self, req: AsyncBoltRequest) -> BoltResponse:
        """Return the response to a request."""
        if text_in(req.body, "event", "type") in _MESSAGES:
            return await self.take_message(req)
        return await super().async_dispatch(req)


class _Dispatcher:
    """Dispatches the requests of Bolt to the handlers of their workspace, which the receivers tell: Bolt's own way
    would be a request to Slack at each event, and a client without our rate limits.
    """

    def __init__(self, receivers: WorkspaceReceivers) -> None:
        self._receivers = receivers

    def app(self) -> AsyncApp:
        """Return Bolt's app with handlers for all requests."""
        app = _App(
            logger=library_log("bolt"),
            name="countersign",
            process_before_response=True,
            before_authorize=self._find_receiver,
            authorize=_authorize,
            signing_secret="-",  # noqa: S106 - the hook has looked at the signature
            request_verification_enabled=False,
            ssl_check_enabled=False,
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        app.take_message = self._take_message
        app.event(_ANY)(self._event)
        app.command(_ANY)(_acknowledged(SlackInteractions.on_slash_command))
        app.action({"type": "block_actions", "action_id": _ANY})(_acknowledged(SlackInteractions.on_action))
        app.view({"type": "view_submission", "callback_id": _ANY})(self._submission)
        app.view({"type": "view_closed", "callback_id": _ANY})(_acknowledged(lambda _interactions, _body: None))
        app.shortcut(_ANY)(_acknowledged(SlackInteractions.on_shortcut))
        app.error(self._handle_failure)
        return app

    async def _find_receiver(
        self, body: dict[str, Any], context: AsyncBoltContext, next_: Callable[[], Awaitable[None]]
    ) -> BoltResponse | None:
        if body.get("type") != "url_verification":
            is_message = text_in(body, "event", "type") in _MESSAGES
            receiver = await self._receivers.find(*read_ids(body, context), is_message=is_message)
            if receiver is None:
                # In a workspace that is not served, the user of a command gets a sentence.
                log.info("request from a Slack workspace that is not served: %s", body.get("team_id") or "unknown")
                return BoltResponse(status=200, body=str(_NOT_SERVED) if body.get("command") else "")
            context[_RECEIVER] = receiver
        await next_()
        return None

    async def _take_message(self, request: AsyncBoltRequest) -> BoltResponse:
        body, context = request.body, request.context
        try:
            response = await self._find_receiver(body, context, _go_on)
            if response is None:
                await self._event(body, context)
        except Exception as error:  # noqa: BLE001 - as Bolt does
            return await self._handle_failure(error, context)
        return response or BoltResponse(status=200)

    async def _event(self, body: dict[str, Any], context: AsyncBoltContext) -> None:
        receiver, event = _receiver_of(context), object_in(body, "event")
        await receiver.on_event(body)
        if event.get("type") == "team_access_revoked":
            teams = event.get("team_ids")
            self._receivers.suspect_revoked(teams if isinstance(teams, list) else ())
        # Slack sends one event to an app that is in both workspaces of a shared channel.
        if body.get("is_ext_shared_channel") and event.get("type") in _MESSAGES:
            for other in self._receivers.mentioned(text_in(event, "text")):
                if other is not receiver:
                    await other.on_event(body)

    async def _submission(self, ack: AsyncAck, body: dict[str, Any], context: AsyncBoltContext) -> None:
        await ack(**await _receiver_of(context).interactions.on_submission(body))

    async def _handle_failure(self, error: Exception, context: AsyncBoltContext) -> BoltResponse:
        """Return an error status, so that Slack sends the event again."""
        if (receiver := context.get(_RECEIVER)) is not None:
            receiver.access.note_error(error)
        if isinstance(error, _MALFORMED):
            log.error("request from Slack not understood", exc_info=error)
            return BoltResponse(status=400)
        if isinstance(error, CountersignError):
            log.warning("event from Slack not processed, Slack sends it again: %s", error)
        else:
            log.error("event from Slack not processed, Slack sends it again", exc_info=error)
        return BoltResponse(status=503)


async def _go_on() -> None:
    """Do nothing: the caller goes on."""


async def _authorize(context: AsyncBoltContext) -> AuthorizeResult:
    identity = _receiver_of(context).identity
    return AuthorizeResult(
        enterprise_id=identity.enterprise or None,
        team_id=identity.team,
        bot_user_id=identity.user,
        bot_id=identity.bot,
        bot_token="-",  # noqa: S106 - nobody calls Slack through Bolt's own clients
    )


def _receiver_of(context: AsyncBoltContext) -> WorkspaceReceiver:
    receiver: WorkspaceReceiver = context[_RECEIVER]
    return receiver


async def _until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all tasks until one ends. Raises its error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
