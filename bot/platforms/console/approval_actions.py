"""Actions of the keys on cards: a decision, or a form. The engine checks the user's rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.chat.actions import ApprovalRef
from bot.chat.argument_editing import ArgumentEditForms, edit_command
from bot.chat.elicitation_forms import ElicitationForms
from bot.domain.approvals import Decision, DecisionResult, DecisionType
from bot.domain.commands import Reply
from bot.domain.grants import GrantRequest
from bot.domain.turns import ToolStep
from bot.platforms.console.approval_queue import ApprovalPrompt
from bot.platforms.console.command_runner import CommandRunner
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.startup import await_ready
from bot.ports import Commands, EngineApi


class ApprovalActions:
    """Runs the actions of keys. A key can approve a call only after the terminal has shown all of it. `engine` and
    `commands` are set by the application once they are ready.
    """

    def __init__(
        self,
        person: LocalUser,
        errands: CommandRunner,
        engine: Callable[[], Awaitable[EngineApi]],
        commands: Callable[[], Awaitable[Commands]],
    ) -> None:
        self._person = person
        self._errands = errands
        self._engine = engine
        self._commands = commands

    async def decide(self, question: ApprovalPrompt, verdict: DecisionType, reason: str) -> DecisionResult:
        """Approve or deny a call."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, verdict, self._person.author, reason)
        if verdict is DecisionType.APPROVE and (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.decide(decision, self._person.member)

    async def allow(self, question: ApprovalPrompt, permission: GrantRequest) -> DecisionResult:
        """Approve a call and grant later ones."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, DecisionType.APPROVE, self._person.author)
        if (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.grant(decision, permission, self._person.member)

    async def _opened(self, question: ApprovalPrompt, engine: EngineApi) -> DecisionResult | None:
        """Record that the user has seen the whole call. Return the rejection if the user may not see it, else None."""
        if not question.guarded:
            return None
        found = await engine.open_call(*question.key, self._person.member)
        return None if isinstance(found, ToolStep) else found

    async def change(self, question: ApprovalPrompt) -> None:
        """Edit a call in its form."""
        forms = ArgumentEditForms(await await_ready(self._engine()), await await_ready(self._commands()))
        command, *words = edit_command(ApprovalRef(*question.key))
        await self._errands.run(forms, command, tuple(words))

    async def say(self, words: tuple[str, ...]) -> Reply | None:
        """Send an action to the engine and fill in its form, if any."""
        forms = ElicitationForms(await await_ready(self._engine()), await await_ready(self._commands()))
        return await self._errands.run_dialog(forms, words)
