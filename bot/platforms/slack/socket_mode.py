"""Socket Mode: Slack's events over a websocket that this process opens, with the app's token.

Slack's client reconnects by itself. This module adds three things: it replaces a URL that does not connect, ends the
program on a rejected token, and closes the client's tasks at shutdown. Slack sends unacknowledged events again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from bot.chat.retry import retry_until_available
from bot.errors import DeliveryFailed
from bot.platforms.slack.web_api import SlackWebApiError, WebApi, library_log

log = logging.getLogger(__name__)

PING_SECONDS = 10.0
LOOK_SECONDS = 5.0
LOOKS = 3
"""Consecutive checks without a connection before the URL is replaced."""


class SocketStatus:
    """Connection status of Socket Mode."""

    def __init__(self) -> None:
        self._client: Any = None

    def attach(self, client: Any) -> None:
        """Watch this client; None for none."""
        self._client = client

    async def is_connected(self) -> bool:
        """Return True if the client reports a connection."""
        return self._client is not None and bool(await self._client.is_connected())


async def receive_by_socket(
    app: AsyncApp, api: WebApi, app_token: str, line: SocketStatus, *, ping: float = PING_SECONDS
) -> None:
    """Receive until cancelled, reporting to `line`. Raises DeliveryFailed if Slack rejects the app's token."""
    address = await retry_until_available(functools.partial(socket_address, api, app_token), "Slack")
    handler: Any = AsyncSocketModeHandler(
        app, app_token, logger=library_log(), web_client=api.client(), ping_interval=ping
    )
    # Slack hands out about one address a minute: the first one serves to look at the token and to connect.
    handler.client.wss_uri = address
    line.attach(handler.client)
    try:
        connecting = asyncio.create_task(handler.client.connect(), name="slack: connect")
        try:
            await _watch(handler, functools.partial(socket_address, api, app_token))
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
    finally:
        line.attach(None)
        await _close(handler)


async def socket_address(api: WebApi, app_token: str) -> str:
    """Return a URL for one connection. Raises DeliveryFailed."""
    try:
        return str((await api.with_token(app_token, "apps.connections.open")).get("url") or "")
    except SlackWebApiError as error:
        if not error.permanent:
            raise
        raise DeliveryFailed(
            f"Slack does not open a connection for the app ({error.code}).",
            "check SLACK_APP_TOKEN (xapp-…, scope connections:write) and that Socket Mode is on",
            permanent=True,
        ) from error


async def _watch(handler: Any, ask: Callable[[], Awaitable[str]]) -> None:
    """Replace a URL that does not work. Raises DeliveryFailed if the token is rejected."""
    away = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        away = 0 if await handler.client.is_connected() else away + 1
        if away >= LOOKS:
            handler.client.wss_uri = await _another(ask)
            away = 0


async def _another(ask: Callable[[], Awaitable[str]]) -> str | None:
    """Return a new URL, or None if Slack gives none for now and its client has to retry."""
    try:
        return await ask()
    except DeliveryFailed as failure:
        if failure.permanent:
            raise
        return None


async def _close(handler: Any) -> None:
    client = handler.client
    await client.close()
    tasks = (client.message_processor, client.current_session_monitor, client.message_receiver)
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
