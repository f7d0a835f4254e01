"""Responders to a command, and ephemeral messages: rejections, hints and results of actions.

A response stands under its command, is visible to its user only, and replaces the previous one. A `response_url` takes
five answers within 30 minutes (Slack, "Handling user interaction"). The last use is reserved for the last answer; the
bot's token posts later ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import aiohttp

from bot.errors import DeliveryFailed
from bot.platforms.slack.blocks import CommandReply
from bot.platforms.slack.channels import ChannelRef
from bot.platforms.slack.markup import defuse_mentions, escape
from bot.platforms.slack.web_api import WebApi

log = logging.getLogger(__name__)


def text_message(text: str) -> CommandReply:
    """Return a message of one plain sentence."""
    return CommandReply((), escape(defuse_mentions(text)))


async def send_ephemeral(api: WebApi, spot: ChannelRef, sheet: CommandReply) -> None:
    """Post an ephemeral message; in a direct conversation a regular one. Raises DeliveryFailed."""
    content: dict[str, Any] = {"text": sheet.text, "blocks": list(sheet.blocks) or None}
    thread = spot.thread or None
    if spot.direct:
        await api.post(
            "chat.postMessage",
            channel=spot.channel,
            thread_ts=thread,
            unfurl_links=False,
            unfurl_media=False,
            **content,
        )
        return
    await api.post("chat.postEphemeral", channel=spot.channel, user=spot.user, thread_ts=thread, **content)


USES = 5
"""Uses of a `response_url`: one is for the last answer, and one more is enough if answers do not replace each other."""
APART_SECONDS = 2.0
_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """Location of a command, and its `response_url`, if any. `replaces` is True if answers replace the clicked message;
    after a slash command each answer is a new message.
    """

    spot: ChannelRef
    url: str = ""
    replaces: bool = False

    def __str__(self) -> str:
        return json.dumps([self.spot.channel, self.spot.user, self.spot.thread, self.url, self.replaces])

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text form; return None if it is invalid."""
        try:
            channel, user, thread, url, replaces = json.loads(text)
        except (ValueError, TypeError):
            return None
        return cls(ChannelRef(str(channel), str(user), str(thread)), str(url), replaces is True)

    @property
    def without_response_url(self) -> ResponseTarget:
        """The same target without the `response_url`."""
        return replace(self, url="")


class Responder(Protocol):
    """Shows answers, each replacing the one before."""

    async def progress(self, sheet: CommandReply, /) -> None:
        """Show an answer that another one follows. May be skipped."""

    async def finish(self, sheet: CommandReply) -> None:
        """Show the last answer. Raises DeliveryFailed."""


def responder_for(api: WebApi, place: ResponseTarget, *, clock: Callable[[], float] = monotonic) -> Responder:
    """Return the responder for a target."""
    if place.url and _trusted(place.url, api.url):
        return _ByAddress(api, place, clock)
    return _AsMessage(api, place.spot) if place.spot.direct else _Whispered(api, place.spot)


class _ByAddress:
    """Through the address that came with a command or a press."""

    def __init__(self, api: WebApi, place: ResponseTarget, clock: Callable[[], float]) -> None:
        self._api = api
        self._place = place
        self._clock = clock
        self._used = 0
        self._last = float("-inf")
        self._shown: CommandReply | None = None

    async def progress(self, sheet: CommandReply) -> None:
        if self._used >= (USES - 1 if self._place.replaces else 1) or self._clock() - self._last < APART_SECONDS:
            return
        try:
            await self._send(sheet)
        except DeliveryFailed as error:
            log.info("progress of a command not shown: %s", error)

    async def finish(self, sheet: CommandReply) -> None:
        if sheet == self._shown:
            return
        try:
            await self._send(sheet)
        except DeliveryFailed:
            await send_ephemeral(self._api, self._place.spot, sheet)

    async def _send(self, sheet: CommandReply) -> None:
        self._used += 1
        self._last = self._clock()
        content: dict[str, Any] = {
            "response_type": "ephemeral",
            "replace_original": self._place.replaces,
            "text": sheet.text,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if sheet.blocks:
            content["blocks"] = list(sheet.blocks)
        try:
            async with self._api.session.post(self._place.url, json=content, allow_redirects=False) as response:
                if response.status != 200:
                    raise DeliveryFailed(f"Slack took no answer under the command (HTTP {response.status}).")
            self._shown = sheet
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailed(f"Slack took no answer under the command ({type(error).__name__}).") from error


class _AsMessage:
    """Responder that edits a message, for direct conversations."""

    def __init__(self, api: WebApi, spot: ChannelRef) -> None:
        self._api = api
        self._spot = spot
        self._ts = ""
        self._shown: CommandReply | None = None

    async def progress(self, sheet: CommandReply) -> None:
        if not self._ts or self._api.pacing.has_headroom("chat.update"):
            await self.finish(sheet)

    async def finish(self, sheet: CommandReply) -> None:
        if sheet == self._shown:
            return
        self._shown = sheet
        content: dict[str, Any] = {"channel": self._spot.channel, "text": sheet.text, "blocks": list(sheet.blocks)}
        if self._ts:
            await self._api.edit("chat.update", ts=self._ts, **content)
            return
        answer = await self._api.post(
            "chat.postMessage", thread_ts=self._spot.thread or None, unfurl_links=False, unfurl_media=False, **content
        )
        self._ts = str(answer.get("ts") or "")


class _Whispered:
    """Responder with ephemeral messages, which cannot be edited: only the last answer is posted."""

    def __init__(self, api: WebApi, spot: ChannelRef) -> None:
        self._api = api
        self._spot = spot

    async def progress(self, _sheet: CommandReply, /) -> None:
        return

    async def finish(self, sheet: CommandReply) -> None:
        await send_ephemeral(self._api, self._spot, sheet)


def _trusted(url: str, api_url: str) -> bool:
    place, home = urlsplit(url), urlsplit(api_url)
    if (place.scheme, place.netloc) == (home.scheme, home.netloc):
        return True
    return place.scheme == "https" and place.hostname in _HOSTS
