"""`/mcp catalog`, `/mcp add NAME` for servers that are known by name, and the operator's consent to a new program.

Only the operator's own terminal can give consent: there it is asked, and `--allow` answers in advance. In a chat,
admins start programs by launch templates alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.admin.command import CommandContext, CommandRejected, Verbs, option, verb
from bot.admin.dependencies import CommandDependencies, ServerCatalog
from bot.admin.servers.definition import SLOT, TEMPLATE, ParsedDefinition, ServerRequest
from bot.admin.servers.fields import slug_of
from bot.admin.servers.launch_consent import checked_question, consent_digest, consent_facts
from bot.admin.text_format import code, known_facts, page_of, page_rows
from bot.domain.catalog import (
    CatalogInput,
    CatalogServer,
    fill_text,
    inputs_of,
    short_name,
)
from bot.domain.characters import spell_hidden
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction, Table
from bot.domain.secrets import is_plain_header, is_plain_variable
from bot.domain.servers import AUTH_SECRET, AuthenticationKind, StdioTransport
from bot.i18n import _, gettext_lazy, ngettext

FROM = option("from", "a server of /mcp catalog, where its name is to be another", metavar="NAME")
ALLOW = Parameter("allow", "allow its program on this machine, without a question", ParameterKind.FLAG)
_SOURCES = ("url", "command", "transport")
_BEARER, _AUTHORIZATION = "Bearer ", "authorization"


class CatalogCommands(Verbs):
    """The verb `catalog`, and requests for servers by name."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._catalog: ServerCatalog = dependencies.operator.catalog

    async def request(
        self, context: CommandContext, options: Mapping[str, str], *, everywhere: bool
    ) -> tuple[ServerRequest, bool] | None:
        """Return the request for a server that is named and known, and True if a registry has published it; None if the
        words and options say something else. Raises CommandRejected, ServerTrouble.
        """
        arguments = context.arguments
        wanted = arguments.get("from") or arguments.get("name")
        values = {name: text for name, text in options.items() if name.startswith(SLOT)}
        fields = {name: text for name, text in options.items() if name not in values}
        if not arguments.has("from") and not arguments.has("title"):
            fields.pop("title", "")  # The name of an entry, which is no slug.
        if not wanted or TEMPLATE in options or any(name in options for name in _SOURCES):
            return None
        entry = await self._catalog.find(wanted)
        if entry is None:
            if arguments.has("from") or "/" in wanted:
                raise CommandRejected(
                    _(
                        "There is no server of that name in the catalog: `/mcp catalog WORDS` searches it. "
                        "An address begins with https://."
                    )
                )
            return None
        given = {name.removeprefix(SLOT): text for name, text in values.items()}
        values, errors = _values(entry, given)
        return _Filling(entry, values).request(fields, errors, context, everywhere=everywhere), not entry.bundled

    @verb(
        "catalog",
        "servers that can be added by name",
        (Parameter("words", "what it is called or does", repeated=True),),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        words = " ".join(request.arguments.get_all("words"))
        result = await self._catalog.search(words)
        problem = ((gettext_lazy("registry"), result.problem),) if result.problem else ()
        exact = next((server for server in result.servers if server.name == words), None)
        if exact is not None:
            return _describe(exact)
        if not result.servers:
            text = _("No server of the catalog has these words. `/mcp add NAME URL` adds any other.")
            return Reply(text, details=problem, failed=True)
        count, number = len(result.servers), request.arguments.page
        rows = tuple(
            (server.name, server.description or server.title, server.needs)
            for server in page_rows(result.servers, number)
        )
        return Reply(
            ngettext(
                "{n} server can be added by name: `/mcp add NAME`.",
                "{n} servers can be added by name: `/mcp add NAME`.",
                count,
            ),
            Table(("name", "what", "needs"), rows, tuple(("mcp", "catalog", row[0]) for row in rows)),
            problem,
            page=page_of(number, count, ("mcp", "catalog", *request.arguments.get_all("words"))),
        )


def _describe(server: CatalogServer) -> Reply:
    needs = [(f"{item.name}=", _input_text(item)) for item in server.inputs]
    place = gettext_lazy("address") if server.url else gettext_lazy("command")
    details = known_facts(
        (gettext_lazy("server"), server.title or server.name),
        (gettext_lazy("what"), server.description),
        (place, server.place),
        *needs,
        (gettext_lazy("add it"), " ".join(filter(None, (f"/mcp add {server.name}", server.usage)))),
    )
    return Reply(
        _("This server comes with this program.")
        if server.bundled
        else _("This server is one of the registry: whoever published it wrote this."),
        details=details,
    )


def _input_text(item: CatalogInput) -> str:
    notes = [item.description, _("needed") if item.required else _("optional")]
    notes += [_("a secret: env:NAME or file:/path, or entered later")] if item.secret else []
    notes += [_("one of {choices}", choices=", ".join(item.choices))] if item.choices else []
    notes += [_("{default} by default", default=item.default)] if item.default and not item.secret else []
    return "; ".join(filter(None, notes))


def _values(entry: CatalogServer, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values of the inputs, and errors by field."""
    known = {item.name: item for item in entry.inputs}
    inputs = ", ".join(f"{name}=" for name in known) or _("nothing")
    takes = _("{server} takes {inputs}.", server=entry.name, inputs=inputs)
    errors = {f"{SLOT}{name}": takes for name in given.keys() - known.keys()}
    open_text = [entry.url, *(word for group in entry.command_line for word in group)]
    values: dict[str, str] = {}
    for item in entry.inputs:
        # A secret has no default: whoever published the entry could name one of this machine.
        text = given.get(item.name, "") or ("" if item.secret else item.default)
        if item.secret and any(item.name in inputs_of(text) for text in open_text):
            errors[f"{SLOT}{item.name}"] = _(
                "This secret would be in the address or the command line, which all can read."
            )
        elif text and item.choices and text not in item.choices:
            errors[f"{SLOT}{item.name}"] = _("One of {choices}.", choices=", ".join(item.choices))
        elif text:
            values[item.name] = text
        elif item.required and not item.secret:
            errors[f"{SLOT}{item.name}"] = _("It is missing: {input}.", input=item.description or item.name)
    return values, errors


class _Filling:
    """Fields of an entry's definition, and the slots of secrets that are to be entered later."""

    def __init__(self, entry: CatalogServer, values: Mapping[str, str]) -> None:
        self._entry = entry
        self._values = values
        self._fields: dict[str, str] = {}
        self._missing: list[str] = []

    def request(
        self, options: Mapping[str, str], errors: Mapping[str, str], context: CommandContext, *, everywhere: bool
    ) -> ServerRequest:
        """Return the request. The user's options win; lines of headers and variables are added."""
        entry, arguments = self._entry, context.arguments
        for name, text in entry.headers:
            self._fill_header(name, text)
        for name, text in entry.variables:
            self._fill_named("env", name, text)
        argv = tuple(
            fill_text(word, self._values)
            for group in entry.command_line
            if all(name in self._values for word in group for name in inputs_of(word))
            for word in group
        )
        if entry.url:
            self._fields |= {"url": fill_text(entry.url, self._values), "transport": entry.kind.value}
            self._fields |= {"auth": entry.auth.value} if entry.auth is not AuthenticationKind.NONE else {}
        own_name = slug_of(short_name(entry.name))
        name = (arguments.has("from") and arguments.get("name")) or own_name
        texts = {"title": entry.title if name == own_name else "", "description": entry.description}
        self._fields |= {key: text for key, text in texts.items() if text}
        if "secret" in options and AUTH_SECRET in self._missing:
            self._missing.remove(AUTH_SECRET)
        lines = {
            key: f"{self._fields[key]}\n{options[key]}"
            for key in ("headers", "env")
            if self._fields.get(key) and options.get(key)
        }
        return ServerRequest(
            {**self._fields, **options, **lines},
            context.member,
            context.conversation,
            name,
            everywhere,
            argv,
            missing=self._missing,
            errors=errors,
        )

    def _fill_header(self, name: str, text: str) -> None:
        secret = self._secret_input(text.removeprefix(_BEARER))
        if name.lower() != _AUTHORIZATION or secret is None:
            self._fill_named("headers", name, text)
            return
        auth = "api_key" if text.startswith(_BEARER) else "header"
        if secret.name in self._values:
            self._fields |= {"auth": auth, "secret": self._values[secret.name]}
        elif secret.required:
            self._fields["auth"] = auth
            self._missing.append(AUTH_SECRET)
        else:
            self._fields.pop("auth", None)

    def _fill_named(self, key: str, name: str, text: str) -> None:
        """Add a header or variable as a line: a plain value, or the reference of a secret."""
        needed = [item for item in self._entry.inputs if item.name in inputs_of(text)]
        slot = f"{'header' if key == 'headers' else 'env'}:{name}"
        value = fill_text(text, self._values).strip()
        plain = is_plain_header if key == "headers" else is_plain_variable
        if unfilled := [item for item in needed if item.name not in self._values]:
            self._missing += [slot] if any(item.required for item in unfilled) else []
        elif self._secret_input(text) is not None or plain(name, value):
            self._fields[key] = "\n".join(filter(None, (self._fields.get(key, ""), f"{name}={value}")))
        else:
            self._missing.append(slot)

    def _secret_input(self, text: str) -> CatalogInput | None:
        return next((item for item in self._entry.inputs if item.secret and text == f"{{{item.name}}}"), None)


class ProgramConsent:
    """Asks for consent, and records it."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._administration = dependencies.administration
        self._rights = dependencies.rights

    async def question(
        self, draft: ParsedDefinition, request: CommandContext, verb: str, *, always: bool = False
    ) -> Reply | None:
        """Return the question about the draft's program, None if there is none to ask; `always` asks about an allowed
        one, too. With `--allow`, the program is allowed, and its error leaves the draft. Raises CommandRejected,
        SettingsError.
        """
        at_terminal = request.at_terminal and self._rights.operates(request.member)
        if request.arguments.has("allow") and not at_terminal:
            raise CommandRejected(_("Only the operator may allow a program, at a terminal of the bot's machine."))
        program = self._program_to_allow(draft, always=always)
        if not program or not at_terminal:
            return None
        if not request.arguments.has("allow"):
            same = ("--digest", consent_digest(draft.record.config)) if always else ()
            return self._ask(program, draft, ("mcp", verb, "--allow", *same, *request.words))
        shown = consent_digest(draft.record.config)
        if always and request.arguments.get("digest", shown) != shown:
            raise CommandRejected(
                _("The registry has another command now than the one that was shown. Nothing was added.")
            )
        if not self._administration.allows_program(program):
            await self._administration.allow_program(program)
            del draft.errors["command"]
        return None

    def _program_to_allow(self, draft: ParsedDefinition, *, always: bool) -> str:
        """Return the program if nothing else is wrong with the draft; empty if it needs no consent."""
        match draft.record.config.transport:
            case StdioTransport(command=program, launch=None) if program and draft.errors.keys() <= {"command"}:
                is_allowed = self._administration.allows_program(program)
                return program if always or ("command" in draft.errors and not is_allowed) else ""
            case _:
                return ""

    def _ask(self, program: str, draft: ParsedDefinition, words: tuple[str, ...]) -> Reply:
        allowed = self._administration.allows_program(program)
        facts = consent_facts(draft.record.config, draft.record.secrets, draft.secrets)
        values = {"program": code(program, _("a program"))}
        program = spell_hidden(program)
        fix = _("run this in a terminal, which asks; add --allow; or name it in MCP_ALLOWED_COMMANDS")
        label = _("Allow {program} and go on", program=program)
        question = checked_question(
            _("Start this on this machine with {program}?", program=program)
            if allowed
            else _("Allow {program} on this machine?", program=program)
        )
        return Reply(
            _("This server would run {program} on this machine, as its publisher says. Nothing was saved.", **values)
            if allowed
            else _(
                "This server would run {program} on this machine, which is not allowed yet. Nothing was saved.",
                **values,
            ),
            details=(*facts, (gettext_lazy("fix"), fix)),
            failed=True,
            actions=(ReplyAction(label, words, ActionStyle.PRIMARY, question=question),),
        )
