"""Contents of resources that a session has read, kept while the server tells of their changes.

Only a server that offers subscriptions has a cache. A resource is subscribed to after its first read; a later read is
kept, because a change before the subscription would have gone unnoticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

import anyio
from mcp import Client, types
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.mcp.calls import BROKEN

log = logging.getLogger(__name__)

_MOST = 32
"""Subscriptions of one session, the last used ones."""
_MOST_FAILURES = 3
"""Failures after which a session subscribes to nothing more."""
_LARGEST = 1_000_000
"""Maximum number of bytes of a result."""
_SETTLE_SECONDS = 0.3
"""Pause in which the addresses of a burst of reads are collected, because a newer server gets all of them at once."""


class ResourceCache:
    """Cache of one session. `run` has to be running for anything to be kept."""

    def __init__(self) -> None:
        self._wanted: OrderedDict[str, None] = OrderedDict()
        self._subscribed: set[str] = set()
        self._contents: dict[str, ToolResult] = {}
        self._changes = 0
        self._wakeup = asyncio.Event()
        self._listening: anyio.CancelScope | None = None

    def get(self, uri: str) -> ToolResult | None:
        """Return the contents if they are current, else None."""
        return self._contents.get(uri)

    def start_read(self, uri: str) -> Callable[[ToolResult], None]:
        """Record that a read begins, and subscribe. Return the function to keep its result, which does nothing if the
        resource may have changed since.
        """
        was_subscribed, changes = uri in self._subscribed, self._changes
        if not was_subscribed:
            self._wanted[uri] = None
            while len(self._wanted) > _MOST:
                dropped, _ = self._wanted.popitem(last=False)
                self._contents.pop(dropped, None)
            self._wakeup.set()
            if self._listening is not None:
                self._listening.cancel()
        self._wanted.move_to_end(uri)

        def keep(result: ToolResult) -> None:
            current = was_subscribed and uri in self._subscribed and changes == self._changes
            if current and not result.is_error and _size(result) <= _LARGEST:
                self._contents[uri] = result

        return keep

    def drop_changed(self, uri: str) -> None:
        """Drop changed entries. The address may be that of a part of the resource that was subscribed to."""
        self._changes += 1
        self._contents = {known: result for known, result in self._contents.items() if not uri.startswith(known)}

    async def run(self, client: Client) -> None:
        """Keep the subscriptions until cancelled."""
        offered = client.server_capabilities.resources
        if offered is None or not offered.subscribe:
            return
        subscribe = self._listen if client.protocol_version in MODERN_PROTOCOL_VERSIONS else self._subscribe
        failures = 0
        while failures < _MOST_FAILURES:
            await self._wakeup.wait()
            await anyio.sleep(_SETTLE_SECONDS)
            self._wakeup.clear()
            try:
                await subscribe(client)
            except (*BROKEN, SubscriptionLost, TimeoutError) as error:
                log.debug("resources cannot be subscribed to: %s", type(error).__name__)
                failures += 1
            finally:
                self._drop_unsubscribed()

    async def _subscribe(self, client: Client) -> None:
        """Subscribe one by one, as before 2026. Changes come as notifications of the session (`drop_changed`)."""
        for uri in [uri for uri in self._subscribed if uri not in self._wanted]:
            self._subscribed.discard(uri)
            unsubscription = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            await client.session.send_request(unsubscription, types.EmptyResult)
        for uri in [uri for uri in self._wanted if uri not in self._subscribed]:
            # The library marks its own method as deprecated, also for servers that know no other.
            subscription = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await client.session.send_request(subscription, types.EmptyResult)
            self._subscribed.add(uri)

    async def _listen(self, client: Client) -> None:
        """Listen to all changes in one stream, until it ends or other addresses are wanted. Nothing is replayed, so
        nothing that was kept before counts afterwards.
        """
        try:
            with anyio.CancelScope() as self._listening:
                async with client.listen(resource_subscriptions=tuple(self._wanted)) as changes:
                    self._subscribed = set(changes.honored.resource_subscriptions or ())
                    async for event in changes:
                        if isinstance(event, ResourceUpdated):
                            self.drop_changed(event.uri)
        finally:
            self._listening = None
            self._subscribed.clear()

    def _drop_unsubscribed(self) -> None:
        self._changes += 1
        self._contents = {uri: result for uri, result in self._contents.items() if uri in self._subscribed}


def _size(result: ToolResult) -> int:
    files = (part for part in result.parts if isinstance(part, FilePart | ImagePart))
    return len(result.text) + sum(len(part.data) for part in files)
