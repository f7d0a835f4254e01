"""Capabilities of an MCP server: tools, resources, prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.tools import Tool

MOST_RESOURCES = 10_000
"""Maximum number of resources of a server that are listed."""
_EXPRESSION = re.compile(r"\{[+#./;?&]?([^{}]+)\}")
_MODIFIER = re.compile(r"\*$|:[0-9]+$")


@dataclass(frozen=True, slots=True)
class Resource:
    """Resource of a server. `size` is in bytes, None if the server does not say."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """Resources under one URI template (RFC 6570)."""

    pattern: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""

    @property
    def uri(self) -> str:
        """The pattern, where an address is shown."""
        return self.pattern

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the placeholders, in order."""
        names = (name for expression in _EXPRESSION.findall(self.pattern) for name in expression.split(","))
        return tuple(dict.fromkeys(_MODIFIER.sub("", name.strip()) for name in names))


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """Argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a server, a text for users to ask with."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """Record of a server that needs a handshake, as all did before 2026: its transport, and its place
    (`bot.mcp.config.checks`). `found_at` is in epoch seconds.
    """

    transport: str
    place: str
    found_at: float


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """Everything one server offers, with its protocol version. `instructions` (`ToolKind.INSTRUCTIONS`) is None if the
    server has none, or if they are not to be used. `left_out` are listed tools that cannot be offered, with the reason.
    `definition` is the digest of the server's definition at the time of the listing; empty if it is not known.
    """

    tools: tuple[Tool, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    server_version: str = ""
    protocol: str = ""
    handshake: Handshake | None = None
    instructions: Tool | None = None
    left_out: tuple[str, ...] = ()
    definition: str = ""

    @property
    def definitions(self) -> tuple[Tool, ...]:
        """The definitions that are pinned and reviewed: the tools and the instructions."""
        return self.tools if self.instructions is None else (*self.tools, self.instructions)


@dataclass(frozen=True, slots=True)
class CompletionTarget:
    """An argument of a prompt, or of a resource template by its pattern (`is_template`), with the begun value."""

    name: str
    argument: str
    value: str = ""
    is_template: bool = False


@dataclass(frozen=True, slots=True)
class TextContents:
    """Text from a server, of a resource or a prompt. `heading` is its address or role."""

    heading: str
    text: str
    mime_type: str = ""


@dataclass(frozen=True, slots=True)
class BlobContents:
    """Binary data from a server. `size` is in bytes."""

    heading: str
    mime_type: str
    size: int


Piece = TextContents | BlobContents


def find_resources(entries: Sequence[Resource | ResourceTemplate], query: str) -> Sequence[Resource | ResourceTemplate]:
    """Return the entries that hold words of the query, those with the most words first; all without a query."""
    words = tuple(dict.fromkeys(query.casefold().split()))
    if not words:
        return entries
    counts = [sum(word in text for word in words) for text in map(_searched_text, entries)]
    ranked = sorted(zip(counts, entries, strict=True), key=lambda pair: -pair[0])
    return [entry for count, entry in ranked if count]


def _searched_text(entry: Resource | ResourceTemplate) -> str:
    return f"{entry.uri}\n{entry.name}\n{entry.title}\n{entry.description}".casefold()
