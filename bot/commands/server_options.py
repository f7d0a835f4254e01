"""Options of `/mcp add` and `/mcp edit`, converted with form fields to fields of a definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.commands.argument_parser import POLICY, SERVER, Arguments
from bot.commands.command import SubmissionContext
from bot.commands.server_definition import NO, YES, fields_of
from bot.commands.server_fields import KINDS, SENDS, TRANSPORTS, WORDS, slug_of
from bot.commands.server_forms import Step
from bot.commands.server_templates import SLOT, TEMPLATE, typed
from bot.commands.text_format import error_reply
from bot.domain.commands import Parameter, ParameterKind, Reply, Verb
from bot.domain.servers import ServerRecord

_OPTION = ParameterKind.OPTION
_REFERENCE = "env:NAME or file:/path"
_DEFINING = (
    Parameter("transport", "how it is reached", _OPTION, metavar="|".join(TRANSPORTS)),
    Parameter("url", "its address", _OPTION),
    Parameter("command", "the program that is the server", _OPTION, metavar="CMD"),
    Parameter("arg", "one argument of the program", _OPTION, repeated=True),
    Parameter("cwd", "the folder the program starts in", _OPTION, metavar="PATH"),
    Parameter("title", "what people call it", _OPTION),
    Parameter("description", "what it is for", _OPTION, metavar="TEXT"),
    Parameter("auth", "how the bot shows who it is", _OPTION, choices=KINDS),
    Parameter("auth-header", "the header that carries the secret", _OPTION, metavar="HEADER"),
    Parameter("username", "where the user name of basic is, kept like the password", _OPTION, metavar="SECRETREF"),
    Parameter("client-id", "what the sign-in page knows the bot by, for oauth", _OPTION, metavar="ID", opaque=True),
    Parameter("scope", "what to ask for, with blanks between, for oauth", _OPTION, metavar="SCOPES"),
    Parameter("secret", f"where the secret is: {_REFERENCE}", _OPTION, metavar="SECRETREF"),
    Parameter(
        "header",
        f"one more header: plain text, or a secret from {_REFERENCE}",
        _OPTION,
        repeated=True,
        metavar="NAME=VALUE",
    ),
    Parameter(
        "env", f"a variable for the program, from {_REFERENCE}", _OPTION, repeated=True, metavar="NAME=SECRETREF"
    ),
)
# On platforms with a limit on options, the last ones are left out; the forms have them.
_TUNING = (
    Parameter("system-instruction", "description for the model", _OPTION, metavar="TEXT"),
    Parameter("response-instruction", "text for the model after a tool call", _OPTION, metavar="TEXT"),
    Parameter("connect-timeout", "seconds to connect", _OPTION, metavar="SECONDS"),
    Parameter("tool-timeout", "seconds a call may take", _OPTION, metavar="SECONDS"),
    Parameter("tool-limit", "the same for one tool, or none", _OPTION, repeated=True, metavar="TOOL=SECONDS"),
    Parameter("auto-connect", "connect at the start", _OPTION, choices=(YES, NO)),
    Parameter("auto-context-tool", "a tool that is asked every question first", _OPTION, metavar="TOOL"),
    Parameter("words", "whose words its tools return", _OPTION, choices=WORDS),
    Parameter("sends", "who reads what its calls carry", _OPTION, choices=SENDS),
    Parameter("tool-words", "the first for one tool, or none", _OPTION, repeated=True, metavar="TOOL=WORDS"),
    Parameter("tool-sends", "the second for one tool, or none", _OPTION, repeated=True, metavar="TOOL=SENDS"),
    Parameter(
        "tool-recipients",
        "the arguments of a tool that name who gets it, or none",
        _OPTION,
        repeated=True,
        metavar="TOOL=ARGUMENT,...",
    ),
)
_LINES = {
    "header": "headers",
    "env": "env",
    "tool-limit": "tool_timeouts",
    "tool-words": "tool_words",
    "tool-sends": "tool_sends",
    "tool-recipients": "tool_recipients",
}
"""Repeatable options, each a line of a field."""
_SLOTS = Parameter(
    "slots",
    "a launch template and what fills its slots, such as template=git repo=docs",
    repeated=True,
    metavar="SLOT=VALUE",
)
ADD = Verb(
    "add",
    "a new server; alone it asks for everything",
    (
        Parameter("name", "its name; one that is no slug becomes its title"),
        _SLOTS,
        *_DEFINING,
        Parameter("trusted", "take its word on which tools only read", ParameterKind.FLAG),
        replace(POLICY, shape=_OPTION, required=False),
        Parameter("no-verify", "do not look whether it can be used", ParameterKind.FLAG),
        *_TUNING,
        Parameter("here", "for this workspace alone, where the operator adds it", ParameterKind.FLAG),
    ),
    aliases=("new", "create", "register"),
)
EDIT = Verb(
    "edit",
    "change a server; with its name alone it shows what can be changed",
    (
        SERVER,
        _SLOTS,
        *_DEFINING,
        Parameter("rename", "another name for it, a slug", _OPTION, metavar="NEW"),
        Parameter("trusted", "whether its word counts on which tools only read", _OPTION, choices=(YES, NO)),
        Parameter("no-verify", "do not look whether it can be used", ParameterKind.FLAG),
        *_TUNING,
    ),
    aliases=("update", "change", "set"),
)


def fields_given(arguments: Arguments) -> dict[str, str]:
    """Return options and slots as fields, without absent ones. Raises CommandRejected."""
    plain = [each.name for each in (*_DEFINING, *_TUNING) if not each.repeated and each.name != "command"]
    fields = {name.replace("-", "_"): arguments.one(name) for name in (*plain, "trusted") if arguments.given(name)}
    for option, field in _LINES.items():
        if arguments.given(option):
            fields[field] = "\n".join(arguments.many(option))
    if arguments.given("command"):
        fields["command"] = ""
    return {**fields, **typed(arguments.many("slots"))}


def argv_given(arguments: Arguments) -> tuple[str, ...]:
    """Return the program and its arguments as separate words."""
    command = arguments.one("command")
    return (command, *arguments.many("arg")) if command else ()


def split(fields: Mapping[str, str]) -> dict[str, str]:
    """Replace the combined field by the field for an address or a command line."""
    place = "command" if fields.get("transport") == "stdio" else "url"
    other = "url" if place == "command" else "command"
    rest = {name: value for name, value in fields.items() if name not in ("where", other, "cwd", "env", "headers")}
    mine = ("cwd", "env") if place == "command" else ("env",) if fields.get("transport") == TEMPLATE else ("headers",)
    rest |= {name: fields[name] for name in mine if name in fields}
    return {**rest, place: fields["where"]} if "where" in fields else rest


def values_of(record: ServerRecord) -> dict[str, str]:
    """Return a record as fields of its form."""
    values = fields_of(record)
    return {**values, "where": values.get("command") or values.get("url", "")}


def step_number(filled: SubmissionContext) -> int:
    """Return the step of a submitted form."""
    text = filled.state[-1] if filled.state else "1"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 1


def on_form(errors: Mapping[str, str]) -> dict[str, str]:
    """Return errors by the fields of a form."""
    places = {"url": "where", "command": "where", "name": "title"}
    found: dict[str, str] = {}
    for name, error in errors.items():
        found.setdefault(places.get(name, name), error)
    return found


def next_step(steps: list[Step], number: int, errors: Mapping[str, str]) -> int | None:
    """Return the next step: the first visited one with an error, the following one, or None at the end. A step that
    does not exist is replaced by the last one, because its fields were not answered.
    """
    for index, step in enumerate(steps[:number], 1):
        if any(field.name in errors for field in step):
            return index
    if number > len(steps):
        return len(steps)
    return number + 1 if number < len(steps) else None


def unconfirmed(fields: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the error of a confirmation by name; empty if it matches."""
    confirmed = fields.get("confirm", "").strip() in (name, slug_of(name))
    return {} if confirmed else {"confirm": f"Type {name} to allow this command line, or leave."}


def all_wrong(text: str, errors: Mapping[str, str], verb: str) -> Reply:
    """Return a reply with all errors, by option."""
    names = {"name": "name", "headers": "--header", TEMPLATE: f"{TEMPLATE}="}
    facts = tuple((names.get(name, _typed_as(name)), error) for name, error in errors.items())
    return replace(error_reply(f"{text} `/mcp help {verb}` explains the options."), details=facts)


def _typed_as(name: str) -> str:
    return f"{name.removeprefix(SLOT)}=" if name.startswith(SLOT) else f"--{name.replace('_', '-')}"
