"""One request of a signed-in user, its form, and the page that answers it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from bot.admin.browser_sessions import CONSOLE_PATH
from bot.web.console.menu import Menu
from bot.web.console.rendering import Templates
from bot.web.console.sessions import Viewer
from bot.web.limits import READING_SECONDS, read_body
from bot.web.problems import problem_of_status

_LARGEST_FORM = 512 * 1024
_MOST_FIELDS = 400
_FORM = "application/x-www-form-urlencoded"
TOKEN = "form-token"  # noqa: S105 - the name of a field
"""Field of the token of a form."""


class FormData:
    """Fields of a form in order; a name may occur several times."""

    def __init__(self, pairs: list[tuple[str, str]] | None = None) -> None:
        self._pairs = pairs or []

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return next((value for key, value in reversed(self._pairs) if key == name), default)

    def get_all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [value for key, value in self._pairs if key == name]

    def below(self, prefix: str) -> dict[str, list[str]]:
        """Return the values of the fields with a prefix, by the rest of their names."""
        values: dict[str, list[str]] = {}
        for key, value in self._pairs:
            if key.startswith(prefix):
                values.setdefault(key.removeprefix(prefix), []).append(value)
        return values


async def read_form(request: Request) -> FormData:
    """Return the fields of a form. Line ends are those of Unix. Raises Problem."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise problem_of_status(415)
    body = await read_body(request, _LARGEST_FORM, READING_SECONDS)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise problem_of_status(400) from None
    return FormData([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def read_query(request: Request) -> FormData:
    """Return the parameters of the address."""
    return FormData(request.query_params.multi_items()[:_MOST_FIELDS])


def read_number(text: str) -> int:
    """Return a page, a revision or a step; 0 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """A request with its user. `form` has the fields of a POST, or the parameters of a GET."""

    request: Request
    viewer: Viewer
    form: FormData
    templates: Templates
    menu: Menu
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_post(self) -> bool:
        """True if the request may change something: its form has the token of the session."""
        return self.request.method == "POST"

    @property
    def path(self) -> str:
        """The path of the page behind `/console`, with its query."""
        url = self.request.url
        path = url.path.partition(CONSOLE_PATH)[2]
        return f"{path}?{url.query}" if url.query else path

    @property
    def values(self) -> dict[str, Any]:
        """Values that every template of a signed-in user takes."""
        return {
            "viewer": self.viewer,
            "menu": self.menu.sections(self.viewer.member),
            "counts": self.counts,
            "here": self.request.url.path,
            "token": self._token,
            "once": partial(secrets.token_hex, 16),
        }

    def page(self, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page in the layout of the console."""
        return self.templates.page(name, status, **{**self.values, **values})

    def render(self, name: str, **values: Any) -> str:
        """Return a part of a page."""
        return self.templates.render(name, **{**self.values, **values})

    def _token(self) -> Markup:
        """Return the field that each form with an effect has."""
        return Markup('<input type="hidden" name="{}" value="{}">').format(TOKEN, self.viewer.form_token)


Handler = Callable[[ConsoleRequest], Awaitable[Response]]
