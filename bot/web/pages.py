"""Pages for browsers: the form behind a one-time link, the OAuth callback, and the client id metadata document.

They take no API token. Unknown links and sign-ins get the same page as finished and expired ones, so that they cannot
be probed. Each client may open only a few of them. A document has no script and loads no resources. Its style sheet is
inline and allowed by its hash in the Content-Security-Policy. Text from outside goes through `escape_text`.

The token of a one-time link is in its address. `GET` does not use up the link because chat previews fetch it. The
secret goes only to `SecretEntry`. The authorization code in the address of a callback is a secret until it is used.
Neither appears in logs, responses or other addresses.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.admin.browser_sessions import CONSOLE_PATH, SESSION_COOKIE
from bot.admin.servers.secrets import (
    PATH,
    AccessCheckFailed,
    Denied,
    Outcome,
    SecretEntry,
    SecretPrompt,
    SecretRejected,
    SecretSaved,
    ServerChanged,
)
from bot.admin.servers.sign_in import OAuthCallback, SignInCompleted, SignInRejected
from bot.admin.servers.sign_in import Outcome as SignInOutcome
from bot.domain.conversations import Author
from bot.domain.locales import Locale, use_locale
from bot.domain.sign_ins import CALLBACK_ID, CALLBACK_PATH, CLIENT_NAME, CLIENT_PATH
from bot.errors import DatabaseError
from bot.i18n import _, current_language, format_time, format_time_zone, gettext_lazy, ngettext
from bot.ports import AuthorizationResponse
from bot.rendering.text_safety import single_line
from bot.web.authentication import LoginThrottle
from bot.web.limits import READING_SECONDS, read_body
from bot.web.problems import Problem, problem_of_status

_LONGEST = 300
_PRODUCT = "Countersign"
_PLATFORMS = {"slack": "Slack", "discord": "Discord", "oidc": "OpenID Connect"}

_STYLE: Final = files("bot.web").joinpath("pages.css").read_text(encoding="utf-8")

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

log = logging.getLogger(__name__)
LARGEST_BODY = 16 * 1024
"""Longest submission in bytes: the longest secret, URL-encoded, and its other fields."""
_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"
_ASK_FOR_LINK = gettext_lazy("Ask for another one in the chat: <code>/mcp secret set NAME SLOT</code>")
_RETRY = {"Retry-After": "10"}
_STATE = re.compile(r"[A-Za-z0-9_-]{20,200}")
_LONGEST_CODE = 8_192
_LONGEST_PARAMETER = 2_048
_CACHE_SECONDS = 3_600
"""Seconds that clients may cache the client document."""
_ASK_FOR_SIGN_IN = gettext_lazy("Ask for another link in the chat: <code>/mcp connect NAME</code>")


def text_page(
    status: int, title: str, text: str, advice: str, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """Return a page of two sentences of HTML."""
    return page(status, title, f"<h1>{title}</h1><p>{text}</p><p>{advice}</p>", headers)


def page(status: int, title: str, body: str, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return a page in the current language, with a plain-text title and a body of HTML."""
    html = (
        f'<!doctype html><html lang="{current_language()}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow"><meta name="referrer" content="no-referrer">'
        f"<title>{title} · {_PRODUCT}</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="brand">{_PRODUCT}</p><article>{body}</article></main></body></html>\n'
    )
    return HTMLResponse(html, status, {**HEADERS, **(headers or {})})


def escape_text(text: str, longest: int = _LONGEST) -> str:
    """Escape text from outside as HTML on one line."""
    return escape(single_line(str(text), longest))


def user_html(user: Author) -> str:
    """Return a user's name and platform as HTML."""
    name = f"<b>{escape_text(user.name or user.id)}</b>"
    match user.platform:
        case "api":
            return _("{user} over HTTP", user=name)
        case "console":
            return _("{user} at the bot's own machine", user=name)
        case platform:
            return _("{user} on {platform}", user=name, platform=escape_text(_PLATFORMS.get(platform, platform)))


def _facts_html(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{label}</dt><dd>{html}</dd>" for label, html in facts) + "</dl>"


# -------------------- one-time links


def secret_routes(
    entry: SecretEntry, *, clock: Callable[[], float] = time.time, attempts: LoginThrottle | None = None
) -> list[Route]:
    """Return the routes of one-time links: `GET` shows the form, `POST` takes the secret. `clock` is in epoch seconds;
    `attempts` throttles invalid links by address.
    """
    throttle = attempts or LoginThrottle()

    async def answer(token: str, request: Request) -> HTMLResponse:
        if request.method != "POST":
            outcome: SecretPrompt | Outcome = await entry.show(token)
        else:
            fields = await _read_form(request)
            outcome = await entry.save_secret(token, fields.get("version", ""), fields.get("secret", ""))
        if isinstance(outcome, SecretSaved):
            await entry.notify_user(outcome.entry)
        wait = count_failure(throttle, request) if outcome is None else 0.0
        return secret_page(outcome, clock(), wait)

    async def respond(request: Request) -> Response:
        """Show the form, or save the secret."""
        try:
            return await answer(str(request.path_params["token"]), request)
        except DatabaseError as error:
            log.warning("one-time link lookup failed: %s", error)
            return text_page(
                503,
                _("This does not work now"),
                _("The bot cannot reach its own database. Nothing was saved."),
                _("Open the link again in a moment."),
                _RETRY,
            )
        except Problem as problem:
            return text_page(
                problem.status,
                _("This was not saved"),
                _("What was sent could not be read."),
                _("Open the link again and enter the secret there."),
            )

    return [Route(f"{PATH}{{token}}", respond, methods=["GET", "POST"])]


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises Problem."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise problem_of_status(415)
    body = await read_body(request, LARGEST_BODY, READING_SECONDS)
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise problem_of_status(400) from None
    return {name: values[-1] for name, values in fields.items()}


def count_failure(attempts: LoginThrottle, request: Request) -> float:
    """Count an invalid link. Return 0, or the seconds to wait. Valid links stay usable for a throttled client."""
    return attempts.record_failure(request.client.host if request.client else "")


def secret_page(outcome: SecretPrompt | Outcome, now: float, wait: float = 0) -> HTMLResponse:  # noqa: PLR0911
    """Return the form of a link, or the page of an outcome. The entered value is never repeated. Unknown, used and
    expired links get the same page, so that links cannot be probed; after `wait` seconds more of them are accepted.
    """
    match outcome:
        case SecretPrompt():
            return page(200, _("Enter a secret"), _secret_form(outcome, now, "", ""))
        case SecretRejected(prompt, why):
            return page(422, _("Error: enter a secret"), _secret_form(prompt, now, "", why))
        case ServerChanged(prompt):
            notice = _(
                "The server was changed since you opened this page. Nothing was saved. Look at it again, then enter "
                "the secret."
            )
            return page(409, _("Error: enter a secret"), _secret_form(prompt, now, notice, ""))
        case SecretSaved(prompt, warning):
            return _saved_page(prompt, warning)
        case Denied(why):  # Markdown of this project
            reason, advice = escape_text(why.replace("`", ""), 1000), _("The link is of no use to you any more.")
            return text_page(403, _("This was not saved"), reason, advice)
        case AccessCheckFailed(why):
            text = _("It could not be found out whether you may still do this. {reason}", reason=escape_text(why, 1000))
            return text_page(503, _("This was not saved"), text, _("Open the link again in a moment."), _RETRY)
        case None if wait:
            return text_page(
                429,
                _("Too many wrong links"),
                _("Too many links that are not good were opened from where you are."),
                _("Wait a minute, then open your link again."),
                {"Retry-After": str(math.ceil(wait))},
            )
        case None:
            text = _("It was already used, has expired, or never existed.")
            return text_page(404, _("This link is not good"), text, _ASK_FOR_LINK)


def _saved_page(prompt: SecretPrompt, warning: str) -> HTMLResponse:
    title = _("The secret is stored")
    effect = _(
        "The bot connects to <b>{server}</b> with it from now on. It is encrypted and never shown again.",
        server=escape_text(prompt.title),
    )
    next_step = _(
        "Go back to the chat and say <code>/mcp verify {server}</code>: it says whether the server takes it. "
        "You can close this page.",
        server=escape_text(prompt.server),
    )
    doubt = f"<p>{escape_text(warning)}</p>" if warning else ""
    return page(200, title, f"<h1>{title}</h1><p>{effect}</p>{doubt}<p>{next_step}</p>")


def _secret_form(prompt: SecretPrompt, now: float, notice: str, error: str) -> str:
    wanted, title, server = escape_text(prompt.wanted), escape_text(prompt.title), escape_text(prompt.server)
    expires_at = prompt.link.expires_at
    minutes = max(math.ceil((expires_at - now) / 60), 1)
    with use_locale(Locale(time_zone=prompt.time_zone)):
        until = ngettext(
            "{time} {zone}, in {n} minute",
            "{time} {zone}, in {n} minutes",
            minutes,
            time=format_time(expires_at),
            zone=format_time_zone(),
        )
    name = title if prompt.title == prompt.server else f"{title} ({server})"
    # On an error the field has the focus, so that screen readers announce it.
    described_by, invalid = ("hint", "") if not error else ("error hint", ' aria-invalid="true" autofocus')
    notice_html = f'<p class="notice" role="alert">{escape_text(notice)}</p>' if notice else ""
    error_label = _("Error:")
    error_html = f'<p class="error" id="error"><span>{error_label}</span> {escape_text(error)}</p>' if error else ""
    made_for = _(
        "This link was made for {user}. If that is not you, close this page.", user=user_html(prompt.link.person)
    )
    heading = _("{secret} for {server}", secret=wanted, server=title)
    hint = _("Stored encrypted: it is never shown again and never logged.")
    button = _("Store the secret")
    facts = ((_("Server"), name), (_("Used at"), escape_text(prompt.goes_to, 2100)), (_("Link is good until"), until))
    return (
        f"<h1>{heading}</h1>{notice_html}<p>{made_for}</p>{_facts_html(facts)}"
        '<form method="post" accept-charset="utf-8" novalidate>'
        f'<input type="hidden" name="version" value="{prompt.version}">'
        f'<label for="secret">{wanted}</label>'
        f'<p class="hint" id="hint">{hint}</p>'
        f'{error_html}<input type="password" id="secret" name="secret" required autocomplete="off" '
        f'autocapitalize="none" spellcheck="false" aria-describedby="{described_by}"{invalid}>'
        f"<button>{button}</button></form>"
    )


# -------------------- sign-ins


def sign_in_routes(callback: OAuthCallback, address: str, *, attempts: LoginThrottle | None = None) -> list[Route]:
    """Return the routes. `address` is the public address of the bot; `attempts` throttles unknown states by address."""
    throttle = attempts or LoginThrottle()

    async def complete(request: Request) -> Response:
        """Complete the sign-in. A HEAD request uses nothing up."""
        if request.scope["state"].get("head"):
            return Response(status_code=204, headers=HEADERS)
        state, code = _parameter(request, "state"), _parameter(request, "code", _LONGEST_CODE)
        callback_id = str(request.path_params["callback"])
        issuer = _parameter(request, "iss") if "iss" in request.query_params else None
        response = AuthorizationResponse(callback_id, state, code, issuer, _parameter(request, "error"))
        is_known = _STATE.fullmatch(state) and CALLBACK_ID.fullmatch(callback_id)
        try:
            outcome = await callback.handle(response) if is_known else None
        except DatabaseError as error:
            log.warning("sign-in callback failed: %s", error)
            title, text = _("This does not work now"), _("The bot cannot reach its own database, so nothing was kept.")
            return text_page(503, title, text, _ASK_FOR_SIGN_IN, _RETRY)
        wait = count_failure(throttle, request) if outcome is None else 0.0
        has_session = any(name.endswith(SESSION_COOKIE) for name in request.cookies)
        if isinstance(outcome, SignInCompleted) and outcome.on_page and has_session:
            path = f"{urlsplit(address).path.rstrip('/')}{CONSOLE_PATH}/servers/{outcome.server}"
            return RedirectResponse(path, 303, HEADERS)
        return sign_in_page(outcome, wait)

    async def document(request: Request) -> Response:
        """Return the document. Every possible id has one, so that servers cannot be probed."""
        callback_id = str(request.path_params["name"]).removesuffix(".json")
        if not CALLBACK_ID.fullmatch(callback_id):
            return Response(status_code=404)
        headers = {"Cache-Control": f"public, max-age={_CACHE_SECONDS}", "X-Content-Type-Options": "nosniff"}
        return JSONResponse(client_document(address, callback_id), headers=headers)

    routes = [Route(f"{CALLBACK_PATH}{{callback}}", complete, methods=["GET"])]
    if address.startswith("https://"):
        routes.append(Route(f"{CLIENT_PATH}{{name}}", document, methods=["GET"]))
    return routes


def client_document(address: str, callback: str) -> Mapping[str, Any]:
    """Return the client metadata document for the authorization server of one server (SEP-991). Its id is its own
    address.
    """
    return {
        "client_id": f"{address}{CLIENT_PATH}{callback}.json",
        "client_name": CLIENT_NAME,
        "client_uri": address,
        "redirect_uris": [f"{address}{CALLBACK_PATH}{callback}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }


def _parameter(request: Request, name: str, longest: int = _LONGEST_PARAMETER) -> str:
    """Return a query parameter; empty if it is repeated (RFC 6749, 3.1) or too long."""
    values = request.query_params.getlist(name)
    return values[0] if len(values) == 1 and len(values[0]) <= longest else ""


def sign_in_page(outcome: SignInOutcome, wait: float = 0) -> HTMLResponse:
    """Return the page of a sign-in. Unknown, finished and expired ones get the same page, so that they cannot be
    probed; after `wait` seconds more of them are accepted.
    """
    match outcome:
        case SignInCompleted():
            return _signed_in_page(outcome)
        case SignInRejected(cause, fix):
            advice = _("What to do: {fix}.", fix=escape_text(str(fix).rstrip(".。"), 1000)) if fix else _ASK_FOR_SIGN_IN
            return text_page(403, _("The bot is not signed in"), escape_text(cause, 1000), advice)
        case None if wait:
            return text_page(
                429,
                _("Too many wrong addresses"),
                _("Too many sign-ins that are not under way came from where you are."),
                " ".join([_("Wait a minute."), str(_ASK_FOR_SIGN_IN)]),
                {"Retry-After": str(math.ceil(wait))},
            )
        case None:
            text = _("It was already finished, has expired after ten minutes, or never existed.")
            return text_page(404, _("This sign-in is not under way"), text, _ASK_FOR_SIGN_IN)


def _signed_in_page(outcome: SignInCompleted) -> HTMLResponse:
    title, server = escape_text(outcome.title), escape_text(outcome.server)
    facts = [
        (_("Server"), title if title == server else f"{title} ({server})"),
        (_("Asked for by"), user_html(outcome.person)),
    ]
    if outcome.problem:
        notice = _("It is not connected yet: {problem}", problem=escape_text(outcome.problem, 1000))
        advice = _(
            "In the chat <code>/mcp doctor {server}</code> looks for the reason. You can close this window.",
            server=server,
        )
        next_step = f'<p class="notice" role="alert">{notice}</p><p>{advice}</p>'
    else:
        tools = ngettext("{n} tool", "{n} tools", outcome.tools)
        facts.append((_("It has"), tools))
        advice = _("Go back to the chat. You can close this window.")
        next_step = f"<p>{advice}</p>"
    effect = _(
        "Everybody who may use this server in the chat uses it as the account that you have just signed in with, "
        "under the rules that hold for its tools. If you do not know who asked for this, have the bot signed out: "
        "<code>/mcp secret clear {server} sign-in</code>",
        server=server,
    )
    heading = _("The bot is signed in to {server}", server=title)
    return page(200, _("The bot is signed in"), f"<h1>{heading}</h1>{_facts_html(facts)}{next_step}<p>{effect}</p>")
