"""The commands, as platforms and the HTTP API call them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey


class Commands(Protocol):
    """Slash commands, written once for all platforms."""

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Every verb by its command, for a platform that registers them."""

    def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a command, possibly several times while it works: each reply replaces the one before."""

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Whole command lines, without the slash, that begin with `text`, with the names that are known where the
        person stands: from memory, at once.
        """
