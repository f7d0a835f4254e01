"""Sessions of users in browsers, their cookie, and the tokens of forms.

A session's cookie is a random id that sign-in makes anew each time. The token of a form is derived from the cookie, so
that no other site can know it. Rights are looked up at every request. A session ends if its user is gone, if the API
token is revoked, or if the rights are not those of the sign-in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from bot.admin.browser_sessions import SESSION_COOKIE
from bot.admin.dependencies import MEMBER_SECONDS
from bot.domain.api_clients import OPERATOR_PRINCIPAL
from bot.domain.browser_sessions import BrowserSession, rights_digest
from bot.domain.commands import Invocation
from bot.domain.conversations import CONSOLE, HTTP, Author, ConversationKey, Member
from bot.domain.hosts import is_this_machine
from bot.domain.locales import Locale, time_zone_name
from bot.errors import DeliveryFailed
from bot.i18n import _
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.problems import Problem

_SESSION, _VISITOR, _ZONE = SESSION_COOKIE, "countersign-visitor", "countersign-zone"
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_OTHER_SITES = ("cross-site", "same-site")


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user of a request, with the rights of now. `form_token` goes into each form."""

    session: BrowserSession
    member: Member
    locale: Locale
    form_token: str
    hidden_input: bool

    def invocation(self, command: str, *words: str) -> Invocation:
        """Return a command of this user."""
        return Invocation(command, words, self.member, self.conversation, self.hidden_input, on_page=True)

    @property
    def author(self) -> Author:
        """The user."""
        return self.member.author

    @property
    def conversation(self) -> ConversationKey:
        """Conversation in which the session began, whose workspace, servers and rules hold."""
        return self.session.conversation


class Sessions:
    """Sessions by the cookies of requests."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._dependencies = dependencies
        self._is_secure = dependencies.address.startswith("https://")
        # Only this host, over https and for all paths, may set a cookie of this name.
        self._prefix = "__Host-" if self._is_secure else ""

    async def find_viewer(self, request: Request) -> Viewer | None:
        """Return the user of a request, None without a valid session. Raises Problem with 503 if the rights cannot be
        looked up now, and DatabaseError.
        """
        secret = self._cookie(request, _SESSION)
        session = await self._dependencies.sessions.find(secret) if secret else None
        if session is None:
            return None
        member = await self.find_member(session.author, session.conversation)
        if member.external or not self._is_current(session, member):
            await self._dependencies.sessions.end(session.id, session.author)
            return None
        locale = await self._locale(member.author, session.conversation, request)
        return Viewer(session, member, locale, _form_token(secret), self._hides_input(request))

    async def is_current(self, viewer: Viewer) -> bool:
        """Return True if the session of a page still holds. An open page alone does not keep it from ending. Raises
        Problem and DatabaseError.
        """
        session = viewer.session
        open_sessions = await self._dependencies.sessions.sessions(session.author.principal)
        if not any(each.id == session.id for each in open_sessions):
            return False
        member = await self.find_member(session.author, session.conversation)
        return not member.external and self._is_current(session, member)

    async def find_member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return a user with the rights of now. Raises Problem."""
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                return await self._dependencies.find_member(author, conversation)
        except DeliveryFailed as failure:
            raise Problem(503, "not_checked", failure.cause, failure.fix) from failure
        except TimeoutError:
            raise Problem(503, "not_checked", _("Your platform did not answer in time."), _("try again")) from None

    async def begin(
        self, request: Request, member: Member, conversation: ConversationKey, response: Response, *, issuer: str = ""
    ) -> None:
        """Begin a session in this browser, and end the one before it there. `issuer` is that by which a user signs in
        (`OpenIdIssuer.client`).
        """
        store = self._dependencies.sessions
        before = self._cookie(request, _SESSION)
        if before and (earlier := await store.find(before)) is not None:
            await store.end(earlier.id, member.author)
        session, secret = await store.create(member.author, conversation, self.rights_digest(member, issuer))
        self._set_cookie(response, _SESSION, secret, int(session.expires_at - session.created_at))

    async def end(self, viewer: Viewer, response: Response) -> None:
        """End the session of this browser."""
        await self._dependencies.sessions.end(viewer.session.id, viewer.author)
        response.delete_cookie(
            f"{self._prefix}{_SESSION}", path="/", secure=self._is_secure, httponly=True, samesite="lax"
        )

    def visitor(self, request: Request) -> tuple[str, str]:
        """Return the id of a browser without a session, and the token of its forms. `set_visitor` keeps the id."""
        secret = self._cookie(request, _VISITOR) or secrets.token_urlsafe(32)
        return secret, _form_token(secret)

    def set_visitor(self, response: Response, secret: str) -> None:
        """Keep the id of a browser without a session."""
        self._set_cookie(response, _VISITOR, secret, 3600)

    def rights_digest(self, member: Member, issuer: str = "") -> str:
        """Return the digest with which a session begins."""
        is_operator = member.author.principal == OPERATOR_PRINCIPAL
        return rights_digest(member, self._dependencies.tokens.operator_digest if is_operator else issuer)

    def _is_current(self, session: BrowserSession, member: Member) -> bool:
        """Return True if the rights are those of the sign-in, and its issuer, if any, is still the operator's."""
        openid = self._dependencies.openid
        issuers = ("", openid.issuer.client) if openid is not None else ("",)
        return session.rights in [self.rights_digest(member, issuer) for issuer in issuers]

    def _cookie(self, request: Request, name: str) -> str:
        value = request.cookies.get(f"{self._prefix}{name}", "")
        return value if _SECRET.fullmatch(value) else ""

    def _set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            f"{self._prefix}{name}",
            value,
            max_age=seconds,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )

    def _hides_input(self, request: Request) -> bool:
        """Return True if a secret may be typed: it must not cross a network in the clear."""
        return self._is_secure or (request.client is not None and is_this_machine(request.client.host))

    async def _locale(self, author: Author, conversation: ConversationKey, request: Request) -> Locale:
        locales = self._dependencies.web.locales
        if conversation.platform not in (HTTP, CONSOLE):
            return await self._dependencies.messenger.locale(author, conversation)
        zone = time_zone_name(unquote(request.cookies.get(_ZONE, ""))) or ""
        return await locales.for_user(author, Locale(request.state.language or "", zone), conversation)


def check_form(request: Request, given: str, wanted: str) -> None:
    """Raise Problem unless a form comes from a page of this browser's session."""
    is_foreign = request.headers.get("sec-fetch-site", "") in _OTHER_SITES
    if is_foreign or not hmac.compare_digest(given.encode(), wanted.encode()):
        raise Problem(
            403,
            "stale_form",
            _("This form is not from a page of your present session. Nothing was changed."),
            _("open the page again, and send it from there"),
        )


def _form_token(secret: str) -> str:
    return hmac.new(secret.encode(), b"countersign console form", hashlib.sha256).hexdigest()
