"""HTML pages: their layout and headers.

A document has no script and loads no resources. Its style sheet is inline and allowed by its hash in the
Content-Security-Policy. Text from outside goes through `text_of`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Final

from bot.domain.conversations import Author
from bot.rendering.text_safety import single_line

_LONGEST = 300
_PLATFORMS = {"slack": "on Slack", "discord": "on Discord", "api": "over HTTP", "console": "at the bot's own machine"}

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #f4f5f7; --paper: #fff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --edge: #6e7781; --strong: #14532d; --on-strong: #fff; --wrong: #a40e26; --wrong-paper: #fff1f2; --ring: #0a58ca }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --paper: #161b22; --ink: #e6edf3; --soft: #9ea7b3;
  --line: #30363d; --edge: #8b949e; --strong: #a7e3bb; --on-strong: #0b2415; --wrong: #ff9aa5; --wrong-paper: #2d1519;
  --ring: #79b8ff } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans",
    "DejaVu Sans", sans-serif }
main { max-width: 34rem; margin: 0 auto; padding: clamp(1rem, 6vw, 4rem) 1rem 2rem }
.brand { margin: 0 0 .75rem; color: var(--soft); font-weight: 600; letter-spacing: .01em }
article { background: var(--paper); border: 1px solid var(--line); border-radius: .75rem;
  padding: clamp(1.1rem, 5vw, 2rem) }
h1 { margin: 0 0 .75rem; font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere }
p { margin: 0 0 1rem; overflow-wrap: anywhere } article > :last-child { margin-bottom: 0 }
dl { margin: 0 0 1.5rem; display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem }
dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
label { display: block; font-weight: 600; margin-bottom: .15rem; overflow-wrap: anywhere }
.hint { color: var(--soft); font-size: .925rem; margin: 0 0 .5rem }
input { display: block; width: 100%; min-height: 2.9rem; padding: .5rem .75rem; font: inherit; color: inherit;
  background: var(--paper); border: 1px solid var(--edge); border-radius: .5rem }
button { min-height: 2.9rem; margin-top: 1.1rem; padding: .5rem 1.4rem; font: inherit; font-weight: 600;
  cursor: pointer; color: var(--on-strong); background: var(--strong); border: 1px solid var(--strong);
  border-radius: .5rem }
input:focus-visible, button:focus-visible { outline: 3px solid var(--ring); outline-offset: 2px }
.error { color: var(--wrong); font-weight: 600; margin: 0 0 .5rem } .error + input { border: 2px solid var(--wrong) }
.notice { background: var(--wrong-paper); color: var(--ink); border-left: 4px solid var(--wrong); border-radius: .25rem;
  padding: .7rem .9rem }
code { font: .95em ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace }
@media (max-width: 26rem) { dl { grid-template-columns: 1fr; gap: 0 } dd { margin-bottom: .6rem }
  button { width: 100% } }
@media (forced-colors: active) { article, button { border: 1px solid } }
"""

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; "
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}
"""Headers of every page."""


@dataclass(frozen=True, slots=True)
class HtmlDocument:
    """A page with its status and headers."""

    status: int
    html: str
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)


def text_page(
    status: int, title: str, text: str, advice: str, headers: Mapping[str, str] | None = None
) -> HtmlDocument:
    """Return a page of two sentences of HTML."""
    return page(status, title, f"<h1>{title}</h1><p>{text}</p><p>{advice}</p>", headers)


def page(status: int, title: str, body: str, headers: Mapping[str, str] | None = None) -> HtmlDocument:
    """Return a page with a plain-text title and a body of HTML."""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow"><meta name="referrer" content="no-referrer">'
        f"<title>{title} · Countersign</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="brand">Countersign</p><article>{body}</article></main></body></html>\n'
    )
    return HtmlDocument(status, html, {**HEADERS, **(headers or {})})


def escape_text(text: str, longest: int = _LONGEST) -> str:
    """Escape text from outside as HTML on one line."""
    return escape(single_line(text, longest))


def user_html(user: Author) -> str:
    """Return a user's name and platform as HTML."""
    platform = _PLATFORMS.get(user.platform, f"on {user.platform}")
    return f"<b>{escape_text(user.name or user.id)}</b> {escape_text(platform)}"
