"""What the keys of cards lead to: a decision that the engine is asked to take, or a form.

Called by the chat for its cards. Whether the person may is for the engine to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.domain.approvals import Decision, Settlement, Verdict
from bot.domain.commands import Reply
from bot.domain.grants import Permission
from bot.domain.turns import ToolStep
from bot.platforms.console.errands import Errands
from bot.platforms.console.opening import arrived
from bot.platforms.console.person import Person
from bot.platforms.console.questions import Question
from bot.ports import Commands, FrontDoor
from bot.reception.editing import CallForms, opening
from bot.reception.inquiries import InquiryForms
from bot.reception.presses import CardRef


class CardErrands:
    """Does what a key says. The terminal has shown the whole call before a key can approve it. `engine` and `commands`
    give what the application has promised.
    """

    def __init__(
        self,
        person: Person,
        errands: Errands,
        engine: Callable[[], Awaitable[FrontDoor]],
        commands: Callable[[], Awaitable[Commands]],
    ) -> None:
        self._person = person
        self._errands = errands
        self._engine = engine
        self._commands = commands

    async def decide(self, question: Question, verdict: Verdict, reason: str) -> Settlement:
        """Sign a call or deny it."""
        engine = await arrived(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, verdict, self._person.author, reason)
        if verdict is Verdict.APPROVE and (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.decide(decision, self._person.member)

    async def allow(self, question: Question, permission: Permission) -> Settlement:
        """Sign a call and allow the next ones like it."""
        engine = await arrived(self._engine())
        approval_id, revision = question.key
        decision = Decision(approval_id, revision, Verdict.APPROVE, self._person.author)
        if (refusal := await self._opened(question, engine)) is not None:
            return refusal
        return await engine.grant(decision, permission, self._person.member)

    async def _opened(self, question: Question, engine: FrontDoor) -> Settlement | None:
        """Put on record that this person has had the whole call before them; why it is not for them, if it is not."""
        if not question.guarded:
            return None
        found = await engine.open_call(*question.key, self._person.member)
        return None if isinstance(found, ToolStep) else found

    async def change(self, question: Question) -> None:
        """Have a call's form filled in."""
        forms = CallForms(await arrived(self._engine()), await arrived(self._commands()))
        command, *words = opening(CardRef(*question.key))
        await self._errands.run(forms, command, tuple(words))

    async def say(self, words: tuple[str, ...]) -> Reply | None:
        """Answer a server, or learn what it takes to."""
        forms = InquiryForms(await arrived(self._engine()), await arrived(self._commands()))
        return await self._errands.converse(forms, words)
