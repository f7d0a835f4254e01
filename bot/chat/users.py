"""Users of a chat platform: which of them the bot answers, a cache of lookups, and names in texts.

`TtlCache` has an expiry, a maximum size, and one request for concurrent lookups. Principals in texts of the engine and
the commands are replaced by names: `slack:U1` becomes `@sam`, and `slack-group:S1` becomes `@ops`. A name is plain text
and notifies no user. A principal without a name stays unchanged.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from time import monotonic
from typing import ClassVar, Generic, TypeVar

from bot.domain.commands import Reply
from bot.domain.conversations import Author, Member
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.rendering.text_safety import single_line

TTL_SECONDS = 300.0
MOST_ENTRIES = 2000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST = 20
"""Names that are looked up for one sentence."""
LONGEST_NAME = 80
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
NOT_FOR_GUESTS = gettext_lazy("I may not answer guests of this workspace. Please ask a full member.")
NOT_FOR_STRANGERS = gettext_lazy("I may not answer people from outside, only members.")


@dataclass(frozen=True, slots=True)
class PlatformUser:
    """A user or bot of a workspace, as the platform describes it."""

    platform: ClassVar[str]

    id: str
    name: str
    admin: bool = False
    external: bool = False
    bot: bool = False
    language: str | None = None
    time_zone: str | None = None

    @property
    def author(self) -> Author:
        """Author of messages, as the engine names users."""
        return Author(self.platform, self.id, self.name)


class RecentEntries(OrderedDict[K, V]):
    """Mapping of the `most` entries that were set last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


class TtlCache(Generic[K, V]):
    """Caches the latest values by key for TTL_SECONDS."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._entries = RecentEntries[K, tuple[float, V]](MOST_ENTRIES)
        self._locks: dict[K, asyncio.Lock] = {}
        self._cleared = 0

    async def get(self, key: K, request: Callable[[], Awaitable[V]], *, max_age: float = TTL_SECONDS) -> V:
        """Return the cached value of at most `max_age` seconds, or the result of `request`. Raises the errors of
        `request`, which are not cached.
        """
        if (entry := self._fresh(key, max_age)) is not None:
            return entry[1]
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # concurrent lookups of a key wait for the first one's value
                entry = self._fresh(key, max_age)
                return entry[1] if entry is not None else await self.refresh(key, request)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def refresh(self, key: K, request: Callable[[], Awaitable[V]]) -> V:
        """Return the result of `request`, and cache it. Raises the errors of `request`."""
        cleared, asked_at = self._cleared, self._clock()
        value = await request()
        if cleared == self._cleared:
            self.put(key, value, asked_at)
        return value

    def is_fresh(self, key: K) -> bool:
        """Return True if `get` would return the cached value."""
        return self._fresh(key, TTL_SECONDS) is not None

    def peek(self, key: K) -> V | None:
        """Return the cached value of any age, or None."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def put(self, key: K, value: V, at: float | None = None) -> None:
        """Cache a value, of a time by the clock; now without one."""
        self._entries[key] = (self._clock() if at is None else at, value)

    def clear(self) -> None:
        """Forget all values, also those of the requests under way."""
        self._cleared += 1
        self._entries.clear()

    def _fresh(self, key: K, max_age: float) -> tuple[float, V] | None:
        entry = self._entries.get(key)
        return entry if entry is not None and self._clock() - entry[0] < max_age else None


@dataclass(frozen=True, slots=True)
class PrincipalNames:
    """Names of one platform's principals. `principals` is a pattern for them, without groups. `name` returns the name
    of one, empty if there is none, or raises DeliveryFailed.
    """

    principals: str
    name: Callable[[str], Awaitable[str]]


async def resolve_mentions(names: PrincipalNames, sentence: str) -> str:
    """Return a sentence with names."""
    return await _replace(names, sentence, str)


async def resolve_reply_mentions(names: PrincipalNames, reply: Reply) -> Reply:
    """Return a reply with names. Code in its Markdown text stays unchanged, because it is there to be copied."""

    async def resolve(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple([await _replace(names, text, str) for text in texts])

    table = reply.table
    if table is not None:
        table = replace(table, rows=tuple([await resolve(row) for row in table.rows]))
    values = await resolve(value for _label, value in reply.details)
    details = tuple((label, value) for (label, _old), value in zip(reply.details, values, strict=True))
    return replace(
        reply,
        text=await _replace(names, reply.text, lambda name: _PUNCTUATION.sub(r"\\\1", name)),
        table=table,
        details=details,
    )


async def _replace(names: PrincipalNames, text: str, write: Callable[[str], str]) -> str:
    text = str(text)
    pattern = re.compile(rf"`[^`]*`|(?<![\w:-])({names.principals})\b")
    principals = list(dict.fromkeys(match[1] for match in pattern.finditer(text) if match[1]))
    replacements: dict[str, str] = {}
    for principal in principals[:MOST]:
        try:
            # A URL in a name would become a link.
            name = single_line((await names.name(principal)).replace("://", " "), LONGEST_NAME)
        except DeliveryFailed:
            name = ""
        replacements[principal] = write(f"@{name}" if name and name not in principal else principal)
    return pattern.sub(lambda match: replacements.get(match[1], match[0]), text) if replacements else text


@dataclass(frozen=True, slots=True)
class AudiencePolicy:
    """Rules of response. Guests belong to the workspace, external users to another one (Slack Connect); neither gets
    an answer unless the operator allows it. `follow_threads`: the bot also answers unmentioned messages in its
    threads. Rights of approvers and admins are checked elsewhere.
    """

    follow_threads: bool = True
    guests: bool = False
    strangers: bool = False

    def rejection(self, member: Member) -> str:
        """Return why the bot does not answer this user, empty if it does."""
        if member.external and not self.strangers:
            return str(NOT_FOR_STRANGERS)
        return str(NOT_FOR_GUESTS) if member.guest and not self.guests else ""
