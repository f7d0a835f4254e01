"""`/approvals`: the calls that wait for one user's approval, as a private list in which the user decides them, and as a
command that takes their ids, for platforms without such a list. The engine checks every decision.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import time
from typing import TypeVar
from uuid import uuid4

from bot.admin.command import CONFIRM, HELP, Command, CommandContext, CommandRejected, VerbHandler
from bot.admin.dependencies import Rights
from bot.chat.actions import (
    Approve,
    ApproveWithGrant,
    ConfirmApproval,
    InInbox,
    OpenDenyForm,
    ShowInbox,
    rejection_message,
)
from bot.chat.card_messages import (
    DIRECT_CONVERSATION,
    OPEN_CARD,
    alike_button,
    confirmation_message,
    open_call_buttons,
    pending_line,
)
from bot.chat.delivery import ChannelMessages, NoticeOwner
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    ChannelLink,
    Footer,
    Heading,
    Link,
    Message,
    Paragraph,
    Rule,
    Span,
    Text,
    fill_spans,
)
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
from bot.domain.conversations import HTTP, ConversationKey, Member, workspace_prefixes
from bot.domain.turns import Notice, StepStatus, ToolRef, ToolStep, Turn
from bot.engine.delegations import decidable
from bot.engine.policy.rules import RuleBook, is_expected_approver
from bot.engine.surfaces import Surfaces
from bot.errors import CountersignError
from bot.i18n import _, gettext_lazy, ngettext, pgettext
from bot.ports import ApprovalLog, Commands, EngineApi, UserActivity
from bot.ports.platform import ApproverDirectory
from bot.ports.reporting import read_pending_approvals
from bot.rendering.approval_card import (
    ApprovalCard,
    approval_card,
    asker_name,
    earliest_expiry,
    format_duration,
    headline,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

COMMAND = "approvals"
CALLS_A_PAGE = 4
"""Calls with all of their buttons in one message of Discord."""
NOTHING_WAITS = gettext_lazy("Nothing waits for you.")
NOT_ALL_READ = gettext_lazy(
    "Too many calls wait for others to look through all of them. The cards in their threads show the rest."
)
SHOWN = 20
MOST_SEARCHED = 200
ID_LENGTH = 8
MOST_READ = 10_000
"""Pending calls of a workspace that are read for one list, the oldest."""
COUNTED_AT_ONCE = 100
"""Calls of the user that are counted, beside those of the page and of earlier pages."""
_ID = Parameter("id", "the id on the card, or its beginning", required=True)
_REASON = Parameter("reason", "why, for the model", repeated=True)
_SUMMARY = gettext_lazy("Calls that wait for your approval")
_LIST = Verb("list", "the calls that wait for you, oldest first", (), RequiredRole.EVERYONE, reads=True)
_APPROVE = Verb("approve", "approve one of them", (_ID, CONFIRM), RequiredRole.EVERYONE)
_DENY = Verb("deny", "deny one of them", (_ID, _REASON), RequiredRole.EVERYONE)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that this user may decide. `card_url` is the URL of its card, empty if it has none. `is_direct` is True if
    it was asked for in a direct conversation.
    """

    turn: Turn
    step: ToolStep
    card_url: str = ""
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Some of the calls that this user may decide, oldest first. `count` is the number of all, or if `all_counted` is
    False the number of those that were counted: more of them may wait.
    """

    calls: Sequence[PendingCall] = ()
    count: int = 0
    all_counted: bool = True


ReadPendingCalls = Callable[[Member, str, int, int], Awaitable[PendingCalls]]
"""Return the calls that a user may decide in a workspace (its key), from this one on and at most so many."""


def is_inbox_command(words: Sequence[str]) -> bool:
    """Return True if a command (its words, the name first) asks for the list."""
    return list(words) in ([COMMAND], [COMMAND, "list"])


def inbox_message(pending: PendingCalls, page: int, now: float) -> Message:
    """Return a page of the list."""
    return Message("inbox", tuple(_blocks(pending, page, now)))


def inbox_confirmation(step: ToolStep, card: ApprovalCard, page: int) -> Message:
    """Return the question before a call is approved that may destroy data, in place of the list."""
    message = confirmation_message(step, card)
    *before, buttons = message.blocks
    assert isinstance(buttons, Buttons)
    asked = _in_inbox(buttons, page)
    return replace(
        message, blocks=(*before, replace(asked, buttons=(*asked.buttons, Button(_("Back"), ShowInbox(page)))))
    )


def pending_call_blocks(call: PendingCall, now: float) -> Iterator[Block]:
    """Yield a call with its author, place and expiry, and with the buttons of its card."""
    card = approval_card(call.step)
    if card is None:
        return
    yield from pending_line(call.step, card, now, call.turn.question.agent_name)
    conversation = call.turn.conversation
    place: Span = Text(str(DIRECT_CONVERSATION)) if call.is_direct else ChannelLink(conversation.channel)
    if conversation.platform == HTTP:
        place = Text(_("the console"))
    link: tuple[Span, ...] = (Text(" · "), Link(call.card_url, str(OPEN_CARD))) if call.card_url else ()
    yield Footer((*fill_spans(_("In {place}"), place=place), *link))
    yield open_call_buttons(call.step, card)


async def post_call_notice(messages: ChannelMessages, notice: Notice, channel: ConversationKey) -> bool:
    """Post a notice about a pending call in a direct conversation, with the call and its buttons. Return False for any
    other notice. Raises DeliveryFailed.
    """
    if notice.call is None:
        return False
    blocks = pending_call_blocks(PendingCall(*notice.call, notice.card_url), time())
    shown = (_in_inbox(block, 1) if isinstance(block, Buttons) else block for block in blocks)
    owner = NoticeOwner(f"notice:{uuid4().hex}", channel, time())
    await messages.show_in_channel(owner, Message("notice", (Paragraph((Text(notice.text),)), *shown)), "")
    return True


def waiting_title(count: int, *, all_counted: bool) -> str:
    """Return the title of a list of pending calls."""
    if not count:
        return _("Waiting for you")
    if all_counted:
        return _("Waiting for you ({count})", count=count)
    return _("Waiting for you (at least {count})", count=count)


def waiting_sentence(pending: PendingCalls) -> str:
    """Return the number of pending calls in a sentence."""
    count = pending.count
    if pending.all_counted:
        return ngettext("{n} call waits for you, oldest first.", "{n} calls wait for you, oldest first.", count)
    return _("At least {count} calls wait for you, oldest first.", count=count)


def page_text(number: int, pages: int, *, all_counted: bool) -> str:
    """Return the position of a page in a list of pending calls."""
    if all_counted:
        return _("Page {number} of {count}", number=number, count=pages)
    return _("Page {number} of at least {count}", number=number, count=pages)


def page_count(pending: PendingCalls) -> int:
    """Return the number of pages of the list that are counted."""
    return max(1, -(-pending.count // CALLS_A_PAGE))


def _blocks(pending: PendingCalls, page: int, now: float) -> Iterator[Block]:
    yield Heading(waiting_title(pending.count, all_counted=pending.all_counted))
    if not pending.calls:
        yield Paragraph((Text(str(NOTHING_WAITS if pending.all_counted else NOT_ALL_READ)),))
    for call in pending.calls:
        yield Rule()
        for block in pending_call_blocks(call, now):
            yield _in_inbox(block, page) if isinstance(block, Buttons) else block
    alike: dict[ToolRef | None, list[ToolStep]] = {}
    for call in pending.calls:
        alike.setdefault(call.step.tool, []).append(call.step)
    for steps in alike.values():
        if button := alike_button(steps):
            yield Rule()
            yield _in_inbox(Buttons((button,)), page)
    pages = page_count(pending)
    buttons = [Button(_("Back"), ShowInbox(page - 1))] if page > 1 else []
    buttons.append(Button(_("Refresh"), ShowInbox(page)))
    buttons += [Button(_("More"), ShowInbox(page + 1))] if page < pages else []
    if pages > 1:
        yield Footer((Text(page_text(page, pages, all_counted=pending.all_counted)),))
    yield Buttons(tuple(buttons))


def _in_inbox(buttons: Buttons, page: int) -> Buttons:
    """Return the buttons of a card with actions that update the list, without the rarer ones."""
    listed = []
    for button in buttons.buttons:
        match button.action:
            case Approve() | ApproveWithGrant() | ConfirmApproval() as action:
                listed.append(replace(button, action=InInbox(action, page)))
            case OpenDenyForm(card):
                listed.append(replace(button, action=OpenDenyForm(card, inbox_page=page)))
            case _:
                listed.append(button)
    return Buttons(tuple(listed))


class ApprovalsCommand:
    """The commands, and `/approvals` beside them. `read` returns the calls that a user may decide."""

    def __init__(self, engine: EngineApi, commands: Commands, read: ReadPendingCalls) -> None:
        self._engine = engine
        self._commands = commands
        self._read = read
        handlers = (
            VerbHandler(_LIST, self._list),
            VerbHandler(_APPROVE, self._approve),
            VerbHandler(_DENY, self._deny),
            *(
                VerbHandler(verb, partial(self._pass_on, verb.path), raw=True)
                for verb in commands.verbs.get(COMMAND, ())
                if verb.path != HELP.path
            ),
        )
        self._command = Command(COMMAND, _SUMMARY, handlers, _NO_RIGHTS, default="list")

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

    async def _pass_on(self, path: str, request: CommandContext) -> AsyncIterator[Reply | Form]:
        words = (path, *request.words)
        async for answer in self._commands.handle(Invocation(COMMAND, words, request.member, request.conversation)):
            yield answer

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        pending = await self._read(request.member, request.conversation.workspace_key, 0, SHOWN)
        yield _list_reply(pending, time())

    async def _approve(self, request: CommandContext) -> AsyncIterator[Reply]:
        step, approval, revision = await self._find(request)
        if step.may_destroy:
            listed, confirmed = _list_id(approval), request.arguments.get("confirm")
            if not confirmed:
                card = approval_card(step)
                call = () if card is None else ((_("call"), headline(step, card).removesuffix("?")),)
                arguments = () if card is None else card.arguments
                yield Reply(
                    _("Approve this call? It may destroy data. Type its id to confirm."),
                    details=(*call, *((each.label, each.preview) for each in arguments), (_("id"), listed)),
                    actions=(
                        ReplyAction(_("Approve"), (COMMAND, "approve", listed), ActionStyle.DANGER, confirm=listed),
                    ),
                )
                return
            if confirmed != listed:
                raise CommandRejected(_("That was not its id. Nothing was approved."))
        yield await self._decide(request, Decision(approval.id, revision, DecisionType.APPROVE, request.author))

    async def _deny(self, request: CommandContext) -> AsyncIterator[Reply]:
        _step, approval, revision = await self._find(request)
        reason = " ".join(request.arguments.get_all("reason"))
        yield await self._decide(request, Decision(approval.id, revision, DecisionType.DENY, request.author, reason))

    async def _decide(self, request: CommandContext, decision: Decision) -> Reply:
        rejection = rejection_message(await self._engine.approvals.decide(decision, request.member))
        if rejection:
            return Reply(rejection, failed=True)
        return Reply(_("Approved.") if decision.type is DecisionType.APPROVE else _("Denied."))

    async def _find(self, request: CommandContext) -> tuple[ToolStep, Approval, int]:
        """Return the call of the id in the command, in the revision that the id names. Without one it is the first, so
        that arguments that were edited after the list was read are not approved unseen. Raises CommandRejected if none
        or several of the user's calls have the id.
        """
        written, _dot, revision = request.arguments.get("id").partition(".")
        pending = await self._read(request.member, request.conversation.workspace_key, 0, MOST_SEARCHED)
        approvals = [(call.step, call.step.approval) for call in pending.calls if call.step.approval is not None]
        matching = [call for call in approvals if len(written) >= 4 and call[1].id.startswith(written)]
        if len(matching) != 1 or not re.fullmatch(r"[1-9][0-9]{0,8}|", revision):
            raise CommandRejected(_("No call that waits for you has this id. `/approvals` lists them."))
        return (*matching[0], int(revision or "1"))


def _list_id(approval: Approval) -> str:
    return approval.id[:ID_LENGTH] + (f".{approval.revision}" if approval.revision > 1 else "")


def _list_reply(pending: PendingCalls, now: float) -> Reply:
    if not pending.count:
        return Reply(str(NOTHING_WAITS if pending.all_counted else NOT_ALL_READ))
    more = pending.count - len(pending.calls)
    sentences = (
        waiting_sentence(pending),
        ngettext("And {n} more.", "And {n} more.", more) if more > 0 and pending.all_counted else "",
        _("Decide with `/approvals approve ID` or `/approvals deny ID REASON`."),
    )
    headings = (_("id"), _("call"), _("asked by"), pgettext("heading", "in"), _("expires"))
    return Reply(" ".join(filter(None, sentences)), Table(headings, tuple(_row(call, now) for call in pending.calls)))


def _row(call: PendingCall, now: float) -> tuple[str, ...]:
    approval, card, conversation = call.step.approval, approval_card(call.step), call.turn.conversation
    if approval is None or card is None:
        return ("", "", "", "", "")
    end = earliest_expiry([approval], now)
    left = 0.0 if end is None else max(end[0] - now, 0.0) if end[0] else end[1]
    expires = _("never") if end is None else _("in {duration}", duration=format_duration(left))
    place = call.card_url or conversation.thread or conversation.channel
    if conversation.platform == HTTP:
        place = _("the console")
    return (_list_id(approval), headline(call.step, card).removesuffix("?"), asker_name(approval), place, expires)


_NO_RIGHTS = Rights(administers=lambda _: False, operates=lambda _: False, vouches=lambda _: False)


# -------------------- reading


@dataclass(frozen=True, slots=True)
class PendingCallReader:
    """Reads pending calls. Approvers are looked up each time. `directory` links to the cards; None without links.
    `is_direct` returns True for a direct conversation.
    """

    overview: UserActivity
    log: ApprovalLog
    rules: RuleBook
    directory: ApproverDirectory | None = None
    is_direct: Callable[[ConversationKey], bool] = lambda _conversation: False
    members: Surfaces = Surfaces(())

    async def read(self, member: Member, workspace_key: str, start: int, count: int) -> PendingCalls:
        """Return the calls of a workspace that wait for this user, oldest first, from `start` on, also those of its
        users in the console. Raises CountersignError.
        """
        return await self.read_within(member, workspace_prefixes(workspace_key), start, count)

    async def read_within(self, member: Member, key_prefixes: Sequence[str], start: int, count: int) -> PendingCalls:
        """Return the calls in conversations with these key prefixes, as `read`."""
        theirs = await read_pending_approvals(
            self.overview,
            key_prefixes,
            decidable(self.log, self.members, member, partial(is_expected_approver, self.rules)),
            limit=start + count + COUNTED_AT_ONCE,
            most_read=MOST_READ,
            oldest_first=True,
        )
        ids = [call.approval_id for call in theirs.calls]
        calls = await asyncio.gather(*map(self._call, ids[start : start + count]))
        return PendingCalls(tuple(call for call in calls if call is not None), len(ids), theirs.behind is None)

    async def _call(self, approval_id: str) -> PendingCall | None:
        """Return the call, None if it is no longer pending."""
        call = await read_if_readable(self.log.get_approval(approval_id))
        if call is None or call[1].status is not StepStatus.AWAITING:
            return None
        turn, step = call
        url = ""
        if self.directory is not None and turn.conversation.platform != HTTP:
            view, refs = await self.log.get_view(turn.id), await self.log.get_message_refs(turn.id)
            url = await self.directory.card_url(view, approval_id, refs)
        return PendingCall(turn, step, url, self.is_direct(turn.conversation))


async def read_if_readable(reading: Awaitable[T | None]) -> T | None:
    """Return the result, None if it cannot be read: it must not hide other pending calls. Raises CountersignError."""
    try:
        return await reading
    except CountersignError:
        raise
    except Exception:
        log.exception("pending call is unreadable, left out of the list")
        return None
