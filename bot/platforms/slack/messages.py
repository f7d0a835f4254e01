"""Slack messages for the shared message handler: parsing of events and Slack's markup, threads and names, notices,
commands, and messages that no process received.

Markup becomes plain text: mentions, channels and links by name, entities unescaped. The syntax is "formatting text for
app surfaces" at docs.slack.dev. The result is untrusted data.

Slack sends an event again unless it is acknowledged after its handler returned. It waits for the acknowledgement
meanwhile, so reading the context has a time limit.

Slack sends an event again for some minutes, and those of a longer downtime never. A message that comes both ways is one
turn. Missed messages are in threads with a recent turn, and in the channels and direct conversations of those threads:
there, mentions and direct messages begin new ones. Mentions in other threads are not found.
"""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from bot.chat.backfill import MOST_MESSAGES, MissedPeriod, conversation_texts
from bot.chat.message_handler import Location, PlatformMessage, ThreadMessage
from bot.chat.message_model import Message
from bot.chat.turn_messages import split_mark
from bot.domain.conversations import Attachment, ConversationKey, Member
from bot.domain.turns import MessageRefs
from bot.errors import DeliveryFailed
from bot.platforms.slack.blocks import fallback_text
from bot.platforms.slack.message_blocks import private_reply
from bot.platforms.slack.message_content import addressing_text, files_of, message_content
from bot.platforms.slack.responders import send_ephemeral, text_message
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import (
    PLATFORM,
    ChannelRef,
    Identity,
    MessageRef,
    WebApi,
    conversation,
    message_keys,
    object_in,
    objects_in,
    text_in,
)
from bot.ports.platform import PostedText
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"<([@#!][^<>\n\s][^<>\n]*|[a-z][a-z0-9+.-]*:[^<>\n]+)>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_GROUP = re.compile(r"<!subteam\^(S[A-Z0-9]+)(?:\|[^<>]*)?>")
_UNNAMED_CHANNEL = re.compile(r"<#([CGD][A-Z0-9]+)\|?>")
READING_SECONDS = 0.8
"""Limit of the reading of the context: Slack waits for an acknowledgement meanwhile."""
PAGE = 200
MOST_PAGES = 5
LATEST_TURNS = 50
"""Turns of a long thread that are read back. Each has a few messages, so that they fit into MOST_PAGES."""
QUESTION_SECONDS = 3_600.0
"""Time between a question and the first message of its answer, when many turns are queued."""
READS_A_MINUTE = 10
"""Calls of conversations.replies for one user: about a fifth of those that all users have (`rate_limits.py`)."""
MOST_NAMES = 20
MOST_CHANNELS = 2_000
MOST_MISSED_CHANNELS = 30
PAUSE_SECONDS = 2.0
MOST_PAUSES = 60
"""Pauses before one call, while its rate limit has no room for optional calls."""
_USER_SUBTYPES = frozenset({"", "file_share", "me_message", "thread_broadcast"})
MOST_FILES = 10


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Known names of users and channels, by id."""

    people: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def mentioned_people(text: str) -> tuple[str, ...]:
    """Return the ids of the mentioned users, in order."""
    return tuple(dict.fromkeys(_USER.findall(text)))


def strip_bot_mention(text: str, bot: str) -> str:
    """Return the text without a mention of the bot at its beginning or end."""
    mention = rf"<@{re.escape(bot)}(?:\|[^<>]*)?>"
    text = re.sub(rf"^(?:\s*{mention}[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*{mention})+\s*$", "", text).strip()


def to_plain_text(text: str, names: MentionResolver) -> str:
    """Return the text as Slack displays it."""
    return html.unescape(_TOKEN.sub(lambda match: _token(match[1], names), text))


def to_command_text(text: str) -> str:
    """Return the text of a command: as Slack displays it, with the ids of mentioned users, groups and channels."""

    def token(match: re.Match[str]) -> str:
        target = match[1].partition("|")[0]
        is_id = target.startswith(("@", "#", "!subteam^"))
        return f"<{target}>" if is_id else _token(match[1], MentionResolver())

    return html.unescape(_TOKEN.sub(token, text))


def _token(inner: str, names: MentionResolver) -> str:
    target, _, label = inner.partition("|")
    match target[:1]:
        case "@":
            return f"@{names.people.get(target[1:]) or label or target[1:]}"
        case "#":
            return f"#{label or names.channels.get(target[1:]) or target[1:]}"
        case "!":
            name = target[1:].partition("^")[0]
            return label or f"@{name}"
        case _:
            shown = target.removeprefix("mailto:")
            return shown if not label or label in (shown, target) else f"{label} ({shown})"


# -------------------- parsing
# Skipped are messages of the bot and other bots, edits, deletions, and all subtypes except for a user's message with a
# file, by /me, or a thread reply that is also sent to the channel.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackMessage(PlatformMessage):
    """A message; its text is Slack markup. `ref` has the thread that it is in or would begin."""

    ref: ChannelRef
    conversation: ConversationKey
    team: str = ""
    """Workspace of the author, if Slack names it."""
    is_edit: bool = False
    """True for a message with a text that its author has changed."""


class MessageDeletion(NamedTuple):
    """The id and the keys of a deleted message."""

    id: str
    keys: tuple[str, ...]


def parse_event(event: Mapping[str, Any], identity: Identity) -> SlackMessage | MessageDeletion | None:
    """Parse the event of a new, edited or deleted message in the workspace of `identity`. Return None if it is no
    user's message, and if its author has not changed the text. A deleted message with replies becomes a tombstone.
    """
    if event.get("subtype") not in ("message_deleted", "message_changed"):
        return None if event.get("edited") else parse_message(event, identity)
    message, channel = object_in(event, "message"), text_in(event, "channel")
    is_tombstone = message.get("subtype") == "tombstone"
    if channel and (deleted := text_in(message, "ts") if is_tombstone else text_in(event, "deleted_ts")):
        return MessageDeletion(f"{channel}:{deleted}", message_keys(identity.team, channel, deleted, ""))
    if event.get("subtype") == "message_deleted":
        return None
    previous, edited = object_in(event, "previous_message"), object_in(message, "edited")
    if not edited or edited.get("user") != message.get("user"):
        return None
    if previous and previous.get("text") == message.get("text"):
        return None
    where = {name: event.get(name) for name in ("channel", "channel_type")}
    parsed = parse_message({**message, **where, "type": "message"}, identity)
    return None if parsed is None else replace(parsed, may_notify=True, is_edit=True)


def parse_message(event: Mapping[str, Any], identity: Identity) -> SlackMessage | None:
    """Parse an event of type `message` or `app_mention`. Return None if it is no user's message."""
    if event.get("type") not in ("message", "app_mention"):
        return None
    user, channel, ts = (text_in(event, name) for name in ("user", "channel", "ts"))
    if not (user and channel and ts) or user in (identity.user, "USLACKBOT"):
        return None
    if text_in(event, "subtype") not in _USER_SUBTYPES:
        return None
    if any(event.get(flag) for flag in ("bot_id", "bot_profile", "hidden")):
        return None
    content, addressing = message_content(event), addressing_text(event)
    thread = text_in(event, "thread_ts") or ts
    direct = event.get("channel_type") == "im" or (not event.get("channel_type") and channel.startswith("D"))
    mentions = frozenset(mentioned_people(addressing))
    mentions_bot = identity.user in mentions
    return SlackMessage(
        id=f"{channel}:{ts}",
        keys=message_keys(identity.team, channel, ts, user, text_in(event, "client_msg_id")[:100]),
        thread_key=f"{channel}:{thread}",
        user=user,
        content=replace(
            content,
            command_text=to_command_text(strip_bot_mention(content.text, identity.user)),
            files=_attachments(files_of(event), identity.team),
        ),
        sent_at=_sent_at(ts),
        mentions_bot=mentions_bot,
        direct=direct,
        may_be_in_thread=thread != ts,
        mentions=mentions | frozenset(_GROUP.findall(addressing)),
        # A mention in a channel comes as two events.
        may_notify=direct or not mentions_bot or event.get("type") == "app_mention",
        ref=ChannelRef(channel, user, thread),
        conversation=conversation(identity.team, channel, thread),
        team=text_in(event, "user_team"),
    )


def _sent_at(ts: str) -> float:
    seconds, micros = _number(ts)
    return seconds + micros / 1_000_000


# -------------------- threads


async def read_thread(
    api: WebApi,
    identity: Identity,
    ref: ChannelRef,
    before: str = "",
    *,
    oldest: str = "",
    may_read: Callable[[], bool] = lambda: True,
    with_own: bool = False,
) -> tuple[ThreadMessage, ...]:
    """Return the messages of a thread as markup, oldest first: those before a timestamp and from `oldest` on, if they
    are given, without the bot's own unless `with_own` is True. `may_read` is asked before each call. Raises
    DeliveryFailed.
    """

    def take_share() -> None:
        if not may_read():
            raise DeliveryFailed("This user's share of conversations.replies is used up.")

    lines: dict[str, ThreadMessage] = {}
    pages = api.pages(
        "conversations.replies",
        "messages",
        most=MOST_PAGES,
        before=take_share,
        channel=ref.channel,
        ts=ref.thread,
        latest=before or None,
        oldest=oldest or None,
        limit=PAGE,
    )
    async for page in pages:
        # The first message of the thread leads every page.
        lines |= {
            line.id: line
            for message in page
            if (line := _thread_message(message, identity, with_own=with_own))
            and (not before or _number(line.id) < _number(before))
        }
    return tuple(lines.values())


async def read_conversation(
    api: WebApi, names: NameResolver, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
) -> Sequence[PostedText]:
    """Return the messages of a conversation's thread; see `ThreadReader.read_thread`. Raises DeliveryFailed."""
    ref = ChannelRef(conversation.channel, "", conversation.thread)
    messages = await read_thread(api, await api.identity(), ref, oldest=_begin_of_latest(posted), with_own=True)
    users = iter(await names.resolve([message for message in messages if not message.own]))
    return conversation_texts(
        # The text of the bot is no markup.
        [message if message.own else next(users) for message in messages],
        posted,
        ref_of=lambda message: str(MessageRef(conversation.channel, message.id)),
        id_of=lambda message: f"{conversation.channel}:{message.id}",
    )


def _begin_of_latest(posted: Mapping[str, MessageRefs]) -> str:
    """Return the timestamp from which a long thread is read: Slack lists its oldest messages first. Empty for a short
    one.
    """
    if len(posted) <= LATEST_TURNS:
        return ""
    refs = (split_mark(ref)[1] for refs in [*posted.values()][-LATEST_TURNS:] for ref in refs.values())
    times = [_sent_at(message.ts) for message in map(MessageRef.parse, refs) if message is not None]
    return f"{min(times) - QUESTION_SECONDS:.6f}" if times else ""


def _thread_message(message: Mapping[str, Any], identity: Identity, *, with_own: bool) -> ThreadMessage | None:
    user, bot = text_in(message, "user"), text_in(message, "bot_id")
    if message.get("hidden"):
        return None
    if user != identity.user and not (bot and bot == identity.bot):
        return to_thread_message(message)
    # Without the small lines about tools and notices.
    texts = [block for block in objects_in(message, "blocks") if block.get("type") != "context"]
    text = fallback_text(texts) if texts else html.unescape(text_in(message, "text"))
    return ThreadMessage(text_in(message, "ts"), user, "", text, own=True) if with_own else None


def to_thread_message(message: Mapping[str, Any]) -> ThreadMessage | None:
    """Return a message as a line, or None if it is empty. Its text is markup."""
    content = message_content(message)
    names = tuple(str(file.get("name") or "file") for file in objects_in(message, "files"))
    if not (content.whole or names):
        return None
    bot_name = text_in(message, "username") or text_in(message, "bot_profile", "name") or "a bot"
    name = bot_name if message.get("bot_id") else ""
    return ThreadMessage(text_in(message, "ts"), text_in(message, "user"), name, content.whole, names)


def _number(ts: str) -> tuple[int, int]:
    seconds, _, micros = ts.partition(".")
    return (int(seconds), int(micros or 0)) if seconds.isdigit() and (micros or "0").isdigit() else (0, 0)


# -------------------- calls


class NameResolver:
    """Names of users and channels in markup, cached for some minutes."""

    def __init__(self, api: WebApi, people: UserDirectory) -> None:
        self._api = api
        self._people = people
        self._channels: dict[str, str] = {}

    async def resolve(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        """Return the messages as plain text. Names that cannot be resolved in time stay ids."""
        if not messages:
            return ()
        identity = await self._api.identity()
        names = await self._load(messages, identity)
        return [
            replace(
                message,
                name=message.name or names.people.get(message.user) or message.user,
                text=to_plain_text(strip_bot_mention(message.text, identity.user), names).strip(),
            )
            for message in messages
        ]

    async def _load(self, messages: Sequence[ThreadMessage], identity: Identity) -> MentionResolver:
        text = "\n".join(message.text for message in messages)
        # The latest authors come first: only their messages remain in the context.
        authors = [message.user for message in reversed(messages) if message.user and not message.name]
        users = [user for user in dict.fromkeys((*authors, *mentioned_people(text))) if user != identity.user]
        users, channels = users[:MOST_NAMES], list(dict.fromkeys(_UNNAMED_CHANNEL.findall(text)))[:MOST_NAMES]
        unknown = [user for user in users if not self._people.is_known(user)]
        unnamed = [channel for channel in channels if channel not in self._channels]
        try:
            if unknown or unnamed:
                async with asyncio.timeout(READING_SECONDS):
                    loading = (*map(self._people.person, unknown), *map(self._load_channel, unnamed))
                    await asyncio.gather(*map(_attempt, loading))
        except TimeoutError:
            pass  # ids say less than names, and nothing wrong
        people = {user: self._people.cached_name(user) for user in users}
        names = {channel: self._channels.get(channel, "") for channel in channels}
        return MentionResolver({**people, identity.user: identity.name}, names)

    async def _load_channel(self, channel: str) -> None:
        if channel in self._channels:
            return
        answer = await self._api.read("conversations.info", channel=channel)
        if len(self._channels) >= MOST_CHANNELS:
            self._channels.clear()
        self._channels[channel] = single_line(text_in(answer, "channel", "name"), 80)


async def _attempt(loading: Awaitable[object]) -> None:
    with suppress(DeliveryFailed):
        await loading


class SlackMessagePlatform:
    """Slack's part of handling a message. `start_command` starts a command for the
    user and in the thread of the reference.
    """

    name = PLATFORM
    redelivers = True
    reading_seconds = READING_SECONDS

    def __init__(
        self, api: WebApi, people: UserDirectory, start_command: Callable[[tuple[str, ...], ChannelRef], None]
    ) -> None:
        self._api = api
        self._people = people
        self._start_command = start_command
        self._names = NameResolver(api, people)
        self._reads = PerUserRate(READS_A_MINUTE, 60.0)

    async def locate(self, message: SlackMessage) -> Location:
        """Return the location, which the message has."""
        return Location(message.conversation, in_thread=message.may_be_in_thread)

    async def find_author(self, message: SlackMessage, conversation: ConversationKey) -> Member | None:  # noqa: ARG002
        """Return the author without their groups, or None for a bot. Raises DeliveryFailed."""
        person = (await self._people.person(message.user)).in_team(message.team)
        if person.bot:
            return None
        return Member(
            person.author,
            guest=person.guest,
            external=person.external,
            language=person.language,
            time_zone=person.time_zone,
        )

    async def read_earlier(
        self,
        message: SlackMessage,
        *,
        in_thread: bool,  # noqa: ARG002
    ) -> tuple[Sequence[ThreadMessage], Sequence[ThreadMessage]]:
        """Return the messages of the thread; Slack has no replies to single messages. Raises DeliveryFailed."""
        identity, ts = await self._api.identity(), message.id.partition(":")[2]
        may_read = partial(self._reads.acquire, message.user)
        return await read_thread(self._api, identity, message.ref, ts, may_read=may_read), ()

    async def resolve_names(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        """Return the messages as plain text. Names that cannot be resolved in time stay ids."""
        return await self._names.resolve(messages)

    async def run_command(
        self,
        message: SlackMessage,
        conversation: ConversationKey,  # noqa: ARG002 - the command looks it up
        words: tuple[str, ...],
    ) -> None:
        """Start a command."""
        self._start_command(words, message.ref)

    async def notify_author(self, message: SlackMessage, text: str) -> None:
        """Post an ephemeral message in the thread. Raises DeliveryFailed."""
        await send_ephemeral(self._api, message.ref, text_message(text))

    async def show_to_author(self, message: SlackMessage, conversation: ConversationKey, shown: Message) -> None:
        """Post an ephemeral message with buttons in the thread. Raises DeliveryFailed."""
        await send_ephemeral(self._api, replace(message.ref, thread=conversation.thread), private_reply(shown))

    post_hint = notify_author


class PerUserRate:
    """Counts the calls of each user in the last `seconds`; at most `most`."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}

    def acquire(self, user: str) -> bool:
        """Count one more call. Return False, with nothing counted, if the user has made `most` of them."""
        now = self._clock()
        # Users without a recent call are dropped; the one with the oldest last call comes first.
        while self._calls and (oldest := next(iter(self._calls))) and self._calls[oldest][-1] <= now - self._seconds:
            del self._calls[oldest]
        calls = self._calls.get(user, deque())
        while calls and calls[0] <= now - self._seconds:
            calls.popleft()
        if len(calls) >= self._most:
            return False
        calls.append(now)
        self._calls.pop(user, None)
        self._calls[user] = calls
        return True


def _attachments(files: Iterable[Mapping[str, Any]], team: str) -> tuple[Attachment, ...]:
    """Return the readable files of a message. Their ids name the workspace: Slack's are unique in it only."""
    readable = [file for file in files if file.get("id") and file.get("mode") != "tombstone"]
    return tuple(
        Attachment(
            id=f"{team}/{file['id']}",
            name=single_line(text_in(file, "name") or text_in(file, "title") or "file", 200),
            mime_type=single_line(text_in(file, "mimetype") or "application/octet-stream", 100),
            size=size if isinstance(size := file.get("size"), int) else 0,
        )
        for file in readable[:MOST_FILES]
    )


# -------------------- missed messages


class SlackMissedMessages:
    """Loads messages that no process has received. Calls leave room in the rate limits for current conversations."""

    def __init__(self, api: WebApi) -> None:
        self._api = api

    async def messages_since(self, conversation: ConversationKey, since: datetime) -> Sequence[SlackMessage]:
        """Return the messages of a thread; none of another workspace. Raises DeliveryFailed."""
        identity = await self._api.identity()
        if conversation.workspace != identity.team or not conversation.thread:
            return ()
        messages = await self._read("conversations.replies", conversation.channel, since, ts=conversation.thread)
        # The first message of a thread comes with every answer.
        return [message for message in messages if message.sent_at >= since.timestamp()]

    async def mentions(self, period: MissedPeriod) -> AsyncGenerator[SlackMessage, None]:
        """Yield mentions outside of threads, and the first messages of direct conversations."""
        channels = dict.fromkeys(conversation.channel for conversation in period.known)
        for channel in [*channels][:MOST_MISSED_CHANNELS]:
            try:
                messages = await self._read("conversations.history", channel, period.since)
            except DeliveryFailed as failure:
                log.info("missed messages of channel %s not loaded: %s", channel, failure)
                continue
            for message in messages:
                if message.addresses_bot:
                    yield message

    async def _read(self, method: str, channel: str, since: datetime, **arguments: str) -> list[SlackMessage]:
        """Return the users' messages of a thread or channel, oldest first. Raises DeliveryFailed."""
        for _ in range(MOST_PAUSES):
            if self._api.pacing.has_headroom(method):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        oldest = f"{since.timestamp():.6f}"
        answer = await self._api.read(method, channel=channel, oldest=oldest, limit=MOST_MESSAGES, **arguments)
        identity = await self._api.identity()
        where = {"channel_type": "im"} if ChannelRef(channel, "").direct else {}
        parsed = [
            parse_message({"type": "message", **message, "channel": channel, **where}, identity)
            for message in objects_in(answer, "messages")
        ]
        return sorted((message for message in parsed if message is not None), key=lambda message: message.sent_at)
