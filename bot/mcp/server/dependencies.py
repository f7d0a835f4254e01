"""Dependencies of the connections to all servers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bot.domain.metrics import MetricSink, null_sink
from bot.domain.pins import ReviewPolicy
from bot.domain.servers import ServerConfig
from bot.mcp.config.checks import AllowedTargets, Resolve, resolve_host
from bot.mcp.oauth.tokens import TokenProvider
from bot.mcp.redaction import KnownSecrets
from bot.mcp.server.retry import ConnectionTiming, StartLimiter
from bot.mcp.server.status import SyncNotifier


@dataclass(frozen=True, slots=True)
class ConnectionDependencies:
    """Dependencies of all connections. `clock` is in seconds. `names_beside` returns other servers' tool names."""

    start_limiter: StartLimiter = field(default_factory=StartLimiter)
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    timing: ConnectionTiming = ConnectionTiming()
    chance: Callable[[], float] = random.random
    allowances: AllowedTargets = AllowedTargets()
    resolve: Resolve = resolve_host
    sync_notifier: SyncNotifier = field(default_factory=SyncNotifier)
    observe: MetricSink = null_sink
    review: ReviewPolicy = ReviewPolicy.CHANGED
    names_beside: Callable[[ServerConfig], frozenset[str]] = lambda _: frozenset()
    clock: Callable[[], float] = time.monotonic
    token_provider: Callable[[ServerConfig], TokenProvider | None] = lambda _: None
