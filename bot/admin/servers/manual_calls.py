"""Calls by hand: `/mcp run`, `/mcp resource list`, `show` and `ask`, `/mcp prompt list`, `show` and `ask`.

Each is a call of a server's tool in a turn, under the same rules, approvals and audit as the model's calls: resources
are read by `read_mcp_resource`, prompts are written out by `get_mcp_prompt`. With `ask`, the result goes to the model
with the question.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from bot.admin.command import (
    A_SERVER,
    SERVER,
    TOOL,
    CommandContext,
    CommandRejected,
    NotFoundRejection,
    SubmissionContext,
    VerbContext,
    Verbs,
    form_of,
    verb,
)
from bot.admin.servers.directory import ServerDirectory, VisibleServer, check_arguments
from bot.admin.servers.forms import form, in_steps, next_form_step
from bot.admin.text_format import code, did_you_mean, page_of, page_rows, sentences, server_label
from bot.domain.commands import (
    CompletionSource,
    Field,
    FieldKind,
    Form,
    Parameter,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
)
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.lenient_json import DuplicateName, parse_json
from bot.domain.messages import ToolCall
from bot.domain.servers import CompletionTarget, Prompt, Resource, ResourceTemplate, find_resources
from bot.domain.tools import Tool, ToolKind
from bot.i18n import _

LONGEST_ARGUMENTS = 100_000
LONGEST_HINT = 100
"""Characters that platforms show of a field's hint."""
_LONGEST_LABEL = 30
_LONGEST_NAME = 80
_LONGEST_TEXT = 3_000
"""Characters of a question, and of the value of an argument."""
_NO_SUGGESTIONS: Mapping[str, Sequence[str]] = {}
_EVERYONE = RequiredRole.EVERYONE
_ARGUMENTS = Parameter(
    "arguments", "a JSON object, or KEY=VALUE for each argument", repeated=True, metavar="JSON|KEY=VALUE"
)
_URI = Parameter("uri", "its address", required=True, completes=CompletionSource.RESOURCES, opaque=True)
_WORDS = Parameter("words", "words in its address, name or description", repeated=True)
_QUESTION = Parameter("question", "the question about it; a form asks without it", repeated=True)
_PROMPT = Parameter("prompt", "the prompt's name", required=True, completes=CompletionSource.PROMPTS, opaque=True)
_A_PROMPT = Parameter("prompt", "the prompt's name", completes=CompletionSource.PROMPTS, opaque=True)
_VALUES = Parameter("arguments", "its arguments; a form asks without them", repeated=True, metavar="KEY=VALUE")


def manual_call(
    tool: Tool, arguments: Mapping[str, Any], conversation: ConversationKey, author: Author, text: str = ""
) -> InboundMessage:
    """Return a message to the engine that calls a tool: a turn of its own. `text` describes it, in place of the tool's
    name.
    """
    call_id = secrets.token_hex(16)
    return InboundMessage(
        (f"run:{call_id}",),
        conversation,
        author,
        text or _("Run {tool}", tool=f"{tool.server}.{tool.original_name}"),
        call=ToolCall(f"run-{call_id}", tool.name, arguments),
    )


def _question_with(
    tool: Tool, arguments: Mapping[str, Any], text: str, conversation: ConversationKey, author: Author
) -> InboundMessage:
    call = ToolCall(f"attached-{secrets.token_hex(16)}", tool.name, arguments)
    return InboundMessage((f"attached:{call.id}",), conversation, author, text, attached=(call,))


# -------------------- tools


class ManualCalls(Verbs):
    """Verb that runs a tool."""

    def __init__(self, directory: ServerDirectory) -> None:
        self._directory = directory

    @verb("run", "run a tool by hand", (SERVER, TOOL, _ARGUMENTS), aliases=("call", "exec"), free=True)
    async def _run(self, request: CommandContext) -> Reply:
        server = await self._directory.find_synced(request.arguments.get("server"), request.conversation)
        tool = self._directory.find_tool(server, request.arguments.get("tool"))
        arguments = _arguments(request.arguments.get_all("arguments"), tool)
        tool = self._directory.by_server(tool)
        message = manual_call(tool, arguments, request.conversation, request.author)
        name = code(tool.name, _("a tool"))
        return Reply(_("Running {tool}…", tool=name), message=message, private=False)


def _arguments(words: Sequence[str], tool: Tool) -> dict[str, Any]:
    """Parse the arguments of a call: one JSON object, or pairs with values parsed by the tool's schema."""
    if sum(map(len, words)) > LONGEST_ARGUMENTS:
        raise CommandRejected(_("That is more than a call by hand takes."))
    text = " ".join(words).strip()
    if text.startswith("{"):
        try:
            return dict(parse_json(text))
        except DuplicateName as error:
            raise CommandRejected(_("The arguments cannot be used: {error}.", error=error)) from None
        except ValueError:
            raise CommandRejected(_("The arguments are no JSON object. A shell takes one in single quotes.")) from None
    properties = tool.input_schema.get("properties", {})
    known = properties if isinstance(properties, Mapping) else {}
    pairs = _parse_pairs(words)
    unknown = next((name for name in pairs if known and name not in known), None)
    if unknown is not None and tool.input_schema.get("additionalProperties") is False:
        raise CommandRejected(sentences(_("The tool takes no such argument."), did_you_mean(unknown, known)))
    return {name: _value(text, known.get(name)) for name, text in pairs.items()}


def _parse_pairs(words: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` words. Raises CommandRejected."""
    pairs: dict[str, str] = {}
    for word in words:
        key, assigned, value = word.partition("=")
        if not assigned or not key:
            raise CommandRejected(_("Each argument is `KEY=VALUE`."))
        if key in pairs:
            raise CommandRejected(_("The arguments cannot be used: {error}.", error=DuplicateName(key)))
        pairs[key] = value
    return pairs


def _value(text: str, schema: object) -> Any:
    """Parse a value: text if the schema wants text, else JSON if possible."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    if wanted == "string" or (wanted is None and not text.startswith(("{", "["))):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


# -------------------- resources


class ResourceCommands(Verbs):
    """Verbs of resources."""

    def __init__(self, directory: ServerDirectory) -> None:
        self._directory = directory

    @verb(
        "resource list",
        "resources of servers",
        (A_SERVER, _WORDS),
        who=_EVERYONE,
        aliases=("resources",),
        free=True,
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        name, words = request.arguments.get("server"), request.arguments.get_all("words")
        servers = await self._servers(name, request)
        if servers is None:  # the first word is one to search for
            servers, words = await self._directory.all_synced(request.conversation), (name, *words)
            name = ""
        entries = [
            (server, entry)
            for server in servers
            if self._directory.is_usable(server, ToolKind.READ_RESOURCE, request.conversation)
            for entry in self._find_resources(server, words)
        ]
        if not entries:
            none = _("No resource fits these words.") if words else _("No resources are offered here now.")
            return Reply(sentences(none, _("`/mcp list` shows the servers.")))
        page = page_rows(entries, request.arguments.page)
        again = ("mcp", "resource", "list", *((name,) if name else ()), *words)
        return Reply(
            _("Resources · {count} · `/mcp resource ask NAME URI` asks about one", count=len(entries)),
            Table(
                ("server", "address", "kind", "what it is"),
                tuple(
                    (server.name, entry.uri, entry.mime_type, _first(entry.title, entry.name, entry.description))
                    for server, entry in page
                ),
            ),
            actions=tuple(
                ReplyAction(
                    _("Ask about {label}", label=_first(entry.title, entry.name, entry.uri)[:_LONGEST_LABEL]),
                    ("mcp", "resource", "ask", server.name, entry.uri),
                )
                for server, entry in page
            ),
            page=page_of(request.arguments.page, len(entries), again),
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

    def _find_resources(self, server: VisibleServer, words: Sequence[str]) -> Sequence[Resource | ResourceTemplate]:
        capabilities = self._directory.capabilities(server)
        return find_resources([*capabilities.resources, *capabilities.templates], " ".join(words))

    @verb("resource show", "read a resource", (SERVER, _URI), who=_EVERYONE, aliases=("resource", "read"), free=True)
    async def _show(self, request: CommandContext) -> Reply:
        server, tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, request.arguments.get("server"), request.conversation
        )
        uri = request.arguments.get("uri")
        if variables := self._variables(server, uri):
            raise CommandRejected(
                _("Fill in {variables} in the address, or use `/mcp resource ask`.", variables=", ".join(variables))
            )
        text = _("Read {uri} of {server}", uri=uri[:_LONGEST_NAME], server=server.name)
        message = manual_call(tool, {"uri": uri}, request.conversation, request.author, text)
        return Reply(_("Reading from {server}…", server=server_label(server.config)), message=message, private=False)

    @verb("resource ask", "ask with a resource attached", (SERVER, _URI, _QUESTION), who=_EVERYONE, free=True)
    async def _ask(self, request: CommandContext) -> Reply | Form:
        server, tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, request.arguments.get("server"), request.conversation
        )
        uri, question = request.arguments.get("uri"), " ".join(request.arguments.get_all("question")).strip()
        values = {"server": server.id, "uri": uri, **({"question": question} if question else {})}
        if question and not self._variables(server, uri):
            return self._start(server, tool, values, request)
        return await self._form(server, values, 1, {})

    @form_of("resource ask")
    async def _fill(self, submission: SubmissionContext) -> Reply | Form:
        values = dict(submission.fields)
        server, tool = await self._directory.find_with(
            ToolKind.READ_RESOURCE, values.get("server", ""), submission.conversation
        )
        step = next_form_step(self._steps(server, values.get("uri", "")), submission)
        return await self._form(server, values, *step) if step else self._start(server, tool, values, submission)

    def _start(self, server: VisibleServer, tool: Tool, values: Mapping[str, str], context: VerbContext) -> Reply:
        variables = enumerate(self._variables(server, values["uri"]))
        filled = {name: value for n, name in variables if (value := values.get(f"value{n}", "").strip())}
        arguments: dict[str, Any] = {"uri": values["uri"], **({"values": filled} if filled else {})}
        message = _question_with(tool, arguments, values["question"].strip(), context.conversation, context.author)
        text = _("Asking about a resource of {server}…", server=server_label(server.config))
        return Reply(text, message=message, private=False)

    async def _form(
        self, server: VisibleServer, values: Mapping[str, str], number: int, errors: Mapping[str, str]
    ) -> Form:
        uri = values["uri"]
        variables = self._variables(server, uri)
        given = {name: values[f"value{n}"] for n, name in enumerate(variables) if values.get(f"value{n}")}
        targets = [CompletionTarget(uri, name, is_template=True) for name in variables if name not in given]
        return form(
            "mcp resource ask",
            _("Ask about a resource"),
            self._steps(server, uri, await self._directory.suggestions(server, targets, given)),
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
        self, server: VisibleServer, uri: str, suggestions: Mapping[str, Sequence[str]] = _NO_SUGGESTIONS
    ) -> list[tuple[Field, ...]]:
        hint = _("a part of the address")
        # Platforms limit the names of fields.
        fields = [
            Field(f"value{n}", name, required=True, hint=_hint(hint, suggestions.get(name, ())))
            for n, name in enumerate(self._variables(server, uri))
        ]
        about = _("what to ask about it")
        question = Field("question", _("Question"), FieldKind.LINES, about, required=True, longest=_LONGEST_TEXT)
        return in_steps([*fields, question])

    def _variables(self, server: VisibleServer, uri: str) -> tuple[str, ...]:
        templates = self._directory.capabilities(server).templates
        return next((template.variables for template in templates if template.pattern == uri), ())


# -------------------- prompts


class PromptCommands(Verbs):
    """Verbs of prompts."""

    def __init__(self, directory: ServerDirectory) -> None:
        self._directory = directory

    @verb(
        "prompt ask",
        "ask with a prompt of a server",
        (A_SERVER, _A_PROMPT, _VALUES),
        who=_EVERYONE,
        aliases=("prompt",),
        free=True,
    )
    async def _ask(self, request: CommandContext) -> Reply | Form:
        arguments = request.arguments
        if not arguments.get("prompt"):
            return await self._list_reply(request)
        server, tool = await self._find_server(arguments.get("server"), request)
        prompt = self._directory.find_prompt(server, arguments.get("prompt"))
        given = _parse_pairs(arguments.get_all("arguments"))
        check_arguments(prompt, {**{argument.name: "" for argument in prompt.arguments}, **given})
        is_incomplete = any(argument.required and not given.get(argument.name) for argument in prompt.arguments)
        if prompt.arguments and (not given or is_incomplete):
            values = {name: given[argument] for name, argument in _field_names(prompt).items() if argument in given}
            return await self._form(server, prompt, {"server": server.id, "prompt": prompt.name, **values}, 1, {})
        return self._start(server, tool, prompt, given, request)

    @form_of("prompt ask")
    async def _fill(self, submission: SubmissionContext) -> Reply | Form:
        values = dict(submission.fields)
        server, tool = await self._find_server(values.get("server", ""), submission)
        prompt = self._directory.find_prompt(server, values.get("prompt", ""))
        step = next_form_step(_steps(prompt), submission)
        if step is not None:
            return await self._form(server, prompt, values, *step)
        names = _field_names(prompt).items()
        given = {argument: value for name, argument in names if (value := values.get(name, "").strip())}
        return self._start(server, tool, prompt, given, submission)

    @verb(
        "prompt list",
        "texts that servers write to ask with",
        (A_SERVER,),
        who=_EVERYONE,
        aliases=("prompts",),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        return await self._list_reply(request)

    async def _list_reply(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        if name:
            servers = [(await self._find_server(name, request))[0]]
        else:
            servers = await self._directory.all_synced(request.conversation)
        prompts = [
            (server, prompt)
            for server in servers
            if self._directory.is_usable(server, ToolKind.GET_PROMPT, request.conversation)
            for prompt in self._directory.capabilities(server).prompts
        ]
        if not prompts:
            return Reply(_("No prompts are offered here now. `/mcp list` shows the servers."))
        page = page_rows(prompts, request.arguments.page)
        return Reply(
            _("Prompts · {count} · `/mcp prompt NAME PROMPT` asks with one", count=len(prompts)),
            Table(
                ("server", "prompt", "takes", "what it does"),
                tuple(
                    (
                        server.name,
                        prompt.name,
                        ", ".join(item.name if item.required else f"[{item.name}]" for item in prompt.arguments),
                        _first(prompt.title, prompt.description),
                    )
                    for server, prompt in page
                ),
            ),
            actions=tuple(
                ReplyAction(
                    _("Ask: {label}", label=_first(prompt.title, prompt.name)[:_LONGEST_LABEL]),
                    ("mcp", "prompt", "ask", server.name, prompt.name),
                )
                for server, prompt in page
            ),
            page=page_of(request.arguments.page, len(prompts), ("mcp", "prompt", "list", *((name,) if name else ()))),
        )

    @verb("prompt show", "have a prompt written out", (SERVER, _PROMPT, _VALUES), who=_EVERYONE, free=True)
    async def _show(self, request: CommandContext) -> Reply:
        arguments = request.arguments
        server, tool = await self._find_server(arguments.get("server"), request)
        prompt = self._directory.find_prompt(server, arguments.get("prompt"))
        values = _parse_pairs(arguments.get_all("arguments"))
        check_arguments(prompt, values)
        text = _("Show the prompt {prompt} of {server}", prompt=prompt.name[:_LONGEST_NAME], server=server.name)
        message = manual_call(tool, _call_arguments(prompt, values), request.conversation, request.author, text)
        reply_text = _("Having a prompt of {server} written out…", server=server_label(server.config))
        return Reply(reply_text, message=message, private=False)

    async def _find_server(self, name: str, context: VerbContext) -> tuple[VisibleServer, Tool]:
        return await self._directory.find_with(ToolKind.GET_PROMPT, name, context.conversation)

    def _start(
        self, server: VisibleServer, tool: Tool, prompt: Prompt, given: Mapping[str, str], context: VerbContext
    ) -> Reply:
        given_text = ", ".join(f"{name}: {value}" for name, value in given.items())
        text = _("Prompt {prompt} of {server}", prompt=prompt.name[:_LONGEST_NAME], server=server.name)
        text = f"{text} ({given_text})" if given_text else text
        message = _question_with(tool, _call_arguments(prompt, given), text, context.conversation, context.author)
        reply_text = _("Asking with a prompt of {server}…", server=server_label(server.config))
        return Reply(reply_text, message=message, private=False)

    async def _form(
        self, server: VisibleServer, prompt: Prompt, values: Mapping[str, str], number: int, errors: Mapping[str, str]
    ) -> Form:
        names = _field_names(prompt)
        given = {argument: values[name] for name, argument in names.items() if values.get(name)}
        shown = [names[field.name] for field in _steps(prompt)[number - 1]]
        targets = [CompletionTarget(prompt.name, argument) for argument in shown if argument not in given]
        required = " ".join(f"{argument.name}=…" for argument in prompt.arguments if argument.required)
        about = _("{prompt}, of {server}.", prompt=prompt.title or prompt.name, server=server.name)
        return form(
            "mcp prompt ask",
            _("Ask with a prompt"),
            _steps(prompt, await self._directory.suggestions(server, targets, given)),
            number,
            values=values,
            errors=errors,
            submit=_("Ask"),
            intro=sentences(about, prompt.description).strip(),
            instead=f"/mcp prompt {server.name} {prompt.name} {required}".strip(),
        )


def _steps(prompt: Prompt, suggestions: Mapping[str, Sequence[str]] = _NO_SUGGESTIONS) -> list[tuple[Field, ...]]:
    return in_steps(
        [
            Field(
                name,
                argument.name,
                hint=_hint(argument.description, suggestions.get(argument.name, ())),
                required=argument.required,
                longest=_LONGEST_TEXT,
            )
            for name, argument in zip(_field_names(prompt), prompt.arguments, strict=True)
        ]
    )


def _field_names(prompt: Prompt) -> dict[str, str]:
    return {f"argument{n}": argument.name for n, argument in enumerate(prompt.arguments)}


def _call_arguments(prompt: Prompt, values: Mapping[str, str]) -> dict[str, Any]:
    return {"name": prompt.name, **({"arguments": dict(values)} if values else {})}


# -------------------- text from servers


def _first(*texts: str) -> str:
    """Return the first text that is not empty, on one line."""
    return " ".join(next(filter(None, texts), "").split())[:_LONGEST_NAME]


def _hint(hint: str, suggestions: Sequence[str]) -> str:
    """Return the hint of a field, shortened, with the first suggestions that fit."""
    hint = " ".join(hint.split())[:LONGEST_HINT]
    begin, shown = f"{hint.rstrip('.')}: " if hint else "", ""
    for value in suggestions:
        longer = f"{shown}, {value}" if shown else _("such as {value}", value=value)
        if len(begin) + len(longer) > LONGEST_HINT:
            break
        shown = longer
    return f"{begin}{shown}" if shown else hint
