"""Dependencies of the HTTP API."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.commands.dependencies import CommandDependencies
from bot.domain.conversations import Member
from bot.domain.turns import ToolStep, Turn
from bot.ports import Commands, EngineApi, PendingApproval, TokenStore, UserActivity
from bot.web.turns.subscriptions import Subscriptions
from bot.web.turns.uploads import Uploads


@dataclass(frozen=True, slots=True)
class WebDependencies:
    """Dependencies of the routes. `following` and `uploads` are shared with the API's surface. `overview` lists pending
    calls, `approval` returns the call of an approval, `signs` returns True if a member may approve it now.
    `admin_token` is the operator's own, empty for none; `clock` is in epoch seconds.
    """

    engine: EngineApi
    commands: Commands
    command_parts: CommandDependencies
    tokens: TokenStore
    following: Subscriptions
    uploads: Uploads
    overview: UserActivity
    approval: Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]]
    signs: Callable[[Member, PendingApproval], bool]
    admin_token: str = ""
    clock: Callable[[], float] = time.time
