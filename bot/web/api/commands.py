"""Any command by HTTP, so that whatever can be typed in a chat can be scripted: `/api/commands`.

An answer is the last of a command's replies, in the shape of `bot.rendering.reply_json` and what takes it further: the
words of its actions, the id and the fields of a form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from bot.domain.api_clients import ApiClient
from bot.domain.commands import Field as FormField
from bot.domain.commands import Form, FormSubmission, Invocation, PageInfo, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, Member
from bot.rendering.reply_json import reply_json
from bot.web.authentication import MemberCaller
from bot.web.dependencies import WebDependencies
from bot.web.routes import api_router
from bot.web.schemas import RequestModel, ResponseModel
from bot.web.turns.conversation_ids import own_conversation

MOST_WORDS = 200


class _Place(RequestModel):
    """Where the caller stands."""

    workspace: str = Field(default="", description="Such as `slack:T1`; the token's if empty.")
    conversation_id: str = Field(default="", description="One of the caller's conversations; a new one if empty.")


class CommandBody(_Place):
    """What would be typed: `/mcp tools weather` is the command `mcp` with the words `tools` and `weather`."""

    command: str = Field(max_length=100)
    words: list[str] = Field(default_factory=list, max_length=MOST_WORDS)


class FormBody(_Place):
    """A form that is sent back. What it `carried`, and the values of fields that stay, go along in `fields`."""

    form: str = Field(max_length=200, description="The form's `id`.")
    fields: dict[str, str] = Field(default_factory=dict)


class ActionAnswer(ResponseModel):
    """Something to do next."""

    label: str
    command: str
    words: list[str] = Field(description="The command and its words.")
    confirm: str = Field(description="If not empty: send it along behind the word `--confirm`.")
    tone: str


class PageAnswer(ResponseModel):
    """Which of several pages this is; the word `--page` and a number behind `words` ask for another."""

    number: int
    of: int
    words: list[str]


class DocumentAnswer(ResponseModel):
    """A text to keep."""

    name: str
    mime_type: str
    text: str


class FieldAnswer(ResponseModel):
    """One thing to fill in."""

    name: str
    label: str
    kind: str
    hint: str
    required: bool
    choices: list[str]
    value: str
    error: str
    longest: int


class TurnAnswer(ResponseModel):
    """A call that has been handed over, to be signed or run."""

    turn_id: str
    follow: str


class CommandAnswer(ResponseModel):
    """The last reply to a command, or a form."""

    text: str = Field(description="Markdown; the title of a form.")
    failed: bool
    rows: list[dict[str, str]] | None = None
    details: dict[str, str] = Field(default_factory=dict)
    facts: list[tuple[str, str]] = Field(default_factory=list, description="The details in order, doubles and all.")
    actions: list[ActionAnswer] = Field(default_factory=list)
    page: PageAnswer | None = None
    data: dict[str, Any] | None = Field(
        default=None, description="What the reply says, for programs; of `usage` in the shape of `GET /api/usage`."
    )
    document: DocumentAnswer | None = None
    turn: TurnAnswer | None = None
    form: str | None = Field(default=None, description="The id of a form: `POST /api/commands/forms` takes it back.")
    fields: list[FieldAnswer] = Field(default_factory=list)
    carried: dict[str, str] = Field(default_factory=dict)
    intro: str = ""
    instead: str = Field(default="", description="How to say the same without the form.")


class CommandRoutes:
    """The routes, over the commands themselves: who may say what is theirs to judge."""

    def __init__(self, parts: WebDependencies) -> None:
        self._commands = parts.commands
        self._engine = parts.engine

    async def said(self, body: CommandBody, caller: MemberCaller) -> CommandAnswer:
        """Answer a command. A reply that says no is an answer, too: it has `failed`."""
        member, where = _standing(body, caller)
        return await self._answer(Invocation(body.command, tuple(body.words), member, where))

    async def filled(self, body: FormBody, caller: MemberCaller) -> CommandAnswer:
        """Take a form back."""
        member, where = _standing(body, caller)
        return await self._answer(FormSubmission(body.form, body.fields, member, where))

    async def _answer(self, request: Invocation | FormSubmission) -> CommandAnswer:
        last: Reply | Form = Reply("There is nothing to say.", failed=True)
        async for answer in self._commands.handle(request):
            last = answer
        turn = None
        if isinstance(last, Reply) and last.message is not None:
            turn_id = (await self._engine.receive(last.message)).turn_id
            turn = TurnAnswer(turn_id=turn_id, follow=f"/api/responses/{turn_id}")
        return _written(last, turn)


def routes(parts: WebDependencies) -> APIRouter:
    """Its routes."""
    router, commands = api_router(prefix="/api/commands", tags=["commands"]), CommandRoutes(parts)
    router.post("", name="run_command", summary="Any command")(commands.said)
    router.post("/forms", name="submit_form", summary="A form of a command, filled in")(commands.filled)
    return router


def _standing(body: _Place, caller: ApiClient) -> tuple[Member, ConversationKey]:
    """Who speaks, and where: in a workspace that is named they speak for that one alone. Raises Problem."""
    where = own_conversation(caller, body.workspace, body.conversation_id)
    speaker = replace(caller, workspace=body.workspace) if body.workspace else caller
    return speaker.member, where


def _written(answer: Reply | Form, turn: TurnAnswer | None) -> CommandAnswer:
    plain: dict[str, Any] = reply_json(answer)
    match answer:
        case Form():
            return CommandAnswer(
                text=answer.title,
                failed=plain["failed"],
                form=answer.id,
                fields=[_field(each) for each in answer.fields],
                carried=dict(answer.carried),
                intro=answer.intro,
                instead=plain["instead"],
            )
        case Reply():
            document = answer.document
            return CommandAnswer(
                text=plain["text"],
                failed=plain["failed"],
                rows=plain["rows"],
                details=plain["details"],
                facts=list(answer.details),
                actions=[_action(each) for each in answer.actions],
                page=_page(answer.page),
                data=plain["data"],
                document=None
                if document is None
                else DocumentAnswer(name=document.name, mime_type=document.mime_type, text=document.text),
                turn=turn,
            )


def _action(action: ReplyAction) -> ActionAnswer:
    return ActionAnswer(
        label=action.label,
        command=" ".join(action.words),
        words=list(action.words),
        confirm=action.confirm,
        tone=action.tone.value,
    )


def _page(page: PageInfo | None) -> PageAnswer | None:
    return None if page is None else PageAnswer(number=page.number, of=page.of, words=list(page.words))


def _field(field: FormField) -> FieldAnswer:
    return FieldAnswer(
        name=field.name,
        label=field.label,
        kind=field.kind.value,
        hint=field.hint,
        required=field.required,
        choices=list(field.choices),
        value=field.value,
        error=field.error,
        longest=field.longest,
    )
