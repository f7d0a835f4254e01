"""Capabilities of an MCP server: tools, resources, prompts."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.tools import Tool


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
    """Everything one server offers, with its protocol version."""

    tools: tuple[Tool, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    server_version: str = ""
    protocol: str = ""
    handshake: Handshake | None = None


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
