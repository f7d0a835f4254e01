"""Slack as a Listener: events, presses, windows and commands come in, by Socket Mode, over HTTP, or both.

The acknowledgement of a message follows its insert (`EngineApi.receive`) and waits for nothing else but finding out
who speaks and what was said before, which has a limit; if the insert fails, there is none, and Slack sends the message
again. What a press or a command sets off goes on after its acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse

from bot.chat.argument_editing import ArgumentEditForms
from bot.chat.audience import AudiencePolicy
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.elicitation_forms import ElicitationForms
from bot.chat.retry import retry_until_available
from bot.domain.health import ListenerStatus
from bot.errors import CountersignError, SettingsError
from bot.logs import in_context
from bot.platforms.slack.command_runner import CommandRunner
from bot.platforms.slack.context import PlatformContext, SlackLookups
from bot.platforms.slack.events_endpoint import EventsEndpoint
from bot.platforms.slack.home_refresher import HomeRefresher
from bot.platforms.slack.interactions import InteractionHandler
from bot.platforms.slack.messages import MessageHandler
from bot.platforms.slack.modal_submissions import ModalSubmissionHandler
from bot.platforms.slack.shortcuts import ShortcutHandler
from bot.platforms.slack.socket_mode import SocketStatus, receive_by_socket
from bot.platforms.slack.token_revocation import RevocationWatcher
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import Identity, WebApi, library_log
from bot.ports import Commands, EngineApi

log = logging.getLogger(__name__)

_ANY = re.compile(".*", re.DOTALL)


class SlackListener:
    """Receives from Slack. With an app token by Socket Mode; with a signing secret `hook` takes requests.

    Raises SettingsError if there is neither: nothing could ever arrive.
    """

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        *,
        app_token: str = "",
        signing_secret: str = "",
        manners: AudiencePolicy | None = None,
        records: SlackLookups | None = None,
    ) -> None:
        if not (app_token or signing_secret):
            raise SettingsError(
                "Slack has no way to reach the bot.", "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"
            )
        self._api = api
        self._people = people
        self._app_token = app_token
        self._manners = manners or AudiencePolicy()
        self._records = records or SlackLookups()
        self.hook = EventsEndpoint(signing_secret) if signing_secret else None
        self._line = SocketStatus()

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled; what was begun gets a moment to finish. Raises DeliveryFailed if Slack does not
        take the tokens, or takes them no more.
        """
        identity = await retry_until_available(self._api.identity, "Slack")
        errands = BackgroundTasks()
        app = self._app(identity)
        forms = ElicitationForms(engine, ArgumentEditForms(engine, commands))
        desk = PlatformContext(self._api, self._people, self._manners, errands, engine, forms, self._records)
        access, tabs = RevocationWatcher(self._api), HomeRefresher(desk)
        _Handlers(app, desk, access, tabs)
        log.info("receiving from Slack as %s in %s", identity.name, identity.url or identity.team)
        try:
            if self.hook is not None:
                self.hook.attach(app)
            await _until_one_ends(self._receive(app), access.wait_revoked(), tabs.run())
        finally:
            if self.hook is not None:
                self.hook.detach()
            await errands.close()

    async def listening(self) -> ListenerStatus:
        """Whether messages arrive now: where there is a socket, by that."""
        arrive = await self._line.is_connected() if self._app_token else self.hook is not None and self.hook.ready
        return ListenerStatus.CONNECTED if arrive else ListenerStatus.CONNECTING

    async def _receive(self, app: AsyncApp) -> None:
        if self._app_token:
            await receive_by_socket(app, self._api, self._app_token, self._line)
        else:
            await asyncio.Event().wait()

    def _app(self, identity: Identity) -> AsyncApp:
        """Bolt, told who it is instead of asking Slack at each event."""

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
    """Takes everything that Bolt hands out to where it belongs."""

    def __init__(self, app: AsyncApp, desk: PlatformContext, access: RevocationWatcher, tabs: HomeRefresher) -> None:
        invocations = CommandRunner(desk)
        self._access = access
        self._counter = InteractionHandler(desk, invocations)
        self._windows = ModalSubmissionHandler(desk, invocations, self._counter)
        self._reception = MessageHandler(desk, self._counter.on_text_command)
        self._gestures = ShortcutHandler(desk, self._counter, tabs)
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
        """No acknowledgement: Slack sends it again."""
        self._access.refused(error)
        if isinstance(error, CountersignError):
            log.warning("an event from Slack could not be taken and will come again: %s", error)
        else:
            log.error("an event from Slack could not be taken and will come again", exc_info=error)
        return BoltResponse(status=503)


async def _until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Do all of it side by side, until one ends. Raises what it raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
