"""Approvals: the calls that wait for the user, one call as a whole, its decision, and what the user has decided.

Cards, texts and rules are those of the chat: a decision goes through `EngineApi.approvals`, and of two at once the
first counts. A call outside of the user's workspace is answered like one that does not exist.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from bot.admin.text_format import format_moment
from bot.chat.actions import GONE, ApprovalRef, Approve, rejection_message
from bot.chat.approval_inbox import (
    NOT_ALL_READ,
    NOTHING_WAITS,
    PendingCalls,
    page_text,
    read_if_readable,
    waiting_sentence,
)
from bot.chat.card_messages import alike_button, approval_question
from bot.chat.forms import edit_command
from bot.domain.approvals import Approval, Decided, Decision, DecisionResult, DecisionType, MoreApprovalsNeeded
from bot.domain.audit import KINDS, AuditEntry, AuditQuery
from bot.domain.commands import Form, FormSubmission, Invocation
from bot.domain.turns import StepStatus, ToolStep, Turn, TurnView
from bot.errors import ContentDeleted
from bot.i18n import _, format_datetime, format_time
from bot.ports import PendingApproval
from bot.rendering import approval_card as cards
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ApprovalEntry, timeline, tool_status, tool_text
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.menu import APPROVALS_PATH
from bot.web.console.places import conversation_path, key_prefixes, place_name
from bot.web.console.rendering import HEADERS
from bot.web.console.request import ConsoleRequest, read_number
from bot.web.console.sessions import Viewer
from bot.web.problems import Problem

CALLS_A_PAGE = 10
DECISIONS_A_PAGE = 25
_DAY = 86_400.0
_DECISIONS = {"approve": DecisionType.APPROVE, "deny": DecisionType.DENY}


@dataclass(frozen=True, slots=True)
class CallView:
    """A call with the texts of its card, for a template. `facts` are its circumstances by name, `state` is what became
    of it after its decision.
    """

    turn: Turn
    step: ToolStep
    approval: Approval
    card: cards.ApprovalCard
    title: str
    reason: str
    facts: tuple[tuple[str, str], ...]
    outcome: str
    state: str

    @property
    def is_open(self) -> bool:
        """True if the call waits for a decision."""
        return self.step.status is StepStatus.AWAITING

    @property
    def risk(self) -> str:
        """The risk as cards name it."""
        return str(cards.RISKS[self.card.risk])

    @property
    def changes(self) -> tuple[str, ...]:
        """Editors, and arguments before and after."""
        return cards.edit_lines(self.step)

    @property
    def offers(self) -> tuple[cards.GrantOption, ...]:
        """Grants that may be given with an approval."""
        return cards.grant_offers(self.step)

    @property
    def withheld_text(self) -> str:
        """Reason against approving from the card."""
        return cards.withheld_text(self.card)

    @property
    def can_edit(self) -> bool:
        """True if the call has a form."""
        return cards.can_edit(self.step)


def pending_state(pending: PendingCalls) -> str:
    """Return a digest of the calls that wait for a user, by which a page knows that they are others."""
    approvals = [each.step.approval for each in pending.calls]
    facts = (pending.count, [(each.id, each.revision, each.approver_names) for each in approvals if each])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def call_view(turn: Turn, step: ToolStep, view: TurnView | None, *, is_whole: bool = False) -> CallView | None:
    """Return a call for a template, None without an approval. `view` has the model's reason and the outcome."""
    card = cards.whole_card(step) if is_whole else cards.approval_card(step)
    if card is None or step.approval is None:
        return None
    entries = timeline(view) if view is not None else ()
    reason = next((each.reason for each in entries if isinstance(each, ApprovalEntry) and step in each.calls), "")
    state = tool_text(tool_status(step, view)) if view is not None and step.status is not StepStatus.AWAITING else ""
    title = cards.headline(step, card).removesuffix("?")
    facts = tuple(_facts(turn, step, step.approval))
    return CallView(turn, step, step.approval, card, title, reason, facts, card.outcome or state, state)


def _facts(turn: Turn, step: ToolStep, approval: Approval) -> list[tuple[str, str]]:
    now = time.time()
    end = cards.earliest_expiry([approval], now)
    expires = _("never")
    if end is not None:
        expires = format_time(end[0]) if end[0] - now < _DAY else format_datetime(end[0])
    facts = [
        (_("asked by"), cards.asker_name(approval)),
        (_("agent"), single_line(turn.question.agent_name, 60)),
        (_("question"), single_line(turn.question.typed_text, 200)),
        (_("place"), place_name(turn.conversation)),
        (_("approvers"), cards.required_approvers_text(step, approval) or cards.approver_reason(step)),
        (_("approved so far"), cards.approved_by_text(approval)),
        (_("why it asks"), cards.approver_reason(step)),
        (_("rule"), single_line(step.policy_result.rule, 100) if step.policy_result is not None else ""),
        (_("expires"), expires if step.status is StepStatus.AWAITING else ""),
        (_("decided"), format_moment(approval.decided_at or 0.0)),
        (_("id"), single_line(approval.id, 100)[:8]),
    ]
    texts: dict[str, str] = {}
    for name, text in facts:
        if text and text not in texts.values():
            texts[name] = text
    return list(texts.items())


class ApprovalPages:
    """The pages."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._dependencies = dependencies
        self._engine = dependencies.web.engine

    async def list(self, call: ConsoleRequest) -> Response:
        """Show the calls that wait for the user, or approve several that are alike."""
        if call.is_post:
            return await self._decide_alike(call)
        return await self._list(call, await self._decided_notice(call))

    async def show(self, call: ConsoleRequest) -> Response:
        """Show one call, also a decided one, or decide it."""
        turn, step = await self._find(call)
        if not call.is_post:
            return await self._call_page(call, turn, step)
        match call.form.get("decision"):
            case "open":
                return await self._open(call, turn, step)
            case "approve" if step.may_destroy and not call.form.get("confirmed"):
                return await self._question(call, turn, step)
            case "approve" | "deny":
                return await self._decide(call, turn, step)
        raise Problem(400, "no_decision", _("This form has no decision."), _("open the call again"))

    async def edit(self, call: ConsoleRequest) -> Response:
        """Show the form of a call's arguments, or take it."""
        turn, step = await self._find(call)
        assert step.approval is not None
        member, place = call.viewer.member, turn.conversation
        if call.is_post:
            fields = {name: values[-1] for name, values in (call.form.below("c.") | call.form.below("f.")).items()}
            request: Invocation | FormSubmission = FormSubmission(call.form.get("form"), fields, member, place)
        else:
            command, *words = edit_command(ApprovalRef(step.approval.id, step.approval.revision))
            request = Invocation(command, tuple(words), member, place)
        (answer,) = [answer async for answer in self._dependencies.commands.handle(request)]
        if isinstance(answer, Form):
            return call.page("edit.html", form=answer, submit=_("Save"), title=answer.title, approval=step.approval)
        if not answer.failed:
            return self._to(call, step.approval.id)
        return await self._call_page(call, *await self._find(call), notice=answer.text, status=409)

    async def decided(self, call: ConsoleRequest) -> Response:
        """Show the decisions of the user, the last first."""
        number = max(read_number(call.form.get("page")), 1)
        query = AuditQuery(person=call.viewer.author.principal, kinds=KINDS["decisions"])
        archive = self._dependencies.web.command_dependencies.stores.archive
        entries, count = await archive.audit(query, DECISIONS_A_PAGE, (number - 1) * DECISIONS_A_PAGE)
        rows = [await self._decision(entry) for entry in entries]
        more = number * DECISIONS_A_PAGE < count
        return call.page("decided.html", rows=rows, count=count, number=number, more=more)

    async def _decision(self, entry: AuditEntry) -> dict[str, str]:
        approval_id = str(entry.facts.get("approval", ""))
        found = await read_if_readable(self._dependencies.web.find_approval(approval_id)) if approval_id else None
        view = call_view(*found, None) if found is not None else None
        return {
            "id": approval_id,
            "when": format_moment(entry.at),
            "title": view.title if view is not None else _("a call that was deleted"),
            "decision": str(entry.facts.get("verdict", entry.kind)),
            "outcome": view.outcome if view is not None else "",
        }

    async def _list(self, call: ConsoleRequest, notice: str = "", status: int = 200) -> Response:
        number = max(read_number(call.form.get("page")), 1)
        start = (number - 1) * CALLS_A_PAGE
        member = call.viewer.member
        pending = await self._dependencies.read_pending(member, key_prefixes(call.viewer), start, CALLS_A_PAGE)
        views = [await self._view(each.turn, each.step) for each in pending.calls]
        alike: dict[object, list[ToolStep]] = {}
        for each in pending.calls:
            alike.setdefault(each.step.tool, []).append(each.step)
        buttons = [button for steps in alike.values() if (button := alike_button(steps)) is not None]
        return call.page(
            "approvals.html",
            status,
            calls=[view for view in views if view is not None],
            waiting=waiting_sentence(pending),
            empty=NOTHING_WAITS if pending.all_counted else NOT_ALL_READ,
            together=[
                {"label": button.label, "refs": [f"{ref.approval_id}:{ref.revision}" for ref in button.action.cards]}
                for button in buttons
                if isinstance(button.action, Approve)
            ],
            notice=notice,
            decided=call.form.get("decided") if notice and not call.is_post else "",
            state=pending_state(pending),
            number=number,
            of=(pages := max(1, -(-pending.count // CALLS_A_PAGE))),
            position=page_text(number, pages, all_counted=pending.all_counted),
        )

    async def _decided_notice(self, call: ConsoleRequest) -> str:
        """Return what became of the call that was decided last, so that the list can follow."""
        decided = call.form.get("decided")
        if not decided:
            return ""
        found = await read_if_readable(self._dependencies.web.find_approval(decided))
        if found is None or not await self._may_see(call.viewer, *found):
            return ""
        view = call_view(*found, None)
        if view is None:
            return ""
        return f"{view.title}: {view.outcome or cards.approved_by_text(view.approval)}"

    async def _find(self, call: ConsoleRequest) -> tuple[Turn, ToolStep]:
        """Return the call of the address. Raises Problem with 404 if it is missing, or not the user's to see."""
        approval_id = str(call.request.path_params["approval"])
        found = await self._dependencies.web.find_approval(approval_id)
        if found is None or not await self._may_see(call.viewer, *found):
            raise Problem(404, "not_found", str(GONE))
        if found[0].content_deleted:
            raise ContentDeleted
        return found

    async def _may_see(self, viewer: Viewer, turn: Turn, step: ToolStep) -> bool:
        """Return True for a call in the user's workspace that the user has asked for or may approve."""
        approval = step.approval
        if approval is None or not f"{turn.conversation}:".startswith(key_prefixes(viewer)):
            return False
        if approval.requested_for.principal == viewer.author.principal:
            return True
        return await self._dependencies.may_approve(viewer.member)(PendingApproval.of(turn, approval))

    async def _view(self, turn: Turn, step: ToolStep, *, is_whole: bool = False) -> CallView | None:
        return call_view(turn, step, await read_if_readable(self._engine.view(turn.id)), is_whole=is_whole)

    async def _call_page(
        self, call: ConsoleRequest, turn: Turn, step: ToolStep, notice: str = "", status: int = 200
    ) -> Response:
        view = await self._view(turn, step)
        is_asker = turn.author.principal == call.viewer.author.principal
        path = conversation_path(turn.conversation) if is_asker else ""
        return call.page(
            "approval.html", status, each=view, notice=notice, question=None, is_whole=False, conversation=path
        )

    async def _open(self, call: ConsoleRequest, turn: Turn, step: ToolStep) -> Response:
        """Show the whole call to an approver. The engine records that it was shown."""
        assert step.approval is not None
        opened = await self._engine.approvals.open_call(step.approval.id, self._revision(call), call.viewer.member)
        if not isinstance(opened, ToolStep):
            return await self._call_page(call, turn, step, rejection_message(opened), 409)
        view = await self._view(turn, opened, is_whole=True)
        return call.page("approval.html", each=view, notice="", question=None, is_whole=True)

    async def _question(self, call: ConsoleRequest, turn: Turn, step: ToolStep) -> Response:
        """Ask before a call is approved that may destroy data."""
        view = await self._view(turn, step, is_whole=bool(call.form.get("whole")))
        if view is None or not view.is_open:
            return await self._call_page(call, turn, step)
        question = approval_question(step, view.card)
        origin = call.form.get("from") if call.form.get("from") in ("list", "turn") else ""
        return call.page("approval.html", each=view, notice="", question=question, is_whole=False, origin=origin)

    async def _decide(self, call: ConsoleRequest, turn: Turn, step: ToolStep) -> Response:
        assert step.approval is not None
        decision = Decision(
            step.approval.id,
            self._revision(call),
            _DECISIONS[call.form.get("decision")],
            call.viewer.author,
            call.form.get("reason").strip()[:500],
        )
        offer = cards.parse_grant_option(call.form.get("offer")) if call.form.get("offer") else None
        if offer is not None and decision.type is DecisionType.APPROVE:
            result: DecisionResult = await self._engine.approvals.grant(decision, offer, call.viewer.member)
        else:
            result = await self._engine.approvals.decide(decision, call.viewer.member)
        if isinstance(result, Decided | MoreApprovalsNeeded):
            match call.form.get("from"):
                case "list":
                    path = f"{APPROVALS_PATH}?decided={quote(step.approval.id, safe='')}"
                case "turn":
                    path = conversation_path(turn.conversation)
                case _:
                    path = f"{APPROVALS_PATH}/{quote(step.approval.id, safe='')}"
            return RedirectResponse(call.templates.url(path), 303, {**HEADERS})
        return await self._call_page(call, *await self._find(call), rejection_message(result), 409)

    async def _decide_alike(self, call: ConsoleRequest) -> Response:
        """Approve calls that the list has offered together, each by its own decision."""
        done, rejections = 0, dict[str, None]()
        for text in call.form.get_all("ref")[:CALLS_A_PAGE]:
            approval_id, _colon, revision = text.rpartition(":")
            found = await self._dependencies.web.find_approval(approval_id)
            # The button exists for calls that may be approved together, and a form may come from elsewhere.
            if found is None or found[1].may_destroy or not await self._may_see(call.viewer, *found):
                rejections[str(GONE)] = None
                continue
            decision = Decision(approval_id, read_number(revision), DecisionType.APPROVE, call.viewer.author)
            rejection = rejection_message(await self._engine.approvals.decide(decision, call.viewer.member))
            rejections |= {rejection: None} if rejection else {}
            done += not rejection
        notice = " ".join((_("Approved: {count}.", count=done), *rejections))
        return await self._list(call, notice, 409 if rejections else 200)

    def _revision(self, call: ConsoleRequest) -> int:
        return read_number(call.form.get("revision"))

    def _to(self, call: ConsoleRequest, approval_id: str) -> Response:
        path = call.templates.url(f"{APPROVALS_PATH}/{quote(approval_id, safe='')}")
        return RedirectResponse(path, 303, {**HEADERS})
