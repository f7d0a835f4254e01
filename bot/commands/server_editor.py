"""`/mcp add` and `/mcp edit`: by options, or by a form in steps.

All errors are reported at once, by field. A new server is checked at once, unless it waits for its secret: then the
reply has a link to enter it. Of concurrent changes the first is saved, and the other is rejected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from bot.commands.argument_parser import POLICY, SERVER, Arguments
from bot.commands.command import SECRET_FIELD, CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_checks import ServerRequest, ServerValidator, starts
from bot.commands.server_control import InvalidServer, ServerService, VersionConflict
from bot.commands.server_definition import KEEP, NO, YES, ParsedDefinition, command_line, fields_of
from bot.commands.server_directory import ServerDirectory
from bot.commands.server_fields import KINDS, SENDS, TRANSPORTS, WORDS, is_slug, slug_of
from bot.commands.server_forms import SecretFieldMode, Step, form, steps_of_editing
from bot.commands.server_secrets import SecretLinks, awaited, missing_slots, secret_form
from bot.commands.server_templates import (
    SLOT,
    TEMPLATE,
    described,
    entered_later,
    is_confirming,
    launch_of,
    seen,
    steps_of_refilling,
    steps_with_templates,
    typed,
    unseen,
    without_template,
)
from bot.commands.text_format import error_reply, format_ago, parse_policy, server_label
from bot.domain.commands import Form, Parameter, ParameterKind, Reply, ReplyAction, Verb
from bot.domain.servers import USER_SLOT, AuthenticationKind, ServerEnablement, ServerRecord

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
_USE_OTHER_COMMAND = "/mcp edit NAME --OPTION VALUE; /mcp help edit lists the options"
_INSTEAD = "/mcp add NAME --url URL [--auth header --secret SECRETREF], or --command CMD --arg ARG"
_NOTHING = "Nothing was added."
_SIGNING_IN = 2
"""Step of the form with the secret."""
_CHOOSING = 2
"""Step of the form with the launch template."""


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


class ServerEdit:
    """Verb of `/mcp edit`."""

    def __init__(
        self, parts: CommandDependencies, directory: ServerDirectory, drafting: ServerValidator, keeping: ServerService
    ) -> None:
        self._clock = parts.clock
        self._templates = parts.templates
        self._links = SecretLinks(parts)
        self._directory = directory
        self._drafting = drafting
        self._keeping = keeping

    @property
    def handler(self) -> VerbHandler:
        """Return the verb."""
        return VerbHandler(EDIT, self._edit, self._editing)

    async def _edit(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        _, record = await self._directory.get_editable(arguments.one("server"), request)
        self._drafting.may_define(record.config, request.member)
        if set(arguments.values) <= {"server"}:
            yield self._form(record, values_of(record), {}, 1)
            return
        fields = fields_given(arguments)
        if arguments.given("rename"):
            fields["name"] = arguments.one("rename")
        server_request = ServerRequest(fields, request.member, request.conversation, argv=argv_given(arguments))
        draft = await self._drafting.changed(record, server_request)
        draft = draft if request.hidden_input else self._links.ready(draft)
        if (
            self._starts_other(record, draft.record)
            and not draft.errors
            and not self._drafting.operates(request.member)
        ):
            yield self._consent(record, {**values_of(record), **fields}, draft.record)
            return
        async for reply in self._keep(record, draft, request, verify=not arguments.given("no-verify")):
            yield reply

    async def _editing(self, filled: SubmissionContext) -> AsyncIterator[Reply | Form]:
        server_id, version, *_ = (*filled.state, "", "")
        seen = await self._directory.find(server_id, filled.conversation)
        record = self._directory.record_of(seen, filled.member)
        self._drafting.may_define(record.config, filled.member)
        if str(record.version) != version:
            yield self._overtaken(record)
            return
        before = values_of(record)
        fields, number = {**before, **filled.fields}, step_number(filled)
        steps = self._steps(record, fields)
        draft = await self._drafting.changed(record, ServerRequest(split(fields), filled.member, filled.conversation))
        draft = draft if filled.hidden_input else self._links.ready(draft)
        errors = {**on_form(draft.errors), **filled.errors}
        confirming, launched = is_confirming(steps), launch_of(record) is not None
        if number == len(steps) and confirming:
            errors |= unconfirmed(fields, record.config.name)
            errors |= unseen(fields, draft.record) if launched else {}
        step = next_step(steps, number, errors)
        if step == len(steps) and confirming and launched:
            yield self._consent(record, fields, draft.record, errors)
            return
        if step is not None:
            intro = starts(draft.record.config) if confirming and step == len(steps) else ""
            yield self._form(record, fields, errors, step, intro=intro)
            return
        async for reply in self._keep(record, draft, filled, verify=True):
            yield reply

    async def _keep(
        self,
        before: ServerRecord,
        draft: ParsedDefinition,
        context: CommandContext | SubmissionContext,
        *,
        verify: bool,
    ) -> AsyncIterator[Reply | Form]:
        kept = await self._keeping.change(before, draft, context.author)
        match kept:
            case InvalidServer(errors):
                yield all_wrong("Nothing was changed.", errors, "edit")
                return
            case VersionConflict(record):
                yield self._overtaken(record)
                return
        if not kept.changes:
            yield Reply(f"{server_label(before.config)} is as it was: nothing is different.")
            return
        record = kept.record
        changes = tuple((f"changed {name}", said) for name, said in kept.changes.items())
        if record.missing - before.missing and context.hidden_input:
            slot = missing_slots(record)[0]
            cleared = kept.changes.get(f"secret {slot}", "")
            yield secret_form(record, slot, intro=f"{server_label(record.config)} is changed. Secret {slot} {cleared}.")
            return
        if record.missing - before.missing:
            said = f"{server_label(record.config)} is changed, and waits for {awaited(record)}."
            reply = await self._links.asked(record, context.author, context.conversation, said)
            yield replace(reply, details=(*changes, *reply.details))
            return
        look = verify and record.standing is ServerEnablement.ON
        async for reply in self._drafting.reply_with_checks(record, "changed", verify=look):
            yield replace(reply, details=(*changes, *reply.details))

    def _overtaken(self, record: ServerRecord) -> Reply:
        """Return the reply to a version conflict: the last editor, and the current values."""
        when = format_ago(record.updated_at, self._clock())
        return Reply(
            f"{server_label(record.config)} has been changed since you opened it. Nothing was saved.",
            details=(("changed", f"{when} by {record.updated_by or 'somebody else'}"), *self._drafting.exactly(record)),
            failed=True,
            actions=(ReplyAction("Edit again", ("mcp", "edit", record.config.name)),),
        )

    def _steps(self, record: ServerRecord, fields: Mapping[str, str]) -> list[Step]:
        launch, before = launch_of(record), values_of(record)
        if launch is None:
            return steps_of_editing(fields, before)
        return steps_of_refilling(launch, fields, before, self._templates())

    def _starts_other(self, before: ServerRecord, after: ServerRecord) -> bool:
        """Return True if the command line from a launch template changes."""
        return launch_of(before) is not None and command_line(before.config) != command_line(after.config)

    def _consent(
        self,
        record: ServerRecord,
        fields: Mapping[str, str],
        after: ServerRecord,
        errors: Mapping[str, str] | None = None,
    ) -> Form:
        """Return the last step: the exact command line, and a field to confirm the name."""
        fields = {**fields, **seen(after)}
        return self._form(record, fields, errors or {}, len(self._steps(record, fields)), intro=starts(after.config))

    def _form(
        self, record: ServerRecord, fields: Mapping[str, str], errors: Mapping[str, str], step: int, intro: str = ""
    ) -> Form:
        return form(
            f"mcp edit:{record.id}:{record.version}",
            f"Edit {record.config.name}",
            self._steps(record, fields),
            step,
            values=fields,
            errors=errors,
            submit="Save and verify",
            intro=intro,
            instead=_USE_OTHER_COMMAND,
        )


class ServerAdd:
    """Verb of `/mcp add`."""

    def __init__(self, parts: CommandDependencies, drafting: ServerValidator, keeping: ServerService) -> None:
        self._rights = parts.rights
        self._links = SecretLinks(parts)
        self._templates = parts.templates
        self._drafting = drafting
        self._keeping = keeping

    @property
    def handler(self) -> VerbHandler:
        """Return the verb."""
        return VerbHandler(ADD, self._add, self._adding)

    async def _add(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments, member = request.arguments, request.member
        if not arguments:
            yield self._form({}, {}, 1, self._asking(request))
            return
        name = arguments.one("name")
        fields = fields_given(arguments)
        if name and not is_slug(name):
            fields.setdefault("title", name)
        everywhere = self._rights.everywhere(member) and not arguments.given("here")
        server_request = ServerRequest(fields, member, request.conversation, name, everywhere, argv_given(arguments))
        draft = await self._drafting.new(server_request)
        draft = draft if request.hidden_input else self._ready(draft)
        if (
            "secret" in draft.errors
            and draft.errors.keys() <= {"secret", "username"}
            and not arguments.given("secret")
            and request.hidden_input
        ):
            # All missing values can be typed here without echo.
            yield self._form(
                _as_filled(server_request, arguments.one("policy")), {}, _SIGNING_IN, SecretFieldMode.PROMPT
            )
            return
        if launch_of(draft.record) and not draft.errors and not self._drafting.operates(member):
            yield self._consent(
                _as_filled(server_request, arguments.one("policy")), draft.record, self._asking(request)
            )
            return
        kept = await self._keeping.add(draft, parse_policy(arguments.one("policy")), request.author)
        if isinstance(kept, InvalidServer):
            yield all_wrong(_NOTHING, kept.errors, "add")
            return
        async for reply in self._added(kept.record, request, verify=not arguments.given("no-verify")):
            yield reply

    async def _adding(self, filled: SubmissionContext) -> AsyncIterator[Reply | Form]:
        fields = {"transport": TRANSPORTS[0], "auth": KINDS[0], **filled.fields}
        fields = fields if fields["transport"] == TEMPLATE else without_template(fields)
        number, asking = step_number(filled), self._asking(filled)
        steps = steps_with_templates(fields, asking, self._templates())
        title, transport = fields.get("title", "").strip(), fields["transport"]
        hidden, values = _typed(fields)
        server_request = ServerRequest(
            {**split(fields), **({"username": KEEP} if values else {})},
            filled.member,
            filled.conversation,
            title,
            self._rights.everywhere(filled.member),
            hidden=hidden,
            values=values,
        )
        draft = await self._drafting.new(server_request)
        draft = draft if filled.hidden_input else self._ready(draft)
        errors = {**on_form(draft.errors), **filled.errors}
        confirming = is_confirming(steps)
        if confirming and number == len(steps):
            errors |= unconfirmed(fields, title)
            errors |= unseen(fields, draft.record) if transport == TEMPLATE else {}
        step = next_step(steps, number, errors)
        if step is not None and transport == TEMPLATE and confirming and step == len(steps):
            yield self._consent(fields, draft.record, asking, errors)
            return
        if step is not None:
            intro = ""
            if step > 1 and transport == TEMPLATE:
                intro = described(self._templates()) if step == _CHOOSING else ""
            elif step > 1 and transport == "stdio":
                intro = starts(draft.record.config)
            yield self._form(fields, errors, step, asking, intro=intro)
            return
        kept = await self._keeping.add(draft, parse_policy(fields.get("policy", "")), filled.author)
        if isinstance(kept, InvalidServer):
            yield self._form(fields, on_form(kept.errors), 1, asking)
            return
        async for reply in self._added(kept.record, filled, verify=True):
            yield reply

    def _asking(self, context: CommandContext | SubmissionContext) -> SecretFieldMode:
        """Return the way to ask for a secret on this platform."""
        if context.hidden_input:
            return SecretFieldMode.PROMPT
        return SecretFieldMode.LINK if self._links.on else SecretFieldMode.REFERENCE

    def _ready(self, draft: ParsedDefinition) -> ParsedDefinition:
        """Return the draft without errors about missing secrets that can be entered later."""
        draft = self._links.ready(draft)
        return entered_later(draft, self._templates()) if self._links.on else draft

    def _consent(
        self,
        fields: Mapping[str, str],
        record: ServerRecord,
        asking: SecretFieldMode,
        errors: Mapping[str, str] | None = None,
    ) -> Form:
        """Return the last step: the exact command line, and a field to confirm the name."""
        fields = {**fields, "transport": TEMPLATE, **seen(record)}
        last = len(steps_with_templates(fields, asking, self._templates()))
        return self._form(fields, errors or {}, last, asking, intro=starts(record.config))

    def _form(
        self,
        fields: Mapping[str, str],
        errors: Mapping[str, str],
        step: int,
        asking: SecretFieldMode,
        *,
        intro: str = "",
    ) -> Form:
        return form(
            "mcp add",
            "Add an MCP server",
            steps_with_templates(fields, asking, self._templates()),
            step,
            values=fields,
            errors=errors,
            submit="Add and verify",
            intro=intro,
            instead=_INSTEAD,
        )

    async def _added(
        self, record: ServerRecord, context: CommandContext | SubmissionContext, *, verify: bool
    ) -> AsyncIterator[Reply]:
        if record.missing:
            said = f"{server_label(record.config)} is added, and waits for {awaited(record)}."
            reply = await self._links.asked(record, context.author, context.conversation, said)
            yield replace(reply, details=(*self._drafting.exactly(record), *reply.details))
            return
        async for reply in self._drafting.reply_with_checks(record, "added", verify=verify):
            yield reply


def _typed(fields: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the typed secret, and the user name by its slot."""
    hidden = fields.get(SECRET_FIELD, "").strip()
    user, colon, password = hidden.partition(":")
    if fields.get("auth") != AuthenticationKind.BASIC or fields.get("username", "").strip() or not colon:
        return hidden, {}
    return password, {USER_SLOT: user}


def _as_filled(server_request: ServerRequest, policy: str) -> dict[str, str]:
    """Return the options as fields of the form's steps."""
    fields = {
        "title": server_request.name,
        "transport": TRANSPORTS[0],
        **server_request.fields,
        "where": server_request.fields.get("url", ""),
    }
    return {**fields, **({"policy": policy} if policy else {})}
