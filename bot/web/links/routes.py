"""The page behind a one-time link: `GET` shows what is asked for, `POST` takes it.

Called by the composition root, which mounts it beside the API; it takes no token but the one in its address. Looking
uses nothing up, however often previews look. What is entered goes to `SecretEntry` and nowhere else: it is in no log,
no answer and no address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bot.commands.secret_form import (
    AccessCheckFailed,
    Denied,
    LinkExpired,
    Outcome,
    SecretEntry,
    SecretRejected,
    SecretSaved,
    ServerChanged,
)
from bot.commands.secret_links import PATH
from bot.errors import DatabaseError
from bot.web.html import HtmlDocument
from bot.web.links import pages as link_pages
from bot.web.login_throttle import LoginThrottle

log = logging.getLogger(__name__)

LARGEST_BODY = 16 * 1024
"""Bytes: the longest secret, with every character written as three, and room for the rest."""
_READING_SECONDS = 15.0
_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"


def pages(
    entry: SecretEntry, *, clock: Callable[[], float] = time.time, attempts: LoginThrottle | None = None
) -> list[Route]:
    """The routes. `clock` is in epoch seconds; `attempts` counts links that are none, by address."""
    page = _SecretPage(entry, clock, attempts or LoginThrottle())
    return [Route(f"{PATH}{{token}}", page.answer, methods=["GET", "POST"])]


class _SecretPage:
    def __init__(self, entry: SecretEntry, clock: Callable[[], float], attempts: LoginThrottle) -> None:
        self._entry = entry
        self._clock = clock
        self._attempts = attempts

    async def answer(self, request: Request) -> Response:
        """Show the page, or take what was entered."""
        token = str(request.path_params["token"])
        try:
            document = await (self._taken(token, request) if request.method == "POST" else self._shown(token, request))
        except DatabaseError as error:
            log.warning("a one-time link could not be looked up: %s", error)
            document = link_pages.unavailable_page()
        return HTMLResponse(document.html, document.status, dict(document.headers))

    async def _shown(self, token: str, request: Request) -> HtmlDocument:
        entry = await self._entry.look(token)
        return self._gone(request) if entry is None else link_pages.form_page(entry, self._clock())

    async def _taken(self, token: str, request: Request) -> HtmlDocument:
        fields = await _fields(request)
        if isinstance(fields, HtmlDocument):
            return fields
        outcome = await self._entry.enter(token, fields.get("version", ""), fields.get("secret", ""))
        if isinstance(outcome, SecretSaved):
            await self._entry.tell(outcome.entry)
        return self._told(outcome, request)

    def _told(self, outcome: Outcome, request: Request) -> HtmlDocument:
        match outcome:
            case SecretSaved(entry):
                return link_pages.done(entry)
            case SecretRejected(entry, why):
                return link_pages.invalid_page(entry, self._clock(), why)
            case ServerChanged(entry):
                return link_pages.changed(entry, self._clock())
            case Denied(why):
                return link_pages.denied(why)
            case AccessCheckFailed(why):
                return link_pages.access_check_failed_page(why)
            case LinkExpired():
                return self._gone(request)

    def _gone(self, request: Request) -> HtmlDocument:
        """A link that is good is good however often others were wrong at the same address; one that is not counts."""
        wait = self._attempts.failed(request.client.host if request.client else "")
        return link_pages.too_often(wait) if wait else link_pages.expired_page()


async def _fields(request: Request) -> dict[str, str] | HtmlDocument:
    """What the form sends, or why it is not taken."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return link_pages.unreadable(415)
    body = bytearray()
    try:
        async with asyncio.timeout(_READING_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST_BODY:
                    return link_pages.unreadable(413)
        read = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except TimeoutError:
        return link_pages.unreadable(408)
    except (ClientDisconnect, ValueError):
        return link_pages.unreadable(400)
    return {name: values[-1] for name, values in read.items()}
