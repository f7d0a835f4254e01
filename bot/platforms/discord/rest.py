"""Client of Discord's REST API: logged in without a gateway connection, every failure a DeliveryFailed; and references
of channels, threads and messages.

Files of users are downloaded when the model needs them. URLs of Discord expire, so an attachment is identified by its
channel, its message and its own id. Its bytes are loaded without the bot's token.

The only module that calls discord.py's HTTP client. discord.py applies the rate limits of each route and waits out
short pauses; this module limits the total time. No error contains a token or the text that was sent.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import discord
import discord.http

from bot.chat.http import (
    FileSource,
    HttpSession,
    check_size,
    download,
    file_name,
    make_discreet,
    parse_retry_after,
    unreachable,
)
from bot.domain.conversations import Attachment, ConversationKey
from bot.domain.metrics import MetricSink, PlatformLimited, null_sink
from bot.errors import DeliveryFailed, NotFound
from bot.i18n import gettext_lazy
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.parsing import contain_errors
from bot.rendering.text_safety import ELLIPSIS, single_line

PLATFORM = "discord"
API_URL = "https://discord.com/api/v10"
LONGEST_PAUSE = 30.0
"""Seconds of a 429 that are waited out: discord.py's minimum."""
ANSWER_SECONDS = 45.0
"""Seconds of one call with all retries, less than the engine's 60 seconds for a delivery."""
USER_INSTALL = "1"
"""Installation of the app by a user for themselves ("Application Integration Types"); 0 is that in a guild."""
ROLE = "discord-role:"
"""A role as settings and profiles name it: `discord-role:` and the role's id."""
CHANNELS_URL = "https://discord.com/channels"
LONGEST_NAME = 100
UNNAMED = gettext_lazy("Question")
_MARKDOWN_MARKS = re.compile(r"^(?:\s*(?:[>#*+-]|-#|\d+[.)]))+\s+|[*_~`|]{2,}|(?<!\w)[*_`](?=\w)|(?<=\w)[*_`](?!\w)")
_FILE_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")
_ATTACHMENT_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([0-9]{1,20})")
_LIBRARY = ("discord.client", "discord.gateway", "discord.http", "discord.state", "discord.webhook.async_")

# -------------------- errors
# The codes are those of docs.discord.com, "Opcodes and Status Codes".

UNKNOWN_MESSAGE = 10008
UNKNOWN_MEMBER = 10007
UNKNOWN_CHANNEL = 10003
MISSING_ACCESS = 50001
MISSING_PERMISSIONS = 50013
TOO_OLD_TO_EDIT = 30046
"""The message is older than an hour, and was edited too often since."""
TOO_LARGE = 40005
INVALID_BODY = 50035
NO_REPLIES = 160002
"""Code for a reply without the permission to read the original message."""
ARCHIVED = 50083
THREAD_EXISTS = 160004

NEW_TOKEN = gettext_lazy("make a new token on the Bot page of the application and set DISCORD_TOKEN")
LET_IT_IN = gettext_lazy(
    "give the bot the permissions to see the channel and write there (countersign doctor names the missing ones)"
)
ASK_AN_ADMIN = gettext_lazy("ask an administrator of the server")
STATUS_PAGE = gettext_lazy("check the network and discordstatus.com")

_TOO_SLOW = gettext_lazy("It took too long to answer.")
_CAUSES: Mapping[int, str] = {
    UNKNOWN_CHANNEL: gettext_lazy("Discord has no such channel any more."),
    10004: gettext_lazy("Discord has no such server, or the bot is not in it."),
    UNKNOWN_MEMBER: gettext_lazy("That person is not in the server."),
    UNKNOWN_MESSAGE: gettext_lazy("The message is gone."),
    10013: gettext_lazy("Discord knows no such person."),
    10062: _TOO_SLOW,
    TOO_OLD_TO_EDIT: gettext_lazy("Discord does not let an old message be edited so often."),
    TOO_LARGE: gettext_lazy("Discord finds the file too large."),
    50027: _TOO_SLOW,
    MISSING_ACCESS: gettext_lazy("The bot cannot see the channel."),
    50007: gettext_lazy("That person takes no direct messages from the bot."),
    MISSING_PERMISSIONS: gettext_lazy("The bot lacks a permission there."),
    INVALID_BODY: gettext_lazy("Discord does not take the message's layout."),
    ARCHIVED: gettext_lazy("The thread is archived."),
    160005: gettext_lazy("The thread is locked."),
    NO_REPLIES: gettext_lazy("The bot cannot read earlier messages there."),
    240000: gettext_lazy("Discord finds something in the message harmful."),
    200000: gettext_lazy("AutoMod of the server does not let the message through."),
    200001: gettext_lazy("AutoMod of the server does not let the title through."),
}
"""Causes of permanent rejections by Discord's code."""
_FIXES: Mapping[int, str] = {
    10004: gettext_lazy("invite the bot to the server"),
    **dict.fromkeys((10062, 50027), gettext_lazy("try once more")),
    **dict.fromkeys((MISSING_ACCESS, MISSING_PERMISSIONS, NO_REPLIES), LET_IT_IN),
    50007: gettext_lazy("allow direct messages from members of the server"),
    ARCHIVED: gettext_lazy("unarchive it, or ask somewhere else"),
    **dict.fromkeys((160005, 200000, 200001), ASK_AN_ADMIN),
}
_BY_STATUS: Mapping[int, tuple[str, str]] = {
    401: (gettext_lazy("Discord does not know the token."), NEW_TOKEN),
    403: (gettext_lazy("Discord does not allow the bot to do that."), LET_IT_IN),
    404: (gettext_lazy("That is gone."), ""),
}
_SECRETS = re.compile(r"((?:webhooks|interactions)/\d+/)[\w.-]{20,}")


class DiscordApiError(DeliveryFailed):
    """Discord rejected the request. `code` is Discord's error code, 0 if missing."""

    def __init__(
        self,
        code: int,
        cause: str,
        fix: str = "",
        *,
        status: int = 400,
        retry_after: float | None = None,
        permanent: bool = False,
        details: str = "",
    ) -> None:
        super().__init__(cause, fix, retry_after=retry_after, permanent=permanent, details=details)
        self.code = code
        self.status = status


class DiscordConnectionError(DeliveryFailed):
    """Connection error: the request may or may not have been processed."""


@contextmanager
def map_errors(what: str) -> Iterator[None]:
    """Map the errors of discord.py to DeliveryFailed. `what` completes "the request to …"."""
    try:
        yield
    except discord.LoginFailure as error:
        raise DiscordApiError(0, *_BY_STATUS[401], status=401, permanent=True) from error
    except discord.HTTPException as error:
        raise _rejection_error(what, error) from error
    except discord.RateLimited as error:
        raise DiscordApiError(0, _pause_text(what), status=429, retry_after=error.retry_after) from error
    except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
        cause, fix = unreachable("Discord", "discordstatus.com", error)
        raise DiscordConnectionError(cause, fix, details=f"to {what}: {type(error).__name__}") from error


def redact(line: str) -> str:
    """Remove the interaction tokens in URLs from a log line."""
    return _SECRETS.sub(r"\1…", line)


def _rejection_error(what: str, error: discord.HTTPException) -> DeliveryFailed:
    status, code = error.status, error.code
    if status >= 500:
        return DiscordConnectionError(
            gettext_lazy("Discord answered the request to {action} with HTTP {status}.", action=what, status=status),
            STATUS_PAGE,
        )
    if status == 429:
        # What discord.py has not waited for by itself: a ban of the whole address, or five refusals in a row.
        cause = (
            gettext_lazy("Discord does not let the bot {action} for now.", action=what) if code else _pause_text(what)
        )
        return DiscordApiError(
            code, cause, status=status, retry_after=parse_retry_after(error.response.headers), details=str(code or "")
        )
    by_status = _BY_STATUS.get(status, (gettext_lazy("Discord does not take the request."), ""))
    cause, fix = (_CAUSES[code], _FIXES.get(code, "")) if code in _CAUSES else by_status
    details = f"to {what}: {code or status}"
    return DiscordApiError(code, cause, fix, status=status, permanent=True, details=details)


def _pause_text(what: str) -> str:
    return gettext_lazy("Discord asks for a pause before it lets the bot {action}.", action=what)


# -------------------- client


@dataclass(frozen=True, slots=True)
class Identity:
    """Owner of the token. `reads_all` is True if the application has the Message Content intent. `app` is the
    application's id, for its commands. `public` is True if all users may invite the bot. `endpoint` is the URL that
    receives interactions instead of the gateway; empty for the gateway.
    """

    user: str
    name: str
    app: str
    reads_all: bool
    public: bool = False
    endpoint: str = ""


class Rest(HttpSession):
    """Calls Discord as the bot. Enter it before use, and leave it after the last call. No request is sent before the
    first use. Requests of `session` are without the bot's token. `observe` receives the seconds of rate limit pauses
    that discord.py does not wait out.
    """

    def __init__(self, token: str, *, url: str = API_URL, observe: MetricSink = null_sink) -> None:
        super().__init__(ANSWER_SECONDS, url)
        self.token = token
        self.url = url.rstrip("/")
        self._observe = observe
        self._client: discord.Client | None = None
        self._logging_in = asyncio.Lock()

    async def __aenter__(self) -> Self:
        # A route knows no client: discord.py keeps the API's address in the class, for everything in the process. One
        # process speaks to one Discord, so it is set here, where that Discord is chosen.
        discord.http.Route.BASE = self.url
        # Voice is unused; the library would warn every operator of missing packages.
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        for name in _LIBRARY:
            # Log warnings only, because the library logs whole messages at lower levels.
            make_discreet(logging.getLogger(name), redact)
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
        await super().__aexit__(kind, error, traceback)

    async def client(self) -> discord.Client:
        """Return the library's client, logged in. Raises DeliveryFailed."""
        async with self._logging_in:
            if self._client is not None:
                return self._client
            client = discord.Client(
                intents=discord.Intents(guilds=True),  # it never connects, but warns without
                allowed_mentions=discord.AllowedMentions.none(),
                max_ratelimit_timeout=LONGEST_PAUSE,
                max_messages=None,
                chunk_guilds_at_startup=False,
                member_cache_flags=discord.MemberCacheFlags.none(),
                proxy=self.proxy,
            )
            contain_errors(client)
            try:
                with map_errors(gettext_lazy("sign in")):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await client.login(self.token)
            except BaseException:
                await client.close()
                raise
            self._client = client
            return client

    async def identity(self) -> Identity:
        """Return the owner of the token, requested once. Raises DeliveryFailed."""
        client = await self.client()
        user, app = client.user, client.application
        if user is None or app is None:
            raise RuntimeError("a client that is logged in has a user")
        flags = app.flags
        reads_all = flags.gateway_message_content or flags.gateway_message_content_limited
        return Identity(
            user=str(user.id),
            name=user.display_name,
            app=str(app.id),
            reads_all=reads_all,
            public=app.bot_public,
            endpoint=app.interactions_endpoint_url or "",
        )

    async def is_user_installable(self) -> bool:
        """Return True if users may install the app for themselves. Raises DeliveryFailed."""
        app = await self.call("GET", "/applications/@me", gettext_lazy("look at the application"))
        return USER_INSTALL in (app.get("integration_types_config") or {})

    async def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: Any = None,
        files: Sequence[FileUpload] = (),
        **ids: str,
    ) -> Any:
        """Call a route and return its JSON. `path` names its ids in braces (`/channels/{channel_id}`); `what` completes
        "the request to …" in errors. A call without a response or with a server error may be sent up to five times: use
        a nonce if it must happen once. Raises DeliveryFailed.
        """
        given: dict[str, Any] = {}
        if files:
            parts = [file.to_file() for file in files]
            form: list[dict[str, Any]] = [{"name": "payload_json", "value": json.dumps(body)}]  # "Uploading Files"
            for number, part in enumerate(parts):
                part_name = {"name": f"files[{number}]", "filename": part.filename}
                form.append({**part_name, "value": part.fp, "content_type": "application/octet-stream"})
            given = {"files": parts, "form": form}
        elif body is not None:
            given = {"json": body}
        async with self.request(what) as client:
            return await client.http.request(discord.http.Route(method, path, **ids), **given)

    @asynccontextmanager
    async def request(self, what: str, *, patience: float = ANSWER_SECONDS) -> AsyncIterator[discord.Client]:
        """Provide the library's client for one request: within `patience` seconds, every failure a DeliveryFailed.
        `what` completes "the request to …" in errors. discord.py repeats a request without a response, or with a server
        error, up to four times: a post needs a nonce.
        """
        client = await self.client()
        with self._counting(), map_errors(what):
            try:
                async with asyncio.timeout(patience):
                    yield client
            except KeyError as error:  # the library looks for the length of a pause that is not there
                raise DiscordApiError(0, _pause_text(what), status=429) from error
            except (asyncio.CancelledError, TimeoutError):
                # A request that waits out a limit of all routes holds back all others until it is over; discord.py
                # does not release them when that request is cancelled.
                client.http._global_over.set()  # noqa: SLF001 - there is no other way
                raise

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except DeliveryFailed as failure:
            if failure.retry_after is not None:
                self._observe(PlatformLimited("discord", failure.retry_after))
            raise


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file that goes along with a message."""

    name: str
    data: bytes

    def to_file(self) -> discord.File:
        """Return it for the library, which reads it once."""
        return discord.File(io.BytesIO(self.data), filename=self.name)


# -------------------- files of users


def attachment_id(channel: str, message: str, attachment: str) -> str:
    """Return the id by which an attachment is downloaded later."""
    return f"{channel}:{message}:{attachment}"


def files_of(message: discord.Message) -> list[discord.Attachment]:
    """Return the files of a message and of those that it forwards."""
    shared = [file for snapshot in message.message_snapshots for file in snapshot.attachments]
    return [*message.attachments, *shared]


async def fetch_file(rest: Rest, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    check_size(attachment)
    match = _ATTACHMENT_ID.fullmatch(attachment.id)
    if match is None:
        raise NotFound(gettext_lazy("{file} is none of Discord's.", file=file_name(attachment)))
    channel, message, own = match.groups()
    try:
        async with rest.request(gettext_lazy("look for a file")) as client:
            loaded = await client.get_partial_messageable(int(channel)).fetch_message(int(message))
    except DiscordApiError as error:
        if error.status == 404:
            raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment))) from error
        raise
    url = next((file.url for file in files_of(loaded) if str(file.id) == own), "")
    if not url:
        raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment)))
    return await download(rest.session, url, attachment, FileSource("Discord", _FILE_HOSTS, rest.url))


# -------------------- channels, threads and messages
# A thread opened at a message has that message's id, and there is never a second one (160004): opening twice, in two
# processes or after a crash, ends in the same conversation.


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message: the channel or thread it stands in, and its id there."""

    channel: str
    message: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.message}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text form; return None if it is invalid."""
        match = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})", text)
        return cls(*match.groups()) if match is not None else None


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """A channel with a conversation. `server` is empty in a direct conversation, `thread` and `thread_name` outside of
    threads; `opens_threads` is True if the bot may open a thread at a message there and write in it.
    """

    server: str
    channel: str
    thread: str = ""
    opens_threads: bool = False
    thread_name: str = ""

    @property
    def direct(self) -> bool:
        """True for a direct conversation with the bot."""
        return not self.server

    def post_title(self, message: str) -> str:
        """Return the title of a post in a forum if this is its first message, which has the id of the thread."""
        return self.thread_name if message == self.thread else ""

    @property
    def place(self) -> str:
        """Id of the channel or thread that contains the messages."""
        return self.thread or self.channel


def conversation(server: str, channel: str, thread: str = "") -> ConversationKey:
    """Return the key of a thread, or of the channel if `thread` is empty. `server` is the id of the guild. A direct
    conversation belongs to the user's guild, and its channel is the direct channel.
    """
    return ConversationKey(PLATFORM, server, channel, thread)


def channel_id_of(key: ConversationKey) -> str:
    """Return the channel or thread that a conversation is delivered to. A thread has the id of its first message."""
    return key.thread or key.channel


def message_url(server: str, ref: MessageRef) -> str:
    """Return the URL of a message; `server` is empty for one in no guild."""
    return f"{CHANNELS_URL}/{server or '@me'}/{ref.channel}/{ref.message}"


def message_key(message: str) -> str:
    """Return the key that deduplicates a message; ids are unique in all of Discord."""
    return f"{PLATFORM}:{message}"


def from_channel(channel: Any) -> ChannelRef | None:
    """Return the location of a library channel, or None if only its id is known."""
    match channel:
        case discord.DMChannel():
            return ChannelRef("", str(channel.id))
        case discord.Thread():
            name = single_line(channel.name, LONGEST_NAME)
            return ChannelRef(str(channel.guild.id), str(channel.parent_id), str(channel.id), thread_name=name)
        case discord.TextChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id), opens_threads=_may_open(channel))
        case discord.abc.GuildChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id))
        case _:
            return None


async def fetch_channel(rest: Rest, channel: str) -> ChannelRef | None:
    """Return the location of a channel by its id, without the bot's permissions there; None for other text and for a
    channel without messages. Raises DeliveryFailed.
    """
    if not channel.isdecimal():
        return None
    async with rest.request(gettext_lazy("look at a channel")) as client:
        return from_channel(await client.fetch_channel(int(channel)))


def _may_open(channel: discord.TextChannel) -> bool:
    # The bot's own member is the one that is always kept, and its changes are told without the Members intent.
    me: discord.Member | None = channel.guild.me  # None while the server has not been described
    may = channel.permissions_for(me) if me is not None else discord.Permissions.none()
    return may.view_channel and may.create_public_threads and may.send_messages_in_threads


async def open_thread(rest: Rest, channel: str, message: str, question: str) -> str:
    """Open a thread at a message, named after its text, and return its id; empty if the bot may open none. Raises
    DeliveryFailed if the result is unknown or the message is missing.
    """
    try:
        async with rest.request(gettext_lazy("open a thread")) as client:
            await client.http.start_thread_with_message(
                int(channel), int(message), name=thread_name(question), auto_archive_duration=1440
            )
    except DiscordApiError as refusal:
        if refusal.code == THREAD_EXISTS:
            return message
        if refusal.permanent and refusal.status != 401 and refusal.code != UNKNOWN_MESSAGE:
            return ""
        raise
    return message


async def direct_channel(rest: Rest, user: str) -> str:
    """Return the id of the direct channel, opening it if needed. Raises DeliveryFailed."""
    async with rest.request(gettext_lazy("write to somebody")) as client:
        return str((await client.create_dm(discord.Object(int(user)))).id)


def thread_name(question: str) -> str:
    """Return the name of a message's thread, from plain text without mentions. Never empty."""
    lines = (_MARKDOWN_MARKS.sub("", line) for line in question.splitlines())
    line = next((name for line in lines if (name := single_line(line, LONGEST_NAME * 2)).strip(" `*_~|>#-")), "")
    if utf16_length(line) <= LONGEST_NAME:
        return line or str(UNNAMED)
    beginning = line[:LONGEST_NAME]
    while utf16_length(beginning) > LONGEST_NAME:
        beginning = beginning[:-1]
    whole_words, _, _ = beginning.rpartition(" ")
    return (whole_words.rstrip(" ,.;:-") or beginning[:-1]) + ELLIPSIS
