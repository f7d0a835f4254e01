"""Dependencies of the handlers of a chat platform: engine, commands, lookups, background tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.chat.approval_inbox import ApprovalsCommand, ReadPendingCalls
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.forms import CardForms
from bot.chat.home_message import Home
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.turns import ToolStep, Turn
from bot.engine.locales import LocaleResolver
from bot.errors import ContentDeleted
from bot.ports import Commands, EngineApi

ActiveConversations = Callable[[str, float, int], Awaitable[Sequence[ConversationKey]]]
"""Returns conversations by key prefix with activity in the last seconds, latest first, up to a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Optional lookups outside of the engine. `opinion` stores feedback on a turn's answer: the turn's id, True for
    good, and the author. `approval` finds the call of an approval (`ApprovalLog.get_approval`). `pending_calls` reads
    those that a user may decide. `build_home` returns the home of a user in a workspace, by its key (`slack:T1`).
    `prompts` returns those that are suggested in a conversation. `locales` resolves languages and time zones.
    """

    opinion: Callable[[str, bool, Author], Awaitable[None]] | None = None
    approval: Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]] | None = None
    pending_calls: ReadPendingCalls | None = None
    active_conversations: ActiveConversations | None = None
    build_home: Callable[[Member, str], Awaitable[Home]] | None = None
    prompts: Callable[[ConversationKey], Sequence[str]] | None = None
    locales: LocaleResolver = LocaleResolver()

    async def find_approval(self, approval_id: str) -> ToolStep | None:
        """Return the call of an approval in its current state, or None if it is unknown. Raises ContentDeleted."""
        call = await self.approval(approval_id) if self.approval is not None else None
        if call is None:
            return None
        turn, step = call
        if turn.content_deleted:
            raise ContentDeleted
        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext:
    """Dependencies of the handlers. `commands` include the forms of cards (`with_card_forms`)."""

    engine: EngineApi
    commands: Commands
    audience: AudiencePolicy
    background_tasks: BackgroundTasks
    records: Lookups


def with_card_forms(engine: EngineApi, commands: Commands, records: Lookups) -> Commands:
    """Return the commands, `/approvals`, and those behind cards: changed arguments of a call, answers to a server."""
    if records.pending_calls is not None:
        commands = ApprovalsCommand(engine, commands, records.pending_calls)
    return CardForms(engine, commands)
