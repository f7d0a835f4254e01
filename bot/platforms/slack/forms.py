"""Forms of commands as modals.

A secret is never entered in Slack: such a field is a hint to the page where it can be entered. `modal_parsing` reads
the submission.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.commands import Field, FieldKind, Form
from bot.platforms.slack import limits
from bot.platforms.slack.blocks import Element, plain_text, section, shortened, small
from bot.platforms.slack.modals import View, input_block, modal, note_modal, text_input
from bot.platforms.slack.outgoing import Block

FORM = "cs.form"
FIELD = "field."
SAVE = "Save"
NO_SECRETS = "Secrets do not go through Slack: store it with `countersign secrets set`, and give its name here."
TOO_LONG = "This is too much for a window in Slack."
_ZIPPED = "z:"


@dataclass(frozen=True, slots=True)
class ModalState:
    """State that a form's modal carries in `private_metadata`."""

    form: str
    keep: str
    carried: Mapping[str, str]


def form_to_modal(form: Form, keep: str) -> View:
    """Return the modal of a form. A form that exceeds Slack's limits becomes a modal that names the alternative. `keep`
    is returned with the submission.
    """
    metadata = encode_state(ModalState(form.id, keep, form.carried))
    if metadata is None:
        return note_modal(form.title, f"{TOO_LONG}\n{form.instead}".strip())
    blocks: list[Block] = [section(form.title)] if len(form.title) > limits.VIEW_TITLE else []
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
        FIELD + field.name: shortened(field.error, limits.INPUT_HINT)
        for field in form.fields
        if field.error and field.kind is not FieldKind.SECRET
    }


def encode_state(luggage: ModalState) -> str | None:
    """Return the state as `private_metadata`, or None if it exceeds the limit."""
    plain = json.dumps([luggage.form, luggage.keep, dict(luggage.carried)], ensure_ascii=False)
    if len(plain) <= limits.PRIVATE_METADATA:
        return plain
    zipped = _ZIPPED + base64.b85encode(zlib.compress(plain.encode(), 9)).decode()
    return zipped if len(zipped) <= limits.PRIVATE_METADATA else None


def decode_state(metadata: str) -> ModalState:
    """Parse the state of a modal. Raises ValueError if it is invalid."""
    if metadata.startswith(_ZIPPED):
        try:
            metadata = zlib.decompress(base64.b85decode(metadata.removeprefix(_ZIPPED))).decode()
        except zlib.error as problem:
            raise ValueError("not a form of ours") from problem
    match json.loads(metadata):
        case [str(form), str(keep), dict(carried)]:
            return ModalState(form, keep, {str(name): str(value) for name, value in carried.items()})
        case _:
            raise ValueError("not a form of ours")


def _field(field: Field) -> Block:
    name = FIELD + field.name
    match field.kind:
        case FieldKind.SECRET:
            return section(f"{field.label}: {NO_SECRETS}")
        case FieldKind.SWITCH:
            return _choice(field, name, ("yes", "no"))
        case FieldKind.CHOICE if _offerable(field.choices):
            return _choice(field, name, field.choices)
        case FieldKind.CHOICE:
            hint = f"{field.hint}: {', '.join(field.choices)}"
            return _typed(field, name, hint, lines=False)
        case FieldKind.TEXT | FieldKind.LINES:
            return _typed(field, name, field.hint, lines=field.kind is FieldKind.LINES)


def _typed(field: Field, name: str, hint: str, *, lines: bool) -> Block:
    return text_input(
        name,
        field.label,
        hint=hint,
        value=field.value,
        longest=field.longest,
        required=field.required,
        lines=lines or "\n" in field.value,
    )


def _choice(field: Field, name: str, choices: Sequence[str]) -> Block:
    options = [{"text": plain_text(each, limits.OPTION_TEXT), "value": each} for each in choices]
    few = len(options) <= 5
    element: Element = {"type": "radio_buttons" if few else "static_select", "action_id": name, "options": options}
    if chosen := next((option for option in options if option["value"] == field.value), None):
        element["initial_option"] = chosen
    return input_block(name, field.label, element, hint=field.hint, required=field.required)


def _offerable(choices: Sequence[str]) -> bool:
    """Return True if Slack takes these options: their count and lengths are within the limits, without empty or
    duplicate ones.
    """
    return (
        0 < len(choices) <= limits.OPTIONS
        and len(set(choices)) == len(choices)
        and all(0 < len(each.strip()) == len(each) <= limits.OPTION_TEXT for each in choices)
    )
