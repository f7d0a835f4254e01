"""Chat without a screen: each line is a question; `-m` is the only one. Approvals follow the rule of `--approve`.

Elicitations are answered by a line of standard input, or cancelled: `answer`, with `NAME=VALUE` for each field or with
one JSON object, accepts; `decline` declines. Any other line is a message and cancels the elicitation.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bot.domain.agents import AgentRef
from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, ApprovalRequirements, NotAllowed
from bot.domain.commands import Form, Invocation, Reply, reply_json
from bot.domain.conversations import ConversationKey
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    Elicitation,
    ElicitationAction,
    ElicitationResult,
    FormMode,
    UrlMode,
)
from bot.domain.lenient_json import DuplicateName, unique_names
from bot.domain.turns import Receipt, TurnStatus, TurnView
from bot.errors import CountersignError, InvalidOption, NotFound, QueueFull, SettingsError
from bot.folders import in_shell
from bot.i18n import _
from bot.platforms.console import turn_tracker
from bot.platforms.console.auto_approval import ApproveMode, AutoApprover, RuleResult
from bot.platforms.console.console import ConsoleSurface, Streams
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.local_user import LocalUser, Questions, fresh_conversation
from bot.platforms.console.plain_output import JsonLines, PlainStream, open_command, reply_text, write
from bot.platforms.console.standard_input import input_lines, read_input
from bot.platforms.console.turn_tracker import (
    ANSWERED,
    FAILED,
    INTERRUPTED,
    PendingElicitation,
    StartState,
    TurnTracker,
    await_ready,
    error_code,
    exit_code,
    worst_exit_code,
)
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
from bot.ports.platform import ElicitationAnswered, InvalidValues
from bot.rendering.elicitation_card import elicitation_form, server_name
from bot.rendering.text_safety import show_invisible, single_line

if TYPE_CHECKING:
    from bot.rendering.response_models import SignedBy

ANSWER, DECLINE = "answer", "decline"
STOP_SECONDS = 5.0
ABANDONED_SECONDS = 10.0
_NAMES = 8


# -------------------- elicitations


class InputLines:
    """Input lines for two readers. A reader can put a line back for the other one."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self._reading = asyncio.Lock()
        self._pending: asyncio.Task[str | None] | None = None
        self._back: list[str] = []

    async def next(self) -> str | None:
        """Return the next line; None at the end. A cancelled wait loses no line."""

        async def read() -> str | None:
            return await anext(self._lines, None)

        async with self._reading:
            if self._back:
                return self._back.pop()
            if self._pending is None:
                self._pending = asyncio.create_task(read())
            line = await asyncio.shield(self._pending)
            self._pending = None
            return line

    def put_back(self, line: str) -> None:
        """Put back a line for the other reader."""
        self._back.append(line)

    def close(self) -> None:
        """Stop reading."""
        if self._pending is not None:
            self._pending.cancel()


class ElicitationPrompt:
    """Answers elicitations for the user; `tell` prints one line. Without `lines` all are cancelled."""

    def __init__(self, user: LocalUser, tell: Callable[[str], None], lines: InputLines | None = None) -> None:
        self._user = user
        self._tell = tell
        self._lines = lines

    async def respond(self, pending: PendingElicitation, engine: EngineApi) -> None:
        """Answer one elicitation, unless it ends before."""
        if self._lines is None:
            await self._cancel(pending, engine)
            return
        match pending.elicitation.question.ask:
            case UrlMode(url):
                self._tell(_("Visit {url} and send the line: answer, or decline.", url=url))
            case FormMode(schema):
                self._tell(_("It waits for a line: {example}, or decline.", example=_sample_line(schema)))
        while (line := await self._line(self._lines, pending.over)) is not None:
            match _parse_answer(line, pending.elicitation):
                case None:
                    self._lines.put_back(line)
                    break
                case str(problem):
                    self._tell(problem)
                case reply:
                    if await self._send(pending, reply, engine):
                        return
        if not pending.over.is_set():
            await self._cancel(pending, engine)

    async def _line(self, lines: InputLines, over: asyncio.Event) -> str | None:
        """Return the next line; None at the end of input or of the elicitation."""
        reading, ending = asyncio.ensure_future(lines.next()), asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)

    async def _send(self, pending: PendingElicitation, reply: ElicitationResult, engine: EngineApi) -> bool:
        """Send an answer. Return True if the elicitation needs no other one."""
        match await engine.elicitations.answer(pending.elicitation.id, reply, self._user.member):
            case InvalidValues(problems):
                errors = "; ".join(
                    f"{error.argument}: {error.problem}"
                    if error.argument and not error.problem.startswith(f"{error.argument}:")
                    else error.problem
                    for error in problems
                )
                self._tell(single_line(errors, 500) or _("It does not fit."))
                return False
            case ElicitationAnswered(action):
                self._tell(_("Sent.") if action is ElicitationAction.ACCEPT else _("Declined."))
            case ApprovalNotFound():
                pass  # the turn is gone
            case NotAllowed(why) | AlreadyDecided(why):
                self._tell(single_line(why, 300))
        return True

    async def _cancel(self, pending: PendingElicitation, engine: EngineApi) -> None:
        if isinstance(
            await engine.elicitations.answer(pending.elicitation.id, CANCELLED, self._user.member), ElicitationAnswered
        ):
            text = _(
                "{server} has a question, and no terminal is open to answer it, so it was cancelled. "
                "countersign chat asks you there.",
                server=server_name(pending.step),
            )
            self._tell(text)


def _parse_answer(line: str, elicitation: Elicitation) -> ElicitationResult | str | None:
    """Return the result of a line, its error as a sentence, or None if it is no answer."""
    word, _blank, text = line.strip().partition(" ")
    match word.lower(), elicitation.question.ask:
        case "decline", _:
            return DECLINED
        case "answer", UrlMode():
            return ElicitationResult(ElicitationAction.ACCEPT)
        case "answer", FormMode(schema):
            return _form_answer(schema, text.strip())
        case _:
            return None


def _form_answer(schema: Mapping[str, Any], text: str) -> ElicitationResult | str:
    if text.startswith("{"):
        try:
            content = json.loads(text, object_pairs_hook=unique_names)
        except DuplicateName as error:
            return _("The answer cannot be used: {error}.", error=error)
        except (ValueError, RecursionError):
            return _("That is no JSON object, such as {example}.", example='{"title": "Milk"}')
        return ElicitationResult(ElicitationAction.ACCEPT, content)
    try:
        words = shlex.split(text)
    except ValueError:
        return _("A quote is open.")
    form = elicitation_form(schema)
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in form.names:
            return _("One of these, with = and its value: {names}.", names=", ".join(form.names))
        values[form.field_of(name)] = value
    content, errors = form.parse_answers(values)
    return next(iter(errors.values()), "") or ElicitationResult(ElicitationAction.ACCEPT, content)


def _sample_line(schema: Mapping[str, Any]) -> str:
    """Return a sample line that answers a form, with its field names: `answer seats=… note=…`."""
    properties = schema.get("properties")
    names = (
        [single_line(show_invisible(str(name)), 40) for name in properties] if isinstance(properties, Mapping) else []
    )
    assignments = [f"{name}=…" for name in names[:_NAMES]] + (["…"] if len(names) > _NAMES else [])
    return " ".join((ANSWER, *assignments))


# -------------------- chats


async def _only_line(line: str) -> AsyncIterator[str]:
    yield line


def unnamed_approvers(_terms: ApprovalRequirements, _conversation: ConversationKey, _agent: AgentRef | None) -> str:
    """Name no approvers."""
    return ""


class HeadlessChat:
    """Every line is a message, unless a server waits for an answer; the next one is sent when the last is answered.

    The question of `-m` is the only line, with standard input as its file. Answers go to standard output, the rest to
    standard error; `as_json` for events instead, in which `signed_by` names the approvers of calls. `files` is the
    folder for tool files.
    """

    def __init__(
        self,
        question: str | None,
        user: LocalUser,
        streams: Streams,
        *,
        approve: ApproveMode = ApproveMode.ASK,
        as_json: bool = False,
        signed_by: SignedBy = unnamed_approvers,
        files: Path | None = None,
    ) -> None:
        theme = ConsoleTheme.for_stream(streams.stderr, streams.environ)
        self._drawing: JsonLines | PlainStream = (
            JsonLines(streams.stdout, streams.stderr, theme, signed_by)
            if as_json
            else PlainStream(streams.stdout, streams.stderr, theme)
        )
        self._reads_file = question is not None
        self._json = as_json
        self._streams = streams
        self._lines = InputLines(input_lines(streams.stdin) if question is None else _only_line(question))
        self._user = user
        self._questions = Questions(user)
        self._tracker = TurnTracker()
        self.surface = ConsoleSurface(user, self._tracker, self._drawing, files)
        self._approver = AutoApprover(approve, user, self._drawing.notice)
        self._responder = ElicitationPrompt(user, self._drawing.notice, self._lines if question is None else None)
        self._engine: Awaitable[EngineApi]
        self._commands: Awaitable[Commands]
        self._turn = ""
        self._is_waiting = False
        """True if the last turn was left, because a call waits for another approver."""
        self._interrupted = asyncio.Event()

    async def run(
        self, engine: Awaitable[EngineApi], commands: Awaitable[Commands], opening: Awaitable[StartState]
    ) -> int:
        """Answer all lines and return the worst exit code: 130 after an interrupt, that of an error, 1 if the reader of
        the output has closed it. Lines behind a turn that waits are not asked. Raises OSError if the output fails
        otherwise.
        """
        self._engine, self._commands = asyncio.ensure_future(engine), asyncio.ensure_future(commands)
        task = asyncio.ensure_future(self._answer_lines(opening))
        handlers = (asyncio.ensure_future(self._decide_alone()), asyncio.ensure_future(self._answer_alone()))
        others = (asyncio.ensure_future(self._interrupted.wait()), asyncio.ensure_future(self._tracker.closed.wait()))
        try:
            await asyncio.wait((task, *handlers, *others), return_when=asyncio.FIRST_COMPLETED)
            for handler in handlers:
                if handler.done():
                    handler.result()
            if not task.done():
                await self._stop()
            if self._tracker.closed.is_set():
                write(self._streams.stdout, "\n")  # which raises its error again
            return task.result() if task.done() and not self._interrupted.is_set() else INTERRUPTED
        except SettingsError:  # which each command prints alike
            raise
        except CountersignError as error:
            self._write_line(f"countersign: {in_shell(single_line(str(error), 1000))}")
            return error_code(error)
        except BrokenPipeError:
            return FAILED
        finally:
            for task_or_wait in (task, *handlers, *others):
                task_or_wait.cancel()
            await asyncio.gather(task, *handlers, *others, return_exceptions=True)
            self._lines.close()

    def interrupt(self) -> None:
        """Handle Ctrl-C: stop the running turn and exit with 130."""
        self._interrupted.set()

    async def _answer_lines(self, opening: Awaitable[StartState]) -> int:
        start = await await_ready(opening)
        self._tracker.begin(start)
        for view in start.open:
            self._tracker.track_earlier(view)
        if start.abandoned:
            await self._finish(start.abandoned)
        codes: list[int] = []
        while not self._is_waiting and (line := await self._lines.next()) is not None:
            code = await self._line(line)
            if code is None or self._tracker.closed.is_set():
                break
            codes.append(code)
        return worst_exit_code(codes)

    async def _finish(self, abandoned: Sequence[TurnView]) -> None:
        """Wait a while for turns of ended processes. Another process goes on with them after this one."""
        engine = await await_ready(self._engine)
        with suppress(TimeoutError):
            async with asyncio.timeout(ABANDONED_SECONDS):
                for view in abandoned:
                    while (await engine.view(view.turn.id)).turn.status in (TurnStatus.QUEUED, TurnStatus.RUNNING):  # noqa: ASYNC110 - another process may end it
                        await asyncio.sleep(ABANDONED_SECONDS / 100)

    async def _decide_alone(self) -> None:
        while True:
            step, is_own = await self._tracker.pending_calls.get()
            # The user may be at another terminal, and decides there about calls without a rule.
            decide = self._approver.decide_alone if is_own else self._approver.apply_rule
            result = await decide(step, await await_ready(self._engine))
            if result is RuleResult.WAITS and step.approval is not None:
                self._tracker.leave_waiting(step.approval.id)

    async def _answer_alone(self) -> None:
        while True:
            elicitation = await self._tracker.pending_elicitations.get()
            # A user at another terminal answers there.
            if elicitation.own:
                await self._responder.respond(elicitation, await await_ready(self._engine))

    async def _stop(self) -> None:
        """Stop the running turn and wait until its end is written, within a time limit."""
        if not self._turn:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                engine = await await_ready(self._engine)
                if await engine.stop(self._turn, self._user.author):
                    await self._tracker.end_turn(self._turn, engine)
        except TimeoutError:
            self._write_line(_("The turn is still being stopped."))

    async def _line(self, text: str) -> int | None:
        """Handle a line. Return its exit code, or None to leave."""
        match parse(text):
            case LocalCommand.HELP:
                lines = (f"{name:<16}{summary}" for name, summary in COMMANDS.items())
                self._print(Reply("\n".join(lines)))
            case LocalCommand.NEW:
                self._tracker.open(fresh_conversation())
            case LocalCommand.QUIT:
                return None
            case UnknownCommand() as unknown:
                self._write_line(unknown.error)
                return FAILED
            case Invoke(command, words):
                return await self._invoke(command, words)
            case Say() | LocalCommand.CHECK | LocalCommand.AGAIN | LocalCommand.STOP | OpenConversation() as action:
                engine = await await_ready(self._engine)
                try:
                    return await self._do(action, engine)
                except (NotFound, QueueFull, InvalidOption) as error:
                    self._write_line(in_shell(str(error)))
                    return FAILED
        return ANSWERED

    async def _do(
        self, action: Say | RepeatCall | Literal[LocalCommand.STOP] | OpenConversation, engine: EngineApi
    ) -> int:
        match action:
            case Say(text):
                agents = engine.agents(self._conversation)
                message = self._questions.read(text, self._tracker.conversation, agents)
                if self._reads_file and (file := await read_input(self._streams.stdin, self._drawing.notice)):
                    # Unique, because another process may hold the file of an earlier question.
                    attachment = replace(file[0], id=message.keys[0])
                    self._tracker.uploads[attachment.id] = file[1]
                    message = replace(message, attachments=(attachment,))
                return await self._ask(engine, engine.receive(message))
            case LocalCommand.STOP:
                await turn_tracker.stop(engine, self._user, self._conversation)
                self._write_line(_("Stopped."))
                return ANSWERED
            case LocalCommand.CHECK | LocalCommand.AGAIN:
                return await self._ask(engine, turn_tracker.repeat(engine, self._user, self._conversation, action))
            case OpenConversation(name):
                for view in (await self._tracker.reopen(name)).open:
                    self._tracker.track_earlier(view)
                return ANSWERED

    async def _ask(self, engine: EngineApi, submission: Awaitable[Receipt]) -> int:
        receipt = await self._tracker.submit(submission)
        self._turn = receipt.turn_id
        view = await self._tracker.end_turn(receipt.turn_id, engine)
        self._turn = ""
        self._is_waiting = not view.turn.status.ended
        if self._is_waiting:
            command = open_command(self._tracker.conversation)
            self._write_line(_("It waits for an approval: {command}", command=command))
        return exit_code(view)

    @property
    def _conversation(self) -> ConversationKey:
        return self._user.key(self._tracker.conversation)

    async def _invoke(self, command: str, words: tuple[str, ...]) -> int:
        commands = await await_ready(self._commands)
        request = Invocation(command, words, self._user.member, self._conversation)
        last: Reply | Form | None = None
        async for reply in commands.handle(request):
            last = reply
        if last is None:
            return ANSWERED
        if isinstance(last, Reply) and last.message is not None:
            engine = await await_ready(self._engine)
            return await self._ask(engine, engine.receive(self._user.prepare(last.message)))
        self._print(last)
        return FAILED if isinstance(last, Form) or last.failed else ANSWERED

    def _print(self, reply: Reply | Form) -> None:
        if self._json:
            write(self._streams.stdout, json.dumps({"event": "reply", "data": reply_json(reply)}) + "\n")
        elif isinstance(reply, Form):
            self._write_line(reply_text(reply))
        else:
            write(self._streams.stdout, f"{reply_text(reply)}\n")

    def _write_line(self, text: str) -> None:
        write(self._streams.stderr, f"{text}\n")
