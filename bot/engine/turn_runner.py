"""One turn, told in order: ask the model, run the tools it wants, stop where a person must decide, go on when they
have, until there is an answer.

Everything that has happened is a row. Driving a turn means reading the rows, doing what is missing, and writing down
what came of it; a process that dies in between leaves nothing else behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from bot.domain.completions import Completion, StopReason
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.messages import Message, ToolCall
from bot.domain.policies import TaintMode
from bot.domain.sources import Sources
from bot.domain.tools import MISFIT, ToolSearch, ToolSet
from bot.domain.turns import (
    Claim,
    ModelStep,
    StepStatus,
    ToolStep,
    Turn,
    TurnRecord,
    TurnStatus,
)
from bot.domain.views import ModelRetry, TurnView
from bot.engine.builtin_tools.read_result import is_read_result_call, is_read_result_step, read_result, ready_step
from bot.engine.builtin_tools.search_steps import is_searching, recorded, search
from bot.engine.call_authorization import CallAuthorizer
from bot.engine.elicitation import PendingElicitations
from bot.engine.outcome_checks import is_check_question
from bot.engine.prompt_builder import PromptBuilder, PromptParts
from bot.engine.result_visibility import ResultVisibility
from bot.engine.rules import Rules
from bot.engine.taint import UNTAINTED, Taint, taint_sources
from bot.engine.tool_execution import execute_call
from bot.engine.tool_index import ToolIndexes
from bot.engine.tool_selection import SOMETHING_MISSING, select_tools
from bot.engine.usage_limits import no_limits
from bot.engine.usage_metering import UsageMeter
from bot.ports import LanguageModels, Toolbox, TurnLog

# -------------------- invalid call limit
# How often a model may correct calls that it has written wrongly: of a tool that there is not, or with arguments that
# cannot be read or do not fit.
#
# Called by `turn_runner`. Each such call is told to the model, which mostly does better at once. One that does not
# would go on until the rounds are used up, at somebody's cost.

MOST_CORRECTIONS = 2
GAVE_UP = "Stopped using tools: the model went on asking for calls that cannot be made."


def exceeds_invalid_calls(record: TurnRecord) -> bool:
    """Whether the model has asked for nothing but calls that are none, and has corrected itself in vain as often as it
    may: in its last replies, one after the other.
    """
    rounds: list[list[ToolStep]] = []
    for step in record.steps:
        match step:
            case ModelStep():
                rounds.append([])
            case ToolStep() if rounds:  # those before the first reply are not the model's
                rounds[-1].append(step)
            case _:
                pass
    failed = takewhile(lambda calls: calls and all(map(_is_none, calls)), reversed(rounds))
    return sum(1 for _ in failed) > MOST_CORRECTIONS


def _is_none(step: ToolStep) -> bool:
    if step.status is not StepStatus.FAILED:
        return False
    if step.tool is None or step.call.unreadable or is_read_result_step(step) or is_searching(step):
        return True  # those of the bot's own fail for what is asked of them alone
    return step.result is not None and step.result.text.startswith(MISFIT)


MAX_ROUNDS = 10
MAX_RECOVERIES = 3


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What driving a turn takes."""

    log: TurnLog
    models: LanguageModels
    toolbox: Toolbox
    rules: Callable[[ConversationKey], Rules]
    approval_seconds: float | None
    show: Callable[[TurnView], None]
    fetch: Callable[[ConversationKey, Attachment], Awaitable[bytes]]
    prompts: PromptParts
    member: Callable[[Author, ConversationKey], Awaitable[Member | None]]
    taint: TaintMode = TaintMode.OFF
    allow: Callable[[Turn], Awaitable[None]] = no_limits
    tool_search: ToolSearch = ToolSearch.AUTO
    tool_indexes: ToolIndexes = field(default_factory=ToolIndexes)


class TurnRunner:
    """A turn while this process drives it."""

    def __init__(self, claim: Claim, record: TurnRecord, parts: TurnParts) -> None:
        self._claim = claim
        self._record = record
        self._parts = parts
        self._log = parts.log
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._doorbell = asyncio.Event()
        self._streaming = ""
        self._activity: str | ModelRetry = ""
        self._progress: dict[int, str] = {}
        self._questions = PendingElicitations(claim, parts.log, parts.approval_seconds, self._see)
        self._questions.update(record)
        fetch = partial(parts.fetch, record.turn.conversation)
        self._meter = UsageMeter(claim, parts.prompts.meters)
        self._prompting = PromptBuilder(
            claim,
            parts.prompts,
            fetch,
            self._meter,
            self._disclosure,
            on_text=self._stream,
            on_activity=self._note_activity,
        )

    def wake(self) -> None:
        """Something about this turn has changed on disk: somebody has decided."""
        self._doorbell.set()

    def wake_if_waiting(self) -> None:
        """Look whether somebody has decided or answered something, if there is anything to."""
        if self._record.is_waiting or self._record.is_awaiting_input:
            self._doorbell.set()

    async def run(self) -> None:
        """Go on until the turn has ended or waits for people. Raises LostLease, Stopped and ModelError."""
        try:
            await self._go_on()
        finally:
            # Whatever has happened: services charge for a reply that nobody has waited for.
            await self._meter.settle()

    async def _go_on(self) -> None:
        if self._claim.recoveries > MAX_RECOVERIES:
            await self._finish(TurnStatus.FAILED, failure="This question brought the bot down several times over.")
        if not self._record.steps and not self._by_hand:
            await self._parts.allow(self._record.turn)
        while not self._record.turn.status.ended:
            await self._run_calls()
            if self._record.is_waiting:
                record = await self._log.park(self._claim)
                if record is None:
                    return
                self._see(record)
            elif self._record.answer or (self._by_hand and self._record.steps):
                await self._finish(TurnStatus.DONE)
            elif self._by_hand:
                self._see(await self._log.append(self._claim, None, [await self._hand_call(self._by_hand)]))
            elif not self._record.steps and (calls := await self._context_calls()):
                self._see(await self._log.append(self._claim, None, calls))
            else:
                await self._ask_model()

    # ------------------------------------------------------------------ what holds here

    @property
    def _rules(self) -> Rules:
        return self._parts.rules(self._record.turn.conversation)

    async def _admission(self, taint: Taint = UNTAINTED) -> CallAuthorizer:
        """Who asks is found out before the rules are read, so that none is older than the answer."""
        member = await self._member()
        toolbox = self._parts.toolbox
        seconds = self._parts.approval_seconds
        return CallAuthorizer(self._rules, seconds, member, taint, toolbox.argument_error, toolbox.secret_spans)

    def _taint(self, sources: Sources, offered: ToolSet) -> Taint:
        """The taint of a reply whose prompt had words of these sources."""
        if self._parts.taint is not TaintMode.ASK:
            return UNTAINTED
        turn = self._record.turn
        questions = (turn.question.text, *self._prompting.asked_by(turn.author))
        asked = tuple(each for each in questions if not is_check_question(each))
        return Taint(taint_sources(sources, offered, turn.author.principal), asked, offered)

    async def _member(self) -> Member | None:
        """Who asks, if any rule wants to know more than the id."""
        turn = self._record.turn
        return await self._parts.member(turn.author, turn.conversation) if self._rules.ask_who else None

    async def _disclosure(self) -> ResultVisibility:
        """What may be told of earlier calls to whoever asks."""
        turn = self._record.turn
        offered = await self._parts.toolbox.offer(turn.conversation.workspace_key)
        member = await self._member()
        rules = self._rules
        return ResultVisibility(rules, rules.all, offered, turn.author, member, self._log)

    async def _offer(self) -> ToolSet:
        """Everything there is for this workspace: what the profile does not enable is refused by name. What is wrong
        with a server names addresses and where secrets are: those who administer are told, and the model for them.
        """
        turn = self._record.turn
        offered = await self._parts.toolbox.offer(turn.conversation.workspace_key)
        if not offered.absent or await self._administers(turn):
            return offered
        return dataclasses.replace(offered, absent=(SOMETHING_MISSING,))

    async def _administers(self, turn: Turn) -> bool:
        member = await self._parts.member(turn.author, turn.conversation)
        return member is not None and self._rules.signatories.administers(member)

    # ------------------------------------------------------------------ calls

    @property
    def _by_hand(self) -> ToolCall | None:
        return self._record.turn.question.call

    async def _hand_call(self, call: ToolCall) -> ToolStep:
        """The one step of a turn in which a person runs a tool: no model is asked."""
        turn = self._record.turn
        offered = await self._offer()
        admission = await self._admission()
        if turn.question.again:
            return admission.authorize_rerun(1, call, offered, turn.author)
        return admission.authorize(1, call, offered, turn.author)

    async def _run_calls(self) -> None:
        """Run what is ready, side by side. A call that is signed meanwhile starts at once, whatever else still runs."""
        try:
            while True:
                for step in self._record.ready_calls:
                    if step.n not in self._calls:
                        self._calls[step.n] = asyncio.create_task(self._run_call(step), name=f"call:{step.call.name}")
                if not self._calls:
                    return
                self._redraw()
                await self._call_ended_or_doorbell()
                for n in [n for n, task in self._calls.items() if task.done()]:
                    self._calls.pop(n).result()
                if self._doorbell.is_set():
                    # Before the look: who rings while it is under way may have decided too late for it.
                    self._doorbell.clear()
                    self._see(await self._log.resume(self._claim))
        finally:
            await self._abandon_calls()

    async def _run_call(self, step: ToolStep) -> None:
        def progressed(text: str) -> None:
            self._progress[step.n] = text
            self._redraw()

        if is_read_result_step(step):
            disclosure = await self._disclosure()
            self._see(await read_result(step, self._claim, self._log, disclosure.rejection_reason))
            return
        if is_searching(step):
            enabled = self._rules.enabled(await self._offer())
            self._see(await search(step, self._claim, self._log, enabled, self._parts.tool_indexes))
            return
        await execute_call(
            step,
            self._claim,
            self._record.turn.author,
            log=self._log,
            toolbox=self._parts.toolbox,
            rules=lambda: self._rules,
            member=self._member,
            workspace=self._record.turn.conversation.workspace_key,
            on_record=self._see,
            on_progress=progressed,
            questions=self._questions,
        )

    async def _call_ended_or_doorbell(self) -> None:
        doorbell = asyncio.create_task(self._doorbell.wait())
        try:
            await asyncio.wait({doorbell, *self._calls.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            doorbell.cancel()

    async def _abandon_calls(self) -> None:
        """No call outlives the turn's task: cancelling reaches the server, and is waited for."""
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        self._calls.clear()

    # ------------------------------------------------------------------ the model

    async def _context_calls(self) -> list[ToolStep]:
        offered = self._rules.enabled(await self._offer())
        if not any(each.auto_context_tool for each in offered.guidance):
            return []
        turn = self._record.turn
        return (await self._admission()).context_calls(turn.question.text, offered, turn.author)

    async def _ask_model(self) -> None:
        self._note_activity("Looking at the tools")
        profile = self._rules.profile
        offered = await self._offer()
        model = await self._parts.models.get(profile.model)
        refused = self._parts.prompts.refused
        tools = partial(select_tools, self._rules.enabled(offered), self._parts.tool_search, refused)
        last_round = len(self._record.replies) >= MAX_ROUNDS or exceeds_invalid_calls(self._record)
        completion = await self._prompting.reply(self._record, profile, tools, model, last_round=last_round)
        await self._record_reply(completion, offered, last_round=last_round)

    async def _record_reply(self, completion: Completion, offered: ToolSet, *, last_round: bool) -> None:
        n = self._record.next_n
        runs_tools = completion.stop is StopReason.TOOLS and not last_round
        message = completion.message if runs_tools else _without_calls(completion.message)
        sources = self._prompting.sources
        reply = ModelStep(
            n,
            message,
            completion.stop,
            completion.usage,
            self._notes(completion, last_round=last_round),
            completion.model,
            self._meter.use,
            sources,
        )
        self._streaming, self._activity = "", ""
        if message.tool_calls:
            author = self._record.turn.author
            admission = await self._admission(self._taint(sources, offered))

            def judge(i: int, call: ToolCall) -> ToolStep:
                return (
                    ready_step(i, call) if is_read_result_call(call) else admission.authorize(i, call, offered, author)
                )

            calls = [recorded(i, call, partial(judge, i)) for i, call in enumerate(message.tool_calls, start=n + 1)]
            self._see(await self._log.append(self._claim, reply, calls))
        else:
            await self._finish(TurnStatus.DONE, reply)
        self._meter.recorded()

    def _notes(self, completion: Completion, *, last_round: bool) -> tuple[str, ...]:
        notes: list[str] = []
        if not self._record.replies:
            notes += self._prompting.missing_tool_notes
        if completion.note and completion.model not in {reply.model for reply in self._record.replies}:
            notes.append(completion.note)
        told = {note for reply in self._record.replies for note in reply.notes}
        notes += (note for note in self._prompting.notes if note not in told)
        if last_round:
            gave_up = exceeds_invalid_calls(self._record)
            notes.append(GAVE_UP if gave_up else f"Stopped using tools after {MAX_ROUNDS} rounds.")
        match completion.stop:
            case StopReason.LENGTH:
                notes.append("The answer was cut off at the model's length limit.")
            case StopReason.REFUSED:
                notes.append("The model declined to answer.")
            case StopReason.ANSWERED if not completion.message.text.strip():
                notes.append("The model gave an empty answer.")
            case _:
                pass
        return tuple(dict.fromkeys(notes))

    # ------------------------------------------------------------------ keeping people in the picture

    async def _finish(self, status: TurnStatus, *last: ModelStep, failure: str = "") -> None:
        self._see(await self._log.finish(self._claim, status, last, failure))

    def _see(self, record: TurnRecord) -> None:
        """Take in what is on disk now. Calls that end together may hand in their records in any order."""
        if record.revision >= self._record.revision:
            self._record = record
            self._questions.update(record)
        self._redraw()

    def _stream(self, text: str) -> None:
        self._streaming, self._activity = text, ""
        self._redraw()

    def _note_activity(self, activity: str | ModelRetry) -> None:
        self._activity = activity
        self._redraw()

    def _redraw(self) -> None:
        running = frozenset(n for n, task in self._calls.items() if not task.done())
        self._parts.show(
            TurnView(
                turn=self._record.turn,
                steps=self._record.steps,
                revision=self._record.revision,
                streaming=self._streaming,
                running=running,
                progress={n: text for n, text in self._progress.items() if n in running},
                activity=self._activity,
            )
        )


def _without_calls(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, ToolCall))
    return Message(message.role, parts, {} if message.tool_calls else message.provider_metadata)
