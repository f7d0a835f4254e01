"""Commands over HTTP, so that every chat command can be scripted: `/api/commands`.

The response is the last reply of a command in the format of `bot.domain.commands`, with its actions, or a form
with its id and fields.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from bot.domain.api_clients import ApiClient
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, reply_json
from bot.domain.conversations import ConversationKey, Member
from bot.domain.locales import use_locale
from bot.i18n import _, english
from bot.rendering.response_models import ResponseModel
from bot.web.conversation_ids import own_conversation
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.routes import RequestModel, Routes, route

MOST_WORDS = 200


class _Place(RequestModel):
    """Workspace of a request."""

    workspace: str = Field(default="", description="Such as `slack:T1`; the token's if empty.")
    conversation_id: str = Field(default="", description="One of the caller's conversations; a new one if empty.")


class CommandBody(_Place):
    """A command line: `/mcp tools weather` is the command `mcp` with the words `tools` and `weather`."""

    command: str = Field(max_length=100)
    words: list[str] = Field(default_factory=list, max_length=MOST_WORDS)


class FormBody(_Place):
    """A submitted form. `fields` includes the `carried` values and the values of unchanged fields."""

    form: str = Field(max_length=200, description="The form's `id`.")
    fields: dict[str, str] = Field(default_factory=dict)


class ActionAnswer(ResponseModel):
    """A next action."""

    label: str
    command: str
    words: list[str] = Field(description="The command and its words.")
    confirm: str = Field(description="If not empty: send it along behind the word `--confirm`.")
    tone: str


class PageAnswer(ResponseModel):
    """Position among several pages. The word `--page` and a number after `words` select another page."""

    number: int
    of: int
    words: list[str]


class DocumentAnswer(ResponseModel):
    """A text file."""

    name: str
    mime_type: str
    text: str


class FieldAnswer(ResponseModel):
    """One form field."""

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
    """A call that was submitted for approval or execution."""

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
        default=None, description="The reply for programs; of `usage` in the format of `GET /api/usage`."
    )
    document: DocumentAnswer | None = None
    turn: TurnAnswer | None = None
    form: str | None = Field(default=None, description="The id of a form: `POST /api/commands/forms` takes it back.")
    fields: list[FieldAnswer] = Field(default_factory=list)
    carried: dict[str, str] = Field(default_factory=dict)
    intro: str = ""
    instead: str = Field(default="", description="The same command without the form.")


class CommandRoutes(Routes):
    """The routes. The commands check rights themselves."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._commands = dependencies.commands
        self._engine = dependencies.engine
        self._locales = dependencies.locales

    @route("post", "", "Any command")
    async def run_command(self, body: CommandBody, caller: MemberCaller) -> CommandAnswer:
        """Run a command. A rejected command is a response, too: it has `failed`."""
        member, conversation = _speaker(body, caller)
        return await self._answer(Invocation(body.command, tuple(body.words), member, conversation))

    @route("post", "/forms", "A form of a command, filled in")
    async def submit_form(self, body: FormBody, caller: MemberCaller) -> CommandAnswer:
        """Submit a form."""
        member, conversation = _speaker(body, caller)
        return await self._answer(FormSubmission(body.form, body.fields, member, conversation))

    async def _answer(self, request: Invocation | FormSubmission) -> CommandAnswer:
        member = request.member
        with use_locale(await self._locales.for_user(member.author, member.locale, request.conversation)):
            last: Reply | Form = Reply(_("There is nothing to say."), failed=True)
            async for answer in self._commands.handle(request):
                last = answer
            turn = None
            if isinstance(last, Reply) and last.message is not None:
                message = await self._locales.with_locales(last.message, member, direct=True)
                turn_id = (await self._engine.receive(message)).turn_id
                turn = TurnAnswer(turn_id=turn_id, follow=f"/api/responses/{turn_id}")
            return _command_answer(last, turn)


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes."""
    return CommandRoutes(dependencies).mount("/api/commands", "commands")


def _speaker(body: _Place, caller: ApiClient) -> tuple[Member, ConversationKey]:
    """Return the member and the conversation. A named workspace limits the member's rights to it. Raises Problem."""
    conversation = own_conversation(caller, body.workspace, body.conversation_id)
    speaker = replace(caller, workspace=body.workspace) if body.workspace else caller
    return speaker.member, conversation


def _command_answer(answer: Reply | Form, turn: TurnAnswer | None) -> CommandAnswer:
    json_reply: dict[str, Any] = reply_json(answer)
    match answer:
        case Form():
            return CommandAnswer(
                text=answer.title,
                failed=json_reply["failed"],
                form=answer.id,
                fields=[FieldAnswer(**asdict(field)) for field in answer.fields],
                carried=dict(answer.carried),
                intro=answer.intro,
                instead=json_reply["instead"],
            )
        case Reply():
            return CommandAnswer(
                **{name: json_reply[name] for name in ("text", "failed", "rows", "details", "data")},
                facts=[(english(name), str(text)) for name, text in answer.details],
                actions=[
                    ActionAnswer(
                        label=action.label,
                        command=" ".join(action.words),
                        words=list(action.words),
                        confirm=action.confirm,
                        tone=action.tone.value,
                    )
                    for action in answer.actions
                ],
                page=PageAnswer(**asdict(answer.page)) if answer.page else None,
                document=DocumentAnswer(**asdict(answer.document)) if answer.document else None,
                turn=turn,
            )
