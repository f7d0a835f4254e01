"""Everybody's Home tab: made when it is opened, and made anew while something that it shows changes.

Slack does not say when a tab is closed, so those that were opened lately in this process are looked at again every few
seconds, and published only if they would show something else. Nothing has to be called out for that, and a change that
another process made is found just the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic, time

from bot.domain.conversations import Member
from bot.errors import CountersignError
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.home import Home, home_view

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
OPEN_SECONDS = 3600.0
MOST = 25
"""So many tabs are kept up, those that were opened last."""
MAKING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Tab:
    """A tab as it was last published."""

    opened_at: float
    first_visit: bool
    shown: str = ""


class HomeRefresher:
    """Publishes them. `clock` is in seconds and never jumps."""

    def __init__(
        self,
        desk: PlatformContext,
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._desk = desk
        self._clock = clock
        self._pause = pause
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()

    async def open(self, user: str, *, first_visit: bool) -> None:
        """Somebody has opened their tab. Raises CountersignError."""
        tab = _Tab(self._clock(), first_visit)
        member = await self._desk.people.member(user)
        home = await self._home(member, first_visit=first_visit)
        self._tabs[user] = replace(tab, shown=_digest(home))
        self._tabs.move_to_end(user)
        while len(self._tabs) > MOST:
            self._tabs.popitem(last=False)
        await self._publish(user, home)

    async def run(self) -> None:
        """Look after the tabs that are open, until cancelled."""
        while True:
            await self._pause(LOOK_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Publish every tab anew that would show something else by now."""
        for user, tab in list(self._tabs.items()):
            if self._clock() - tab.opened_at > OPEN_SECONDS:
                self._tabs.pop(user, None)
                continue
            try:
                async with asyncio.timeout(MAKING_SECONDS):
                    await self._look_at(user, tab)
            except (CountersignError, TimeoutError) as error:
                log.info("a Home tab stays as it was: %s", error)
            except Exception:
                log.exception("a Home tab stays as it was")

    async def _look_at(self, user: str, tab: _Tab) -> None:
        if not self._desk.api.pacing.has_headroom("views.publish"):
            return
        # What they may sign is asked for anew when they press.
        home = await self._home(await self._desk.people.cached_member(user), first_visit=tab.first_visit)
        shown = _digest(home)
        if shown == tab.shown or self._tabs.get(user) is not tab:
            return
        self._tabs[user] = replace(tab, shown=shown)
        await self._publish(user, home)

    async def _publish(self, user: str, home: Home) -> None:
        await self._desk.api.edit("views.publish", user_id=user, view=home_view(home))

    async def _home(self, member: Member, *, first_visit: bool) -> Home:
        provide = self._desk.records.home_guild
        if provide is None or self._desk.manners.rejection(member):
            return Home(time(), first_visit=True)
        home = await provide(member)
        return replace(home, first_visit=True) if first_visit else home


def _digest(home: Home) -> str:
    """What a tab shows, but for the time at which it was made."""
    return hashlib.sha256(json.dumps(home_view(replace(home, now=0.0)), sort_keys=True).encode()).hexdigest()
