"""Markdown text split into messages, and without active content for platforms that render it themselves.

Each message is complete Markdown, and none is larger than its limit.

Pass text that `text_safety` has cleaned. A growing text is split at the same places each time, and text once in a
message stays there, except blanks at its end, so that messages can be sent during the reply. An open code block is
closed at the split and reopened, a table restarts with its headings, a nested list moves to the left.

Sanitized text mentions no user, fetches no picture, and links only to permitted targets, shown beside deceptive labels.
The words stay unchanged; an invisible word joiner disables each active part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from bot.rendering.text_safety import is_deceptive, safe_url, strip_control

_FENCE = re.compile(r"^(?P<indent> *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(?P<fence>`{3,100}|~{3,100})(?P<info>[^\n]*)")
_ITEM = re.compile(r"^ *([-*+]|\d{1,9}[.)])(\s|$)")
_DELIMITER = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_LONGEST_INFO = 60
_LINES_FROM, _WORDS_FROM = 0.85, 0.92
"""From these fractions of `most` on a text is cut between lines that belong together, and within a line."""


def text_weight(text: str) -> int:
    """Return the size of a text on the wire: bytes of UTF-8, and the bytes for escaping `&`, `<` and `>`."""
    return len(text.encode("utf-8", "replace")) + 4 * text.count("&") + 3 * (text.count("<") + text.count(">"))


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Size limit of one message, as `weigh` counts: from `good` on it ends at the end of a block. It never exceeds
    `most`, which is at least 1,000.
    """

    good: int
    most: int
    weigh: Callable[[str], int] = text_weight

    def after(self, used: int) -> SizeLimit:
        """Return the rest of the limit."""
        return SizeLimit(max(self.good - used, 0), max(self.most - used, 0), self.weigh)


def split(markdown: str, room: SizeLimit) -> tuple[str, ...]:
    """The whole text, message by message."""
    found = []
    rest = markdown
    while rest:
        part, rest = split_once(rest, room)
        found.append(part)
    return tuple(found)


def split_once(markdown: str, room: SizeLimit) -> tuple[str, str]:
    """Return the text of one message and the start of the next one; empty at the end of the text. Without any room
    the message is empty.
    """
    scan = _Scan(room)
    for line in _lines(markdown):
        if scan.ends_before(line) or scan.ends_within(line):
            return scan.before(markdown), scan.behind(markdown)
        scan.read(line)
    return markdown, ""


def _lines(text: str) -> list[str]:
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


@dataclass(slots=True)
class _Scan:
    """Lines in, the place of the cut out."""

    room: SizeLimit
    at: int = 0
    used: int = 0
    blank: bool = True
    listed: bool = False
    last: str = ""
    fence: str = ""
    info: str = ""
    indent: int = 0
    head: list[str] = field(default_factory=list)
    """The headings of the table that is being read, and the line below them."""

    @property
    def most(self) -> int:
        """A cut in a code block needs room for its end."""
        return self.room.most - (len(self.fence) + self.indent + 2 if self.fence else 0)

    def read(self, line: str) -> None:
        """Go past a line."""
        self.at += len(line)
        self.used += self.room.weigh(line)
        if self.fence:
            self._read_code(line)
        else:
            self._read_text(line)
        self.blank = not line.strip()
        self.last = line

    def ends_before(self, line: str) -> bool:
        """Return True if the message ends here. Blanks at an unfinished end decide nothing."""
        if not line.strip() and not line.endswith("\n"):
            return False
        if not self.fence and self.used >= self.room.good and self._starts_block(line):
            return True
        if self.used < self.room.most * _LINES_FROM or not self.used:
            return False
        if self.fence:
            return not line.lstrip().startswith(self.fence[0])
        return bool(self.head) or "|" not in self.last

    def ends_within(self, line: str) -> bool:
        """Return True if the message ends within this line: after a blank, if one is late enough."""
        if self.used + self.room.weigh(line) < self.room.most * _WORDS_FROM:
            return False
        used = self.used
        for index, character in enumerate(line):
            used += self.room.weigh(character)
            over = used > self.most
            wordwise = character == " " and used >= self.room.most * _WORDS_FROM and line[: index + 1].strip()
            if over or (wordwise and line[index + 1 :].strip()):
                self.at += index if over else index + 1
                self.indent = self.indent if self.fence else _indent(line)
                self.blank = self.blank and not index
                return True
        return False

    def before(self, text: str) -> str:
        """The message, whole."""
        head = text[: self.at]
        if not self.fence:
            return head
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{' ' * self.indent}{self.fence}"

    def behind(self, text: str) -> str:
        """Return the text of the next message and everything after it."""
        rest = text[self.at :]
        if self.fence:
            return f"{self.fence}{self.info}\n{_to_the_left(rest, self.indent)}"
        if self.head:
            return "".join(self.head) + rest
        return _to_the_left(rest, _indent(rest) or self.indent) if self.listed else rest

    def _starts_block(self, line: str) -> bool:
        return line[0] == "#" or (self.blank and not line[0].isspace())

    def _read_code(self, line: str) -> None:
        closing = line.strip()
        if closing.startswith(self.fence) and not closing.strip(self.fence[0]):
            self.fence, self.indent = "", 0

    def _read_text(self, line: str) -> None:
        if _ITEM.match(line):
            self.listed = True
        elif self.blank and line.strip() and not line[0].isspace():
            self.listed = False
        if not line.strip():
            self.head = []
        elif not self.head and "|" in self.last and _DELIMITER.match(line.rstrip("\n")):
            self.head = [self.last, line] if self.room.weigh(self.last + line) <= self.room.good // 2 else []
        if opened := self._opened(line):
            self.fence, self.indent = opened["fence"], len(opened["indent"])
            self.info = opened["info"].strip()[:_LONGEST_INFO]

    def _opened(self, line: str) -> re.Match[str] | None:
        """The code block that a line opens. After backticks there can be no backtick (CommonMark, section 4.5)."""
        match = _FENCE.match(line)
        if not match or (match["fence"][0] == "`" and "`" in match["info"]):
            return None
        return match if self.listed or len(match["indent"]) <= 3 else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _to_the_left(text: str, columns: int) -> str:
    """The text with as many blanks less before each line, up to the first line that has not got them."""
    lines = _lines(text)
    for number, line in enumerate(lines):
        if line.strip() and _indent(line) < columns and number:
            break
        lines[number] = line[min(columns, _indent(line)) :]
    return "".join(lines)


JOINER = "\N{WORD JOINER}"

_LABEL, _TARGET = r"[^\[\]\n]{0,300}", r"[^()\s]{0,500}(?:\([^()\s]{0,100}\)[^()\s]{0,500})?"
_LINK = rf"!?\[(?P<label>{_LABEL})\]\((?P<target>{_TARGET})\)"
_ANGLE = r"<(?P<angle>[^<>\s]{0,500})>"
_ACTIVE = re.compile(
    rf"{_LINK}|{_ANGLE}"
    r"|(?P<call>(?<![\w.+/?=&%-])[@#](?=[A-Za-z]))"  # @here, @ana, #general
    r"|(?P<entity>&(?:lt|#0*60|#[xX]0*3[cC]);(?=[!@#a-zA-Z]))"  # the same, should somebody read it twice
    r"|(?P<mark><(?=[!@#a-zA-Z]))"  # <!channel>, <@U1>, <https://x|y>
    r"|(?P<join>\](?=[(\[:]))"  # what is no link above must not become one
)
_MARKED = re.compile(r"[<>]|&(?:lt|#0*60|#[xX]0*3[cC]);")
"""Characters that no address contains; a renderer that reads mentions first would find one in them."""
_UNDECIDED = re.compile(rf"(?:!|!?\[{_LABEL}(?:\](?:\([^\s]{{0,1100}})?)?|<[^<>\s]{{0,500}})\Z")


def sanitize(markdown: str) -> str:
    """Return a whole text without active content."""
    return _ACTIVE.sub(_made_inert, strip_control(markdown))


def sanitize_partial(markdown: str) -> str:
    """Return a growing text without active content. Each result begins with the one before; the last equals `sanitize`
    without trailing blanks. A possible beginning of a link is held back.
    """
    text = strip_control(markdown)
    if waits := _UNDECIDED.search(text[-2000:]):
        text = text[: len(text) - len(waits.group())]
    return _ACTIVE.sub(_made_inert, text).rstrip()


def _made_inert(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "target":
            return _link(match["label"], match["target"])
        case "angle":
            return _address(match["angle"])
        case _:
            return match.group() + JOINER


def _link(label: str, target: str) -> str:
    inside = _ACTIVE.sub(_made_inert, label)
    if not _leads(target):
        return f"[{inside}]{JOINER}({_ACTIVE.sub(_made_inert, target)})"
    shown = f"[{inside or target}]({target})"
    return f"{shown} ({target})" if label and is_deceptive(label, target) else shown


def _leads(target: str) -> bool:
    return bool(safe_url(target)) and not _MARKED.search(target)


def _address(inside: str) -> str:
    """`<https://example.com>` is an address; everything else in angle brackets is text."""
    if _leads(inside) and "|" not in inside:
        return f"<{inside}>"
    return f"<{JOINER}{_ACTIVE.sub(_made_inert, inside)}>"
