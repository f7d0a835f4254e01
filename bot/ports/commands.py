"""Commands, for platforms and the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey


class Commands(Protocol):
    """Slash commands, written once for all platforms."""

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """All verbs by command, for platforms that register them."""

    def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a command, possibly several times during its work: each reply replaces the one before."""

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return whole command lines, without the slash, that begin with `text`. Names are those known in the
        conversation, from memory, so that this returns at once.
        """
