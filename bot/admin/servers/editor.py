"""`/mcp add` and `/mcp edit`: by options, or by a form in steps.

All errors are reported at once, by field. A new server is checked at once, unless it waits for its secret: then the
reply has a link to enter it. Of concurrent changes the first is saved, and the other is rejected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from bot.admin.command import (
    POLICY,
    SECRET_FIELD,
    SERVER,
    Answers,
    Arguments,
    CommandContext,
    CommandRejected,
    SubmissionContext,
    VerbContext,
    Verbs,
    form_of,
    option,
    verb,
)
from bot.admin.dependencies import CommandDependencies
from bot.admin.profiles.verbs import enable_action, is_off_here, off_for
from bot.admin.servers.catalog import ALLOW, FROM, CatalogCommands, ProgramConsent
from bot.admin.servers.checks import ServerChange
from bot.admin.servers.control import InvalidServer, ServerService, VersionConflict
from bot.admin.servers.definition import (
    KEEP,
    SIGN_IN_SLOTS,
    SLOT,
    TEMPLATE,
    ParsedDefinition,
    ServerRequest,
    command_line,
    derived_name,
    fields_of,
    parse_assignments,
    place_words,
    template_secrets,
    without_template,
)
from bot.admin.servers.directory import ServerDirectory
from bot.admin.servers.fields import KINDS, TRANSPORTS, is_slug
from bot.admin.servers.forms import (
    SecretFieldMode,
    Step,
    confirmation_errors,
    describe_templates,
    form,
    is_confirming,
    next_step,
    on_one_page,
    shown_command_line,
    steps_of_editing,
    steps_of_refilling,
    steps_with_templates,
    with_secret_field,
)
from bot.admin.servers.imports import IMPORTING, ServerImport
from bot.admin.servers.launch_consent import start_warning, version_warning
from bot.admin.servers.secrets import SecretLinks, enter_secret, missing_secrets_text, missing_slots, secret_form
from bot.admin.servers.validation import ServerValidator
from bot.admin.text_format import error_reply, format_change, parse_policy, sentences, server_label
from bot.domain.commands import Form, Parameter, ParameterKind, Reply, ReplyAction, Table
from bot.domain.conversations import ConversationKey
from bot.domain.server_settings import SETTINGS, TRUSTED
from bot.domain.servers import USER_SLOT, AuthenticationKind, ServerEnablement, ServerRecord
from bot.i18n import _, gettext_lazy

_REFERENCE = "env:NAME or file:/path"
_DEFINING = (
    option("transport", "how it is reached", metavar="|".join(TRANSPORTS)),
    option("url", "its address"),
    option("command", "the program that is the server", metavar="CMD"),
    option("arg", "one argument of the program", repeated=True),
    option("cwd", "the folder the program starts in", metavar="PATH"),
    option("title", "its display name"),
    option("description", "its purpose", metavar="TEXT"),
    option("auth", "how the bot authenticates", choices=KINDS),
    option("auth-header", "the header that carries the secret", metavar="HEADER"),
    option("username", "where the user name of basic is, kept like the password", metavar="SECRETREF"),
    option("client-id", "client id of the bot at the sign-in page, for oauth", metavar="ID", opaque=True),
    option("scope", "scopes to request, with blanks between, for oauth", metavar="SCOPES"),
    option("issuer", "what its authorization server calls itself, for oauth", metavar="URL"),
    option("secret", gettext_lazy("where the secret is: {reference}", reference=_REFERENCE), metavar="SECRETREF"),
    option(
        "header",
        gettext_lazy("one more header: plain text, or a secret from {reference}", reference=_REFERENCE),
        repeated=True,
        metavar="NAME=VALUE",
    ),
    option(
        "env",
        gettext_lazy("a variable for the program, from {reference}", reference=_REFERENCE),
        repeated=True,
        metavar="NAME=SECRETREF",
    ),
)
_SETTINGS = tuple(setting.parameter for setting in SETTINGS if setting is not TRUSTED)
_LINES = {
    "header": "headers",
    **{setting.parameter.name: setting.key for setting in SETTINGS if setting.kind.by_tool},
}
"""Repeatable options, each a line of a field."""
_COMMAND_LINE = ("command", "arg")
_PARTNERS = {"arg": "command", "only": "file", "input": "file"}
"""Options that mean nothing without another one."""
_SOURCE = Parameter(
    "slots",
    "its address, or a launch template and its slots, such as template=git repo=docs",
    repeated=True,
    metavar="URL|SLOT=VALUE",
)
_USE_OTHER_COMMAND = gettext_lazy("/mcp edit NAME --OPTION VALUE; /mcp help edit lists the options")
_INSTEAD = gettext_lazy("/mcp add NAME URL [--secret SECRETREF], or /mcp add NAME -- PROGRAM ARGUMENT...")
_NOTHING = gettext_lazy("Nothing was added.")
_CHOOSING = 2
"""Step of the form with the launch template."""


def option_fields(arguments: Arguments) -> dict[str, str]:
    """Return options as fields, without absent ones."""
    options = {parameter.name for parameter in (*_DEFINING, *_SETTINGS, TRUSTED.parameter)}.difference(_COMMAND_LINE)
    fields = {
        _LINES.get(name, name.replace("-", "_")): "\n".join(values)
        for name, values in arguments.values.items()
        if name in options
    }
    return {**fields, "command": ""} if arguments.has("command") else fields


def option_argv(arguments: Arguments) -> tuple[str, ...]:
    """Return the program and its arguments as separate words."""
    command = arguments.get("command")
    return (command, *arguments.get_all("arg")) if command else ()


def split_target(fields: Mapping[str, str]) -> dict[str, str]:
    """Replace the combined field by the field for an address or a command line."""
    target = "command" if fields.get("transport") == "stdio" else "url"
    other = "url" if target == "command" else "command"
    result = {name: value for name, value in fields.items() if name not in ("where", other, "cwd", "env", "headers")}
    own_fields = (
        ("cwd", "env") if target == "command" else ("env",) if fields.get("transport") == TEMPLATE else ("headers",)
    )
    result |= {name: fields[name] for name in own_fields if name in fields}
    return {**result, target: fields["where"]} if "where" in fields else result


def values_of(record: ServerRecord) -> dict[str, str]:
    """Return a record as fields of its form."""
    values = fields_of(record)
    return {**values, "where": values.get("command") or values.get("url", "")}


def step_number(context: SubmissionContext) -> int:
    """Return the step of a submitted form."""
    text = context.state[-1] if context.state else "1"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 1


def form_errors(errors: Mapping[str, str]) -> dict[str, str]:
    """Return errors by the fields of a form."""
    form_fields = {"url": "where", "command": "where", "name": "title"}
    by_field: dict[str, str] = {}
    for name, error in errors.items():
        by_field.setdefault(form_fields.get(name, name), error)
    return by_field


def errors_reply(text: str, errors: Mapping[str, str], verb: str) -> Reply:
    """Return a reply with all errors, by option."""
    names = {"name": "name", TEMPLATE: f"{TEMPLATE}=", **{field: f"--{option}" for option, field in _LINES.items()}}
    facts = []
    for name, error in errors.items():
        option_name = f"{name.removeprefix(SLOT)}=" if name.startswith(SLOT) else f"--{name.replace('_', '-')}"
        facts.append((names.get(name, option_name), str(error)))
    return replace(
        error_reply(sentences(text, _("`/mcp help {verb}` explains the options.", verb=verb))), details=tuple(facts)
    )


class ServerEdit(Verbs):
    """Verb of `/mcp edit`."""

    def __init__(
        self,
        dependencies: CommandDependencies,
        directory: ServerDirectory,
        validator: ServerValidator,
        service: ServerService,
    ) -> None:
        self._clock = dependencies.clock
        self._templates = dependencies.operator.templates
        self._links = SecretLinks(dependencies)
        self._directory = directory
        self._validator = validator
        self._service = service
        self._consent_to_program = ProgramConsent(dependencies)

    @verb(
        "edit",
        "change a server; its name alone shows the fields",
        (
            SERVER,
            _SOURCE,
            *_DEFINING,
            option("rename", "another name for it, a slug", metavar="NEW"),
            TRUSTED.parameter,
            Parameter("no-verify", "do not look whether it can be used", ParameterKind.FLAG),
            *_SETTINGS,
            ALLOW,
        ),
        aliases=("update", "change", "set"),
        command_line=_COMMAND_LINE,
    )
    async def _edit(self, request: CommandContext) -> Reply | Form | Answers:
        arguments = request.arguments
        _server, record = await self._directory.get_editable(arguments.get("server"), request)
        self._validator.may_define(record.config, request.member)
        if set(arguments.values) <= {"server"}:
            return self._form(record, request, values_of(record), {}, 1)
        _name, fields = _typed_fields(arguments)
        if arguments.has("rename"):
            fields["name"] = arguments.get("rename")
        server_request = ServerRequest(fields, request.member, request.conversation, argv=option_argv(arguments))
        draft = await self._validator.draft_change(record, server_request)
        if not request.hidden_input:
            self._links.defer_missing(draft)
        if question := await self._consent_to_program.question(draft, request, "edit"):
            return question
        is_new = command_line(record.config) != command_line(draft.record.config)
        by_admin = not self._validator.is_operator(request.member)
        if record.config.launch is not None and is_new and by_admin and not draft.errors:
            fields = {**values_of(record), **fields, **shown_command_line(draft.record)}
            last = len(self._steps(record, request, fields))
            warning = start_warning(draft.record.config, draft.record.secrets)
            return self._form(record, request, fields, {}, last, intro=warning)
        return self._save(record, draft, request, verify=not arguments.has("no-verify"))

    @form_of("edit")
    async def _submit(self, context: SubmissionContext) -> Reply | Form | Answers:
        server_id, version, *_rest = (*context.state, "", "")
        server = await self._directory.find(server_id, context.conversation)
        record = self._directory.record_of(server, context.member)
        self._validator.may_define(record.config, context.member)
        if str(record.version) != version:
            return self._version_conflict(record, context.fields)
        before = values_of(record)
        fields = {**before, **context.fields}
        steps = self._steps(record, context, fields)
        hidden, users = _typed_secret(fields)
        server_request = ServerRequest(
            split_target(fields), context.member, context.conversation, hidden=hidden, values=users
        )
        draft = await self._validator.draft_change(record, server_request)
        if not context.hidden_input:
            self._links.defer_missing(draft)
        step, errors = _next_step(steps, fields, record.config.name, draft, context)
        if step == len(steps) and is_confirming(steps):
            if record.config.launch is not None:
                fields |= shown_command_line(draft.record)
            warning = start_warning(draft.record.config, draft.record.secrets)
            return self._form(record, context, fields, errors, step, intro=warning)
        if step is not None:
            return self._form(record, context, fields, errors, step)
        return self._save(record, draft, context, verify=True)

    async def _save(
        self, before: ServerRecord, draft: ParsedDefinition, context: VerbContext, *, verify: bool
    ) -> AsyncIterator[Reply | Form]:
        outcome = await self._service.change(before, draft, context.author)
        match outcome:
            case InvalidServer(errors):
                yield errors_reply(_("Nothing was changed."), errors, "edit")
                return
            case VersionConflict(record):
                yield self._version_conflict(record)
                return
        if not outcome.changes:
            yield Reply(_("{server} is as it was: nothing is different.", server=server_label(before.config)))
            return
        record = outcome.record
        changes = tuple(
            (gettext_lazy("changed {field}", field=name), str(text)) for name, text in outcome.changes.items()
        )
        if record.missing - before.missing and context.hidden_input:
            slot = missing_slots(record)[0]
            cleared = outcome.changes.get(f"secret {slot}", "")
            intro = sentences(
                _("{server} is changed.", server=server_label(record.config)),
                _("Secret {slot} {change}.", slot=slot, change=cleared),
            )
            yield secret_form(record, slot, intro=intro)
            return
        if record.missing - before.missing:
            text = _(
                "{server} is changed, and waits for {secrets}.",
                server=server_label(record.config),
                secrets=missing_secrets_text(record),
            )
            reply = await self._links.ask_reply(record, context.author, context.conversation, text)
            yield replace(reply, details=(*changes, *reply.details))
            return
        checks_follow = verify and record.enablement is ServerEnablement.ON
        async for reply in self._validator.reply_with_checks(record, ServerChange.CHANGED, verify=checks_follow):
            yield replace(reply, details=(*changes, *reply.details))

    def _version_conflict(self, record: ServerRecord, typed: Mapping[str, str] | None = None) -> Reply:
        """Return the reply to a version conflict: the last editor, the current values, and those typed in a form."""
        change = format_change(record.updated_at, record.updated_by, self._clock())
        fields = [field for step in steps_of_editing({}, {"transport": "", "command": ""}) for field in step]
        now = values_of(record)
        differences = tuple(
            (str(field.label), (typed or {})[field.name], now.get(field.name, field.value))
            for field in fields
            if field.name in (typed or {}) and (typed or {})[field.name] != now.get(field.name, field.value)
        )
        return Reply(
            _("{server} has been changed since you opened it. Nothing was saved.", server=server_label(record.config)),
            Table(("field", "yours", "now"), differences) if differences else None,
            details=((gettext_lazy("changed"), change), *self._validator.exact_definition(record)),
            failed=True,
            actions=(ReplyAction(_("Edit again"), ("mcp", "edit", record.config.name)),),
        )

    def _steps(self, record: ServerRecord, context: VerbContext, fields: Mapping[str, str]) -> list[Step]:
        launch, before = record.config.launch, values_of(record)
        steps = (
            steps_of_editing(fields, before)
            if launch is None
            else steps_of_refilling(launch, fields, before, self._templates())
        )
        if not context.on_page:
            return steps
        return on_one_page(with_secret_field(steps) if context.hidden_input else steps)

    def _form(
        self,
        record: ServerRecord,
        context: VerbContext,
        fields: Mapping[str, str],
        errors: Mapping[str, str],
        step: int,
        *,
        intro: str = "",
    ) -> Form:
        return form(
            f"mcp edit:{record.id}:{record.version}",
            _("Edit {server}", server=record.config.name),
            self._steps(record, context, fields),
            step,
            values=fields,
            errors=errors,
            submit=_("Save and verify"),
            intro=intro,
            instead=_USE_OTHER_COMMAND,
        )


class ServerAdd(Verbs):
    """Verb of `/mcp add`."""

    def __init__(
        self,
        dependencies: CommandDependencies,
        validator: ServerValidator,
        service: ServerService,
        catalog: CatalogCommands,
        importing: ServerImport,
    ) -> None:
        self._catalog = catalog
        self._rights = dependencies.rights
        self._administration = dependencies.administration
        self._links = SecretLinks(dependencies)
        self._templates = dependencies.operator.templates
        self._validator = validator
        self._service = service
        self._consent_to_program = ProgramConsent(dependencies)
        self._import = importing

    @verb(
        "add",
        "a new server; alone it asks for everything",
        (
            Parameter("name", "its name; one that is no slug becomes its title"),
            _SOURCE,
            *_DEFINING,
            TRUSTED.parameter,
            replace(POLICY, shape=ParameterKind.OPTION, required=False),
            Parameter("no-verify", "do not look whether it can be used", ParameterKind.FLAG),
            *_SETTINGS,
            Parameter("here", "for this workspace alone, where the operator adds it", ParameterKind.FLAG),
            ALLOW,
            FROM,
            *IMPORTING,
        ),
        aliases=("new", "create", "register"),
        command_line=_COMMAND_LINE,
    )
    async def _add(self, request: CommandContext) -> Reply | Form | Answers:
        arguments, member = request.arguments, request.member
        if not arguments:
            return self._form({}, {}, 1, self._secret_mode(request))
        if arguments.has("file"):
            return await self._import.run(request)
        server_request, draft, published = await self._requested(request)
        if not request.hidden_input:
            self._defer_missing(draft)
        if question := await self._consent_to_program.question(draft, request, "add", always=published):
            return question
        if (
            "secret" in draft.errors
            and draft.errors.keys() <= {"secret", "username"}
            and not arguments.has("secret")
            and request.hidden_input
        ):
            # All missing values can be typed here without echo.
            mode, values = self._secret_mode(request), _form_values(server_request, arguments.get("policy"))
            return self._form(values, {}, len(steps_with_templates(values, mode, self._templates())), mode)
        if draft.record.config.launch and not draft.errors and not self._validator.is_operator(member):
            return self._consent(
                _form_values(server_request, arguments.get("policy")), draft.record, self._secret_mode(request), {}
            )
        outcome = await self._service.add(draft, parse_policy(arguments.get("policy")), request.author)
        return (
            errors_reply(_NOTHING, outcome.errors, "add")
            if isinstance(outcome, InvalidServer)
            else self._saved_replies(outcome.record, request, verify=not arguments.has("no-verify"))
        )

    async def _requested(self, request: CommandContext) -> tuple[ServerRequest, ParsedDefinition, bool]:
        """Return what a command line asks for, its draft, and whether a registry says what it starts."""
        everywhere = self._rights.administers_everywhere(request.member) and not request.arguments.has("here")
        server_request = _requested_server(request, everywhere=everywhere)
        known = await self._catalog.request(request, server_request.fields, everywhere=everywhere)
        server_request, published = known or (server_request, False)
        return server_request, await self._validator.draft_new(server_request), published

    @form_of("add")
    async def _submit(self, context: SubmissionContext) -> Reply | Form | Answers:
        fields = {"transport": TRANSPORTS[0], "auth": KINDS[0], **context.fields}
        fields = fields if fields["transport"] == TEMPLATE else without_template(fields)
        mode = self._secret_mode(context)
        steps = steps_with_templates(fields, mode, self._templates())
        title, transport = fields.get("title", "").strip(), fields["transport"]
        hidden, values = _typed_secret(fields)
        server_request = ServerRequest(
            {**split_target(fields), **({"username": KEEP} if values else {})},
            context.member,
            context.conversation,
            title,
            self._rights.administers_everywhere(context.member),
            hidden=hidden,
            values=values,
        )
        draft = await self._validator.draft_new(server_request)
        if not context.hidden_input:
            self._defer_missing(draft)
        step, errors = _next_step(steps, fields, title, draft, context)
        if transport == TEMPLATE and step == len(steps) and is_confirming(steps):
            return self._consent(fields, draft.record, mode, errors)
        if step is not None:
            intro = ""
            if transport == TEMPLATE and step == _CHOOSING:
                intro = describe_templates(self._templates())
            elif transport == "stdio" and step > 1:
                intro = start_warning(draft.record.config, draft.record.secrets)
            return self._form(fields, errors, step, mode, intro=intro)
        outcome = await self._service.add(draft, parse_policy(fields.get("policy", "")), context.author)
        if isinstance(outcome, InvalidServer):
            return self._form(fields, form_errors(outcome.errors), 1, mode)
        return self._saved_replies(outcome.record, context, verify=True)

    def _secret_mode(self, context: VerbContext) -> SecretFieldMode:
        if context.hidden_input:
            return SecretFieldMode.PAGE if context.on_page else SecretFieldMode.PROMPT
        return SecretFieldMode.LINK if self._links.enabled else SecretFieldMode.REFERENCE

    def _defer_missing(self, draft: ParsedDefinition) -> None:
        """Take errors about missing secrets that can be entered later out of the draft."""
        self._links.defer_missing(draft, {**SIGN_IN_SLOTS, **template_secrets(draft.record, self._templates())})

    def _consent(
        self, fields: Mapping[str, str], record: ServerRecord, mode: SecretFieldMode, errors: Mapping[str, str]
    ) -> Form:
        fields = {**fields, "transport": TEMPLATE, **shown_command_line(record)}
        last = len(steps_with_templates(fields, mode, self._templates()))
        return self._form(fields, errors, last, mode, intro=start_warning(record.config, record.secrets))

    def _form(
        self, fields: Mapping[str, str], errors: Mapping[str, str], step: int, mode: SecretFieldMode, *, intro: str = ""
    ) -> Form:
        return form(
            "mcp add",
            _("Add an MCP server"),
            steps_with_templates(fields, mode, self._templates()),
            step,
            values=fields,
            errors=errors,
            submit=_("Add and verify"),
            intro=intro,
            instead=_INSTEAD,
        )

    async def _saved_replies(self, record: ServerRecord, context: VerbContext, *, verify: bool) -> AsyncIterator[Reply]:
        if record.missing:
            text = _(
                "{server} is added, and waits for {secrets}.",
                server=server_label(record.config),
                secrets=missing_secrets_text(record),
            )
            if context.hidden_input:
                actions = tuple(enter_secret(record, slot) for slot in missing_slots(record))
                yield Reply(text, details=self._validator.exact_definition(record), actions=actions)
                return
            reply = await self._links.ask_reply(record, context.author, context.conversation, text)
            yield replace(reply, details=(*self._validator.exact_definition(record), *reply.details))
            return
        async for reply in self._validator.reply_with_checks(record, ServerChange.ADDED, verify=verify):
            noted = self._with_off_note(reply, record, context.conversation)
            yield replace(noted, details=(*noted.details, *version_warning(record.config)))

    def _with_off_note(self, reply: Reply, record: ServerRecord, conversation: ConversationKey) -> Reply:
        """Return the reply with the profiles of this place that may not use the new server, and how to enable it."""
        administration = self._administration
        if not is_off_here(administration, record.id, conversation):
            return reply
        names = ", ".join(off_for(administration, record.id, conversation))
        return replace(
            reply,
            details=(*reply.details, (gettext_lazy("off for"), names)),
            actions=(enable_action(record.config.name), *reply.actions),
        )


def _next_step(
    steps: Sequence[Step], fields: Mapping[str, str], name: str, draft: ParsedDefinition, context: SubmissionContext
) -> tuple[int | None, Mapping[str, str]]:
    """Return the next step of a submitted form, None at the end, and all errors by field."""
    errors = {**form_errors(draft.errors), **context.errors}
    if not any(field.name == "secret" for step in steps for field in step):
        # On a page it is typed, whatever part of it is wrong.
        for part in ("username", "secret"):
            if errors.pop(part, ""):
                errors[SECRET_FIELD] = _("Something is needed here.")
    number = step_number(context)
    if number == len(steps) and is_confirming(steps):
        errors |= confirmation_errors(fields, name, draft.record)
    return next_step(steps, number, errors), errors


def _requested_server(request: CommandContext, *, everywhere: bool) -> ServerRequest:
    """Return the server that the words and options of `/mcp add` ask for. Raises CommandRejected."""
    name, fields = _typed_fields(request.arguments)
    argv = option_argv(request.arguments)
    name = name or fields.get("title", "") or derived_name(fields.get("url", ""), argv)
    if name and not is_slug(name):
        fields.setdefault("title", name)
    return ServerRequest(fields, request.member, request.conversation, name, everywhere, argv)


def _typed_fields(arguments: Arguments) -> tuple[str, dict[str, str]]:
    """Return the name, and options and words as fields. Raises CommandRejected."""
    for name, needed in _PARTNERS.items():
        if arguments.has(name) and not arguments.has(needed):
            raise CommandRejected(_("`--{option}` goes with `--{other}`.", option=name, other=needed))
    fields = option_fields(arguments)
    name, url, others = place_words(arguments.get("name"), arguments.get_all("slots"))
    if url and "url" in fields:
        raise CommandRejected(_("Its address is given twice."))
    return name, {**fields, **({"url": url} if url else {}), **parse_assignments(others)}


def _typed_secret(fields: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the typed secret, and the user name by its slot."""
    hidden = fields.get(SECRET_FIELD, "").strip()
    user, colon, password = hidden.partition(":")
    if fields.get("auth") != AuthenticationKind.BASIC or fields.get("username", "").strip() or not colon:
        return hidden, {}
    return password, {USER_SLOT: user}


def _form_values(server_request: ServerRequest, policy: str) -> dict[str, str]:
    usual = {"title": server_request.name, "transport": TRANSPORTS[0]}
    fields = {**usual, **server_request.fields, "where": server_request.fields.get("url", "")}
    return {**fields, **({"policy": policy} if policy else {})}
