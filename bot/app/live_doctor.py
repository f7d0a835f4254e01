"""`countersign doctor --live`: a test on a live workspace, with a tester for clicks and messages.

First come the checks that need no tester (`bot.chat.live_check`). Then the bot itself runs (`bot.app.live_bot`), and
each step of the tester has a screen with an instruction and the expected result (`OperatorTerminal`). In the end all
posts are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO
from uuid import uuid4

from bot.app.check_report import format_check, format_fix, write_check_json
from bot.app.database import use_database
from bot.app.discord import is_configured as discord_is_configured
from bot.app.live_bot import LiveBot, run_bot
from bot.app.service import Platforms, open_platforms
from bot.app.slack import is_configured as slack_is_configured
from bot.chat.live_check import LivePlatform, MessageChecks
from bot.domain.conversations import ConversationKey
from bot.domain.metrics import null_sink
from bot.errors import SettingsError
from bot.examination import Check, CheckFailed, CheckSkipped, CheckStatus, Probe, run_check
from bot.logs import log_to_file
from bot.rendering.text_safety import single_line
from bot.settings import Settings
from bot.storage.address import read_address

log = logging.getLogger(__name__)

WAIT_SECONDS = 180.0
CONFIRM_SECONDS = 60.0
CLEAN_SECONDS = 60.0
_LONGEST = 300
_CLEAR = "\x1b[2J\x1b[H"
_CHUNK = 4096
_NAMES = {"slack": "Slack", "discord": "Discord"}
_CHANNEL_HINTS = {
    "slack": "In Slack: the channel's menu, Copy, Copy link; the id is the last part, such as C0123ABCD.",
    "discord": "In Discord: switch on Developer Mode, then Copy Channel ID in the channel's menu.",
}
_BESIDE = {
    "slack": "Slack hands each click to one program only.",
    "discord": "otherwise both programs answer you.",
}
_WELCOME = """\
countersign doctor --live · {name}

This tries the bot in your workspace, in about ten minutes:

  1. What a program can try: rights, posts, edits, threads, files. It takes a minute.
  2. What only you can try: clicks, commands and messages, {count} steps. Each says what to do and what you should see.
  3. A table of the results. All posts of the bot are marked as a test and deleted.

Stop `countersign run` first: {beside}
Ctrl-C ends the test at any time, and deletes what it has posted.

Channel  {channel}
"""
_STEP = """\
countersign doctor --live · {name} · {number} of {count}

{title}

  Do   {do}
  See  {see}

Waiting for it, at most {seconds:.0f} s.   s Enter: skip   f Enter: it failed
"""


async def check_live(settings: Settings, platform: str, channel: str, *, as_json: bool, wait: float) -> int:
    """Run the test and return the exit code. `wait` is in seconds for each step of a person. Raises
    CountersignError.
    """
    platform = _choose_platform(settings, platform)
    out: TextIO = sys.stderr if as_json else sys.stdout
    log_to_file("info", _log_file(settings))
    with use_database(settings, "countersign doctor --live", as_bot=True):
        async with open_operator_terminal(out) as terminal:
            channel = channel or await _ask_for_channel(terminal, platform)
            test = LiveTest(settings, platform, channel, terminal, as_json=as_json, wait=wait)
            try:
                await test.run()
            finally:
                test.summarize()
    return 1 if any(check.is_broken for check in test.checks) else 0


def _choose_platform(settings: Settings, wanted: str) -> str:
    """Return the platform to test. Raises SettingsError."""
    places = (("slack", slack_is_configured), ("discord", discord_is_configured))
    configured = [name for name, is_configured in places if is_configured(settings)]
    if wanted and wanted not in _NAMES:
        raise SettingsError(f"There is no platform {wanted!r:.40}.", "write slack or discord")
    if wanted and wanted not in configured:
        token = "SLACK_BOT_TOKEN" if wanted == "slack" else "DISCORD_TOKEN"
        raise SettingsError(f"{_NAMES[wanted]} is not configured.", f"set {token}")
    if not configured:
        raise SettingsError("No chat platform is configured.", "set SLACK_BOT_TOKEN or DISCORD_TOKEN")
    if not wanted and len(configured) > 1:
        raise SettingsError("Slack and Discord are both configured.", "say which: countersign doctor --live slack")
    return wanted or configured[0]


async def _ask_for_channel(terminal: OperatorTerminal, platform: str) -> str:
    terminal.print(f"In which channel of {_NAMES[platform]} shall the test be? The bot has to be in it.")
    terminal.print(_CHANNEL_HINTS[platform])
    terminal.print("Channel id, then Enter:")
    if not (line := await terminal.line()):
        raise SettingsError("No channel was named.", "name it with --channel")
    return line


def _log_file(settings: Settings) -> Path:
    return read_address(settings.database_url, settings.data_folder).folder / "doctor-live.log"


class PersonStep(NamedTuple):
    """One manual step: an instruction and the expected result. `wait` returns once the bot has noticed it."""

    name: str
    title: str
    do: str
    see: str
    fix: str
    wait: Callable[[], Awaitable[object]]
    prepare: Probe | None = None
    """Posts the card that the step needs, before the screen is shown."""


class LiveTest:
    """One run of the test. `checks` are the results so far."""

    def __init__(
        self,
        settings: Settings,
        platform: str,
        channel: str,
        terminal: OperatorTerminal,
        *,
        as_json: bool,
        wait: float,
    ) -> None:
        self._settings = settings
        self._name = platform
        self._terminal = terminal
        self._as_json = as_json
        self._wait = wait
        self._channel = ConversationKey(platform, "", channel.rpartition(":")[2], "")
        self.checks: list[Check] = []

    async def run(self) -> None:
        """Run all steps, and delete what was posted however they end. Raises CountersignError."""
        count = 9 if self._name == "slack" else 8
        name = _NAMES[self._name]
        self._terminal.screen(
            _WELCOME.format(name=name, count=count, beside=_BESIDE[self._name], channel=self._channel.channel)
        )
        if self._terminal.interactive:
            self._terminal.print("Enter: begin")
            await self._terminal.line()
            self._terminal.screen(f"countersign doctor --live · {name}\n")
        # The test has a database of its own, without installations.
        settings = self._settings.model_copy(update={"slack_client_id": ""})
        async with open_platforms(settings, null_sink) as platforms:
            live = await _live_platform(platforms, self._settings, self._name)
            async with aclosing(live.examine(self._channel)) as found:
                async for check in found:
                    self._add(check)
            if any(check.name in ("token", "channel") and check.is_broken for check in self.checks):
                self._terminal.print("The rest needs these first.")
                return
            self._channel = await live.locate(self._channel)
            messages = MessageChecks(live, self._channel, uuid4().hex, time.time())
            try:
                await self._run_steps(live, platforms, messages)
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLEAN_SECONDS):
                        self._add(await messages.clean_up())

    def summarize(self) -> None:
        """Print the table of results."""
        if not self.checks:
            return
        self._terminal.screen(f"countersign doctor --live · {_NAMES[self._name]} · results\n")
        width = max(len(check.name) for check in self.checks)
        columns = shutil.get_terminal_size().columns
        for check in self.checks:
            head = f"{check.finding.mark} {check.name:<{width}}  {check.finding:<7}  "
            room = max(columns - len(head), 30)
            texts = (single_line(check.detail, _LONGEST), format_fix(check, _LONGEST))
            for line in [line for text in texts for line in textwrap.wrap(text, room)] or [""]:
                self._terminal.print(f"{head}{line}".rstrip())
                head = " " * len(head)
        counts = {status: sum(check.finding is status for check in self.checks) for status in CheckStatus}
        self._terminal.print("\n" + " · ".join(f"{count} {status}" for status, count in counts.items() if count))
        self._terminal.print(f"The log is in {_log_file(self._settings)}.")

    async def _run_steps(self, live: LivePlatform, platforms: Platforms, messages: MessageChecks) -> None:
        for name, probe in messages.steps:
            self._add(await run_check(name, probe))
        if messages.thread is None:
            return
        async with AsyncExitStack() as stack:
            bot = await stack.enter_async_context(run_bot(self._settings, self._name, platforms, messages))
            thread = messages.thread
            self._add(await run_check("answer of the bot", lambda: bot.answer(thread)))
            self._add(check := await run_check("connection", lambda: bot.connect(stack)))
            if check.is_broken:
                return
            for connected in await live.examine_connected():
                self._add(connected)
            steps = _person_steps(self._name, await live.mention(), bot, thread)
            if self._terminal.interactive:
                self._terminal.print(f"\nThe next {len(steps)} steps are yours.   Enter: go on")
                await self._terminal.line()
            for number, step in enumerate(steps, start=1):
                self._add(await self._run_person_step(step, number, len(steps)))
            self._add(await run_check("direct message of the bot", lambda: messages.direct_message(bot.person)))

    async def _run_person_step(self, step: PersonStep, number: int, count: int) -> Check:
        if self._terminal.has_ended:
            return Check(step.name, CheckStatus.SKIPPED, "Nobody is at the terminal.")
        if step.prepare is not None and (check := await run_check(step.name, step.prepare)).is_broken:
            return check
        texts = {"title": step.title, "do": step.do, "see": step.see, "seconds": self._wait}
        self._terminal.screen(_STEP.format(name=_NAMES[self._name], number=number, count=count, **texts))
        self._terminal.forget_typed()
        return await run_check(step.name, partial(self._follow, step), timed=False)

    async def _follow(self, step: PersonStep) -> str:
        """Return once the bot has noticed the step and the person has seen its result. Raises CheckOutcome."""
        try:
            async with asyncio.timeout(self._wait):
                typed = await self._first_of(step.wait())
        except TimeoutError as error:
            raise CheckFailed(f"Nothing arrived within {self._wait:.0f} s.", step.fix) from error
        if typed == "f":
            raise CheckFailed("You said that it failed.", step.fix)
        if typed is not None:
            raise CheckSkipped("You skipped it." if typed else "Nobody is at the terminal.")
        self._terminal.print("✓ The bot has it. Do you see what is written above?   Enter: yes   f Enter: no")
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                typed = await self._terminal.line()
        if typed is None:
            return "The bot has it. Nobody said how it looks."
        if typed.lower().startswith("f"):
            raise CheckFailed(f"It is not seen as it should: {step.see}", "see the log, and report it")
        return "It works, and looks as it should."

    async def _first_of(self, event: Awaitable[object]) -> str | None:
        """Return None once the event has come, or the answer of the person instead: skipped, failed or no person."""
        waiting = asyncio.ensure_future(event)
        try:
            while True:
                line = asyncio.ensure_future(self._terminal.line())
                try:
                    await asyncio.wait({waiting, line}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    line.cancel()
                if waiting.done():
                    await waiting
                    return None
                typed = await line
                if typed is None or typed.lower()[:1] in ("s", "f"):
                    return "" if typed is None else typed.lower()[:1]
        finally:
            waiting.cancel()

    def _add(self, check: Check) -> None:
        """Record a result and print it."""
        self.checks.append(check)
        self._terminal.print(format_check(check.name, replace(check, seconds=None), _LONGEST))
        if self._as_json:
            write_check_json(check, platform=self._name)


async def _live_platform(platforms: Platforms, settings: Settings, name: str) -> LivePlatform:
    if name == "slack":
        from bot.platforms.slack.diagnostics import SlackLiveCheck  # noqa: PLC0415 - loads Slack's library

        assert platforms.slack is not None
        tokens = {"app_token": settings.slack_app_token, "signing_secret": settings.slack_signing_secret}
        plain = {key: secret.get_secret_value() for key, secret in tokens.items() if secret is not None}
        return SlackLiveCheck(platforms.slack.own.api, **plain)
    from bot.platforms.discord.diagnostics import DiscordLiveCheck  # noqa: PLC0415 - loads Discord's library

    assert platforms.discord is not None
    return DiscordLiveCheck(platforms.discord.rest, platforms.discord.people)


# -------------------- the steps of a person


def _person_steps(platform: str, mention: str, bot: LiveBot, thread: ConversationKey) -> list[PersonStep]:
    """Return the steps in order."""
    events = "compare Event Subscriptions and Socket Mode of the app with docs/slack.md"
    interactivity = "switch on Interactivity & Shortcuts in the app's settings"
    if platform == "discord":
        events = "check its permissions in the channel and the Message Content Intent, see docs/discord.md"
        interactivity = "clear Interactions Endpoint URL on the General Information page of the application"
    menu = "More message shortcuts" if platform == "slack" else "Apps"
    steps = [
        PersonStep(
            "approve",
            "Press a button",
            "In the thread of the test, press Approve on the card “Add a note”.",
            "The card says that you approved it, and an answer follows below.",
            f"stop other programs with this token; else {interactivity}",
            bot.approve_step,
            lambda: bot.post_card(thread, "a test of Countersign"),
        ),
        PersonStep(
            "edit",
            "Change the arguments of a call",
            "On the new card in the thread, press Edit…, change the text, and send the form.",
            "The card has your text, and says that you changed it.",
            interactivity,
            bot.edit_step,
            lambda: bot.post_card(thread, "a text to be changed"),
        ),
        PersonStep(
            "deny",
            "Deny with a reason",
            "On the same card, press Deny…, write a reason, and send the form.",
            "The card says that you denied it, with your reason.",
            interactivity,
            bot.deny_step,
        ),
        PersonStep(
            "mention",
            "Mention the bot",
            f"In the channel, write: {mention} show my notes",
            "The answer is in a thread at your message, and says which notes there are.",
            events,
            lambda: bot.receive_step(lambda message: message.conversation.thread != thread.thread),
        ),
        PersonStep(
            "thread reply",
            "Go on in a thread",
            "In the thread of that answer, write without a mention: thank you",
            "The bot answers you.",
            events,
            bot.follow_step,
        ),
        PersonStep(
            "slash command",
            "Type a command",
            "In the channel, write /mcp list and send it.",
            "A list of servers, with the server notes. Only you can see it.",
            "start the bot once, so that the commands are registered" if platform == "discord" else events,
            bot.command_step,
        ),
        PersonStep(
            "ask about this",
            "Ask about a message",
            f"Open the menu of any message in the channel, choose {menu}, Ask about this, and ask: what is this?",
            "An answer in a thread.",
            interactivity,
            lambda: bot.receive_step(lambda message: bool(message.context)),
        ),
        PersonStep(
            "direct message",
            "Write to the bot directly",
            "Open the direct messages with the bot, and write: hello",
            "The answer grows or appears there.",
            events,
            lambda: bot.receive_step(lambda message: message.conversation.channel != thread.channel),
        ),
        PersonStep(
            "home",
            "Open the Home tab",
            "Open the bot's Home tab.",
            "A page that begins with what waits for you, and names the servers.",
            "switch on the Home tab (App Home), and subscribe to app_home_opened",
            bot.home_step,
        ),
    ]
    return steps if platform == "slack" else steps[:-1]


class OperatorTerminal:
    """Prints screens to `out` and reads lines. `interactive` is False without a keyboard."""

    def __init__(self, out: TextIO, *, interactive: bool) -> None:
        self._out = out
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = ""
        self.interactive = interactive
        self.has_ended = False
        """True if no further line can come."""

    def print(self, text: str = "") -> None:
        """Print lines."""
        self._out.write(f"{text}\n")
        self._out.flush()

    def screen(self, text: str) -> None:
        """Print a screen, on a terminal in place of the one before."""
        self.print(f"{_CLEAR}{text}" if self.interactive and self._out.isatty() else f"\n{text}")

    async def line(self) -> str | None:
        """Return the next typed line, None at the end of the input."""
        if self.has_ended:
            return None
        line = await self._lines.get()
        self.has_ended = line is None
        return line

    def forget_typed(self) -> None:
        """Drop lines that were typed before they were asked for."""
        while not self._lines.empty():
            self.has_ended = self._lines.get_nowait() is None

    def feed(self, data: bytes) -> None:
        """Take typed bytes; none at the end of the input."""
        if not data:
            self._lines.put_nowait(None)
            return
        *lines, self._rest = (self._rest + data.decode("utf-8", "replace")).split("\n")
        for line in lines:
            self._lines.put_nowait(line.strip())


@asynccontextmanager
async def open_operator_terminal(out: TextIO) -> AsyncIterator[OperatorTerminal]:
    """Read standard input while the block runs."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    terminal = OperatorTerminal(out, interactive=sys.stdin.isatty())

    def read() -> None:
        data = os.read(descriptor, _CHUNK)
        terminal.feed(data)
        if not data:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # a file, which is always ready
        terminal.feed(await asyncio.to_thread(sys.stdin.buffer.read))
        terminal.feed(b"")
    try:
        yield terminal
    finally:
        loop.remove_reader(descriptor)
