"""Slack's part of the checks on a live workspace (`bot.chat.live_check`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import replace

from bot.chat.live_check import MARK, CheckDoubtful, CheckSkipped, Extra, LiveMessageApi, LiveMessages
from bot.chat.message_model import Block, Heading, Markdown, Message
from bot.domain.conversations import ConversationKey
from bot.domain.health import Check
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.slack.activity import EYES, SET_STATUS
from bot.platforms.slack.blocks import OutgoingMessage
from bot.platforms.slack.channels import MessageRef, conversation, direct_channel
from bot.platforms.slack.diagnostics import diagnose, diagnose_channel
from bot.platforms.slack.files import share_file
from bot.platforms.slack.message_blocks import outgoing_message
from bot.platforms.slack.sending import LATEST, NOT_AVAILABLE, SlackMessages
from bot.platforms.slack.web_api import SlackWebApiError, WebApi

_TABLE = "| pool | before | after |\n|---|---:|---:|\n| payments | 200 | 20 |\n| sessions | 50 | 50 |"


class SlackLiveCheck:
    """A Slack workspace to be checked."""

    name = "Slack"
    longest = 8_500
    layouts: Sequence[tuple[str, Sequence[Block]]] = (("table", (Heading(f"{MARK}: a table"), Markdown(_TABLE))),)
    removes_threads = False

    def __init__(self, api: WebApi, *, app_token: str = "", signing_secret: str = "") -> None:
        self._api = api
        self._app_token = app_token
        self._signing_secret = signing_secret
        self._messages = LiveMessages(SlackMessages(api), _in_channel)
        self.extras: Sequence[tuple[str, Extra]] = (
            ("kinds of blocks", self._blocks),
            ("thread status", self._status),
            ("reaction", self._reaction),
        )

    @property
    def messages(self) -> LiveMessageApi:
        """Messages without fallbacks."""
        return self._messages

    async def examine(self, channel: ConversationKey) -> AsyncGenerator[Check, None]:
        """Check the token, its scopes, the transports and the channel."""
        checks = diagnose(self._api, app_token=self._app_token, signing_secret=self._signing_secret)
        async with aclosing(checks):
            async for check in checks:
                yield check
        yield replace(await diagnose_channel(self._api, channel, "--channel"), name="channel")

    async def examine_connected(self) -> AsyncGenerator[Check, None]:
        """Slack lists no commands."""
        nothing: Sequence[Check] = ()
        for check in nothing:
            yield check

    async def mention(self) -> str:
        """Return the mention of the bot."""
        return f"@{(await self._api.identity()).name}"

    async def locate(self, channel: ConversationKey) -> ConversationKey:
        """Return the channel with its workspace."""
        return conversation((await self._api.identity()).team, channel.channel, "")

    async def thread(self, channel: ConversationKey, ref: str) -> ConversationKey:
        """Return the thread of a message."""
        posted = MessageRef.parse(ref)
        if posted is None:
            raise DeliveryFailed("Slack returned no reference of the message.", permanent=True)
        return replace(channel, channel=posted.channel, thread=posted.ts)

    async def share(self, thread: ConversationKey, name: str, content: bytes) -> str:
        """Share a file in a thread, and return its id."""
        return await share_file(self._api, thread.channel, thread.thread, name, content)

    async def unshare(self, file: str) -> None:
        """Delete a file. Raises NotFound if it is gone."""
        try:
            await self._api.edit("files.delete", file=file)
        except SlackWebApiError as error:
            if error.code in ("file_not_found", "file_deleted"):
                raise NotFound("The file is gone.") from error
            raise

    async def remove_thread(self, thread: ConversationKey) -> None:
        """A thread ends with its messages."""

    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""
        return await direct_channel(self._api, user)

    async def own_messages(self, conversation: ConversationKey, since: str) -> Sequence[str]:
        """Return the refs of the bot's messages in a channel or thread, from a message on."""
        first, user = MessageRef.parse(since), (await self._api.identity()).user
        method, thread = "conversations.history", {}
        if conversation.thread:
            method, thread = "conversations.replies", {"ts": conversation.thread}
        oldest = first.ts if first is not None else None
        answer = await self._api.read(
            method, channel=conversation.channel, oldest=oldest, inclusive="true", limit=LATEST, **thread
        )
        messages = answer.get("messages")
        return [
            str(MessageRef(conversation.channel, str(message.get("ts", ""))))
            for message in (messages if isinstance(messages, list) else ())
            if isinstance(message, dict) and message.get("user") == user
        ]

    async def rate_limits(self, channel: ConversationKey) -> str:  # noqa: ARG002
        """Slack names a limit only once it is exceeded."""
        raise CheckSkipped("Slack names its limits only to those who exceed them.")

    async def _blocks(self, _thread: ConversationKey, _root: str) -> str:
        """Return what became of the blocks of the earlier checks."""
        if refused := sorted(self._api.blocks.refused):
            raise CheckDoubtful(f"Slack takes no {', '.join(refused)} blocks here. The bot sends older ones instead.")
        return "Slack takes all kinds of blocks that the bot sends."

    async def _status(self, thread: ConversationKey, _root: str) -> str:
        """Show the status of a thread, and clear it."""
        where = {"channel_id": thread.channel, "thread_ts": thread.thread}
        await _optional(self._api.edit(SET_STATUS, **where, status="is being tested…"))
        await _optional(self._api.edit(SET_STATUS, **where, status=""))
        return "A thread can show what the bot does."

    async def _reaction(self, thread: ConversationKey, _root: str) -> str:
        """Add a reaction, and remove it."""
        where = {"channel": thread.channel, "timestamp": thread.thread, "name": EYES}
        await _optional(self._api.edit("reactions.add", **where))
        await _optional(self._api.edit("reactions.remove", **where))
        return "The bot can acknowledge a question by a reaction."


async def _optional(call: Awaitable[object]) -> None:
    """Await a call that the bot can do without. Raises CheckDoubtful if the workspace does not allow it."""
    try:
        await call
    except SlackWebApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise
        raise CheckDoubtful(
            f"Slack does not allow it here ({error.code}). The bot works without.", error.fix
        ) from error


def _in_channel(message: Message, channel: str) -> OutgoingMessage:
    return replace(outgoing_message(message), place=channel)
