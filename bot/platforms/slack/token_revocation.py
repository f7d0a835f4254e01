"""Whether the bot is still let into the workspace: Slack says when the app was removed or its tokens were revoked.

Called by the listener. What such an event says is only a reason to look: an app that was installed again in the same
moment goes on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any

from bot.chat.retry import retry_until_available
from bot.errors import DeliveryFailed
from bot.platforms.slack.errors import LOCKED_OUT, SlackWebApiError
from bot.platforms.slack.web_api import WebApi

log = logging.getLogger(__name__)


class RevocationWatcher:
    """Hears of it, and ends whatever waits for it."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._doubted = asyncio.Event()

    def event(self, event: Mapping[str, Any]) -> None:
        """An event that is no message."""
        match event.get("type"):
            case "app_uninstalled" | "tokens_revoked":
                self._doubted.set()
            case _:
                return

    def refused(self, error: Exception) -> None:
        """Something could not be done: perhaps because of that, where Slack has not said so before."""
        if isinstance(error, SlackWebApiError) and error.code in LOCKED_OUT:
            self._doubted.set()

    async def wait_revoked(self) -> None:
        """Wait until the bot is let in no more. Raises DeliveryFailed then, and never returns."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            try:
                await retry_until_available(functools.partial(self._api.edit, "auth.test"), "Slack")
            except DeliveryFailed as failure:
                raise DeliveryFailed(
                    f"Slack has let the bot out. {failure.cause}", failure.fix, permanent=True
                ) from failure
            log.warning("Slack says that tokens of the app were revoked; the bot's own is still good")
