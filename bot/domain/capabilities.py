"""Capabilities of an MCP server: tools, resources, prompts."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.tools import Tool


@dataclass(frozen=True, slots=True)
class Resource:
    """Something to read. `size` is in bytes, None if the server did not say."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """Resources under one pattern of addresses (RFC 6570)."""

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
    """A text that a server writes for people to ask with."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """A server that begins with a handshake, as all did before 2026: over which transport, in a word, and where
    (`bot.mcp.endpoint_fingerprint`). `found_at` is in epoch seconds.
    """

    transport: str
    place: str
    found_at: float


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """Everything one server offers, and how it is spoken to."""

    tools: tuple[Tool, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    server_version: str = ""
    protocol: str = ""
    handshake: Handshake | None = None


@dataclass(frozen=True, slots=True)
class TextContents:
    """Text that a server gave out, as a resource or in a prompt. `heading` says what it is: an address, a role."""

    heading: str
    text: str
    mime_type: str = ""


@dataclass(frozen=True, slots=True)
class BlobContents:
    """Something a server gave out that is no text. `size` is in bytes."""

    heading: str
    mime_type: str
    size: int


Piece = TextContents | BlobContents
