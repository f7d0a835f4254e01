"""Editing a call before its approval, by a form.

`ArgumentEditForms` wraps the commands: `edit_command` opens the form, like every form of a command. The engine checks
the user's rights when the form is opened and when it is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.chat.actions import ApprovalRef
from bot.chat.forms import CommandMiddleware, FormSteps, parse_step
from bot.chat.rejection_messages import GONE, rejection_message
from bot.domain.argument_edits import EditableCall, InvalidArguments, NotEditable, RevisionAccepted
from bot.domain.commands import FIELDS_A_STEP, Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import ConversationKey, Member
from bot.domain.secret_detection import lookalikes
from bot.domain.tools import ArgumentError
from bot.rendering.approval_card import call_title
from bot.rendering.argument_fields import ArgumentForm, argument_form, read_arguments
from bot.rendering.text_safety import single_line

COMMAND = "edit-call"
"""Internal command that opens the form. Users never type it."""
DONE = "Changed. The card asks for an approval of the new version."
NOTHING_TO_EDIT = "There is nothing in this call that a form could change."
TYPE_AGAIN = "Type it again."
DOES_NOT_FIT = "It does not fit the tool."
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
        match request:
            case Invocation(command, (approval_id, revision)) if command == COMMAND and _NUMBER.fullmatch(revision):
                return await self._open(ApprovalRef(approval_id, int(revision)), request)
            case FormSubmission(form) if is_edit_form(form):
                return await self._submit(request)
            case _:
                return None

    async def _open(self, card: ApprovalRef, request: Invocation) -> Reply | Form:
        call = await self._editable_call(card, request.member, request.conversation)
        if not isinstance(call, EditableCall):
            return Reply(_rejection(call), failed=True)
        form = _argument_form(call)
        return _steps(card, call, form, {}).step(0) if form.fields else Reply(NOTHING_TO_EDIT, failed=True)

    async def _submit(self, submission: FormSubmission) -> Reply | Form:
        card, step = _parse_id(submission.form)
        call = await self._editable_call(card, submission.member, submission.conversation)
        if not isinstance(call, EditableCall):
            return Reply(_rejection(call), failed=True)
        form = _argument_form(call)
        steps = _steps(card, call, form, submission.fields)
        arguments, errors = read_arguments(form, call.step.call.arguments, submission.fields)
        if errors:
            return steps.with_errors(errors.items())
        if further := steps.after(step):
            return further
        match await self._engine.approvals.revise(card.approval_id, card.revision, arguments, submission.member):
            case RevisionAccepted():
                return Reply(DONE)
            case InvalidArguments(problems):
                return steps.with_errors(_field_error(form, problem) for problem in problems)
            case rejection:
                return Reply(rejection_message(rejection), failed=True)

    async def _editable_call(
        self, card: ApprovalRef, member: Member, conversation: ConversationKey
    ) -> EditableCall | NotEditable | None:
        """Return the call, if it belongs to the workspace in which its form is used."""
        call = await self._engine.approvals.get_editable_call(card.approval_id, card.revision, member)
        if isinstance(call, EditableCall) and call.turn.conversation.workspace_key != conversation.workspace_key:
            return None
        return call


def _steps(card: ApprovalRef, call: EditableCall, form: ArgumentForm, answers: Mapping[str, str]) -> FormSteps:
    def intro(step: int, fields: int) -> str:
        """With a full form only left-out arguments are mentioned, because some platforms have no room for more."""
        left = ", ".join(single_line(name, 60) for name in form.left[:10])
        if step:
            return ""
        if left:
            return f"{INTRO} What is too long or too much for a form stays as it is: {left}."
        return INTRO if fields < FIELDS_A_STEP else ""

    return FormSteps(
        id=f"{COMMAND}:{card.approval_id}:{card.revision}",
        title=f"Edit: {single_line(call_title(call.step), 40)}",
        fields=[argument.field for argument in form.fields],
        size=FIELDS_A_STEP,
        submit="Save",
        intro=intro,
        answers=answers,
        concealed=frozenset(argument.field.name for argument in form.fields if argument.withheld),
        again=TYPE_AGAIN,
    )


def _field_error(form: ArgumentForm, error: ArgumentError) -> tuple[str, str]:
    """Return the field of an error and its text. One without an argument is shown at the first field."""
    fields = (argument for argument in form.fields if argument.argument == error.argument)
    argument = next(fields, form.fields[0])
    withheld = argument.withheld and argument.argument == error.argument
    return argument.field.name, DOES_NOT_FIT if withheld else error.problem


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


def _parse_id(form: str) -> tuple[ApprovalRef, int]:
    """Return the approval and the step of a form id; an empty approval for a foreign id."""
    match parse_step(form):
        case [_, approval_id, revision], step if _NUMBER.fullmatch(revision):
            return ApprovalRef(approval_id, int(revision)), step
        case _:
            return ApprovalRef("", 0), 0


def _rejection(rejection: NotEditable | None) -> str:
    return GONE if rejection is None else rejection_message(rejection)
