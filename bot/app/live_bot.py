"""The bot of `countersign doctor --live`: the real program with the demo model, the bundled notes and its own database.

It answers in the channel of the test and to the tester, and nowhere else. Its posts are remembered, to be deleted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from bot.app.discord import build_listener as discord_listener_of
from bot.app.models import select_model
from bot.app.operator_files import read_operator_files
from bot.app.slack import build_listener as slack_listener_of
from bot.app.slack import build_lookups
from bot.app.web import serve_web
from bot.chat.live_check import MessageChecks
from bot.chat.turn_messages import REMOVED, split_mark
from bot.domain.approvals import Approval
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.health import ListenerStatus
from bot.domain.turns import PostedMessage, Receipt, StepStatus, ToolStep, TurnView
from bot.errors import DeliveryFailed
from bot.ports import Commands, EngineApi, Listener, TurnLog
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.components import Runtime
    from bot.app.service import Platforms
    from bot.chat.home_message import Home

log = logging.getLogger(__name__)

CONNECT_SECONDS = 45.0
TURN_SECONDS = 60.0
_POLL_SECONDS = 0.2
_POLICY = """\
default = "ASK_USER"
[[rules]]
policy = "ALWAYS_ALLOW"
server = "notes"
tool = "list"
[[rules]]
policy = "ASK_USER"
server = "notes"
tool = "add"
approvers = ["members"]
"""


class _Proxy:
    """Passes everything on that it has no function for."""

    def __init__(self, inner: Any, **functions: Any) -> None:
        self._inner = inner
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


Deliveries = dict[str, tuple[int, str]]
"""Delivered revision of each turn, and the reason if its delivery was given up."""


def _watch_log(inner: TurnLog, messages: MessageChecks, deliveries: Deliveries) -> TurnLog:
    """Return the turn log, whose posted messages are deleted after the test."""

    async def mark_delivered(turn_id: str, revision: int) -> bool:
        deliveries[turn_id] = revision, ""
        return await inner.mark_delivered(turn_id, revision)

    async def give_up_delivery(turn_id: str, revision: int, reason: str) -> bool:
        deliveries[turn_id] = revision, reason
        return await inner.give_up_delivery(turn_id, revision, reason)

    async def save_message_ref(turn_id: str, drawn: PostedMessage) -> None:
        await inner.save_message_ref(turn_id, drawn)
        mark, ref = split_mark(drawn.ref)
        if mark != REMOVED and ":" in ref:
            messages.remember(ref)

    functions = (mark_delivered, give_up_delivery, save_message_ref)
    return cast("TurnLog", _Proxy(inner, **{function.__name__: function for function in functions}))


T = TypeVar("T")


@dataclass
class LiveBot:
    """The running bot of the test, with the events that it has noticed."""

    runtime: Runtime
    platforms: Platforms
    settings: Settings
    messages: MessageChecks
    channel: ConversationKey
    deliveries: Deliveries
    person: str = ""
    """Id of the tester, known after the first click or message."""
    commands: int = 0
    homes: int = 0
    received: list[tuple[InboundMessage, str]] = field(default_factory=list)
    listener: Listener | None = None
    card: str = ""
    """Turn of the newest card."""

    async def receive(self, message: InboundMessage) -> Receipt:
        """Take a message in the channel of the test, or of the tester, and record it. Others are not answered."""
        if message.conversation.channel != self.channel.channel and message.author.id != self.person:
            log.info("a message outside of the test is not answered")
            return Receipt("", redelivery=True)
        receipt = await self.runtime.engine.receive(message)
        if not receipt.redelivery:
            self.person = self.person or message.author.id
            self.received.append((message, receipt.turn_id))
            self.messages.remember_conversation(message.conversation)
        return receipt

    def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Handle a command, and count it."""
        self.commands += isinstance(request, Invocation)
        return self.runtime.commands.handle(request)

    async def answer(self, thread: ConversationKey) -> str:
        """Let the bot answer in the thread by itself, with a tool."""
        turn_id = await self._ask(thread, "Show my notes")
        async with asyncio.timeout(TURN_SECONDS):
            view = await self._until(turn_id, lambda view: view if view.turn.status.ended else None)
            await _poll(lambda: self.deliveries.get(turn_id, (0, ""))[0] >= view.revision)
        if reason := self.deliveries[turn_id][1]:
            raise DeliveryFailed(reason, "see the log", permanent=True)
        if view.turn.failure:
            raise DeliveryFailed(view.turn.failure, "see the log", permanent=True)
        return "A turn with a tool is answered in the thread."

    async def connect(self, stack: AsyncExitStack) -> str:
        """Receive from the platform from now on."""
        self.listener = listener = await self._listener(stack)
        engine = cast("EngineApi", _Proxy(self.runtime.engine, receive=self.receive))
        commands = cast("Commands", _Proxy(self.runtime.commands, handle=self.handle))
        running = asyncio.create_task(listener.run(engine, commands), name="live check: listener")
        stack.push_async_callback(lambda: asyncio.gather(running, return_exceptions=True))
        stack.callback(running.cancel)
        async with asyncio.timeout(CONNECT_SECONDS):
            while await listener.listening() is not ListenerStatus.CONNECTED:
                if running.done():
                    await running
                await asyncio.sleep(_POLL_SECONDS)
        return "Events arrive."

    async def post_card(self, thread: ConversationKey, text: str) -> str:
        """Post a card that is to be decided. Raises DeliveryFailed."""
        if self.card:
            # A turn whose card was skipped would keep the next one waiting.
            await self.runtime.engine.stop(self.card, _doctor(thread))
        self.card = card = await self._ask(thread, f"Save a note: {text}")
        async with asyncio.timeout(TURN_SECONDS):
            view = await self._until(card, lambda view: view if view.awaiting or view.turn.status.ended else None)
            await _poll(lambda: self.deliveries.get(card, (0, ""))[0] >= view.revision)
        if not view.awaiting:
            raise DeliveryFailed("The card was not posted.", "see the log", permanent=True)
        return "The card is posted."

    async def approve_step(self) -> None:
        """Wait until the card is approved."""
        step, approval = await self._until(self.card, _decided_card)
        self.person = self.person or approval.decided_by.partition(":")[2]
        if step.status is StepStatus.DENIED:
            raise DeliveryFailed("The call was denied.", "press Approve")

    async def edit_step(self) -> None:
        """Wait until the arguments on the card are changed."""
        await self._until(self.card, lambda view: [card for card in _cards(view) if card[1].revision > 1] or None)

    async def deny_step(self) -> None:
        """Wait until the card is denied."""
        step, _approval = await self._until(self.card, _decided_card)
        if step.status is not StepStatus.DENIED:
            raise DeliveryFailed("The call was not denied.", "press Deny… instead of Approve")

    async def receive_step(self, is_wanted: Callable[[InboundMessage], bool]) -> None:
        """Wait for a new message, and for the answer to it."""
        known = len(self.received)
        while True:
            for message, turn_id in self.received[known:]:
                if is_wanted(message):
                    await self._until(turn_id, lambda view: view if view.turn.status.ended else None)
                    return
            await asyncio.sleep(_POLL_SECONDS)

    async def follow_step(self) -> None:
        """Wait for a message in the thread of an earlier one."""
        conversations = {message.conversation for message, _ in self.received}
        await self.receive_step(lambda message: message.conversation in conversations)

    async def command_step(self) -> None:
        """Wait for a command."""
        known = self.commands
        await _poll(lambda: self.commands > known)

    async def home_step(self) -> None:
        """Wait until a Home tab is built."""
        known = self.homes
        await _poll(lambda: self.homes > known)

    async def _ask(self, thread: ConversationKey, text: str) -> str:
        message = InboundMessage((f"live-check:{uuid4().hex}",), thread, _doctor(thread), text)
        return (await self.runtime.engine.receive(message)).turn_id

    async def _until(self, turn_id: str, find: Callable[[TurnView], T | None]) -> T:
        while True:
            if (value := find(await self.runtime.engine.view(turn_id))) is not None:
                return value
            await asyncio.sleep(_POLL_SECONDS)

    async def _listener(self, stack: AsyncExitStack) -> Listener:
        if self.platforms.discord is not None and self.channel.platform == "discord":
            return discord_listener_of(self.platforms.discord, self.runtime, self.settings)
        assert self.platforms.slack is not None
        lookups = build_lookups(self.platforms.slack, self.runtime)
        build = lookups.build_home

        async def build_home(member: Member, workspace: str) -> Home:
            assert build is not None
            home = await build(member, workspace)
            self.homes += 1
            return home

        lookups = replace(lookups, build_home=build_home)
        listener = slack_listener_of(self.platforms.slack, self.runtime, self.settings, lookups)
        if listener.hook is not None:
            await stack.enter_async_context(serve_web(self.settings, hooks=[listener.hook]))
        return listener


def _doctor(thread: ConversationKey) -> Author:
    return Author(thread.platform, "doctor", "countersign doctor")


def _decided_card(view: TurnView) -> tuple[ToolStep, Approval] | None:
    return next((card for card in _cards(view) if card[0].status is not StepStatus.AWAITING), None)


def _cards(view: TurnView) -> list[tuple[ToolStep, Approval]]:
    steps = (step for step in view.steps if isinstance(step, ToolStep))
    return [(step, step.approval) for step in steps if step.approval is not None]


async def _poll(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def run_bot(
    settings: Settings, name: str, platforms: Platforms, messages: MessageChecks
) -> AsyncIterator[LiveBot]:
    """Run the bot with the demo model, the bundled notes and a database of its own."""
    from bot.app.runtime import open_runtime  # noqa: PLC0415 - loads the database and MCP

    assert messages.thread is not None
    deliveries: Deliveries = {}
    with tempfile.TemporaryDirectory(prefix="countersign-live-") as folder:
        own = _own_settings(settings, Path(folder))
        app = platforms.slack if name == "slack" else platforms.discord
        assert app is not None
        files = read_operator_files(own)
        async with open_runtime(
            own,
            files,
            select_model(own),
            [app.surface],
            watch_log=lambda turn_log: _watch_log(turn_log, messages, deliveries),
        ) as runtime:
            await runtime.services.toolbox.wait_ready()
            yield LiveBot(runtime, platforms, own, messages, messages.thread, deliveries)


def _own_settings(settings: Settings, folder: Path) -> Settings:
    """Return the settings of the test: the tokens of the operator, and nothing else of their setup."""
    notes: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-P", "-m", "mcp_servers.notes"],
        "env": {"NOTES_FILE": str(folder / "notes.json"), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        "trusted": True,
        "words": "shared",
        "sends": "team",
    }
    servers, policy, empty = folder / "mcp_servers.json", folder / "policy.toml", folder / "empty.toml"
    servers.write_text(json.dumps({"mcpServers": {"notes": notes}}), encoding="utf-8")
    policy.write_text(_POLICY, encoding="utf-8")
    empty.touch()
    return settings.model_copy(
        update={
            "auto_migrate": True,
            "database_url": f"sqlite:///{folder / 'test.db'}",
            "bot_model": "demo",
            "mcp_enabled": True,
            "mcp_servers_file": servers,
            "mcp_launch_templates_file": empty,
            "mcp_secret_grants_file": empty,
            "mcp_allowed_servers": frozenset(),
            "policy_file": policy,
            "prices_file": empty,
            "limits_file": empty,
            "mcp_approval_default_policy": None,
            "audit_checkpoint_file": "",
            "audit_checkpoint_command": (),
            "ops_channel": None,
            "public_url": None,
        }
    )
