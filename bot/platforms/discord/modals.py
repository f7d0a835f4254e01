"""Modals and their submitted values: the forms of commands, a confirmation, the reason of a denial, a question about a
message.

A modal holds five components (Discord, "Component Reference"), as many as a form has fields. The form's text is shown
if there is room, otherwise before the modal is opened (`fits_in_modal`). A secret is never entered in Discord: such a
field names the page where it can be entered. A modal must be the first response to an interaction, within three
seconds, so building one sends no request. Its context is in its id, for any process that receives the submission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import discord

from bot.chat.actions import (
    ApprovalRef,
)
from bot.domain.commands import FIELDS_A_STEP, Field, FieldKind, Form
from bot.platforms.discord.channels import (
    MessageRef,
)
from bot.platforms.discord.markup import break_links, escape, shorten_label, utf16_length
from bot.rendering.text_safety import single_line, strip_control

DENY, ASK = "cs.deny", "cs.ask"
REASON, QUESTION = "reason", "question"
LONGEST_REASON, LONGEST_QUESTION = 500, 2_000
DENYING = "The call will not be run. The assistant learns of it and goes on without it."
FIELD = "field."
TYPED = "typed"
TITLE, LABEL, DESCRIPTION, TYPED_AT_MOST = 45, 45, 100, 4_000
RADIOS, OPTIONS, OPTION_TEXT = 10, 25, 100
YES, NO = "yes", "no"
NO_SECRETS = "Secrets do not go through Discord: store it with `countersign secrets set`, and give its name here."
TOO_LONG = "is too long to be changed here, and stays as it is."
_LABEL_TYPE = discord.ComponentType.label.value

Modal = discord.ui.Modal


def form_modal(form: Form, custom_id: str) -> Modal:
    """Return the modal of a form. `custom_id` is returned with the submission."""
    modal = _modal(form.title, custom_id)
    for text in _notes(form):
        if len(modal.children) + len(_asked(form)) < FIELDS_A_STEP:
            modal.add_item(discord.ui.TextDisplay(text))
    for field in _asked(form):
        modal.add_item(_label(field))
    return modal


def fits_in_modal(form: Form) -> bool:
    """Return True if all text of a form fits into its modal."""
    return len(_asked(form)) + len(list(_notes(form))) <= FIELDS_A_STEP


def carried_values(form: Form) -> dict[str, str]:
    """Return the values that are submitted with a form but not shown: fields of other steps, and values that are too
    long.
    """
    return {**form.carried, **{field.name: field.value for field in form.fields if _is_too_long(field)}}


def confirm_modal(label: str, text: str, custom_id: str) -> Modal:
    """Return a modal for a text to be typed."""
    modal = _modal(label, custom_id)
    typed: discord.ui.TextInput[Any] = discord.ui.TextInput(
        custom_id=TYPED, required=True, max_length=min(len(text) + 50, TYPED_AT_MOST)
    )
    modal.add_item(
        discord.ui.Label(text="To confirm, type", description=shorten_label(text, DESCRIPTION) or None, component=typed)
    )
    return modal


@dataclass(frozen=True, slots=True)
class DenyForm:
    """Deny this call."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class AskAboutMessage:
    """Ask about this message."""

    about: MessageRef


def deny_modal(card: ApprovalRef) -> Modal:
    """Return the modal for an optional reason."""
    modal = _modal("Deny", f"{DENY}:{card.approval_id}:{card.revision}")
    modal.add_item(discord.ui.TextDisplay(DENYING))
    modal.add_item(
        discord.ui.Label(
            text="Reason",
            description="The assistant reads it, and may try another way.",
            component=_lines(REASON, LONGEST_REASON, required=False),
        )
    )
    return modal


def question_modal(about: MessageRef) -> Modal:
    """Return the modal for a question about a message."""
    modal = _modal("Ask about this", f"{ASK}:{about}")
    modal.add_item(
        discord.ui.Label(
            text="What do you want to know about it?", component=_lines(QUESTION, LONGEST_QUESTION, required=True)
        )
    )
    return modal


def read_modal(custom_id: str) -> DenyForm | AskAboutMessage | None:
    """Return the context of a submitted modal, or None if it is of another kind."""
    kind, _, rest = custom_id.partition(":")
    match kind, rest.split(":"):
        case "cs.deny", [approval_id, revision] if re.fullmatch(r"[0-9]{1,9}", revision):
            return DenyForm(ApprovalRef(approval_id, int(revision)))
        case "cs.ask", _ if (about := MessageRef.parse(rest)) is not None:
            return AskAboutMessage(about)
        case _:
            return None


def read_values(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the submitted values by field; empty for a missing one. `data` is that of an interaction."""
    found = {}
    for outer in data.get("components") or ():
        inner = outer.get("component") if isinstance(outer, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("custom_id"):
            found[str(inner["custom_id"]).removeprefix(FIELD)] = _value(inner)
    return found


def _modal(title: str, custom_id: str) -> Modal:
    modal = Modal(title=shorten_label(title, TITLE) or "Form", custom_id=custom_id)
    # It listens to nothing: what is sent is read from the interaction, by whoever holds the ticket.
    modal.stop()
    return modal


def _value(component: Mapping[str, Any]) -> str:
    match component:
        case {"values": [first, *_]}:
            return str(first)
        case {"value": bool(ticked)}:
            return YES if ticked else NO
        case _:
            return str(component.get("value") or "")


def _asked(form: Form) -> list[Field]:
    return [field for field in form.fields if field.kind is not FieldKind.SECRET and not _is_too_long(field)]


def _is_too_long(field: Field) -> bool:
    return len(field.value) > TYPED_AT_MOST and field.kind is not FieldKind.SECRET


def _notes(form: Form) -> Iterator[str]:
    if form.intro:
        yield break_links(strip_control(form.intro).strip())[:TYPED_AT_MOST]
    for field in form.fields:
        label = escape(single_line(field.label, LABEL))
        if field.kind is FieldKind.SECRET:
            yield f"{label}: {NO_SECRETS}"
        elif _is_too_long(field):
            yield f"{label} {TOO_LONG}"


def _label(field: Field) -> discord.ui.Label[Any]:
    match field.kind:
        case FieldKind.SWITCH:
            component: discord.ui.Item[Any] = discord.ui.Checkbox(
                custom_id=FIELD + field.name, default=field.value == YES
            )
        case FieldKind.CHOICE if _offerable(field.choices):
            component = _choice(field)
        case _:
            component = _typed(field)
    return discord.ui.Label(
        text=shorten_label(field.label, LABEL) or field.name[:LABEL],
        description=_below(field) or None,
        component=component,
    )


def _below(field: Field) -> str:
    """Return the description of a field: its error or its hint."""
    if field.error:
        return shorten_label(f"⚠ {field.error}", DESCRIPTION)
    unoffered = field.kind is FieldKind.CHOICE and not _offerable(field.choices)
    return shorten_label(f"{field.hint}: {', '.join(field.choices)}" if unoffered else field.hint, DESCRIPTION)


def _typed(field: Field) -> discord.ui.TextInput[Any]:
    lines = field.kind is FieldKind.LINES or "\n" in field.value
    return discord.ui.TextInput(
        custom_id=FIELD + field.name,
        style=discord.TextStyle.paragraph if lines else discord.TextStyle.short,
        default=field.value or None,
        required=field.required,
        max_length=min(max(field.longest, len(field.value), 1), TYPED_AT_MOST),
    )


def _choice(field: Field) -> discord.ui.Item[Any]:
    """Return a few choices as radio buttons, more as a menu."""
    name = FIELD + field.name
    if 1 < len(field.choices) <= RADIOS:
        return discord.ui.RadioGroup(
            custom_id=name,
            required=field.required,
            options=[
                discord.RadioGroupOption(label=choice, value=choice, default=choice == field.value)
                for choice in field.choices
            ],
        )
    return discord.ui.Select(
        custom_id=name,
        required=field.required,
        min_values=1 if field.required else 0,
        options=[
            discord.SelectOption(label=choice, value=choice, default=choice == field.value) for choice in field.choices
        ],
    )


def _offerable(choices: Iterable[str]) -> bool:
    """Return True if Discord takes these options: their count and lengths are within the limits, without empty or
    duplicate ones.
    """
    found = list(choices)
    return (
        0 < len(found) <= OPTIONS
        and len(set(found)) == len(found)
        and all(0 < len(each.strip()) == len(each) and utf16_length(each) <= OPTION_TEXT for each in found)
    )


def _lines(name: str, longest: int, *, required: bool) -> discord.ui.TextInput[Any]:
    return discord.ui.TextInput(
        custom_id=name, style=discord.TextStyle.paragraph, max_length=longest, required=required
    )
