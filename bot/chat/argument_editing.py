"""Editing a call before its approval, by a form.

`ArgumentEditForms` wraps the commands: a platform opens the form by running `opening(card)` for the user, and shows the
reply as for every command. The engine checks the user's rights when the form is opened and when it is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bot.chat.actions import ApprovalRef
from bot.chat.forms import CommandMiddleware, FormPages
from bot.chat.rejection_messages import GONE, rejection_message
from bot.domain.argument_edits import EditableCall, InvalidArguments, NotEditable, RevisionAccepted
from bot.domain.commands import FIELDS_A_STEP, Field, Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import ConversationKey, Member
from bot.domain.secret_detection import lookalikes
from bot.rendering.approval_card import call_title
from bot.rendering.argument_fields import ArgumentForm, argument_form, read_arguments
from bot.rendering.text_safety import single_line

COMMAND = "edit-call"
"""Internal command that opens the form. Users never type it."""
DONE = "Changed. The card asks for an approval of the new version."
NOTHING = "There is nothing in this call that a form could change."
AGAIN = "Type it again."
INTRO = "Nothing runs yet: the call waits for an approval of what you send here."
_NUMBER = re.compile(r"[0-9]{1,9}")


def edit_command(card: ApprovalRef) -> tuple[str, ...]:
    """Return the command that opens the form of a call."""
    return (COMMAND, card.approval_id, str(card.revision))


def is_edit_form(form: str) -> bool:
    """Return True if a form id is one of this module. Such a form was opened from a card."""
    return form.startswith(f"{COMMAND}:")


class ArgumentEditForms(CommandMiddleware):
    """Commands, and the forms of calls beside them: a call is changed from its card."""

    async def _answer(self, request: Invocation | FormSubmission) -> Reply | Form | None:
        """Open a call's form, or take one back."""
        match request:
            case Invocation(command, (approval_id, revision)) if command == COMMAND and _NUMBER.fullmatch(revision):
                return await self._open(ApprovalRef(approval_id, int(revision)), request)
            case FormSubmission(form) if is_edit_form(form):
                return await self._take(request)
            case _:
                return None

    async def _open(self, card: ApprovalRef, request: Invocation) -> Reply | Form:
        drafted = await self._draft(card, request.member, request.conversation)
        if not isinstance(drafted, EditableCall):
            return _failed(_words(drafted))
        filling = _Filling(card, drafted, _form_of(drafted), {})
        return filling.step(0) if filling.form.fields else _failed(NOTHING)

    async def _take(self, submission: FormSubmission) -> Reply | Form:
        card, step = _read_id(submission.form)
        drafted = await self._draft(card, submission.member, submission.conversation)
        if not isinstance(drafted, EditableCall):
            return _failed(_words(drafted))
        before = drafted.step.call.arguments
        filling = _Filling(card, drafted, _form_of(drafted), submission.fields)
        arguments, errors = read_arguments(filling.form, before, submission.fields)
        if errors:
            return filling.step(filling.steps.page_of(next(iter(errors))), errors)
        if step + 1 < filling.steps.count:
            return filling.step(step + 1)
        match await self._engine.approvals.revise(card.approval_id, card.revision, arguments, submission.member):
            case RevisionAccepted():
                return Reply(DONE)
            case InvalidArguments(problems):
                wrong = filling.errors_of({each.argument: each.problem for each in problems})
                return filling.step(filling.steps.page_of(next(iter(wrong))), wrong)
            case objection:
                return _failed(rejection_message(objection))

    async def _draft(
        self, card: ApprovalRef, member: Member, conversation: ConversationKey
    ) -> EditableCall | NotEditable | None:
        """The call, if it belongs to the workspace in which it was asked for the form."""
        drafted = await self._engine.approvals.get_editable_call(card.approval_id, card.revision, member)
        if isinstance(drafted, EditableCall) and drafted.turn.conversation.workspace_key != conversation.workspace_key:
            return None
        return drafted


class _Filling:
    """A form on its way through its steps. `answers` are those that have been given, by field."""

    def __init__(
        self, card: ApprovalRef, drafted: EditableCall, form: ArgumentForm, answers: Mapping[str, str]
    ) -> None:
        self.form = form
        self._card = card
        self._drafted = drafted
        self._withheld = {field.argument for field in form.fields if field.withheld}
        self.steps = FormPages([field.field for field in form.fields], FIELDS_A_STEP, answers)

    def step(self, number: int, errors: Mapping[str, str] | None = None) -> Form:
        """One step, with the answers that were given before."""
        fields = tuple(self._filled(field, errors or {}) for field in self.steps.fields(number))
        return Form(
            id=f"{COMMAND}:{self._card.approval_id}:{self._card.revision}:{number}",
            title=f"Edit: {single_line(call_title(self._drafted.step), 40)}",
            fields=fields,
            submit="Save" if number + 1 >= self.steps.count else "Continue",
            intro=self._intro(len(fields)) if number == 0 else "",
            carried=self.steps.carried(number),
        )

    def errors_of(self, problems: Mapping[str, str]) -> dict[str, str]:
        """Return problems by argument as errors by field. A problem without an argument is shown at the first field."""
        by_argument = {field.argument: field.field.name for field in self.form.fields}
        wrong: dict[str, str] = {}
        for argument, problem in problems.items():
            name = by_argument.get(argument, self.form.fields[0].field.name)
            said = "It does not fit the tool." if argument in self._withheld else single_line(problem, 200)
            wrong.setdefault(name, said)
        return self.steps.sort_errors(wrong)

    def _filled(self, field: Field, errors: Mapping[str, str]) -> Field:
        """Return a field with its answer and its error. An answer in place of a withheld value is not shown."""
        withheld = self.form.argument_of(field.name) in self._withheld
        answer = self.steps.answers.get(field.name, field.value)
        error = errors.get(field.name, "")
        if withheld and answer:
            return replace(field, error=error or AGAIN)
        return replace(field, value=answer, error=error)

    def _intro(self, fields: int) -> str:
        """Return the text above the fields. With a full form only left-out arguments are mentioned, because some
        platforms have no room for more.
        """
        left = ", ".join(single_line(each, 60) for each in self.form.left[:10])
        if left:
            return f"{INTRO} What is too long or too much for a form stays as it is: {left}."
        return INTRO if fields < FIELDS_A_STEP else ""


def _form_of(drafted: EditableCall) -> ArgumentForm:
    """Return the form of a call, without the values of stored secrets. For a user who may not approve the call, parts
    that look like a secret are left out too.
    """
    arguments = drafted.step.call.arguments
    stored = drafted.step.approval.secrets if drafted.step.approval is not None else ()
    positions = {each.path[0] for each in stored}
    if not drafted.whole:
        positions |= {lookalike.path[0] for lookalike in lookalikes(arguments, stored)}
    withheld = {name for position, name in enumerate(arguments) if position in positions}
    return argument_form(drafted.schema, arguments, withheld=withheld)


def _read_id(form: str) -> tuple[ApprovalRef, int]:
    """Return the approval and the step of a form id; an empty approval for a foreign id."""
    match form.split(":"):
        case [_, approval_id, revision, step] if _NUMBER.fullmatch(revision) and _NUMBER.fullmatch(step):
            return ApprovalRef(approval_id, int(revision)), int(step)
        case _:
            return ApprovalRef("", 0), 0


def _words(objection: NotEditable | None) -> str:
    return GONE if objection is None else rejection_message(objection)


def _failed(text: str) -> Reply:
    return Reply(text, failed=True)
