"""Slack messages to turns. Acknowledge an event only if its handler returns: Slack sends unacknowledged events again.

Messages of one thread are handled in order of arrival, because reading their context takes time. Decides which users
may talk to the bot. Commands in a mention (`@bot mcp list`) go to the commands, other messages for the bot to the
engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.chat.background_tasks import PerUserRate
from bot.chat.messages import (
    KeyedLock,
    RecentKeys,
    ThreadTracker,
    append_file_names,
    describe_files,
    format_lines,
    messages_since,
    parse_command,
)
from bot.chat.rejection_messages import NOT_STORED
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage
from bot.errors import DatabaseUnwritable, DeliveryFailed, QueueFull
from bot.platforms.slack.channels import ChannelRef, conversation, message_keys
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.files import attachments
from bot.platforms.slack.markup import (
    MentionResolver,
    mentioned_people,
    strip_bot_mention,
    to_plain_text,
    unnamed_channels,
)
from bot.platforms.slack.responders import send_ephemeral, text_message
from bot.platforms.slack.users import Person, UserDirectory
from bot.platforms.slack.web_api import Identity, WebApi
from bot.ports import EngineApi
from bot.rendering.text_safety import single_line

# -------------------- incoming
# Skipped are messages of the bot and other bots, edits, deletions, and all subtypes except for a user's message with a
# file or a thread reply that is also sent to the channel.

LONGEST_TEXT = 40_000
"""Characters of a message; Slack's limit for users."""
_SPOKEN = frozenset({"", "file_share", "thread_broadcast"})


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message. `thread` is the timestamp of the thread's first message, which may be this one. `notified` is
    True for exactly one of the several events of a message: replies without a row in the database are sent for that
    event, because other processes may get the other events.
    """

    channel: str
    user: str
    text: str
    ts: str
    thread: str
    direct: bool
    notified: bool
    client_id: str = ""
    files: tuple[Attachment, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def opens_thread(self) -> bool:
        """True if the message starts its thread."""
        return self.thread == self.ts


def parse_message(event: Mapping[str, Any], identity: Identity) -> IncomingMessage | None:
    """Parse an event of type `message` or `app_mention`. Return None if it is no user's message."""
    if event.get("type") not in ("message", "app_mention"):
        return None
    user, channel, ts = (str(event.get(name) or "") for name in ("user", "channel", "ts"))
    if not (user and channel and ts) or user in (identity.user, "USLACKBOT"):
        return None
    unspoken = str(event.get("subtype") or "") not in _SPOKEN
    if unspoken or any(event.get(flag) for flag in ("bot_id", "bot_profile", "edited", "hidden")):
        return None
    text = str(event.get("text") or "")[:LONGEST_TEXT]
    direct = event.get("channel_type") == "im" or (not event.get("channel_type") and channel.startswith("D"))
    return IncomingMessage(
        channel=channel,
        user=user,
        text=text,
        ts=ts,
        thread=str(event.get("thread_ts") or ts),
        direct=direct,
        notified=direct or event.get("type") == "app_mention",
        client_id=str(event.get("client_msg_id") or "")[:100],
        files=attachments(event),
        mentions=mentioned_people(text),
    )


# -------------------- message builder
# Slack waits for the acknowledgement meanwhile, so reading the context has a time limit. The context says if messages
# are missing; only the author is required.

# -------------------- thread history
# The bot's own messages and those it has answered are in its history and left out.

PAGE = 200
MOST_PAGES = 5


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message of a thread. `speaker` is the name of another bot, empty for users; `text` is Slack markup."""

    ts: str
    user: str
    speaker: str
    text: str
    files: tuple[str, ...] = ()


async def read_thread(
    api: WebApi, identity: Identity, channel: str, thread: str, before: str, *, may_read: Callable[[], bool]
) -> tuple[ThreadMessage, ...]:
    """Return the messages of a thread before a timestamp, without the bot's own, oldest first. `may_read` is asked
    before each call. Raises DeliveryFailed.
    """
    found: list[ThreadMessage] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        if not may_read():
            raise DeliveryFailed("This user's share of conversations.replies is used up.")
        answer = await api.read(
            "conversations.replies", channel=channel, ts=thread, latest=before, limit=PAGE, cursor=cursor
        )
        messages = answer.get("messages")
        found += [
            line
            for message in (messages if isinstance(messages, list) else ())
            if isinstance(message, dict)
            and (line := _thread_message(message, identity))
            and _is_before(line.ts, before)
        ]
        metadata = answer.get("response_metadata")
        cursor = str(metadata.get("next_cursor") or "") if isinstance(metadata, dict) else ""
        if not cursor:
            break
    return tuple(found)


def _thread_message(message: Mapping[str, Any], identity: Identity) -> ThreadMessage | None:
    user, bot = str(message.get("user") or ""), str(message.get("bot_id") or "")
    if user == identity.user or (bot and bot == identity.bot) or message.get("hidden"):
        return None
    profile = message.get("bot_profile")
    named = profile.get("name") if isinstance(profile, dict) else ""
    files = message.get("files")
    names = (
        [str(file.get("name") or "file") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    )
    text = str(message.get("text") or "") or _fallback(message)
    if not (text or names):
        return None
    speaker = str(message.get("username") or named or "a bot") if bot else ""
    return ThreadMessage(str(message.get("ts") or ""), user, speaker, text, tuple(names))


def _fallback(message: Mapping[str, Any]) -> str:
    """Return the text of a bot's message that consists of attachments only."""
    attached = message.get("attachments")
    parts = [each for each in attached if isinstance(each, dict)] if isinstance(attached, list) else []
    return "\n".join(str(part.get("fallback") or part.get("text") or "") for part in parts).strip()


def _is_before(ts: str, before: str) -> bool:
    return _number(ts) < _number(before)


def _number(ts: str) -> tuple[int, int]:
    seconds, _, micros = ts.partition(".")
    return (int(seconds), int(micros or 0)) if seconds.isdigit() and (micros or "0").isdigit() else (0, 0)


READING_SECONDS = 0.8
READS_A_MINUTE = 10
"""Calls of conversations.replies for one user: about a fifth of those that all users have (`pacing.py`)."""
UNREAD = "(what was said in this thread before could not be read)"
MOST_NAMES = 20
MOST_CHANNELS = 2_000


class InboundMessageBuilder:
    """Makes InboundMessages."""

    def __init__(self, api: WebApi, people: UserDirectory) -> None:
        self._api = api
        self._people = people
        self._channels: dict[str, str] = {}
        self._reads = PerUserRate(READS_A_MINUTE, 60.0)

    async def words(self, message: IncomingMessage) -> str:
        """Return the message as plain text. Names that cannot be resolved in time stay ids."""
        identity = await self._api.identity()
        text = strip_bot_mention(message.text, identity.user)
        return to_plain_text(text, await self._names([text], identity.user, identity.name)).strip()

    async def build(
        self, message: IncomingMessage, text: str, author: Author, conversation: ConversationKey, engine: EngineApi
    ) -> InboundMessage:
        """Return the message with its context."""
        return InboundMessage(
            keys=message_keys(conversation.workspace, message.channel, message.ts, message.user, message.client_id),
            conversation=conversation,
            author=author,
            text=text,
            attachments=message.files,
            context=await self._context(message, conversation, engine),
        )

    async def _context(
        self, message: IncomingMessage, conversation: ConversationKey, engine: EngineApi
    ) -> tuple[str, ...]:
        if message.opens_thread:
            return ()
        try:
            async with asyncio.timeout(READING_SECONDS):
                identity = await self._api.identity()
                lines = await read_thread(
                    self._api,
                    identity,
                    message.channel,
                    message.thread,
                    message.ts,
                    may_read=lambda: self._reads.acquire(message.user),
                )
        except (DeliveryFailed, TimeoutError):
            return (UNREAD,)
        if not lines:
            return ()
        names = await self._names([line.text for line in lines], identity.user, identity.name, _speakers(lines))
        texts = {line.ts: to_plain_text(strip_bot_mention(line.text, identity.user), names).strip() for line in lines}
        recent = await engine.recent_turns(conversation, 1)
        if recent:
            last = recent[-1].turn
            asked = (last.author.id, last.question.text)
            lines = tuple(messages_since(lines, lambda line: (line.user, texts[line.ts]) == asked))
        return format_lines(
            [(self._speaker(line, names), append_file_names(texts[line.ts], line.files)) for line in lines]
        )

    async def _names(self, texts: Iterable[str], bot: str, bot_name: str, users: Sequence[str] = ()) -> MentionResolver:
        joined = "\n".join(texts)
        wanted = [user for user in dict.fromkeys((*users, *mentioned_people(joined))) if user != bot][:MOST_NAMES]
        channels = unnamed_channels(joined)[:MOST_NAMES]
        try:
            async with asyncio.timeout(READING_SECONDS):
                await asyncio.gather(*map(self._load_user, wanted), *map(self._load_channel, channels))
        except TimeoutError:
            pass  # ids say less than names, and nothing wrong
        people = {user: self._people.cached_name(user) for user in wanted}
        return MentionResolver({**people, bot: bot_name}, {name: self._channels.get(name, "") for name in channels})

    async def _load_user(self, user: str) -> None:
        try:
            await self._people.person(user)
        except DeliveryFailed:
            return

    async def _load_channel(self, channel: str) -> None:
        if channel in self._channels:
            return
        try:
            answer = await self._api.read("conversations.info", channel=channel)
        except DeliveryFailed:
            return
        if len(self._channels) >= MOST_CHANNELS:
            self._channels.clear()
        found = answer.get("channel")
        self._channels[channel] = single_line(str(found.get("name") or ""), 80) if isinstance(found, dict) else ""

    def _speaker(self, line: ThreadMessage, names: MentionResolver) -> str:
        return line.speaker or names.people.get(line.user) or line.user


def _speakers(lines: Sequence[ThreadMessage]) -> list[str]:
    """Return the speakers, latest first: only their lines remain in the context."""
    return [line.user for line in reversed(lines) if line.user and not line.speaker]


NOTHING_SAID = "What can I do for you? Mention me together with your question."


@dataclass(frozen=True, slots=True)
class TextCommand:
    """A command in a mention of the bot."""

    words: tuple[str, ...]
    spot: ChannelRef


class MessageHandler:
    """Handles message events. `invoke` runs commands."""

    def __init__(self, platform: PlatformContext, invoke: Callable[[TextCommand], None]) -> None:
        self._platform = platform
        self._invoke = invoke
        self._attention = ThreadTracker(follow_threads=platform.audience.follow_threads)
        self._reading = InboundMessageBuilder(platform.api, platform.people)
        self._in_turn = KeyedLock()
        self._done = RecentKeys()
        self._delayed = RecentKeys()

    async def handle(self, body: Mapping[str, Any]) -> None:
        """Handle an event before its acknowledgement. Raises CountersignError if Slack must send it again."""
        event = body.get("event")
        identity = await self._platform.api.identity()
        if not isinstance(event, dict) or not _concerns(body, identity):
            return
        message = parse_message(event, identity)
        if message is None:
            return
        async with self._in_turn.acquire(f"{message.channel}:{message.thread}"):
            await self._process(message, identity)

    async def _process(self, message: IncomingMessage, identity: Identity) -> None:
        if f"{message.channel}:{message.ts}" in self._done:
            return
        if not await self._is_for_bot(message, identity):
            return
        person = await self._platform.people.person(message.user)
        if person.bot:
            return
        if refusal := self._platform.audience.rejection(person):
            self._refuse(message, refusal)
            return
        await self._accept(message, person, identity)

    async def _is_for_bot(self, message: IncomingMessage, identity: Identity) -> bool:
        """Return True for mentions, for direct messages, and for messages in a thread with a turn of the bot that
        mention no other user.
        """
        if message.direct or identity.user in message.mentions:
            return True
        if message.opens_thread or message.mentions:
            return False
        key = conversation(identity.team, message.channel, message.thread)
        return await self._attention.is_following(key, self._platform.engine)

    async def _accept(self, said: IncomingMessage, person: Person, identity: Identity) -> None:
        key = conversation(identity.team, said.channel, said.thread)
        addressed = said.direct or identity.user in said.mentions
        text = await self._reading.words(said)
        if addressed and (words := parse_command(text, self._platform.commands, key)):
            if said.notified and self._done.add(f"{said.channel}:{said.ts}"):
                self._invoke(TextCommand(words, _channel_ref(said)))
            return
        text = text or (describe_files(said.files) if said.files else "")
        if not text:
            self._refuse(said, NOTHING_SAID)
            return
        engine = self._platform.engine
        message = await self._reading.build(said, text, person.author, key, engine)
        try:
            await engine.receive(message)
        except QueueFull as error:
            # A mention comes as two events. What is not addressed to the bot comes as one.
            if said.notified or not addressed:
                self._notify_author(said, error.user_message)
            return
        except DatabaseUnwritable:
            # Slack sends it again, because it is not acknowledged.
            if (said.notified or not addressed) and self._delayed.add(f"{said.channel}:{said.ts}"):
                self._notify(said, NOT_STORED)
            raise
        self._done.remember(f"{said.channel}:{said.ts}")
        self._attention.follow(key)

    def _refuse(self, message: IncomingMessage, why: str) -> None:
        """Reject a message that addresses the bot; other messages of a thread get no answer."""
        if message.notified:
            self._notify_author(message, why)

    def _notify_author(self, message: IncomingMessage, why: str) -> None:
        """Tell the author once, in an ephemeral message, why a message was rejected."""
        if self._done.add(f"{message.channel}:{message.ts}"):
            self._notify(message, why)

    def _notify(self, message: IncomingMessage, why: str) -> None:
        self._platform.background_tasks.refuse(
            message.user,
            why,
            lambda text: send_ephemeral(self._platform.api, _channel_ref(message), text_message(text)),
        )


def _channel_ref(message: IncomingMessage) -> ChannelRef:
    return ChannelRef(message.channel, message.user, message.thread)


def _concerns(body: Mapping[str, Any], identity: Identity) -> bool:
    """Return True if the event belongs to this installation: an event of a shared channel names the other workspace."""
    authorizations = body.get("authorizations")
    teams = (
        [authorization.get("team_id") for authorization in authorizations if isinstance(authorization, dict)]
        if authorizations
        else []
    )
    return identity.team in teams or body.get("team_id") == identity.team
