"""Programs that fetch a package and run it: which package a command line means, and whether its version is fixed.

Called when the operator's launch templates are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_FIXED = re.compile(r"(?:@|==)v?(?:\d+!)?\d+((?:\.\d+)*)(?:[-+a-z][\w.+-]*)?")
"""What stands behind a name: `@1.2.3`, `==1.2.3`. Words such as `latest`, and ranges, fix nothing."""
_OF_NPM = frozenset(("npx", "bunx"))
"""Where a version of fewer than three numbers is a range."""
_NAMING = {"npx": ("-p", "--package"), "bunx": ("-p", "--package"), "uvx": ("--from",), "pipx": ("--spec",)}
"""Programs that do this, and the options by which they are told the package if it is not the first word."""
_TAKES_VALUE = frozenset(
    ("--python", "-p", "--with", "--index", "--index-url", "--registry", "--cache", "-c", "--call")
)


def unpinned_package(command: str, args: Sequence[str]) -> str:
    """The package that is fetched in whatever version is published at the moment; empty if there is none."""
    program = PurePosixPath(command).name
    words = list(args)
    if program == "uv" and words[:2] == ["tool", "run"]:
        program, words = "uvx", words[2:]
    elif program == "npm" and words[:1] == ["exec"]:
        program, words = "npx", words[1:]
    elif program == "pipx" and words[:1] == ["run"]:
        words = words[1:]
    elif program == "pipx":
        return ""
    if program not in _NAMING:
        return ""
    package = _package(words, _NAMING[program])
    return package if package and not _is_fixed(package, 2 if program in _OF_NPM else 0) else ""


def _is_fixed(package: str, points: int) -> bool:
    at = package.rfind("@") if package.rfind("@") > 0 else package.find("==")
    fixed = _FIXED.fullmatch(package[at:]) if at > 0 else None
    return fixed is not None and fixed[1].count(".") >= points


def _package(words: list[str], naming: Sequence[str]) -> str:
    left = list(words)
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
