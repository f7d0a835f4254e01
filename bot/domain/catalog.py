"""Servers that can be added by name: how each is reached or started, and the values that it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.servers import AuthenticationKind, HttpKind
from bot.i18n import _

_PLACEHOLDER = re.compile(r"\{([a-z0-9_]+)\}")


@dataclass(frozen=True, slots=True)
class CatalogInput:
    """Value that a user gives as `NAME=VALUE`. A secret is given as a reference, or entered later."""

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedText:
    """Header or variable; `{input}` in its text stands for a value."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CatalogServer:
    """Server with an address, or with a command line in groups of words. A group is left out if one of its inputs has
    no value. `bundled` ones come with this program, others from a registry.
    """

    name: str
    title: str = ""
    description: str = ""
    url: str = ""
    kind: HttpKind = HttpKind.STREAMABLE
    auth: AuthenticationKind = AuthenticationKind.NONE
    headers: tuple[NamedText, ...] = ()
    command_line: tuple[tuple[str, ...], ...] = ()
    variables: tuple[NamedText, ...] = ()
    inputs: tuple[CatalogInput, ...] = ()
    bundled: bool = False

    @property
    def place(self) -> str:
        """The address or the command line, with the inputs in braces."""
        return self.url or " ".join(word for group in self.command_line for word in group)

    @property
    def usage(self) -> str:
        """The inputs that have to be given, as words of a command. Secrets can be entered later."""
        needed = (item for item in self.inputs if item.required and not item.default and not item.secret)
        return " ".join(f"{item.name}=VALUE" for item in needed)

    @property
    def needs(self) -> str:
        """Requirements of a user in words: inputs, a secret, a sign-in."""
        secret = _("a secret") if any(item.required and item.secret for item in self.inputs) else ""
        sign_in = _("a sign-in") if self.auth is not AuthenticationKind.NONE else ""
        return ", ".join(filter(None, (self.usage, secret, sign_in)))


@dataclass(frozen=True, slots=True)
class CatalogResult:
    """Servers that a search has found, and why the registry was not searched, if it does not answer."""

    servers: tuple[CatalogServer, ...]
    problem: str = ""


def fill_text(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its inputs filled in; those without a value stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def inputs_of(text: str) -> list[str]:
    """Return the names of the inputs in a text."""
    return _PLACEHOLDER.findall(text)
