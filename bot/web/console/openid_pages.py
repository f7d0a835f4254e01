"""Sign-in at the operator's OpenID Connect issuer.

A sign-in under way is a one-time link of ten minutes: its token is the state, its person a browser. The other secrets
are derived from the cookie of that browser, so that no other browser can go on with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import math

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bot.admin.browser_sessions import CONSOLE_PATH
from bot.domain.conversations import OIDC, Author, ConversationKey
from bot.domain.openid import CALLBACK_PATH, OpenIdRequest
from bot.domain.secrets import LINK_TOKEN
from bot.errors import CountersignError, DatabaseError, NotFound
from bot.i18n import _, gettext_lazy
from bot.ports import AuthorizationResponse
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.rendering import HEADERS
from bot.web.console.request import TOKEN, read_form, read_query
from bot.web.console.sessions import Sessions, check_form
from bot.web.console.sign_in import SignInPages, own_path
from bot.web.problems import problem_of_status

log = logging.getLogger(__name__)

_SLOT = "openid"
_AGAIN = gettext_lazy("sign in again")
_NOT_BEGUN = gettext_lazy(
    "This sign-in was not begun in this browser, was finished already, or took more than ten minutes."
)


class OpenIdPages:
    """The way to the issuer, and the way back."""

    def __init__(self, dependencies: ConsoleDependencies, sessions: Sessions, sign_in: SignInPages) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._sign_in = sign_in

    async def begin(self, request: Request) -> Response:
        """Send a user to the issuer."""
        form, (browser, form_token) = await read_form(request), self._sessions.visitor(request)
        check_form(request, form.get(TOKEN), form_token)
        if self._dependencies.openid is None:
            raise problem_of_status(404)
        # The path that the user wanted stays here: it may tell of servers and calls.
        wanted = ConversationKey(OIDC, "", "", own_path(form.get("next")))
        _link, state = await self._dependencies.links.create_link("", _SLOT, _author(browser), wanted)
        try:
            address = await self._dependencies.openid.issuer.authorization_url(self._openid_request(browser, state))
        except CountersignError as error:
            return self._refused(request, wanted.thread, error)
        return RedirectResponse(address, 303, {**HEADERS})

    async def complete(self, request: Request) -> Response:
        """Sign in the user whom the issuer has sent back. A HEAD request uses nothing up."""
        openid, links = self._dependencies.openid, self._dependencies.links
        if openid is None:
            raise problem_of_status(404)
        if request.scope["state"].get("head"):
            return Response(status_code=204, headers=HEADERS)
        query, (browser, _form_token) = read_query(request), self._sessions.visitor(request)
        state = query.get("state")
        link = await links.find(state) if LINK_TOKEN.fullmatch(state) else None
        is_own = link is not None and (link.slot, link.person.id) == (_SLOT, _author(browser).id)
        if link is None or not is_own or await links.use_link(state) is None:
            return self._refused(request, "", NotFound(_NOT_BEGUN, _AGAIN))
        wanted = link.conversation.thread
        issuer = query.get("iss") if "iss" in request.query_params else None
        response = AuthorizationResponse("", state, query.get("code"), issuer, query.get("error"))
        try:
            identity = await openid.issuer.identify(response, self._openid_request(browser, state))
            member, conversation = await openid.find_person(identity)
        except DatabaseError:
            raise
        except CountersignError as error:
            return self._refused(request, wanted, error)
        page = self._sign_in.redirect(own_path(wanted))
        await self._sessions.begin(request, member, conversation, page, issuer=openid.issuer.client)
        return page

    def _openid_request(self, browser: str, state: str) -> OpenIdRequest:
        def derive(purpose: str) -> str:
            digest = hmac.digest(browser.encode(), f"countersign {purpose} {state}".encode(), "sha256")
            return base64.urlsafe_b64encode(digest).decode().rstrip("=")

        redirect_uri = f"{self._dependencies.address}{CONSOLE_PATH}{CALLBACK_PATH}"
        return OpenIdRequest(redirect_uri, state, derive("nonce"), derive("verifier"))

    def _refused(self, request: Request, wanted: str, error: CountersignError) -> Response:
        log.info("sign-in to the console by OpenID Connect failed: %s", error)
        wait = self._dependencies.attempts.record_failure(request.client.host if request.client else "")
        headers = {"Retry-After": str(math.ceil(wait))} if wait else {}
        fix = str(error.fix or _AGAIN).rstrip(".。")
        text = _("{cause} What to do: {fix}.", cause=error.cause, fix=fix)
        return self._sign_in.form(request, wanted, 429 if wait else 403, error=text, headers=headers)


def _author(browser: str) -> Author:
    """Return a browser without a session as the person of a link."""
    return Author("browser", hashlib.sha256(browser.encode()).hexdigest(), "")
