"""`/mcp run`, and messages to the engine with calls that a person chose."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot.commands.argument_parser import SERVER, TOOL, CommandRejected
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import code, did_you_mean, sentences
from bot.domain.commands import Parameter, Reply, Verb
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.lenient_json import DuplicateName, exceeds_json_depth, unique_names
from bot.domain.messages import ToolCall
from bot.domain.tools import Tool
from bot.i18n import _, gettext_lazy

LONGEST_ARGUMENTS = 100_000
_ARGUMENTS = Parameter(
    "arguments", gettext_lazy("a JSON object, or KEY=VALUE for each argument"), repeated=True, metavar="JSON|KEY=VALUE"
)


class ManualCalls:
    """Verb that runs a tool."""

    def __init__(self, directory: ServerDirectory) -> None:
        self._directory = directory

    @property
    def handler(self) -> VerbHandler:
        """Return the verb."""
        verb = Verb("run", gettext_lazy("run a tool by hand"), (SERVER, TOOL, _ARGUMENTS), aliases=("call", "exec"))
        return VerbHandler(verb, self._run, free=True)

    async def _run(self, request: CommandContext) -> AsyncIterator[Reply]:
        server = await self._directory.find_synced(request.arguments.get("server"), request.conversation)
        tool = self._directory.find_tool(server, request.arguments.get("tool"))
        arguments = _arguments(request.arguments.get_all("arguments"), tool)
        tool = self._directory.by_server(tool)
        message = manual_call(tool, arguments, request.conversation, request.author)
        yield Reply(_("Running {tool}…", tool=code(tool.name, _("a tool"))), message=message, private=False)


def manual_call(
    tool: Tool, arguments: Mapping[str, Any], conversation: ConversationKey, author: Author, text: str = ""
) -> InboundMessage:
    """Return a message to the engine that calls a tool: a turn of its own, under the same policy and approval as the
    model's calls. `text` describes it, in place of the tool's name.
    """
    call_id = secrets.token_hex(16)
    return InboundMessage(
        (f"run:{call_id}",),
        conversation,
        author,
        text or _("Run {tool}", tool=f"{tool.server}.{tool.original_name}"),
        call=ToolCall(f"run-{call_id}", tool.name, arguments),
    )


def question_with(call: ToolCall, text: str, conversation: ConversationKey, author: Author) -> InboundMessage:
    """Return a question to the engine with the result of a call, which runs before the model is asked."""
    return InboundMessage((f"attached:{call.id}",), conversation, author, text, attached=(call,))


def attached_call(tool: Tool, arguments: Mapping[str, Any]) -> ToolCall:
    """Return a call to attach to a question."""
    return ToolCall(f"attached-{secrets.token_hex(16)}", tool.name, arguments)


def parse_pairs(words: Sequence[str]) -> dict[str, str]:
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


def _arguments(words: Sequence[str], tool: Tool) -> dict[str, Any]:
    """Parse the arguments of a call: one JSON object, or pairs with values parsed by the tool's schema."""
    if sum(map(len, words)) > LONGEST_ARGUMENTS:
        raise CommandRejected(_("That is more than a call by hand takes."))
    text = " ".join(words).strip()
    if text.startswith("{"):
        return dict(_json(text, _("The arguments are no JSON object. A shell takes one in single quotes.")))
    properties = tool.input_schema.get("properties", {})
    known = properties if isinstance(properties, Mapping) else {}
    pairs = parse_pairs(words)
    unknown = next((name for name in pairs if known and name not in known), None)
    if unknown is not None and tool.input_schema.get("additionalProperties") is False:
        raise CommandRejected(sentences(_("The tool takes no such argument."), did_you_mean(unknown, known)))
    return {name: _value(text, known.get(name)) for name, text in pairs.items()}


def _value(text: str, schema: object) -> Any:
    """Parse a value: text if the schema wants text, else JSON if possible."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    if wanted == "string":
        return text
    if wanted is None and not text.startswith(("{", "[")):
        return text
    try:
        return _json(text, "")
    except CommandRejected:
        return text


def _json(text: str, objection: str) -> Any:
    """Parse JSON. Raises CommandRejected, also for values that JSON cannot represent or no database stores: NaN, 1e999,
    half a surrogate pair, excessive nesting.
    """
    try:
        read = json.loads(text, object_pairs_hook=unique_names)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except DuplicateName as error:
        raise CommandRejected(_("The arguments cannot be used: {error}.", error=error)) from None
    except (ValueError, RecursionError):
        raise CommandRejected(objection) from None
    if exceeds_json_depth(read):
        raise CommandRejected(objection)
    return read
