"""Pages of a one-time link in all its states. Text from outside is escaped; entered secrets are never shown."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from bot.commands.secret_form import SecretPrompt
from bot.web.html import HtmlDocument, document, person_of, plain, text_of

_ASK_AGAIN = "Ask for another one in the chat: <code>/mcp secret set NAME SLOT</code>"


def form_page(entry: SecretPrompt, now: float) -> HtmlDocument:
    """Return the form."""
    return document(200, "Enter a secret", _question(entry, now, "", ""))


def invalid_page(entry: SecretPrompt, now: float, why: str) -> HtmlDocument:
    """Return the form with an error below the field. The entered value is not repeated."""
    return document(422, "Error: enter a secret", _question(entry, now, "", why))


def changed(entry: SecretPrompt, now: float) -> HtmlDocument:
    """Return the form for a server that was changed meanwhile."""
    notice = (
        "The server was changed since you opened this page. Nothing was saved. Look at it again, then enter the secret."
    )
    return document(409, "Error: enter a secret", _question(entry, now, notice, ""))


def done(entry: SecretPrompt) -> HtmlDocument:
    """Return the page for a saved secret."""
    server = text_of(entry.server)
    return document(
        200,
        "The secret is stored",
        f"<h1>The secret is stored</h1><p>The bot connects to <b>{text_of(entry.title)}</b> with it from now on. It is "
        "encrypted and never shown again.</p><p>Go back to the chat and say "
        f"<code>/mcp verify {server}</code>: it says whether the server takes it. You can close this page.</p>",
    )


def expired_page() -> HtmlDocument:
    """Return the same page for unknown, used and expired links, so that links cannot be probed."""
    return plain(
        404,
        "This link is not good",
        "It was already used, has expired, or never existed.",
        _ASK_AGAIN,
    )


def denied(why: str) -> HtmlDocument:
    """Return the page for a user who has lost the right to do this. `why` is Markdown of this project."""
    return plain(
        403, "This was not saved", text_of(why.replace("`", ""), 1000), "The link is of no use to you any more."
    )


def access_check_failed_page(why: str) -> HtmlDocument:
    """Return the page for a failed access check. `why` is plain text."""
    return plain(
        503,
        "This was not saved",
        f"It could not be found out whether you may still do this. {text_of(why, 1000)}",
        "Open the link again in a moment.",
        {"Retry-After": "10"},
    )


def unavailable_page() -> HtmlDocument:
    """Return the page for an unavailable database, without its address."""
    return plain(
        503,
        "This does not work now",
        "The bot cannot reach its own database. Nothing was saved.",
        "Open the link again in a moment.",
        {"Retry-After": "10"},
    )


def too_often(seconds: float) -> HtmlDocument:
    """Return the page for an address with too many invalid links."""
    return plain(
        429,
        "Too many wrong links",
        "Too many links that are not good were opened from where you are.",
        "Wait a minute, then open your link again.",
        {"Retry-After": str(math.ceil(seconds))},
    )


def unreadable(status: int) -> HtmlDocument:
    """Return the page for a submission that is malformed, too long or too slow."""
    return plain(
        status,
        "This was not saved",
        "What was sent could not be read.",
        "Open the link again and enter the secret there.",
    )


def _question(entry: SecretPrompt, now: float, notice: str, error: str) -> str:
    wanted, minutes = text_of(entry.wanted), max(math.ceil((entry.link.expires_at - now) / 60), 1)
    until = f"{datetime.fromtimestamp(entry.link.expires_at, UTC):%H:%M} UTC, in {minutes} minute{'s' * (minutes > 1)}"
    title = text_of(entry.title) if entry.title == entry.server else f"{text_of(entry.title)} ({text_of(entry.server)})"
    # On an error the field has the focus, so that screen readers announce it.
    described, faulty = ("hint", "") if not error else ("error hint", ' aria-invalid="true" autofocus')
    notice_html = f'<p class="notice" role="alert">{text_of(notice)}</p>' if notice else ""
    wrong = f'<p class="error" id="error"><span>Error:</span> {text_of(error)}</p>' if error else ""
    return (
        f"<h1>{wanted} for {text_of(entry.title)}</h1>{notice_html}"
        f"<p>This link was made for {person_of(entry.link.person)}. If that is not you, close this page."
        "</p><dl>"
        f"<dt>Server</dt><dd>{title}</dd><dt>Used at</dt><dd>{text_of(entry.goes_to, 2100)}</dd>"
        f"<dt>Link is good until</dt><dd>{until}</dd></dl>"
        '<form method="post" accept-charset="utf-8" novalidate>'
        f'<input type="hidden" name="version" value="{entry.version}">'
        f'<label for="secret">{wanted}</label>'
        '<p class="hint" id="hint">Stored encrypted: it is never shown again and never logged.</p>'
        f'{wrong}<input type="password" id="secret" name="secret" required autocomplete="off" autocapitalize="none" '
        f'spellcheck="false" aria-describedby="{described}"{faulty}>'
        "<button>Store the secret</button></form>"
    )
