"""The home of one user: calls and elicitations that wait for them, their turns, and the servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.chat.actions import RunCommand
from bot.chat.approval_inbox import NOT_ALL_READ, NOTHING_WAITS, PendingCall, pending_call_blocks
from bot.chat.card_messages import elicitation_buttons, elicitation_expiry, elicitation_question
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    Caption,
    Footer,
    Message,
    Paragraph,
    Rule,
    Text,
    Time,
    TimeFormat,
    Title,
)
from bot.domain.elicitation_answers import OpenElicitation
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.domain.turns import Turn, TurnStatus, TurnView
from bot.rendering.elicitation_card import elicitation_card
from bot.rendering.text_safety import single_line

SHOWN = 10
"""Entries of each kind, far below Slack's limit for blocks."""
QUESTION_LIMIT = 120
WELCOME = (
    "Mention me in a channel, or write to me in the Messages tab. I answer in a thread, use the tools of this "
    "workspace's servers, and ask for an approval before I change anything."
)
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
class Home:
    """Content of one user's tab; lists are sorted newest first, pending calls oldest first. `more_waiting` counts
    pending calls that are not listed; `all_counted` is False if more calls wait than were read. `inquiries` are open
    elicitations for the user. `servers` is None for users who administer no server; `now` is in epoch seconds.
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
        yield Title("Hello")
        yield Paragraph((Text(WELCOME),))
        yield Rule()
    yield from _waiting(home)
    yield from _asked_turns(home)
    if home.servers is not None:
        yield from _servers(home.servers)
    yield Paragraph((Text("Updated "), Time(home.now, TimeFormat.EXPIRY, "now")))


def _waiting(home: Home) -> Iterator[Block]:
    calls = len(home.waiting) + home.more_waiting
    count = calls + len(home.inquiries)
    number = f"{count}" if home.all_counted else f"at least {count}"
    yield Title(f"Waiting for you ({number})" if count else "Waiting for you")
    if not count:
        yield Paragraph((Text(NOTHING_WAITS if home.all_counted else NOT_ALL_READ),))
    for inquiry in home.inquiries[:SHOWN]:
        card = elicitation_card(inquiry.step, inquiry.elicitation, TurnView(inquiry.turn, (inquiry.step,), 0))
        yield from elicitation_question(card)
        yield Footer(elicitation_expiry(card, home.now))
        yield elicitation_buttons(card.offers)
    for call in home.waiting[:SHOWN]:
        yield from pending_call_blocks(call, home.now)
    yield from _more(calls)


def _asked_turns(home: Home) -> Iterator[Block]:
    if not home.asked:
        return
    unanswered = frozenset(inquiry.turn.id for inquiry in home.inquiries)
    lines = [
        f"{WAITS_FOR_YOU if turn.id in unanswered else _STANDS[turn.status]}   "
        f"{single_line(turn.question.text, QUESTION_LIMIT)}"
        for turn in home.asked[:SHOWN]
    ]
    yield Title("What you asked for")
    yield Paragraph((Text("\n".join(lines)),))
    yield from _more(len(home.asked))


def _servers(servers: Sequence[ServerSnapshot]) -> Iterator[Block]:
    troubled = [server for server in servers if server.status in (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)]
    ordered = (*troubled, *(server for server in servers if server not in troubled))
    yield Title(f"Servers ({len(servers)})" + (f" · {len(troubled)} in trouble" if troubled else ""))
    yield Paragraph((Text("\n".join(map(_server, ordered[:SHOWN])) or "No servers yet. Try /mcp add."),))
    yield from _more(len(servers))
    yield Buttons((Button("Open the list", RunCommand(("mcp", "list"))),))


def _server(server: ServerSnapshot) -> str:
    tools = "1 tool" if server.tool_count == 1 else f"{server.tool_count} tools"
    name = single_line(server.config.title or server.config.name, 60)
    return f"{_LIGHTS[server.status]} {name}   {server.status} · {tools}"


def _more(count: int) -> Iterator[Block]:
    if count > SHOWN:
        yield Caption((f"and {count - SHOWN} more",))
