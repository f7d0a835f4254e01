"""`/mcp resource`, `prompt`, `run`: what servers offer, used by hand. A call goes the way of every call: a turn of its
own, under the same policy and approval.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot.commands.call_builder import CallBuilder
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.parameters import SERVER, TOOL
from bot.commands.rejections import CommandRejected
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import code, did_you_mean, server_label
from bot.domain.capabilities import BlobContents, Piece, TextContents
from bot.domain.commands import CompletionSource, Parameter, Reply, Verb
from bot.domain.json_depth import exceeds_json_depth
from bot.domain.lenient_json import DuplicateName, unique_names
from bot.domain.tools import Tool

LONGEST_ARGUMENTS = 100_000
_ARGUMENTS = Parameter(
    "arguments", "a JSON object, or KEY=VALUE for each argument", repeated=True, metavar="JSON|KEY=VALUE"
)


class ManualCalls:
    """Reads, writes out and runs."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._servers = parts.servers
        self._directory = directory
        self._calls = CallBuilder(parts, directory)

    @property
    def deeds(self) -> tuple[VerbHandler, ...]:
        """The verbs."""
        uri = Parameter("uri", "its address", required=True, completes=CompletionSource.RESOURCES)
        prompt = Parameter("prompt", "the prompt's name", required=True, completes=CompletionSource.PROMPTS)
        values = Parameter("arguments", "what the prompt takes", repeated=True, metavar="KEY=VALUE")
        return (
            VerbHandler(
                Verb("run", "run a tool by hand", (SERVER, TOOL, _ARGUMENTS), aliases=("call", "exec")),
                self._run,
                free=True,
            ),
            VerbHandler(
                Verb("resource", "read a resource", (SERVER, uri), aliases=("read",)), self._resource, free=True
            ),
            VerbHandler(Verb("prompt", "have a prompt written out", (SERVER, prompt, values)), self._prompt, free=True),
        )

    async def _resource(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        pieces = await self._servers.read_resource(seen.id, request.arguments.one("uri"))
        yield _written(f"Read from {server_label(seen.config)}", pieces)

    async def _prompt(self, request: CommandContext) -> AsyncIterator[Reply]:
        arguments = request.arguments
        seen = await self._calls.found(arguments.one("server"), request.conversation)
        pieces = await self._calls.written(seen, arguments.one("prompt"), _pairs(arguments.many("arguments")))
        yield _written(f"Written by {server_label(seen.config)}", pieces)

    async def _run(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._calls.found(request.arguments.one("server"), request.conversation)
        tool = self._calls.tool(seen, request.arguments.one("tool"))
        arguments = _arguments(request.arguments.many("arguments"), tool)
        message = self._calls.call(tool, arguments, request.conversation, request.author)
        yield Reply(f"Running {code(tool.name, 'a tool')}…", message=message, private=False)


def _written(text: str, pieces: Sequence[Piece]) -> Reply:
    """What a server gave out, as it stands: it is data, and nobody's Markdown."""
    details = tuple(_piece(piece) for piece in pieces)
    return Reply(f"{text}:" if details else f"{text}: nothing.", details=details)


def _piece(piece: Piece) -> tuple[str, str]:
    match piece:
        case TextContents(heading, text):
            return heading, text
        case BlobContents(heading, mime_type, size):
            return heading, f"{size} bytes, {mime_type or 'of an unknown kind'}"


def _pairs(words: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        key, assigned, value = word.partition("=")
        if not assigned or not key:
            raise CommandRejected("Each argument is `KEY=VALUE`.")
        if key in pairs:
            raise CommandRejected(f"The arguments cannot be used: {DuplicateName(key)}.")
        pairs[key] = value
    return pairs


def _arguments(words: Sequence[str], tool: Tool) -> dict[str, Any]:
    """The arguments of a call: one JSON object, or pairs whose values are read as their schema wants them."""
    if sum(map(len, words)) > LONGEST_ARGUMENTS:
        raise CommandRejected("That is more than a call by hand takes.")
    text = " ".join(words).strip()
    if text.startswith("{"):
        return dict(_json(text, "The arguments are no JSON object. A shell takes one in single quotes."))
    properties = tool.input_schema.get("properties", {})
    known = properties if isinstance(properties, Mapping) else {}
    pairs = _pairs(words)
    stranger = next((name for name in pairs if known and name not in known), None)
    if stranger is not None and tool.input_schema.get("additionalProperties") is False:
        raise CommandRejected(f"The tool takes no such argument.{did_you_mean(stranger, known)}")
    return {name: _value(text, known.get(name)) for name, text in pairs.items()}


def _value(text: str, schema: object) -> Any:
    """A text stays one where the schema wants one; anything else is JSON where it can be."""
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
    """What a text says in JSON. Raises Refusal, also of what JSON cannot say again and no database would keep: NaN,
    1e999, half a character, brackets in brackets without end.
    """
    try:
        read = json.loads(text, object_pairs_hook=unique_names)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except DuplicateName as error:
        raise CommandRejected(f"The arguments cannot be used: {error}.") from None
    except (ValueError, RecursionError):
        raise CommandRejected(objection) from None
    if exceeds_json_depth(read):
        raise CommandRejected(objection)
    return read
