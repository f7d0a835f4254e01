"""Routes of one-time links: `GET` shows the form, `POST` takes the secret.

They take no API token; the link's own token is in the address. `GET` does not use up the link because chat previews
fetch it. The secret goes only to `SecretEntry`, never to logs, responses or addresses.
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
from bot.web.authentication import LoginThrottle
from bot.web.html import HtmlDocument
from bot.web.links import pages as link_pages

log = logging.getLogger(__name__)

LARGEST_BODY = 16 * 1024
"""Longest body in bytes: the longest secret, URL-encoded, and its other fields."""
_READING_SECONDS = 15.0
_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"


def pages(
    entry: SecretEntry, *, clock: Callable[[], float] = time.time, attempts: LoginThrottle | None = None
) -> list[Route]:
    """Return the routes. `clock` is in epoch seconds; `attempts` throttles invalid links by address."""
    page = _SecretPage(entry, clock, attempts or LoginThrottle())
    return [Route(f"{PATH}{{token}}", page.answer, methods=["GET", "POST"])]


class _SecretPage:
    def __init__(self, entry: SecretEntry, clock: Callable[[], float], attempts: LoginThrottle) -> None:
        self._entry = entry
        self._clock = clock
        self._attempts = attempts

    async def answer(self, request: Request) -> Response:
        """Show the form, or save the secret."""
        token = str(request.path_params["token"])
        try:
            document = await (self._taken(token, request) if request.method == "POST" else self._shown(token, request))
        except DatabaseError as error:
            log.warning("one-time link lookup failed: %s", error)
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
        """Count an invalid link. Valid links stay usable from a throttled address."""
        wait = self._attempts.failed(request.client.host if request.client else "")
        return link_pages.too_often(wait) if wait else link_pages.expired_page()


async def _fields(request: Request) -> dict[str, str] | HtmlDocument:
    """Return the fields of the form, or the error page."""
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
