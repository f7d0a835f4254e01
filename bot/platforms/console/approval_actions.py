"""What the keys of cards lead to: a decision that the engine is asked to take, or a form.

Called by the chat for its cards. Whether the person may is for the engine to say.
"""

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
    """Does what a key says. The terminal has shown the whole call before a key can approve it. `engine` and `commands`
    give what the application has promised.
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
        """Sign a call or deny it."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, verdict, self._person.author, reason)
        if verdict is DecisionType.APPROVE and (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.decide(decision, self._person.member)

    async def allow(self, question: ApprovalPrompt, permission: GrantRequest) -> DecisionResult:
        """Sign a call and allow the next ones like it."""
        engine = await await_ready(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, DecisionType.APPROVE, self._person.author)
        if (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.grant(decision, permission, self._person.member)

    async def _opened(self, question: ApprovalPrompt, engine: EngineApi) -> DecisionResult | None:
        """Put on record that this person has had the whole call before them; why it is not for them, if it is not."""
        if not question.guarded:
            return None
        found = await engine.open_call(*question.key, self._person.member)
        return None if isinstance(found, ToolStep) else found

    async def change(self, question: ApprovalPrompt) -> None:
        """Have a call's form filled in."""
        forms = ArgumentEditForms(await await_ready(self._engine()), await await_ready(self._commands()))
        command, *words = edit_command(ApprovalRef(*question.key))
        await self._errands.run(forms, command, tuple(words))

    async def say(self, words: tuple[str, ...]) -> Reply | None:
        """Answer a server, or learn what it takes to."""
        forms = ElicitationForms(await await_ready(self._engine()), await await_ready(self._commands()))
        return await self._errands.run_dialog(forms, words)
