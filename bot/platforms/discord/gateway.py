"""Supervised gateway connection for incoming events.

discord.py reconnects and resumes by itself. After an error that ends the client, a new client starts after a growing
pause. A permanent error is a DeliveryFailed with a fix. The only privileged intent is Message Content, if the
application has it. Without it mentions, direct messages and replies with a ping still have their content ("You might
not need a privileged intent", Discord's docs).

A bot on many servers receives in shards, each over a connection of its own ("Sharding"). discord.py's client for
several shards is not used: it resumes fewer sessions than one client for each.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from time import time
from typing import Any, Protocol

import discord
import yarl
from discord.gateway import DiscordWebSocket, KeepAliveHandler
from discord.http import Route

from bot.chat.listener_leases import ONLY_SHARD, Shard
from bot.errors import CountersignError, DeliveryFailed
from bot.i18n import gettext_lazy
from bot.logs import in_context
from bot.platforms.discord.parsing import contain_errors
from bot.platforms.discord.rest import LONGEST_PAUSE as LONGEST_WAIT
from bot.platforms.discord.rest import NEW_TOKEN, Rest, map_errors
from bot.ports import Quota, QuotaExceeded, Quotas

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
STEADY_SECONDS = 60.0
"""A connection that was good for so long begins a new count of pauses."""
STARTS_KEPT = 10
"""Discord takes a thousand sessions a day and then withdraws the token ("Session Start Limit"): so many are left."""
IDENTIFY_SECONDS = 5.0
"""So far apart Discord takes new sessions ("Rate Limiting" of the gateway)."""
TURN_SECONDS = 6.0
"""Between the turns of several shards: a connection takes a moment from its turn to its new session."""
LONGEST_TURN = 3600.0
"""Seconds that the next turn in beginning a session may be away."""
HASTY = 3
"""New sessions one after the other, each begun within STEADY_SECONDS of the one before, until a pause is made."""
GUILDS_SECONDS = 2.0
"""Seconds without another server after which a new session is ready: Discord does not say which one is the last."""
GOODBYE_SECONDS = 5.0
AGAIN_SECONDS = 0.5
"""Seconds between two cancellations of a task that does not end."""
KEPT_MESSAGES = 1
"""Messages cached by discord.py, which needs them only for edits; the bot ignores edits."""
_READS_ALL = 1 << 18 | 1 << 19
"""Flags of an application that has the Message Content intent ("Application Flags"); the second for small ones."""
_FOR_GOOD: Mapping[int, tuple[str, str]] = {
    4004: (gettext_lazy("Discord does not know the token."), NEW_TOKEN),
    4010: (gettext_lazy("Discord does not take the number of connections."), ""),
    4011: (
        gettext_lazy("Discord wants more than one connection for so many servers."),
        gettext_lazy("restart the bot"),
    ),
    4012: (gettext_lazy("Discord no longer speaks this version of its protocol."), gettext_lazy("update Countersign")),
    4013: (gettext_lazy("Discord does not know what the bot asks to be told."), gettext_lazy("update Countersign")),
}


class GatewayHandler(Protocol):
    """Receiver of gateway events. Its methods do not block."""

    def on_connecting(self, client: discord.Client, *, reads_all: bool) -> None:
        """Prepare for a client that is about to connect, with or without the Message Content intent."""

    def on_session_start(self, client: discord.Client, at: float) -> None:
        """Handle a new session that began at `at`, in epoch seconds. Discord does not send earlier messages."""

    async def on_message(self, message: discord.Message) -> None:
        """Handle a message."""

    async def on_edit(self, message: discord.Message) -> None:
        """Handle a message that may have been edited: Discord also reports the preview of a link."""

    async def on_deletion(self, message_ids: Collection[int]) -> None:
        """Handle messages that were deleted."""

    async def on_action(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Handle a click on one of the bot's buttons."""

    async def on_modal(self, interaction: discord.Interaction[Any]) -> None:
        """Handle the submission of a modal."""


class Gateway:
    """Connects and receives one shard. `prepare` adds the commands to each new client before it connects.
    `identify_turns` keep new sessions of several shards apart.
    """

    def __init__(
        self,
        rest: Rest,
        handler: GatewayHandler,
        prepare: Callable[[discord.Client], Awaitable[None]],
        *,
        shard: Shard = ONLY_SHARD,
        identify_turns: IdentifyTurns | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._shard = shard
        self._turns = identify_turns
        self._rest = rest
        self._handler = handler
        self._prepare = prepare
        self._clock = clock
        self._refused_content = False
        self._client: _Client | None = None

    @property
    def receiving(self) -> bool:
        """True while events arrive."""
        return self._client is not None and self._client.receiving

    async def run(self) -> None:
        """Receive until cancelled. Raises DeliveryFailed for a permanent error."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                await self._session()
            except DeliveryFailed as failure:
                if failure.permanent:
                    raise
                log.warning("Discord's gateway: %s", failure)
            failures = 0 if loop.time() - began > STEADY_SECONDS else failures + 1
            longest = min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - nothing is secret about the jitter

    async def _session(self) -> None:
        """Run one client from its connection to its failure. Raises DeliveryFailed."""
        concurrency, reads_all = await self._plan()
        wait_for_turn = None  # this shard is the only one
        if self._turns is not None and self._shard.count > 1:
            wait_for_turn = partial(self._turns.wait, self._shard.number % concurrency)
        client = _client(
            self._handler, self._shard, wait_for_turn, self._clock, reads_all=reads_all, proxy=self._rest.proxy
        )
        self._handler.on_connecting(client, reads_all=reads_all)
        self._client = client
        try:
            with map_errors(gettext_lazy("sign in")):
                await client.login(self._rest.token)
            await self._prepare(client)
            shard = f", {self._shard}" if self._shard.count > 1 else ""
            intent = "" if reads_all else ", without the Message Content intent"
            log.info("connecting to Discord%s%s", shard, intent)
            if wait_for_turn is not None:
                await wait_for_turn()
            await self._run_connection(client)
        finally:
            self._client = None
            client.leave()
            try:
                async with asyncio.timeout(GOODBYE_SECONDS):
                    # discord.py leaves a connection open that is cancelled before its first message, which takes up to
                    # five seconds, with its keep-alive thread.
                    for thread in threading.enumerate():
                        if isinstance(thread, KeepAliveHandler) and thread.ws._connection is client._connection:  # noqa: SLF001
                            thread.stop()
                            await thread.ws.close(code=1000)
                    await client.close()
            except TimeoutError:
                log.warning("Discord's gateway closed without a close frame")

    async def _run_connection(self, client: discord.Client) -> None:
        connected = asyncio.create_task(client.connect(), name="discord: connection")
        try:
            await asyncio.wait({connected})
        finally:
            await cancel_and_wait(connected)
        try:
            connected.result()
        except discord.PrivilegedIntentsRequired:
            # Switched off since we asked, or not granted to an application of that size.
            log.warning(
                "Discord does not grant the Message Content intent. Fix: switch it on on the Bot page of the"
                " application; until the next start people must mention the bot."
            )
            self._refused_content = True
        except discord.ConnectionClosed as error:
            if error.code in _FOR_GOOD:
                raise DeliveryFailed(*_FOR_GOOD[error.code], permanent=True) from error
            raise DeliveryFailed(gettext_lazy("The connection was closed ({code}).", code=error.code)) from error
        except DeliveryFailed:
            raise
        except Exception as error:
            # discord.py leaves with errors of its own making when it is cut off before its first word.
            raise DeliveryFailed(gettext_lazy("The connection broke ({error}).", error=type(error).__name__)) from error

    async def _plan(self) -> tuple[int, bool]:
        """Return how many sessions may begin at a time, and whether the application has the Message Content intent. Set
        the gateway's address. Wait while the session limit is exhausted. Raises DeliveryFailed.
        """
        while True:
            async with self._rest.request(gettext_lazy("ask for the gateway's address")) as client:
                answer: Mapping[str, Any] = await client.http.request(Route("GET", "/gateway/bot"))
            limit = answer.get("session_start_limit") or {}
            if int(limit.get("remaining", STARTS_KEPT + 1)) > STARTS_KEPT:
                break
            seconds = min(max(int(limit.get("reset_after") or 0) / 1000, 1.0), 3600.0)
            log.error("Discord takes no more new sessions for now; the next look is in %.0f s", seconds)
            await asyncio.sleep(seconds)
        async with self._rest.request(gettext_lazy("ask what the application may do")) as client:
            flags = (await client.application_info()).flags
        reads_all = bool(flags.value & _READS_ALL) and not self._refused_content
        # Like the API's address, the gateway's belongs to the library's class: one process speaks to one Discord.
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(str(answer["url"]))
        return max(int(limit.get("max_concurrency") or 1), 1), reads_all


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended. `asyncio.wait_for`, which discord.py connects with, may lose a cancellation at
    the moment of a connection or disconnection (Python before 3.12).
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_SECONDS)


class _Client(discord.Client):
    """Client that passes on events until it is detached."""

    def __init__(
        self,
        handler: GatewayHandler,
        wait_for_turn: Callable[[], Awaitable[None]] | None,
        clock: Callable[[], float],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        contain_errors(self)
        self._wait_for_turn = wait_for_turn
        self._handler = handler
        self._clock = clock
        self.receiving = False
        self._left = False
        self._began = clock()
        self._last_session = float("-inf")
        self._hasty = 0

    def leave(self) -> None:
        """Stop passing on events."""
        self._left = True

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Pass on an event unless detached."""
        if not self._left:
            super().dispatch(event, *args, **kwargs)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:  # noqa: ARG002
        """Count session starts before discord.py begins one, because Discord allows a thousand a day. The client gives
        up after HASTY in a row. Raises DeliveryFailed.
        """
        if not initial:
            await (self._wait_for_turn() if self._wait_for_turn is not None else asyncio.sleep(IDENTIFY_SECONDS))
        now = asyncio.get_running_loop().time()
        self._hasty = self._hasty + 1 if now - self._last_session < STEADY_SECONDS else 0
        if self._hasty > HASTY:
            raise DeliveryFailed(gettext_lazy("Discord ends every new session at once."))
        self._last_session = now

    async def on_connect(self) -> None:
        self._began = self._clock()

    async def on_disconnect(self) -> None:
        self.receiving = False

    async def on_resumed(self) -> None:
        self.receiving = True

    async def on_ready(self) -> None:
        self.receiving = True
        self._handler.on_session_start(self, self._began)

    async def on_message(self, message: discord.Message) -> None:
        with in_context(request=str(message.id)):
            await self._handler.on_message(message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        # The other event comes only for messages in the library's cache.
        with in_context(request=str(payload.message_id)):
            await self._handler.on_edit(payload.message)

    async def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        await self._handler.on_deletion([payload.message_id])

    async def on_raw_bulk_message_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        await self._handler.on_deletion(payload.message_ids)

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        # Not by discord.py's items and modals: a button carries its action, from any process, also one that an edit has
        # removed from the message since. A submission names the action that opened the modal.
        data: Mapping[str, Any] = interaction.data or {}
        with in_context(request=str(interaction.id)):
            match interaction.type:
                case discord.InteractionType.component:
                    await self._handler.on_action(interaction, str(data.get("custom_id") or ""))
                case discord.InteractionType.modal_submit:
                    await self._handler.on_modal(interaction)
                case _:
                    return

    async def on_error(self, event_method: str, /, *_args: Any, **_kwargs: Any) -> None:
        # discord.py calls this while it handles the error.
        log.error("event from Discord not processed (%s)", event_method, exc_info=True)  # noqa: LOG014


def _client(
    handler: GatewayHandler,
    shard: Shard,
    wait_for_turn: Callable[[], Awaitable[None]] | None,
    clock: Callable[[], float],
    *,
    reads_all: bool,
    proxy: str | None,
) -> _Client:
    intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=reads_all)
    options: dict[str, Any] = {
        "intents": intents,
        "allowed_mentions": discord.AllowedMentions.none(),
        "member_cache_flags": discord.MemberCacheFlags.none(),
        "chunk_guilds_at_startup": False,
        "guild_ready_timeout": GUILDS_SECONDS,
        "max_messages": KEPT_MESSAGES,
        "max_ratelimit_timeout": LONGEST_WAIT,
        "proxy": proxy,
    }
    if shard.count > 1:
        options |= {"shard_id": shard.number, "shard_count": shard.count}
    return _Client(handler, wait_for_turn, clock, **options)


# -------------------- shards


async def recommended_shards(rest: Rest) -> int:
    """Return the number of shards that Discord recommends. Raises DeliveryFailed."""
    answer = await rest.call("GET", "/gateway/bot", gettext_lazy("ask for the number of connections"))
    return max(int(answer.get("shards") or 1), 1)


def shard_of(guild: str, count: int) -> int:
    """Return the number of the shard with the events of a guild ("Sharding"). Those of direct conversations are in the
    first one.
    """
    return (int(guild) >> 22) % count


class IdentifyTurns:
    """Turns of all processes of an application in beginning sessions, which Discord takes only so far apart."""

    def __init__(self, quotas: Quotas, app: str) -> None:
        self._quotas = quotas
        self._app = app

    async def wait(self, bucket: int) -> None:
        """Wait until a session of a bucket may begin (Discord's `rate_limit_key`). Without the database, wait for the
        time of one turn.
        """
        try:
            turn = await self._quotas.acquire(
                f"discord-identify:{self._app}:{bucket}", Quota(1, TURN_SECONDS), LONGEST_TURN
            )
        except CountersignError as error:
            log.warning("turn to begin a session with Discord is unknown: %s", error)
            turn = QuotaExceeded(TURN_SECONDS)
        await asyncio.sleep(turn.wait)
