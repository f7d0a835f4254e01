"""`/approvals`: the calls that wait for the user, to be read and decided by their ids.

Chat platforms show the list with buttons instead (`bot.chat.approval_inbox`); the engine checks every decision.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time

from bot.chat.approval_inbox import (
    COMMAND,
    NOT_ALL_READ,
    NOTHING_WAITS,
    PendingCall,
    PendingCalls,
    ReadPendingCalls,
)
from bot.chat.rejection_messages import rejection_message
from bot.commands.argument_parser import CONFIRM, CommandRejected
from bot.commands.command import Command, CommandContext, VerbHandler
from bot.commands.dependencies import Rights
from bot.commands.text_format import pluralize
from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.commands import (
    ActionStyle,
    Form,
    FormSubmission,
    Invocation,
    Parameter,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import ToolStep
from bot.ports import Commands, EngineApi
from bot.rendering.approval_card import ApprovalCard, approval_card, earliest_expiry, format_duration, headline

SHOWN = 20
MOST_SEARCHED = 200
ID_LENGTH = 8
_ID = Parameter("id", "the id on the card, or its beginning", required=True)
_REASON = Parameter("reason", "why, for the model", repeated=True)


@dataclass(frozen=True, slots=True)
class _FoundCall:
    step: ToolStep
    approval: Approval
    revision: int


class ApprovalsCommand:
    """The commands, and `/approvals` beside them. `read` returns the calls that a user may decide."""

    def __init__(self, engine: EngineApi, commands: Commands, read: ReadPendingCalls) -> None:
        self._engine = engine
        self._commands = commands
        self._read = read
        handlers = (
            VerbHandler(
                Verb("list", "the calls that wait for you, oldest first", (), RequiredRole.EVERYONE), self._list
            ),
            VerbHandler(Verb("approve", "approve one of them", (_ID, CONFIRM), RequiredRole.EVERYONE), self._approve),
            VerbHandler(Verb("deny", "deny one of them", (_ID, _REASON), RequiredRole.EVERYONE), self._deny),
        )
        self._command = Command(COMMAND, "Calls that wait for your approval", handlers, _NO_RIGHTS, default="list")

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """All verbs by command."""
        return {**self._commands.verbs, COMMAND: self._command.verbs}

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return whole command lines that begin with `text`."""
        own = [COMMAND, *(f"{COMMAND} {verb.path}" for verb in self._command.verbs)]
        matching = [line for line in own if line.startswith(text) and (" " in line) == (" " in text)]
        return [*self._commands.complete(text, conversation), *matching]

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Run a command."""
        is_own = isinstance(request, Invocation) and request.command == COMMAND
        answers = self._command.invoke(request) if is_own else self._commands.handle(request)  # type: ignore[arg-type]
        async for answer in answers:
            yield answer

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        pending = await self._read(request.member, request.conversation.workspace_key, 0, SHOWN)
        yield _list_reply(pending, time())

    async def _approve(self, request: CommandContext) -> AsyncIterator[Reply]:
        call = await self._find(request)
        if call.step.tool is not None and call.step.tool.destructive:
            confirmed = request.arguments.get("confirm")
            if not confirmed:
                yield _confirmation(call)
                return
            if confirmed != _list_id(call.approval):
                raise CommandRejected("That was not its id. Nothing was approved.")
        yield await self._decide(request, call, DecisionType.APPROVE, "Approved.")

    async def _deny(self, request: CommandContext) -> AsyncIterator[Reply]:
        call = await self._find(request)
        yield await self._decide(
            request, call, DecisionType.DENY, "Denied.", " ".join(request.arguments.get_all("reason"))
        )

    async def _decide(
        self, request: CommandContext, call: _FoundCall, decision_type: DecisionType, done: str, reason: str = ""
    ) -> Reply:
        decision = Decision(call.approval.id, call.revision, decision_type, request.author, reason)
        rejection = rejection_message(await self._engine.approvals.decide(decision, request.member))
        return Reply(rejection, failed=True) if rejection else Reply(done)

    async def _find(self, request: CommandContext) -> _FoundCall:
        """Return the call of the id in the command, in the revision that the id names. Without one it is the first, so
        that arguments that were edited after the list was read are not approved unseen. Raises CommandRejected if none
        or several of the user's calls have the id.
        """
        written, _, revision = request.arguments.get("id").partition(".")
        pending = await self._read(request.member, request.conversation.workspace_key, 0, MOST_SEARCHED)
        approvals = [(call.step, call.step.approval) for call in pending.calls if call.step.approval is not None]
        matching = [call for call in approvals if len(written) >= 4 and call[1].id.startswith(written)]
        if len(matching) != 1 or not re.fullmatch(r"[1-9][0-9]{0,8}|", revision):
            raise CommandRejected(f"No call that waits for you has this id. `/{COMMAND}` lists them.")
        return _FoundCall(*matching[0], int(revision or "1"))


def _confirmation(call: _FoundCall) -> Reply:
    """Return the question before a call is approved that may destroy data."""
    card, listed = approval_card(call.step), _list_id(call.approval)
    shown = () if card is None else (("call", headline(call.step, card).removesuffix("?")), *_arguments(card))
    return Reply(
        "Approve this call? It may destroy data. Type its id to confirm.",
        details=(*shown, ("id", listed)),
        actions=(ReplyAction("Approve", (COMMAND, "approve", listed), ActionStyle.DANGER, confirm=listed),),
    )


def _arguments(card: ApprovalCard) -> Iterator[tuple[str, str]]:
    return ((argument.label, argument.preview) for argument in card.arguments)


def _list_id(approval: Approval) -> str:
    """Return the beginning of the id, with the revision of edited arguments."""
    return approval.id[:ID_LENGTH] + (f".{approval.revision}" if approval.revision > 1 else "")


def _list_reply(pending: PendingCalls, now: float) -> Reply:
    if not pending.count:
        return Reply(NOTHING_WAITS if pending.all_counted else NOT_ALL_READ)
    more = pending.count - len(pending.calls)
    text = f"{pluralize(pending.count, 'call')} {'waits' if pending.count == 1 else 'wait'} for you, oldest first."
    text += f" And {more} more." if more > 0 else ""
    text += f" Decide with `/{COMMAND} approve ID` or `/{COMMAND} deny ID REASON`."
    rows = tuple(_row(call, now) for call in pending.calls)
    return Reply(text, Table(("id", "call", "asked by", "in", "expires"), rows))


def _row(call: PendingCall, now: float) -> tuple[str, ...]:
    approval, card, conversation = call.step.approval, approval_card(call.step), call.turn.conversation
    if approval is None or card is None:
        return ("", "", "", "", "")
    end = earliest_expiry([approval], now)
    expires = "never" if end is None else f"in {format_duration(max(end[0] - now, 0.0) if end[0] else end[1])}"
    place = call.card_url or conversation.thread or conversation.channel
    return (_list_id(approval), headline(call.step, card).removesuffix("?"), card.asked_by, place, expires)


def _nobody(_member: Member) -> bool:
    return False


_NO_RIGHTS = Rights(_nobody, _nobody, _nobody)
