"""Interactive chat at a terminal: typed lines and keys. It imports prompt_toolkit.

The prompt appears before the engine is ready; lines typed meanwhile wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from prompt_toolkit.input import create_input

from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Receipt, StepStatus, ToolStep, TurnView
from bot.errors import CountersignError, NotFound
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext
from bot.platforms.console import turn_tracker
from bot.platforms.console.auto_approval import ApproveMode, AutoApprover
from bot.platforms.console.cards import CardKeys
from bot.platforms.console.command_runner import CommandRunner
from bot.platforms.console.console import ConsoleSurface, Streams
from bot.platforms.console.lines import PROMPT, ConsoleTheme, cells, clip, fold, safe_lines, strip_markdown
from bot.platforms.console.local_user import LocalUser, Questions, fresh_conversation
from bot.platforms.console.screen import QUIET_SECONDS, LineHistory, Screen, SlashCompleter, output_without_queries
from bot.platforms.console.transcript import Piece, PieceKind, TranscriptView
from bot.platforms.console.turn_tracker import StartState, TurnTracker, Welcome, await_ready, error_code
from bot.platforms.console.typed_lines import (
    COMMANDS,
    Invoke,
    LocalCommand,
    OpenConversation,
    RepeatCall,
    Say,
    UnknownCommand,
    parse,
)
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import answer

# -------------------- chrome

REMINDED_TURNS = 3
WELCOMED_SERVERS = 12


class ChatChrome:
    """Greets, reminds, helps and echoes."""

    def __init__(self, transcript: TranscriptView, model: str) -> None:
        self._transcript = transcript
        self._screen = transcript.screen
        self._theme = transcript.theme
        self._model = model

    def print_banner(self) -> None:
        """Print the banner."""
        name, *about = ("countersign", safe_lines(self._model), "/help")
        between = self._theme.own_text(" · ")
        if cells(between.join((name, *about))) > self._screen.columns:
            about = about[-1:]
        words = (self._theme.accent(name), *map(self._theme.dim, about))
        self._transcript.print_pieces(Piece(PieceKind.TEXT, self._theme.dim(between).join(words)))

    def welcome(self, welcome: Welcome) -> None:
        """Print the connected servers and messages to try."""
        tools, names = sum(welcome.servers.values()), [*map(str, welcome.servers)]
        servers = format_enumeration([*names[:WELCOMED_SERVERS], *(["…"] if len(names) > WELCOMED_SERVERS else [])])
        connected = ngettext("{servers} · {n} tool", "{servers} · {n} tools", tools, servers=servers)
        demo = _("a demo without AI. A real one answers with OPENAI_API_KEY or ANTHROPIC_API_KEY in .env")
        rows = [(_("Model"), [demo])] if welcome.is_demo else []
        known = [connected] if names else []
        if welcome.starting:
            known.append(_("starting: {servers}", servers=format_enumeration(welcome.starting)))
        rows.append((_("Servers"), known or [_("none that has tools yet. /mcp add adds one")]))
        if welcome.in_trouble:
            broken = format_enumeration(welcome.in_trouble)
            rows.append((_("In trouble"), [_("{servers}. /mcp list says why", servers=broken)]))
        if welcome.examples:
            rows.append((_("Try"), [f"{PROMPT} {example}" for example in welcome.examples]))
        rows.append(("/", [_("lists the commands")]))
        self._print_rows(rows)

    def _print_rows(self, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Print texts beside their names, folded to the window."""
        widest = max(cells(name) for name, _texts in rows) + 2
        lines: list[str] = []
        for name, texts in rows:
            folded = [
                line
                for text in texts
                for line in fold(self._theme.own_text(safe_lines(text)), max(self._screen.columns - widest - 2, 20))
            ]
            indents = [self._theme.accent(name) + " " * (widest - cells(name)), *[" " * widest] * len(folded)]
            lines += [f"  {indent}{self._theme.dim(line)}" for indent, line in zip(indents, folded, strict=False)]
        self._transcript.print_pieces(Piece(PieceKind.REMARK, "\n".join(lines)))

    def remind(self, start: StartState) -> None:
        """Print the resumed conversation and its last turns on two lines each, or the reason for a new one. Say which
        other conversations wait for an approval.
        """
        self._remind_of_waiting(start)
        if start.elsewhere:
            elsewhere = safe_lines(single_line(start.elsewhere, 60))
            text = _("{conversation} is open elsewhere. This is a new conversation.", conversation=elsewhere)
            self._transcript.remark(text)
        if not start.count:
            return
        text = ngettext(
            "Continuing {conversation} ({n} earlier turn). /new starts a fresh one.",
            "Continuing {conversation} ({n} earlier turns). /new starts a fresh one.",
            start.count,
            conversation=safe_lines(single_line(start.conversation, 60)),
        )
        self._transcript.remark(text)
        room = self._screen.columns - 2
        for view in start.ended[-REMINDED_TURNS:]:
            text = answer(view) if view.turn.question.call else strip_markdown(answer(view))
            reply = single_line(text, room)
            texts = (f"{PROMPT} {single_line(view.turn.question.text, room)}", f"  {reply}".rstrip())
            lines = (clip(self._theme.own_text(safe_lines(line)), room, self._theme) for line in texts if line)
            self._transcript.remark("\n".join(lines))

    def _remind_of_waiting(self, start: StartState) -> None:
        if not start.waiting:
            return
        names = dict.fromkeys(safe_lines(single_line(turn.conversation.thread, 60)) for turn in start.waiting)
        text = ngettext(
            "{n} call waits for you in {conversations}: /approvals",
            "{n} calls wait for you in {conversations}: /approvals",
            len(start.waiting),
            conversations=format_enumeration([*names]),
        )
        self._transcript.notice(text)

    def help(self) -> None:
        """Print the commands and keys."""
        rows = [(name, str(summary)) for name, summary in COMMANDS.items()]
        rows.append(("Enter", _("sends; \\ and Enter, or Ctrl-J, begins a new line")))
        rows.append(("Ctrl-C", _("stops what runs; twice leaves")))
        rows.append(("Ctrl-R", _("searches what was typed before")))
        self._print_rows([(name, [purpose]) for name, purpose in rows])

    def echo(self, text: str) -> None:
        """Print a sent line above its result."""
        first, *more = safe_lines(text.strip()).split("\n")
        lines = [self._theme.prompt + self._theme.bold(first), *(f"  {self._theme.bold(line)}" for line in more)]
        self._transcript.print_pieces(Piece(PieceKind.QUESTION, "\n".join(lines)))


WARM_UP = "`code`\n\n```python\nprint(1)\n```"
FRAME_SECONDS = 0.1
LEAVE_HINT = gettext_lazy("Press Ctrl-C again or Ctrl-D to leave")


class InteractiveChat:
    """Reads lines, asks the engine and renders turns. Handles the screen's input.

    `model` is the label in the banner, `history` the file of typed lines, `files` the folder for tool files. `welcome`
    is shown in a new conversation once it is known. `quiet_seconds` is the pause in typing before a card takes a key,
    `clock` the source of the waiting time.
    """

    def __init__(
        self,
        user: LocalUser,
        streams: Streams,
        *,
        model: str,
        approve: ApproveMode = ApproveMode.ASK,
        history: Path | None = None,
        files: Path | None = None,
        welcome: Awaitable[Welcome] | None = None,
        quiet_seconds: float = QUIET_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        theme = ConsoleTheme.for_stream(streams.stdout, streams.environ)
        self._user = user
        self._welcome = welcome
        self._used = False
        """True after the first sent line."""
        self._questions = Questions(user)
        self._tracker = TurnTracker()
        self._completer = SlashCompleter()
        self._screen = Screen(
            theme=theme,
            history=LineHistory(history),
            completer=self._completer,
            terminal=(create_input(streams.stdin), output_without_queries(streams.stdout)),
            quiet_seconds=quiet_seconds,
        )
        self._screen.listener = self
        self._transcript = TranscriptView(self._screen, theme, clock)
        self._transcript.on_view = self._ask_approvals
        self.surface = ConsoleSurface(user, self._tracker, self._transcript, files)
        self._approve = approve
        self._chrome = ChatChrome(self._transcript, model)
        self._runner = CommandRunner(user, self._transcript, lambda: self._conversation)
        self._approver = AutoApprover(approve, user, self._transcript.notice)
        self._cards = CardKeys(
            self._transcript,
            user,
            self._runner,
            engine=lambda: self._engine,
            commands=lambda: self._commands,
            spawn=self._spawn,
        )
        self._turn = ""
        self._work: asyncio.Task[None] | None = None
        self._nothing_sent = False
        """True if the current task can be cancelled without a trace, because the engine has not received it."""
        self._opened = False
        """True once the conversation is known and its reminder is printed."""
        self._busy = False
        self._stopping = False
        self._leaving = False
        self._queued: list[str] = []
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: CountersignError | None = None

    async def run(
        self, engine: Awaitable[EngineApi], commands: Awaitable[Commands], opening: Awaitable[StartState]
    ) -> int:
        """Chat until the user leaves: 0 after Ctrl-D or /quit, 130 after Ctrl-C, 1 with one line after an error at
        startup.
        """
        self._engine, self._commands = asyncio.ensure_future(engine), asyncio.ensure_future(commands)
        self._chrome.print_banner()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._spawn(self._run_lines(opening))
                self._spawn(self._decide_by_rule())
                self._spawn(self._turn_spinner())
                self._spawn(self._offer_completions())
                self._spawn(self._greet(opening))
                self._spawn(self._load_renderer())
                code = await self._screen.run()
                for task in self._tasks:
                    task.cancel()
        finally:
            if self._failure is not None:
                self._transcript.print_error(str(self._failure))
        return error_code(self._failure) if self._failure is not None else code

    def interrupt(self) -> None:
        """Handle Ctrl-C: leave the form, or stop the running turn; without one, or the second time, leave."""
        if self._runner.form_prompt.asking:
            self._runner.form_prompt.withdraw()
        elif self._busy and not self._opened:
            self._unqueue()
            self._busy = False
            self._transcript.busy = ""
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
            self._screen.hint(str(LEAVE_HINT))

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
        self._used = True
        if meaning is LocalCommand.QUIT:
            self._screen.leave(0)
        elif meaning is LocalCommand.HELP:
            self._chrome.echo(text)
            self._chrome.help()
        elif meaning is LocalCommand.STOP:
            self._chrome.echo(text)
            self._stop_blocking()
        elif self._busy or not self._opened:
            self._queued.append(text)
            self._transcript.queued = tuple(self._queued)
            if not self._busy:
                self._busy = True
                self._transcript.start_activity(_("Starting…"))
            self._screen.refresh()
        else:
            self._start_line(text)

    def answer(self, key: str) -> None:
        """Handle a key on a card."""
        self._cards.answer(key)

    def reason(self, text: str) -> None:
        """Handle a field of a form, or the reason of a denial."""
        if self._runner.form_prompt.asking:
            self._runner.form_prompt.answer(text)
        else:
            self._cards.reason(text)

    def withdraw(self) -> None:
        """Handle Escape or Ctrl-D in a form."""
        self._runner.form_prompt.withdraw()

    # Events besides keys

    async def _run_lines(self, opening: Awaitable[StartState]) -> None:
        try:
            start = await await_ready(opening)
            if start.open:
                await await_ready(self._engine)
        except CountersignError as error:
            self._fail(error)
            return
        self._tracker.begin(start)
        self._chrome.remind(start)
        self._opened = True
        if start.open:
            await self._resume(start.open)
            self._next()
        elif self._busy:
            self._next()
        self._spawn(self._offer_conversations())
        while True:
            text = await self._lines.get()
            self._work = self._spawn(self._run_line(text))
            await asyncio.wait((self._work,))
            self._next()

    async def _greet(self, opening: Awaitable[StartState]) -> None:
        """Print the welcome, unless the conversation is an earlier one or the user has begun already."""
        if self._welcome is None:
            return
        with contextlib.suppress(CountersignError):
            start = await await_ready(opening)
            welcome = await await_ready(self._welcome)
            if not (start.count or self._used):
                self._chrome.welcome(welcome)

    async def _resume(self, views: Sequence[TurnView]) -> None:
        """Resume turns that an earlier process left running or waiting here."""
        self._busy = True
        for view in views:
            self._transcript.start_activity("")
            self._tracker.track(view.turn.id)
            self._chrome.echo(view.turn.question.text)
            self._transcript.append_own(view)
            self._tracker.record(view)
            await self._follow(view.turn.id)

    async def _run_line(self, text: str) -> None:
        """Run a line, except for those that `line` runs at once."""
        if self._stopping:
            self._transcript.remark(_("Stopped."))
            return
        try:
            match parse(text):
                case Say() | LocalCommand.CHECK | LocalCommand.AGAIN as action:
                    await self._ask(action)
                case Invoke(command, words):
                    await self._invoke(command, words)
                case LocalCommand.NEW:
                    self._tracker.open(fresh_conversation())
                    self._transcript.remark(_("A fresh conversation."))
                    await self._offer_conversations()
                case OpenConversation(name):
                    start = await self._tracker.reopen(name)
                    self._chrome.remind(start)
                    await self._offer_conversations()
                    await self._resume(start.open)
                case UnknownCommand() as unknown:
                    self._transcript.notice(unknown.error)
                case LocalCommand.HELP | LocalCommand.QUIT | LocalCommand.STOP | None:
                    return
        except NotFound as error:
            self._transcript.notice(str(error))
        except CountersignError as error:
            self._transcript.print_error(str(error))
        finally:
            self._nothing_sent = False

    async def _ask(self, action: Say | RepeatCall | InboundMessage) -> None:
        self._nothing_sent = True
        try:
            engine = await await_ready(self._engine)
        except CountersignError as error:
            self._fail(error)
            return
        self._nothing_sent = False
        self._transcript.busy = _("Thinking…")
        receipt = await self._tracker.submit(self._submit(engine, action))
        await self._follow(receipt.turn_id)

    async def _submit(self, engine: EngineApi, action: Say | RepeatCall | InboundMessage) -> Receipt:
        match action:
            case InboundMessage():
                return await engine.receive(self._user.prepare(action))
            case Say(message):
                agents = engine.agents(self._conversation)
                return await engine.receive(self._questions.read(message, self._tracker.conversation, agents))
            case LocalCommand():
                return await turn_tracker.repeat(engine, self._user, self._conversation, action)

    @property
    def _conversation(self) -> ConversationKey:
        return self._user.key(self._tracker.conversation)

    async def _follow(self, turn_id: str) -> None:
        """Wait for the end of a turn, or for an interrupt."""
        self._turn = turn_id
        try:
            if self._stopping:
                await self._stop_turn(turn_id)
            await self._tracker.end_turn(turn_id, await await_ready(self._engine))
        finally:
            self._turn = ""
            self._transcript.drop_turn(turn_id)

    async def _invoke(self, command: str, words: tuple[str, ...]) -> None:
        self._nothing_sent = True
        message = await self._runner.run(await await_ready(self._commands), (command, *words))
        if message is not None:
            await self._ask(message)

    def _next(self) -> None:
        """Run the next queued line, or return to the prompt."""
        self._busy = self._stopping = self._transcript.stopping = False
        self._work = None
        self._transcript.busy = ""
        if self._queued:
            text = self._queued.pop(0)
            self._transcript.queued = tuple(self._queued)
            self._start_line(text)
        self._screen.refresh()

    def _start_line(self, text: str) -> None:
        self._busy = True
        self._transcript.start_activity("" if self._engine.done() else _("Starting…"))
        self._chrome.echo(text)
        self._lines.put_nowait(text)

    def _unqueue(self) -> None:
        self._screen.prefill("\n".join(self._queued))
        self._queued.clear()
        self._transcript.queued = ()

    def _stop(self) -> None:
        self._stopping = True
        self._unqueue()
        self._transcript.stopping = True
        self._cards.withdraw()
        if self._turn:
            self._spawn(self._stop_turn(self._turn))
        elif self._work is not None and self._nothing_sent:
            self._work.cancel()
            self._transcript.remark(_("Stopped."))

    def _stop_blocking(self) -> None:
        """Stop the turn that the own one waits for, else the own one, else the running one of the conversation."""
        own_view = self._tracker.newest(self._turn)
        if self._busy and not (own_view is not None and own_view.ahead):
            if not self._stopping:
                self._stop()
        else:
            self._spawn(self._stop_blocking_turn())

    async def _stop_blocking_turn(self) -> None:
        try:
            await turn_tracker.stop(await await_ready(self._engine), self._user, self._conversation)
        except NotFound as error:
            self._transcript.notice(str(error))
        except CountersignError as error:
            self._transcript.print_error(str(error))
        else:
            self._transcript.notice(_("Stopped what was ahead.") if self._busy else _("Stopped."))

    async def _stop_turn(self, turn_id: str) -> None:
        try:
            await (await await_ready(self._engine)).stop(turn_id, self._user.author)
        except CountersignError as error:
            self._stopping = self._transcript.stopping = False
            self._transcript.print_error(str(error))

    def _ask_approvals(self, view: TurnView) -> None:
        """Ask for the approvals of a rendered view, unless the rule of `--approve` decides."""
        calls = [step for step in view.steps if isinstance(step, ToolStep) and step.approval is not None]
        if self._tracker.owns(view.turn.id):
            calls = [
                step for step in calls if step.status is not StepStatus.AWAITING or self._approve.verdict(step) is None
            ]
        self._cards.update(view, calls, asking=not self._stopping)

    async def _decide_by_rule(self) -> None:
        while True:
            step, _is_own = await self._tracker.pending_calls.get()
            try:
                await self._approver.apply_rule(step, await await_ready(self._engine))
            except CountersignError as error:
                self._transcript.print_error(str(error))

    # Small things

    async def _load_renderer(self) -> None:
        """Load the renderer in a thread, so that the first answer does not wait."""
        await asyncio.to_thread(lambda: self._transcript.renderer.markdown(WARM_UP, 40))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _turn_spinner(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._busy:
                self._transcript.tick()

    async def _offer_completions(self) -> None:
        with contextlib.suppress(CountersignError):
            commands = await await_ready(self._commands)
            self._completer.more = lambda text: commands.complete(text, self._conversation)
            self._completer.verbs = commands.verbs

    async def _offer_conversations(self) -> None:
        if self._tracker.saved is not None:
            with contextlib.suppress(CountersignError):
                self._completer.conversations = await self._tracker.saved.titles()

    def _fail(self, error: CountersignError) -> None:
        self._failure = error
        self._screen.leave(1)
