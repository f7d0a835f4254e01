"""Servers to add: those known by name, with the values that each needs, and the packages that command lines fetch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from bot.domain.servers import AuthenticationKind, HttpKind
from bot.i18n import _

_PLACEHOLDER = re.compile(r"\{([a-z0-9_]+)\}")
_FIXED = re.compile(r"(?:@|==)v?(?:\d+!)?\d+((?:\.\d+)*)(?:[-+a-z][\w.+-]*)?")
"""Fixed version after a package name: `@1.2.3`, `==1.2.3`. Tags such as `latest`, and ranges, are not fixed."""
_OF_NPM = frozenset(("npx", "bunx"))
"""Programs that treat a version of fewer than three numbers as a range."""
_NAMING = {"npx": ("-p", "--package"), "bunx": ("-p", "--package"), "uvx": ("--from",), "pipx": ("--spec",)}
"""Programs that fetch packages, and their options for a package that is not the first argument."""
_TAKES_VALUE = frozenset(
    ("--python", "-p", "--with", "--index", "--index-url", "--registry", "--cache", "-c", "--call")
)
_GENERIC = re.compile(r"^(?:mcp-server|server|mcp)-|-(?:mcp-server|server-mcp|mcp|server)$")
"""Parts of the names of packages that say that it is a server."""
_ONLY_GENERIC = frozenset(("mcp", "server", "mcp-server", "server-mcp"))


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
class CatalogServer:
    """Server with an address, or with a command line in groups of words. A group is left out if one of its inputs has
    no value. `headers` and `variables` are names and texts; `{input}` in a text stands for a value. `bundled` ones come
    with this program, others from a registry.
    """

    name: str
    title: str = ""
    description: str = ""
    url: str = ""
    kind: HttpKind = HttpKind.STREAMABLE
    auth: AuthenticationKind = AuthenticationKind.NONE
    headers: tuple[tuple[str, str], ...] = ()
    command_line: tuple[tuple[str, ...], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
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


def unpinned_package(command: str, args: Sequence[str]) -> str:
    """Return the package without a fixed version; empty if there is none."""
    program, package = _fetched(command, args)
    return package if package and not _is_fixed(package, 2 if program in _OF_NPM else 0) else ""


def fetched_package(command: str, args: Sequence[str]) -> str:
    """Return the package that a command line fetches, with its version; empty if it fetches none."""
    return _fetched(command, args)[1]


def bare_package(package: str) -> str:
    """Return a package without its version."""
    return re.split(r"(?<=.)@|==|\[", package, maxsplit=1)[0]


def server_name(command: str, args: Sequence[str]) -> str:
    """Return a short name for the server of a command line: `filesystem` for `npx -y @scope/server-filesystem`. It is
    not a slug yet.
    """
    program, package = _fetched(command, args)
    if package:
        scope, _, name = bare_package(package).rpartition("/")
        name = name.replace("_", "-")
        return scope.lstrip("@") if scope and name in _ONLY_GENERIC else _without_generic(name)
    if "-m" in args[:-1]:
        return _without_generic(args[args.index("-m") + 1].replace("_", "-"))
    return _without_generic(program.rpartition(".")[0] if program.endswith((".py", ".js", ".sh")) else program)


def short_name(name: str) -> str:
    """Return the telling part of a name: `desk` for `io.github.ana/desk-mcp`. It is not a slug yet."""
    return _without_generic(name.rpartition("/")[2])


def _fetched(command: str, args: Sequence[str]) -> tuple[str, str]:
    """Return the program that fetches, by its usual name, and the package; an empty package if it fetches none."""
    program = PurePosixPath(command).name
    arguments = list(args)
    if program == "uv" and arguments[:2] == ["tool", "run"]:
        program, arguments = "uvx", arguments[2:]
    elif program == "npm" and arguments[:1] == ["exec"]:
        program, arguments = "npx", arguments[1:]
    elif program == "pipx" and arguments[:1] == ["run"]:
        arguments = arguments[1:]
    elif program == "pipx":
        return program, ""
    return program, _package(arguments, _NAMING[program]) if program in _NAMING else ""


def _is_fixed(package: str, points: int) -> bool:
    at = package.rfind("@") if package.rfind("@") > 0 else package.find("==")
    fixed = _FIXED.fullmatch(package[at:]) if at > 0 else None
    return fixed is not None and fixed[1].count(".") >= points


def _package(arguments: list[str], naming: Sequence[str]) -> str:
    left = list(arguments)
    while left:
        word = left.pop(0)
        option, assigned, value = word.partition("=")
        if option in naming:
            return value if assigned else (left[0] if left else "")
        if word in _TAKES_VALUE and left:
            left.pop(0)
        elif not word.startswith("-"):
            return word
    return ""


def _without_generic(name: str) -> str:
    shorter = _GENERIC.sub("", name, count=1)
    return shorter or name
