"""Pictures of the pages behind links in their states, from the documents that the program sends.

    make pictures

Chromium takes the pictures of the pages themselves. No request is sent, and nothing is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from photographs import photograph  # noqa: E402 - found through the line above
from starlette.responses import Response  # noqa: E402

from bot.admin.servers.secrets import (  # noqa: E402
    Denied,
    SecretPrompt,
    SecretRejected,
    SecretSaved,
    ServerChanged,
)
from bot.admin.servers.sign_in import SignInCompleted, SignInRejected  # noqa: E402
from bot.domain.conversations import Author, ConversationKey  # noqa: E402
from bot.domain.secrets import SecretLink  # noqa: E402
from bot.web.pages import secret_page, sign_in_page  # noqa: E402

WIDTH, NARROW, GAP = 620, 320, 12
NOW = 1_800_000_000.0
_DARK = "@media (prefers-color-scheme: dark)"
_LINK = SecretLink(
    "id", "auth", Author("slack", "U1", "Sam"), ConversationKey("slack", "T1", "C1", "1"), expires_at=NOW + 540
)
ENTRY = SecretPrompt(_LINK, "tickets", "Help desk", "API key", "https://tickets.example.com/mcp", 1)
LONG = SecretPrompt(
    _LINK,
    "workflows-of-the-finance-team",
    "Workflows of the finance team",
    "Value of the header X-Finance-Workflows-Token",
    "https://automation.internal.example.com/mcp/6f0a7d52-5b7e-4a55-9c0e-2f1b8f1f0c11",
    3,
)
ARRIVED = SignInCompleted("tickets", "Help desk", _LINK.person, 12)
_NOT_YET = SignInCompleted(
    "tickets",
    "Help desk",
    _LINK.person,
    0,
    "Server tickets did not answer within 10 s. Fix: check that an MCP server listens at its url, or raise its "
    "connect_timeout.",
)
_LONG_NAMED = SignInCompleted("workflows-of-the-finance-team", "Workflows of the finance team", _LINK.person, 31)
_DENIED = SignInRejected("The bot was not let in to tickets: it was denied.", "ask for another link")


@dataclass(frozen=True, slots=True)
class Picture:
    """States of a page side by side, each in a window of `width` pixels."""

    documents: tuple[str, ...]
    width: int = WIDTH


def main() -> None:
    """Draw all pictures and print their paths."""
    for name, picture in pictures().items():
        path = Path(__file__).with_name(f"web-{name}.png")
        photograph(_side_by_side(picture), path, 2 * picture.width + 3 * GAP)
        print(path.relative_to(PROJECT))


def pictures() -> Mapping[str, Picture]:
    """Return all pictures, by their names."""
    wrong = SecretRejected(ENTRY, "Only characters that can be sent in a header: plain ASCII on one line.")
    denied = Denied("Only slack:U2 can do this, and you cannot any more.")
    ends = (ServerChanged(ENTRY), SecretSaved(ENTRY), denied, None)
    faulty, saved = secret_page(wrong, NOW), secret_page(SecretSaved(LONG), NOW)
    rejected = sign_in_page(_DENIED)
    return {
        "link": Picture((_html(secret_page(ENTRY, NOW)), _dark(faulty))),
        "link-ends": Picture(tuple(_html(secret_page(each, NOW)) for each in ends)),
        "sign-in": Picture((_html(sign_in_page(ARRIVED)), _dark(sign_in_page(_NOT_YET)))),
        "sign-in-ends": Picture((_html(rejected), _html(sign_in_page(None)))),
        "sign-in-narrow": Picture((_html(sign_in_page(_LONG_NAMED)), _dark(rejected)), NARROW),
        "link-narrow": Picture((_html(secret_page(LONG, NOW)), _dark(saved)), NARROW),
    }


def _side_by_side(picture: Picture) -> str:
    """Return a page with two documents side by side, each in a frame of the document's height."""
    frames = "".join(f'<iframe srcdoc="{escape(document)}"></iframe>' for document in picture.documents)
    return (
        f"<!doctype html><meta charset=utf-8><style>body {{ margin: 0; padding: {GAP}px; background: #8a93a0; "
        f"display: grid; gap: {GAP}px; grid-template-columns: {picture.width}px {picture.width}px }} "
        f"iframe {{ border: 0; width: {picture.width}px }}</style><body>{frames}<script>"
        "addEventListener('load', () => { for (const frame of document.querySelectorAll('iframe')) "
        "frame.style.height = frame.contentDocument.documentElement.scrollHeight + 'px';"
        "document.title = document.documentElement.scrollHeight })</script>"
    )


def _html(document: Response) -> str:
    return bytes(document.body).decode()


def _dark(document: Response) -> str:
    """Return the document with its dark colors."""
    assert _DARK in _html(document)
    return _html(document).replace(_DARK, "@media all")


if __name__ == "__main__":
    main()
