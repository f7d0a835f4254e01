"""The routes of the console. The middleware of the web application is around them."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from itertools import takewhile
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router

from bot.admin.browser_sessions import CONSOLE_PATH
from bot.domain.locales import use_locale
from bot.domain.openid import CALLBACK_PATH
from bot.errors import CountersignError, DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from bot.i18n import _
from bot.web.console.approval_pages import ApprovalPages
from bot.web.console.command_pages import CommandPages
from bot.web.console.conversation_pages import ConversationPages
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.events import EventPages
from bot.web.console.menu import (
    APPROVALS_PATH,
    ASK_PATH,
    COMMANDS_PATH,
    CONVERSATIONS_PATH,
    ENTRIES,
    SERVER_WORDS,
    SERVERS_PATH,
    Menu,
    command_path,
    find_verb,
)
from bot.web.console.openid_pages import OpenIdPages
from bot.web.console.rendering import HEADERS, STATIC, Templates
from bot.web.console.request import TOKEN, ConsoleRequest, Handler, read_form, read_query
from bot.web.console.sessions import Sessions, Viewer, check_form
from bot.web.console.sign_in import SignInPages, own_path
from bot.web.problems import Problem

log = logging.getLogger(__name__)
_CACHE_SECONDS = 31_536_000
"""Seconds that browsers keep a file whose address changes with its content."""


def build_console(dependencies: ConsoleDependencies) -> Router:
    """Return the routes."""
    return Router(list(_Console(dependencies).routes()), redirect_slashes=False)


class _Console:
    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._commands = dependencies.commands
        self._sessions = Sessions(dependencies)
        self._menu = Menu(dependencies.commands.verbs, dependencies.rights)
        self._templates = Templates(urlsplit(dependencies.address).path.rstrip("/"), self._command_link)
        self._sign_in = SignInPages(dependencies, self._sessions, self._templates)
        self._openid = OpenIdPages(dependencies, self._sessions, self._sign_in)
        self._pages = CommandPages(dependencies)
        self._approvals = ApprovalPages(dependencies)
        self._conversations = ConversationPages(dependencies)
        self._events = EventPages(dependencies, self._sessions, self._conversations, self._pages)

    def routes(self) -> list[Route]:
        """Return all routes, those for users with a session by `_signed_in`."""
        own = self._signed_in
        paths: dict[str, tuple[Callable[[Request], Awaitable[Response]], str]] = {
            "": (own(self._home), "GET"),
            "/": (own(self._home), "GET"),
            "/sign-in": (self._guarded(self._sign_in.sign_in), "GET POST"),
            "/enter/{token}": (self._guarded(self._sign_in.enter), "GET POST"),
            "/oidc": (self._guarded(self._openid.begin), "POST"),
            CALLBACK_PATH: (self._guarded(self._openid.complete), "GET"),
            "/sign-out": (own(self._sign_in.sign_out), "POST"),
            "/static/{name}": (_static_file, "GET"),
            COMMANDS_PATH: (own(self._pages.index), "GET"),
            "/run/{command}": (own(self._pages.run), "GET POST"),
            APPROVALS_PATH: (own(self._approvals.list), "GET POST"),
            f"{APPROVALS_PATH}/decided": (own(self._approvals.decided), "GET"),
            f"{APPROVALS_PATH}/{{approval}}": (own(self._approvals.show), "GET POST"),
            f"{APPROVALS_PATH}/{{approval}}/edit": (own(self._approvals.edit), "GET POST"),
            "/choose": (own(self._pages.choose), "POST"),
            ASK_PATH: (own(self._conversations.ask), "GET POST"),
            CONVERSATIONS_PATH: (own(self._conversations.list), "GET"),
            f"{CONVERSATIONS_PATH}/{{conversation}}": (own(self._conversations.show), "GET POST"),
            f"{CONVERSATIONS_PATH}/{{conversation}}/export": (own(self._conversations.export), "GET"),
            "/events": (own(self._events.events), "GET"),
            "/form": (own(self._pages.submit), "POST"),
            **{entry.path: (own(self._entry(entry.words)), "GET") for entry in ENTRIES if entry.words},
            f"{SERVERS_PATH}/{{name}}": (own(self._server), "GET"),
        }
        routes = [
            Route(f"{CONSOLE_PATH}{path}", handler, methods=methods.split())
            for path, (handler, methods) in paths.items()
        ]
        return [*routes, Route(f"{CONSOLE_PATH}{{rest:path}}", own(self._not_found))]

    def _entry(self, words: Sequence[str]) -> Handler:
        """Return the handler of a page of the menu over a verb."""

        async def respond(call: ConsoleRequest) -> Response:
            return await self._pages.run_words(call, *words)

        return respond

    async def _server(self, call: ConsoleRequest) -> Response:
        return await self._pages.run_words(call, *SERVER_WORDS, str(call.request.path_params["name"]))

    async def _home(self, _call: ConsoleRequest) -> Response:
        return RedirectResponse(self._templates.url(APPROVALS_PATH), 303, {**HEADERS})

    async def _not_found(self, call: ConsoleRequest) -> Response:
        return call.page("problem.html", 404, title=_("There is no such page"), text="", fix="")

    def _signed_in(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Serve a page to users with a session; others sign in first. A POST needs the token of its form."""

        @wraps(handler)
        async def respond(request: Request) -> Response:
            viewer = await self._sessions.find_viewer(request)
            if viewer is None:
                return self._to_sign_in(request)
            with use_locale(viewer.locale):
                try:
                    return await handler(await self._checked(request, viewer))
                except (CountersignError, Problem) as error:
                    call = ConsoleRequest(request, viewer, read_query(request), self._templates, self._menu)
                    return call.page("problem.html", _status(error), **_problem_texts(error))

        return self._guarded(respond)

    async def _checked(self, request: Request, viewer: Viewer) -> ConsoleRequest:
        form = await read_form(request) if request.method == "POST" else read_query(request)
        if request.method == "POST":
            check_form(request, form.get(TOKEN), viewer.form_token)
        return ConsoleRequest(request, viewer, form, self._templates, self._menu)

    def _to_sign_in(self, request: Request) -> Response:
        if request.method == "POST":
            error = _("Your session has ended. Nothing was changed. Sign in, then send it again.")
            return self._sign_in.form(request, "", 401, error=error)
        path = request.url.path.partition(CONSOLE_PATH)[2].rstrip("/")
        wanted = own_path(f"{path}?{request.url.query}" if request.url.query else path)
        query = f"?{urlencode({'next': wanted})}" if wanted else ""
        return RedirectResponse(self._templates.url(f"/sign-in{query}"), 303, {**HEADERS})

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Answer errors with a page, also to users without a session."""

        @wraps(handler)
        async def respond(request: Request) -> Response:
            try:
                return await handler(request)
            except (CountersignError, Problem) as error:
                values: dict[str, Any] = _problem_texts(error)
                return self._templates.page("problem.html", _status(error), viewer=None, **values)

        return respond

    def _command_link(self, line: str) -> str:
        """Return the path of the page of a command line in a reply; empty if it is none."""
        try:
            command, *words = shlex.split(line.removeprefix("/"))
        except ValueError:
            return ""
        if find_verb(self._commands.verbs.get(command, ()), words) is None:
            return ""
        known = takewhile(lambda word: not _PLACEHOLDER.fullmatch(word), words)
        return self._templates.url(command_path((command, *known)))


_PLACEHOLDER = re.compile("@?[A-Z]{2,}|…")
"""A word of a command line that the reader replaces by another, in a reply."""


async def _static_file(request: Request) -> Response:
    found = STATIC.get(str(request.path_params["name"]))
    if found is None:
        return Response(status_code=404)
    content_type, content = found
    headers = {**HEADERS, "Cache-Control": f"public, max-age={_CACHE_SECONDS}, immutable"}
    return Response(content, 200, headers, content_type)


def _status(error: Exception) -> int:
    if isinstance(error, Problem):
        return error.status
    if isinstance(error, DatabaseError):
        return 503 if isinstance(error, DatabaseUnavailable) else 500
    return 400


def _problem_texts(error: CountersignError | Problem) -> dict[str, str]:
    """Return the texts of the page of an error."""
    if isinstance(error, DatabaseError):
        log.warning("console page failed: %s", error)
        return {"title": _("This does not work now"), **_database_texts(error)}
    text, fix = (error.message, error.fix) if isinstance(error, Problem) else (error.cause, error.fix)
    return {"title": _("That did not work"), "text": str(text), "fix": str(fix or "")}


def _database_texts(error: DatabaseError) -> dict[str, str]:
    """Return the sentence and the fix. The error's own words, which name the database, are for operators."""
    match error:
        case DatabaseUnwritable():
            text = _("The bot's database can be read, but accepts no changes. Nothing was saved.")
            return {"text": text, "fix": _("Tell the operator: its disk may be full or read-only.")}
        case DatabaseUnavailable():
            text = _("The bot cannot reach its own database. Nothing was saved.")
            return {"text": text, "fix": _("Open the page again in a moment.")}
        case _:
            text = _("The bot's database answers, but has rejected this. Nothing was saved.")
            return {"text": text, "fix": _("Tell the operator: the bot's log says what failed.")}
