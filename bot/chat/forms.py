"""Forms, on every platform: submissions, forms in steps, and those that are opened from cards.

A form with more fields than a window takes comes in steps. The answers of earlier steps are carried along. Forms of
cards are commands: `edit_command` opens the one for a call's arguments, and an elicitation has one for its fields. The
engine checks the user's rights when a form is opened and when it is submitted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.chat.actions import GONE, ApprovalRef, OpenConfirmation, OpenDenyForm, OpenForm, RunCommand, rejection_message
from bot.domain.approvals import ApprovalNotFound
from bot.domain.commands import (
    FIELDS_A_STEP,
    ActionStyle,
    Field,
    FieldKind,
    Form,
    FormSubmission,
    Invocation,
    Reply,
    ReplyAction,
    Verb,
)
from bot.domain.conversations import ConversationKey
from bot.domain.elicitations import DECLINED, ElicitationResult, FormMode, UrlMode
from bot.domain.elicitations import ElicitationAction as Answer
from bot.domain.secrets import lookalikes
from bot.domain.tools import ArgumentError
from bot.i18n import _, gettext_lazy
from bot.ports import Commands, EngineApi
from bot.ports.platform import (
    AnswerRejected,
    AnswerResult,
    EditableCall,
    ElicitationAnswered,
    InvalidValues,
    OpenElicitation,
    RevisionAccepted,
)
from bot.rendering import elicitation_card as cards
from bot.rendering.approval_card import call_title
from bot.rendering.argument_fields import ArgumentForm, argument_form, read_arguments
from bot.rendering.elicitation_card import ElicitationForm, domain_of, elicitation_form, server_name, warning_text
from bot.rendering.text_safety import single_line, strip_control

REASON, TYPED = "reason", "typed"
"""Fields of the deny form and of a confirmation."""
_STEP = re.compile(r"[0-9]{1,3}")
COMMAND = "edit-call"
"""Internal command that opens the form. Users never type it."""
DONE = gettext_lazy("Changed. The card asks for an approval of the new version.")
NOTHING_TO_EDIT = gettext_lazy("There is nothing in this call that a form could change.")
TYPE_AGAIN = gettext_lazy("Type it again.")
DOES_NOT_FIT = gettext_lazy("It does not fit the tool.")
INTRO = gettext_lazy("Nothing runs yet: the call waits for an approval of what you send here.")
_NUMBER = re.compile(r"[0-9]{1,9}")
COMMANDS = (cards.ANSWER, cards.DECLINE, cards.VISIT, cards.VISITED, cards.CONFIRM)
SENT = gettext_lazy("Sent. The call goes on.")
REFUSED = gettext_lazy("Declined. The server learns that you declined.")
FINISHED = gettext_lazy("Thank you. The server learns that you opened the page.")
QUESTION_GONE = gettext_lazy("This question no longer exists.")
ONLY_TO_IT = gettext_lazy("Your answers are sent to this server only.")
LEAVING = gettext_lazy("You leave this chat: nothing that you type there passes through the bot.")
WANTS_SOMETHING_ELSE = gettext_lazy("The server wants something else.")
SOMETHING_ELSE = gettext_lazy("That is not what the server asks for. Its card says what is.")
MESSAGE_LIMIT = 1_200
STEP_FIELDS = FIELDS_A_STEP - 1
"""Fields of one step. The server's message takes the place of one field."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*:)(?=/)", re.IGNORECASE)
_CODE = {"`": "%60", "<": "%3C", ">": "%3E", "|": "%7C"}


@dataclass(frozen=True, slots=True)
class DenialSubmitted:
    """Deny this call; the reason may be empty. `inbox_page` is that of the button (`OpenDenyForm`)."""

    card: ApprovalRef
    reason: str
    inbox_page: int = 0


@dataclass(frozen=True, slots=True)
class FormSubmitted:
    """The form of a command, with the values of all its fields, the carried ones too."""

    form: str
    values: Mapping[str, str]


Submission = DenialSubmitted | RunCommand | FormSubmitted


def read_submission(opened: OpenDenyForm | OpenConfirmation | OpenForm, values: Mapping[str, str]) -> Submission:
    """Return the meaning of the values of a submitted form. A field that the form did not show keeps its value."""
    match opened:
        case OpenDenyForm(card, page):
            return DenialSubmitted(card, values.get(REASON, "").strip(), page)
        case OpenConfirmation(words):
            return RunCommand((*words, f"--confirm={values.get(TYPED, '').strip()}"))
        case OpenForm(form):
            unseen = {field.name: field.value for field in form.fields if field.kind is not FieldKind.SECRET}
            return FormSubmitted(form.id, {**form.carried, **unseen, **values})


def are_offerable(choices: Sequence[str], most: int, longest: int, length: Callable[[str], int] = len) -> bool:
    """Return True if a platform takes these choices of a field as options: `most` of them, of up to `longest` in
    `length`, without empty or duplicate ones.
    """
    return (
        0 < len(choices) <= most
        and len(set(choices)) == len(choices)
        and all(0 < len(choice.strip()) == len(choice) and length(choice) <= longest for choice in choices)
    )


@dataclass(frozen=True, slots=True)
class FormSteps:
    """A form in steps of `size` fields, numbered from 0. `id` is that of each step without its number, `intro` gives
    the text above the fields of a step, by its number and the count of its fields.

    `answers` are those given so far, by field. Answers to `concealed` fields are not shown again: they have to be typed
    again, for the reason `again`.
    """

    id: str
    title: str
    fields: Sequence[Field]
    size: int
    submit: str
    intro: Callable[[int, int], str]
    answers: Mapping[str, str]
    concealed: frozenset[str] = frozenset()
    again: str = ""

    def step(self, number: int, errors: Mapping[str, str] | None = None) -> Form:
        """Return a step with the answers so far; the last one if the number is too high."""
        start = max(0, min(number, self._count - 1)) * self.size
        shown, others = [], []
        for position, field in enumerate(self.fields):
            if not start <= position < start + self.size:
                others.append(field.name)
                continue
            answer, error = self.answers.get(field.name, field.value), (errors or {}).get(field.name, "")
            if field.name in self.concealed and answer:
                shown.append(replace(field, error=error or self.again))
            else:
                shown.append(replace(field, value=answer, error=error))
        return Form(
            id=f"{self.id}:{number}",
            title=self.title,
            fields=tuple(shown),
            submit=self.submit if number + 1 >= self._count else _("Continue"),
            intro=self.intro(number, len(shown)),
            carried={name: self.answers[name] for name in others if name in self.answers},
        )

    def next_step(self, number: int) -> Form | None:
        """Return the next step, None after the last one."""
        return self.step(number + 1) if number + 1 < self._count else None

    def with_errors(self, problems: Iterable[tuple[str, str]]) -> Form:
        """Return the first step with an error. `problems` are pairs of a field and its error; the first one counts."""
        errors: dict[str, str] = {}
        for name, problem in problems:
            errors.setdefault(name, single_line(problem, 200))
        names = [field.name for field in self.fields]
        return self.step(min(names.index(name) for name in errors) // self.size, errors)

    @property
    def _count(self) -> int:
        return -(-len(self.fields) // self.size)


def _parse_step(form: str) -> tuple[list[str], int]:
    """Return the parts of a step's form id before its number, and the number. There is no part if the id is invalid."""
    *parts, step = form.split(":")
    return (parts, int(step)) if _STEP.fullmatch(step) else ([], 0)


def edit_command(card: ApprovalRef) -> tuple[str, ...]:
    """Return the command that opens the form of a call."""
    return (COMMAND, card.approval_id, str(card.revision))


def is_edit_form(form: str) -> bool:
    """Return True if a form id is one of this module. Such a form was opened from a card."""
    return form.startswith(f"{COMMAND}:")


def is_elicitation_form(form: str) -> bool:
    """Return True if a form id is one of an elicitation. Such a form was opened from a card."""
    return form.startswith(f"{cards.ANSWER}:")


class CardForms:
    """The commands, with the forms of cards in front of them: a call is changed, and a server is answered, from its
    card. They come from buttons only, so help does not list them.
    """

    def __init__(self, engine: EngineApi, commands: Commands) -> None:
        self._engine = engine
        self._commands = commands

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Verbs of the wrapped commands."""
        return self._commands.verbs

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return the completions of the wrapped commands."""
        return self._commands.complete(text, conversation)

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a request, or pass it on to the wrapped commands."""
        match request:
            case Invocation(command, (approval_id, revision)) if command == COMMAND and _NUMBER.fullmatch(revision):
                yield await self._edit(ApprovalRef(approval_id, int(revision)), request)
            case FormSubmission(form) if is_edit_form(form):
                yield await self._revise(request)
            case Invocation(command, (elicitation_id,)) if command in COMMANDS:
                yield await self._respond(command, elicitation_id, request)
            case FormSubmission(form) if is_elicitation_form(form):
                yield await self._send_answers(request)
            case _:
                async for answer in self._commands.handle(request):
                    yield answer

    async def _edit(self, card: ApprovalRef, request: Invocation) -> Reply | Form:
        call = await self._editable_call(card, request)
        if isinstance(call, Reply):
            return call
        form = _argument_form(call)
        return _argument_steps(card, call, form, {}).step(0) if form.fields else _failed_reply(NOTHING_TO_EDIT)

    async def _revise(self, submission: FormSubmission) -> Reply | Form:
        match _parse_step(submission.form):
            case [_, approval_id, revision], step if _NUMBER.fullmatch(revision):
                card = ApprovalRef(approval_id, int(revision))
            case _:
                card, step = ApprovalRef("", 0), 0
        call = await self._editable_call(card, submission)
        if isinstance(call, Reply):
            return call
        form = _argument_form(call)
        steps = _argument_steps(card, call, form, submission.fields)
        arguments, errors = read_arguments(form, call.step.call.arguments, submission.fields)
        if errors:
            return steps.with_errors(errors.items())
        if further := steps.next_step(step):
            return further
        match await self._engine.approvals.revise(card.approval_id, card.revision, arguments, submission.member):
            case RevisionAccepted():
                return Reply(str(DONE))
            case InvalidValues(problems):
                return steps.with_errors(_field_error(form, problem) for problem in problems)
            case rejection:
                return _failed_reply(rejection_message(rejection))

    async def _editable_call(self, card: ApprovalRef, request: Invocation | FormSubmission) -> EditableCall | Reply:
        """Return the call, if it belongs to the workspace in which its form is used; otherwise the rejection."""
        call = await self._engine.approvals.get_editable_call(card.approval_id, card.revision, request.member)
        if not isinstance(call, EditableCall):
            return _failed_reply(rejection_message(call))
        if call.turn.conversation.workspace_key != request.conversation.workspace_key:
            return _failed_reply(GONE)
        return call

    async def _respond(self, command: str, elicitation_id: str, request: Invocation) -> Reply | Form:
        inquiry = await self._open_elicitation(elicitation_id, request)
        if isinstance(inquiry, Reply):
            return inquiry
        match command, inquiry.elicitation.question.ask:
            case cards.ANSWER, FormMode(schema):
                form = elicitation_form(schema)
                return _answer_steps(inquiry, form, {}).step(0) if form.fields else _without_fields(inquiry)
            case cards.VISIT, UrlMode(url):
                return _link_reply(inquiry, url)
            case cards.DECLINE, _:
                result, user_message = DECLINED, REFUSED
            case cards.VISITED, UrlMode():
                result, user_message = ElicitationResult(Answer.ACCEPT), FINISHED
            case cards.CONFIRM, FormMode():
                result, user_message = ElicitationResult(Answer.ACCEPT, {}), SENT
            case _:
                return _failed_reply(SOMETHING_ELSE)
        return _answer_reply(
            await self._engine.elicitations.answer(elicitation_id, result, request.member), user_message
        )

    async def _send_answers(self, submission: FormSubmission) -> Reply | Form:
        match _parse_step(submission.form):
            case [_, elicitation_id], step:
                pass
            case _:
                elicitation_id, step = "", 0
        inquiry = await self._open_elicitation(elicitation_id, submission)
        if isinstance(inquiry, Reply):
            return inquiry
        mode = inquiry.elicitation.question.ask
        if not isinstance(mode, FormMode):
            return _failed_reply(SOMETHING_ELSE)
        form = elicitation_form(mode.schema)
        steps = _answer_steps(inquiry, form, submission.fields)
        content, errors = form.parse_answers(submission.fields)
        if errors:
            return steps.with_errors(errors.items())
        if further := steps.next_step(step):
            return further
        result = await self._engine.elicitations.answer(
            elicitation_id, ElicitationResult(Answer.ACCEPT, content), submission.member
        )
        if isinstance(result, InvalidValues) and form.fields:
            problems = [(form.field_of(error.argument), error.problem) for error in result.problems]
            return steps.with_errors(problems or [(form.fields[0].name, WANTS_SOMETHING_ELSE)])
        return _answer_reply(result, SENT)

    async def _open_elicitation(
        self, elicitation_id: str, request: Invocation | FormSubmission
    ) -> OpenElicitation | Reply:
        """Return the elicitation, if it belongs to the workspace in which it is answered; otherwise the rejection."""
        inquiry = await self._engine.elicitations.get(elicitation_id, request.member)
        if not isinstance(inquiry, OpenElicitation):
            return _answer_rejection(inquiry)
        if inquiry.turn.conversation.workspace_key != request.conversation.workspace_key:
            return _answer_rejection(ApprovalNotFound())
        return inquiry


def _argument_steps(card: ApprovalRef, call: EditableCall, form: ArgumentForm, answers: Mapping[str, str]) -> FormSteps:
    def intro(step: int, fields: int) -> str:
        """With a full form only left-out arguments are mentioned, because some platforms have no room for more."""
        left = ", ".join(single_line(name, 60) for name in form.left[:10])
        if step:
            return ""
        if left:
            rest = _("What is too long or too much for a form stays as it is: {arguments}.", arguments=left)
            return f"{INTRO} {rest}"
        return str(INTRO) if fields < FIELDS_A_STEP else ""

    return FormSteps(
        id=f"{COMMAND}:{card.approval_id}:{card.revision}",
        title=_("Edit: {call}", call=single_line(call_title(call.step), 40)),
        fields=[argument.field for argument in form.fields],
        size=FIELDS_A_STEP,
        submit=_("Save"),
        intro=intro,
        answers=answers,
        concealed=frozenset(argument.field.name for argument in form.fields if argument.withheld),
        again=str(TYPE_AGAIN),
    )


def _field_error(form: ArgumentForm, error: ArgumentError) -> tuple[str, str]:
    """Return the field of an error and its text. One without an argument is shown at the first field."""
    fields = (argument for argument in form.fields if argument.argument == error.argument)
    argument = next(fields, form.fields[0])
    withheld = argument.withheld and argument.argument == error.argument
    return argument.field.name, str(DOES_NOT_FIT if withheld else error.problem)


def _argument_form(call: EditableCall) -> ArgumentForm:
    """Return the form of a call, without the values of stored secrets. For a user who may not approve the call, parts
    that look like a secret are left out too.
    """
    arguments = call.step.call.arguments
    stored = call.step.approval.secrets if call.step.approval is not None else ()
    positions = {secret.path[0] for secret in stored}
    if not call.whole:
        positions |= {lookalike.path[0] for lookalike in lookalikes(arguments, stored)}
    withheld = {name for position, name in enumerate(arguments) if position in positions}
    return argument_form(call.schema, arguments, withheld=withheld)


def _answer_steps(inquiry: OpenElicitation, form: ElicitationForm, answers: Mapping[str, str]) -> FormSteps:
    def intro(step: int, _fields: int) -> str:
        """The server, its message and the receiver of the answers. The message is marked line by line, so that it
        cannot pass for text of the bot.
        """
        warning = warning_text(inquiry.elicitation.question)
        note, server = f"⚠ {warning} {ONLY_TO_IT}" if warning else str(ONLY_TO_IT), server_name(inquiry.step)
        if step:
            return " ".join((_("{server} asks for more.", server=server), note))
        left = ", ".join(single_line(title, 60) for title in form.left[:10])
        more = _("There is no room here for: {fields}.", fields=left) if left else ""
        quote = "\n".join(f"> {line}" for line in _message(inquiry).split("\n"))
        asks = _("{server} asks:", server=server)
        return f"{asks}\n{quote}\n\n{' '.join(filter(None, (note, more)))}"

    return FormSteps(
        id=f"{cards.ANSWER}:{inquiry.elicitation.id}",
        title=_("Answer {server}", server=single_line(server_name(inquiry.step), 40)),
        fields=form.fields,
        size=STEP_FIELDS,
        submit=_("Send"),
        intro=intro,
        answers=answers,
    )


def _without_fields(inquiry: OpenElicitation) -> Reply:
    """Return the reply for a form without fields, which can only be confirmed or declined. Addresses in the server's
    message are not clickable, because a page to visit has its own elicitation, which shows the destination.
    """
    elicitation_id = inquiry.elicitation.id
    warning = warning_text(inquiry.elicitation.question)
    return Reply(
        " ".join(filter(None, (_("The server wants a yes before it goes on."), f"⚠ {warning}" if warning else ""))),
        details=((_("{server} asks", server=server_name(inquiry.step)), _SCHEME.sub(r"\1 ", _message(inquiry))),),
        actions=(
            ReplyAction(_("Yes, go on"), (cards.CONFIRM, elicitation_id), ActionStyle.PRIMARY),
            ReplyAction(_("Decline"), (cards.DECLINE, elicitation_id)),
        ),
    )


def _link_reply(inquiry: OpenElicitation, url: str) -> Reply:
    """Return the reply with the complete address, after the domain that it leads to."""
    question, elicitation_id = inquiry.elicitation.question, inquiry.elicitation.id
    warning = warning_text(question)
    parts = (
        " ".join((_("The link leads to {domain}.", domain=_code(domain_of(question.ask))), str(LEAVING))),
        f"⚠ {warning}" if warning else "",
        _code(url),
    )
    return Reply(
        "\n\n".join(filter(None, parts)),
        details=((_("{server} says", server=server_name(inquiry.step)), _message(inquiry)),),
        actions=(
            ReplyAction(_("I have finished"), (cards.VISITED, elicitation_id), ActionStyle.PRIMARY),
            ReplyAction(_("Decline"), (cards.DECLINE, elicitation_id)),
        ),
        link=url,
    )


def _code(address: str) -> str:
    """An address as code, which it cannot end by itself."""
    return f"`{''.join(_CODE.get(character, character) for character in address)}`"


def _message(inquiry: OpenElicitation) -> str:
    text = strip_control(inquiry.elicitation.question.message).strip()
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT].rstrip()}…"


def _answer_reply(result: AnswerResult, user_message: str) -> Reply:
    match result:
        case ElicitationAnswered():
            return Reply(str(user_message))
        case InvalidValues(problems):
            return _failed_reply(
                single_line("; ".join(error.problem for error in problems) or _("It does not fit."), 300)
            )
        case rejection:
            return _answer_rejection(rejection)


def _answer_rejection(rejection: AnswerRejected) -> Reply:
    return _failed_reply(QUESTION_GONE if isinstance(rejection, ApprovalNotFound) else rejection_message(rejection))


def _failed_reply(text: str) -> Reply:
    return Reply(str(text), failed=True)
