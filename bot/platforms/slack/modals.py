"""Modals: the whole call, the reason of a denial, a text to confirm, and the forms of commands.

The context of a modal is its `private_metadata`. A secret is never entered in Slack: such a field is a hint to the page
where it can be entered.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from bot.chat.actions import ApprovalRef, OpenConfirmation, OpenDenyForm, ViewCall, decode, encode
from bot.chat.call_messages import PartLimits, join_parts, whole_call
from bot.chat.forms import REASON, TYPED, FormSubmitted, Submission, are_offerable
from bot.chat.forms import read_submission as parse_submission
from bot.chat.message_model import Block as MessageBlock
from bot.domain.approvals import Portion
from bot.domain.commands import Field, FieldKind, Form
from bot.domain.turns import ToolStep
from bot.i18n import _, gettext_lazy
from bot.platforms.slack.blocks import (
    INPUT_HINT,
    INPUT_LABEL,
    INPUT_LENGTH,
    OPTION_TEXT,
    OPTIONS,
    PRIVATE_METADATA,
    VIEW_TITLE,
    Block,
    Element,
    button,
    buttons,
    plain_text,
    section,
    shorten,
    small,
)
from bot.platforms.slack.message_blocks import message_blocks
from bot.platforms.slack.web_api import object_in, text_in
from bot.rendering.text_safety import single_line

ACTION, SHOWN = "cs.action", "cs.shown"
LONGEST_REASON = 500
DENYING = gettext_lazy("The call will not be run. The assistant learns of it and goes on without it.")
ON_THE_LAST_PAGE = gettext_lazy("The buttons are on the last page.")
PIECE = 2_500
PAGE_BYTES = 150_000
PAGE_BLOCKS = 80

View = dict[str, Any]
"""One view as JSON."""


def deny_modal(action: OpenDenyForm, keep: str) -> View:
    """Return the modal for the optional reason of a denial. `keep` is returned with the submission."""
    return modal(
        _("Deny"),
        [
            section(DENYING),
            text_input(
                REASON,
                _("Reason"),
                hint=_("The assistant reads it, and may try another way."),
                longest=LONGEST_REASON,
            ),
        ],
        callback_id=ACTION,
        metadata=json.dumps([keep, encode(action)], ensure_ascii=False),
        submit=_("Deny"),
    )


def confirm_modal(action: OpenConfirmation, keep: str) -> View:
    """Return the modal for the text that confirms a command. `keep` is returned with the submission."""
    label = _("Type {text} to confirm", text=single_line(action.text, 200))
    return modal(
        single_line(action.label, VIEW_TITLE),
        [text_input(TYPED, label, longest=len(action.text) + 50, required=True, lines=False)],
        callback_id=ACTION,
        metadata=json.dumps([keep, encode(replace(action, text="", label=""))], ensure_ascii=False),
        submit=single_line(action.label, VIEW_TITLE),
    )


def call_modal(step: ToolStep, page: int = 1, keep: str = "", *, whole: bool = False) -> View:
    """Return one page of a call with all arguments; if `whole` is True, with the parts that look like a secret. Its
    buttons are on the last page, so that an approver has seen every page. A page out of range becomes the nearest one.
    `keep` is the modal's `private_metadata`.
    """
    call = whole_call(step, CALL_LIMITS, whole=whole)
    if call is None or step.approval is None:
        return modal(_("Call"), [section(_("This call needs no approval."))])
    pages = join_parts(call.arguments, CALL_LIMITS)
    page = min(max(page, 1), len(pages))
    blocks = message_blocks((*call.title, *pages[page - 1], *call.ending))
    if len(pages) > 1:
        ref = ApprovalRef(step.approval.id, step.approval.revision)
        back = button(_("◀ Back"), ViewCall(ref, page - 1)) if page > 1 else None
        on = button(_("More ▶"), ViewCall(ref, page + 1)) if page < len(pages) else None
        blocks += [*small(_("Page {number} of {count}", number=page, count=len(pages))), *buttons([back, on])]
    if call.buttons:
        blocks += message_blocks(call.buttons) if page == len(pages) else small(ON_THE_LAST_PAGE)
    return modal(_("Everything in this call"), blocks, metadata=keep)


def page_of_call(step: ToolStep, page: int) -> Portion:
    """Return the number of a page and the count of pages."""
    call = whole_call(step, CALL_LIMITS, whole=True)
    pages = len(join_parts(call.arguments, CALL_LIMITS)) if call is not None else 1
    return Portion(min(max(page, 1), pages), pages)


def note_modal(title: str, text: str) -> View:
    """Return a modal without fields."""
    return modal(title, [section(text)])


def modal(title: str, blocks: list[Block], *, callback_id: str = SHOWN, metadata: str = "", submit: str = "") -> View:
    """Return a modal; without `submit` it can only be closed."""
    view: View = {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain_text(single_line(title, VIEW_TITLE), VIEW_TITLE),
        "close": plain_text(_("Cancel") if submit else _("Close")),
        "private_metadata": metadata,
        "blocks": blocks,
    }
    return {**view, "submit": plain_text(single_line(submit, VIEW_TITLE), VIEW_TITLE)} if submit else view


def text_input(
    name: str,
    label: str,
    *,
    hint: str = "",
    value: str = "",
    longest: int = INPUT_LENGTH,
    required: bool = False,
    lines: bool = True,
) -> Block:
    """Return a text field; `name` is its block id."""
    element: Element = {
        "type": "plain_text_input",
        "action_id": name,
        "multiline": lines,
        "max_length": min(max(longest, 1), INPUT_LENGTH),
    }
    if value:
        element["initial_value"] = value[: element["max_length"]]
    return input_block(name, label, element, hint=hint, required=required)


def input_block(name: str, label: str, element: Element, *, hint: str = "", required: bool = False) -> Block:
    """Return a field with its label above and its hint below."""
    block: Block = {
        "type": "input",
        "block_id": name,
        "label": plain_text(single_line(label, INPUT_LABEL), INPUT_LABEL),
        "element": element,
        "optional": not required,
    }
    return {**block, "hint": plain_text(hint, INPUT_HINT)} if hint else block


def _weigh(block: MessageBlock) -> int:
    return len(json.dumps(message_blocks((block,))))


CALL_LIMITS = PartLimits(_weigh, piece=PIECE, page=PAGE_BYTES, most_blocks=PAGE_BLOCKS)

FORM, ASK = "cs.form", "cs.ask"
"""`callback_id` of a command's form, and of the message shortcut and its modal."""
FIELD = "field."
SAVE = gettext_lazy("Save")
NO_SECRETS = gettext_lazy(
    "Secrets do not go through Slack: store it with `countersign secrets set`, and give its name here."
)
TOO_LONG = gettext_lazy("This is too much for a window in Slack.")
_ZIPPED = "z:"


def form_to_modal(form: Form, keep: str) -> View:
    """Return the modal of a form. A form that exceeds Slack's limits becomes a modal that names the alternative. `keep`
    is returned with the submission.
    """
    metadata = encode_state(form.id, keep, form.carried)
    if metadata is None:
        return note_modal(form.title, f"{TOO_LONG}\n{form.instead}".strip())
    blocks: list[Block] = [section(form.title)] if len(str(form.title)) > VIEW_TITLE else []
    if form.intro:
        blocks.append(section(form.intro))
    for field in form.fields:
        blocks.append(_field(field))
        if field.error:
            blocks += small(f"⚠ {field.error}")
    return modal(
        form.title, blocks or [section(form.title)], callback_id=FORM, metadata=metadata, submit=form.submit or SAVE
    )


def errors(form: Form) -> dict[str, str]:
    """Return the validation errors by field, for Slack to show below the fields."""
    return {
        FIELD + field.name: shorten(field.error, INPUT_HINT)
        for field in form.fields
        if field.error and field.kind is not FieldKind.SECRET
    }


def encode_state(form: str, keep: str, carried: Mapping[str, str]) -> str | None:
    """Return the state of a form's modal as `private_metadata`, or None if it exceeds the limit."""
    plain = json.dumps([form, keep, dict(carried)], ensure_ascii=False)
    if len(plain) <= PRIVATE_METADATA:
        return plain
    zipped = _ZIPPED + base64.b85encode(zlib.compress(plain.encode(), 9)).decode()
    return zipped if len(zipped) <= PRIVATE_METADATA else None


def decode_state(metadata: str) -> tuple[str, str, dict[str, str]]:
    """Parse the state of a modal: the form, the value kept for it, and the values that it carries. Raises ValueError if
    it is invalid.
    """
    if metadata.startswith(_ZIPPED):
        try:
            metadata = zlib.decompress(base64.b85decode(metadata.removeprefix(_ZIPPED))).decode()
        except zlib.error as error:
            raise ValueError("not a form of ours") from error
    match json.loads(metadata):
        case [str(form), str(keep), dict(carried)]:
            return form, keep, {str(name): str(value) for name, value in carried.items()}
        case _:
            raise ValueError("not a form of ours")


def _field(field: Field) -> Block:
    hint = field.hint
    match field.kind:
        case FieldKind.SECRET:
            return section(f"{field.label}: {NO_SECRETS}")
        case FieldKind.SWITCH:
            return _choice(field, {"yes": _("yes"), "no": _("no")})
        case FieldKind.CHOICE if are_offerable(field.choices, OPTIONS, OPTION_TEXT):
            return _choice(field, {choice: choice for choice in field.choices})
        case FieldKind.CHOICE:
            hint = f"{field.hint}: {', '.join(field.choices)}"
    return text_input(
        FIELD + field.name,
        field.label,
        hint=hint,
        value=field.value,
        longest=field.longest,
        required=field.required,
        lines=field.kind is FieldKind.LINES or "\n" in field.value,
    )


def _choice(field: Field, labels: Mapping[str, str]) -> Block:
    name = FIELD + field.name
    options = [{"text": plain_text(label, OPTION_TEXT), "value": choice} for choice, label in labels.items()]
    few = len(options) <= 5
    element: Element = {"type": "radio_buttons" if few else "static_select", "action_id": name, "options": options}
    if chosen := next((option for option in options if option["value"] == field.value), None):
        element["initial_option"] = chosen
    return input_block(name, field.label, element, hint=field.hint, required=field.required)


@dataclass(frozen=True, slots=True)
class ModalView:
    """A modal in a request of Slack: the values of its fields are by block id, empty for a missing one."""

    id: str = ""
    callback_id: str = ""
    metadata: str = ""
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, view: Mapping[str, Any]) -> Self:
        """Read the view of a request."""
        blocks = object_in(object_in(view, "state"), "values")
        values = {
            block: text_in(element, "selected_option", "value")
            if element.get("type") in ("radio_buttons", "static_select")
            else text_in(element, "value")
            for block in blocks
            for element in object_in(blocks, block).values()
            if isinstance(element, Mapping)
        }
        return cls(text_in(view, "id"), text_in(view, "callback_id"), text_in(view, "private_metadata"), values)


def read_submission(view: ModalView) -> tuple[Submission, str] | None:
    """Return a submission, and the value kept for it. Return None if the modal is not one of the bot's."""
    try:
        if view.callback_id == FORM:
            form, keep, carried = decode_state(view.metadata)
            fields = {name.removeprefix(FIELD): value for name, value in view.values.items() if name.startswith(FIELD)}
            return FormSubmitted(form, {**carried, **fields}), keep
        if view.callback_id == ACTION:
            keep, text = json.loads(view.metadata)
            action = decode(str(text))
            if isinstance(action, OpenDenyForm | OpenConfirmation):
                return parse_submission(action, view.values), str(keep)
    except (ValueError, TypeError):
        pass
    return None
