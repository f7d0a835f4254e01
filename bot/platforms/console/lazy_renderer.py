"""Lazy import of the Markdown renderer, because rich takes longer to import than the prompt to appear."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from bot.domain.commands import Reply
from bot.platforms.console.theme import ConsoleTheme

if TYPE_CHECKING:
    from bot.platforms.console.markdown_renderer import MarkdownRenderer

WARM_UP = "`code`\n\n```python\nprint(1)\n```"


class LazyRenderer:
    """A typesetter that is loaded at its first use, or earlier by `warm_up`."""

    def __init__(self, look: ConsoleTheme) -> None:
        self._look = look

    async def warm_up(self) -> None:
        """Import in a thread, so that the first answer does not wait."""
        await asyncio.to_thread(self.markdown, WARM_UP, 40)

    def markdown(self, text: str, width: int) -> str:
        """Return Markdown as colored lines."""
        return self._typesetter.markdown(text, width)

    def reply(self, reply: Reply, width: int) -> str:
        """Return a command's reply as colored lines."""
        return self._typesetter.reply(reply, width)

    @cached_property
    def _typesetter(self) -> MarkdownRenderer:
        from bot.platforms.console.markdown_renderer import MarkdownRenderer  # noqa: PLC0415 - the prompt must not wait for rich

        return MarkdownRenderer(self._look)
