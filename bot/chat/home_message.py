"""Messages that introduce the bot: the home of one user, and the first message of a channel.

The home has the calls and elicitations that wait for the user, their turns, and the servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from time import time

from bot.admin.dependencies import Rights
from bot.chat.actions import RunCommand
from bot.chat.approval_inbox import (
    NOT_ALL_READ,
    NOTHING_WAITS,
    PendingCall,
    ReadPendingCalls,
    pending_call_blocks,
    read_if_readable,
    waiting_title,
)
from bot.chat.card_messages import elicitation_buttons, elicitation_expiry, elicitation_question
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    Caption,
    Footer,
    Heading,
    Markdown,
    Message,
    Paragraph,
    Rule,
    Text,
    Time,
    TimeFormat,
    Title,
    Tone,
    fill_spans,
)
from bot.domain.conversations import Member
from bot.domain.servers import EVERYWHERE, ServerSnapshot, ServerStatus
from bot.domain.turns import Turn, TurnStatus, TurnView
from bot.i18n import _, gettext_lazy, ngettext
from bot.ports import ServerAdmin, UserActivity
from bot.ports.platform import OpenElicitation
from bot.rendering.elicitation_card import elicitation_card
from bot.rendering.text_safety import single_line

SHOWN = 10
"""Entries of each kind, far below Slack's limit for blocks."""
QUESTION_LIMIT = 120
WELCOME = gettext_lazy(
    "Mention me in a channel, or write to me in the Messages tab. I answer in a thread, use the tools of this "
    "workspace's servers, and ask for an approval before I change anything."
)
WAITS_FOR_YOU = gettext_lazy("◇ waits for your answer")
_STANDS = {
    TurnStatus.QUEUED: gettext_lazy("◇ waits its turn"),
    TurnStatus.RUNNING: gettext_lazy("◌ at work"),
    TurnStatus.WAITING: gettext_lazy("◇ waits for an approval"),
    TurnStatus.DONE: gettext_lazy("✓ answered"),
    TurnStatus.FAILED: gettext_lazy("✗ failed"),
    TurnStatus.CANCELLED: gettext_lazy("\N{EN DASH} stopped"),
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
class Home:
    """Content of one user's tab; lists are sorted newest first, pending calls oldest first. `more_waiting` counts
    pending calls that are not listed; `all_counted` is False if more calls wait than were read. `inquiries` are open
    elicitations for the user. `servers` is None for users without a server to administer; `now` is in epoch seconds.
    """

    now: float
    waiting: Sequence[PendingCall] = ()
    inquiries: Sequence[OpenElicitation] = ()
    asked: Sequence[Turn] = ()
    servers: Sequence[ServerSnapshot] | None = None
    more_waiting: int = 0
    all_counted: bool = True
    first_visit: bool = False


def home_message(home: Home) -> Message:
    """Return the home as a message."""
    return Message("home", tuple(_blocks(home)))


def _blocks(home: Home) -> Iterator[Block]:
    if home.first_visit:
        yield Title(_("Hello"))
        yield Paragraph((Text(str(WELCOME)),))
        yield Rule()
    yield from _waiting(home)
    if home.asked:
        unanswered = frozenset(inquiry.turn.id for inquiry in home.inquiries)
        lines = [
            f"{WAITS_FOR_YOU if turn.id in unanswered else _STANDS[turn.status]}   "
            f"{single_line(turn.question.text, QUESTION_LIMIT)}"
            for turn in home.asked[:SHOWN]
        ]
        yield Title(_("What you asked for"))
        yield Paragraph((Text("\n".join(lines)),))
        yield from _more(len(home.asked))
    if home.servers is not None:
        yield from _servers(home.servers)
    yield Paragraph(fill_spans(_("Updated {time}"), time=Time(home.now, TimeFormat.EXPIRY, _("now"))))


def _waiting(home: Home) -> Iterator[Block]:
    calls = len(home.waiting) + home.more_waiting
    count = calls + len(home.inquiries)
    yield Title(waiting_title(count, all_counted=home.all_counted))
    if not count:
        yield Paragraph((Text(str(NOTHING_WAITS if home.all_counted else NOT_ALL_READ)),))
    for inquiry in home.inquiries[:SHOWN]:
        card = elicitation_card(inquiry.step, inquiry.elicitation, TurnView(inquiry.turn, (inquiry.step,), 0))
        yield from elicitation_question(card)
        yield Footer(elicitation_expiry(card, home.now))
        yield elicitation_buttons(card.offers)
    for call in home.waiting[:SHOWN]:
        yield from pending_call_blocks(call, home.now)
    if home.all_counted:
        yield from _more(calls)


def _servers(servers: Sequence[ServerSnapshot]) -> Iterator[Block]:
    troubled = [server for server in servers if server.status in (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)]
    ordered = (*troubled, *(server for server in servers if server not in troubled))
    count = _("Servers ({count})", count=len(servers))
    trouble = ngettext("{n} in trouble", "{n} in trouble", len(troubled)) if troubled else ""
    yield Title(" · ".join(filter(None, (count, trouble))))
    lines = []
    for server in ordered[:SHOWN]:
        tools = ngettext("{n} tool", "{n} tools", server.tool_count)
        name = single_line(server.config.title or server.config.name, 60)
        lines.append(f"{_LIGHTS[server.status]} {name}   {server.status.label} · {tools}")
    yield Paragraph((Text("\n".join(lines) or _("No servers yet. Try /mcp add.")),))
    yield from _more(len(servers))
    yield Buttons((Button(_("Open the list"), RunCommand(("mcp", "list"))),))


def _more(count: int) -> Iterator[Block]:
    if count > SHOWN:
        yield Caption((ngettext("and {n} more", "and {n} more", count - SHOWN),))


@dataclass(frozen=True, slots=True)
class HomeTabBuilder:
    """Builder of homes, from stored rows and the states of servers. Approvers and admins are looked up each time.
    `pending_calls` returns those that a user may decide, `get_elicitation` an elicitation by its id.
    """

    overview: UserActivity
    pending_calls: ReadPendingCalls
    get_elicitation: Callable[[str], Awaitable[OpenElicitation | None]]
    rights: Rights
    servers: ServerAdmin

    async def home(self, member: Member, here: str) -> Home:
        """Return one user's home in a workspace, by its key. Raises CountersignError."""
        pending = await self.pending_calls(member, here, 0, SHOWN)
        elicitations = await self.overview.open_elicitations(member.author.principal, f"{here}:", SHOWN)
        inquiries = await asyncio.gather(*map(self._open_elicitation, elicitations))
        servers = [state for state in self.servers.servers() if state.config.workspace in (EVERYWHERE, here)]
        return Home(
            time(),
            waiting=pending.calls,
            more_waiting=max(pending.count - SHOWN, 0),
            all_counted=pending.all_counted,
            inquiries=tuple(inquiry for inquiry in inquiries if inquiry is not None),
            asked=await self.overview.recent_turns(member.author.principal, f"{here}:", SHOWN),
            servers=servers if self.rights.administers(member) else None,
        )

    async def _open_elicitation(self, elicitation_id: str) -> OpenElicitation | None:
        """Return the elicitation, None if it is no longer open."""
        elicitation = await read_if_readable(self.get_elicitation(elicitation_id))
        return elicitation if elicitation is not None and elicitation.elicitation.open else None


def first_message(name: str, *, commands: bool) -> Message:
    """Return the message of a bot with this name. `commands` is True if it has slash commands."""
    tries = [
        _("Mention me with a question: `@{name} what can you do?`", name=name),
        _("Go on in the thread of my answer, without a mention."),
        _("Before I change anything, I post a card here. It shows the exact call, and somebody approves or denies it."),
    ]
    if commands:
        tries.append(_("`/mcp list` shows the servers that I work with, and their tools."))
    return Message(
        "first-message",
        (
            Heading(_("Hello, I am {name}", name=name)),
            Paragraph((Text(_("I answer questions with the tools of my MCP servers. This is what to try:")),)),
            Markdown("\n".join(f"- {line}" for line in tries)),
        ),
        Tone.NEUTRAL,
    )
