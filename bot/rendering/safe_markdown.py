"""External Markdown for platforms that render it themselves, without active content.

No user is mentioned, no picture is fetched, and links lead only to permitted targets (`links`), shown beside deceptive
labels. The words stay unchanged; an invisible word joiner disables each active part.
"""

from __future__ import annotations

import re

from bot.rendering.text_safety import is_deceptive, safe_url, strip_control

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
