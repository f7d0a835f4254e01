"""Capabilities of one server as a session keeps them: listings, the time of the next one, contents of resources.

Texts are returned without invisible characters. They are not redacted: an item that contains a secret of the server is
left out, because a changed definition would be a different one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
from mcp import Client, MCPError, types
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.types import METHOD_NOT_FOUND
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from bot.domain.characters import visible
from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.servers import (
    MOST_RESOURCES,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    ServerConfig,
)
from bot.domain.tools import Annotations, Tool, ToolKind
from bot.i18n import gettext_lazy
from bot.mcp.calls import BROKEN
from bot.mcp.redaction import Redaction
from bot.mcp.results import clean_schema
from bot.mcp.review import apply_definition, scan_definition
from bot.mcp.transports.messages import LEFT_OUT

log = logging.getLogger(__name__)

_MOST_LEFT_OUT = 50
"""Maximum number of stored reasons why a tool is left out."""
_MOST_PAGES = 100
_MOST = 5_000
"""Maximum number of items of each kind but resources."""
_HELD_SECONDS = 0.01
"""Longest time that a loop over items holds the event loop."""
_PAGE = 50
"""Items of a page, if a server makes small ones."""
_LARGEST = 4 * 1024 * 1024
"""Maximum size of the items of each kind, in characters of JSON, because they are stored, compared and sent to models.
"""
LONGEST_INSTRUCTIONS = 10_000
"""Maximum number of characters of a server's instructions, because every request to a model has them."""
_MOST_SUBSCRIPTIONS = 32
"""Subscriptions of one session, the last used ones."""
_MOST_SUBSCRIPTION_FAILURES = 3
"""Failures after which a session subscribes to nothing more."""
_LARGEST_CONTENTS = 1_000_000
"""Maximum number of bytes of the contents of one resource."""
_SETTLE_SECONDS = 0.3
"""Pause in which the addresses of a burst of reads are collected, because a newer server gets all of them at once."""
_LEAKING = gettext_lazy("one with a secret of the server in it")
_Item = TypeVar("_Item", bound=BaseModel)
_Page = tuple[list[_Item], str | None]


@dataclass(frozen=True, slots=True)
class CapabilityFetcher:
    """Fetcher for one server. `names_beside` returns the tool names of the other servers."""

    config: ServerConfig
    redact: Redaction
    names_beside: Callable[[ServerConfig], frozenset[str]]

    async def list_tools(self, client: Client) -> tuple[ServerCapabilities, float]:
        """Return the current tools, the instructions if they are to be used, and the reasons why others are left out;
        and the server's cache lifetime in seconds. Of two tools with one name the first is used.
        """
        left_out: list[str] = []
        instructions = self._instructions(client.instructions or "", left_out)
        if client.server_capabilities.tools is None:
            return ServerCapabilities(instructions=instructions, left_out=tuple(left_out)), 0.0
        ttls: list[int] = []

        async def page(cursor: str | None) -> _Page[types.Tool]:
            listed = await client.list_tools(cursor=cursor, cache_mode="bypass")
            ttls.append(listed.ttl_ms)
            left_out.extend(map(self.redact.clean, (listed.meta or {}).get(LEFT_OUT, ())))
            return listed.tools, listed.next_cursor

        collected: dict[str, Tool] = {}
        listed, whole = await _all_pages(page)
        foreign = self.names_beside(self.config) - {entry.name for entry in listed}
        async for entry in _yielding(listed):
            if self._holds_secret(entry):
                left_out.append(
                    _LEAKING
                    if self.redact.found_in(entry.name)
                    else gettext_lazy("{tool}: {reason}", tool=entry.name, reason=_LEAKING)
                )
                continue
            if entry.name == ToolKind.INSTRUCTIONS:
                left_out.append(gettext_lazy("{tool}: the name stands for the instructions", tool=entry.name))
                continue
            tool = self._tool(entry, foreign)
            tool.definition  # noqa: B018 - kept for all later comparisons
            if collected.setdefault(tool.name, tool) is not tool:
                log.warning("MCP server %s lists the tool %r twice, the first is used", self.config.name, tool.name)
                left_out.append(gettext_lazy("a second {tool}", tool=tool.name))
        if not whole:
            left_out.append(
                gettext_lazy(
                    "what comes after {tools} tools, {pages} pages or 4 MB",
                    tools=len(listed),
                    pages=_MOST_PAGES,
                )
            )
        listed_tools, reasons = tuple(collected.values()), tuple(left_out[:_MOST_LEFT_OUT])
        capabilities = ServerCapabilities(tools=listed_tools, instructions=instructions, left_out=reasons)
        return capabilities, min(ttls, default=0) / 1000

    def _instructions(self, text: str, left_out: list[str]) -> Tool | None:
        """Return the instructions, or None. A shortened text could mean something else, so a long one is left out."""
        if not (self.config.use_instructions and text.strip()):
            return None
        if len(text) > LONGEST_INSTRUCTIONS:
            left_out.append(
                gettext_lazy(
                    "instructions: they are longer than {most} characters",
                    most=f"{LONGEST_INSTRUCTIONS:,}",
                )
            )
            return None
        if self.redact.found_in(text):
            left_out.append(gettext_lazy("instructions: {reason}", reason=_LEAKING))
            return None
        entry = types.Tool(name=ToolKind.INSTRUCTIONS, description=text, input_schema={})
        tool = self._tool(entry, self.names_beside(self.config))
        return replace(tool, name=ToolKind.INSTRUCTIONS, kind=ToolKind.INSTRUCTIONS)

    async def list_others(self, client: Client, before: ServerCapabilities) -> ServerCapabilities:
        """Return `before` with the current resources, templates and prompts. A server that declares a kind and cannot
        list it has none of it.
        """
        declared = client.server_capabilities
        resources: tuple[Resource, ...] = ()
        templates: tuple[ResourceTemplate, ...] = ()
        prompts: tuple[Prompt, ...] = ()
        if declared.resources is not None:
            resources = tuple(
                Resource(item.uri, *_texts(item), _clean(item.mime_type), item.size)
                for item in await self._items(client.list_resources, "resources", MOST_RESOURCES)
            )
            templates = tuple(
                ResourceTemplate(item.uri_template, *_texts(item), _clean(item.mime_type))
                for item in await self._items(client.list_resource_templates, "resource_templates")
            )
        if declared.prompts is not None:
            prompts = tuple(
                Prompt(
                    item.name,
                    _clean(item.title),
                    _clean(item.description),
                    tuple(
                        PromptArgument(arg.name, _clean(arg.description), bool(arg.required))
                        for arg in item.arguments or ()
                    ),
                )
                for item in await self._items(client.list_prompts, "prompts")
            )
        return replace(before, resources=resources, templates=templates, prompts=prompts)

    async def _items(self, listing: Callable[..., Awaitable[Any]], name: str, most: int = _MOST) -> list[Any]:
        """Return the items of all pages without those that contain a secret; none if the server cannot list this kind.
        `name` is that of the items in a page.
        """

        async def page(cursor: str | None) -> _Page[Any]:
            listed = await listing(cursor=cursor, cache_mode="bypass")
            return getattr(listed, name), listed.next_cursor

        try:
            items, _is_whole = await _all_pages(page, most)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            return []
        return [item async for item in _yielding(items) if not self._holds_secret(item)]

    def _holds_secret(self, item: BaseModel) -> bool:
        return self.redact.found_in(item.model_dump(mode="json"))

    def _tool(self, tool: types.Tool, foreign: Collection[str]) -> Tool:
        """Return one tool without invisible characters. `foreign` are tool names of other servers."""
        hints = tool.annotations or types.ToolAnnotations()
        offered = Tool(
            name="",
            server="",
            original_name=tool.name,
            title=_clean(tool.title or hints.title),
            description=_clean(tool.description),
            input_schema=clean_schema(tool.input_schema, visible),
            output_schema=None if tool.output_schema is None else clean_schema(tool.output_schema, visible),
            annotations=Annotations(
                read_only=hints.read_only_hint,
                destructive=hints.destructive_hint,
                idempotent=hints.idempotent_hint,
                open_world=hints.open_world_hint,
            ),
            flags=tuple(scan_definition(tool, foreign)),
        )
        return apply_definition(offered, self.config)


def _texts(item: types.Resource | types.ResourceTemplate) -> tuple[str, str, str]:
    return _clean(item.name), _clean(item.title), _clean(item.description)


def _clean(text: str | None) -> str:
    return visible(text or "")


class ListingSchedule:
    """Time of the next listing of the tools, after notifications of changes.

    Changes are collected until the server is quiet for `settle` seconds, at most for `apart` seconds. Two listings are
    at least `apart` seconds apart. `on_due` is called when a listing is due. `stale`: the tools may have changed since
    the last listing began. `listing`: a listing has begun and has not succeeded.
    """

    def __init__(
        self, settle: float, apart: float, on_due: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stale = False
        self.listing = False
        self._settle = settle
        self._apart = apart
        self._on_due = on_due
        self._clock = clock
        self._listed_at = -math.inf
        self._first_change = self._last_change = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_due(self) -> bool:
        """True if the tools may have changed and it is time to list them."""
        quiet_at = min(self._last_change + self._settle, self._first_change + self._apart)
        return self.stale and self._clock() >= max(quiet_at, self._listed_at + self._apart)

    def mark_changed(self) -> None:
        """Record that the tools may have changed."""
        self._last_change = self._clock()
        if not self.stale:
            self._first_change = self._last_change
        self.stale = True
        self._start_timer()

    def listing_started(self) -> None:
        """Record the start of a listing. Its response may lack changes from now on."""
        self.listing = True
        self.stale = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def listing_succeeded(self) -> None:
        """Record a complete listing."""
        self.listing = False
        self._listed_at = self._clock()
        self._start_timer()

    def listing_cancelled(self) -> None:
        """Record a listing without a response in time. The cached tools may be outdated."""
        self.listing = False
        self.mark_changed()

    def _start_timer(self) -> None:
        """Poll `is_due`, because a timer for each notification would restart the wait."""
        if self.stale and self._timer is None and not self.listing:
            self._timer = asyncio.get_running_loop().call_later(self._settle, self._check)

    def _check(self) -> None:
        self._timer = None
        if self.is_due:
            self._on_due()
        else:
            self._start_timer()


async def _yielding(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield items, and let the event loop go on in between: thousands of them take seconds."""
    since = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - since > _HELD_SECONDS:
            await asyncio.sleep(0)
            since = time.monotonic()


async def _all_pages(
    page: Callable[[str | None], Awaitable[_Page[_Item]]], most: int = _MOST
) -> tuple[list[_Item], bool]:
    """Return the items of all pages, and True if that is all. The listing ends at a repeated cursor, after
    `_MOST_PAGES` pages or as many as `most` items need, at `most` items, or at the first item above `_LARGEST`.
    """
    collected: list[_Item] = []
    characters_left = _LARGEST
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(max(_MOST_PAGES, most // _PAGE)):
        items, cursor = await page(cursor)
        async for item in _yielding(items):
            characters_left -= len(json.dumps(item.model_dump(), default=str))
            if characters_left < 0 or len(collected) >= most:
                return collected, False
            collected.append(item)
        if cursor is None or cursor in cursors:
            return collected, True
        cursors.add(cursor)
    return collected, False


class ResourceCache:
    """Contents of resources that a session has read, kept while the server tells of their changes. `run` has to be
    running for anything to be kept.

    Only a server that offers subscriptions has a cache. A resource is subscribed to after its first read; a later read
    is kept, because a change before the subscription would have gone unnoticed.
    """

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
            while len(self._wanted) > _MOST_SUBSCRIPTIONS:
                dropped, _ = self._wanted.popitem(last=False)
                self._contents.pop(dropped, None)
            self._wakeup.set()
            if self._listening is not None:
                self._listening.cancel()
        self._wanted.move_to_end(uri)

        def keep(result: ToolResult) -> None:
            current = was_subscribed and uri in self._subscribed and changes == self._changes
            files = (part for part in result.parts if isinstance(part, FilePart | ImagePart))
            size = len(result.text) + sum(len(part.data) for part in files)
            if current and not result.is_error and size <= _LARGEST_CONTENTS:
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
        while failures < _MOST_SUBSCRIPTION_FAILURES:
            await self._wakeup.wait()
            await anyio.sleep(_SETTLE_SECONDS)
            self._wakeup.clear()
            try:
                await subscribe(client)
            except (*BROKEN, SubscriptionLost, TimeoutError) as error:
                log.debug("resources cannot be subscribed to: %s", type(error).__name__)
                failures += 1
            finally:
                self._changes += 1
                self._contents = {uri: result for uri, result in self._contents.items() if uri in self._subscribed}

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
