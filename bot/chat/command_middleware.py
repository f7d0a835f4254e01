"""Middleware before the commands. Its commands come from buttons only, so help does not list them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence

from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey
from bot.ports import Commands, EngineApi


class CommandMiddleware(ABC):
    """Commands, and something beside them."""

    def __init__(self, engine: EngineApi, commands: Commands) -> None:
        self._engine = engine
        self._commands = commands

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Those of the commands."""
        return self._commands.verbs

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """The commands' completions."""
        return self._commands.complete(text, conversation)

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer, or leave it to the commands."""
        answered = await self._answer(request)
        if answered is not None:
            yield answered
            return
        async for answer in self._commands.handle(request):
            yield answer

    @abstractmethod
    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        """Return the reply or form; None for a command of the wrapped service."""
