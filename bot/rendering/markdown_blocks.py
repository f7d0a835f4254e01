"""Markdown that is still being written, cut into blocks that will not change any more and the rest.

It cuts between lines, loses nothing, and takes back nothing: more text only ever adds finished blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r"^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)")
_RULE = re.compile(r"^ {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$")
_ITEM_FENCE = re.compile(r"^\s*([-*+]|\d{1,9}[.)])\s+(?P<fence>`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class MarkdownBlocks:
    """Incremental splitter of Markdown: `finished` and `tail` together are the whole text."""

    finished: tuple[str, ...]
    tail: str


def split_blocks(text: str) -> MarkdownBlocks:
    """Cut a growing text. Fenced code, lists and tables stay in one piece; blank lines stay with the block above."""
    scan = _Scan()
    for line in _lines(text):
        if not line.endswith("\n"):
            break  # a line still being written decides nothing
        scan.read(line)
    finished = tuple(scan.blocks)
    return MarkdownBlocks(finished, text[sum(map(len, finished)) :])


def _lines(text: str) -> list[str]:
    """Lines as Markdown sees them: `str.splitlines` would also cut at separators that are part of a line."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@dataclass(slots=True)
class _Scan:
    """Complete lines in, finished blocks out."""

    blocks: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    fence: str = ""
    in_list: bool = False
    after_blank: bool = False

    def read(self, line: str) -> None:
        bare = line.rstrip("\n")
        if self.fence:
            self._in_fence(line, bare)
        elif not bare.strip():
            self._blank(line)
        elif self.in_list and self._continues_list(bare):
            self._in_list(line, bare)
        else:
            self._parse_outside_list(line, bare)

    def _in_fence(self, line: str, bare: str) -> None:
        self.block.append(line)
        closing = bare.strip()
        if closing.startswith(self.fence) and not closing.strip(self.fence[0]):
            self.fence = ""
            if not self.in_list:
                self._finish()

    def _blank(self, line: str) -> None:
        if not self.block:
            self._give_to_previous(line)
            return
        self.block.append(line)
        self.after_blank = True
        if not self.in_list:
            self._finish()

    def _continues_list(self, bare: str) -> bool:
        if _RULE.match(bare):
            return False
        return bool(_ITEM.match(bare)) or bare.startswith(("  ", "\t")) or not (self.after_blank or _starts_block(bare))

    def _in_list(self, line: str, bare: str) -> None:
        self.block.append(line)
        self.after_blank = False
        self.fence = _opening_fence(bare)

    def _parse_outside_list(self, line: str, bare: str) -> None:
        """Parse a line outside of a list: it begins a block, or continues a paragraph."""
        if self.in_list or _starts_block(bare) or (_ITEM.match(bare) and not _RULE.match(bare)):
            self._finish()
        self.block.append(line)
        self.fence = "" if bare.startswith("    ") else _opening_fence(bare)
        if _ITEM.match(bare) and not _RULE.match(bare):
            self.in_list = True
        elif _HEADING.match(bare):
            self._finish()

    def _finish(self) -> None:
        if self.block:
            self.blocks.append("".join(self.block))
        self.block = []
        self.in_list = self.after_blank = False

    def _give_to_previous(self, line: str) -> None:
        """Blank lines between blocks are blocks of their own, so that a block given out once never grows."""
        self.blocks.append(line)


def _starts_block(bare: str) -> bool:
    return bool(_HEADING.match(bare)) or bool(_opening_fence(bare) and not _ITEM_FENCE.match(bare))


def _opening_fence(bare: str) -> str:
    """Return the fence that a line opens, or None. The info string after backticks contains no backtick (CommonMark
    4.5).
    """
    if match := _FENCE.match(bare):
        fence, info = match["fence"], match["info"]
        return "" if fence[0] == "`" and "`" in info else fence
    match = _ITEM_FENCE.match(bare)
    return match["fence"] if match else ""
