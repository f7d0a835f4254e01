"""Tools offered to the model, outcomes of their calls, and the question about an unknown outcome.

That question asks a model if a call has run. It is a message of its conversation, so that all users there see it.
Writing the same text by hand gives no additional rights: it only removes tools.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from bot.domain.elicitations import ElicitationRequest
from bot.domain.flows import UNSET, Flow, Sends, Words, holds_address, takes_address
from bot.domain.messages import ToolCall, ToolResult
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext

OWN_SERVER = "countersign"
"""Server name of the bot's own tools. A server of the same name has its tools offered under other names
(`bot.mcp.review`).
"""
INVALID_ARGUMENTS = gettext_lazy("The arguments do not fit the tool, so nothing was sent.")
"""Beginning of the model's error message for arguments that do not match the schema."""
UNSURE = "It may or may not have happened."
"""Sentence between the reason and the advice in the model's message about an unknown outcome."""
_PREFIX = "The call "
_SUFFIX = (
    " was sent, but its answer got lost. Find out whether it happened, with tools that only read, and say what you "
    "found. Do not repeat the call."
)
_QUESTION = re.compile(rf"{_PREFIX}(\S{{1,200}}) with (.*){re.escape(_SUFFIX)}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Annotations:
    """A server's hints about a tool; None for a missing hint. They count only for trusted servers (MCP specification
    2026-07-28, server/tools: clients MUST consider annotations untrusted).
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    @property
    def may_destroy(self) -> bool:
        """True unless the tool only reads or says that it is not destructive (MCP specification, hints of tools)."""
        return self.read_only is not True and self.destructive is not False


class Risk(StrEnum):
    """Possible effect of a call on data, for users. UNKNOWN is of a server that is not trusted, and does not say that
    it destroys.
    """

    READS = "reads"
    WRITES = "writes"
    DESTRUCTIVE = "destructive"
    UNKNOWN = "unknown"


def risk_of(*, read_only: bool, destructive: bool, unknown: bool) -> Risk:
    """Return the risk of a tool with these properties, for its card and for lists."""
    match unknown, destructive, read_only:
        case True, _, _:
            return Risk.UNKNOWN
        case _, True, _:
            return Risk.DESTRUCTIVE
        case _, _, True:
            return Risk.READS
        case _:
            return Risk.WRITES


class ToolKind(StrEnum):
    """Request that a call of a tool sends. Resources and prompts of a server are tools too, so that they have the same
    rules, approvals, taint and audit. Their definitions are the bot's own.

    INSTRUCTIONS is the `instructions` text of a server: it is pinned and reviewed like a tool, and never called.
    """

    CALL = "call"
    LIST_RESOURCES = "list_mcp_resources"
    READ_RESOURCE = "read_mcp_resource"
    GET_PROMPT = "get_mcp_prompt"
    INSTRUCTIONS = "mcp:instructions"


@dataclass(frozen=True, slots=True)
class Tool:
    """Tool of a server. `name` is its name for the model, `server` and `original_name` are those for users. `server_id`
    is the destination of calls.
    """

    name: str
    server: str
    original_name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: Mapping[str, Any] | None = None
    annotations: Annotations = Annotations()
    trusted: bool = False
    server_id: str = ""
    flags: tuple[str, ...] = ()
    """Short notes on the definition for an admin to review; not a part of the definition."""
    place: str = ""
    """Digest of the server's address, or of the program that is started for it."""
    flow: Flow = UNSET
    kind: ToolKind = ToolKind.CALL
    preview: str = ""
    """Name, as its server gives it, of the tool that shows what a call is about; empty without one."""
    runs_elsewhere: bool = False
    """An agent runs the tool itself once a call is approved (`bot.domain.gateway`)."""
    _digests: list[str] = field(default_factory=list, init=False, compare=False, repr=False)
    """`definition`, once it was asked for: it takes seconds for thousands of tools. A changed tool begins anew."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """Schemas of the arguments by name. Servers write them, so each may be anything."""
        properties = self.input_schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def is_builtin(self) -> bool:
        """True for a tool of the bot itself."""
        return self.server == OWN_SERVER and not self.server_id

    @property
    def words(self) -> Words:
        """Author of the returned text: as set, or by the hints of a trusted server. A closed world may have several
        writers, so its text counts as the team's, not the user's own.
        """
        if self.flow.words is not None:
            return self.flow.words
        return Words.SHARED if self.trusted and self.annotations.open_world is False else Words.STRANGERS

    @property
    def sends(self) -> Sends:
        """Readers of the sent data: as set, or by the hints of a trusted server. A read-only tool without an address
        argument reaches only its server, unless the server marks its world as open.
        """
        if self.flow.sends is not None:
            return self.flow.sends
        if not self.trusted or self.annotations.open_world is True:
            return Sends.WORLD
        if self.annotations.open_world is False:
            return Sends.CLOSED
        return Sends.CLOSED if self.read_only and not takes_address(self.input_schema) else Sends.WORLD

    def sends_with(self, arguments: Mapping[str, Any]) -> Sends:
        """Return the readers of a call with these arguments. An address in them reaches the world, unless the settings
        or the hints exclude that.
        """
        is_set = self.flow.sends is not None or self.annotations.open_world is False
        return Sends.WORLD if not is_set and holds_address(arguments) else self.sends

    @property
    def read_only(self) -> bool:
        """True if a trusted server says that the tool changes nothing."""
        return self.trusted and self.annotations.read_only is True

    @property
    def may_delete(self) -> bool:
        """True if the tool may delete or overwrite data, by its hints. Reads of resources and prompts may not."""
        return self.kind is ToolKind.CALL and self.annotations.may_destroy

    @property
    def repeatable(self) -> bool:
        """True if a second run after a crash is safe: read-only or idempotent, as a trusted server says, or if the call
        has no effect here.
        """
        safe = self.annotations.read_only is True or self.annotations.idempotent is True
        return self.runs_elsewhere or (self.trusted and safe)

    @property
    def destructive(self) -> bool:
        """True if a call is decided like one that destroys data: by its hint, and each call of a tool of a server that
        is not trusted.
        """
        untrusted = self.kind is ToolKind.CALL and not self.trusted
        return untrusted or (self.annotations.destructive is True and not self.read_only)

    @property
    def unknown(self) -> bool:
        """True if nobody trusted says what the tool does, and it does not itself say that it destroys data."""
        return self.destructive and self.annotations.destructive is not True

    @property
    def risk(self) -> Risk:
        """Possible effect of a call on data, as users read it."""
        return risk_of(read_only=self.read_only, destructive=self.destructive, unknown=self.unknown)

    @property
    def definition(self) -> str:
        """Digest of everything the server says about the tool; changes with the tool."""
        if not self._digests:
            self._digests.append(self._digest())
        return self._digests[0]

    def _digest(self) -> str:
        return digest(
            {
                "name": self.original_name,
                "title": self.title,
                "description": self.description,
                "input": self.input_schema,
                "output": self.output_schema,
                "annotations": [
                    self.annotations.read_only,
                    self.annotations.destructive,
                    self.annotations.idempotent,
                    self.annotations.open_world,
                ],
            }
        )


class ToolSearch(StrEnum):
    """Use of tool search by a model with many tools."""

    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ServerGuidance:
    """The operator's notes for the model about a server. `instructions` are the server's own, as an admin accepted
    them; empty if they are not used.
    """

    server: str
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    """Offered name of a tool that is called with every question before the model is asked."""
    description: str = ""
    """Purpose of the server in a few words: tool search reads them."""
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools of one turn. `absent` names servers with missing tools and the reason, a sentence each, without text from
    a server; `unavailable` are the names of servers without tools now; `withheld` are names of tools that
    wait for an admin's review; `excluded` are those of servers excluded by the operator's settings.
    """

    tools: tuple[Tool, ...] = ()
    guidance: tuple[ServerGuidance, ...] = ()
    absent: tuple[str, ...] = ()
    unavailable: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    requests: tuple[Tool, ...] = ()
    """Resources and prompts of the servers as tools. Models reach them through the bot's own tools only."""
    by_server: tuple[Tool, ...] = ()
    """Tools that models know by other names, under those with their own server: for calls by hand at one server."""

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Everything that can be called: the tools and the `requests`."""
        return (*self.tools, *self.requests)

    def find(self, name: str) -> Tool | None:
        """Return the tool with this offered name, or None."""
        return next((tool for tool in (*self.callable_tools, *self.by_server) if tool.name == name), None)

    def guidance_for(self, server: str) -> ServerGuidance:
        """Return the operator's guidance for a server, empty without one."""
        return next((guide for guide in self.guidance if guide.server == server), ServerGuidance(server))


@dataclass(frozen=True, slots=True)
class ArgumentError:
    """Argument that does not match its tool's schema, with the reason. The name is empty if the error is about all
    arguments.
    """

    argument: str
    problem: str


@dataclass(frozen=True, slots=True)
class CallReturned:
    """The tool returned a result, which may be an error for the model."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class CallNotSent:
    """The call was not sent by this process, so it had no effect. `unreviewed`: an admin has to review its tool."""

    reason: str
    unreviewed: bool = False


@dataclass(frozen=True, slots=True)
class CallOutcomeUnknown:
    """The call was sent without a response: it may or may not have run."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallNeedsInput:
    """The server needs answers from the user, and the call sent again with them. `state` is returned unchanged with
    that call.
    """

    questions: tuple[ElicitationRequest, ...]
    state: str | None = field(default=None, repr=False)


ToolOutcome = CallReturned | CallNotSent | CallOutcomeUnknown | CallNeedsInput


def canonical_json(value: Any) -> str:
    """Return JSON with one spelling for equal values: sorted keys, no spaces, no optional escapes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    # A server's schema may hold half a surrogate pair.
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class PartChange:
    """Changed part of a definition (`input.properties.city.type`) or argument of a call, before and after as text. A
    side is None if the part is missing there.
    """

    name: str
    before: str | None
    after: str | None


def check_question(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the question about a call of this tool, with masked `arguments`."""
    return f"{_PREFIX}{name} with {json.dumps(arguments, ensure_ascii=False)}{_SUFFIX}"


def parse_check_question(question: str) -> ToolCall | None:
    """Return the call of unknown outcome that a question asks about, without its id; None for any other question. Its
    arguments are masked, and empty if they are unreadable.
    """
    match = _QUESTION.fullmatch(question)
    if match is None:
        return None
    try:
        arguments = json.loads(match[2])
    except (ValueError, RecursionError):
        arguments = {}
    return ToolCall("", match[1], arguments if isinstance(arguments, dict) else {})


def tools_for_check(offered: ToolSet, checked: ToolCall) -> ToolSet:
    """Return the tools without the checked one and without those that change data by their hints."""

    def allowed(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        return tuple(tool for tool in tools if tool.name != checked.name and not _changes(tool))

    tools = allowed(offered.tools)
    return replace(offered, tools=tools, requests=allowed(offered.requests), by_server=allowed(offered.by_server))


def count_risks(tools: Sequence[Tool]) -> str:
    """Format how many tools are a risk: `9 write, 2 destructive`; empty if all only read."""
    writes = sum(not (tool.read_only or tool.unknown) for tool in tools)
    destroys = sum(tool.risk is Risk.DESTRUCTIVE for tool in tools)
    unknown = sum(tool.unknown for tool in tools)
    texts = [_("{count} write", count=writes)] if writes else []
    texts += [_("{count} destructive", count=destroys)] if destroys else []
    texts += [_("{count} may read or write: unknown", count=unknown)] if unknown else []
    return format_enumeration(texts)


def count_tools(tools: Sequence[Tool]) -> str:
    """Format the number of tools with their risks: `31 tools, 9 write, 2 destructive`."""
    return format_enumeration(filter(None, (ngettext("{n} tool", "{n} tools", len(tools)), count_risks(tools))))


def _changes(tool: Tool) -> bool:
    """Return True if the hints of a tool say that it changes data; without hints, the rules decide."""
    hints = tool.annotations
    return tool.kind is ToolKind.CALL and (hints.read_only is False or bool(hints.destructive and not hints.read_only))
