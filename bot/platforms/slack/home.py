"""The bot's Home tab: pending approvals and elicitations of a user, their turns, and the server status.

`home_view` renders its content; `HomeRefresher` publishes it while it is open.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time

from bot.chat.actions import RunCommand, ViewPendingCall
from bot.chat.card_messages import elicitation_buttons, elicitation_expiry, elicitation_question
from bot.chat.context import AudiencePolicy
from bot.chat.message_model import Button, Buttons, Footer, Heading, Span, Text, Time, TimeFormat
from bot.domain.conversations import Member
from bot.domain.elicitation_answers import OpenElicitation
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.domain.turns import ToolStep, Turn, TurnStatus
from bot.domain.views import TurnView
from bot.errors import CountersignError
from bot.platforms.slack.blocks import (
    Block,
    button,
    buttons,
    divider,
    header,
    moment,
    rich_section,
    rich_text,
    section,
    small,
    words,
)
from bot.platforms.slack.message_blocks import message_blocks
from bot.platforms.slack.modals import View
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.rendering.approval_card import approval_card, headline
from bot.rendering.elicitation_card import elicitation_card
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
OPEN_SECONDS = 3600.0
MOST = 25
"""Number of tabs that are refreshed, the most recently opened ones."""
MAKING_SECONDS = 15.0
SHOWN = 10
"""Entries of each kind in a tab, far below Slack's limit for blocks."""
QUESTION_LIMIT = 120
WELCOME = (
    "Mention me in a channel, or write to me in the Messages tab. I answer in a thread, use the tools of this "
    "workspace's servers, and ask for an approval before I change anything."
)
NOTHING_WAITS = "Nothing waits for you."
NOT_ALL_READ = "Too many calls wait for others to look through all of them. The cards in their threads show the rest."
WAITS_FOR_YOU = "◇ waits for your answer"
_STANDS = {
    TurnStatus.QUEUED: "◇ waits its turn",
    TurnStatus.RUNNING: "◌ at work",
    TurnStatus.WAITING: "◇ waits for an approval",
    TurnStatus.DONE: "✓ answered",
    TurnStatus.FAILED: "✗ failed",
    TurnStatus.CANCELLED: "\N{EN DASH} stopped",
}
_LIGHTS = {
    ServerStatus.CONNECTED: "🟢",
    ServerStatus.IDLE: "🟢",
    ServerStatus.PENDING: "🟡",
    ServerStatus.CONNECTING: "🟡",
    ServerStatus.AUTH_REQUIRED: "🟡",
    ServerStatus.FAILED: "🔴",
    ServerStatus.DISCONNECTED: "⚪",
    ServerStatus.DISABLED: "⚪",
}


@dataclass(frozen=True, slots=True)
class PendingApprovalSummary:
    """A call that this user may decide."""

    turn: Turn
    step: ToolStep


@dataclass(frozen=True, slots=True)
class Home:
    """Content of one user's tab; lists are sorted newest first. `more_waiting` counts pending calls that are not
    listed; `all_counted` is False if more calls wait than were read. `inquiries` are open elicitations for the user.
    `servers` is None for users who administer no server; `now` is in epoch seconds.
    """

    now: float
    waiting: Sequence[PendingApprovalSummary] = ()
    inquiries: Sequence[OpenElicitation] = ()
    asked: Sequence[Turn] = ()
    servers: Sequence[ServerSnapshot] | None = None
    more_waiting: int = 0
    all_counted: bool = True
    first_visit: bool = False


def home_view(home: Home) -> View:
    """Return the view of the Home tab."""
    blocks: list[Block] = []
    if home.first_visit:
        blocks += [header("Hello"), section(WELCOME), divider()]
    blocks += _waiting(home)
    blocks += _asked(home)
    if home.servers is not None:
        blocks += _servers(home.servers)
    updated = moment(home.now, "{date_short_pretty} at {time}", "now")
    blocks.append(rich_text(rich_section(words("Updated "), updated)))
    return {"type": "home", "blocks": blocks}


def _waiting(home: Home) -> list[Block]:
    calls = len(home.waiting) + home.more_waiting
    count = calls + len(home.inquiries)
    number = f"{count}" if home.all_counted else f"at least {count}"
    blocks: list[Block] = [header(f"Waiting for you ({number})" if count else "Waiting for you")]
    if not count:
        return [*blocks, section(NOTHING_WAITS if home.all_counted else NOT_ALL_READ)]
    for inquiry in home.inquiries[:SHOWN]:
        made = elicitation_card(inquiry.step, inquiry.elicitation, TurnView(inquiry.turn, (inquiry.step,), 0))
        expiry = Footer(elicitation_expiry(made, home.now))
        blocks += message_blocks([*elicitation_question(made), expiry, elicitation_buttons(made.offers)])
    return [*blocks, *_calls(home.waiting), *_more(calls)]


def _calls(waiting: Sequence[PendingApprovalSummary]) -> list[Block]:
    blocks: list[Block] = []
    for each in waiting[:SHOWN]:
        approval, made = each.step.approval, approval_card(each.step)
        if approval is None or made is None:
            continue
        about: list[Span] = [Text(f"Asked by {made.asked_by}")]
        if approval.expires_at is not None:
            about += [Text(" · expires "), Time(approval.expires_at, TimeFormat.EXPIRY, made.expiry)]
        review = Buttons((Button("Review", ViewPendingCall(approval.id)),))
        blocks += message_blocks([Heading(headline(each.step, made)), Footer(tuple(about)), review])
    return blocks


def _asked(home: Home) -> list[Block]:
    if not home.asked:
        return []
    unanswered = frozenset(inquiry.turn.id for inquiry in home.inquiries)
    lines = [
        f"{WAITS_FOR_YOU if turn.id in unanswered else _STANDS[turn.status]}   "
        f"{single_line(turn.question.text, QUESTION_LIMIT)}"
        for turn in home.asked[:SHOWN]
    ]
    return [header("What you asked for"), section("\n".join(lines)), *_more(len(home.asked))]


def _servers(servers: Sequence[ServerSnapshot]) -> list[Block]:
    troubled = [server for server in servers if server.status in (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)]
    title = f"Servers ({len(servers)})" + (f" · {len(troubled)} in trouble" if troubled else "")
    lines = [_server(each) for each in (*troubled, *(server for server in servers if server not in troubled))][:SHOWN]
    text = "\n".join(lines) or "No servers yet. Try /mcp add."
    listing = buttons([button("Open the list", RunCommand(("mcp", "list")))])
    return [header(title), section(text), *_more(len(servers)), *listing]


def _server(server: ServerSnapshot) -> str:
    tools = "1 tool" if server.tool_count == 1 else f"{server.tool_count} tools"
    name = single_line(server.config.title or server.config.name, 60)
    return f"{_LIGHTS[server.status]} {name}   {server.status} · {tools}"


def _more(count: int) -> list[Block]:
    return small(f"and {count - SHOWN} more") if count > SHOWN else []


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
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._build = build
        self._clock = clock
        self._pause = pause
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()

    async def open(self, user: str, *, first_visit: bool) -> None:
        """Publish the tab of a user who opened it. Raises CountersignError."""
        tab = _Tab(self._clock(), first_visit)
        member = await self._people.member(user)
        home = await self._home(member, first_visit=first_visit)
        self._tabs[user] = replace(tab, shown=_digest(home))
        self._tabs.move_to_end(user)
        while len(self._tabs) > MOST:
            self._tabs.popitem(last=False)
        await self._publish(user, home)

    async def run(self) -> None:
        """Refresh the open tabs until cancelled."""
        while True:
            await self._pause(LOOK_SECONDS)
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
        home = await self._home(await self._people.cached_member(user), first_visit=tab.first_visit)
        shown = _digest(home)
        if shown == tab.shown or self._tabs.get(user) is not tab:
            return
        self._tabs[user] = replace(tab, shown=shown)
        await self._publish(user, home)

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
