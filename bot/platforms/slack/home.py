"""The bot's own tabs: Home, published when a user opens it and refreshed while it may be open, and the prompts that are
suggested in the pane of the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Any

from bot.chat.home_message import Home, home_message
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey, Member
from bot.domain.locales import Locale, use_locale
from bot.engine.locales import LocaleResolver
from bot.errors import CountersignError, DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.slack.message_blocks import message_blocks
from bot.platforms.slack.modals import View
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import ChannelRef, WebApi, conversation, direct_channel, text_in
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
OPEN_SECONDS = 3600.0
MOST = 25
"""Number of tabs that are refreshed, the most recently opened ones."""
MAKING_SECONDS = 15.0
SET_PROMPTS = "assistant.threads.setSuggestedPrompts"
USUAL_PROMPTS = (
    gettext_lazy("What can you do for me here?"),
    gettext_lazy("Which tools can you use, and which of them need an approval?"),
)
"""Prompts of a profile without any."""
MOST_PROMPTS = 4
PROMPT_TITLE = 60


def home_view(home: Home) -> View:
    """Return the view of the Home tab."""
    return {"type": "home", "blocks": message_blocks(home_message(home).blocks)}


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
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._build = build
        self._locales = locales
        self._clock = clock
        self._tabs: OrderedDict[str, tuple[float, bool, str]] = OrderedDict()
        """When each tab was opened, if by a first visit, and the digest of its content as it was last published."""

    async def open(self, user: str, *, first_visit: bool) -> None:
        """Publish the tab that a user opened. Raises CountersignError."""
        opened_at = self._clock()
        member = await self._people.member(user)
        with use_locale(await self._locale_of(member)):
            home = await self._home(member, first_visit=first_visit)
            self._tabs[user] = opened_at, first_visit, _digest(home)
            self._tabs.move_to_end(user)
            while len(self._tabs) > MOST:
                self._tabs.popitem(last=False)
            await self._api.edit("views.publish", user_id=user, view=home_view(home))

    async def run(self) -> None:
        """Refresh the open tabs until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Publish every tab with changed content."""
        for user, tab in list(self._tabs.items()):
            if self._clock() - tab[0] > OPEN_SECONDS:
                self._tabs.pop(user, None)
                continue
            try:
                async with asyncio.timeout(MAKING_SECONDS):
                    await self._look_at(user, tab)
            except (CountersignError, TimeoutError) as error:
                log.info("Home tab not updated: %s", error)
            except Exception:
                log.exception("Home tab not updated")

    async def _look_at(self, user: str, tab: tuple[float, bool, str]) -> None:
        opened_at, first_visit, last = tab
        if not self._api.pacing.has_headroom("views.publish"):
            return
        # A press looks the rights up again.
        member = await self._people.cached_member(user)
        with use_locale(await self._locale_of(member)):
            home = await self._home(member, first_visit=first_visit)
            shown = _digest(home)
            if shown == last or self._tabs.get(user) is not tab:
                return
            self._tabs[user] = opened_at, first_visit, shown
            await self._api.edit("views.publish", user_id=user, view=home_view(home))

    async def _locale_of(self, member: Member) -> Locale:
        return await self._locales.for_user(member.author, member.locale, None)

    async def _home(self, member: Member, *, first_visit: bool) -> Home:
        if self._build is None or self._audience.rejection(member):
            return Home(time(), first_visit=True)
        home = await self._build(member)
        return replace(home, first_visit=True) if first_visit else home


def _digest(home: Home) -> str:
    """Return a digest of a tab's content, without the time it was built."""
    return hashlib.sha256(json.dumps(home_view(replace(home, now=0.0)), sort_keys=True).encode()).hexdigest()


# -------------------- suggested prompts
# Slack reports that the pane of the agent was opened (`app_home_opened` with the tab `messages`), that its user looks
# at something else (`app_context_changed`), and for apps with the older surface a new thread
# (`assistant_thread_started`).


def opened_pane(event: Mapping[str, Any]) -> ChannelRef | None:
    """Return the location of the pane of an event: its direct channel, empty if unknown, and its thread, empty under
    agent view. Return None for any other event.
    """
    match event:
        case {"type": "app_home_opened", "tab": "messages", "user": str(user), "channel": str(channel)}:
            return ChannelRef(channel, user)
        case {"type": "app_context_changed", "user": str(user)}:
            place = ChannelRef(text_in(event, "channel"), user)
            return place if place.direct else ChannelRef("", user)
        case {
            "type": "assistant_thread_started",
            "assistant_thread": {"user_id": str(user), "channel_id": str(channel), "thread_ts": str(thread)},
        }:
            return ChannelRef(channel, user, thread)
        case _:
            return None


class SuggestedPrompts:
    """Shows the prompts of the profile. `find` returns those of a conversation; None suggests the usual ones."""

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        audience: AudiencePolicy,
        find: Callable[[ConversationKey], Sequence[str]] | None,
        locales: LocaleResolver,
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._find = find
        self._locales = locales

    async def show(self, pane: ChannelRef) -> None:
        """Show the prompts in a pane, unless its user gets no answers. Raises CountersignError."""
        member = await self._people.member(pane.user)
        if self._audience.rejection(member):
            return
        channel = pane.channel or await direct_channel(self._api, pane.user)
        where = conversation((await self._api.identity()).team, channel, pane.thread)
        prompts = self._find(where) if self._find is not None else ()
        if not prompts:
            with use_locale(await self._locales.for_user(member.author, member.locale, where)):
                prompts = tuple(map(str, USUAL_PROMPTS))
        try:
            await self._api.edit(
                SET_PROMPTS,
                channel_id=channel,
                thread_ts=pane.thread or None,
                prompts=[
                    {"title": single_line(prompt, PROMPT_TITLE), "message": str(prompt)}
                    for prompt in prompts[:MOST_PROMPTS]
                ],
            )
        except DeliveryFailed as failure:
            log.info("no prompts suggested: %s", failure)
