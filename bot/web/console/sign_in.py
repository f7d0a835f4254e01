"""Sign-in: behind a one-time link of `/console`, or with an API token; and sign-out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bot.domain.browser_sessions import CONSOLE_SLOT
from bot.domain.secrets import LINK_TOKEN, SecretLink
from bot.i18n import _
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.rendering import HEADERS, Templates
from bot.web.console.request import TOKEN, ConsoleRequest, read_form, read_query
from bot.web.console.sessions import Sessions, check_form

_POLICY = "Content-Security-Policy"
_OWN_PATH = re.compile(r"/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,2000}")


def own_path(path: str) -> str:
    """Return a path of the console behind `/console`; empty for any other text, so that no redirect leaves it."""
    return path if _OWN_PATH.fullmatch(path) and "//" not in path.partition("?")[0] else ""


class SignInPages:
    """The pages without a session."""

    def __init__(self, dependencies: ConsoleDependencies, sessions: Sessions, templates: Templates) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._templates = templates

    async def sign_in(self, request: Request) -> Response:
        """Show the form for an API token, or sign in with it."""
        if request.method != "POST":
            return self.form(request, read_query(request).get("next"))
        form = await read_form(request)
        check_form(request, form.get(TOKEN), self._sessions.visitor(request)[1])
        client = await self._dependencies.tokens.find_client(form.get("token").strip())
        if client is None:
            wait = self._dependencies.attempts.record_failure(request.client.host if request.client else "")
            if wait:
                error = _("Too many wrong tokens came from where you are. Wait a minute.")
                headers = {"Retry-After": str(math.ceil(wait))}
                return self.form(request, form.get("next"), 429, error=error, headers=headers)
            error = _("This is no valid token. An operator makes one with `countersign tokens create`.")
            return self.form(request, form.get("next"), 401, error=error.replace("`", ""))
        member, response = client.member, self.redirect(own_path(form.get("next")))
        await self._sessions.begin(request, member, client.place(thread="console"), response)
        return response

    async def enter(self, request: Request) -> Response:
        """Show whom a one-time link signs in, or sign in with it. A look does not use the link up."""
        token = str(request.path_params["token"])
        link = await self._dependencies.links.find(token) if LINK_TOKEN.fullmatch(token) else None
        if link is None or not _is_for_console(link):
            return self._bad_link(request)
        if request.method != "POST":
            return self._visitor_page(request, "enter.html", link=link)
        form = await read_form(request)
        check_form(request, form.get(TOKEN), self._sessions.visitor(request)[1])
        member = await self._sessions.find_member(link.person, link.conversation)
        if member.external or await self._dependencies.links.use_link(token) is None:
            return self._bad_link(request)
        response = self.redirect("")
        await self._sessions.begin(request, member, link.conversation, response)
        return response

    async def sign_out(self, call: ConsoleRequest) -> Response:
        """End the session."""
        response = self.redirect("/sign-in")
        await self._sessions.end(call.viewer, response)
        return response

    def form(
        self,
        request: Request,
        next_path: str,
        status: int = 200,
        *,
        error: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the form for an API token."""
        openid = self._dependencies.openid
        origin = openid.issuer.origin if openid is not None else ""
        # A browser applies this to the redirects after a form, too, and issuers redirect to further hosts.
        ways = {_POLICY: HEADERS[_POLICY].replace("form-action 'self'", f"form-action 'self' https: {origin}")}
        values = {"next": own_path(next_path), "error": error, "issuer": urlsplit(origin).netloc}
        return self._visitor_page(
            request, "sign_in.html", status, {**(ways if origin else {}), **(headers or {})}, **values
        )

    def _bad_link(self, request: Request) -> Response:
        wait = self._dependencies.attempts.record_failure(request.client.host if request.client else "")
        headers = {"Retry-After": str(math.ceil(wait))} if wait else {}
        error = _(
            "This link was already used, has expired, or never existed. Say /console in the chat for another one."
        )
        return self.form(request, "", 429 if wait else 404, error=error, headers=headers)

    def _visitor_page(
        self, request: Request, name: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
    ) -> Response:
        secret, form_token = self._sessions.visitor(request)
        page = self._templates.page(
            name, status, headers=headers, viewer=None, form_token=form_token, token_field=TOKEN, **values
        )
        self._sessions.set_visitor(page, secret)
        return page

    def redirect(self, path: str) -> RedirectResponse:
        """Return a redirect to a path behind `/console`."""
        return RedirectResponse(self._templates.url(path), 303, {**HEADERS})


def _is_for_console(link: SecretLink) -> bool:
    return (link.server_id, link.slot) == ("", CONSOLE_SLOT)
