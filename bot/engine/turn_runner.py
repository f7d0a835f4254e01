"""Turn runner: asks the model, runs its calls, waits for approvals, until there is an answer.

All state is in the turn's rows: each step reads them, does the next missing thing and writes its result. After a crash
another process continues from the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile

from bot.domain.approvals import ApprovalNotice
from bot.domain.completions import Completion, StopReason
from bot.domain.conversations import Member
from bot.domain.flows import Sources
from bot.domain.messages import Message, MessageRole, TextPart, ToolCall, ToolResult
from bot.domain.policies import TaintMode
from bot.domain.profiles import Profile
from bot.domain.tools import (
    INVALID_ARGUMENTS,
    CallReturned,
    ToolSet,
    parse_check_question,
    tools_for_check,
)
from bot.domain.turns import (
    CallOrigin,
    Claim,
    ModelRetry,
    ModelStep,
    Preview,
    PreviewProblem,
    StepStatus,
    ToolStep,
    Turn,
    TurnRecord,
    TurnStatus,
    TurnView,
)
from bot.engine.builtin_tools.read_result import ReadResult
from bot.engine.builtin_tools.read_thread import ReadThread
from bot.engine.builtin_tools.search_tools import SearchTools
from bot.engine.elicitation import PendingElicitations
from bot.engine.external_calls import toolbox_of_turn
from bot.engine.policy.authorization import CallAuthorizer, reject_while_checking
from bot.engine.policy.information_flow import UNTAINTED, ResultVisibility, Taint, taint_sources
from bot.engine.policy.rules import RuleBook, Rules
from bot.engine.possible_approvers import ApproverResolver
from bot.engine.prompt.builder import LACKS_ROOM, SOMETHING_MISSING, PromptBuilder, PromptDependencies
from bot.engine.prompt.history import USUAL_MEMORY, HistoryBudget
from bot.engine.prompt.messages import NO_INSTRUCTIONS, SystemPrompt, is_prompt
from bot.engine.surfaces import WHOLE_THREAD_SECONDS, Surfaces
from bot.engine.tool_execution import ToolExecutor, TurnToolbox
from bot.engine.usage import UsageMeter
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy, ngettext
from bot.ports import LanguageModels, Toolbox, TurnExecution
from bot.ports.platform import PostedText
from bot.ports.toolbox import CallContext

MOST_CORRECTIONS = 2
NO_PROMPT = gettext_lazy("The prompt could not be used, so nothing was asked. The call above says why.")
GAVE_UP = gettext_lazy("Stopped using tools: the model kept requesting invalid calls.")
APPROVAL_SECONDS = 1800.0
MAX_ROUNDS = 10
MAX_RECOVERIES = 3
MOST_TURNS = 32
PREVIEW_SECONDS = 3.0
PREVIEW_CHARACTERS = 1000
EARLY_SECONDS = 4.0
"""Seconds of work in which users need no message about it."""


def exceeds_invalid_calls(record: TurnRecord) -> bool:
    """Return True if the last MOST_CORRECTIONS + 1 completions held only invalid calls."""
    rounds: list[list[ToolStep]] = []
    for step in record.steps:
        match step:
            case ModelStep():
                rounds.append([])
            case ToolStep() if rounds:  # earlier steps are not the model's
                rounds[-1].append(step)
            case _:
                pass
    failed = takewhile(lambda calls: calls and all(map(_is_invalid, calls)), reversed(rounds))
    return sum(1 for _ in failed) > MOST_CORRECTIONS


def _is_invalid(step: ToolStep) -> bool:
    if step.status is not StepStatus.FAILED:
        return False
    if step.tool is None or step.call.unreadable or step.tool.is_builtin:
        return True  # built-in tools fail for their arguments only
    return step.result is not None and step.result.text.startswith(INVALID_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """Settings of all turns. `approval_seconds` is None if approvals never expire; `approval_notice` is how approvers
    learn of a call. `instructions` is the system prompt, `memory` the history budget. `taint` is the mode for calls
    that could send one server's data to another. `max_tool_rounds` counts for profiles without a number.
    `keeps_content` is False if the content of turns is deleted once their answers are out. `most_turns` is the highest
    number of concurrent turns.
    """

    approval_seconds: float | None = APPROVAL_SECONDS
    approval_notice: ApprovalNotice = ApprovalNotice.MENTION
    instructions: SystemPrompt = NO_INSTRUCTIONS
    memory: HistoryBudget = USUAL_MEMORY
    taint: TaintMode = TaintMode.OFF
    max_tool_rounds: int = MAX_ROUNDS
    keeps_content: bool = True
    most_turns: int = MOST_TURNS
    early_seconds: float = EARLY_SECONDS


USUAL_SETTINGS = TurnSettings()


@dataclass(frozen=True, slots=True)
class TurnDependencies:
    """Dependencies of all turn runners of a process. `deliver` gets each view of a turn. `allow` raises LimitReached to
    reject a turn. `clock` is monotonic, in seconds.
    """

    log: TurnExecution
    models: LanguageModels
    toolbox: Toolbox
    rules: RuleBook
    surfaces: Surfaces
    approvers: ApproverResolver
    prompts: PromptDependencies
    settings: TurnSettings
    deliver: Callable[[TurnView], None]
    allow: Callable[[Turn], Awaitable[None]]
    clock: Callable[[], float]


class TurnRunner:
    """A turn that this process runs. The runner needs the claim on it."""

    def __init__(self, claim: Claim, record: TurnRecord, dependencies: TurnDependencies) -> None:
        self._claim = claim
        self._record = record
        self._dependencies = dependencies
        self._log = dependencies.log
        self._settings = dependencies.settings
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        """A call has ended, or `_is_decided`."""
        self._is_decided = False
        """The rows have changed: a decision or an answer was stored."""
        self._streaming = ""
        self._activity: str | ModelRetry = ""
        self._progress: dict[int, str] = {}
        self._early = True
        self._elicitations: PendingElicitations | None = None
        self._executor: ToolExecutor | None = None
        """None until the turn runs a call."""
        self._meter = UsageMeter(claim, dependencies.prompts.meters)
        self._prompts = PromptBuilder(
            claim,
            dependencies.prompts,
            partial(dependencies.surfaces.fetch, record.turn.conversation),
            self._meter,
            self._visibility,
            on_text=self._stream,
            on_activity=self._note_activity,
        )

    def wake(self) -> None:
        """Read the turn's rows again: a decision was stored."""
        self._is_decided = True
        self._changed.set()

    def wake_if_waiting(self) -> None:
        """Read the turn's rows again if the turn waits for a decision or an answer."""
        if self._record.is_waiting or self._record.is_awaiting_input:
            self.wake()

    @property
    def unfinished_reply(self) -> tuple[ModelStep, ...]:
        """Reply that the model was writing, if it has text: a stopped turn keeps it."""
        text = self._streaming.rstrip()
        if not text:
            return ()
        message = Message(MessageRole.ASSISTANT, (TextPart(text),))
        return (ModelStep(self._record.next_n, message, StopReason.STOPPED, sources=self._prompts.sources),)

    @property
    def unanswered_calls(self) -> Mapping[int, float]:
        """Seconds since each call was sent that has not ended, by step number."""
        return self._executor.unanswered_calls if self._executor is not None else {}

    async def run(self) -> None:
        """Run until the turn ends or waits for users. Raises LostLease, Stopped and ModelError."""
        showing = asyncio.get_running_loop().call_later(self._settings.early_seconds, self._show_activity)
        try:
            await self._dependencies.rules.follow()
            if self._claim.recoveries > MAX_RECOVERIES:
                await self._finish(TurnStatus.FAILED, failure=_("This question stopped the bot several times."))
                return
            if not self._record.steps and not self._manual_call:
                await self._dependencies.allow(self._record.turn)
            while not self._record.turn.status.ended:
                await self._run_calls()
                if self._record.is_waiting:
                    record = await self._log.suspend(self._claim)
                    if record is None:
                        return
                    self._update(record)
                elif self._record.answer or (self._manual_call and self._record.steps):
                    await self._finish(TurnStatus.DONE)
                else:
                    await self._begin_round()
        finally:
            showing.cancel()
            # Services charge for broken-off replies, too.
            await self._meter.settle()

    def _show_activity(self) -> None:
        """Show the activity of the turn, because it takes longer than `early_seconds`."""
        self._early = False
        self._send_view()

    async def _begin_round(self) -> None:
        if self._rules.is_absent:
            failure = _(
                "The agent “{name}” cannot be asked here any more. Name another one, or begin with “as default” to go "
                "on with the one that answers here without a name.",
                name=self._record.turn.question.agent_name,
            )
            await self._finish(TurnStatus.FAILED, failure=failure)
            return
        self._note_activity(_("Looking at the tools"))
        offered = await self._offer()
        if call := self._manual_call:
            self._update(await self._log.append(self._claim, None, await self._manual_steps(call, offered)))
        elif not self._record.steps and (calls := await self._context_calls(offered)):
            self._update(await self._log.append(self._claim, None, calls))
        elif self._attached_prompt_failed:
            await self._finish(TurnStatus.FAILED, failure=str(NO_PROMPT))
        else:
            await self._ask_model(offered)

    # ------------------------------------------------------------------ rules and tools

    @property
    def _rules(self) -> Rules:
        return self._dependencies.rules.rules_of_turn(self._record.turn)

    async def _authorizer(self, taint: Taint = UNTAINTED) -> CallAuthorizer:
        """Return an authorizer. The member is looked up before the rules are read, so that the rules are the newest."""
        member = await self._member()
        toolbox, seconds = self._servers, self._settings.approval_seconds
        return CallAuthorizer(self._rules, seconds, member, taint, toolbox.argument_error, toolbox.secret_spans)

    async def _asker(self) -> Member | None:
        turn = self._record.turn
        return await self._dependencies.surfaces.find_member(turn.author, turn.conversation)

    async def _member(self) -> Member | None:
        """Return the author as a member, if a rule needs one."""
        return await self._asker() if self._rules.ask_who else None

    async def _visibility(self) -> ResultVisibility:
        """Return the visibility of earlier results for the author."""
        turn = self._record.turn
        offered = await self._dependencies.toolbox.offer(turn.conversation.workspace_key)
        member = await self._member()
        rules = self._rules
        return ResultVisibility(rules, rules.all, offered, turn.author, member, self._log)

    @cached_property
    def _servers(self) -> Toolbox:
        return toolbox_of_turn(self._record.turn, self._dependencies.toolbox)

    @cached_property
    def _toolbox(self) -> TurnToolbox:
        search = SearchTools(self._enabled_tools, self._dependencies.prompts.tools.indexes)
        read_result = ReadResult(self._claim.conversation, self._log, self._visibility)
        return TurnToolbox(self._servers, (search, read_result, self._thread))

    @cached_property
    def _thread(self) -> ReadThread:
        return ReadThread(self._read_thread, self._sum_up)

    async def _read_thread(self) -> Sequence[PostedText]:
        if await self._asker() is None:
            raise DeliveryFailed(gettext_lazy("The rights of the person who asked could not be checked."))
        surfaces = self._dependencies.surfaces
        return await surfaces.read_thread(self._record.turn.conversation, {}, WHOLE_THREAD_SECONDS)

    async def _sum_up(self, lines: Sequence[str]) -> tuple[str, int]:
        profile = self._profile
        model = await self._dependencies.models.get(profile.model)
        return await self._prompts.sum_up(lines, profile, model, self._record.next_n)

    @property
    def _profile(self) -> Profile:
        profile = self._rules.profile
        return replace(profile, model=self._record.turn.question.model or profile.model)

    async def _enabled_tools(self) -> ToolSet:
        return self._enable(await self._offer())

    def _enable(self, offered: ToolSet) -> ToolSet:
        """Return the tools that the model may use: those of the profile, and for a check only those that read."""
        enabled = self._rules.enabled_tools(offered)
        return enabled if self._checked_call is None else tools_for_check(enabled, self._checked_call)

    @cached_property
    def _checked_call(self) -> ToolCall | None:
        """The call of unknown outcome that the question is about; None for other questions."""
        return parse_check_question(self._record.turn.question.text)

    async def _offer(self) -> ToolSet:
        """Return all tools of the workspace; the profile is applied per call. Only admins get the reasons why tools are
        missing, because they name addresses and places of secrets.
        """
        offered = await self._servers.offer(self._record.turn.conversation.workspace_key)
        if not offered.absent:
            return offered
        asker = await self._asker()
        if asker is not None and self._rules.approvers.administers(asker):
            return offered
        return replace(offered, absent=(SOMETHING_MISSING,))

    async def _ask_approvers(
        self, steps: Sequence[ToolStep], offered: ToolSet, authorizer: CallAuthorizer
    ) -> Sequence[ToolStep]:
        """Return the steps with their possible approvers and previews, then the ended steps of the previews."""
        resolve = self._dependencies.approvers.resolve
        resolved = await asyncio.gather(*(resolve(step, authorizer.rules) for step in steps))
        first = resolved[-1].n + 1 if resolved else 1
        previews: dict[int, ToolStep] = {}
        for step in resolved:
            if call := authorizer.preview_call(first + len(previews), step, offered, self._record.turn.author):
                previews[step.n] = call
        shown = await asyncio.gather(*(self._preview(call, offered) for call in previews.values()))
        answers = {n: ended.preview for n, ended in zip(previews, shown, strict=True)}
        asked = [replace(step, preview=answers.get(step.n)) for step in resolved]
        return [*asked, *(replace(ended, preview=None) for ended in shown)]

    # ------------------------------------------------------------------ calls

    @property
    def _manual_call(self) -> ToolCall | None:
        return self._record.turn.question.call

    async def _manual_steps(self, call: ToolCall, offered: ToolSet) -> Sequence[ToolStep]:
        """Return the steps of a turn in which a user runs a tool without a model: the call, and that of its preview."""
        turn = self._record.turn
        authorizer = await self._authorizer()
        authorize = authorizer.authorize_rerun if turn.question.again else authorizer.authorize
        step = authorize(1, call, offered, turn.author)
        if step.approval is not None and turn.question.gateway is not None:
            limits = [step.approval.expires_in, turn.question.gateway.expires_in]
            expires_in = min((limit for limit in limits if limit is not None), default=None)
            step = replace(step, approval=replace(step.approval, expires_in=expires_in))
        return await self._ask_approvers([step], offered, authorizer)

    async def _run_calls(self) -> None:
        """Run all ready calls concurrently. A call approved meanwhile starts at once."""
        try:
            while True:
                for step in self._record.ready_calls:
                    if step.n not in self._calls:
                        task = asyncio.create_task(self._run_call(step), name=f"call:{step.call.name}")
                        task.add_done_callback(lambda _task: self._changed.set())
                        self._calls[step.n] = task
                if not self._calls:
                    return
                self._send_view()
                await self._changed.wait()
                self._changed.clear()
                for n in [n for n, task in self._calls.items() if task.done()]:
                    self._calls.pop(n).result()
                if self._is_decided:
                    # Reset before the read: a later decision needs another read.
                    self._is_decided = False
                    self._update(await self._log.resume(self._claim))
        finally:
            # The cancellation reaches the servers.
            for task in self._calls.values():
                task.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            self._calls.clear()

    async def _run_call(self, step: ToolStep) -> None:
        def on_progress(text: str) -> None:
            self._progress[step.n] = text
            self._send_view()

        if self._executor is None:
            seconds = self._settings.approval_seconds
            self._elicitations = PendingElicitations(self._claim, self._log, seconds, self._update)
            self._elicitations.update(self._record)
            self._executor = ToolExecutor(
                self._claim,
                self._record.turn.author,
                self._log,
                self._toolbox,
                rules=lambda: self._rules,
                member=self._member,
                elicitations=self._elicitations,
                on_record=self._update,
                clock=self._dependencies.clock,
            )
        await self._executor.execute(step, on_progress)

    # ------------------------------------------------------------------ the model

    async def _context_calls(self, offered: ToolSet) -> list[ToolStep]:
        """Return the calls before the first completion: those that the user attached, and those of context tools."""
        turn = self._record.turn
        enabled = self._rules.enabled_tools(offered)
        attached = turn.question.attached
        if not attached and not any(guidance.auto_context_tool for guidance in enabled.guidance):
            return []
        authorizer = await self._authorizer()
        steps = [
            replace(authorizer.authorize(n, call, offered, turn.author), origin=CallOrigin.ATTACHED)
            for n, call in enumerate(attached, start=1)
        ]
        asked = await self._ask_approvers(steps, enabled, authorizer)
        first = len(asked) + 1
        return [*asked, *authorizer.context_calls(turn.question.text, enabled, turn.author, first=first)]

    @property
    def _attached_prompt_failed(self) -> bool:
        prompts = (step for step in self._record.calls if step.origin is CallOrigin.ATTACHED and is_prompt(step))
        return any(step.status.ended and step.status is not StepStatus.DONE for step in prompts)

    async def _ask_model(self, offered: ToolSet) -> None:
        """Get the model's next reply and store it with its calls, or as the answer."""
        profile = self._profile
        model = await self._dependencies.models.get(profile.model)
        gave_up = exceeds_invalid_calls(self._record)
        max_rounds = profile.max_tool_rounds or self._settings.max_tool_rounds
        out_of_rounds = not gave_up and len(self._record.replies) >= max_rounds
        last_round = gave_up or out_of_rounds
        enabled = self._enable(offered)
        completion = await self._prompts.complete(self._record, profile, enabled, model, last_round=last_round)
        message, sources = completion.message, self._prompts.sources
        if last_round or completion.stop is not StopReason.TOOLS:
            parts = tuple(part for part in message.parts if not isinstance(part, ToolCall))
            message = Message(message.role, parts, {} if message.tool_calls else message.provider_metadata)
        reply = ModelStep(
            self._record.next_n,
            message,
            completion.stop,
            completion.usage,
            self._notes(completion, offered, gave_up=gave_up, out_of_rounds=out_of_rounds),
            completion.model,
            self._meter.entry,
            sources,
            out_of_rounds=out_of_rounds,
        )
        if message.tool_calls:
            calls = await self._authorize(message.tool_calls, offered, sources)
            record = await self._log.append(self._claim, reply, calls)
            self._streaming, self._activity = "", ""
            self._update(record)
        else:
            await self._finish(TurnStatus.DONE, reply)
        self._meter.drop_attempt()

    async def _authorize(self, requested: Sequence[ToolCall], offered: ToolSet, sources: Sources) -> Sequence[ToolStep]:
        """Return the steps of a reply's calls: ready, awaiting an approval, or ended with a reason."""
        enabled, author, taint = self._enable(offered), self._record.turn.author, UNTAINTED
        if self._settings.taint is TaintMode.ASK:
            questions = (self._record.turn.question.typed_text, *self._prompts.history.asked_by(author.principal))
            asked = tuple(question for question in questions if parse_check_question(question) is None)
            taint = Taint(taint_sources(sources, offered, author.principal), asked, offered)
        authorizer = await self._authorizer(taint)

        def authorize(n: int, call: ToolCall) -> ToolStep:
            if self._checked_call is not None and enabled.find(call.name) is None and offered.find(call.name):
                return reject_while_checking(n, call)
            return authorizer.authorize(n, call, offered, author)

        steps = [
            self._toolbox.create_step(n, call, enabled, partial(authorize, n))
            for n, call in enumerate(requested, start=self._record.next_n + 1)
        ]
        return await self._ask_approvers(steps, enabled, authorizer)

    async def _preview(self, step: ToolStep, offered: ToolSet) -> ToolStep:
        """Run a preview within its time and return its step, ended, with the answer beside the result that models may
        read.
        """
        turn, tool = self._record.turn, offered.find(step.call.name)
        assert tool is not None
        context = CallContext(
            turn.author, f"{turn.id}:{step.n}", deadline=PREVIEW_SECONDS, conversation=turn.conversation
        )
        preview = Preview(problem=PreviewProblem.FAILED)
        try:
            async with asyncio.timeout(PREVIEW_SECONDS):
                outcome = await self._toolbox.call(tool, step.call, context)
            if isinstance(outcome, CallReturned) and not outcome.result.is_error:
                # Later parts repeat the first one as JSON.
                first = next((part.text for part in outcome.result.parts if isinstance(part, TextPart)), "")
                preview = Preview((first or outcome.result.text_or_json)[:PREVIEW_CHARACTERS])
        except TimeoutError:
            preview = Preview(problem=PreviewProblem.TIMEOUT)
        status = StepStatus.FAILED if preview.problem else StepStatus.DONE
        result = ToolResult(step.call.id, (), is_error=bool(preview.problem), own=True)
        return replace(step, status=status, result=result, preview=preview)

    def _notes(
        self, completion: Completion, offered: ToolSet, *, gave_up: bool, out_of_rounds: bool
    ) -> tuple[str, ...]:
        notes: list[str] = []
        if not self._record.replies and not (offered.unavailable and offered.tools):
            notes += self._prompts.missing_tool_notes
        if completion.note and completion.model not in {reply.model for reply in self._record.replies}:
            notes.append(completion.note)
        earlier = {note for reply in self._record.replies for note in reply.notes}
        lost = [*self._prompts.notes]
        if n := self._thread.count:
            lost.append(
                ngettext(
                    "{n} message of this conversation was read.", "{n} messages of this conversation were read.", n
                )
            )
        notes += (note for note in lost if note not in earlier)
        wanted = {step.call.name.partition("__")[0] for step in self._record.calls} & offered.unavailable
        away = (_("Server {server} was not available.", server=name) for name in sorted(wanted))
        notes += (note for note in away if note not in self._prompts.history.earlier_notes | earlier)
        if gave_up:
            notes.append(str(GAVE_UP))
        if out_of_rounds:
            rounds = len(self._record.replies)
            text = ngettext("Stopped using tools after {n} round.", "Stopped using tools after {n} rounds.", rounds)
            notes.append(text)
        match completion.stop:
            case StopReason.LENGTH if completion.lacks_room:
                notes.append(str(LACKS_ROOM))
            case StopReason.LENGTH:
                notes.append(_("The answer was cut off at the model's length limit."))
            case StopReason.REFUSED:
                notes.append(_("The model declined to answer."))
            case StopReason.ANSWERED if not completion.message.text.strip():
                notes.append(_("The model gave an empty answer."))
            case _:
                pass
        return tuple(dict.fromkeys(notes))

    # ------------------------------------------------------------------ views

    async def _finish(self, status: TurnStatus, *last: ModelStep, failure: str = "") -> None:
        record = await self._log.finish(self._claim, status, last, failure)
        self._streaming, self._activity = "", ""
        self._update(record)

    def _update(self, record: TurnRecord) -> None:
        """Adopt a record unless it is older than the present one, and send a view. Concurrent calls may return their
        records in any order.
        """
        if record.revision >= self._record.revision:
            self._record = record
            if self._elicitations is not None:
                self._elicitations.update(record)
        self._send_view()

    def _stream(self, text: str) -> None:
        self._streaming, self._activity = text, ""
        self._send_view()

    def _note_activity(self, activity: str | ModelRetry) -> None:
        self._activity = activity
        self._send_view()

    def _send_view(self) -> None:
        running = frozenset(n for n, task in self._calls.items() if not task.done())
        self._dependencies.deliver(
            TurnView(
                turn=self._record.turn,
                steps=self._record.steps,
                revision=self._record.revision,
                streaming=self._streaming,
                running=running,
                progress={n: text for n, text in self._progress.items() if n in running},
                activity=self._activity,
                early=self._early,
            )
        )
