"""Tools as the model is offered them, and where a call to one ends up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.domain.elicitations import ElicitationRequest
from bot.domain.flows import UNSET, Flow, Sends, Words, takes_address
from bot.domain.messages import ToolResult

OWN_SERVER = "countersign"
"""Server name of the bot's own tools. A server of the same name has its tools offered under other names
(`bot.mcp.tool_names`).
"""


@dataclass(frozen=True, slots=True)
class Annotations:
    """A server's hints about a tool; None where it said nothing. They count only if an operator trusts the server
    (MCP specification 2026-07-28, server/tools: clients MUST consider annotations untrusted).
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a server. `name` is what the model calls it, `server` and `original_name` are what people call it, and
    `server_id` is where a call goes.
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
    """A digest of where its server is, or of the program that is started for it."""
    flow: Flow = UNSET

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

    @property
    def read_only(self) -> bool:
        """True if a trusted server says that the tool changes nothing."""
        return self.trusted and self.annotations.read_only is True

    @property
    def repeatable(self) -> bool:
        """True if a second run after a crash is safe: read-only or idempotent, as a trusted server says."""
        return self.trusted and (self.annotations.read_only is True or self.annotations.idempotent is True)

    @property
    def destructive(self) -> bool:
        """True if the tool may destroy data. Hints can raise the risk without trust, never lower it."""
        if self.read_only:
            return False
        return self.annotations.destructive is True or (self.annotations.destructive is None and not self.trusted)

    @property
    def definition(self) -> str:
        """A fingerprint of everything the server said about the tool; it changes when the tool does."""
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
    """The operator's notes for the model about a server."""

    server: str
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    """The offered name of a tool that is called with every question before the model is asked."""
    description: str = ""
    """Purpose of the server in a few words: tool search reads them."""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools of one turn. `absent` names servers with missing tools and the reason, a sentence each, without text from
    a server; `withheld` are names of tools that wait for an admin's review; `barred` are those of servers excluded by
    the operator's settings.
    """

    tools: tuple[Tool, ...] = ()
    guidance: tuple[ServerGuidance, ...] = ()
    absent: tuple[str, ...] = ()
    withheld: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()

    def find(self, name: str) -> Tool | None:
        """The tool the model means by `name`, or None if it made the name up."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def guidance_for(self, server: str) -> ServerGuidance:
        """The operator's guidance for a server, empty if there is none."""
        return next((each for each in self.guidance if each.server == server), ServerGuidance(server))


@dataclass(frozen=True, slots=True)
class ArgumentError:
    """An argument that does not fit its tool's schema, and why; no name where it is about all of them."""

    argument: str
    problem: str


@dataclass(frozen=True, slots=True)
class CallReturned:
    """The tool answered; the answer may be an error that the model can read."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class CallNotSent:
    """The call never left this process: nothing happened, on anybody's word."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallOutcomeUnknown:
    """The call was sent and no answer came: it may or may not have happened."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallNeedsInput:
    """The server wants to know something before it does what was asked, and wants the call sent again with the answers.
    `state` goes along then, as it is.
    """

    questions: tuple[ElicitationRequest, ...]
    state: str | None = field(default=None, repr=False)


ToolOutcome = CallReturned | CallNotSent | CallOutcomeUnknown | CallNeedsInput

MISFIT = "The arguments do not fit the tool, so nothing was sent."
"""Begins what the model is told of a call whose arguments its server would refuse."""

UNSURE = "It may or may not have happened."
"""Stands between the reason and the advice in what the model is told of an unknown outcome."""


def canonical_json(value: Any) -> str:
    """JSON with one spelling for equal values: sorted keys, no spaces, no escapes beyond JSON's own."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    # A server's schema may hold half a surrogate pair.
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()
