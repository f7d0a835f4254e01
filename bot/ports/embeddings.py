"""Embeddings of texts, for searching by meaning. Both methods compute: call them in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class EmbeddedTexts(Protocol):
    """Texts that were embedded together."""

    def rank(self, query: str, most: int) -> Sequence[int]:
        """Return the positions of the texts closest to the query, best first; empty for a query without known words."""
        ...


class TextEmbedder(Protocol):
    """A model that embeds texts."""

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        """Return the texts, ready to be ranked."""
        ...
