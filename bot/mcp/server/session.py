"""One session with one server.

It runs in the owner task of its `connection`, because the MCP library's client must be opened and closed in one
task. It fetches the capabilities when they may have changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio
from mcp import Client, MCPError, types
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import METHOD_NOT_FOUND
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

import bot
from bot.domain.messages import ToolCall
from bot.domain.metrics import CacheUsed
from bot.domain.servers import (
    CompletionTarget,
    Piece,
    ServerCapabilities,
    SyncStatus,
)
from bot.domain.tools import CallNeedsInput, CallReturned, Tool, ToolKind, ToolOutcome
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp import results, sdk
from bot.mcp.active_calls import (
    LONGEST_WAIT,
    ActiveCall,
    ActivityTracker,
    CallLimits,
    NoResponse,
    RequestNotSent,
    RetryLater,
)
from bot.mcp.calls import BROKEN, list_folders, send_call
from bot.mcp.config.checks import definition_fingerprint
from bot.mcp.errors import InvalidDefinition, error_message, record_request
from bot.mcp.failures import bounded_pause, failed_listing, failed_request, http_failure
from bot.mcp.redaction import Redaction
from bot.mcp.resource_tools import uri_of
from bot.mcp.server.capabilities import CapabilityFetcher, ListingSchedule, ResourceCache
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.output import LEVEL, StderrTail, StrayLine
from bot.mcp.server.retry import STEADY_SECONDS
from bot.mcp.server.status import SERVING, Event, State
from bot.mcp.transports.open import open_transport

if TYPE_CHECKING:
    from bot.mcp.server.connection import Connection

log = logging.getLogger(__name__)

_GOODBYE_SECONDS = 3.0
_LONGEST_TTL = 60.0
"""Upper limit in seconds for a server's cache lifetime of its tools."""
_Answer = TypeVar("_Answer")
_ONLY_CALLS = "it asks for more, which people are asked for only when they call a tool"
_CHANGES = (
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.PromptListChangedNotification,
)


async def monitor(
    client: Client, report: Callable[[Event], None], activity: ActivityTracker, shared: ConnectionDependencies
) -> None:
    """Ping a quiet server, and one that did not answer a call; report a failure, and when the server is unused.

    A hanging process or a lost network path sends no event: without pings the next call would be the first to fail.
    Returns when the server is unused.
    """
    timing, clock = shared.timing, shared.clock
    idle_after = math.inf if timing.idle_after is None else timing.idle_after
    quiet_after = math.inf if timing.quiet_after is None else timing.quiet_after
    began = pinged = clock()
    activity.unresponsive.clear()
    while True:
        idle_at = max(began, activity.unused_since) + idle_after
        ping_at = max(pinged, activity.unused_since) + quiet_after
        now = clock()
        if now >= idle_at:
            report(Event.UNUSED_TOO_LONG)
            return
        if now >= ping_at or activity.unresponsive.is_set():
            activity.unresponsive.clear()
            if not await _is_alive(client, timing.quiet_limit):
                report(Event.REQUEST_FAILED)
            pinged = clock()
            continue
        pause = min(idle_at, ping_at) - now
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(pause) else pause):
                await activity.unresponsive.wait()


async def _is_alive(client: Client, limit: float) -> bool:
    """Return True if the server answers. The newer protocol has no ping, so discovery is requested (MCP
    specification 2026-07-28, changelog).
    """
    with record_request() as attempt:
        try:
            async with asyncio.timeout(limit):
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    await client.session.send_discover(client.protocol_version)
                else:
                    await client.session.send_ping()
        except MCPError as error:
            # An error of the server itself, not of a gateway or of the library: it is alive and has no ping.
            return error.code == METHOD_NOT_FOUND and (attempt.status or 200) < 400
        except (*BROKEN, TimeoutError):
            return False
    return True


class Session:
    """One session of a connection, to be run once. It ends when its state or the connection's `closing` says so and it
    is woken.

    `is_retry`: the attempt was planned after a failure, so calls wait less for it. It has to connect within
    `connect_seconds`.
    """

    def __init__(self, connection: Connection, *, is_retry: bool, connect_seconds: float) -> None:
        self.is_retry = is_retry
        self._connection = connection
        self._tracker, self._config = connection.tracker, connection.config
        self._shared, self._redact = connection.shared, connection.redact
        self._token_provider = connection.token_provider
        self._connect_seconds = connect_seconds
        self.stderr = StderrTail(self._config.name, self._redact)
        waits = self._shared.timing.waits
        self.listings = ListingSchedule(waits.settle, waits.apart, self.wake, self._shared.clock)
        self.resources = ResourceCache()
        self._client: Client | None = None
        self._wakeup = asyncio.Event()
        connection.calls.reset_elicitations()
        self._known = self._tracker.synced.capabilities
        self._fetcher = CapabilityFetcher(self._config, self._redact, self._shared.names_beside)
        self._fetching = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._listed_at = self._fresh_until = -math.inf

    @property
    def is_waiting(self) -> bool:
        """True if the owner task only waits for events, so that `wake` ends the session gracefully."""
        listing = self.listings.listing or self.listings.is_due or self._fetching.locked()
        return self._tracker.state is State.READY and not listing

    @property
    def client(self) -> Client:
        """Client of the library, valid while requests can be sent."""
        assert self._client is not None
        return self._client

    def report(self, event: Event) -> None:
        """Report an event of this session, and wake the owner task."""
        self._connection.report(self, event)
        self.wake()

    def wake(self) -> None:
        """Wake the owner task."""
        self._wakeup.set()

    async def live(self, scope: anyio.CancelScope) -> None:
        """Connect, and serve until the connection is lost or closed. `scope` surrounds this call."""
        async with self._shared.start_limiter.acquire(self._shared.timing.waits.start_slot) as release_slot:
            self._tracker.apply(Event.ATTEMPT_STARTED)
            if self._token_provider is not None:
                self._token_provider.reset_rejection()
            scope.deadline = anyio.current_time() + self._connect_seconds
            async with self._new_client() as client:
                wanted, spoken = self._config.protocol, client.protocol_version
                # Within the older era the server chooses the version, and the doctor tells of another one.
                if wanted in MODERN_PROTOCOL_VERSIONS and spoken not in MODERN_PROTOCOL_VERSIONS:
                    raise InvalidDefinition(
                        gettext_lazy(
                            "It speaks MCP {spoken}, and its protocol is set to {wanted}.", spoken=spoken, wanted=wanted
                        ),
                        gettext_lazy("set its protocol to {version} or auto", version=spoken),
                        "protocol",
                    )
                listed = await self._list(client)
                scope.deadline = math.inf
                release_slot()
                info = client.server_info
                version = "" if info is None else self._redact.clean(info.version)
                self._known = replace(
                    listed,
                    protocol=self._connection.negotiation.protocol_label(spoken),
                    handshake=self._connection.negotiation.on_connected(spoken, version),
                    server_version=version,
                    definition=definition_fingerprint(self._config),
                )
                self._client = client
                self._tracker.record_connection(self._known)
                try:
                    await self._serve(client)
                finally:
                    self._tracker.report(Event.SESSION_ENDED)
                    scope.deadline = anyio.current_time() + _GOODBYE_SECONDS

    async def sync(self) -> ServerCapabilities:
        """Fetch all capabilities, from any task. Raises ServerTrouble."""
        try:
            known = await self._fetch()
        except (*BROKEN, TimeoutError) as error:
            problem = self._sign_in_problem or failed_listing(self._config, error, self._redact)
            raise error_message(self._redact.clean(problem)) from error
        self._tracker.sync_succeeded(known)
        return known

    async def send(
        self, tool: Tool, call: ToolCall, active_call: ActiveCall, limits: CallLimits
    ) -> ToolOutcome | RequestNotSent | NoResponse:
        """Send a call; once more after the pause that the server asks for, if it is short. A resource that the server
        would tell about is not read again.
        """
        keep, uri = None, (uri_of(call) if tool.kind is ToolKind.READ_RESOURCE else "")
        if uri:
            if (known := self.resources.get(uri)) is not None:
                return CallReturned(replace(known, call_id=call.id))
            keep = self.resources.start_read(uri)
        outcome = await self._send(tool, call, active_call, limits)
        if isinstance(outcome, RetryLater) and outcome.seconds < min(LONGEST_WAIT, limits.whole):
            await asyncio.sleep(outcome.seconds)
            outcome = await self._send(tool, call, active_call, limits)
        if isinstance(outcome, RetryLater):
            return CallReturned(results.failed_result(call.id, outcome.reason))
        if isinstance(outcome, CallReturned):
            if keep is not None:
                keep(outcome.result)
            if outcome.result.is_error and sdk.is_elicitation_impossible(outcome.result.text):
                self._tracker.record_older_elicitation()
        return outcome

    async def _send(
        self, tool: Tool, call: ToolCall, active_call: ActiveCall, limits: CallLimits
    ) -> ToolOutcome | RequestNotSent | RetryLater | NoResponse:
        outcome = await send_call(
            self.client, tool, call, active_call, limits=limits, redact=self._redact, folders=self._config.roots
        )
        attempt = active_call.attempt
        if attempt.server_failed and (problem := http_failure(self._config, attempt, self._redact)):
            self._tracker.record_call_error(problem, bounded_pause(attempt.retry_after))
        elif isinstance(outcome, CallReturned | CallNeedsInput):
            self._tracker.record_answered_call()
        return outcome

    async def read_resource(self, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""
        request = self.client.read_resource(uri, cache_mode="bypass")
        return await self._request(ToolKind.READ_RESOURCE, request, results.resource_pieces)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Get a prompt. Raises ServerTrouble."""
        request = self.client.get_prompt(name, dict(arguments))
        return await self._request(ToolKind.GET_PROMPT, request, results.prompt_pieces)

    async def complete(self, of: CompletionTarget, given: Mapping[str, str]) -> Sequence[str]:
        """Return the server's suggestions for a value; none if the request fails. Raises TimeoutError."""
        if self.client.server_capabilities.completions is None:
            return ()
        is_template, argument = of.is_template, {"name": of.argument, "value": of.value}
        target = types.ResourceTemplateReference(uri=of.name) if is_template else types.PromptReference(name=of.name)
        try:
            with self._connection.calls.other_request():
                answer = await self.client.complete(target, argument, dict(given) or None)
        except BROKEN as error:
            log.debug("MCP server %s: no suggestions for %s: %s", self._config.name, of.argument, error)
            return ()
        return results.suggestions(answer, self._redact)

    async def _request(
        self, kind: ToolKind, request: Awaitable[_Answer], convert: Callable[[_Answer, Redaction], Sequence[Piece]]
    ) -> Sequence[Piece]:
        try:
            with self._connection.calls.other_request():
                async with asyncio.timeout(self._config.tool_timeout):
                    return convert(await request, self._redact)
        except (*BROKEN, TimeoutError) as error:
            if self._sign_in_problem:
                raise error_message(self._redact.clean(self._sign_in_problem)) from error
            cause, fix = failed_request(kind, self._config, error, self._redact)
            raise ServerTrouble(self._redact.clean(cause), fix) from error

    @property
    def _sign_in_problem(self) -> str:
        """Reason of a rejected sign-in, else empty."""
        provider = self._token_provider
        return provider.problem if provider is not None and provider.is_signed_out else ""

    async def confirm(self, since: float) -> bool:
        """Make sure that the tools were fetched at `since` (clock seconds) or later, or are within the server's
        cache lifetime. Return False if that fails.

        Concurrent calls share one listing, or wait for one that begins after them.
        """
        client, before = self.client, self._known.definitions
        try:
            async with asyncio.timeout(self._shared.timing.waits.confirm), self._listing:
                if not self.listings.stale and (self._listed_at >= since or self._shared.clock() < self._fresh_until):
                    return True
                try:
                    self._known = await self._list(client)
                except asyncio.CancelledError:
                    self.listings.listing_cancelled()
                    raise
                self._tracker.tools_listed(self._known)
        except BROKEN as error:
            self._on_sync_failed(error)
            return False
        except TimeoutError:
            return False
        if self._known.definitions != before:
            # The owner task stores changes and notifies others.
            self.listings.mark_changed()
        return True

    async def _fetch(self) -> ServerCapabilities:
        client = self.client
        async with self._fetching:
            self._tracker.record_sync_start()
            try:
                async with asyncio.timeout(self._config.list_timeout):
                    async with self._listing:
                        self._known = await self._list(client)
                        self._tracker.tools_listed(self._known)
                    await self._fetch_others(client)
            except (*BROKEN, TimeoutError) as error:
                self._on_sync_failed(error)
                raise
            except asyncio.CancelledError:
                self.report(Event.REQUEST_FAILED)
                raise
            return self._known

    def _on_sync_failed(self, error: Exception) -> None:
        problem = self._redact.clean(failed_listing(self._config, error, self._redact))
        log.debug("MCP server %s: %s", self._config.name, problem)
        self._tracker.sync_failed(problem)
        if self.listings.listing:
            self.report(Event.REQUEST_FAILED)

    @property
    def _is_modern(self) -> bool:
        """True for a connected server of the newer era."""
        return self._client is not None and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def _on_server_request(self, method: str) -> None:
        if self._is_modern and method == sdk.ELICITATION:
            self._tracker.record_older_elicitation()

    def _new_client(self) -> Client:
        async def on_message(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, _CHANGES):
                self.listings.mark_changed()
            elif isinstance(message, types.ResourceUpdatedNotification):
                self.resources.drop_changed(message.params.uri)
            elif isinstance(message, StrayLine):
                self._tracker.stray_lines.add(message, self._redact.clean)

        async def on_log(params: types.LoggingMessageNotificationParams) -> None:
            self._tracker.server_log.add(params.level, params.data, self._redact.clean)

        async def on_elicitation(
            context: ClientRequestContext,  # noqa: ARG001 - the library gives it by name
            params: types.ElicitRequestParams,
        ) -> types.ElicitResult | types.ErrorData:
            if self._is_modern:
                # Only tool calls set a context; other requests come from the library.
                return types.ErrorData(code=types.INVALID_REQUEST, message=_ONLY_CALLS)
            return await self._connection.calls.on_elicitation(params)

        async def on_roots(context: ClientRequestContext) -> types.ListRootsResult:  # noqa: ARG001 - see above
            return list_folders(self._config.roots)

        return Client(
            open_transport(
                self._connection.negotiation.config,
                self._shared,
                self.stderr,
                on_end=lambda: self.report(Event.CONNECTION_LOST),
                on_request_failed=lambda: self.report(Event.REQUEST_FAILED),
                on_server_request=self._on_server_request,
            ),
            message_handler=on_message,
            logging_callback=on_log,
            log_level=LEVEL,
            elicitation_callback=on_elicitation,
            list_roots_callback=on_roots if self._config.roots else None,
            client_info=types.Implementation(name="countersign", version=bot.__version__),
            mode=self._connection.negotiation.mode,
            cache=None,
        )

    async def _list(self, client: Client) -> ServerCapabilities:
        """Return the known capabilities with the current tools and instructions."""
        self.listings.listing_started()
        began = self._shared.clock()
        self._shared.observe(CacheUsed(self._config.name, "refresh"))
        listed, ttl = await self._fetcher.list_tools(client)
        self.listings.listing_succeeded()
        self._connection.report(self, Event.TOOLS_LISTED)
        self._listed_at = began
        self._fresh_until = began + min(ttl, _LONGEST_TTL)
        if listed.left_out and listed.left_out != self._known.left_out:
            log.warning("MCP server %s: not offered: %s", self._config.name, "; ".join(listed.left_out))
        return replace(self._known, tools=listed.tools, instructions=listed.instructions, left_out=listed.left_out)

    async def _serve(self, client: Client) -> None:
        """Keep the capabilities up to date until the connection is lost or closed."""
        async with anyio.create_task_group() as watchers:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS and any(_change_notifications(client)):
                watchers.start_soon(self._read_notifications, client)
            await self._others(client)
            watchers.start_soon(self.resources.run, client)
            watchers.start_soon(monitor, client, self.report, self._connection.activity, self._shared)
            while self._tracker.state in SERVING and not self._connection.closing.is_set():
                if self.listings.is_due or self._tracker.state is State.SUSPECT:
                    await self._refresh()
                await self._wakeup.wait()
                self._wakeup.clear()
            watchers.cancel_scope.cancel()

    async def _others(self, client: Client) -> None:
        """Fetch resources, templates and prompts for the first time. Calls do not wait for it, and a failure is
        ignored.
        """
        async with self._fetching:
            self._tracker.record_sync_start()
            try:
                async with asyncio.timeout(self._config.list_timeout):
                    await self._fetch_others(client)
            except (*BROKEN, TimeoutError) as error:
                self._on_sync_failed(error)
            else:
                self._tracker.sync_succeeded(self._known)

    async def _fetch_others(self, client: Client) -> None:
        others = await self._fetcher.list_others(client, self._known)
        now = self._known
        self._known = replace(others, tools=now.tools, instructions=now.instructions, left_out=now.left_out)

    async def _refresh(self) -> None:
        """Fetch again after a change notification or a timer. Report only changes. Raises the error of a failed
        listing, which ends the connection.
        """
        before = self._tracker.synced
        try:
            known = await self._fetch()
        except (*BROKEN, TimeoutError):
            if self.listings.listing:
                raise
            return
        if before.status is SyncStatus.SYNCED and known == before.capabilities:
            self._tracker.sync_confirmed()
        else:
            self._tracker.sync_succeeded(known)

    async def _read_notifications(self, client: Client) -> None:
        """Read the stream of change notifications of newer servers, and open it again when it breaks. Missed
        notifications are not replayed, so everything is fetched after a break.
        """
        failures = 0
        tools, resources, prompts = _change_notifications(client)
        while True:
            began = anyio.current_time()
            try:
                async with client.listen(
                    tools_list_changed=tools, resources_list_changed=resources, prompts_list_changed=prompts
                ) as changes:
                    if failures:
                        self.listings.mark_changed()
                    async for _ in changes:
                        self.listings.mark_changed()
            except (SubscriptionLost, TimeoutError):
                log.debug("MCP server %s: notification stream ended", self._config.name)
            except MCPError as error:
                log.debug("MCP server %s: no notification stream: %s", self._config.name, error.message)
                if self._tracker.state is not State.LOST and error.code != types.CONNECTION_CLOSED:
                    return
            self.report(Event.REQUEST_FAILED)
            steady = anyio.current_time() - began >= STEADY_SECONDS
            failures = 1 if steady else failures + 1
            await anyio.sleep(self._shared.timing.retries.pause(failures, self._shared.chance()))


def _change_notifications(client: Client) -> tuple[bool, bool, bool]:
    """Return the announced change notifications: tools, resources, prompts."""
    offered = client.server_capabilities
    return (
        offered.tools is not None and bool(offered.tools.list_changed),
        offered.resources is not None and bool(offered.resources.list_changed),
        offered.prompts is not None and bool(offered.prompts.list_changed),
    )
