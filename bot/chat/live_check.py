"""Checks of a chat platform on a live workspace, for `countersign doctor --live`: the steps without a user.

Every message is marked as a test, and deleted at the end. Messages are sent without the fallbacks of a delivery, which
would hide a rejected layout.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from bot.chat.actions import ApprovalRef, Approve
from bot.chat.delivery import MessageApi, NoticeOwner
from bot.chat.message_model import (
    Arguments,
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Footer,
    Heading,
    Message,
    Paragraph,
    Text,
    Tone,
)
from bot.domain.conversations import ConversationKey
from bot.errors import CountersignError, DeliveryFailed, NotFound
from bot.examination import Check, CheckSkipped, CheckStatus, NamedProbe
from bot.i18n import _, gettext_lazy, ngettext_lazy
from bot.rendering.call_arguments import CardArgument

log = logging.getLogger(__name__)

MARK = gettext_lazy("Test of Countersign")
_IN_CHANNEL = gettext_lazy("A message in a channel.")
_WILL_GO = gettext_lazy("It deletes itself when the test ends.")
NOT_POSTED = gettext_lazy("The first message was not posted.")
_FILE = ("countersign-test.txt", b"A file of the test of Countersign.\n")

R = TypeVar("R")


Extra = Callable[[ConversationKey, str], Awaitable[str]]
"""A probe in the thread of the test, which also gets the ref of the first message."""


class LivePlatform(ABC):
    """The platform's part of a live check. Methods that send raise DeliveryFailed.

    `api` sends messages without fallbacks, `render` returns one in the form of the platform, with its channel.
    """

    longest: ClassVar[int]
    """Characters of the longest message that the product posts."""
    layouts: ClassVar[Sequence[tuple[str, Sequence[Block]]]] = ()
    """Blocks that not every workspace may accept, by name."""
    extras: Sequence[tuple[str, Extra]] = ()
    """Checks that only this platform has, by name."""
    removes_threads: ClassVar[bool] = False
    """True if a thread is a channel of its own, which has to be deleted too."""

    def __init__(self, api: MessageApi[Any], render: Callable[[Message, str], Any]) -> None:
        self.api = api
        self.render = render

    @abstractmethod
    def examine(self, channel: ConversationKey) -> AsyncGenerator[Check, None]:
        """Check the token, the rights and the channel, without a post."""

    async def examine_connected(self) -> Sequence[Check]:
        """Check what works only while the bot runs."""
        return ()

    @abstractmethod
    async def mention(self) -> str:
        """Return the text that mentions the bot when typed."""

    @abstractmethod
    async def locate(self, channel: ConversationKey) -> ConversationKey:
        """Return the channel with its workspace."""

    @abstractmethod
    async def thread(self, channel: ConversationKey, ref: str) -> ConversationKey:
        """Return the thread at a message, after opening it if needed."""

    @abstractmethod
    async def share(self, thread: ConversationKey, name: str, content: bytes) -> str:
        """Share a file in a thread, and return its id for `unshare`."""

    @abstractmethod
    async def unshare(self, file: str) -> None:
        """Delete a shared file."""

    async def remove_thread(self, thread: ConversationKey) -> None:
        """Delete a thread that is a channel of its own."""
        raise NotImplementedError

    @abstractmethod
    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""

    @abstractmethod
    async def own_messages(self, conversation: ConversationKey, since: str) -> Sequence[str]:
        """Return the refs of the bot's messages in a conversation, from the message with the ref `since` on."""

    @abstractmethod
    async def rate_limits(self, channel: ConversationKey) -> str:
        """Return the rate limits that the platform states. Raises CheckSkipped if it says nothing."""


class MessageChecks:
    """Checks by messages in one channel. `run_id` is random, `now` is in epoch seconds."""

    def __init__(self, platform: LivePlatform, channel: ConversationKey, run_id: str, now: float) -> None:
        self._platform = platform
        self._channel = channel
        self._owner = NoticeOwner(f"live-check:{run_id}", channel, now)
        self.root = ""
        """Ref of the first message; empty until it is posted."""
        self.thread: ConversationKey | None = None
        self._posted: list[str] = []
        self._files: list[str] = []
        self._conversations: list[ConversationKey] = [channel]

    @property
    def steps(self) -> Sequence[NamedProbe]:
        """The checks in order, by name."""
        return (
            (gettext_lazy("post a message"), self._post),
            (gettext_lazy("find it again"), self._find),
            (gettext_lazy("edit it"), self._edit),
            (gettext_lazy("thread"), self._open_thread),
            (gettext_lazy("approval card"), self._card),
            *((name, partial(self._layout, name, blocks)) for name, blocks in self._platform.layouts),
            (gettext_lazy("longest message"), self._longest),
            (gettext_lazy("file"), self._share),
            *((name, partial(self._extra, check)) for name, check in self._platform.extras),
            (gettext_lazy("rate limits"), partial(self._platform.rate_limits, self._channel)),
        )

    def remember(self, ref: str) -> None:
        """Delete this message, too, in the end."""
        self._posted.append(ref)

    def remember_conversation(self, conversation: ConversationKey) -> None:
        """Delete the bot's messages in this conversation, too, in the end; the thread itself where it is a channel."""
        if conversation not in self._conversations:
            self._conversations.append(conversation)

    async def direct_message(self, user: str) -> str:
        """Write to a user directly."""
        if not user:
            raise CheckSkipped(gettext_lazy("No person has done anything, whom the bot could write to."))
        channel = await self._platform.direct_channel(user)
        owner = NoticeOwner(self._owner.id, ConversationKey(self._channel.platform, "", channel, ""), 0.0)
        message = Message("direct", (Heading(MARK), _passing(gettext_lazy("A direct message."))))
        self._posted.append(await self._create(owner, message, channel))
        return gettext_lazy("It was posted.")

    async def clean_up(self) -> Check:
        """Delete everything that was posted."""
        refs: list[str] = []
        for conversation in self._conversations if self.root else ():
            try:
                refs += await self._platform.own_messages(conversation, self.root)
            except CountersignError as error:
                log.warning("messages of the test not looked up: %s", error)
        posted = dict.fromkeys([*self._posted, *refs])
        threads = [place for place in self._conversations if self._platform.removes_threads and place.thread]
        failures = list(await self._remove([(self._platform.unshare, file) for file in self._files]))
        failures += await self._remove([(self._platform.api.remove, ref) for ref in reversed(posted)])
        kept = await self._remove([(self._platform.remove_thread, thread) for thread in threads])
        count = len(self._files) + len(posted) + len(threads)
        deleted = count - len(failures) - len(kept)
        detail = ngettext_lazy(
            "{deleted} of {n} message, file and thread of the test is deleted.",
            "{deleted} of {n} messages, files and threads of the test are deleted.",
            count,
            deleted=deleted,
        )
        name = gettext_lazy("clean up")
        for status, errors in ((CheckStatus.BROKEN, failures), (CheckStatus.DOUBTFUL, kept)):
            if errors:
                fix = errors[0].fix or gettext_lazy("delete them by hand")
                return Check(name, status, f"{detail} {errors[0].cause}", fix)
        return Check(name, CheckStatus.WELL, detail)

    async def _remove(self, removals: Sequence[tuple[Callable[[R], Awaitable[None]], R]]) -> Sequence[CountersignError]:
        failures: list[CountersignError] = []
        for remove, target in removals:
            try:
                await remove(target)
            except NotFound:
                pass
            except CountersignError as error:
                failures.append(error)
        return failures

    async def _create(self, owner: NoticeOwner, message: Message, channel: str) -> str:
        return await self._platform.api.create(owner, self._platform.render(message, channel), "")

    async def _post(self) -> str:
        self.root = await self._create(self._owner, self._first(), self._channel.channel)
        self._posted.append(self.root)
        return gettext_lazy("It stands in the channel.")

    async def _find(self) -> str:
        self._require_root()
        message = self._platform.render(self._first(), self._channel.channel)
        if await self._platform.api.find(self._owner, message, ()) != self.root:
            raise DeliveryFailed(
                gettext_lazy("The message is not found by its marks: after a crash, a message may be posted twice."),
                gettext_lazy("let the bot read the history of the channel"),
            )
        return gettext_lazy("After a crash no message is posted twice.")

    async def _edit(self) -> str:
        self._require_root()
        message = self._first(gettext_lazy("Edited. The rest of the test is in the thread below."))
        await self._platform.api.update(self._owner, self._platform.render(message, self._channel.channel), self.root)
        return gettext_lazy("Messages can be edited.")

    async def _open_thread(self) -> str:
        self._require_root()
        self.thread = await self._platform.thread(self._channel, self.root)
        self.remember_conversation(self.thread)
        await self._post_in_thread("thread", (_passing(gettext_lazy("A message in a thread.")),))
        return gettext_lazy("Answers can be given in threads.")

    async def _card(self) -> str:
        texts = {"text": gettext_lazy("this is a test"), "place": gettext_lazy("nowhere")}
        arguments = Arguments(tuple(CardArgument(name, value, value) for name, value in texts.items()))
        buttons = Buttons((Button(_("Approve"), Approve((ApprovalRef("0" * 16, 1),)), ButtonStyle.POSITIVE),))
        footer = Footer((Text(gettext_lazy("This card is not for you to press: the next one is.")),))
        blocks = (Heading(gettext_lazy("{test}: a card", test=MARK)), arguments, buttons, footer)
        await self._post_in_thread("card", blocks, Tone.PENDING)
        return gettext_lazy("The layout of cards, and their buttons, are accepted.")

    async def _layout(self, name: str, blocks: Sequence[Block]) -> str:
        await self._post_in_thread(name.replace(" ", "-"), tuple(blocks))
        return gettext_lazy("It is accepted.")

    async def _extra(self, check: Extra) -> str:
        return await check(self._require_thread(), self.root)

    async def _longest(self) -> str:
        sentence = gettext_lazy("This is a long message of the test.") + " "
        text = (sentence * (self._platform.longest // len(sentence) + 1))[: self._platform.longest]
        await self._post_in_thread("long", (Paragraph((Text(text),)),))
        return accepted_length(self._platform.longest)

    async def _share(self) -> str:
        self._files.append(await self._platform.share(self._require_thread(), *_FILE))
        return gettext_lazy("Files can be shared.")

    async def _post_in_thread(self, name: str, blocks: tuple[Block, ...], tone: Tone | None = None) -> None:
        owner = NoticeOwner(self._owner.id, self._require_thread(), self._owner.created_at)
        self._posted.append(await self._create(owner, Message(name, blocks, tone), ""))

    def _require_thread(self) -> ConversationKey:
        if self.thread is None:
            raise CheckSkipped(NOT_POSTED)
        return self.thread

    def _require_root(self) -> None:
        if not self.root:
            raise CheckSkipped(NOT_POSTED)

    def _first(self, text: str = _IN_CHANNEL) -> Message:
        return Message("first", (Heading(MARK), _passing(text)), Tone.NEUTRAL)


def accepted_length(characters: int) -> str:
    """Return the result of a check with a long message."""
    return ngettext_lazy("{n} character is accepted.", "{n} characters are accepted.", characters)


def _passing(text: str) -> Paragraph:
    return Paragraph((Text(f"{text} {_WILL_GO}"),))
