"""Conversations of the user, with each turn's steps and cards, and questions from the console.

Conversations of others are answered like missing ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from starlette.responses import RedirectResponse, Response

from bot.admin.conversations import CONTENT_DELETED, EXPORTED_TURNS, format_transcript
from bot.admin.text_format import format_ago, format_moment, status_word
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.locales import UNKNOWN
from bot.domain.tools import canonical_json
from bot.domain.turns import Receipt, ToolStep, TurnView
from bot.errors import NotFound
from bot.i18n import _
from bot.ports import ConversationSummary, PendingApproval
from bot.rendering import timeline as lines
from bot.rendering.elicitation_card import elicitation_card
from bot.web.console.approval_pages import call_view
from bot.web.console.command_pages import TextFile
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.menu import CONVERSATIONS_PATH
from bot.web.console.places import conversation_path, format_id, is_own, key_prefixes, own_key, place_name
from bot.web.console.rendering import HEADERS
from bot.web.console.request import ConsoleRequest, read_number
from bot.web.console.sessions import Viewer
from bot.web.problems import Problem

ROWS = 20
MOST_PAGES = 500
SHOWN_TURNS = 20
LONGEST_MESSAGE = 20_000
_OUTPUT = 4_000


@dataclass(frozen=True, slots=True)
class Entry:
    """Part of a turn for the template: its kind, and what this kind shows."""

    kind: str
    text: str = ""
    more: Any = None


class ConversationPages:
    """The pages."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._dependencies = dependencies
        self._engine = dependencies.web.engine
        self._archive = dependencies.web.command_dependencies.stores.archive

    async def list(self, call: ConsoleRequest) -> Response:
        """Show the user's conversations, the latest first; with `all`, those of the workspace to admins."""
        rights, member = self._dependencies.rights, call.viewer.member
        everybody = bool(call.form.get("all")) and rights.administers(member)
        person = "" if everybody else call.viewer.author.principal
        number = min(max(read_number(call.form.get("page")), 1), MOST_PAGES)
        start = (number - 1) * ROWS
        pages = [
            await self._archive.conversations(prefix, person, start + ROWS, 0) for prefix in key_prefixes(call.viewer)
        ]
        summaries = sorted((row for rows, _count in pages for row in rows), key=lambda summary: -summary.updated_at)
        return call.page(
            "conversations.html",
            rows=[_row(summary) for summary in summaries[start : start + ROWS]],
            count=(count := sum(count for _rows, count in pages)),
            number=number,
            more=start + ROWS < count,
            everybody=everybody,
            administers=rights.administers(member),
        )

    async def ask(self, call: ConsoleRequest) -> Response:
        """Show the form of a question, or ask it in a new conversation."""
        key = own_key(call.viewer)
        if call.is_post:
            return await self._ask(call, key)
        return call.page("ask.html", agents=self._engine.agents(key).names, text="", longest=LONGEST_MESSAGE, error="")

    async def show(self, call: ConsoleRequest) -> Response:
        """Show a conversation, or do something in it."""
        key = await self._find(call)
        if not call.is_post:
            return await self._page(call, key)
        match call.form.get("action"):
            case "ask" if is_own(call.viewer, key):
                return await self._ask(call, key)
            case "delete":
                return await self._delete(call, key)
            case action:
                await self._act(call, key, action)
                return self._to(call, key)

    async def export(self, call: ConsoleRequest) -> Response:
        """Return the conversation as Markdown."""
        key = await self._find(call)
        views = await self._engine.recent_turns(key, EXPORTED_TURNS)
        text = format_transcript(key, views[0].turn.question.text if views else "", views)
        return TextFile(f"conversation-{key.thread}.md", text)

    async def turn(self, call: ConsoleRequest, view: TurnView) -> str:
        """Return a turn as HTML."""
        viewer, turn = call.viewer, view.turn
        is_live = not turn.status.ended
        return call.render(
            "turn.html",
            view=view,
            asked=_question(view),
            when=format_moment(turn.created_at),
            entries=[] if turn.content_deleted else [each async for each in _entries(view, viewer, self._dependencies)],
            offers=[_offer(offer, view) for offer in lines.available_actions(view)],
            is_live=is_live,
            is_asker=turn.author.principal == viewer.author.principal,
            path=conversation_path(turn.conversation),
        )

    async def find_view(self, call: ConsoleRequest, turn_id: str) -> TurnView:
        """Return a turn that the user may see. Raises Problem."""
        try:
            view = await self._engine.view(turn_id)
        except NotFound:
            raise _missing() from None
        await self._check(call.viewer, view.turn.conversation)
        return view

    async def _page(self, call: ConsoleRequest, key: ConversationKey, status: int = 200, notice: str = "") -> Response:
        views = await self._engine.recent_turns(key, SHOWN_TURNS)
        summary = await self._archive.summary(key)
        own = is_own(call.viewer, key)
        return call.page(
            "conversation.html",
            status,
            turns=[
                {"id": view.turn.id, "is_live": not view.turn.status.ended, "html": await self.turn(call, view)}
                for view in views
            ],
            title=(summary.title if summary is not None else "") or _("Conversation"),
            id=format_id(key),
            place=place_name(key),
            is_own=own,
            is_live=any(not view.turn.status.ended for view in views),
            more=summary is not None and summary.turns > len(views),
            longest=LONGEST_MESSAGE,
            word=key.thread.strip() or format_id(key),
            notice=notice,
        )

    async def _ask(self, call: ConsoleRequest, key: ConversationKey) -> Response:
        viewer, text = call.viewer, call.form.get("message").strip()
        agents = self._engine.agents(key)
        if not text or len(text) > LONGEST_MESSAGE:
            error = _("Write a message of up to {count} characters.", count=LONGEST_MESSAGE)
            return call.page("ask.html", 422, agents=agents.names, text=text, longest=LONGEST_MESSAGE, error=error)
        await self._engine.arrivals.wait()
        # A form that is sent twice asks once.
        sent = call.form.get("once")[:64] or secrets.token_hex(16)
        message = InboundMessage(
            (f"console:{viewer.author.principal}:{sent}",),
            key,
            viewer.author,
            text,
            agent=agents.find(call.form.get("agent")) if call.form.get("agent") else None,
        )
        known = self._dependencies.web.locales.with_known(message, viewer.locale, UNKNOWN, direct=True)
        receipt: Receipt = await self._engine.receive(known)
        view = await self._engine.view(receipt.turn_id)
        return self._to(call, view.turn.conversation)

    async def _act(self, call: ConsoleRequest, key: ConversationKey, action: str) -> None:
        """Stop a turn, or go on after it. Raises Problem, and NotFound if the turn has nothing to do."""
        turn_id, author = call.form.get("turn"), call.viewer.author
        view = await self.find_view(call, turn_id)
        if view.turn.conversation != key:
            raise _missing()
        is_asker = view.turn.author.principal == author.principal
        if not (is_asker or self._dependencies.rights.administers(call.viewer.member)):
            raise Problem(403, "not_yours", _("Only who asked, and administrators, can do this."))
        n = read_number(call.form.get("n"))
        match action:
            case "stop":
                await self._engine.stop(turn_id, author)
            case "continue":
                await self._engine.continue_turn(turn_id, author)
            case "again":
                await self._engine.run_again(turn_id, n, author)
            case "check":
                await self._engine.check_outcome(turn_id, n, author)
            case _:
                raise Problem(400, "no_action", _("This form has no effect."), _("open the page again"))

    async def _delete(self, call: ConsoleRequest, key: ConversationKey) -> Response:
        if call.form.get("typed").strip() not in (key.thread.strip(), format_id(key)):
            return await self._page(call, key, 422, _("That was not its id. Nothing was deleted."))
        if not await self._archive.delete(key, call.viewer.author):
            notice = _("It is not at rest: something runs or waits in it. Stop that first. Nothing was deleted.")
            return await self._page(call, key, 409, notice)
        return RedirectResponse(call.templates.url(CONVERSATIONS_PATH), 303, {**HEADERS})

    async def _find(self, call: ConsoleRequest) -> ConversationKey:
        """Return the conversation of the address. Raises Problem with 404 for one that the user may not read."""
        text = str(call.request.path_params["conversation"])
        try:
            key = ConversationKey.parse(text.replace("!", "%"))
        except ValueError:
            raise _missing() from None
        if format_id(key) != text:
            raise _missing()
        await self._check(call.viewer, key)
        return key

    async def _check(self, viewer: Viewer, key: ConversationKey) -> None:
        took_part = f"{key}:".startswith(key_prefixes(viewer)) and (
            await self._archive.has_participant(key, viewer.author.principal)
            or self._dependencies.rights.administers(viewer.member)
        )
        if not took_part or await self._archive.summary(key) is None:
            raise _missing()

    def _to(self, call: ConsoleRequest, key: ConversationKey) -> Response:
        path = call.templates.url(conversation_path(key))
        return RedirectResponse(f"{path}#end", 303, {**HEADERS})


async def _entries(view: TurnView, viewer: Viewer, dependencies: ConsoleDependencies) -> AsyncGenerator[Entry, None]:
    """Yield the parts of a turn in order."""
    may_approve = dependencies.may_approve(viewer.member)
    for part in lines.timeline(view):
        match part:
            case lines.TimelineSection(_, entries):
                for entry in entries:
                    yield _entry(entry, view)
            case lines.ApprovalEntry(_, calls):
                for step in calls:
                    shown = call_view(view.turn, step, view)
                    if shown is not None and step.approval is not None:
                        yield Entry(
                            "approval", more=(shown, await may_approve(PendingApproval.of(view.turn, step.approval)))
                        )
            case lines.ElicitationEntry(_, step, elicitations):
                for elicitation in elicitations:
                    yield Entry("elicitation", more=elicitation_card(step, elicitation, view))


def _entry(entry: lines.Entry, view: TurnView) -> Entry:
    match entry:
        case lines.ReplyText(text, growing):
            return Entry("growing" if growing else "reply", text)
        case lines.CallLine(n, line):
            step = next(each for each in view.steps if isinstance(each, ToolStep) and each.n == n)
            result = step.result.shown_text if step.result is not None else ""
            return Entry("call", lines.tool_text(line), (_arguments(step), result[:_OUTPUT]))
        case lines.ToolOutput(text, failed):
            return Entry("output", text, failed)
        case lines.Note(text):
            return Entry("note", text)
        case lines.ActivityLine(text):
            return Entry("activity", text)
        case lines.Failure(text, reference):
            return Entry("failure", text, reference)


def _arguments(step: ToolStep) -> str:
    return step.call.unreadable or canonical_json(step.masked_arguments)


def _question(view: TurnView) -> str:
    return str(CONTENT_DELETED) if view.turn.content_deleted else view.turn.question.text


def _offer(offer: lines.Offer, view: TurnView) -> dict[str, object]:
    """Return the fields of an offer's form, and the label of its button."""
    label = lines.offer_label(offer, view)
    match offer:
        case lines.CheckCallAction(turn, n):
            return {"action": "check", "turn": turn, "n": n, "label": label}
        case lines.RunAgainAction(turn, n):
            return {"action": "again", "turn": turn, "n": n, "label": label}
        case lines.ContinueTurnAction(turn):
            return {"action": "continue", "turn": turn, "n": 0, "label": label}
        case lines.StopTurnAction(turn):
            return {"action": "stop", "turn": turn, "n": 0, "label": label}


def _row(summary: ConversationSummary) -> dict[str, str]:
    return {
        "id": format_id(summary.key),
        "title": summary.title or _("Conversation"),
        "state": str(status_word(summary.state)),
        "turns": str(summary.turns),
        "by": summary.started_by,
        "place": place_name(summary.key),
        "when": format_ago(summary.updated_at, time.time()),
    }


def _missing() -> Problem:
    return Problem(404, "not_found", _("There is no such conversation."))
