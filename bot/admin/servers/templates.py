"""Servers started by the operator's launch templates: parsing, drafts, form steps and missing secrets.

Their definitions have the fields `template` and `slot_NAME`; `server_definition` handles the others.
`bot.domain.launch_templates` validates slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.admin.command import CommandRejected
from bot.admin.servers.definition import KEEP, ParsedDefinition
from bot.admin.servers.fields import NO_ADDRESS, REFERENCE, read_reference
from bot.admin.servers.forms import SecretFieldMode, Step, confirmation, in_steps, steps_of_adding, steps_of_editing
from bot.admin.servers.launch_consent import consent_digest
from bot.admin.text_format import sentences
from bot.domain.commands import Field, FieldKind
from bot.domain.launch_templates import (
    LONGEST_VALUE,
    ChoiceRule,
    IntegerRule,
    InvalidSlotValue,
    LaunchTemplate,
    PathRule,
    SecretRule,
    Templates,
    TemplateSlot,
    TextRule,
)
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import STDIO, ServerRecord, StdioTransport, TemplateLaunch
from bot.i18n import _, gettext_lazy

TEMPLATE = "template"
SLOT = "slot_"
MISSING_SECRET = gettext_lazy("It is missing. {reference}", reference=REFERENCE)
_SEEN = "seen"
_SLOT_NAME = re.compile(r"[a-z0-9_]+")
_ADDRESS = re.compile(r"[^=?]*[/:.]|localhost$")
"""Beginning of a word that is meant as an address."""
_NOT_ITS_OWN = gettext_lazy("The launch template says what is started: leave this empty.")
_THEIRS = ("command", "url", "cwd")


@dataclass(frozen=True, slots=True)
class FilledTemplate:
    """A record with the program of its template, the remaining fields, and errors by field."""

    record: ServerRecord
    fields: Mapping[str, str]
    errors: Mapping[str, str]


def parse_assignments(words: Sequence[str]) -> dict[str, str]:
    """Parse `template=git repo=docs` into fields. Raises CommandRejected."""
    fields: dict[str, str] = {}
    for word in words:
        name, assigned, value = word.partition("=")
        name = name.strip().lower()
        if not assigned or not _SLOT_NAME.fullmatch(name):
            raise CommandRejected(
                NO_ADDRESS
                if _ADDRESS.match(word)
                else _(
                    "Behind the name goes an address such as https://host/path, a program behind `--`, or a launch "
                    "template and its slots, such as `template=git repo=docs`."
                )
            )
        field = TEMPLATE if name == TEMPLATE else f"{SLOT}{name}"
        if field in fields:
            raise CommandRejected(_("Something is given twice there."))
        fields[field] = value
    return fields


def launch_of(record: ServerRecord) -> TemplateLaunch | None:
    """Return the launch of a server started by a template, None for others."""
    transport = record.config.transport
    return transport.launch if isinstance(transport, StdioTransport) else None


def place_of_template(record: ServerRecord, templates: Templates) -> str:
    """Return the field for an error about the program of a template: its path if it has one; empty without a
    template.
    """
    launch = launch_of(record)
    if launch is None:
        return ""
    paths = list(templates[launch.template].folders) if launch.template in templates else []
    return f"{SLOT}{paths[0]}" if len(paths) == 1 else TEMPLATE


def is_about_template(record: ServerRecord, fields: Mapping[str, str]) -> bool:
    """Return True if the fields are about a server started by a template."""
    transport = fields.get("transport", "").lower()
    by_name = TEMPLATE in fields and transport in ("", STDIO)
    return launch_of(record) is not None or transport == TEMPLATE or by_name


def without_template(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields without those of a template, after a change of the transport."""
    return {name: value for name, value in fields.items() if name != TEMPLATE and not name.startswith(SLOT)}


def fill_template(
    record: ServerRecord, fields: Mapping[str, str], argv: Sequence[str], templates: Templates
) -> FilledTemplate:
    """Return the record with the template in the fields, or with its own template and new values."""
    slots = {name.removeprefix(SLOT): value.strip() for name, value in fields.items() if name.startswith(SLOT)}
    other_fields = without_template(fields)
    if not is_about_template(record, fields):
        unclear = _("Say which launch template this is for: template=NAME. An option is written --NAME VALUE.")
        errors = {f"{SLOT}{name}": unclear for name in slots}
        return FilledTemplate(record, other_fields, errors)
    return _TemplateFiller(record, other_fields, slots, templates).fill(fields.get(TEMPLATE, "").strip(), argv)


class _TemplateFiller:
    def __init__(
        self, record: ServerRecord, fields: dict[str, str], slots: Mapping[str, str], templates: Templates
    ) -> None:
        self._record = record
        self._fields = fields
        self._slots = slots
        self._templates = templates
        self._errors: dict[str, str] = {}

    def fill(self, chosen: str, argv: Sequence[str]) -> FilledTemplate:
        before = launch_of(self._record)
        for name in _THEIRS:
            if self._fields.pop(name, "") or (name == "command" and argv):
                self._errors[name] = _NOT_ITS_OWN
        self._fields.pop("transport", None)
        if before is not None and chosen not in ("", before.template):
            self._errors[TEMPLATE] = _("Another launch template is another server: add one, and remove this one.")
        name = before.template if before is not None else chosen
        values = dict(before.values) if before is not None else {}
        template = self._templates.get(name)
        if template is None:
            self._errors[TEMPLATE] = _unknown_template(name, self._templates)
            transport = StdioTransport("", launch=TemplateLaunch(name, values))
        else:
            transport = self._transport(template, values)
            self._fields["env"] = "\n".join(self._secrets(template))
        return FilledTemplate(
            replace(self._record, config=replace(self._record.config, transport=transport)), self._fields, self._errors
        )

    def _transport(self, template: LaunchTemplate, values: dict[str, str]) -> StdioTransport:
        values |= {name: value for name, value in self._slots.items() if name not in template.secrets}
        try:
            return template.fill_slots(values)
        except InvalidSlotValue as invalid:
            self._errors |= {f"{SLOT}{name}" if name else TEMPLATE: why for name, why in invalid.errors.items()}
            return StdioTransport("", launch=TemplateLaunch(template.name, values))

    def _secrets(self, template: LaunchTemplate) -> Iterator[str]:
        """Yield the references to secrets as lines of the field `env`."""
        lines = (line.partition("=") for line in self._fields.get("env", "").splitlines() if line.strip())
        lines_by_variable = {variable.strip(): text.strip() for variable, _equals, text in lines}
        for slot, variable in template.secrets.items():
            line = lines_by_variable.pop(variable, "")
            stored = KEEP if f"env:{variable}" in self._record.secrets else ""
            text = self._slots.get(slot) or line or stored
            if objection := _reference_error(text):
                self._errors[f"{SLOT}{slot}"] = objection
            else:
                yield f"{variable}={text}"
        if lines_by_variable:
            self._errors["env"] = _(
                "The launch template {template} has no place for such a variable.", template=template.name
            )


def _reference_error(text: str) -> str:
    if not text:
        return MISSING_SECRET
    try:
        if text != KEEP:
            read_reference(text)
    except ValueError as error:
        return str(error)
    return ""


def _unknown_template(name: str, templates: Templates) -> str:
    available = (
        _("There are: {templates}.", templates=", ".join(sorted(templates)))
        if templates
        else _("The operator has written none.")
    )
    problem = _("There is no launch template of this name.") if name else _("Which launch template?")
    return sentences(problem, available)


def entered_later(draft: ParsedDefinition, templates: Templates) -> ParsedDefinition:
    """Return the draft with placeholders instead of errors for missing secrets, which are entered after saving."""
    launch = launch_of(draft.record)
    template = templates.get(launch.template) if launch is not None else None
    if template is None:
        return draft
    missing = {
        f"{SLOT}{slot}": f"env:{variable}"
        for slot, variable in template.secrets.items()
        if draft.errors.get(f"{SLOT}{slot}") == MISSING_SECRET
    }
    errors = {name: error for name, error in draft.errors.items() if name not in missing}
    secrets = {**draft.record.secrets, **dict.fromkeys(missing.values(), SecretReference(SecretSource.STORED))}
    return ParsedDefinition(replace(draft.record, secrets=secrets), draft.secrets, errors)


def steps_of_launching(fields: Mapping[str, str], templates: Templates) -> list[Step]:
    """Return the steps after the first: template, slots, confirmation of the command line."""
    choice = Field(
        TEMPLATE,
        _("Launch template"),
        FieldKind.CHOICE,
        _("which of the operator's programs"),
        required=True,
        choices=tuple(sorted(templates)),
    )
    template = templates.get(fields.get(TEMPLATE, ""))
    if template is None:
        return [(choice,)]
    return [(choice,), *_slot_steps(template.slots), (confirmation(fields.get("title", "")),)]


def steps_with_templates(fields: Mapping[str, str], asking: SecretFieldMode, templates: Templates) -> list[Step]:
    """Return the steps of adding a server, with a choice of templates if there are any."""
    launching = fields.get("transport") == TEMPLATE
    first, *others = steps_of_adding(fields, asking)
    if templates or launching:
        first = tuple(map(_or_by_template, first))
    return [first, *(steps_of_launching(fields, templates) if launching else others)]


def steps_of_refilling(
    launch: TemplateLaunch, fields: Mapping[str, str], before: Mapping[str, str], templates: Templates
) -> list[Step]:
    """Return the steps of editing a server started by a template, with a confirmation if the command line changes.
    Secrets have a verb of their own.
    """
    names, _, words, flows, *_ = steps_of_editing({}, {"transport": "stdio", "command": ""})
    template = templates.get(launch.template)
    slots = () if template is None else template.typed
    steps: list[Step] = [tuple(name for name in names if name.name != "where"), *_slot_steps(slots), words, flows]
    if any(fields.get(f"{SLOT}{slot.name}", "") != before.get(f"{SLOT}{slot.name}", "") for slot in slots):
        steps.append((confirmation(before["name"]),))
    return steps


def is_confirming(steps: Sequence[Step]) -> bool:
    """Return True if the last step confirms a command line."""
    return any(field.name == "confirm" for field in steps[-1])


def shown_command_line(record: ServerRecord) -> dict[str, str]:
    """Return the carried field that identifies the shown command line."""
    return {_SEEN: consent_digest(record.config)}


def template_change_errors(fields: Mapping[str, str], record: ServerRecord) -> dict[str, str]:
    """Return an error if the template was changed after the form was shown."""
    if fields.get(_SEEN) == shown_command_line(record)[_SEEN]:
        return {}
    return {"confirm": _("This is not what you were shown before: the operator has changed it meanwhile. Look again.")}


def describe_templates(templates: Templates) -> str:
    """Return the descriptions of the templates, one per line."""
    lines = (
        f"{name}: {'. '.join(filter(None, (templates[name].title, templates[name].description)))}"
        for name in sorted(templates)
    )
    return "\n".join(line.rstrip(": ") for line in lines)


def _or_by_template(field: Field) -> Field:
    match field.name:
        case "transport":
            hint = _("{hint}, or one of the operator's launch templates", hint=field.hint)
            return replace(field, hint=hint, choices=(*field.choices, TEMPLATE))
        case "where":
            return replace(field, hint=_("{hint}. Nothing for a launch template", hint=field.hint), required=False)
        case _:
            return field


def _slot_steps(slots: Sequence[TemplateSlot]) -> list[Step]:
    return in_steps([_slot_field(slot) for slot in slots])


def _slot_field(slot: TemplateSlot) -> Field:
    name, label = f"{SLOT}{slot.name}", slot.title or slot.name
    hint = ". ".join(filter(None, (slot.help.rstrip("."), _slot_hint(slot))))
    value = slot.default or ""
    match slot.rule:
        case ChoiceRule(choices):
            return Field(name, label, FieldKind.CHOICE, hint, required=True, choices=choices, value=value)
        case SecretRule():
            return Field(name, label, hint=hint, longest=1024)
        case _:
            return Field(name, label, hint=hint, required=not value, value=value, longest=LONGEST_VALUE)


def _slot_hint(slot: TemplateSlot) -> str:
    match slot.rule:
        case IntegerRule(least, most):
            return _("{least} to {most}", least=least, most=most)
        case PathRule(below):
            return _("a path below {folder}", folder=below)
        case SecretRule():
            return _("env:NAME or file:/path, never the secret itself")
        case TextRule() | ChoiceRule():
            return ""
