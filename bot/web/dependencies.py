"""What the HTTP API is built from: the same parts that the platforms and the commands have."""

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
    """Everything the routes need. `following` and `uploads` are shared with the surface that draws what is asked here;
    `overview` has what waits for a signature, `approval` finds the call that an approval asks about, `signs` says
    whether somebody's signature on one would count now. `admin_token` is the operator's own, empty for none; `clock` is
    in epoch seconds.
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
