"""Connections of one HTTP server: how many there may be, and which one makes room for another.

A connection WAITS while its peer owes the next step: a request that has not arrived as a whole, or a response that the
peer does not read. A waiting connection can be closed without loss, so it never keeps a new one out. Knows no HTTP.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

log = logging.getLogger(__name__)

MOST = 2_000
_NOTE_SECONDS = 60.0
_IPV6_SITE = 64
"""Bits of an IPv6 address that name a site: its owner has all addresses below them."""


def most_connections() -> int:
    """At most half of the files that the system lets the process open: the rest is for database and platforms."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


class Evictable(Protocol):
    """A connection in the table."""

    @property
    def address(self) -> str:
        """IP address of the peer, empty if it has none."""

    def evict(self) -> None:
        """Close the connection now. Unsent data is lost."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one server: `most` connections in all. The head of a request must arrive within `head_seconds`. A peer
    that reads nothing of its response for `stalled_seconds` is cut off.
    """

    head_seconds: float = 10.0
    stalled_seconds: float = 60.0
    most: int = field(default_factory=most_connections)

    @property
    def per_address(self) -> int:
        """Connections of one address: a quarter of all."""
        return max(1, self.most // 4)

    @property
    def at_work(self) -> int:
        """Requests that are served at the same time: three quarters of the connections. The last quarter waits for its
        peers, so that one of it can make room.
        """
        return max(1, self.most * 3 // 4)


class TrustedProxies:
    """Addresses of reverse proxies, from IP addresses and networks; `*` is every address. Raises ValueError."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._every = "*" in names
        self.names = ["*"] if self._every else sorted(names)
        self._networks = [ipaddress.ip_network(name) for name in names if name != "*"]

    def __contains__(self, address: str) -> bool:
        if self._every:
            return True
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


@dataclass(slots=True)
class _Peer:
    """Connections of one address. `waiting` is ordered, the longest wait first."""

    is_proxy: bool
    total: int = 0
    waiting: OrderedDict[Evictable, None] = field(default_factory=OrderedDict)

    def longest_wait(self) -> Evictable | None:
        """The connection that has waited longest."""
        return next(iter(self.waiting), None)


class ConnectionTable:
    """The connections that one server holds. A proxy's address has no share of its own: it stands for many clients, and
    limits them itself.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        proxies: TrustedProxies,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._proxies = proxies
        self._clock = clock
        self._total = 0
        self._peers: dict[str, _Peer] = {}
        self._noted_at = -_NOTE_SECONDS

    def __len__(self) -> int:
        return self._total

    def admit(self, connection: Evictable) -> bool:
        """Take a new connection in, if need be in place of one that waits. Return False if every other is at work."""
        name = _share_of(connection.address)
        peer = self._peers.get(name)
        if peer is not None and not peer.is_proxy and peer.total >= self._limits.per_address:
            self._note("address %s has all of its %d connections", name, peer.total)
            if not self._evict(peer):
                return False
        if self._total >= self._limits.most:
            self._note("all %d connections are taken, the last by %s", self._total, name)
            if not self._evict(self._hindmost()):
                return False
        # An eviction may have removed the address.
        peer = self._peers.setdefault(name, _Peer(connection.address in self._proxies))
        peer.total += 1
        self._total += 1
        return True

    def wait(self, connection: Evictable) -> None:
        """Mark a connection as waiting for its peer. A waiting connection keeps its position in the order."""
        self._peers[_share_of(connection.address)].waiting.setdefault(connection)

    def work(self, connection: Evictable) -> None:
        """Mark a connection as served: it is not closed in favor of another."""
        self._peers[_share_of(connection.address)].waiting.pop(connection, None)

    def remove(self, connection: Evictable) -> None:
        """Release the place of an admitted connection."""
        self.work(connection)
        name = _share_of(connection.address)
        self._peers[name].total -= 1
        self._total -= 1
        if not self._peers[name].total:
            del self._peers[name]

    def _hindmost(self) -> _Peer | None:
        """The address with the most waiting connections, a proxy only if no other has one."""
        return max(self._peers.values(), key=lambda peer: (not peer.is_proxy and bool(peer.waiting), len(peer.waiting)))

    def _evict(self, peer: _Peer | None) -> bool:
        if peer is None or (oldest := peer.longest_wait()) is None:
            return False
        self.remove(oldest)
        oldest.evict()
        return True

    def _note(self, text: str, *values: object) -> None:
        """Log a warning at most once a minute."""
        now = self._clock()
        if now - self._noted_at >= _NOTE_SECONDS:
            self._noted_at = now
            log.warning(
                f"connections: {text}; the oldest unfinished ones make room. Fix: if the address is a reverse proxy, "  # noqa: G004 - our own text
                "name it in FORWARDED_ALLOW_IPS",
                *values,
            )


def _share_of(address: str) -> str:
    """The name that connections are counted by: an IPv4 address, or the site of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if (mapped := found.ipv4_mapped) is not None:
        return str(mapped)
    return str(ipaddress.ip_network((found, _IPV6_SITE), strict=False))
