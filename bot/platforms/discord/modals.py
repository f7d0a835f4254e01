"""Modals and their submitted values: the forms of commands, a confirmation, the reason of a denial, a question about a
message.

A modal holds five components (Discord, "Component Reference"), as many as a form has fields. The form's text is shown
if there is room, otherwise before the modal is opened (`fits_in_modal`). A secret is never entered in Discord: such a
field names the page where it can be entered. A modal must be the first response to an interaction, within three
seconds, so building one sends no request. Its id is that of the button that opened it, for any process that receives
the submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import discord

from bot.chat.actions import OpenConfirmation
from bot.chat.forms import REASON, TYPED, are_offerable
from bot.domain.commands import FIELDS_A_STEP, Field, FieldKind, Form
from bot.i18n import _, gettext_lazy
from bot.platforms.discord.markdown import break_links, escape, shorten_label, utf16_length
from bot.platforms.discord.rest import MessageRef
from bot.rendering.text_safety import single_line, strip_control

ASK = "cs.ask"
QUESTION = "question"
LONGEST_REASON, LONGEST_QUESTION = 500, 2_000
DENYING = gettext_lazy("The call will not be run. The assistant learns of it and goes on without it.")
FIELD = "field."
TITLE, LABEL, DESCRIPTION, TYPED_AT_MOST = 45, 45, 100, 4_000
RADIOS, OPTIONS, OPTION_TEXT = 10, 25, 100
YES, NO = "yes", "no"
NO_SECRETS = gettext_lazy(
    "Secrets do not go through Discord: store it with `countersign secrets set`, and give its name here."
)

Modal = discord.ui.Modal


def form_modal(form: Form, custom_id: str) -> Modal:
    """Return the modal of a form. `custom_id` is returned with the submission."""
    modal = _modal(form.title, custom_id)
    for text in _notes(form):
        if len(modal.children) + len(_shown_fields(form)) < FIELDS_A_STEP:
            modal.add_item(discord.ui.TextDisplay(text))
    for field in _shown_fields(form):
        modal.add_item(_label(field))
    return modal


def fits_in_modal(form: Form) -> bool:
    """Return True if all text of a form fits into its modal."""
    return len(_shown_fields(form)) + len(list(_notes(form))) <= FIELDS_A_STEP


def confirm_modal(action: OpenConfirmation, custom_id: str) -> Modal:
    """Return the modal for the text that confirms a command."""
    modal = _modal(action.label, custom_id)
    typed: discord.ui.TextInput[Any] = discord.ui.TextInput(
        custom_id=TYPED, required=True, max_length=min(len(action.text) + 50, TYPED_AT_MOST)
    )
    description = shorten_label(action.text, DESCRIPTION) or None
    modal.add_item(discord.ui.Label(text=_("To confirm, type"), description=description, component=typed))
    return modal


def deny_modal(custom_id: str) -> Modal:
    """Return the modal for the optional reason of a denial."""
    modal = _modal(_("Deny"), custom_id)
    modal.add_item(discord.ui.TextDisplay(str(DENYING)))
    modal.add_item(
        discord.ui.Label(
            text=_("Reason"),
            description=_("The assistant reads it, and may try another way."),
            component=_lines(REASON, LONGEST_REASON, required=False),
        )
    )
    return modal


def question_modal(about: MessageRef) -> Modal:
    """Return the modal for a question about a message."""
    modal = _modal(_("Ask about this"), f"{ASK}:{about}")
    modal.add_item(
        discord.ui.Label(
            text=_("What do you want to know about it?"), component=_lines(QUESTION, LONGEST_QUESTION, required=True)
        )
    )
    return modal


def asked_about(custom_id: str) -> MessageRef | None:
    """Return the message that a submitted question is about, or None for another modal."""
    kind, _colon, about = custom_id.partition(":")
    return MessageRef.parse(about) if kind == ASK else None


def read_values(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the submitted values by field; empty for a missing one. `data` is that of an interaction."""
    values = {}
    for outer in data.get("components") or ():
        inner = outer.get("component") if isinstance(outer, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("custom_id"):
            match inner:
                case {"values": [first, *_]}:
                    value = str(first)
                case {"value": bool(is_ticked)}:
                    value = YES if is_ticked else NO
                case _:
                    value = str(inner.get("value") or "")
            values[str(inner["custom_id"]).removeprefix(FIELD)] = value
    return values


def _modal(title: str, custom_id: str) -> Modal:
    modal = Modal(title=shorten_label(title, TITLE) or _("Form"), custom_id=custom_id)
    # The library keeps no modal: the submission is read from the interaction, in any process.
    modal.stop()
    return modal


def _shown_fields(form: Form) -> list[Field]:
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
            yield _("{field} is too long to be changed here, and stays as it is.", field=label)


def _label(field: Field) -> discord.ui.Label[Any]:
    match field.kind:
        case FieldKind.SWITCH:
            component: discord.ui.Item[Any] = discord.ui.Checkbox(
                custom_id=FIELD + field.name, default=field.value == YES
            )
        case FieldKind.CHOICE if _is_offered(field):
            component = _choice(field)
        case _:
            lines = field.kind is FieldKind.LINES or "\n" in field.value
            component = discord.ui.TextInput(
                custom_id=FIELD + field.name,
                style=discord.TextStyle.paragraph if lines else discord.TextStyle.short,
                default=field.value or None,
                required=field.required,
                max_length=min(max(field.longest, len(field.value), 1), TYPED_AT_MOST),
            )
    return discord.ui.Label(
        text=shorten_label(field.label, LABEL) or field.name[:LABEL],
        description=_below(field) or None,
        component=component,
    )


def _below(field: Field) -> str:
    """Return the description of a field: its error or its hint."""
    if field.error:
        return shorten_label(f"⚠ {field.error}", DESCRIPTION)
    typed = field.kind is FieldKind.CHOICE and not _is_offered(field)
    return shorten_label(f"{field.hint}: {', '.join(field.choices)}" if typed else field.hint, DESCRIPTION)


def _is_offered(field: Field) -> bool:
    return are_offerable(field.choices, OPTIONS, OPTION_TEXT, utf16_length)


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


def _lines(name: str, longest: int, *, required: bool) -> discord.ui.TextInput[Any]:
    return discord.ui.TextInput(
        custom_id=name, style=discord.TextStyle.paragraph, max_length=longest, required=required
    )
