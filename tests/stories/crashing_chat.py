"""The real chat, killed with SIGKILL at a step boundary: `python crashing_chat.py BOUNDARY TEXT CONVERSATION`.

A boundary is `before:METHOD` or `after:METHOD` of the turn log: the commit of the method is missing or on disk. Of
several methods, such as `take_in|enqueue`, the first call counts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

from bot.app.chat import ChatOptions, chat
from bot.platforms.console.auto_approval import ApproveMode
from bot.ports import TurnLog
from bot.settings import read_settings


class DyingLog:
    """A turn log that kills its process at the boundary."""

    def __init__(self, log: TurnLog, boundary: str) -> None:
        self._log = log
        self._when, _, methods = boundary.partition(":")
        self._methods = methods.split("|")
        self._card_is_on_disk = False

    @property
    def lease_seconds(self) -> float:
        return self._log.lease_seconds

    @property
    def shares_turns(self) -> bool:
        return self._log.shares_turns

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._log, name)

        async def call_or_die(*arguments: Any) -> Any:
            if self._when == "before" and self._due(name):
                os.kill(os.getpid(), signal.SIGKILL)
            result = await method(*arguments)
            if self._when == "after" and self._due(name):
                os.kill(os.getpid(), signal.SIGKILL)
            self._card_is_on_disk = self._card_is_on_disk or name == "append"
            return result

        return call_or_die

    def _due(self, name: str) -> bool:
        # Drawings are made all the time; the one that counts shows the card.
        return name in self._methods and (name != "mark_delivered" or self._card_is_on_disk)


def main() -> None:
    boundary, text, conversation = sys.argv[1:]
    options = ChatOptions(message=text, approve=ApproveMode.ALL, fresh=True, conversation=conversation)
    dying = asyncio.run(chat(read_settings(), options, watch_log=lambda log: cast("TurnLog", DyingLog(log, boundary))))
    sys.exit(dying)


if __name__ == "__main__":
    main()
