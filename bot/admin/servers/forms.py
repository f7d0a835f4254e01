"""Forms of `/mcp add` and `/mcp edit`, in steps of at most five fields. The slots of a launch template are steps of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain, groupby
from operator import attrgetter

from bot.admin.command import SECRET_FIELD, SubmissionContext, choice_field, filled_field, lines_field, text_field
from bot.admin.servers.definition import SLOT, TEMPLATE
from bot.admin.servers.fields import KINDS, LONGEST, TRANSPORTS, slug_of
from bot.admin.servers.launch_consent import consent_digest
from bot.admin.text_format import POLICY_CHOICES
from bot.domain.commands import FIELDS_A_STEP, Field, FieldKind, Form
from bot.domain.launch_templates import (
    LONGEST_VALUE,
    ChoiceRule,
    IntegerRule,
    PathRule,
    SecretRule,
    Templates,
    TemplateSlot,
    TextRule,
)
from bot.domain.server_settings import AUTO_CONNECT, SETTINGS, TRUSTED
from bot.domain.servers import OAUTH_KINDS, ServerRecord, TemplateLaunch
from bot.i18n import _, gettext_lazy

_NAME = Field(
    "title", gettext_lazy("Name"), hint=gettext_lazy("its display name"), required=True, longest=LONGEST["title"]
)
_TRANSPORT = replace(
    choice_field("transport", "Transport", "a remote server, or a program on this machine", TRANSPORTS),
    required=True,
)
_REMOTE = Field(
    "where", gettext_lazy("Server address"), hint="https://example.com/mcp", required=True, longest=LONGEST["url"]
)
_LOCAL = Field(
    "where", gettext_lazy("Command line"), hint="python -m my_server", required=True, longest=LONGEST["command"]
)
_EITHER = replace(
    _REMOTE,
    label=gettext_lazy("Address or command line"),
    hint=gettext_lazy("https://example.com/mcp, or for stdio: python -m my_server"),
)
_AUTH = choice_field("auth", "Sign-in", "how the bot shows who it is; a local program needs none", KINDS)
_POLICY = choice_field("policy", "Policy", "what happens when the model asks for one of its tools", POLICY_CHOICES)
_HEADER = replace(
    text_field("auth_header", "Header", "the header that carries the secret", 100),
    value="Authorization",
)
_USER = text_field("username", "User name reference", "env:NAME or file:/path: it is kept like the password", 1024)
_SECRET = text_field(
    "secret", "Secret reference", "env:NAME or file:/path: where the secret is, never the secret itself", 1024
)
_HIDDEN = Field(
    SECRET_FIELD,
    gettext_lazy("Secret"),
    FieldKind.SECRET,
    gettext_lazy("the secret itself, kept encrypted; leave it empty if you gave a reference"),
    longest=4096,
)
_ON_PAGE = replace(
    _HIDDEN, hint=gettext_lazy("kept encrypted and never shown; for basic as USER:PASSWORD. Nothing for none and oauth")
)
_NEW_SECRET = replace(
    _HIDDEN, hint=gettext_lazy("kept encrypted and never shown; for basic as USER:PASSWORD. Empty: it stays as it is")
)
_HEADER_ON_PAGE = replace(_HEADER, hint=gettext_lazy("for header and api_key: the header that carries the secret"))
_CLIENT = text_field(
    "client_id",
    "Client id",
    "what the authorization server knows the bot by; empty: the bot registers itself",
    LONGEST["client_id"],
)
_OWN_CLIENT = replace(_CLIENT, hint=gettext_lazy("what the authorization server knows the bot by"), required=True)
_SCOPE = text_field("scope", "Scopes", "what to ask for, with blanks between; empty: what the server says", 1000)
_CLIENT_SECRET = replace(
    _SECRET,
    label=gettext_lazy("Client secret"),
    hint=gettext_lazy("if the client has one: env:NAME or file:/path, never the secret itself"),
)
_SECRET_OR_LINK = replace(
    _SECRET, hint=gettext_lazy("env:NAME or file:/path, never the secret itself; empty: a link to enter it")
)
_ENV = lines_field("env", "Environment", "NAME=env:OTHER or NAME=file:/path, one a line")
_HEADERS = lines_field(
    "headers", "Other headers", "Name=text, or for a secret Name=env:OTHER or Name=file:/path, one a line"
)
_FOLDER = text_field("cwd", "Folder", "where the program starts; an absolute path", 1024)
_DESCRIPTION = text_field("description", "Description", "its purpose", LONGEST["description"])
_USER_IF_BASIC = replace(_USER, hint=gettext_lazy("for basic: env:NAME or file:/path; *** keeps the one there is"))
_PAIR = replace(
    _HIDDEN,
    label=gettext_lazy("User name and password"),
    hint=gettext_lazy("as USER:PASSWORD, kept encrypted; the password alone if the user name is a reference"),
)
_SIGN_IN_FIELDS = {
    "header": (_HEADER,),
    "api_key": (_HEADER,),
    "basic": (_USER,),
    "oauth": (_CLIENT, _SCOPE, _CLIENT_SECRET),
    "client_credentials": (_OWN_CLIENT, _SCOPE),
}
"""Fields of the step with the secret, before the secret itself, by the way to sign in."""
_FORM = attrgetter("form")
_SEEN = "seen"


Step = tuple[Field, ...]


class SecretFieldMode(Enum):
    """Ways in which a form asks for a secret: by reference; at a hidden prompt; in a field of a page; by reference,
    else with a one-time link after saving.
    """

    REFERENCE = "reference"
    PROMPT = "prompt"
    PAGE = "page"
    LINK = "link"


def steps_of_adding(fields: Mapping[str, str], mode: SecretFieldMode) -> list[Step]:
    """Return the steps of adding that follow from the fields so far."""
    on_page = (_ON_PAGE, _HEADER_ON_PAGE) if mode is SecretFieldMode.PAGE else ()
    steps: list[Step] = [(_NAME, _TRANSPORT, _EITHER, _AUTH, *on_page, _POLICY)]
    if fields.get("transport") == "stdio":
        return [*steps, (_ENV, _FOLDER, confirmation(fields.get("title", "")))]
    return [*steps, *_authentication_steps(fields.get("auth", ""), mode)]


def steps_of_editing(fields: Mapping[str, str], before: Mapping[str, str]) -> list[Step]:
    """Return the steps of editing, with a confirmation if the command line changes."""
    local = before.get("transport") == "stdio"
    steps: list[Step] = [
        (_NAME, _DESCRIPTION, _LOCAL if local else _REMOTE, AUTO_CONNECT.form_field, TRUSTED.form_field),
        (_ENV, _FOLDER) if local else (_AUTH, _HEADER, _USER_IF_BASIC, _SECRET, _HEADERS),
    ]
    if not local and fields.get("auth") in OAUTH_KINDS:
        steps.append((_CLIENT, _SCOPE))
    for _form, settings in groupby(sorted(filter(_FORM, SETTINGS), key=_FORM), _FORM):
        steps += in_steps([setting.form_field for setting in settings])
    if local and fields.get("where", before["command"]) != before["command"]:
        steps.append((confirmation(before["name"]),))
    return steps


def confirmation(name: str) -> Field:
    """Return the confirmation field for a new command line."""
    return Field(
        "confirm", _("Confirm"), hint=_("type {name} to allow exactly this command line", name=name), required=True
    )


def form(
    form_id: str,
    title: str,
    steps: Sequence[Step],
    number: int,
    *,
    values: Mapping[str, str],
    errors: Mapping[str, str],
    submit: str,
    intro: str = "",
    instead: str = "",
) -> Form:
    """Return one step with its values and errors, and the values of other steps as carried fields. Fields that were not
    filled in yet show no errors.
    """
    step = steps[number - 1]
    names = {field.name for field in step}
    errors = _visible_errors(names, values, errors)
    last = number == len(steps)
    filled = []
    for field in step:
        value = "" if field.kind is FieldKind.SECRET else values.get(field.name, field.value)
        filled.append(filled_field(field, value, errors.get(field.name, "")))
    return Form(
        id=f"{form_id}:{number}",
        title=title
        if len(steps) == 1
        else _("{title} · {number} of {count}", title=title, number=number, count=len(steps)),
        fields=tuple(filled),
        submit=submit if last else _("Continue"),
        intro=intro,
        carried={name: value for name, value in values.items() if name not in names and name != SECRET_FIELD},
        instead=str(instead),
    )


def in_steps(fields: Sequence[Field]) -> list[Step]:
    """Return fields as steps of a form."""
    return [tuple(fields[first : first + FIELDS_A_STEP]) for first in range(0, len(fields), FIELDS_A_STEP)]


def on_one_page(steps: Sequence[Step]) -> list[Step]:
    """Return the steps as one, before the confirmation of a command line if there is one."""
    asked = [step for step in steps if step[-1].name != "confirm"]
    return [tuple(field for step in asked for field in step), *steps[len(asked) :]]


def with_secret_field(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with a field for the secret itself below that of its reference."""
    fields = ([(field, _NEW_SECRET) if field is _SECRET else (field,) for field in step] for step in steps)
    return [tuple(chain.from_iterable(step)) for step in fields]


def next_step(steps: Sequence[Step], number: int, errors: Mapping[str, str]) -> int | None:
    """Return the next step: the first visited one with an error, the following one, or None at the end. A step that
    does not exist is replaced by the last one, because its fields were not answered.
    """
    for index, step in enumerate(steps[:number], 1):
        if any(field.name in errors for field in step):
            return index
    if number > len(steps):
        return len(steps)
    return number + 1 if number < len(steps) else None


def next_form_step(steps: Sequence[Step], submission: SubmissionContext) -> tuple[int, Mapping[str, str]] | None:
    """Return the next step of a form and its errors; None at the end. The state of the submission is its step. A
    required field without a value is an error.
    """
    number = int(next(iter(submission.state), "1"))
    missing = {
        field.name: _("Something is needed here.")
        for step in steps[:number]
        for field in step
        if field.required and not submission.fields.get(field.name, "").strip()
    }
    if errors := {**missing, **submission.errors}:
        return number, errors
    return (number + 1, {}) if number < len(steps) else None


def _visible_errors(names: set[str], values: Mapping[str, str], errors: Mapping[str, str]) -> Mapping[str, str]:
    """Return the errors of filled-in fields. A missing secret is an error at the field where it can be typed."""
    visible = {name: error for name, error in errors.items() if name in values}
    if SECRET_FIELD in names and "secret" in visible and not values.get("secret"):
        visible.setdefault(SECRET_FIELD, visible.pop("secret"))
    return visible


def _authentication_steps(auth: str, mode: SecretFieldMode) -> list[Step]:
    fields = _SIGN_IN_FIELDS.get(auth)
    if fields is None or (mode is SecretFieldMode.PAGE and auth not in OAUTH_KINDS):
        return []
    asked = {
        SecretFieldMode.REFERENCE: (_SECRET,),
        SecretFieldMode.PROMPT: (_SECRET, _PAIR if auth == "basic" else _HIDDEN),
        SecretFieldMode.PAGE: (_SECRET, _HIDDEN),
        SecretFieldMode.LINK: (_SECRET_OR_LINK,),
    }[mode]
    return [(*fields, *(asked[1:] if auth == "oauth" else asked))]


# -------------------- launch templates


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
    return steps[-1][-1].name == "confirm"


def shown_command_line(record: ServerRecord) -> dict[str, str]:
    """Return the carried field that identifies the shown command line."""
    return {_SEEN: consent_digest(record.config)}


def confirmation_errors(fields: Mapping[str, str], name: str, record: ServerRecord) -> dict[str, str]:
    """Return the error of a confirmation: if it is not the name, or the launch template was changed after the form was
    shown.
    """
    if record.config.launch is not None and fields.get(_SEEN) != consent_digest(record.config):
        text = _("This is not what you were shown before: the operator has changed it meanwhile. Look again.")
        return {"confirm": text}
    confirmed = fields.get("confirm", "").strip() in (name, slug_of(name))
    return {} if confirmed else {"confirm": _("Type {name} to allow this command line, or leave.", name=name)}


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
