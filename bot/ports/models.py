"""Language models and their lookup by name, and embeddings of texts for searching by meaning."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest


class LanguageModel(Protocol):
    """Language model of a provider."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield text as it is written, and a Completion last. Raises ModelUnavailable and ModelRejected. A stream
        without a Completion is an error of the adapter.
        """

    async def close(self) -> None:
        """Close all connections."""


class LanguageModels(Protocol):
    """All models that profiles may name."""

    async def get(self, name: str) -> LanguageModel:
        """Return the model `provider:name`; the bot's default if the name is empty. Raises ModelRejected if it cannot
        be used.
        """


RankTexts = Callable[[str, int], Sequence[int]]
"""Return the positions of the texts closest to a query, best first, at most a number of them; empty for a query without
known words.
"""
EmbedTexts = Callable[[Sequence[str]], RankTexts]
"""Embed texts with a model, and return the function that ranks them."""
