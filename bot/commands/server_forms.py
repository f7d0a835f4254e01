"""Forms of `/mcp add` and `/mcp edit`, in steps of at most five fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from bot.commands.command import SECRET_FIELD, SubmissionContext
from bot.commands.server_fields import (
    BY_HINTS,
    DEFAULT,
    KINDS,
    LONGEST,
    LONGEST_GROUP,
    LONGEST_INSTRUCTION,
    NO,
    PROTOCOLS,
    SENDS,
    TRANSPORTS,
    WORDS,
    YES,
)
from bot.commands.text_format import POLICY_CHOICES
from bot.domain.commands import FIELDS_A_STEP, Field, FieldKind, Form
from bot.domain.servers import OAUTH_KINDS, SessionScope, ToolNaming
from bot.i18n import _, gettext_lazy

_NAME = Field(
    "title", gettext_lazy("Name"), hint=gettext_lazy("its display name"), required=True, longest=LONGEST["title"]
)
_TRANSPORT = Field(
    "transport",
    gettext_lazy("Transport"),
    FieldKind.CHOICE,
    gettext_lazy("a remote server, or a program on this machine"),
    required=True,
    choices=TRANSPORTS,
    value=TRANSPORTS[0],
)
_REMOTE = Field(
    "where", gettext_lazy("Server address"), hint="https://example.com/mcp", required=True, longest=LONGEST["url"]
)
_LOCAL = Field(
    "where", gettext_lazy("Command line"), hint="python -m my_server", required=True, longest=LONGEST["command"]
)
_EITHER = Field(
    "where",
    gettext_lazy("Address or command line"),
    hint=gettext_lazy("https://example.com/mcp, or for stdio: python -m my_server"),
    required=True,
    longest=LONGEST["url"],
)
_AUTH = Field(
    "auth",
    gettext_lazy("Sign-in"),
    FieldKind.CHOICE,
    gettext_lazy("how the bot shows who it is; a local program needs none"),
    choices=KINDS,
    value=KINDS[0],
)
_POLICY = Field(
    "policy",
    gettext_lazy("Policy"),
    FieldKind.CHOICE,
    gettext_lazy("what happens when the model asks for one of its tools"),
    choices=POLICY_CHOICES,
    value=POLICY_CHOICES[0],
)
_HEADER = Field(
    "auth_header",
    gettext_lazy("Header"),
    hint=gettext_lazy("the header that carries the secret"),
    value="Authorization",
    longest=100,
)
_USER = Field(
    "username",
    gettext_lazy("User name reference"),
    hint=gettext_lazy("env:NAME or file:/path: it is kept like the password"),
    longest=1024,
)
_SECRET = Field(
    "secret",
    gettext_lazy("Secret reference"),
    hint=gettext_lazy("env:NAME or file:/path: where the secret is, never the secret itself"),
    longest=1024,
)
_HIDDEN = Field(
    SECRET_FIELD,
    gettext_lazy("Secret"),
    FieldKind.SECRET,
    gettext_lazy("the secret itself, kept encrypted; leave it empty if you gave a reference"),
    longest=4096,
)
_CLIENT = Field(
    "client_id",
    gettext_lazy("Client id"),
    hint=gettext_lazy("what the authorization server knows the bot by; empty: the bot registers itself"),
    longest=LONGEST["client_id"],
)
_OWN_CLIENT = replace(_CLIENT, hint=gettext_lazy("what the authorization server knows the bot by"), required=True)
_SCOPE = Field(
    "scope",
    gettext_lazy("Scopes"),
    hint=gettext_lazy("what to ask for, with blanks between; empty: what the server says"),
    longest=1000,
)
_CLIENT_SECRET = replace(
    _SECRET,
    label=gettext_lazy("Client secret"),
    hint=gettext_lazy("if the client has one: env:NAME or file:/path, never the secret itself"),
)
_SECRET_OR_LINK = replace(
    _SECRET, hint=gettext_lazy("env:NAME or file:/path, never the secret itself; empty: a link to enter it")
)
_ENV = Field(
    "env", gettext_lazy("Environment"), FieldKind.LINES, gettext_lazy("NAME=env:OTHER or NAME=file:/path, one a line")
)
_HEADERS = Field(
    "headers",
    gettext_lazy("Other headers"),
    FieldKind.LINES,
    gettext_lazy("Name=text, or for a secret Name=env:OTHER or Name=file:/path, one a line"),
)
_FOLDER = Field(
    "cwd", gettext_lazy("Folder"), hint=gettext_lazy("where the program starts; an absolute path"), longest=1024
)
_DESCRIPTION = Field(
    "description", gettext_lazy("Description"), hint=gettext_lazy("its purpose"), longest=LONGEST["description"]
)
_CONNECTS = Field(
    "auto_connect", gettext_lazy("Connect at the start"), FieldKind.SWITCH, gettext_lazy("no: on first use")
)
_TRUSTED = Field(
    "trusted",
    gettext_lazy("Trusted"),
    FieldKind.SWITCH,
    gettext_lazy("whether its word counts on which tools only read"),
)
_SYSTEM = Field(
    "system_instruction",
    gettext_lazy("System instruction"),
    FieldKind.LINES,
    gettext_lazy("description for the model"),
    longest=LONGEST_INSTRUCTION,
)
_RESPONSE = Field(
    "response_instruction",
    gettext_lazy("Response instruction"),
    FieldKind.LINES,
    gettext_lazy("text for the model after a tool call"),
    longest=LONGEST_INSTRUCTION,
)
_INSTRUCTIONS = Field(
    "use_instructions",
    gettext_lazy("Instructions of the server"),
    FieldKind.SWITCH,
    gettext_lazy("yes: the model gets them, once they are reviewed"),
)
_CONTEXT = Field(
    "auto_context_tool",
    gettext_lazy("Context tool"),
    hint=gettext_lazy("a tool that is asked every question first"),
    longest=255,
)
_PROTOCOL = Field(
    "protocol",
    gettext_lazy("Version of MCP"),
    FieldKind.CHOICE,
    gettext_lazy("another than auto for a server that works in an older one only"),
    choices=PROTOCOLS,
    value=PROTOCOLS[0],
)
_WORDS = Field(
    "words",
    gettext_lazy("Words"),
    FieldKind.CHOICE,
    gettext_lazy("authors of the text that its tools return"),
    choices=WORDS,
    value=BY_HINTS,
)
_SENDS = Field(
    "sends",
    gettext_lazy("Sends"),
    FieldKind.CHOICE,
    gettext_lazy("readers of the data that its calls send"),
    choices=SENDS,
    value=BY_HINTS,
)
_TOOL_WORDS = Field(
    "tool_words", gettext_lazy("Words of single tools"), FieldKind.LINES, gettext_lazy("TOOL=strangers, one a line")
)
_TOOL_SENDS = Field(
    "tool_sends", gettext_lazy("Sends of single tools"), FieldKind.LINES, gettext_lazy("TOOL=world, one a line")
)
_RECIPIENTS = Field(
    "tool_recipients",
    gettext_lazy("Recipients"),
    FieldKind.LINES,
    gettext_lazy("TOOL=ARGUMENT,ARGUMENT: the arguments that name who gets it, one tool a line"),
)
_CONNECT_TIME = Field(
    "connect_timeout", gettext_lazy("Seconds to connect"), hint=gettext_lazy("empty: the usual time"), longest=10
)
_SESSIONS = Field(
    "sessions",
    gettext_lazy("Sessions"),
    FieldKind.CHOICE,
    gettext_lazy("who shares what the server keeps, such as open pages"),
    choices=tuple(SessionScope),
    value=SessionScope.SHARED,
)
_MAX_SESSIONS = Field(
    "max_sessions", gettext_lazy("Open sessions"), hint=gettext_lazy("at most, if not all share one"), longest=10
)
_SESSION_IDLE = Field(
    "session_idle_timeout",
    gettext_lazy("Seconds until an unused session ends"),
    hint=gettext_lazy("empty: the usual time"),
    longest=10,
)
_RETRIES = Field(
    "connect_retries", gettext_lazy("Further attempts"), hint=gettext_lazy("within the time to connect"), longest=10
)
_RECONNECT = Field(
    "reconnect",
    gettext_lazy("Reconnect"),
    FieldKind.CHOICE,
    gettext_lazy("connect again by itself after a loss"),
    choices=(DEFAULT, YES, NO),
    value=DEFAULT,
)
_OUTPUT = Field(
    "output_limit",
    gettext_lazy("Output limit"),
    hint=gettext_lazy("characters of a result that the model gets"),
    longest=10,
)
_GROUP = Field(
    "fallback_group",
    gettext_lazy("Fallback group"),
    hint=gettext_lazy("servers that stand in for each other"),
    longest=LONGEST_GROUP,
)
_ORDER = Field("fallback_order", gettext_lazy("Place in the group"), hint=gettext_lazy("1 is asked first"), longest=10)
_TOOL_NAMES = Field(
    "tool_names",
    gettext_lazy("Names of tools"),
    FieldKind.CHOICE,
    gettext_lazy("names of its tools for the model"),
    choices=tuple(ToolNaming),
    value=ToolNaming.PREFIXED,
)
_CALL_TIME = Field("tool_timeout", gettext_lazy("Seconds a call may take"), longest=10)
_USER_IF_BASIC = replace(_USER, hint=gettext_lazy("for basic: env:NAME or file:/path; *** keeps the one there is"))
_PAIR = replace(
    _HIDDEN,
    label=gettext_lazy("User name and password"),
    hint=gettext_lazy("as USER:PASSWORD, kept encrypted; the password alone if the user name is a reference"),
)


Step = tuple[Field, ...]


class SecretFieldMode(Enum):
    """Ways in which a form asks for a secret: by reference; at a hidden prompt; by reference, else with a one-time link
    after saving.
    """

    REFERENCE = "reference"
    PROMPT = "prompt"
    LINK = "link"


def steps_of_adding(fields: Mapping[str, str], mode: SecretFieldMode) -> list[Step]:
    """Return the steps of adding that follow from the fields so far."""
    steps: list[Step] = [(_NAME, _TRANSPORT, _EITHER, _AUTH, _POLICY)]
    if fields.get("transport") == "stdio":
        return [*steps, (_ENV, _FOLDER, confirmation(fields.get("title", "")))]
    return [*steps, *_authentication_steps(fields.get("auth", ""), mode)]


def steps_of_editing(fields: Mapping[str, str], before: Mapping[str, str]) -> list[Step]:
    """Return the steps of editing, with a confirmation if the command line changes."""
    if before.get("transport") == "stdio":
        steps: list[Step] = [(_NAME, _DESCRIPTION, _LOCAL, _CONNECTS, _TRUSTED), (_ENV, _FOLDER)]
    else:
        steps = [
            (_NAME, _DESCRIPTION, _REMOTE, _CONNECTS, _TRUSTED),
            (_AUTH, _HEADER, _USER_IF_BASIC, _SECRET, _HEADERS),
        ]
        if fields.get("auth") in OAUTH_KINDS:
            steps.append((_CLIENT, _SCOPE))
    steps += [(_SYSTEM, _RESPONSE, _INSTRUCTIONS, _CONTEXT), (_CONNECT_TIME, _CALL_TIME)]
    steps.append((_WORDS, _SENDS, _TOOL_WORDS, _TOOL_SENDS, _RECIPIENTS))
    steps.append((_SESSIONS, _MAX_SESSIONS, _SESSION_IDLE, _RETRIES, _RECONNECT))
    steps.append((_OUTPUT, _GROUP, _ORDER, _TOOL_NAMES, _PROTOCOL))
    if before.get("transport") == "stdio" and fields.get("where", before["command"]) != before["command"]:
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
    return Form(
        id=f"{form_id}:{number}",
        title=title
        if len(steps) == 1
        else _("{title} · {number} of {count}", title=title, number=number, count=len(steps)),
        fields=tuple(_with_value(field, values, errors) for field in step),
        submit=submit if last else _("Continue"),
        intro=intro,
        carried={name: value for name, value in values.items() if name not in names and name != SECRET_FIELD},
        instead=str(instead),
    )


def in_steps(fields: Sequence[Field]) -> list[Step]:
    """Return fields as steps of a form."""
    return [tuple(fields[first : first + FIELDS_A_STEP]) for first in range(0, len(fields), FIELDS_A_STEP)]


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
    if SECRET_FIELD in names and "secret" in visible and not values["secret"]:
        visible.setdefault(SECRET_FIELD, visible.pop("secret"))
    return visible


def _with_value(field: Field, values: Mapping[str, str], errors: Mapping[str, str]) -> Field:
    value = "" if field.kind is FieldKind.SECRET else values.get(field.name, field.value)
    return Field(
        field.name,
        str(field.label),
        field.kind,
        str(field.hint),
        field.required,
        field.choices,
        value,
        str(errors.get(field.name, "")),
        field.longest,
    )


def _authentication_steps(auth: str, mode: SecretFieldMode) -> list[Step]:
    match auth:
        case "header" | "api_key":
            return [(_HEADER, *_ASKED[mode])]
        case "basic":
            return [(_USER, *_ASKED_OF_BASIC[mode])]
        case "oauth":
            return [(_CLIENT, _SCOPE, _CLIENT_SECRET, *_ASKED[mode][1:])]
        case "client_credentials":
            return [(_OWN_CLIENT, _SCOPE, *_ASKED[mode])]
        case _:
            return []


_ASKED_OF_BASIC = {
    SecretFieldMode.REFERENCE: (_SECRET,),
    SecretFieldMode.PROMPT: (_SECRET, _PAIR),
    SecretFieldMode.LINK: (_SECRET_OR_LINK,),
}
_ASKED = {
    SecretFieldMode.REFERENCE: (_SECRET,),
    SecretFieldMode.PROMPT: (_SECRET, _HIDDEN),
    SecretFieldMode.LINK: (_SECRET_OR_LINK,),
}
