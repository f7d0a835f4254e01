"""Answering elicitations of servers, by a form or by a visit to a page.

`ElicitationForms` wraps the commands: the buttons of a card (`rendering.elicitation_card`) run commands, and the
replies are for the user who pressed only. The engine checks the user's rights every time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.chat.forms import CommandMiddleware, FormSteps, parse_step
from bot.chat.rejection_messages import rejection_message
from bot.domain.approvals import ApprovalNotFound
from bot.domain.commands import FIELDS_A_STEP, ActionStyle, Form, FormSubmission, Invocation, Reply, ReplyAction
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
FINISHED = "Thank you. The server learns that you opened the page."
GONE = "This question no longer exists."
ONLY_TO_IT = "Your answers are sent to this server only."
LEAVING = "You leave this chat: nothing that you type there passes through the bot."
WANTS_SOMETHING_ELSE = "The server wants something else."
SOMETHING_ELSE = "That is not what the server asks for. Its card says what is."
MESSAGE_LIMIT = 1_200
STEP_FIELDS = FIELDS_A_STEP - 1
"""Fields of one step. The server's message takes the place of one field."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*:)(?=/)", re.IGNORECASE)
_CODE = {"`": "%60", "<": "%3C", ">": "%3E", "|": "%7C"}


def is_elicitation_form(form: str) -> bool:
    """Return True if a form id is one of this module. Such a form was opened from a card."""
    return form.startswith(f"{cards.ANSWER}:")


class ElicitationForms(CommandMiddleware):
    """Command handler with elicitations: a server is answered from its card."""

    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        match request:
            case Invocation(command, (elicitation_id,)) if command in COMMANDS:
                return await self._run(command, elicitation_id, request)
            case FormSubmission(form) if is_elicitation_form(form):
                return await self._submit(request)
            case _:
                return None

    async def _run(self, command: str, elicitation_id: str, request: Invocation) -> Reply | Form:
        inquiry = await self._inquiry(elicitation_id, request.member, request.conversation)
        if not isinstance(inquiry, OpenElicitation):
            return _failed(_rejection(inquiry))
        match _result_of(command, inquiry):
            case (result, user_message):
                return _answer_reply(
                    await self._engine.elicitations.answer(elicitation_id, result, request.member), user_message
                )
            case reply:
                return reply

    async def _submit(self, submission: FormSubmission) -> Reply | Form:
        elicitation_id, step = _parse_id(submission.form)
        inquiry = await self._inquiry(elicitation_id, submission.member, submission.conversation)
        if not isinstance(inquiry, OpenElicitation):
            return _failed(_rejection(inquiry))
        mode = inquiry.elicitation.question.ask
        if not isinstance(mode, FormMode):
            return _failed(SOMETHING_ELSE)
        form = elicitation_form(mode.schema)
        steps = _steps(inquiry, form, submission.fields)
        content, errors = form.read(submission.fields)
        if errors:
            return steps.with_errors(errors.items())
        if further := steps.after(step):
            return further
        result = await self._engine.elicitations.answer(
            elicitation_id, ElicitationResult(Answer.ACCEPT, content), submission.member
        )
        if isinstance(result, InvalidAnswer) and form.fields:
            problems = [(form.field_of(error.argument), error.problem) for error in result.problems]
            return steps.with_errors(problems or [(form.fields[0].name, WANTS_SOMETHING_ELSE)])
        return _answer_reply(result, SENT)

    async def _inquiry(
        self, elicitation_id: str, member: Member, conversation: ConversationKey
    ) -> OpenElicitation | AnswerRejected:
        """Return the elicitation, if it belongs to the workspace in which it is answered."""
        inquiry = await self._engine.elicitations.get(elicitation_id, member)
        if (
            isinstance(inquiry, OpenElicitation)
            and inquiry.turn.conversation.workspace_key != conversation.workspace_key
        ):
            return ApprovalNotFound()
        return inquiry


def _steps(inquiry: OpenElicitation, form: ElicitationForm, answers: Mapping[str, str]) -> FormSteps:
    def intro(step: int, _fields: int) -> str:
        """The server, its message and the receiver of the answers. The message is marked line by line, so that it
        cannot pass for text of the bot.
        """
        warning = warning_text(inquiry.elicitation.question)
        note = f"⚠ {warning} {ONLY_TO_IT}" if warning else ONLY_TO_IT
        if step:
            return f"{server_name(inquiry.step)} asks for more. {note}"
        left = ", ".join(single_line(title, 60) for title in form.left[:10])
        more = f" There is no room here for: {left}." if left else ""
        quote = "\n".join(f"> {line}" for line in _message(inquiry).split("\n"))
        return f"{server_name(inquiry.step)} asks:\n{quote}\n\n{note}{more}"

    return FormSteps(
        id=f"{cards.ANSWER}:{inquiry.elicitation.id}",
        title=f"Answer {single_line(server_name(inquiry.step), 40)}",
        fields=form.fields,
        size=STEP_FIELDS,
        submit="Send",
        intro=intro,
        answers=answers,
    )


def _result_of(command: str, inquiry: OpenElicitation) -> Reply | Form | tuple[ElicitationResult, str]:
    """Return the reply or form to show, or the elicitation's result with the text that confirms it to the user."""
    match command, inquiry.elicitation.question.ask:
        case cards.ANSWER, FormMode(schema):
            form = elicitation_form(schema)
            return _steps(inquiry, form, {}).step(0) if form.fields else _without_fields(inquiry)
        case cards.VISIT, UrlMode(url):
            return _link_reply(inquiry, url)
        case cards.DECLINE, _:
            return DECLINED, REFUSED
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


def _link_reply(inquiry: OpenElicitation, url: str) -> Reply:
    """Return the reply with the complete address, after the domain that it leads to."""
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
    return f"`{''.join(_CODE.get(character, character) for character in address)}`"


def _message(inquiry: OpenElicitation) -> str:
    text = strip_control(inquiry.elicitation.question.message).strip()
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT].rstrip()}…"


def _parse_id(form: str) -> tuple[str, int]:
    """Return the elicitation's id and the step of a form id; an empty id for a foreign one."""
    match parse_step(form):
        case [_, elicitation_id], step:
            return elicitation_id, step
        case _:
            return "", 0


def _answer_reply(result: AnswerResult, user_message: str) -> Reply:
    match result:
        case ElicitationAnswered():
            return Reply(user_message)
        case InvalidAnswer(problems):
            return _failed(single_line("; ".join(error.problem for error in problems) or "It does not fit.", 300))
        case rejection:
            return _failed(_rejection(rejection))


def _rejection(rejection: AnswerRejected) -> str:
    return GONE if isinstance(rejection, ApprovalNotFound) else rejection_message(rejection)


def _failed(text: str) -> Reply:
    return Reply(text, failed=True)
