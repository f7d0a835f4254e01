"""`/mcp add --file PATH`: servers from a file of another program, with a preview.

Only the operator may name a file of the bot's machine, at a terminal. Nothing is saved before the confirmation, which
adds exactly what was shown: it names the file's digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.commands.argument_parser import Arguments, CommandRejected
from bot.commands.command import CommandContext
from bot.commands.dependencies import CommandDependencies
from bot.commands.import_file import ImportedServer, parse_import_file
from bot.commands.program_consent import version_warning
from bot.commands.server_checks import ServerChange, ServerRequest, ServerValidator
from bot.commands.server_control import InvalidServer, ServerService
from bot.commands.server_definition import ParsedDefinition, command_line, plain_values_of, with_missing_secrets
from bot.commands.server_fields import is_slug
from bot.commands.server_secrets import enter_secret, missing_slots
from bot.commands.text_format import parse_policy, sentences
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction, Table
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import USER_SLOT, HttpTransport, ServerEnablement, ServerRecord, StdioTransport
from bot.i18n import _, gettext_lazy, ngettext

_OPTION = ParameterKind.OPTION
IMPORTING = (
    Parameter(
        "file",
        gettext_lazy("a file of Claude Desktop, VS Code or Cursor, whose servers are added"),
        _OPTION,
        metavar="PATH",
    ),
    Parameter("only", gettext_lazy("a server of that file, and no others"), _OPTION, repeated=True, metavar="NAME"),
    Parameter("input", gettext_lazy("the value of an input of that file"), _OPTION, repeated=True, metavar="ID=VALUE"),
    Parameter("yes", gettext_lazy("add them without a question"), ParameterKind.FLAG),
    Parameter("digest", gettext_lazy("only if the file is still the one that was shown"), _OPTION),
)
_LARGEST = 1024 * 1024
_DIGEST_LENGTH = 12
_MASK = "***"


@dataclass
class _Candidate:
    """A server of the file, and its draft if it can be added."""

    server: ImportedServer
    draft: ParsedDefinition | None = None

    @property
    def program(self) -> str:
        """The program that it starts; empty for none."""
        transport = self.draft.record.config.transport if self.draft else None
        return transport.command if isinstance(transport, StdioTransport) else ""


class ServerImport:
    """Preview and import."""

    def __init__(self, dependencies: CommandDependencies, validator: ServerValidator, service: ServerService) -> None:
        self._administration = dependencies.administration
        self._rights = dependencies.rights
        self._validator = validator
        self._service = service

    async def run(self, request: CommandContext) -> AsyncIterator[Reply]:
        """Show the servers that would be added, or add them. Raises CommandRejected."""
        if not (request.hidden_input and self._rights.operates(request.member)):
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
        candidates = [await self._candidate(server, request) for server in servers]
        ready = [candidate for candidate in candidates if candidate.draft is not None]
        programs = sorted({item.program for item in ready if item.program} - self._allowed(ready))
        if arguments.has("yes") and programs and not arguments.has("allow"):
            raise CommandRejected(
                _(
                    "They would run programs that are not allowed on this machine yet. Nothing was added. Leave out "
                    "`--yes` to see them, or add `--allow`."
                )
            )
        if not arguments.has("yes") or not ready:
            yield self._preview(candidates, programs, digest, request)
            return
        for program in programs:
            await self._administration.allow_program(program)
        async for reply in self._add(candidates, request):
            yield reply

    def _allowed(self, candidates: Sequence[_Candidate]) -> set[str]:
        return {item.program for item in candidates if self._administration.allows_program(item.program)}

    async def _candidate(self, server: ImportedServer, request: CommandContext) -> _Candidate:
        if server.problem:
            return _Candidate(server)
        everywhere = not request.arguments.has("here")
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
            )
        )
        draft = with_missing_secrets(draft, server.missing)
        errors = {name: error for name, error in draft.errors.items() if not self._only_asks(name, draft)}
        if errors:
            server.problem = sentences(*errors.values())
            return _Candidate(server)
        if server.disabled:
            draft.record = replace(draft.record, enablement=ServerEnablement.DISABLED)
        return _Candidate(server, ParsedDefinition(draft.record, draft.secrets))

    def _only_asks(self, name: str, draft: ParsedDefinition) -> bool:
        """Return True for the error of a program that the operator has not allowed yet, but may."""
        match draft.record.config.transport:
            case StdioTransport(command=program, launch=None) if program and name == "command":
                return not self._administration.allows_program(program)
            case _:
                return False

    def _preview(
        self, candidates: Sequence[_Candidate], programs: Sequence[str], digest: str, request: CommandContext
    ) -> Reply:
        ready = [candidate for candidate in candidates if candidate.draft is not None]
        details = tuple(detail for candidate in candidates for detail in _told(candidate))
        if not ready:
            return Reply(_("None of the servers in this file can be added."), _table(candidates), details, failed=True)
        count = ngettext("{n} server", "{n} servers", len(ready))
        words = ("mcp", "add", "--yes", "--digest", digest, *(("--allow",) if programs else ()))
        question = ReplyAction(
            _("Add {servers}", servers=count),
            (*words, *request.words),
            ActionStyle.PRIMARY,
            question=_(
                "Add {servers} and allow {programs} on this machine?", servers=count, programs=", ".join(programs)
            )
            if programs
            else _("Add {servers}?", servers=count),
        )
        fix = ((gettext_lazy("fix"), _("run this in a terminal, which asks; or add --yes, and --allow for programs")),)
        return Reply(
            _(
                "{servers} of {total} in this file can be added. Nothing was added yet.",
                servers=count,
                total=len(candidates),
            ),
            _table(candidates),
            (*details, *fix),
            failed=True,
            actions=(question,),
        )

    async def _add(self, candidates: Sequence[_Candidate], request: CommandContext) -> AsyncIterator[Reply]:
        policy = parse_policy(request.arguments.get("policy"))
        rows: list[tuple[str, str]] = []
        added = 0
        incomplete: list[ServerRecord] = []
        for candidate in candidates:
            if candidate.draft is None:
                rows.append((candidate.server.name, _("not added: {problem}", problem=candidate.server.problem)))
                continue
            outcome = await self._service.add(candidate.draft, policy, request.author)
            if isinstance(outcome, InvalidServer):
                rows.append(
                    (candidate.server.name, _("not added: {problem}", problem=sentences(*outcome.errors.values())))
                )
                continue
            record = outcome.record
            added += 1
            result = _("added")
            if record.missing:
                incomplete.append(record)
                result = _("added, and waits for {secrets}", secrets=", ".join(missing_slots(record)))
            elif record.enablement is ServerEnablement.DISABLED:
                result = _("added, disabled")
            elif not request.arguments.has("no-verify"):
                async for reply in self._validator.reply_with_checks(record, ServerChange.IMPORTED, verify=True):
                    yield Reply(reply.text)
                    result = reply.text
            rows.append((record.config.name, result))
        actions = (enter_secret(record, missing_slots(record)[0]) for record in incomplete)
        yield Reply(
            ngettext("{n} server is added.", "{n} servers are added.", added),
            Table((gettext_lazy("server"), gettext_lazy("result")), tuple(rows)),
            failed=not added,
            actions=(*actions, ReplyAction(_("List them"), ("mcp", "list"))),
        )


def _read(name: str) -> str:
    """Return the text of the file. Raises CommandRejected."""
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError):
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


def _table(candidates: Sequence[_Candidate]) -> Table:
    return Table(
        (gettext_lazy("server"), gettext_lazy("add"), gettext_lazy("address or command"), gettext_lazy("sent with it")),
        tuple(map(_row, candidates)),
    )


def _row(candidate: _Candidate) -> tuple[str, ...]:
    server, draft = candidate.server, candidate.draft
    if draft is None:
        return server.name, _("no"), "", ""
    match draft.record.config.transport:
        case HttpTransport(url):
            place = url
        case StdioTransport():
            place = command_line(draft.record.config)
    plain = (f"{name}={value}" for name, value in plain_values_of(draft.record.config.transport))
    secrets = (
        f"{slot.partition(':')[2] or slot}={_secret(slot, reference, draft)}"
        for slot, reference in sorted(draft.record.secrets.items())
        if slot != USER_SLOT
    )
    status = _("disabled") if server.disabled else _("yes")
    return draft.record.config.name, status, place, ", ".join((*plain, *secrets))


def _secret(slot: str, reference: SecretReference, draft: ParsedDefinition) -> str:
    if reference.source is not SecretSource.STORED:
        return str(reference)
    return _MASK if slot in draft.secrets else _("missing")


def _told(candidate: _Candidate) -> list[tuple[str, str]]:
    """Return notes on a server, to be read before it is added."""
    server, draft = candidate.server, candidate.draft
    if draft is None:
        return [(server.name, _("cannot be added: {problem}", problem=server.problem))]
    name = draft.record.config.name
    warnings = (text for _name, text in version_warning(draft.record.config))
    return [(name, note) for note in (*server.notes, *warnings)]
