"""Discord's REST API as the bot: one logged-in client that never connects to the gateway, every failure a
DeliveryFailed.

The only module that calls discord.py's HTTP client; whatever else draws is handed this one. discord.py keeps the
limits of every route by its headers and waits out short pauses; here its patience has an end.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import discord
import discord.http

from bot.domain.metrics import MetricSink, PlatformLimited, null_sink
from bot.errors import DeliveryFailed
from bot.platforms.discord.errors import PAUSE, DiscordApiError, map_errors, redact
from bot.platforms.discord.outgoing import FileUpload

API_URL = "https://discord.com/api/v10"
LONGEST_PAUSE = 30.0
"""Seconds of a 429 that are waited out: the least that discord.py can be told."""
ANSWER_SECONDS = 45.0
"""For one call with all its repeats; within what the engine gives a message of a drawing (60 s)."""
_LIBRARY = ("discord.client", "discord.gateway", "discord.http", "discord.state", "discord.webhook.async_")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the token speaks for. `reads_all`: the application has the Message Content intent switched on, so the bot
    may read what does not mention it. `app` is the application's id, which commands are registered under. `public`:
    anybody may invite the bot. `endpoint` is where Discord posts presses and commands instead of handing them to the
    gateway; empty where it does not.
    """

    user: str
    name: str
    app: str
    reads_all: bool
    public: bool = False
    endpoint: str = ""


class Rest:
    """Calls Discord as the bot. To be entered before use, and left when nothing calls any more. Asks Discord for
    nothing until it is used. `observe` counts the pauses that Discord asks for and that discord.py does not wait out by
    itself.
    """

    def __init__(self, token: str, *, url: str = API_URL, observe: MetricSink = null_sink) -> None:
        self.token = token
        self.url = url.rstrip("/")
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None
        self._client: discord.Client | None = None
        self._logging_in = asyncio.Lock()

    async def __aenter__(self) -> Self:
        # A route knows no client: discord.py keeps the API's address in the class, for everything in the process. One
        # process speaks to one Discord, so it is set here, where that Discord is chosen.
        discord.http.Route.BASE = self.url
        # Nobody speaks here; the library would tell every operator that it cannot.
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        for name in _LIBRARY:
            _quieten(logging.getLogger(name))
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=10))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """For what is fetched without the bot's token."""
        if self._session is None:
            raise RuntimeError("the REST API was not entered")
        return self._session

    async def client(self) -> discord.Client:
        """The library's client, logged in. Raises DeliveryFailed."""
        async with self._logging_in:
            if self._client is None:
                self._client = await self._logged_in()
            return self._client

    async def identity(self) -> Identity:
        """Whom the token speaks for, asked once. Raises DeliveryFailed."""
        client = await self.client()
        user, app = client.user, client.application
        if user is None or app is None:
            raise RuntimeError("a client that is logged in knows who it is")
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

    async def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
        files: Sequence[FileUpload] = (),
        patience: float = ANSWER_SECONDS,
        **ids: str,
    ) -> Any:
        """Call a route and return what its answer holds. `path` names its ids in braces (`/channels/{channel_id}`);
        `what` finishes the sentence "the wish to …" where it fails. A call that got no answer or a server error may
        have been made up to five times: whatever must happen once carries a nonce. `patience` is in seconds, for all of
        that together. Raises DeliveryFailed.
        """
        http = (await self.client()).http
        given: dict[str, Any] = {}
        if query:
            given["params"] = dict(query)
        if files:
            parts = [discord.File(io.BytesIO(each.data), filename=each.name) for each in files]
            given |= {"files": parts, "form": _form(body, parts)}
        elif body is not None:
            given["json"] = body
        with self._counting(), map_errors(what):
            try:
                async with asyncio.timeout(patience):
                    return await http.request(discord.http.Route(method, path, **ids), **given)
            except KeyError as error:  # the library looks for the length of a pause that is not there
                raise DiscordApiError(0, PAUSE.format(what), status=429) from error
            except (asyncio.CancelledError, TimeoutError):
                # Whoever waits out a limit of all routes holds back everybody else until it is over; discord.py forgets
                # to let them go when the one that waits is cancelled.
                http._global_over.set()  # noqa: SLF001 - there is no other way
                raise

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except DeliveryFailed as failure:
            if failure.retry_after is not None:
                self._observe(PlatformLimited("discord", failure.retry_after))
            raise

    async def _logged_in(self) -> discord.Client:
        client = discord.Client(
            intents=discord.Intents(guilds=True),  # it never connects, but warns without
            allowed_mentions=discord.AllowedMentions.none(),
            max_ratelimit_timeout=LONGEST_PAUSE,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
        )
        try:
            with map_errors("sign in"):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.login(self.token)
        except BaseException:
            await client.close()
            raise
        return client


class _Discreet(logging.Filter):
    """The library's own lines without payloads, tracebacks, or the tokens in the addresses of interactions."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redact(record.getMessage())[:300]
        record.args = None
        record.exc_info = None
        return True


def _quieten(log: logging.Logger) -> None:
    """Warnings only: at lower levels the library writes out whole messages."""
    log.setLevel(logging.WARNING)
    if not any(isinstance(each, _Discreet) for each in log.filters):
        log.addFilter(_Discreet())


def _form(body: Any, files: Sequence[discord.File]) -> list[dict[str, Any]]:
    """A body with files behind it, as Discord takes them ("Uploading Files")."""
    form: list[dict[str, Any]] = [{"name": "payload_json", "value": json.dumps(body)}]
    form += [
        {
            "name": f"files[{number}]",
            "value": file.fp,
            "filename": file.filename,
            "content_type": "application/octet-stream",
        }
        for number, file in enumerate(files)
    ]
    return form
