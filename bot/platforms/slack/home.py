"""Slack's Home tab: it is published when a user opens it, and refreshed while it may be open."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic, time

from bot.chat.home_message import Home, home_message
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import Member
from bot.domain.locales import Locale, use_locale
from bot.engine.locales import LocaleResolver
from bot.errors import CountersignError
from bot.platforms.slack.message_blocks import message_blocks
from bot.platforms.slack.modals import View
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
OPEN_SECONDS = 3600.0
MOST = 25
"""Number of tabs that are refreshed, the most recently opened ones."""
MAKING_SECONDS = 15.0


def home_view(home: Home) -> View:
    """Return the view of the Home tab."""
    return {"type": "home", "blocks": message_blocks(home_message(home).blocks)}


@dataclass(frozen=True, slots=True)
class _Tab:
    """A tab as it was last published."""

    opened_at: float
    first_visit: bool
    shown: str = ""


class HomeRefresher:
    """Publishes opened Home tabs. `build` returns the content for a user; without it every tab shows the welcome.
    `clock` is in seconds and never jumps.

    Slack does not report the closing of a tab, so recently opened tabs are polled every few seconds and published if
    they changed. Polling needs no events and also finds changes by other processes.
    """

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        audience: AudiencePolicy,
        build: Callable[[Member], Awaitable[Home]] | None,
        locales: LocaleResolver,
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._build = build
        self._locales = locales
        self._clock = clock
        self._pause = pause
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()

    async def open(self, user: str, *, first_visit: bool) -> None:
        """Publish the tab of a user who opened it. Raises CountersignError."""
        tab = _Tab(self._clock(), first_visit)
        member = await self._people.member(user)
        with use_locale(await self._locale_of(member)):
            home = await self._home(member, first_visit=first_visit)
            self._tabs[user] = replace(tab, shown=_digest(home))
            self._tabs.move_to_end(user)
            while len(self._tabs) > MOST:
                self._tabs.popitem(last=False)
            await self._publish(user, home)

    async def run(self) -> None:
        """Refresh the open tabs until cancelled."""
        while True:
            await self._pause(POLL_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Publish every tab whose content changed."""
        for user, tab in list(self._tabs.items()):
            if self._clock() - tab.opened_at > OPEN_SECONDS:
                self._tabs.pop(user, None)
                continue
            try:
                async with asyncio.timeout(MAKING_SECONDS):
                    await self._look_at(user, tab)
            except (CountersignError, TimeoutError) as error:
                log.info("Home tab not updated: %s", error)
            except Exception:
                log.exception("Home tab not updated")

    async def _look_at(self, user: str, tab: _Tab) -> None:
        if not self._api.pacing.has_headroom("views.publish"):
            return
        # What they may sign is asked for anew when they press.
        member = await self._people.cached_member(user)
        with use_locale(await self._locale_of(member)):
            home = await self._home(member, first_visit=tab.first_visit)
            shown = _digest(home)
            if shown == tab.shown or self._tabs.get(user) is not tab:
                return
            self._tabs[user] = replace(tab, shown=shown)
            await self._publish(user, home)

    async def _locale_of(self, member: Member) -> Locale:
        return await self._locales.for_user(member.author, member.locale, None)

    async def _publish(self, user: str, home: Home) -> None:
        await self._api.edit("views.publish", user_id=user, view=home_view(home))

    async def _home(self, member: Member, *, first_visit: bool) -> Home:
        if self._build is None or self._audience.rejection(member):
            return Home(time(), first_visit=True)
        home = await self._build(member)
        return replace(home, first_visit=True) if first_visit else home


def _digest(home: Home) -> str:
    """Return a digest of a tab's content, without the time it was built."""
    return hashlib.sha256(json.dumps(home_view(replace(home, now=0.0)), sort_keys=True).encode()).hexdigest()
