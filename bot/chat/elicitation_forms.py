"""Answering elicitations of servers, by a form or by a visit to a page.

`ElicitationForms` wraps the commands: a platform runs the command of a pressed button (`rendering.elicitation_card`),
and shows the reply as for every command. Replies are for the user who pressed only. The engine checks the user's rights
every time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bot.chat.forms import CommandMiddleware, FormPages
from bot.chat.rejection_messages import rejection_message
from bot.domain.approvals import ApprovalNotFound
from bot.domain.commands import FIELDS_A_STEP, ActionStyle, Field, Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, Member
from bot.domain.elicitation_answers import (
    AnswerRejected,
    AnswerResult,
    ElicitationAnswered,
    InvalidAnswer,
    OpenElicitation,
)
from bot.domain.elicitations import DECLINED, ElicitationResult, FormMode, UrlMode
from bot.domain.elicitations import ElicitationAction as Answer
from bot.rendering import elicitation_card as cards
from bot.rendering.elicitation_card import ElicitationForm, domain_of, elicitation_form, server_name, warning_text
from bot.rendering.text_safety import single_line, strip_control

COMMANDS = (cards.ANSWER, cards.DECLINE, cards.VISIT, cards.VISITED, cards.CONFIRM)
SENT = "Sent. The call goes on."
REFUSED = "Declined. The server learns that you declined."
NOT_VISITED = "Declined. The server learns that you declined."
FINISHED = "Thank you. The server learns that you opened the page."
GONE = "This question no longer exists."
ONLY_TO_IT = "Your answers are sent to this server only."
LEAVING = "You leave this chat: nothing that you type there passes through the bot."
SOMETHING_ELSE = "That is not what the server asks for. Its card says what is."
MESSAGE_LIMIT = 1_200
STEP_FIELDS = FIELDS_A_STEP - 1
"""Fields of one step. The server's message takes the place of one field."""
_NUMBER = re.compile(r"[0-9]{1,3}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*:)(?=/)", re.IGNORECASE)
_CODE = {"`": "%60", "<": "%3C", ">": "%3E", "|": "%7C"}


def is_elicitation_form(form: str) -> bool:
    """Return True if a form id is one of this module. Such a form was opened from a card."""
    return form.startswith(f"{cards.ANSWER}:")


class ElicitationForms(CommandMiddleware):
    """Command handler with elicitations: a server is answered from its card."""

    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        """Handle a pressed button of a card, or a submitted form."""
        match request:
            case Invocation(command, (elicitation_id,)) if command in COMMANDS:
                return await self._pressed(command, elicitation_id, request)
            case FormSubmission(form) if is_elicitation_form(form):
                return await self._take(request)
            case _:
                return None

    async def _pressed(self, command: str, elicitation_id: str, request: Invocation) -> Reply | Form:
        inquiry = await self._inquiry(elicitation_id, request.member, request.conversation)
        if not isinstance(inquiry, OpenElicitation):
            return _failed(_words(inquiry))
        match _meant(command, inquiry):
            case (reply, user_message):
                return _answer_reply(
                    await self._engine.elicitations.answer(elicitation_id, reply, request.member), user_message
                )
            case shown:
                return shown

    async def _take(self, submission: FormSubmission) -> Reply | Form:
        elicitation_id, step = _read_id(submission.form)
        inquiry = await self._inquiry(elicitation_id, submission.member, submission.conversation)
        if not isinstance(inquiry, OpenElicitation):
            return _failed(_words(inquiry))
        asked = inquiry.elicitation.question.ask
        if not isinstance(asked, FormMode):
            return _failed(SOMETHING_ELSE)
        filling = _Filling(inquiry, elicitation_form(asked.schema), submission.fields)
        content, errors = filling.form.read(submission.fields)
        if errors:
            return filling.step(filling.steps.page_of(next(iter(errors))), errors)
        if step + 1 < filling.steps.count:
            return filling.step(step + 1)
        answered = await self._engine.elicitations.answer(
            elicitation_id, ElicitationResult(Answer.ACCEPT, content), submission.member
        )
        if isinstance(answered, InvalidAnswer) and filling.steps.count:
            wrong = filling.errors_of(answered)
            return filling.step(filling.steps.page_of(next(iter(wrong))), wrong)
        return _answer_reply(answered, SENT)

    async def _inquiry(
        self, elicitation_id: str, member: Member, conversation: ConversationKey
    ) -> OpenElicitation | AnswerRejected:
        """The question, if it belongs to the workspace in which it is answered."""
        inquiry = await self._engine.elicitations.get(elicitation_id, member)
        if (
            isinstance(inquiry, OpenElicitation)
            and inquiry.turn.conversation.workspace_key != conversation.workspace_key
        ):
            return ApprovalNotFound()
        return inquiry


class _Filling:
    """A form on its way through its steps. `answers` are those that have been given, by field."""

    def __init__(self, inquiry: OpenElicitation, form: ElicitationForm, answers: Mapping[str, str]) -> None:
        self.form = form
        self._inquiry = inquiry
        self.steps = FormPages(form.fields, STEP_FIELDS, answers)

    def step(self, number: int, errors: Mapping[str, str] | None = None) -> Form:
        """One step, with the answers that were given before."""
        return Form(
            id=f"{cards.ANSWER}:{self._inquiry.elicitation.id}:{number}",
            title=f"Answer {single_line(server_name(self._inquiry.step), 40)}",
            fields=tuple(self._filled(field, errors or {}) for field in self.steps.fields(number)),
            submit="Send" if number + 1 >= self.steps.count else "Continue",
            intro=self._intro(number),
            carried=self.steps.carried(number),
        )

    def errors_of(self, unfit: InvalidAnswer) -> dict[str, str]:
        """Return the errors by field, the first field first."""
        wrong: dict[str, str] = {}
        for each in unfit.problems:
            wrong.setdefault(self.form.field_of(each.argument), single_line(each.problem, 200))
        wrong = wrong or {self.form.fields[0].name: "The server wants something else."}
        return self.steps.sort_errors(wrong)

    def _filled(self, field: Field, errors: Mapping[str, str]) -> Field:
        return replace(field, value=self.steps.answers.get(field.name, field.value), error=errors.get(field.name, ""))

    def _intro(self, number: int) -> str:
        """Return the text above the fields: the server, its message and the receiver of the answers. The message is
        marked line by line, so that it cannot pass for text of the bot.
        """
        warning = warning_text(self._inquiry.elicitation.question)
        ours = f"⚠ {warning} {ONLY_TO_IT}" if warning else ONLY_TO_IT
        if number:
            return f"{server_name(self._inquiry.step)} asks for more. {ours}"
        left = ", ".join(single_line(each, 60) for each in self.form.left[:10])
        more = f" There is no room here for: {left}." if left else ""
        said = "\n".join(f"> {line}" for line in _message(self._inquiry).split("\n"))
        return f"{server_name(self._inquiry.step)} asks:\n{said}\n\n{ours}{more}"


def _meant(command: str, inquiry: OpenElicitation) -> Reply | Form | tuple[ElicitationResult, str]:
    """Return the reply or form to show, or the elicitation's result with the text that confirms it to the user."""
    match command, inquiry.elicitation.question.ask:
        case cards.ANSWER, FormMode(schema):
            filling = _Filling(inquiry, elicitation_form(schema), {})
            return filling.step(0) if filling.steps.count else _without_fields(inquiry)
        case cards.VISIT, UrlMode(url):
            return _way(inquiry, url)
        case cards.DECLINE, asked:
            return DECLINED, REFUSED if isinstance(asked, FormMode) else NOT_VISITED
        case cards.VISITED, UrlMode():
            return ElicitationResult(Answer.ACCEPT), FINISHED
        case cards.CONFIRM, FormMode():
            return ElicitationResult(Answer.ACCEPT, {}), SENT
        case _:
            return _failed(SOMETHING_ELSE)


def _without_fields(inquiry: OpenElicitation) -> Reply:
    """Return the reply for a form without fields, which can only be confirmed or declined. Addresses in the server's
    message are not clickable, because a page to visit has its own elicitation, which shows the destination.
    """
    elicitation_id = inquiry.elicitation.id
    warning = warning_text(inquiry.elicitation.question)
    return Reply(
        f"The server wants a yes before it goes on.{f' ⚠ {warning}' if warning else ''}",
        details=((f"{server_name(inquiry.step)} asks", _SCHEME.sub(r"\1 ", _message(inquiry))),),
        actions=(
            ReplyAction("Yes, go on", (cards.CONFIRM, elicitation_id), ActionStyle.PRIMARY),
            ReplyAction("Decline", (cards.DECLINE, elicitation_id)),
        ),
    )


def _way(inquiry: OpenElicitation, url: str) -> Reply:
    """The address, whole, with where it leads to said first: it is for this person alone."""
    question, elicitation_id = inquiry.elicitation.question, inquiry.elicitation.id
    warning = warning_text(question)
    parts = (
        f"The link leads to {_code(domain_of(question.ask))}. {LEAVING}",
        f"⚠ {warning}" if warning else "",
        _code(url),
    )
    return Reply(
        "\n\n".join(filter(None, parts)),
        details=((f"{server_name(inquiry.step)} says", _message(inquiry)),),
        actions=(
            ReplyAction("I have finished", (cards.VISITED, elicitation_id), ActionStyle.PRIMARY),
            ReplyAction("Decline", (cards.DECLINE, elicitation_id)),
        ),
        link=url,
    )


def _code(address: str) -> str:
    """An address as code, which it cannot end by itself."""
    return f"`{''.join(_CODE.get(each, each) for each in address)}`"


def _message(inquiry: OpenElicitation) -> str:
    text = strip_control(inquiry.elicitation.question.message).strip()
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT].rstrip()}…"


def _read_id(form: str) -> tuple[str, int]:
    """Return the elicitation's id and the step of a form id; an empty id for a foreign one."""
    match form.split(":"):
        case [_, elicitation_id, step] if _NUMBER.fullmatch(step):
            return elicitation_id, int(step)
        case _:
            return "", 0


def _answer_reply(answered: AnswerResult, user_message: str) -> Reply:
    match answered:
        case ElicitationAnswered():
            return Reply(user_message)
        case InvalidAnswer(problems):
            return _failed(single_line("; ".join(each.problem for each in problems) or "It does not fit.", 300))
        case objection:
            return _failed(_words(objection))


def _words(objection: AnswerRejected) -> str:
    return GONE if isinstance(objection, ApprovalNotFound) else rejection_message(objection)


def _failed(text: str) -> Reply:
    return Reply(text, failed=True)
