"""`/mcp add --file PATH`: servers from a file of another program (Claude Desktop, Claude Code, VS Code, Cursor and the
like), with a preview.

Only the operator may name a file of the bot's machine, at a terminal. Nothing is saved before the confirmation, which
adds exactly what was shown: it names the file's digest. Secrets in the text end in `values` and
`hidden`, never in a note.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import itertools
import json
import re
import tomllib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.admin.command import (
    SECRET_FIELD,
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
from bot.admin.servers.checks import ServerChange
from bot.admin.servers.control import InvalidServer, ServerService
from bot.admin.servers.definition import (
    KEEP,
    ParsedDefinition,
    ServerRequest,
    secret_error,
    weak_secret_warning,
)
from bot.admin.servers.fields import is_slug, slug_of
from bot.admin.servers.launch_consent import Facts, checked_question, consent_facts
from bot.admin.servers.secrets import enter_secret, missing_slots
from bot.admin.servers.token_detection import looks_like_token
from bot.admin.servers.validation import ServerValidator
from bot.admin.text_format import parse_policy, sentences
from bot.domain.approvals import ApprovalPolicy
from bot.domain.catalog import bare_package, fetched_package
from bot.domain.characters import spell_hidden
from bot.domain.commands import (
    ActionStyle,
    Field,
    FieldKind,
    Form,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    Table,
)
from bot.domain.conversations import Author
from bot.domain.secrets import is_plain_header, is_plain_variable
from bot.domain.server_files import NOT_TAKEN, ServerEntry, find_sections, plain_json, unknown_keys_text
from bot.domain.server_settings import SETTINGS, field_text
from bot.domain.servers import USER_SLOT, ServerEnablement, ServerRecord, StdioTransport
from bot.domain.toml_errors import toml_problem
from bot.i18n import _, gettext_lazy, make_lazy, ngettext

MOST_SERVERS = 100
_SETTINGS = frozenset(setting.key for setting in SETTINGS if setting.imported)
"""Settings of servers, as in the operator's file."""
_KNOWN = frozenset(
    (
        "command", "args", "env", "cwd", "url", "headers", "transport", "disabled", "description", "title",
    )
)  # fmt: skip
_NOT_TAKEN = {**NOT_TAKEN, "trusted": NOT_TAKEN["trust"]}
_TOML = re.compile(r"\s*(?:#|\[\[?[A-Za-z]|[\w.\"-]+\s*=)")
_VARIABLE = re.compile(r"\$\{(?:(env|input|config|command):)?([A-Za-z_/][\w./-]*)(?::-?([^}]*))?\}")
_PLACEHOLDER = re.compile(r"(?i)<.*>|your[-_ ].*|.*[-_ ]here|x{3,}|\*{3,}|\.{3}|change[-_]?me|todo|")
_BEARER = re.compile(r"(?i)bearer\s+(.+)")
_BASIC = re.compile(r"(?i)basic\s+([A-Za-z0-9+/=]+)")
IMPORTING = (
    option("file", "a file of another program, whose servers are added", metavar="PATH"),
    option("only", "a server of that file, and no others", repeated=True, metavar="NAME"),
    option("input", "the value of an input of that file", repeated=True, metavar="ID=VALUE"),
    Parameter("yes", "add them without a question", ParameterKind.FLAG),
    option("digest", "of what was shown"),
)
_PASTED_HINT = gettext_lazy('such as {"mcpServers": {"jira": {"url": "https://jira.example/mcp"}}}')
_FORM = "mcp import"
_MOST_PASTED = 16
"""Pasted texts that are kept until they are added: in memory, because they may hold secrets."""
_LARGEST = 1024 * 1024
_DIGEST_LENGTH = 12
_LONGEST_PREVIEW = 30_000
"""Characters about all servers of a file, some ten screens."""


@dataclass(frozen=True, slots=True)
class _Input:
    """Input that VS Code asks for."""

    password: bool
    description: str
    default: str


class _Unusable(Exception):
    """Reason why a server cannot be taken over, as a sentence: a literal with these `values`, or another text."""

    def __init__(self, reason: str, /, **values: object) -> None:
        super().__init__(make_lazy(reason, **values))


def parse_import_file(text: str, answers: Mapping[str, str]) -> list[ImportedServer]:
    """Return the servers of a file. `answers` are values of inputs by id. Raises CommandRejected."""
    document = _parse(text)
    sections = list(find_sections(document))
    entries = [(name, entry) for _at, section in sections for name, entry in section.items()]
    if not sections:
        missing = _("There are no servers in this file. An object of them is expected under `mcpServers` or `servers`.")
        raise CommandRejected(sentences(missing, _keys_text(unknown_keys_text(document, ()))))
    if len(entries) > MOST_SERVERS:
        raise CommandRejected(_("There are more than {count} servers in this file.", count=MOST_SERVERS))
    inputs = dict(_inputs(document))
    servers: list[ImportedServer] = []
    for name, entry in entries:
        server = ImportedServer(name, inputs, answers)
        try:
            server.read(entry)
        except _Unusable as reason:
            server.problem = str(reason)
        if any(server.slug == other.slug for other in servers):
            server.problem = server.problem or _("Another server of this file has the same name.")
        servers.append(server)
    return servers


def _parse(text: str) -> Mapping[str, Any]:
    """Parse JSON with comments and trailing commas, as editors write it, or TOML."""
    if _TOML.match(text):
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problem = toml_problem(text, error)
            raise CommandRejected(_("The file is neither JSON nor valid TOML: {error}.", error=problem)) from None
    try:
        document = json.loads(plain_json(text))
    except json.JSONDecodeError as error:
        at = {"line": error.lineno, "column": error.colno}
        reason = _("The file is not valid JSON: line {line}, column {column}. YAML is not read.", **at)
        raise CommandRejected(reason) from None
    except RecursionError:
        raise CommandRejected(_("The file is nested too deeply.")) from None
    if not isinstance(document, dict):
        raise CommandRejected(_("The file does not hold a JSON object."))
    return document


def _keys_text(unknown: str) -> str:
    return _("Its keys are {unknown}", unknown=unknown) if unknown else ""


def _inputs(document: Mapping[str, Any]) -> Iterator[tuple[str, _Input]]:
    nested = document.get("mcp")
    listed = document.get("inputs") or (nested.get("inputs") if isinstance(nested, dict) else None)
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            texts = (entry.get(key) for key in ("description", "default"))
            description, default = (text if isinstance(text, str) else "" for text in texts)
            yield entry["id"], _Input(entry.get("password") is True, description, default)


class ImportedServer:
    """One server of the file as fields of a definition. `values` are secrets by slot, `hidden` is the one to sign in
    with, `missing` are slots of secrets that are still to be entered. `seen` returns a key as the file spells it. With
    a `problem` it cannot be added; else it has a `draft`, and `facts` are what is agreed to.
    """

    def __init__(self, name: str, inputs: Mapping[str, _Input], answers: Mapping[str, str]) -> None:
        self.name = name
        self.slug = slug_of(name)
        self.fields: dict[str, str] = {}
        self.argv: tuple[str, ...] = ()
        self.hidden = ""
        self.values: dict[str, str] = {}
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.problem = ""
        self.disabled = False
        self.seen: Callable[[str], str] = str
        self.draft: ParsedDefinition | None = None
        self.facts: Facts = ()
        self._inputs = inputs
        self._answers = answers

    @property
    def program(self) -> str:
        """The program that it starts; empty for none."""
        transport = self.draft.record.config.transport if self.draft else None
        return transport.command if isinstance(transport, StdioTransport) else ""

    def read(self, entry: Any) -> None:
        """Read an entry. Raises _Unusable."""
        if not isinstance(entry, dict):
            raise _Unusable("It is not an object.")
        entry = ServerEntry(entry)
        self.seen = entry.seen
        if not self.slug:
            raise _Unusable("Its name has no letter from a to z and no digit: rename it in the file.")
        if not isinstance(disabled := entry.get("disabled", False), bool):
            raise _Unusable("Its {key} is neither true nor false.", key=self.seen("disabled"))
        self.disabled = disabled
        self._tell_ignored(entry)
        title = self._text(entry, "title") or (self.name if self.name != self.slug else "")
        values = ((name, entry.get(name)) for name in sorted(_SETTINGS))
        if settings := {name: field_text(value) for name, value in values if isinstance(value, int | float | str)}:
            self.fields |= settings
            self.notes.append(
                _("with {settings}", settings=", ".join(f"{name} {value}" for name, value in settings.items()))
            )
        described = {"title": title, "description": self._text(entry, "description")}
        self.fields |= {name: text for name, text in described.items() if text}
        url, kind = self._text(entry, "url"), self._text(entry, "transport")
        if url and not kind and self._text(entry, "command"):
            both = (self.seen("command"), self.seen("url"))
            raise _Unusable("It has both {command} and {url}: take one of them out.", command=both[0], url=both[1])
        if url and kind != "stdio":
            self._read_remote(url, kind, self._texts(entry, "headers"))
        else:
            self._read_program(entry)

    def _tell_ignored(self, entry: Mapping[str, Any]) -> None:
        if self.disabled:
            self.notes.append(_("disabled in the file, and added disabled"))
        self.notes += (f"{key}: {effect}" for key, effect in _NOT_TAKEN.items() if key in entry)
        if unknown := sorted(str(key)[:40] for key in entry.keys() - _KNOWN - _SETTINGS - _NOT_TAKEN.keys()):
            self.notes.append(_("ignored: {keys}", keys=", ".join(unknown)))

    def _read_remote(self, url: str, kind: str, headers: Mapping[str, str]) -> None:
        self.fields["url"] = self._fill(url, _("its address"))
        if kind:
            self.fields["transport"] = kind
        lines = []
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._read_authorization(value)
            elif line := self._line("header:", name, value):
                lines.append(line)
        if lines:
            self.fields["headers"] = "\n".join(lines)

    def _read_program(self, entry: Mapping[str, Any]) -> None:
        command, args = self._text(entry, "command"), entry.get("args", [])
        if not command:
            unknown = unknown_keys_text(entry, _KNOWN | _SETTINGS | _NOT_TAKEN.keys())
            raise _Unusable(sentences(_("It has neither a command nor an address."), _keys_text(unknown)))
        if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
            raise _Unusable("Its args are not a list of texts.")
        words = [command, *args]
        if words[0].lower() in ("cmd", "cmd.exe") and [word.lower() for word in words[1:2]] == ["/c"]:
            words = words[2:] or words
        if bare_package(fetched_package(words[0], words[1:])) == "mcp-remote":
            self._read_remote_program(words, self._texts(entry, "env"))
            return
        argv = tuple(self._fill(word, _("its command line")) for word in words)
        if any(looks_like_token(word) for word in argv):
            raise _Unusable("An argument of its command line looks like a secret, which all could read: use `env`.")
        self.argv = argv
        if cwd := self._text(entry, "cwd"):
            self.fields["cwd"] = self._fill(cwd, _("its folder"))
        variables = self._texts(entry, "env")
        if lines := [line for name, value in variables.items() if (line := self._line("env:", name, value))]:
            self.fields["env"] = "\n".join(lines)

    def _read_remote_program(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Read `npx mcp-remote URL --header 'NAME: VALUE'`, which is a bridge to a server at an address. A value may
        be in its environment.
        """
        url = next((word for word in words if word.startswith(("http://", "https://"))), "")
        if not url:
            raise _Unusable("mcp-remote has no address.")
        texts = (text for option, text in itertools.pairwise(words) if option == "--header")
        filled = (_VARIABLE.sub(lambda match: env.get(match[2], match[0]), text).partition(":") for text in texts)
        self.notes.append(_("reached directly, without mcp-remote"))
        self._read_remote(url, "auto", {name.strip(): value.strip() for name, _, value in filled})

    def _read_authorization(self, value: str) -> None:
        """Read the header Authorization as a way to sign in."""
        bearer, basic = _BEARER.fullmatch(value), _BASIC.fullmatch(value)
        if basic and not _VARIABLE.search(value):
            user, colon, password = _decode_basic(basic[1]).partition(":")
            self.fields |= {"auth": "basic", "username": KEEP}
            if colon and not (error := secret_error(password)):
                self.values[USER_SLOT], self.hidden = user, password
                self._warn_if_weak("auth", password)
            else:
                problem = error if colon else _("it cannot be read")
                self._miss("auth", _("the password is to be set: {problem}", problem=problem))
            return
        self.fields["auth"] = "api_key" if bearer else "header"
        reference, secret = self._secret("auth", bearer[1] if bearer else value)
        if reference:
            self.fields["secret"] = reference
        self.hidden = secret

    def _line(self, kind: str, name: str, value: str) -> str:
        """Return a header or variable as a line of its field; empty if its value is still to be entered."""
        plain = is_plain_header if kind == "header:" else is_plain_variable
        if not value and plain(name, "on"):
            return ""
        holds_secret = any(
            self._constant(match) is None and not self._is_plain_input(match) for match in _VARIABLE.finditer(value)
        )
        filled = value if holds_secret else self._fill(value, name)
        if not _VARIABLE.search(filled) and plain(name, filled) and not looks_like_token(filled):
            return "" if _PLACEHOLDER.fullmatch(filled) else f"{name}={filled}"
        reference, secret = self._secret(f"{kind}{name}", filled)
        if secret:
            self.values[f"{kind}{name}"] = secret
        return f"{name}={reference or KEEP}" if reference or secret else ""

    def _secret(self, slot: str, value: str) -> tuple[str, str]:
        """Return a secret as a reference or in clear text; neither if it is still to be entered."""
        variable = _VARIABLE.fullmatch(value)
        if variable and variable[1] in (None, "env"):
            texts = {"slot": slot, "variable": variable[2]}
            self.notes.append(
                _("{slot} is the bot's variable {variable}: MCP_SECRET_VARIABLES has to allow it", **texts)
            )
            return f"env:{variable[2]}", ""
        if variable:
            known = self._inputs.get(variable[2])
            named = _("input {name}", name=variable[2]) if variable[1] == "input" else variable[0]
            self._miss(slot, (known.description if known else "") or named)
        elif _VARIABLE.search(value):
            self._miss(slot, _("it was put together from several parts: enter the whole"))
        elif _PLACEHOLDER.fullmatch(value):
            self._miss(slot, _("the file has only a placeholder"))
        elif error := secret_error(value):
            self._miss(slot, error.rstrip("."))
        else:
            self._warn_if_weak(slot, value)
            return "", value
        return "", ""

    def _warn_if_weak(self, slot: str, value: str) -> None:
        if warning := weak_secret_warning({slot: value}):
            self.notes.append(f"{slot}: {warning}")

    def _miss(self, slot: str, reason: str) -> None:
        self.missing.append(slot)
        self.notes.append(_("{slot} is to be entered: {reason}", slot=slot, reason=reason[:200]))

    def _is_plain_input(self, match: re.Match[str]) -> bool:
        known = self._inputs.get(match[2])
        return match[1] == "input" and known is not None and not known.password

    def _fill(self, text: str, place: str) -> str:
        """Return a text with its variables filled in. Raises _Unusable for those that have no value here."""

        def value_of(match: re.Match[str]) -> str:
            value = self._constant(match)
            if value is None:
                raise _Unusable(self._unfilled(match, place))
            return value

        return _VARIABLE.sub(value_of, text)

    def _constant(self, match: re.Match[str]) -> str | None:
        """Return the value of a variable that is no secret and known here."""
        kind, name, default = match[1], match[2], match[3]
        if kind == "input":
            known = self._inputs.get(name, _Input(password=False, description="", default=""))
            return None if known.password else self._answers.get(name) or known.default or None
        known_here = {"userHome": str(Path.home()), "pathSeparator": "/", "/": "/"}
        return known_here.get(name, default) if kind is None else default

    def _unfilled(self, match: re.Match[str], place: str) -> str:
        kind, name = match[1], match[2]
        if kind != "input":
            return _(
                "{variable} in {place} has no value here: write it into the file.",
                variable=match[0] if match[3] is None else f"${{{f'{kind}:' if kind else ''}{name}}}",
                place=place,
            )
        known = self._inputs.get(name)
        if known is not None and known.password:
            texts = {"name": name, "place": place}
            return _("The secret input {name} is in {place}, which all could read: use `env` or `headers`.", **texts)
        if known is not None and known.description:
            texts = {"name": name, "description": known.description[:100]}
            return _("It needs the input {name} ({description}): --input {name}=VALUE", **texts)
        return _("It needs the input {name}: --input {name}=VALUE", name=name)

    def _text(self, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            raise _Unusable("Its {key} is not a text.", key=self.seen(key))
        return value or ""

    def _texts(self, entry: Mapping[str, Any], key: str) -> dict[str, str]:
        values = entry.get(key) or {}
        if not isinstance(values, dict) or not all(isinstance(item, str) for item in values.values()):
            raise _Unusable("Its {key} is not an object of texts.", key=self.seen(key))
        return values


def _decode_basic(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


class ServerImport:
    """Preview and import."""

    def __init__(self, dependencies: CommandDependencies, validator: ServerValidator, service: ServerService) -> None:
        self._administration = dependencies.administration
        self._rights = dependencies.rights
        self._validator = validator
        self._service = service

    async def run(self, request: CommandContext) -> Reply | Answers:
        """Show the servers that would be added, or add them. Raises CommandRejected."""
        if not (request.at_terminal and self._rights.operates(request.member)):
            raise CommandRejected(
                _(
                    "Only the operator may import a file, at a terminal of the bot's machine. Elsewhere servers are "
                    "added one by one: `/mcp add NAME URL`."
                )
            )
        arguments = request.arguments
        text = await asyncio.to_thread(_read, arguments.get("file"))
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
        if arguments.get("digest", digest) != digest:
            raise CommandRejected(
                _("The file is not what it was when it was shown. Nothing was added. Import it again.")
            )
        servers = _chosen(parse_import_file(text, _answers(arguments)), arguments)
        for server in servers:
            await self.draft(server, request, everywhere=not arguments.has("here"))
        ready = [server for server in servers if server.draft is not None]
        programs = sorted({server.program for server in ready if not self.allows(server.program)})
        if arguments.has("yes") and programs and not arguments.has("allow"):
            raise CommandRejected(
                _(
                    "They would run programs that are not allowed on this machine yet. Nothing was added. Leave out "
                    "`--yes` to see them, or add `--allow`."
                )
            )
        if not arguments.has("yes") or not ready:
            return self._preview(servers, programs, digest, request)
        for program in programs:
            await self._administration.allow_program(program)
        policy = parse_policy(arguments.get("policy"))
        return self.add(servers, request.author, policy, verify=not arguments.has("no-verify"))

    def allows(self, program: str) -> bool:
        """Return True if a program may run on this machine; empty is none."""
        return not program or self._administration.allows_program(program)

    async def draft(self, server: ImportedServer, request: VerbContext, *, everywhere: bool) -> None:
        """Set the draft of a server, or its problem."""
        if server.problem:
            return
        draft = await self._validator.draft_new(
            ServerRequest(
                server.fields,
                request.member,
                request.conversation,
                server.slug,
                everywhere,
                server.argv,
                server.hidden,
                server.values,
                server.missing,
            )
        )
        match draft.record.config.transport:
            case StdioTransport(command=program, launch=None) if not self.allows(program):
                draft.errors.pop("command", "")  # The operator has not allowed it yet, but may.
        if draft.errors:
            server.problem = sentences(*(f"{server.seen(name)}: {error}" for name, error in draft.errors.items()))
            return
        if server.disabled:
            draft.record = replace(draft.record, enablement=ServerEnablement.DISABLED)
        try:
            server.facts = consent_facts(draft.record.config, draft.record.secrets, draft.secrets)
        except CommandRejected as rejection:
            server.problem = str(rejection)
        else:
            server.draft = draft

    def _preview(
        self, servers: Sequence[ImportedServer], programs: Sequence[str], digest: str, request: CommandContext
    ) -> Reply:
        ready = [server for server in servers if server.draft is not None]
        details = tuple(detail for server in servers for detail in _told(server))
        table = Table(("server", "add"), tuple(map(_row, servers)))
        if sum(len(text) for _name, text in details) > _LONGEST_PREVIEW:
            raise CommandRejected(
                _("These are more servers than can be shown whole. Nothing was added. Choose some with `--only`.")
            )
        if not ready:
            return Reply(_("None of the servers in this file can be added."), table, details, failed=True)
        count = ngettext("{n} server", "{n} servers", len(ready))
        words = ("mcp", "add", "--yes", "--digest", digest, *(("--allow",) if programs else ()))
        allowing = {"servers": count, "programs": spell_hidden(", ".join(programs))}
        question = (
            _("Add {servers} and allow {programs} on this machine?", **allowing)
            if programs
            else _("Add {servers}?", servers=count)
        )
        add = ReplyAction(
            _("Add {servers}", servers=count),
            (*words, *request.words),
            ActionStyle.PRIMARY,
            question=checked_question(question),
        )
        fix = ((gettext_lazy("fix"), _("run this in a terminal, which asks; or add --yes, and --allow for programs")),)
        counts = {"servers": count, "total": len(servers)}
        return Reply(
            _("{servers} of {total} in this file can be added. Nothing was added yet.", **counts),
            table,
            (*details, *fix),
            failed=True,
            actions=(add,),
        )

    async def add(
        self, servers: Sequence[ImportedServer], by: Author, policy: ApprovalPolicy | None, *, verify: bool
    ) -> AsyncIterator[Reply]:
        """Add the servers that can be added, and tell of each as it is checked."""
        rows: list[tuple[str, str]] = []
        added = 0
        incomplete: list[ServerRecord] = []
        for server in servers:
            if server.draft is None:
                rows.append((server.name, _("not added: {problem}", problem=server.problem)))
                continue
            outcome = await self._service.add(server.draft, policy, by)
            if isinstance(outcome, InvalidServer):
                rows.append((server.name, _("not added: {problem}", problem=sentences(*outcome.errors.values()))))
                continue
            record = outcome.record
            added += 1
            result = _("added")
            if record.missing:
                incomplete.append(record)
                result = _("added, and waits for {secrets}", secrets=", ".join(missing_slots(record)))
            elif record.enablement is ServerEnablement.DISABLED:
                result = _("added, disabled")
            elif verify:
                async for reply in self._validator.reply_with_checks(record, ServerChange.IMPORTED, verify=True):
                    yield Reply(reply.text)
                    result = reply.text
            rows.append((record.config.name, result))
        actions = (enter_secret(record, missing_slots(record)[0]) for record in incomplete)
        yield Reply(
            ngettext("{n} server is added.", "{n} servers are added.", added),
            Table(("server", "result"), tuple(rows)),
            failed=not added,
            actions=(*actions, ReplyAction(_("List them"), ("mcp", "list"))),
        )


class PastedImport(Verbs):
    """Verb of `/mcp import`: servers from pasted JSON, shown before they are saved."""

    def __init__(self, dependencies: CommandDependencies, importing: ServerImport) -> None:
        super().__init__(dependencies)
        self._importing = importing
        self._pasted: deque[tuple[str, str, str]] = deque(maxlen=_MOST_PASTED)

    @verb("import", "servers from the JSON of another program", (option("digest", "of what was shown"),))
    async def _import(self, request: CommandContext) -> Form | Answers:
        digest = request.arguments.get("digest")
        if not digest:
            field = Field(SECRET_FIELD, _("JSON"), FieldKind.LINES, _PASTED_HINT, required=True, longest=100_000)
            return Form(
                id=_FORM,
                title=_("Paste servers"),
                fields=(field,),
                submit=_("Preview"),
                instead=_("/mcp add NAME URL"),
            )
        of_user = (request.author.principal, digest)
        text = next((text for *owner, text in self._pasted if tuple(owner) == of_user), None)
        if text is None:
            raise CommandRejected(_("What was pasted is not kept any more. Nothing was added. Paste it again."))
        return self._importing.add(await self._drafts(text, request), request.author, None, verify=True)

    @form_of("import")
    async def _preview(self, context: SubmissionContext) -> Reply:
        text = context.fields.get(SECRET_FIELD, "")
        servers = await self._drafts(text, context)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
        self._pasted.append((context.author.principal, digest, text))
        ready = sum(server.draft is not None for server in servers)
        count = ngettext("{n} server", "{n} servers", ready)
        add = ReplyAction(_("Add {servers}", servers=count), ("mcp", "import", "--digest", digest), ActionStyle.PRIMARY)
        return Reply(
            _("{servers} of {total} can be added. Nothing was added yet.", servers=count, total=len(servers)),
            Table(("server", "add"), tuple(map(_row, servers))),
            tuple(detail for server in servers for detail in _told(server)),
            failed=not ready,
            actions=(add,) if ready else (),
        )

    async def _drafts(self, text: str, context: VerbContext) -> list[ImportedServer]:
        """Return the servers of a text with their drafts. Programs have to be allowed already."""
        servers = parse_import_file(text, {})
        everywhere = self._dependencies.rights.administers_everywhere(context.member)
        for server in servers:
            await self._importing.draft(server, context, everywhere=everywhere)
            if server.draft is not None:
                record, kept = server.draft.record, dict.fromkeys(server.draft.secrets, _("set"))
                server.facts = consent_facts(record.config, record.secrets, kept)
            if server.draft is not None and not self._importing.allows(server.program):
                server.draft = None
                server.problem = _("The operator allows its program first, at a terminal of the bot's machine.")
        return servers


def _read(name: str) -> str:
    """Return the text of the file. Raises CommandRejected."""
    try:
        with Path(name).expanduser().open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, RuntimeError, ValueError):
        raise CommandRejected(_("The file cannot be read. Check its path and its permissions.")) from None
    if len(content) > _LARGEST:
        raise CommandRejected(_("The file is larger than a megabyte, so it is no list of servers."))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandRejected(_("The file is not UTF-8 text.")) from None


def _answers(arguments: Arguments) -> dict[str, str]:
    pairs = [text.partition("=") for text in arguments.get_all("input")]
    if not all(name and assigned for name, assigned, _value in pairs):
        raise CommandRejected(_("Each `--input` is `ID=VALUE`."))
    return {name: value for name, _assigned, value in pairs}


def _chosen(servers: list[ImportedServer], arguments: Arguments) -> list[ImportedServer]:
    """Return the servers that the options choose. A name in front of the options renames a single one."""
    only = arguments.get_all("only")
    chosen = [server for server in servers if not only or server.name in only or server.slug in only]
    if len(chosen) < len(only) or not chosen:
        names = ", ".join(f"`{server.slug}`" for server in servers if server.slug)
        raise CommandRejected(
            _("There is no such server in this file. There are: {servers}.", servers=names or _("none"))
        )
    name = arguments.get("name")
    if name and (len(chosen) != 1 or not is_slug(name)):
        raise CommandRejected(_("A name is for one server: choose it with `--only`. It is a slug, such as `wiki-2`."))
    if name:
        chosen[0].slug = name
    return chosen


def _row(server: ImportedServer) -> tuple[str, ...]:
    if server.draft is None:
        return spell_hidden(server.name), _("no")
    return server.draft.record.config.name, _("disabled") if server.disabled else _("yes")


def _told(server: ImportedServer) -> list[tuple[str, str]]:
    """Return all that is agreed to about a server, and the notes on it."""
    if server.draft is None:
        problem = _("cannot be added: {problem}", problem=server.problem)
        return [(spell_hidden(server.name), spell_hidden(problem))]
    facts = (f"{fact}: {text}" for fact, text in server.facts)
    return [(server.draft.record.config.name, text) for text in (*facts, *map(spell_hidden, server.notes))]
