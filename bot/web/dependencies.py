"""Dependencies of the routes of the HTTP API, apart from FastAPI, which loads later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.admin.dependencies import CommandDependencies
from bot.domain.api_clients import ApiClient
from bot.domain.conversations import Member
from bot.domain.tools import Tool
from bot.domain.turns import ToolStep, Turn
from bot.engine.locales import LocaleResolver
from bot.ports import (
    CallAudit,
    Commands,
    EngineApi,
    GatewayCallStore,
    PendingApproval,
    ReceiptKeyStore,
    TokenStore,
    UserActivity,
)
from bot.web.surface import ApiSurface


@dataclass(frozen=True, slots=True)
class WebDependencies:
    """Dependencies of the routes. `user_activity` lists pending calls, `find_approval` returns the call of an approval,
    `may_approve` returns a test of the calls that a member may approve now, also for others. `call_audit` records calls
    without a turn. `gateway_calls` stores calls that other agents ask for, `offer_tools` returns the tools that a token
    may call, and `receipt_keys` stores the keys of receipts, which name `issuer`. Requests may choose one of `models`,
    `provider:name`. `locales` resolves languages and time zones. `keeps_content` is False if no history of
    conversations is stored.
    """

    engine: EngineApi
    commands: Commands
    command_dependencies: CommandDependencies
    tokens: TokenStore
    surface: ApiSurface
    user_activity: UserActivity
    find_approval: Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]]
    may_approve: Callable[[Member], Callable[[PendingApproval], Awaitable[bool]]]
    call_audit: CallAudit
    gateway_calls: GatewayCallStore
    receipt_keys: ReceiptKeyStore
    offer_tools: Callable[[ApiClient], Awaitable[Sequence[Tool]]]
    models: frozenset[str] = frozenset()
    locales: LocaleResolver = LocaleResolver()
    keeps_content: bool = True
    issuer: str = "countersign"
