"""Pages of the installation of the bot's app in a browser. Their texts about the platform come from an installer.

They take no API token. The answer of the platform counts only in the browser that began the installation, whose cookie
holds a secret. Each client may bring only a few answers that do not count.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.domain.installations import (
    INSTALL_SECONDS,
    InstallCancelled,
    InstallCompleted,
    InstallExpired,
    InstallFailed,
    InstallRejected,
    InstallResult,
    InstallStarted,
)
from bot.i18n import _
from bot.web.authentication import LoginThrottle
from bot.web.pages import HEADERS, count_failure, escape_text, text_page

log = logging.getLogger(__name__)

_COOKIE = "countersign-install"
_LONGEST_PARAMETER = 2_048


class AppInstaller(Protocol):
    """Installs the app in workspaces of one platform."""

    @property
    def platform(self) -> str:
        """Name of the platform."""

    @property
    def install_path(self) -> str:
        """Path of the page that begins."""

    @property
    def redirect_path(self) -> str:
        """Path to which the platform sends the browser back."""

    def start(self, workspace: str) -> InstallStarted | InstallRejected:
        """Begin an installation; `workspace` preselects one by its id, and may be empty."""

    async def finish(self, parameters: Mapping[str, str], browser_secret: str) -> InstallResult:
        """Finish an installation. Never raises."""


def install_routes(installer: AppInstaller, address: str, *, attempts: LoginThrottle | None = None) -> list[Route]:
    """Return the routes. `address` is the public address of the bot; `attempts` throttles answers that do not count."""
    pages = _InstallPages(installer, address, attempts or LoginThrottle())
    return [
        Route(installer.install_path, pages.start, methods=["GET"]),
        Route(installer.redirect_path, pages.finish, methods=["GET"]),
    ]


class _InstallPages:
    def __init__(self, installer: AppInstaller, address: str, attempts: LoginThrottle) -> None:
        self._installer = installer
        self._attempts = attempts
        self._is_secure = address.startswith("https://")
        # Only this host, over https and for all paths, may set a cookie of this name.
        self._cookie = f"__Host-{_COOKIE}" if self._is_secure else _COOKIE

    async def start(self, request: Request) -> Response:
        """Send the browser to the platform."""
        match self._installer.start(request.query_params.get("team", "")[:_LONGEST_PARAMETER]):
            case InstallStarted(url, browser_secret):
                response = RedirectResponse(url, 302, {**HEADERS})
                response.set_cookie(
                    self._cookie,
                    browser_secret,
                    max_age=int(INSTALL_SECONDS),
                    path="/",
                    secure=self._is_secure,
                    httponly=True,
                    samesite="lax",
                )
                return response
            case InstallRejected() as rejected:
                return rejected_page(rejected)

    async def finish(self, request: Request) -> Response:
        """Show the result."""
        parameters = {
            name: value[:_LONGEST_PARAMETER]
            for name, value in request.query_params.items()
            if name in ("code", "state", "error")
        }
        result = await self._installer.finish(parameters, request.cookies.get(self._cookie, ""))
        response = self._page(result, request)
        if not isinstance(result, InstallExpired):
            response.delete_cookie(self._cookie, path="/", secure=self._is_secure, httponly=True, samesite="lax")
        return response

    def _page(self, result: InstallResult, request: Request) -> HTMLResponse:
        match result:
            case InstallCompleted():
                return _completed_page(result, self._installer.platform)
            case InstallRejected():
                return rejected_page(result)
            case InstallFailed(cause, fix):
                return _failure_page(503, escape_text(cause), escape_text(fix))
            case InstallCancelled():
                advice = _("To install it after all, open {address} again.", address=self._path)
                return _failure_page(200, _("You did not allow it. Nothing was changed."), advice)
            case InstallExpired():
                if wait := count_failure(self._attempts, request):
                    return text_page(
                        429,
                        _("Too many attempts"),
                        _("Too many installations that are not good were opened from where you are."),
                        _("Wait a minute, then try again."),
                        {"Retry-After": str(math.ceil(wait))},
                    )
                # The same page for all answers that do not count, so that they cannot be probed.
                cause = _("This installation was finished already, took too long, or began in another browser.")
                return _failure_page(400, cause, _("Open {address} again.", address=self._path))

    @property
    def _path(self) -> str:
        return f"<code>{escape_text(self._installer.install_path)}</code>"


def _completed_page(result: InstallCompleted, platform: str) -> HTMLResponse:
    name = escape_text(result.installation.name)
    advice = _("Invite the bot to a channel and mention it, or write to it directly. You can close this page.")
    if result.url:
        link, label = escape_text(result.url, 500), _("Open {platform}", platform=escape_text(platform))
        advice += f' <a href="{link}">{label}</a>'
    title = _("The bot is installed")
    return text_page(200, title, _("It serves {workspace} from now on.", workspace=f"<b>{name}</b>"), advice)


def rejected_page(rejected: InstallRejected) -> HTMLResponse:
    """Return the page for a workspace that the operator does not allow."""
    return _failure_page(403, escape_text(rejected.cause), escape_text(rejected.fix))


def _failure_page(status: int, cause: str, advice: str) -> HTMLResponse:
    return text_page(status, _("The bot was not installed"), cause, advice)
