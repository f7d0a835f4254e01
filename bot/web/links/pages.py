"""The page behind a one-time link, in all its states, as documents.

Called by `links`. Everything that is not written here is escaped on its way in; a document holds no script, loads
nothing, and says nothing of what was entered. Its one style sheet stands in it and is named by its hash in the policy.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Final

from bot.commands.secret_entry import Entry
from bot.rendering.plain import one_line

_LONGEST = 300
_PLATFORMS = {"slack": "on Slack", "discord": "on Discord", "api": "over HTTP"}
_ASK_AGAIN = "Ask for another one in the chat: <code>/mcp secret set NAME SLOT</code>"

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
"""What every state of the page is sent with."""


@dataclass(frozen=True, slots=True)
class Document:
    """One state of the page, and what it is sent with."""

    status: int
    html: str
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)


def asking(entry: Entry, now: float) -> Document:
    """The question."""
    return _document(200, "Enter a secret", _question(entry, now, "", ""))


def wrong(entry: Entry, now: float, why: str) -> Document:
    """The question again, with what is wrong beneath the field's name. What was entered is not repeated."""
    return _document(422, "Error: enter a secret", _question(entry, now, "", why))


def changed(entry: Entry, now: float) -> Document:
    """The question again: it is about something else now."""
    notice = (
        "The server was changed since you opened this page. Nothing was saved. Look at it again, then enter the secret."
    )
    return _document(409, "Error: enter a secret", _question(entry, now, notice, ""))


def done(entry: Entry) -> Document:
    """The secret is kept."""
    server = _text(entry.server)
    return _document(
        200,
        "The secret is kept",
        f"<h1>The secret is kept</h1><p>The bot connects to <b>{_text(entry.title)}</b> with it from now on. It is "
        "encrypted, and nobody sees it again.</p><p>Go back to the chat and say "
        f"<code>/mcp verify {server}</code>: it says whether the server takes it. You can close this page.</p>",
    )


def gone() -> Document:
    """For what never was a link, what was used and what is over: in the same words, so that nobody learns which."""
    return _plain(
        404,
        "This link is not good",
        "It was used already, its time is over, or it never was one.",
        _ASK_AGAIN,
    )


def denied(why: str) -> Document:
    """Whoever asked for the link may not do this any more. `why` is Markdown of our own."""
    return _plain(
        403, "This was not saved", _text(why.replace("`", ""), 1000), "The link is of no use to you any more."
    )


def unsure(why: str) -> Document:
    """Nobody could say whether they may. `why` is plain text."""
    return _plain(
        503,
        "This was not saved",
        f"It could not be found out whether you may still do this. {_text(why, 1000)}",
        "Open the link again in a moment.",
        {"Retry-After": "10"},
    )


def away() -> Document:
    """The database is away. Nobody outside need know where it is."""
    return _plain(
        503,
        "This does not work now",
        "The bot cannot reach its own database. Nothing was saved.",
        "Open the link again in a moment.",
        {"Retry-After": "10"},
    )


def too_often(seconds: float) -> Document:
    """Too many links that are none came from this address."""
    return _plain(
        429,
        "Too many wrong links",
        "Too many links that are not good were opened from where you are.",
        "Wait a minute, then open your link again.",
        {"Retry-After": str(math.ceil(seconds))},
    )


def unreadable(status: int) -> Document:
    """What was sent is not what the form sends, is too long, or came too slowly."""
    return _plain(
        status,
        "This was not saved",
        "What was sent could not be read.",
        "Open the link again and enter the secret there.",
    )


def _question(entry: Entry, now: float, notice: str, error: str) -> str:
    wanted, minutes = _text(entry.wanted), max(math.ceil((entry.link.expires_at - now) / 60), 1)
    person = entry.link.person
    platform = _PLATFORMS.get(person.platform, f"on {person.platform}")
    until = f"{datetime.fromtimestamp(entry.link.expires_at, UTC):%H:%M} UTC, in {minutes} minute{'s' * (minutes > 1)}"
    title = _text(entry.title) if entry.title == entry.server else f"{_text(entry.title)} ({_text(entry.server)})"
    # Where something is wrong the field has the focus, and whoever hears the page hears what it is.
    described, faulty = ("hint", "") if not error else ("error hint", ' aria-invalid="true" autofocus')
    told = f'<p class="notice" role="alert">{_text(notice)}</p>' if notice else ""
    wrong = f'<p class="error" id="error"><span>Error:</span> {_text(error)}</p>' if error else ""
    return (
        f"<h1>{wanted} for {_text(entry.title)}</h1>{told}"
        f"<p>This link was made for <b>{_text(person.name)}</b> {_text(platform)}. If that is not you, close this page."
        "</p><dl>"
        f"<dt>Server</dt><dd>{title}</dd><dt>Used at</dt><dd>{_text(entry.goes_to, 2100)}</dd>"
        f"<dt>Link is good until</dt><dd>{until}</dd></dl>"
        '<form method="post" accept-charset="utf-8" novalidate>'
        f'<input type="hidden" name="version" value="{entry.version}">'
        f'<label for="secret">{wanted}</label>'
        '<p class="hint" id="hint">Kept encrypted: nobody sees it again, and no log holds it.</p>'
        f'{wrong}<input type="password" id="secret" name="secret" required autocomplete="off" autocapitalize="none" '
        f'spellcheck="false" aria-describedby="{described}"{faulty}>'
        "<button>Keep the secret</button></form>"
    )


def _plain(status: int, title: str, said: str, then: str, headers: Mapping[str, str] | None = None) -> Document:
    """Two sentences of HTML."""
    return _document(status, title, f"<h1>{title}</h1><p>{said}</p><p>{then}</p>", headers)


def _document(status: int, title: str, body: str, headers: Mapping[str, str] | None = None) -> Document:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow"><meta name="referrer" content="no-referrer">'
        f"<title>{title} · Countersign</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="brand">Countersign</p><article>{body}</article></main></body></html>\n'
    )
    return Document(status, html, {**HEADERS, **(headers or {})})


def _text(text: str, longest: int = _LONGEST) -> str:
    """Text from elsewhere, on one line."""
    return escape(one_line(text, longest))
