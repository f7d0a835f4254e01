"""`/mcp resource list`, `show` and `ask`: resources of servers, which a person reads or attaches to a question.

Both are calls of the server's tool `read_mcp_resource` in a turn, so its rules, approvals and audit hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot.commands.argument_parser import A_SERVER, SERVER, CommandRejected, NotFoundRejection
from bot.commands.command import CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.manual_calls import attached_call, manual_call, question_with
from bot.commands.server_directory import NO_SUGGESTIONS, ServerDirectory, VisibleServer, suggestion_hint
from bot.commands.server_forms import form
from bot.commands.text_format import page_of, page_rows, sentences, server_label
from bot.domain.commands import (
    FIELDS_A_STEP,
    CompletionSource,
    Field,
    FieldKind,
    Form,
    Parameter,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import Author, ConversationKey
from bot.domain.servers import CompletionTarget, Resource, ResourceTemplate, find_resources
from bot.domain.tools import ToolKind
from bot.i18n import _, gettext_lazy

_EVERYONE = RequiredRole.EVERYONE
_URI = Parameter("uri", gettext_lazy("its address"), required=True, completes=CompletionSource.RESOURCES, opaque=True)
_WORDS = Parameter("words", gettext_lazy("words in its address, name or description"), repeated=True)
_QUESTION = Parameter("question", gettext_lazy("the question about it; a form asks without it"), repeated=True)
_LONGEST_LABEL = 30
_LONGEST_NAME = 80
_LONGEST_QUESTION = 3_000


class ResourceCommands:
    """Verbs of resources."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        listing = Verb(
            "resource list", gettext_lazy("resources of servers"), (A_SERVER, _WORDS), _EVERYONE, ("resources",)
        )
        showing = Verb(
            "resource show", gettext_lazy("read a resource"), (SERVER, _URI), _EVERYONE, ("resource", "read")
        )
        asking = Verb(
            "resource ask", gettext_lazy("ask with a resource attached"), (SERVER, _URI, _QUESTION), _EVERYONE
        )
        return (
            VerbHandler(listing, self._list, free=True),
            VerbHandler(showing, self._show, free=True),
            VerbHandler(asking, self._ask, self._fill, free=True),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        name, words = request.arguments.get("server"), request.arguments.get_all("words")
        servers = await self._servers(name, request)
        if servers is None:  # the first word is one to search for
            servers, words = await self._directory.all_synced(request.conversation), (name, *words)
            name = ""
        entries = [
            (server, entry)
            for server in servers
            if self._directory.is_usable(server, ToolKind.READ_RESOURCE, request.conversation)
            for entry in find_resources(self._entries(server), " ".join(words))
        ]
        if not entries:
            none = _("No resource fits these words.") if words else _("No resources are offered here now.")
            yield Reply(sentences(none, _("`/mcp list` shows the servers.")))
            return
        page = page_rows(entries, request.arguments.page)
        yield Reply(
            _("Resources · {count} · `/mcp resource ask NAME URI` asks about one", count=len(entries)),
            Table(
                (gettext_lazy("server"), gettext_lazy("address"), gettext_lazy("kind"), gettext_lazy("what it is")),
                tuple((server.name, entry.uri, entry.mime_type, _what(entry)) for server, entry in page),
            ),
            actions=tuple(_ask_action(server, entry) for server, entry in page),
            page=page_of(
                request.arguments.page, len(entries), ("mcp", "resource", "list", *((name,) if name else ()), *words)
            ),
        )

    async def _servers(self, name: str, request: CommandContext) -> list[VisibleServer] | None:
        """Return the named server, or all without a name; None if there is none of that name, but a word to search."""
        if not name:
            return await self._directory.all_synced(request.conversation)
        try:
            server, _tool = await self._directory.find_with(ToolKind.READ_RESOURCE, name, request.conversation)
        except NotFoundRejection:
            if any(
                name.lower() in (server.name, server.config.title.lower(), server.id)
                for server in await self._directory.all(request.conversation)
            ):
                raise
            return None
        return [server]

    def _entries(self, server: VisibleServer) -> list[Resource | ResourceTemplate]:
        capabilities = self._directory.capabilities(server)
        return [*capabilities.resources, *capabilities.templates]

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        server, tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, request.arguments.get("server"), request.conversation
        )
        uri = request.arguments.get("uri")
        if variables := self._variables(server, uri):
            raise CommandRejected(
                _("Fill in {variables} in the address, or use `/mcp resource ask`.", variables=", ".join(variables))
            )
        message = manual_call(
            tool,
            {"uri": uri},
            request.conversation,
            request.author,
            _("Read {uri} of {server}", uri=uri[:_LONGEST_NAME], server=server.name),
        )
        yield Reply(_("Reading from {server}…", server=server_label(server.config)), message=message, private=False)

    async def _ask(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        server, _tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, request.arguments.get("server"), request.conversation
        )
        uri, question = request.arguments.get("uri"), " ".join(request.arguments.get_all("question")).strip()
        values = {"server": server.id, "uri": uri, **({"question": question} if question else {})}
        if question and not self._variables(server, uri):
            yield await self._start(values, request.conversation, request.author)
        else:
            yield await self._form(server, values, {}, 1)

    async def _fill(self, submission: SubmissionContext) -> AsyncIterator[Reply | Form]:
        values = dict(submission.fields)
        server, _tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, values.get("server", ""), submission.conversation
        )
        number = int(next(iter(submission.state), "1"))
        fields = self._steps(server, values.get("uri", ""))
        missing = {
            field.name: _("Something is needed here.")
            for step in fields[:number]
            for field in step
            if field.required and not values.get(field.name, "").strip()
        }
        errors = {**missing, **submission.errors}
        if errors:
            yield await self._form(server, values, errors, number)
        elif number < len(fields):
            yield await self._form(server, values, {}, number + 1)
        else:
            yield await self._start(values, submission.conversation, submission.author)

    async def _start(self, values: Mapping[str, str], conversation: ConversationKey, author: Author) -> Reply:
        server, tool = await self._directory.find_with(ToolKind.READ_RESOURCE, values["server"], conversation)
        variables = enumerate(self._variables(server, values["uri"]))
        filled = {
            name: values[_field_name(n)].strip() for n, name in variables if values.get(_field_name(n), "").strip()
        }
        arguments: dict[str, Any] = {"uri": values["uri"], **({"values": filled} if filled else {})}
        message = question_with(attached_call(tool, arguments), values["question"].strip(), conversation, author)
        return Reply(
            _("Asking about a resource of {server}…", server=server_label(server.config)),
            message=message,
            private=False,
        )

    async def _form(
        self, server: VisibleServer, values: Mapping[str, str], errors: Mapping[str, str], number: int
    ) -> Form:
        uri = values["uri"]
        variables = self._variables(server, uri)
        given = {name: values[_field_name(n)] for n, name in enumerate(variables) if values.get(_field_name(n))}
        suggestions = await self._directory.suggestions(
            server,
            [CompletionTarget(uri, name, is_template=True) for name in variables if name not in given],
            given,
        )
        return form(
            "mcp resource ask",
            _("Ask about a resource"),
            self._steps(server, uri, suggestions),
            number,
            values=values,
            errors=errors,
            submit=_("Ask"),
            intro=_(
                "{uri}, of {server}. What it says goes to the model as information, not as instructions.",
                uri=uri,
                server=server.name,
            ),
            instead=f"/mcp resource ask {server.name} {uri} QUESTION",
        )

    def _steps(
        self, server: VisibleServer, uri: str, suggestions: Mapping[str, Sequence[str]] = NO_SUGGESTIONS
    ) -> list[tuple[Field, ...]]:
        hint = _("a part of the address")
        fields = [
            Field(
                _field_name(n),
                name,
                required=True,
                hint=suggestion_hint(hint, suggestions.get(name, ())),
            )
            for n, name in enumerate(self._variables(server, uri))
        ]
        fields.append(
            Field(
                "question", _("Question"), FieldKind.LINES, _("what to ask about it"), True, longest=_LONGEST_QUESTION
            )
        )
        return [tuple(fields[n : n + FIELDS_A_STEP]) for n in range(0, len(fields), FIELDS_A_STEP)]

    def _variables(self, server: VisibleServer, uri: str) -> tuple[str, ...]:
        templates = self._directory.capabilities(server).templates
        return next((template.variables for template in templates if template.pattern == uri), ())


def _field_name(n: int) -> str:
    """Return the name of the field of a variable; platforms limit names."""
    return f"value{n}"


def _what(entry: Resource | ResourceTemplate) -> str:
    return " ".join((entry.title or entry.name or entry.description).split())[:_LONGEST_NAME]


def _ask_action(server: VisibleServer, entry: Resource | ResourceTemplate) -> ReplyAction:
    label = " ".join((entry.title or entry.name or entry.uri).split())[:_LONGEST_LABEL]
    return ReplyAction(_("Ask about {label}", label=label), ("mcp", "resource", "ask", server.name, entry.uri))
