"""Web: the HTTP API, hooks and pages over an open runtime.

The libraries of the server are loaded only in processes that serve. The API's surface is in every process that runs
turns.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.app.runtime import Runtime
from bot.domain.api_clients import OPERATOR_NAME, ApiClient, ApiRole
from bot.domain.secret_detection import LEAST_OPERATOR_BITS, weakness
from bot.engine.policy.rules import can_approve
from bot.errors import SettingsError
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.web.application import Hook, Page
    from bot.web.routes import WebDependencies
    from bot.web.surface import ApiSurface

log = logging.getLogger(__name__)


def is_configured(settings: Settings) -> bool:
    """Return True if the admin token, an address for links or a listening address is set."""
    return settings.admin_api_token is not None or settings.public_url is not None or is_located(settings)


def is_located(settings: Settings) -> bool:
    """Return True if a listening address is set: every process then serves at least health and metrics."""
    return not settings.model_fields_set.isdisjoint({"web_host", "port"})


def check_settings(settings: Settings) -> None:
    """Raise SettingsError if the operator's token could be guessed, or cannot be sent."""
    token = _admin_token(settings)
    if token and (why := weakness(token, LEAST_OPERATOR_BITS)):
        raise SettingsError(
            f"ADMIN_API_TOKEN can be guessed: it is {why}.", "make one with `countersign secrets generate-password`"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise SettingsError(
            "ADMIN_API_TOKEN has characters that no header can carry.",
            "make one with `countersign secrets generate-password`",
        )


async def open_surface() -> ApiSurface:
    """Create the API's surface. Call `attach_surface` before members are looked up."""
    surface = await asyncio.to_thread(importlib.import_module, "bot.web.surface")
    opened: ApiSurface = surface.ApiSurface(surface.Subscriptions(), surface.Uploads())
    return opened


def attach_surface(surface: ApiSurface, settings: Settings, runtime: Runtime) -> None:
    """Give the surface a lookup of API clients by the current tokens."""

    async def find_caller(name: str) -> ApiClient | None:
        if name == OPERATOR_NAME:
            return ApiClient(name, ApiRole.ADMIN) if _admin_token(settings) else None
        tokens = await runtime.services.stores.tokens.tokens()
        found = next((token for token in tokens if token.name == name and token.is_valid(time.time())), None)
        return None if found is None else ApiClient(found.name, found.role, found.workspace)

    surface.set_client_lookup(find_caller)


def build_web_dependencies(settings: Settings, runtime: Runtime, surface: ApiSurface) -> WebDependencies:
    """Return the dependencies of the routes."""
    from bot.web.routes import WebDependencies  # noqa: PLC0415 - loaded only in processes that serve

    services = runtime.services
    return WebDependencies(
        engine=runtime.engine,
        commands=runtime.commands,
        command_dependencies=services.command_parts,
        tokens=services.stores.tokens,
        subscriptions=surface.subscriptions,
        uploads=surface.uploads,
        user_activity=services.stores.archive,
        find_approval=runtime.turn_log.get_approval,
        may_approve=partial(can_approve, services.rules),
        admin_token=_admin_token(settings),
    )


@asynccontextmanager
async def serve_web(
    settings: Settings,
    *,
    hooks: Sequence[Hook] = (),
    parts: WebDependencies | None = None,
    pages: Sequence[Page] = (),
) -> AsyncIterator[int]:
    """Serve while the block runs: hooks, the API over `parts` unless it is None, and `pages`, which take no token.
    Yield the port. Raises SettingsError.
    """
    applications, server, limits = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.web.{name}") for name in ("application", "server", "limits"))
    )
    shares = limits.CallerShares(settings.api_requests_per_token, settings.api_streams_per_token)
    api = None if parts is None else applications.api_application(parts, shares=shares)
    documents = [] if parts is None or not settings.api_docs else applications.documentation(parts)
    app = applications.application(hooks, api=api, pages=[*pages, *documents])
    proxies = server.TrustedProxies(settings.forwarded_allow_ips)
    async with server.serve(app, settings.web_host, settings.port, proxies=proxies) as port:
        log.info("listening for requests at %s, port %d", settings.web_host, port)
        yield port


def _admin_token(settings: Settings) -> str:
    return settings.admin_api_token.get_secret_value() if settings.admin_api_token else ""
