"""Command lines that fetch a package and run it: the package, whether its version is fixed, and a name for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

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
        return _package_name(package)
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


def _package_name(package: str) -> str:
    scope, _, name = bare_package(package).rpartition("/")
    name = name.replace("_", "-")
    return scope.lstrip("@") if scope and name in _ONLY_GENERIC else _without_generic(name)


def _without_generic(name: str) -> str:
    shorter = _GENERIC.sub("", name, count=1)
    return shorter or name
