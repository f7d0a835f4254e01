"""`/mcp prompt ask`, `list` and `show`: prompts of servers, which a person asks with.

Each is a call of the server's tool `get_mcp_prompt` in a turn, so its rules, approvals and audit hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot.commands.argument_parser import A_SERVER, SERVER
from bot.commands.command import CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.manual_calls import attached_call, manual_call, parse_pairs, question_with
from bot.commands.server_directory import (
    NO_SUGGESTIONS,
    ServerDirectory,
    VisibleServer,
    check_arguments,
    suggestion_hint,
)
from bot.commands.server_forms import form
from bot.commands.text_format import page_of, page_rows, sentences, server_label
from bot.domain.commands import (
    FIELDS_A_STEP,
    CompletionSource,
    Field,
    Form,
    Parameter,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import Author, ConversationKey
from bot.domain.servers import CompletionTarget, Prompt
from bot.domain.tools import ToolKind
from bot.i18n import _, gettext_lazy

_EVERYONE = RequiredRole.EVERYONE
_PROMPT = Parameter(
    "prompt", gettext_lazy("the prompt's name"), required=True, completes=CompletionSource.PROMPTS, opaque=True
)
_A_PROMPT = Parameter("prompt", gettext_lazy("the prompt's name"), completes=CompletionSource.PROMPTS, opaque=True)
_VALUES = Parameter(
    "arguments", gettext_lazy("its arguments; a form asks without them"), repeated=True, metavar="KEY=VALUE"
)
_LONGEST_LABEL = 30
_LONGEST_NAME = 80
_LONGEST_VALUE = 3_000


class PromptCommands:
    """Verbs of prompts."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        asking = Verb(
            "prompt ask",
            gettext_lazy("ask with a prompt of a server"),
            (A_SERVER, _A_PROMPT, _VALUES),
            _EVERYONE,
            ("prompt",),
        )
        listing = Verb(
            "prompt list", gettext_lazy("texts that servers write to ask with"), (A_SERVER,), _EVERYONE, ("prompts",)
        )
        showing = Verb("prompt show", gettext_lazy("have a prompt written out"), (SERVER, _PROMPT, _VALUES), _EVERYONE)
        return (
            VerbHandler(asking, self._ask, self._fill, free=True),
            VerbHandler(listing, self._list),
            VerbHandler(showing, self._show, free=True),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        yield await self._list_reply(request)

    async def _list_reply(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        if name:
            servers = [(await self._directory.find_with(ToolKind.GET_PROMPT, name, request.conversation))[0]]
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
                (gettext_lazy("server"), gettext_lazy("prompt"), gettext_lazy("takes"), gettext_lazy("what it does")),
                tuple((server.name, prompt.name, _takes(prompt), _what(prompt)) for server, prompt in page),
            ),
            actions=tuple(_ask_action(server, prompt) for server, prompt in page),
            page=page_of(request.arguments.page, len(prompts), ("mcp", "prompt", "list", *((name,) if name else ()))),
        )

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        arguments = request.arguments
        server, tool = await self._directory.find_with(
            ToolKind.GET_PROMPT, arguments.get("server"), request.conversation
        )
        prompt = self._directory.find_prompt(server, arguments.get("prompt"))
        values = parse_pairs(arguments.get_all("arguments"))
        check_arguments(prompt, values)
        text = _("Show the prompt {prompt} of {server}", prompt=prompt.name[:_LONGEST_NAME], server=server.name)
        message = manual_call(tool, _call_arguments(prompt, values), request.conversation, request.author, text)
        yield Reply(
            _("Having a prompt of {server} written out…", server=server_label(server.config)),
            message=message,
            private=False,
        )

    async def _ask(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        if not arguments.get("prompt"):
            yield await self._list_reply(request)
            return
        server, _tool = await self._directory.find_with(
            ToolKind.GET_PROMPT, arguments.get("server"), request.conversation
        )
        prompt = self._directory.find_prompt(server, arguments.get("prompt"))
        given = parse_pairs(arguments.get_all("arguments"))
        check_arguments(prompt, {**{argument.name: "" for argument in prompt.arguments}, **given})
        if prompt.arguments and (not given or _missing(prompt, given)):
            values = {name: given[argument] for name, argument in _field_names(prompt).items() if argument in given}
            yield await self._form(server, prompt, {"server": server.id, "prompt": prompt.name, **values}, {}, 1)
        else:
            yield await self._start(server.id, prompt, given, request.conversation, request.author)

    async def _fill(self, submission: SubmissionContext) -> AsyncIterator[Reply | Form]:
        values = dict(submission.fields)
        server, _tool = await self._directory.find_with(
            ToolKind.GET_PROMPT, values.get("server", ""), submission.conversation
        )
        prompt = self._directory.find_prompt(server, values.get("prompt", ""))
        number, steps = int(next(iter(submission.state), "1")), _steps(prompt)
        missing = {
            field.name: _("Something is needed here.")
            for step in steps[:number]
            for field in step
            if field.required and not values.get(field.name, "").strip()
        }
        errors = {**missing, **submission.errors}
        if errors:
            yield await self._form(server, prompt, values, errors, number)
        elif number < len(steps):
            yield await self._form(server, prompt, values, {}, number + 1)
        else:
            given = {
                argument: value.strip()
                for name, argument in _field_names(prompt).items()
                if (value := values.get(name, "")).strip()
            }
            yield await self._start(server.id, prompt, given, submission.conversation, submission.author)

    async def _start(
        self, server_id: str, prompt: Prompt, given: Mapping[str, str], conversation: ConversationKey, author: Author
    ) -> Reply:
        server, tool = await self._directory.find_with(ToolKind.GET_PROMPT, server_id, conversation)
        given_text = ", ".join(f"{name}: {value}" for name, value in given.items())
        text = _("Prompt {prompt} of {server}", prompt=prompt.name[:_LONGEST_NAME], server=server.name)
        text = f"{text} ({given_text})" if given_text else text
        message = question_with(attached_call(tool, _call_arguments(prompt, given)), text, conversation, author)
        return Reply(
            _("Asking with a prompt of {server}…", server=server_label(server.config)), message=message, private=False
        )

    async def _form(
        self,
        server: VisibleServer,
        prompt: Prompt,
        values: Mapping[str, str],
        errors: Mapping[str, str],
        number: int,
    ) -> Form:
        names = _field_names(prompt)
        given = {argument: values[name] for name, argument in names.items() if values.get(name)}
        shown = [names[field.name] for field in _steps(prompt)[number - 1]]
        suggestions = await self._directory.suggestions(
            server, [CompletionTarget(prompt.name, argument) for argument in shown if argument not in given], given
        )
        required = " ".join(f"{argument.name}=…" for argument in prompt.arguments if argument.required)
        return form(
            "mcp prompt ask",
            _("Ask with a prompt"),
            _steps(prompt, suggestions),
            number,
            values=values,
            errors=errors,
            submit=_("Ask"),
            intro=sentences(
                _("{prompt}, of {server}.", prompt=prompt.title or prompt.name, server=server.name), prompt.description
            ).strip(),
            instead=f"/mcp prompt {server.name} {prompt.name} {required}".strip(),
        )


def _steps(prompt: Prompt, suggestions: Mapping[str, Sequence[str]] = NO_SUGGESTIONS) -> Sequence[tuple[Field, ...]]:
    fields = [
        Field(
            name,
            argument.name,
            hint=suggestion_hint(argument.description, suggestions.get(argument.name, ())),
            required=argument.required,
            longest=_LONGEST_VALUE,
        )
        for name, argument in zip(_field_names(prompt), prompt.arguments, strict=True)
    ]
    return [tuple(fields[n : n + FIELDS_A_STEP]) for n in range(0, len(fields), FIELDS_A_STEP)]


def _field_names(prompt: Prompt) -> dict[str, str]:
    """Return the arguments by the names of their fields, which platforms limit."""
    return {f"argument{n}": argument.name for n, argument in enumerate(prompt.arguments)}


def _missing(prompt: Prompt, given: Mapping[str, str]) -> bool:
    return any(argument.required and not given.get(argument.name) for argument in prompt.arguments)


def _call_arguments(prompt: Prompt, values: Mapping[str, str]) -> dict[str, Any]:
    return {"name": prompt.name, **({"arguments": dict(values)} if values else {})}


def _takes(prompt: Prompt) -> str:
    return ", ".join(argument.name if argument.required else f"[{argument.name}]" for argument in prompt.arguments)


def _what(prompt: Prompt) -> str:
    return " ".join((prompt.title or prompt.description).split())[:_LONGEST_NAME]


def _ask_action(server: VisibleServer, prompt: Prompt) -> ReplyAction:
    label = " ".join((prompt.title or prompt.name).split())[:_LONGEST_LABEL]
    return ReplyAction(_("Ask: {label}", label=label), ("mcp", "prompt", "ask", server.name, prompt.name))
