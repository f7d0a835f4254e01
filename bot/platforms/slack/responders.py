"""Responders to a command, and ephemeral messages: rejections, hints and results of actions.

A response stands under its command, is visible to its user only, and replaces the previous one. A `response_url` takes
five answers within 30 minutes (Slack, "Handling user interaction"). The last use is reserved for the last answer; the
bot's token posts later ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self

import aiohttp

from bot.chat.actions import RunCommand
from bot.chat.command_runner import form_offer, thread_title
from bot.chat.http import is_trusted_url
from bot.chat.message_model import Message
from bot.domain.commands import Form, ReplyFile
from bot.domain.conversations import InboundMessage
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.slack.blocks import CommandReply, defuse_mentions, escape
from bot.platforms.slack.message_blocks import command_reply
from bot.platforms.slack.web_api import ChannelRef, SlackWebApiError, WebApi, direct_channel

log = logging.getLogger(__name__)


def text_message(text: str) -> CommandReply:
    """Return a message of one plain sentence."""
    return CommandReply((), escape(defuse_mentions(text)))


async def send_ephemeral(api: WebApi, ref: ChannelRef, reply: CommandReply) -> None:
    """Post an ephemeral message; in a direct conversation a regular one. Raises DeliveryFailed."""
    if ref.direct:
        await api.post_message(ref.channel, ref.thread, text=reply.text, blocks=reply.blocks)
        return
    content = {"thread_ts": ref.thread or None, "text": reply.text, "blocks": list(reply.blocks) or None}
    await api.post("chat.postEphemeral", channel=ref.channel, user=ref.user, **content)


async def send_private(api: WebApi, target: ResponseTarget, reply: CommandReply) -> None:
    """Post an ephemeral message. Where the bot may not post, for example because it is not in the channel, use the
    `response_url` of the interaction. Raises DeliveryFailed.
    """
    try:
        await send_ephemeral(api, target.ref, reply)
    except DeliveryFailed as error:
        if not (error.permanent and target.url and is_trusted_url(target.url, _HOSTS, api.url)):
            raise
        await post_response(api, target.url, reply, replace_original=False)


USES = 5
"""Uses of a `response_url`: one is for the last answer, and one more is enough if answers do not replace each other."""
APART_SECONDS = 2.0
NOT_TAKEN = gettext_lazy("Slack took no answer under the command.")
_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """Location of a command, and its `response_url`, if any. `replaces` is True if answers replace the clicked message;
    after a slash command each answer is a new message.
    """

    ref: ChannelRef
    url: str = ""
    replaces: bool = False

    def __str__(self) -> str:
        return json.dumps([self.ref.channel, self.ref.user, self.ref.thread, self.url, self.replaces])

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text form; return None if it is invalid."""
        try:
            channel, user, thread, url, replaces = json.loads(text)
        except (ValueError, TypeError):
            return None
        return cls(ChannelRef(str(channel), str(user), str(thread)), str(url), replaces is True)


class CommandResponder:
    """Responder to a command. `open_form` opens a form now, or returns False."""

    def __init__(self, api: WebApi, target: ResponseTarget, open_form: Callable[[Form], Awaitable[bool]]) -> None:
        self._api = api
        self._target = target
        self._open_form = open_form
        self._display = display_for(api, target)

    @property
    def is_awaited(self) -> bool:
        """True after a slash command or a click, which Slack shows to the user."""
        return bool(self._target.url)

    async def progress(self, reply: Message) -> None:
        """Show a reply that another one may follow."""
        await self._display.progress(command_reply(reply))

    async def finish(self, reply: Message) -> bool:
        """Show the last reply. Return False if something is omitted. Raises DeliveryFailed."""
        message = command_reply(reply)
        await self._display.finish(message)
        return message.is_whole

    async def open_form(self, form: Form) -> bool:
        """Open a form in a modal."""
        return await self._open_form(form)

    async def offer_form(self, form: Form, words: tuple[str, ...]) -> None:
        """Show a button that runs the command again, which every process can. Raises DeliveryFailed."""
        await self.finish(form_offer(form, RunCommand(words), begun=False))

    async def tell(self, text: str) -> None:
        """Post an ephemeral message. Raises DeliveryFailed."""
        await send_private(self._api, self._target, text_message(text))

    async def share(self, file: ReplyFile, *, private: bool) -> None:
        """Upload a file. Raises DeliveryFailed."""
        ref = self._target.ref
        channel, thread = ref.channel, ref.thread
        if private and not ref.direct:
            channel, thread = await direct_channel(self._api, ref.user), ""
        await self._api.upload(channel, thread, file.name, file.text.encode())

    async def start_thread(self, message: InboundMessage) -> str:
        """Post the message that starts a public thread. Raises DeliveryFailed."""
        text = text_message(thread_title(message)).text
        return (await self._api.post_message(self._target.ref.channel, text=text)).ts


def display_for(api: WebApi, target: ResponseTarget) -> Display:
    """Return the display at a target."""
    is_trusted = target.url and is_trusted_url(target.url, _HOSTS, api.url)
    return _ByResponseUrl(api, target) if is_trusted else _PostedMessage(api, target.ref)


class _ByResponseUrl:
    """Display by the `response_url` of a command or click."""

    def __init__(self, api: WebApi, target: ResponseTarget) -> None:
        self._api = api
        self._target = target
        self._used = 0
        self._last = float("-inf")
        self._shown: CommandReply | None = None

    async def progress(self, reply: CommandReply) -> None:
        if self._used >= (USES - 1 if self._target.replaces else 1) or monotonic() - self._last < APART_SECONDS:
            return
        try:
            await self._send(reply)
        except DeliveryFailed as error:
            log.info("progress of a command not shown: %s", error)

    async def finish(self, reply: CommandReply) -> None:
        if reply == self._shown:
            return
        try:
            await self._send(reply)
        except DeliveryFailed:
            await send_ephemeral(self._api, self._target.ref, reply)

    async def _send(self, reply: CommandReply) -> None:
        self._used += 1
        self._last = monotonic()
        content = {"replace_original": self._target.replaces, "unfurl_links": False, "unfurl_media": False}
        await post_response(self._api, self._target.url, reply, **content)
        self._shown = reply


async def post_response(api: WebApi, url: str, reply: CommandReply, **options: bool) -> None:
    """Post an ephemeral message to a `response_url`. Raises DeliveryFailed."""
    content = {"response_type": "ephemeral", "text": reply.text, **options}

    async def post(given: Mapping[str, Any]) -> None:
        try:
            async with api.session.post(url, json=given, allow_redirects=False) as response:
                if response.status != 200:
                    code = (await response.text())[:80]
                    raise SlackWebApiError(code, NOT_TAKEN, details=f"response_url: HTTP {response.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailed(NOT_TAKEN, details=f"response_url: {type(error).__name__}") from error

    await api.blocks.send({**content, "blocks": list(reply.blocks)} if reply.blocks else content, post)


class _PostedMessage:
    """Display by one message that is edited in a direct conversation. Elsewhere by an ephemeral message, which cannot
    be edited: only the last one is posted.
    """

    def __init__(self, api: WebApi, ref: ChannelRef) -> None:
        self._api = api
        self._ref = ref
        self._ts = ""
        self._shown: CommandReply | None = None

    async def progress(self, reply: CommandReply) -> None:
        if self._ref.direct and (not self._ts or self._api.pacing.has_headroom("chat.update")):
            await self.finish(reply)

    async def finish(self, reply: CommandReply) -> None:
        if not self._ref.direct:
            await send_ephemeral(self._api, self._ref, reply)
            return
        if reply == self._shown:
            return
        self._shown = reply
        channel, text, blocks = self._ref.channel, reply.text, list(reply.blocks)
        if self._ts:
            await self._api.edit("chat.update", channel=channel, ts=self._ts, text=text, blocks=blocks)
        else:
            self._ts = (await self._api.post_message(channel, self._ref.thread, text=text, blocks=blocks)).ts


Display = _ByResponseUrl | _PostedMessage
"""Shows messages, each in place of the one before; progress may be skipped. The last one raises DeliveryFailed."""
