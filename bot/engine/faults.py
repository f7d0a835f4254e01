"""Faults of this process, reported for as long as they last.

A fault is a state and not an event: a source returns the current ones, without ended ones. So nothing is
lost or told twice when a process restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from time import monotonic, time

from bot.domain.health import Fault, FaultKind
from bot.domain.pins import ReviewPolicy, count_definitions
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.domain.tools import Tool, ToolKind
from bot.domain.usage import LimitPeriod, LimitStatus
from bot.errors import CountersignError, DatabaseError
from bot.i18n import _, gettext_lazy, ngettext
from bot.ports import FaultStore, ServerAdmin

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
REPEAT_SECONDS = 30.0
"""Seconds between two reports of a fault that lasts."""
HOLD_SECONDS = 100.0
"""Seconds after which a fault of a process that has vanished is over. Its successor reports it again before that."""
PATIENCE_SECONDS = 300.0
"""Seconds of failed attempts after which a server has failed although more attempts are planned."""
_LONGEST_CAUSE = 400
NEAR = 0.8
"""Used part of a usage limit from which on operators are told."""
_USABLE = (ServerStatus.CONNECTED, ServerStatus.IDLE)
_SERVERS_GUIDE = "docs/server-repair.md"
_PERIODS = {LimitPeriod.DAY: gettext_lazy("today"), LimitPeriod.MONTH: gettext_lazy("this month")}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A fault that may be over or not: it stays open if it is open."""

    key: str


FaultSource = Callable[[], Awaitable[Iterable[Fault | Suspicion]]]
"""Returns the faults of this process as they are now."""


class FaultReporter:
    """Reports the faults of this process to the store. `reporter` names the process; `clock` is in seconds,
    `wall_clock` in epoch seconds.
    """

    def __init__(
        self,
        store: FaultStore,
        reporter: str,
        sources: Collection[FaultSource] = (),
        *,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self.reporter = reporter
        self._sources = list(sources)
        self._clock = clock
        self._wall_clock = wall_clock
        self._pause = pause
        self._reported: dict[str, tuple[Fault | Suspicion, float]] = {}
        self._timed: dict[str, tuple[Fault, float]] = {}
        self._unsent: set[str] = set()

    def watch(self, source: FaultSource) -> None:
        """Include a source."""
        self._sources.append(source)

    def report(self, fault: Fault, until: float) -> None:
        """Report a fault that lasts until that time (epoch seconds)."""
        if self._timed.get(fault.key, (None, 0.0))[0] != fault:
            self._timed[fault.key] = fault, until
            self._unsent.add(fault.key)

    def report_limit(self, status: LimitStatus, owner: str) -> None:
        """Report a usage limit that is near or reached, until it resets."""
        if status.used >= NEAR * status.limit.most:
            self.report(limit_fault(status, owner), status.resets_at)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            try:
                await self.update()
            except DatabaseError as error:
                log.debug("faults not reported: %s", error)
            except Exception:
                log.exception("faults not reported")
            await self._pause(POLL_SECONDS)

    async def update(self) -> None:
        """Report the faults of now, and withdraw those that are over. Raises DatabaseError."""
        now, current = self._clock(), {fault.key: fault for source in self._sources for fault in await source()}
        for key, fault in current.items():
            before, at = self._reported.get(key, (None, 0.0))
            if fault == before and now - at < REPEAT_SECONDS:
                continue
            if isinstance(fault, Fault):
                await self._store.report(fault, self.reporter, HOLD_SECONDS)
            else:
                await self._store.extend(key, self.reporter, HOLD_SECONDS)
            self._reported[key] = fault, now
        for key in self._reported.keys() - current.keys():
            await self._store.withdraw(key, self.reporter)
            del self._reported[key]
        epoch = self._wall_clock()
        self._timed = {key: entry for key, entry in self._timed.items() if entry[1] > epoch}
        for key in list(self._unsent):
            if key in self._timed:
                timed, until = self._timed[key]
                await self._store.report(timed, "", until - epoch)
            self._unsent.discard(key)


class ServerFaults:
    """Faults of MCP servers: failed after all retries, waiting for a sign-in or for a review."""

    def __init__(self, servers: ServerAdmin, *, clock: Callable[[], float] = monotonic) -> None:
        self._servers = servers
        self._clock = clock
        self._failing_since: dict[str, float] = {}
        self._failed: dict[str, tuple[str, Fault]] = {}

    async def __call__(self) -> Iterable[Fault | Suspicion]:
        """Return the faults of now."""
        snapshots = self._servers.servers()
        now = self._clock()
        self._failing_since = {
            snapshot.config.id: self._failing_since.get(snapshot.config.id, now)
            for snapshot in snapshots
            if snapshot.status in (ServerStatus.FAILED, ServerStatus.CONNECTING)
        }
        faults = [
            fault
            for snapshot in snapshots
            for fault in (*self._of_connection(snapshot, now), *self._of_review(snapshot))
        ]
        return [*faults, *self._of_unused(snapshots, {fault.key for fault in faults})]

    def _of_unused(self, snapshots: Sequence[ServerSnapshot], current: Set[str]) -> Iterator[Fault]:
        """Yield the faults of servers that were disabled or removed once more: they have not recovered."""
        usable = {snapshot.config.id for snapshot in snapshots if snapshot.status in _USABLE}
        over = [server for server, (_, fault) in self._failed.items() if fault.key not in current]
        for server in over:
            name, fault = self._failed.pop(server)
            if server not in usable:
                yield replace(fault, over=_("MCP server {server} is not used any more", server=name))

    def _of_connection(self, snapshot: ServerSnapshot, now: float) -> Iterator[Fault | Suspicion]:
        name = snapshot.config.name
        failed = Fault(
            f"server:{snapshot.config.id}",
            FaultKind.SERVER_FAILED,
            _("MCP server {server} has failed", server=name),
            _("MCP server {server} recovered", server=name),
            " ".join(str(snapshot.own_problem).split())[:_LONGEST_CAUSE],
            command=f"/mcp show {name}",
            guide=_SERVERS_GUIDE,
        )
        sign_in = Fault(
            f"sign-in:{snapshot.config.id}",
            FaultKind.SIGN_IN,
            _("MCP server {server} waits for a sign-in", server=name),
            _("MCP server {server}: signed in", server=name),
            _("It does not accept the bot's credentials. Its tools are not offered until then."),
            _("sign in to it, or give it another secret"),
            f"/mcp show {name}",
            _SERVERS_GUIDE,
        )
        failing_seconds = now - self._failing_since.get(snapshot.config.id, now)
        match snapshot.status:
            case ServerStatus.AUTH_REQUIRED:
                self._failed[snapshot.config.id] = name, sign_in
                yield sign_in
            case ServerStatus.FAILED if not snapshot.is_retrying or failing_seconds >= PATIENCE_SECONDS:
                self._failed[snapshot.config.id] = name, failed
                yield failed
            case ServerStatus.FAILED | ServerStatus.CONNECTING | ServerStatus.PENDING:
                yield Suspicion(failed.key)
                yield Suspicion(sign_in.key)
            case _:
                pass

    def _of_review(self, snapshot: ServerSnapshot) -> Iterator[Fault]:
        if self._servers.review is not ReviewPolicy.CHANGED or snapshot.status is ServerStatus.DISABLED:
            return
        try:
            waiting = self._servers.unpinned_tools(snapshot.config.id)
        except CountersignError:
            return  # removed meanwhile
        if waiting:
            name = snapshot.config.name
            yield Fault(
                f"review:{snapshot.config.id}",
                FaultKind.REVIEW,
                _("MCP server {server} waits for a review", server=name),
                _("MCP server {server}: tools reviewed", server=name),
                _waiting_definitions(waiting),
                _("compare the definitions, and approve those that you want"),
                f"/mcp review {name}",
                _SERVERS_GUIDE,
            )


def _waiting_definitions(waiting: Sequence[Tool]) -> str:
    if any(definition.kind is ToolKind.INSTRUCTIONS for definition in waiting):
        definitions = count_definitions(waiting)
        return _("New or changed, and not offered until then: {definitions}.", definitions=definitions)
    return ngettext(
        "{n} of its tools is new or changed, and not offered until then.",
        "{n} of its tools are new or changed, and not offered until then.",
        len(waiting),
    )


def limit_fault(status: LimitStatus, owner: str) -> Fault:
    """Return the fault of a usage limit that is near or reached. `owner` is the user, channel or workspace."""
    limit, most = status.limit, status.limit_text
    state = "reached" if status.reached else "near"
    return Fault(
        f"limit:{state}:{limit.per}:{limit.every}:{limit.unit}:{owner}:{status.resets_at:.0f}",
        FaultKind.USAGE_LIMIT,
        _("Usage limit reached: {owner}", owner=f"{limit.per} {owner}")
        if status.reached
        else _("Usage limit near: {owner}", owner=f"{limit.per} {owner}"),
        _("Usage limit of {owner}: a new period has begun", owner=f"{limit.per} {owner}"),
        _(
            "All of {limit} for {period} are used. Further messages are rejected.",
            limit=most,
            period=_PERIODS[limit.every],
        )
        if status.reached
        else _(
            "{share} of {limit} for {period} are used.", share=f"{NEAR:.0%}", limit=most, period=_PERIODS[limit.every]
        ),
        _("raise the limit in the file of limits, or wait for the next period"),
        "/usage workspace",
        "docs/usage.md",
    )
