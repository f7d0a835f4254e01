"""Execution of tool calls: each is checked again, its intent recorded, then it is sent and its outcome stored.

The bot's own tools are called here, too. A built-in call needs no approval and no server: it is ready at once and may
be repeated. `call_tool`, `list_resources` and `read_resource` are not executed: their calls become calls of a server's
tool.

To add a built-in tool, write a `BuiltinTool`, name it in `prompt.builder.select_builtin_tools` and pass it to
the turn's `TurnToolbox`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from bot.domain.approvals import ApprovalPolicy, fingerprint
from bot.domain.conversations import Author, Member
from bot.domain.flows import Words
from bot.domain.grants import accepted_digests
from bot.domain.messages import ToolCall, ToolResult, explained_failure, text_for_people
from bot.domain.policies import PolicyResult
from bot.domain.tools import (
    UNSURE,
    CallNeedsInput,
    CallNotSent,
    CallOutcomeUnknown,
    CallReturned,
    Tool,
    ToolOutcome,
    ToolSet,
)
from bot.domain.turns import CallOrigin, Claim, StepStatus, ToolRef, ToolStep, TurnRecord
from bot.engine.builtin_tools.resources import resolve_resource_call
from bot.engine.builtin_tools.search_tools import resolve_call
from bot.engine.elicitation import TOO_MANY, PendingElicitations
from bot.engine.policy.authorization import (
    closed_reason,
    context_tool_rejection,
    not_enabled_reason,
    not_run,
)
from bot.engine.policy.rules import Rules
from bot.engine.prompt.messages import single_line
from bot.i18n import english, gettext_lazy
from bot.ports import CallContext, Toolbox, ToolCaller, TurnExecution

log = logging.getLogger(__name__)

_LONGEST_ERROR = 300
"""Logged characters of a failed call's text."""


class BuiltinTool(Protocol):
    """A tool of the bot itself. `name` is the one that the model calls."""

    name: str
    reference: ToolRef

    async def call(self, call: ToolCall) -> ToolResult:
        """Run the tool. Invalid arguments are a result with `is_error`."""
        ...


class TurnToolbox(ToolCaller):
    """All tools of one turn: those of `servers` and the built-in ones."""

    def __init__(self, servers: Toolbox, builtin_tools: Iterable[BuiltinTool]) -> None:
        self.servers = servers
        self._builtin_tools = {tool.name: tool for tool in builtin_tools}

    def create_step(
        self, n: int, call: ToolCall, enabled: ToolSet, authorize: Callable[[ToolCall], ToolStep]
    ) -> ToolStep:
        """Return the step of a model's call. `authorize` returns that of a server's tool. `enabled` are the tools of
        the conversation.
        """
        if tool := self._builtin_tools.get(call.name):
            return ToolStep(n, call, tool.reference, StepStatus.READY, repeatable=True)
        resolved = resolve_call(call)
        if isinstance(resolved, ToolCall):
            resolved = resolve_resource_call(resolved, enabled)
        if isinstance(resolved, ToolCall):
            return authorize(resolved)
        return ToolStep(n, call, None, StepStatus.FAILED, result=resolved)

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool of a server or a built-in one."""
        if tool.is_builtin:
            return CallReturned(await self._builtin_tools[tool.name].call(call))
        return await self.servers.call(tool, call, context)


class ToolExecutor:
    """Executes the calls of one turn. `rules` and `member` are read just before each call, because an approval may take
    hours. `on_record` gets the turn's record after each change.
    """

    def __init__(
        self,
        claim: Claim,
        author: Author,
        log: TurnExecution,
        toolbox: TurnToolbox,
        *,
        rules: Callable[[], Rules],
        member: Callable[[], Awaitable[Member | None]],
        elicitations: PendingElicitations,
        on_record: Callable[[TurnRecord], None],
        clock: Callable[[], float],
    ) -> None:
        self._claim = claim
        self._author = author
        self._log = log
        self._toolbox = toolbox
        self._rules = rules
        self._member = member
        self._elicitations = elicitations
        self._on_record = on_record
        self._clock = clock
        self._sent_at: dict[int, float] = {}

    @property
    def unanswered_calls(self) -> Mapping[int, float]:
        """Seconds since each call was sent that has not ended, by step number."""
        now = self._clock()
        return {n: now - sent_at for n, sent_at in self._sent_at.items()}

    async def execute(self, step: ToolStep, on_progress: Callable[[str], None]) -> None:
        """Run a ready call and store its outcome or its server's elicitation. Raises LostLease and Stopped.

        A call that may not be repeated is stored as started before it is sent: after a crash its outcome counts as
        unknown.
        """
        context = CallContext(
            self._author,
            key=f"{self._claim.turn_id}:{step.n}",
            on_progress=on_progress,
            replies=step.resume,
            elicit=partial(self._elicitations.open, step.n),
            conversation=self._claim.conversation,
        )
        if step.tool is not None and step.tool.is_builtin:
            tool = Tool(step.call.name, step.tool.server, step.tool.name)  # no rule is about the bot's own tools
        else:
            checked = await self._check_again(step, context)
            if isinstance(checked, ToolResult):
                await self._finish(step, StepStatus.FAILED, checked)
                return
            tool = checked
        if not step.repeatable:
            await self._record_start(step.n)
        self._sent_at[step.n] = sent_at = self._clock()
        outcome = await self._toolbox.call(tool, step.call, context)
        if isinstance(outcome, CallNeedsInput) and not self._elicitations.too_many(step):
            self._on_record(await self._elicitations.save(step.n, outcome))
        else:
            await self._finish(step, *_final_status(step, outcome), self._clock() - sent_at)
        del self._sent_at[step.n]

    async def _check_again(self, step: ToolStep, context: CallContext) -> Tool | ToolResult:
        """Return the tool of a server's call, or the result of a call that must not be sent any more."""
        # Only approved and granted calls wait for the server to confirm its tools: their definition may be hours old.
        unconfirmed = ""
        if step.tool and (step.approval or step.grant):
            unconfirmed = await self._toolbox.servers.confirm(step.tool.server_id, context)
        offered = await self._toolbox.servers.offer(self._claim.conversation.workspace_key)
        tool = offered.find(step.call.name)
        asker = await self._member()
        rejection = closed_reason(step.call.name, offered)
        if not rejection and (rejection := _other_server(step, tool)):
            unconfirmed = ""
        rejection = rejection or unconfirmed or _rejection_reason(step, tool, self._rules(), context.author, asker)
        if tool is None or rejection:
            # The reason why a server cannot confirm its tools may hold text from the server.
            unreviewed = step.call.name in offered.withheld
            return explained_failure(step.call.id, not_run(rejection), own=not unconfirmed, unreviewed=unreviewed)
        return tool

    async def _record_start(self, n: int) -> None:
        """Store the start of a call, again if that took longer than the lease: another process may have set the outcome
        to unknown, and nothing may be sent after that. Raises LostLease and Stopped.
        """
        while True:
            started_at = self._clock()
            record = await self._log.start_call(self._claim, n)
            if self._clock() - started_at < self._log.lease_seconds:
                self._on_record(record)
                return

    async def _finish(
        self, step: ToolStep, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> None:
        """Store the outcome, and log a call without a result. Its text has no secrets of its server
        (`bot.mcp.redaction`).
        """
        if status is not StepStatus.DONE:
            error = single_line(result.text, _LONGEST_ERROR)
            log.warning("call of %s ended as %s after %.1f s: %s", step.call.name, status.value, seconds or 0.0, error)
        self._on_record(await self._log.finish_call(self._claim, step.n, status, result, seconds))


def _other_server(step: ToolStep, tool: Tool | None) -> str:
    """Return the reason why a call is not sent to another server that has the tool by now; empty if it is the same. The
    decisions about the call were for the first.
    """
    if step.tool is None or tool is None or step.tool.server == tool.server or step.tool.server_id == tool.server_id:
        return ""
    return gettext_lazy(
        "the call was for server {server}, which is away now. Server {other} has {tool}, too. Call it again to use "
        "that one.",
        server=step.tool.server,
        other=tool.server,
        tool=step.call.name,
    )


def _rejection_reason(step: ToolStep, tool: Tool | None, rules: Rules, author: Author, member: Member | None) -> str:
    """Return the reason why a call must not be sent any more; empty if it may."""
    if tool is None:
        return gettext_lazy("{tool} is not available now.", tool=step.call.name)
    if not rules.profile.enables(tool):
        return not_enabled_reason(step.call.name)
    result = rules.judge(tool, step.call.arguments, author, member)
    if result.stored.policy is ApprovalPolicy.ALWAYS_DENY:
        return gettext_lazy("a policy forbids {tool}.", tool=step.call.name)
    is_context_call = step.origin is CallOrigin.CONTEXT and not context_tool_rejection(tool, result.stored)
    if result.stored.policy is ApprovalPolicy.ASK_USER and not (
        step.approval or is_context_call or _is_granted(step, result)
    ):
        # Allowed at the time of the completion, perhaps for another server of that name.
        return gettext_lazy("{tool} needs an approval now. Call it again to request one.", tool=step.call.name)
    return _approved_call_mismatch(step, tool)


def _approved_call_mismatch(step: ToolStep, tool: Tool) -> str:
    """Return the difference between this call and the approved one, or between this server and the one that the answers
    are for; empty if there is none.
    """
    approved = step.approval or step.grant
    if approved is not None and approved.fingerprint != fingerprint(tool, step.call.arguments):
        return gettext_lazy(
            "{tool} has changed since it was approved. Ask again to get the new version approved.", tool=step.call.name
        )
    current = step.tool if step.resume is not None else None
    if current is not None and (current.server_id, current.place) != (tool.server_id, tool.place):
        return gettext_lazy(
            "{tool} now belongs to another server or address, and the answers were for the first.", tool=step.call.name
        )
    return ""


def _is_granted(step: ToolStep, result: PolicyResult) -> bool:
    """Return True if the call's grant answers the current rule on its current requirements."""
    taint = Words.OWN if step.policy_result is None else step.policy_result.taint
    asked_by = replace(result.stored, taint=taint).asked_by
    grant = step.grant
    return grant is not None and grant.rule == asked_by and grant.terms in accepted_digests(result.requirements)


def _final_status(step: ToolStep, outcome: ToolOutcome) -> tuple[StepStatus, ToolResult]:
    match outcome:
        case CallReturned(result):
            return (StepStatus.FAILED if result.is_error else StepStatus.DONE), result
        case CallNeedsInput():
            return StepStatus.FAILED, explained_failure(step.call.id, TOO_MANY)
        case CallNotSent(reason, unreviewed):
            return StepStatus.FAILED, explained_failure(step.call.id, not_run(reason), unreviewed=unreviewed)
        case CallOutcomeUnknown(reason) if step.only_reads:
            return StepStatus.FAILED, explained_failure(step.call.id, reason)
        case CallOutcomeUnknown(reason):
            advice = f"{english(reason)} {UNSURE} Check before trying again, and tell the person."
            return StepStatus.UNKNOWN, replace(
                explained_failure(step.call.id, advice), for_people=text_for_people(reason)
            )
