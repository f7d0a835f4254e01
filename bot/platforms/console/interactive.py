"""Interactive chat at a terminal: typed lines and keys.

The prompt appears before the engine is ready; lines typed meanwhile wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TextIO

from prompt_toolkit.input import create_input
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Receipt, StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.errors import CountersignError, NotFound
from bot.platforms.console import turn_tracker
from bot.platforms.console.auto_approval import ApproveMode, AutoApprover
from bot.platforms.console.cards import ApprovalActions, CardKeys, ElicitationKeys
from bot.platforms.console.command_runner import CommandRunner
from bot.platforms.console.console import Streams
from bot.platforms.console.lines import cells, clip, safe_lines, strip_markdown
from bot.platforms.console.local_user import LocalUser, fresh_conversation
from bot.platforms.console.screen import QUIET_SECONDS, LineHistory, Screen
from bot.platforms.console.slash import (
    COMMANDS,
    CheckCall,
    Help,
    Invoke,
    NewConversation,
    Quit,
    RunAgain,
    Say,
    SlashCompleter,
    StopTurn,
    UnknownCommand,
    parse,
)
from bot.platforms.console.theme import PROMPT, ConsoleTheme
from bot.platforms.console.transcript import LazyRenderer, Piece, PieceKind, TranscriptView
from bot.platforms.console.turn_tracker import StartState, TurnTracker, await_ready
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import single_line
from bot.rendering.turn_events import answer

# -------------------- chrome

REMINDED_TURNS = 3


class ChatChrome:
    """Greets, reminds, helps and echoes."""

    def __init__(self, page: TranscriptView, look: ConsoleTheme, model: str) -> None:
        self._page = page
        self._screen = page.screen
        self._look = look
        self._model = model

    def print_banner(self) -> None:
        """Print the banner."""
        name, *about = ("countersign", safe_lines(self._model), "/help")
        between = self._look.own(" · ")
        if cells(between.join((name, *about))) > self._screen.columns:
            about = about[-1:]
        words = (self._look.accent(name), *map(self._look.dim, about))
        self._page.put(Piece(PieceKind.TEXT, self._look.dim(between).join(words)))

    def remind(self, start: StartState) -> None:
        """Print the resumed conversation and its last turns on two lines each."""
        if not start.count:
            return
        turns = "1 earlier turn" if start.count == 1 else f"{start.count} earlier turns"
        self._page.remark(
            f"Continuing {safe_lines(single_line(start.conversation, 60))} ({turns}). /new starts a fresh one."
        )
        room = self._screen.columns - 2
        for view in start.ended[-REMINDED_TURNS:]:
            text = answer(view) if view.turn.question.call else strip_markdown(answer(view))
            said = single_line(text, room)
            told = (f"{PROMPT} {single_line(view.turn.question.text, room)}", f"  {said}".rstrip())
            lines = (clip(self._look.own(safe_lines(line)), room, self._look) for line in told if line)
            self._page.remark("\n".join(lines))

    def help(self) -> None:
        """Print the commands and keys."""
        rows = [*COMMANDS.items(), ("Enter", "sends; \\ and Enter, or Ctrl-J, begins a new line")]
        rows += [("Ctrl-C", "stops what runs; twice leaves"), ("Ctrl-R", "searches what was typed before")]
        widest = max(len(name) for name, _ in rows) + 2
        lines = (
            f"  {self._look.accent(name.ljust(widest))}{self._look.dim(self._look.own(does))}" for name, does in rows
        )
        self._page.put(Piece(PieceKind.REMARK, "\n".join(lines)))

    def echo(self, text: str) -> None:
        """Print a sent line above its result."""
        first, *more = safe_lines(text.strip()).split("\n")
        lines = [self._look.prompt + self._look.bold(first), *(f"  {self._look.bold(line)}" for line in more)]
        self._page.put(Piece(PieceKind.QUESTION, "\n".join(lines)))


FRAME_SECONDS = 0.1
LEAVE_HINT = "Press Ctrl-C again or Ctrl-D to leave"


class InteractiveChat:
    """Reads lines, asks the engine and renders turns. Handles the screen's input."""

    def __init__(
        self,
        *,
        person: LocalUser,
        watch: TurnTracker,
        page: TranscriptView,
        look: ConsoleTheme,
        typesetting: LazyRenderer,
        completer: SlashCompleter,
        approve: ApproveMode,
        model: str,
    ) -> None:
        self._person = person
        self._watch = watch
        self._page = page
        self._screen = page.screen
        self._typesetting = typesetting
        self._completer = completer
        self._approve = approve
        self._host = ChatChrome(page, look, model)
        self._errands = CommandRunner(person, page, typesetting, lambda: self._here)
        self._clerk = AutoApprover(approve, person, page.notice)
        does = ApprovalActions(person, self._errands, lambda: self._engine, lambda: self._commands)
        self._cards = CardKeys(page, look, decide=does.decide, allow=does.allow, change=does.change, spawn=self._spawn)
        self._inquiries = ElicitationKeys(page, look, say=does.say, spawn=self._spawn, done=self._look_again)
        self._turn = ""
        self._work: asyncio.Task[None] | None = None
        self._nothing_sent = False
        """True if the current task can be cancelled without a trace, because the engine has not received it."""
        self._busy = False
        self._stopping = False
        self._leaving = False
        self._queued: list[str] = []
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: CountersignError | None = None
        self._screen.listener = self
        page.on_view = self._seen

    async def run(
        self, engine: Awaitable[EngineApi], commands: Awaitable[Commands], opening: Awaitable[StartState]
    ) -> int:
        """Chat until the user leaves: 0 after Ctrl-D or /quit, 130 after Ctrl-C, 1 with one line after an error at
        startup.
        """
        self._engine, self._commands = asyncio.ensure_future(engine), asyncio.ensure_future(commands)
        self._host.print_banner()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._spawn(self._talk(opening))
                self._spawn(self._decide_by_rule())
                self._spawn(self._turn_spinner())
                self._spawn(self._offer_completions())
                self._spawn(self._typesetting.warm_up())
                code = await self._screen.run()
                for task in self._tasks:
                    task.cancel()
        finally:
            if self._failure is not None:
                self._page.complaint(str(self._failure))
        return 1 if self._failure is not None else code

    def interrupt(self) -> None:
        """Handle Ctrl-C: leave the form, or stop the running turn; without one, or the second time, leave."""
        if self._errands.filling.asking:
            self._errands.filling.withdraw()
        elif self._busy and not self._stopping:
            self._stop()
        elif self._busy:
            self._screen.leave(130)
        elif self._screen.text:
            self._screen.clear()
            self._leaving = False
        elif self._leaving:
            self._screen.leave(130)
        else:
            self._leaving = True
            self._screen.hint(LEAVE_HINT)

    def leave(self) -> None:
        """Handle Ctrl-D."""
        self._screen.leave(0)

    def line(self, text: str) -> None:
        """Handle a sent line: echo it and run it, or queue it behind the running one. Leaving, help and a stop do not
        wait.
        """
        self._leaving = False
        self._screen.hint("")
        meaning = parse(text)
        if meaning is None:
            return
        if isinstance(meaning, Quit):
            self._screen.leave(0)
        elif isinstance(meaning, Help):
            self._host.echo(text)
            self._host.help()
        elif isinstance(meaning, StopTurn):
            self._host.echo(text)
            self._clear_the_way()
        elif self._busy:
            self._queued.append(text)
            self._page.queued = tuple(self._queued)
            self._screen.refresh()
        else:
            self._take(text)

    def answer(self, key: str) -> None:
        """Handle a key on a card."""
        if self._inquiries.busy:
            self._inquiries.answer(key)
        else:
            self._cards.answer(key)

    def reason(self, text: str) -> None:
        """Handle a field of a form, or the reason of a denial."""
        if self._errands.filling.asking:
            self._errands.filling.answer(text)
        else:
            self._cards.reason(text)

    def withdraw(self) -> None:
        """Handle Escape or Ctrl-D in a form."""
        self._errands.filling.withdraw()

    # What happens beside the keys

    async def _talk(self, opening: Awaitable[StartState]) -> None:
        try:
            start = await await_ready(opening)
            if start.open:
                await await_ready(self._engine)
        except CountersignError as error:
            self._give_up(error)
            return
        self._watch.conversation = start.conversation
        self._host.remind(start)
        if start.open:
            await self._pick_up(start.open)
        while True:
            text = await self._lines.get()
            self._work = self._spawn(self._do(text))
            await asyncio.wait((self._work,))
            self._next()

    async def _pick_up(self, views: Sequence[TurnView]) -> None:
        """Resume turns that an earlier process left running or waiting here."""
        self._busy = True
        for view in views:
            self._page.begin("")
            self._watch.track(view.turn.id)
            self._host.echo(view.turn.question.text)
            self._page.append_own(view)
            self._watch.drew(view)
            await self._follow(view.turn.id)
        if self._lines.empty():  # else a line was sent before anybody knew of these turns, and it runs now
            self._next()

    async def _do(self, text: str) -> None:
        """Run a line, except for those that `line` runs at once."""
        if self._stopping:
            self._page.remark("Stopped.")
            return
        try:
            match parse(text):
                case Say() | CheckCall() | RunAgain() as wanted:
                    await self._ask(wanted)
                case Invoke(command, words):
                    await self._invoke(command, words)
                case NewConversation():
                    self._watch.conversation = fresh_conversation()
                    self._page.remark("A fresh conversation.")
                case UnknownCommand() as unknown:
                    self._page.notice(unknown.complaint)
                case Help() | Quit() | StopTurn() | None:
                    return
        except NotFound as error:
            self._page.notice(str(error))
        except CountersignError as error:
            self._page.complaint(str(error))
        finally:
            self._nothing_sent = False

    async def _ask(self, wanted: Say | CheckCall | RunAgain | InboundMessage) -> None:
        self._nothing_sent = True
        try:
            engine = await await_ready(self._engine)
        except CountersignError as error:
            self._give_up(error)
            return
        self._nothing_sent = False
        self._page.busy = "Thinking…"
        receipt = await self._watch.submit(self._handed(engine, wanted))
        await self._follow(receipt.turn_id)

    async def _handed(self, engine: EngineApi, wanted: Say | CheckCall | RunAgain | InboundMessage) -> Receipt:
        match wanted:
            case InboundMessage():
                return await engine.receive(wanted)
            case Say(message):
                return await engine.receive(self._person.says(message, self._watch.conversation))
            case CheckCall():
                return await turn_tracker.check(engine, self._person, self._here)
            case RunAgain():
                return await turn_tracker.run_again(engine, self._person, self._here)

    @property
    def _here(self) -> ConversationKey:
        return self._person.key(self._watch.conversation)

    async def _follow(self, turn_id: str) -> None:
        """Wait for the end of a turn, or for an interrupt."""
        self._turn = turn_id
        try:
            if self._stopping:
                await self._stop_turn(turn_id)
            await self._watch.end(turn_id, await await_ready(self._engine))
        finally:
            self._turn = ""
            self._page.forget(turn_id)

    async def _invoke(self, command: str, words: tuple[str, ...]) -> None:
        self._nothing_sent = True
        message = await self._errands.run(await await_ready(self._commands), command, words)
        if message is not None:
            await self._ask(message)

    def _next(self) -> None:
        """Run the next queued line, or return to the prompt."""
        self._busy = self._stopping = self._page.stopping = False
        self._work = None
        self._page.busy = ""
        if self._queued:
            text = self._queued.pop(0)
            self._page.queued = tuple(self._queued)
            self._take(text)
        self._screen.refresh()

    def _take(self, text: str) -> None:
        self._busy = True
        self._page.begin("" if self._engine.done() else "Starting…")
        self._host.echo(text)
        self._lines.put_nowait(text)

    def _stop(self) -> None:
        self._stopping = True
        self._screen.prefill("\n".join(self._queued))
        self._queued.clear()
        self._page.queued = ()
        self._page.stopping = True
        self._cards.withdraw()
        self._inquiries.withdraw()
        if self._turn:
            self._spawn(self._stop_turn(self._turn))
        elif self._work is not None and self._nothing_sent:
            self._work.cancel()
            self._page.remark("Stopped.")

    def _clear_the_way(self) -> None:
        """Stop the turn that the own one waits for, else the own one, else the running one of the conversation."""
        mine = self._watch.newest(self._turn)
        if self._busy and not (mine is not None and mine.ahead):
            if not self._stopping:
                self._stop()
        else:
            self._spawn(self._stop_what_holds())

    async def _stop_what_holds(self) -> None:
        try:
            await turn_tracker.stop(await await_ready(self._engine), self._person, self._here)
        except NotFound as error:
            self._page.notice(str(error))
        except CountersignError as error:
            self._page.complaint(str(error))
        else:
            self._page.notice("Stopped what was ahead." if self._busy else "Stopped.")

    async def _stop_turn(self, turn_id: str) -> None:
        try:
            await (await await_ready(self._engine)).stop(turn_id, self._person.author)
        except CountersignError as error:
            self._stopping = self._page.stopping = False
            self._page.complaint(str(error))

    # Approvals

    def _seen(self, view: TurnView) -> None:
        """Ask for the approvals of a rendered view, unless the rule of `--approve` decides."""
        calls = [step for step in view.steps if isinstance(step, ToolStep) and step.approval is not None]
        if self._watch.knows(view.turn.id):
            calls = [
                step for step in calls if step.status is not StepStatus.AWAITING or self._approve.verdict(step) is None
            ]
        self._cards.update(view, calls, asking=not (self._stopping or self._inquiries.busy))
        self._inquiries.update(view, asking=not (self._stopping or self._cards.busy))

    def _look_again(self) -> None:
        """Ask for other approvals after the last elicitation."""
        if (view := self._watch.newest(self._turn)) is not None:
            self._seen(view)

    async def _decide_by_rule(self) -> None:
        while True:
            asked = await self._watch.asked.get()
            try:
                await self._clerk.apply_rule(asked.step, await await_ready(self._engine))
            except CountersignError as error:
                self._page.complaint(str(error))

    # Small things

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _turn_spinner(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._busy:
                self._page.tick()

    async def _offer_completions(self) -> None:
        with contextlib.suppress(CountersignError):
            commands = await await_ready(self._commands)
            self._completer.more = lambda text: commands.complete(text, self._here)

    def _give_up(self, error: CountersignError) -> None:
        self._failure = error
        self._screen.leave(1)


def interactive(
    *,
    person: LocalUser,
    streams: Streams,
    watch: TurnTracker,
    model: str,
    approve: ApproveMode,
    history: Path | None,
    quiet_seconds: float | None,
    clock: Callable[[], float],
) -> tuple[InteractiveChat, TranscriptView]:
    """Return the interactive chat and its transcript view."""
    look = ConsoleTheme.of(streams.stdout, streams.environ)
    completer = SlashCompleter()
    quiet = QUIET_SECONDS if quiet_seconds is None else quiet_seconds
    screen = Screen(
        look=look,
        history=LineHistory(history),
        completer=completer,
        terminal=(create_input(streams.stdin), _output(streams.stdout)),
        quiet_seconds=quiet,
    )
    typesetting = LazyRenderer(look)
    page = TranscriptView(screen, look, typesetting, clock)
    chat = InteractiveChat(
        person=person,
        watch=watch,
        page=page,
        look=look,
        typesetting=typesetting,
        completer=completer,
        approve=approve,
        model=model,
    )
    return chat, page


def _output(stdout: TextIO) -> Output:
    """Return the terminal's output without cursor queries, because their answers would mix with the input."""
    output = create_output(stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output
