"""The code of README and the guides: blocks, and commands of the chat between words.

A block is fenced, or indented by four blanks. Its language and its first line tell its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import dedent

PROJECT = Path(__file__).parents[2]
DOCUMENTS = (
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "docs" / "ja").glob("*.md")),
    *sorted((PROJECT / "mcp_servers").glob("*/README.md")),
)
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```|(?<=\n\n)((?:    [^\n]*\n|\n(?=    ))+)", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"[A-Z][A-Z_]*=(?!.* countersign )")
_COMMAND = re.compile(r"/(?:mcp|profile|agents|ask|conversations|usage|preferences|approvals)\b")
_IN_TEXT = re.compile(rf"`({_COMMAND.pattern}[^`]*)`")


class Kind(StrEnum):
    """The kind of a block."""

    SHELL = "shell"
    SETTINGS = "settings"
    CHAT = "chat"
    OUTPUT = "output"
    JSON = "json"
    TOML = "toml"
    YAML = "yaml"
    PYTHON = "python"
    OTHER = "other"
    """A file of another program."""


_LANGUAGES = {name: Kind(name) for name in ("json", "toml", "yaml", "python")}


@dataclass(frozen=True)
class Block:
    """One block of a document; `line` is where it begins, counted from 1."""

    document: str
    line: int
    language: str
    text: str

    @property
    def kind(self) -> Kind:
        """The content of the block."""
        lines = [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]
        if self.language == "sh":
            return Kind.SETTINGS if all(_SETTING.match(line) for line in lines) else Kind.SHELL
        if self.language:
            return _LANGUAGES.get(self.language, Kind.OTHER)
        return Kind.CHAT if lines[0].startswith("/") else Kind.OUTPUT

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(*kinds: Kind) -> list[Block]:
    """Every block of these kinds, of all kinds if none is named."""
    found = [block for document in DOCUMENTS for block in _of(document)]
    return [block for block in found if not kinds or block.kind in kinds]


def _of(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name = str(document.relative_to(PROJECT))
        yield Block(name, line, match[2] or "", dedent(match[3] or match[4]))


def chat_lines() -> dict[str, list[str]]:
    """Return the commands of the chat by document, in their order: lines of blocks without their comments, and those
    between words.
    """
    lines = {str(document.relative_to(PROJECT)): list(_chat_lines_of(document)) for document in DOCUMENTS}
    return {document: found for document, found in lines.items() if found}


def _chat_lines_of(document: Path) -> Iterator[str]:
    text = document.read_text(encoding="utf-8")
    places = [(match.start(), match[1]) for match in _IN_TEXT.finditer(_BLOCK.sub(_blank, text))]
    for match in _BLOCK.finditer(text):
        lines = dedent(match[3] or match[4]).splitlines()
        places += [(match.start(), re.split(r"\s{3,}", line)[0]) for line in lines if _COMMAND.match(line)]
    yield from (" ".join(line.split()) for _, line in sorted(places, key=lambda place: place[0]))


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") + " " * (len(match[0]) - match[0].count("\n"))
