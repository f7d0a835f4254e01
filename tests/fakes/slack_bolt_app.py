"""A small app of the real Bolt that the tests of the fake Slack talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack

Json = dict[str, Any]


def modal(**more: Any) -> Json:
    """A modal with a name to type and a kind to choose."""
    kinds = [{"text": {"type": "plain_text", "text": kind.title()}, "value": kind} for kind in ("http", "stdio")]
    return {
        "type": "modal",
        "callback_id": "add",
        "title": {"type": "plain_text", "text": "Add"},
        "submit": {"type": "plain_text", "text": "Add"},
        "notify_on_close": True,
        "blocks": [
            {
                "type": "input",
                "block_id": "name",
                "label": {"type": "plain_text", "text": "Name"},
                "element": {"type": "plain_text_input", "action_id": "name"},
            },
            {
                "type": "input",
                "block_id": "kind",
                "optional": True,
                "label": {"type": "plain_text", "text": "Kind"},
                "element": {"type": "static_select", "action_id": "kind", "options": kinds, "initial_option": kinds[0]},
            },
        ],
    } | more


class BoltApp:
    """An app that notes what it gets in `heard`. Listeners of events end once `released` is set, as at first."""

    def __init__(self, slack: FakeSlack, session: ClientSession) -> None:
        self.heard: list[tuple[str, Json]] = []
        self.released = asyncio.Event()
        self.released.set()
        self.answers: dict[str, Json] = {}
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session)
        self.app = AsyncApp(
            client=client, signing_secret=slack.app.signing_secret, raise_error_for_unhandled_request=False
        )
        for event in ("message", "app_mention", "app_home_opened", "agent_session_stopped"):
            self.app.event(event)(self._event)
        self.app.command("/mcp")(self._command)
        self.app.action("open")(self._opens)
        self.app.action("respond")(self._responds)
        self.app.action("pick")(self._noted)
        self.app.action("note")(self._noted)
        self.app.options("search")(self._options)
        self.app.view("add")(self._submitted)
        self.app.view_closed("add")(self._noted)
        self.app.shortcut("ask")(self._noted)

    def kinds(self) -> list[str]:
        """The types of what was heard, in order."""
        return [kind for kind, _ in self.heard]

    async def _event(self, body: Json) -> None:
        self.heard.append((body["event"]["type"], body))
        await self.released.wait()

    async def _command(self, ack: Any, body: Json) -> None:
        self.heard.append(("command", body))
        await ack(f"ok {body['text']}")

    async def _opens(self, ack: Any, body: Json, client: AsyncWebClient) -> None:
        self.heard.append(("open", body))
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=modal())

    async def _responds(self, ack: Any, body: Json, respond: Any) -> None:
        self.heard.append(("respond", body))
        await ack()
        await respond("Done", replace_original=True)

    async def _submitted(self, ack: Any, body: Json) -> None:
        self.heard.append(("submitted", body))
        await ack(**self.answers.get("add", {}))

    async def _options(self, ack: Any, body: Json) -> None:
        self.heard.append(("options", body))
        await ack(options=[{"text": {"type": "plain_text", "text": body["value"]}, "value": "1"}])

    async def _noted(self, ack: Any, body: Json) -> None:
        self.heard.append((body["type"], body))
        await ack()


@asynccontextmanager
async def by_socket(slack: FakeSlack, bolt: BoltApp, count: int = 1) -> AsyncIterator[AsyncSocketModeHandler]:
    """Connect the app by Socket Mode; `count` connections are open then in all."""
    handler = AsyncSocketModeHandler(bolt.app, slack.app.app_token, ping_interval=0.2)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    await slack.sockets.connected(count)
    try:
        yield handler
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def by_http(slack: FakeSlack, bolt: BoltApp) -> AsyncIterator[str]:
    """Serve the app at /slack/events and tell Slack of it; yields the URL."""

    async def events(request: web.Request) -> web.StreamResponse:
        return await to_aiohttp_response(await bolt.app.async_dispatch(await to_bolt_request(request)))

    application = web.Application()
    application.router.add_post("/slack/events", events)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    slack.deliver_by_http(url)
    try:
        yield url
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listening(
    slack: FakeSlack, statuses: list[int], headers: dict[str, str] | None = None
) -> AsyncIterator[list[web.Request]]:
    """An address that answers with these statuses in turn, 0 not at all; yields the requests it gets."""
    requests: list[web.Request] = []
    closing = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        await request.read()
        if not statuses[len(requests) - 1]:
            await closing.wait()
        return web.Response(status=statuses[len(requests) - 1] or 503, headers=headers)

    application = web.Application()
    application.router.add_post("/", events)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.deliver_by_http(f"http://127.0.0.1:{runner.addresses[0][1]}/")
    try:
        yield requests
    finally:
        closing.set()
        await runner.cleanup()
