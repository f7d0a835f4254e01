"""Pages of the OAuth callback in all its states. No text from the address is shown."""

from __future__ import annotations

import math

from bot.commands.oauth_callback import SignInCompleted, SignInRejected
from bot.commands.text_format import pluralize
from bot.web.html import HtmlDocument, document, person_of, plain, text_of

_ASK_AGAIN = "Ask for another link in the chat: <code>/mcp connect NAME</code>"


def signed_in_page(outcome: SignInCompleted) -> HtmlDocument:
    """Return the page for a completed sign-in."""
    title, server = text_of(outcome.title), text_of(outcome.server)
    facts = f"<dt>Server</dt><dd>{title if title == server else f'{title} ({server})'}</dd>"
    facts += f"<dt>Asked for by</dt><dd>{person_of(outcome.person)}</dd>"
    if outcome.problem:
        said = (
            f'<p class="notice" role="alert">It is not connected yet: {text_of(outcome.problem, 1000)}</p>'
            f"<p>In the chat <code>/mcp doctor {server}</code> looks for the reason. You can close this window.</p>"
        )
    else:
        facts += f"<dt>It has</dt><dd>{pluralize(outcome.tools, 'tool')}</dd>"
        said = "<p>Go back to the chat. You can close this window.</p>"
    return document(
        200,
        "The bot is signed in",
        f"<h1>The bot is signed in to {title}</h1><dl>{facts}</dl>{said}<p>Everybody who may use this server in the "
        "chat uses it as the account that you have just signed in with, under the rules that hold for its tools. If "
        "you do not know who asked for this, have the bot signed out: "
        f"<code>/mcp secret clear {server} sign-in</code></p>",
    )


def rejected_page(outcome: SignInRejected) -> HtmlDocument:
    """Return the page for a rejected sign-in."""
    fix = outcome.fix.rstrip(".")
    return plain(
        403,
        "The bot is not signed in",
        text_of(outcome.cause, 1000),
        f"What to do: {text_of(fix, 1000)}." if fix else _ASK_AGAIN,
    )


def unknown() -> HtmlDocument:
    """Return the same page for unknown, finished and expired sign-ins, so that they cannot be probed."""
    return plain(
        404,
        "This sign-in is not under way",
        "It was already finished, has expired after ten minutes, or never existed.",
        _ASK_AGAIN,
    )


def unavailable_page() -> HtmlDocument:
    """Return the page for an unavailable database, without its address."""
    return plain(
        503,
        "This does not work now",
        "The bot cannot reach its own database, so nothing was kept.",
        _ASK_AGAIN,
        {"Retry-After": "10"},
    )


def too_often(seconds: float) -> HtmlDocument:
    """Return the page for an address with too many unknown states."""
    return plain(
        429,
        "Too many wrong addresses",
        "Too many sign-ins that are not under way came from where you are.",
        f"Wait a minute. {_ASK_AGAIN}",
        {"Retry-After": str(math.ceil(seconds))},
    )
