"""Web: the HTTP API, hooks, one-time links and other pages over an open runtime.

The libraries of the server are loaded only in processes that serve. The API's surface is in every process that runs
turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.admin.dependencies import CommandDependencies, LinkService
from bot.app.models import select_model
from bot.app.secrets import secret_value
from bot.domain.api_clients import OPERATOR_NAME, ApiClient, ApiRole
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import CONSOLE, Author, ConversationKey, Member
from bot.domain.hosts import is_this_machine
from bot.domain.locales import Locale
from bot.domain.secrets import LEAST_OPERATOR_BITS, weakness
from bot.domain.tools import Tool
from bot.domain.turns import Notice, NoticeTarget
from bot.engine.delegations import decidable
from bot.engine.locales import LocaleResolver
from bot.engine.policy.rules import can_approve
from bot.engine.surfaces import Surfaces
from bot.errors import DeliveryFailed, SettingsError
from bot.platforms.console.local_user import login_name
from bot.ports import LinkStore, Surface
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.components import AppServices, Runtime
    from bot.web.application import Closable, Hook, Page, WebApp
    from bot.web.dependencies import WebDependencies
    from bot.web.routes import RouteNames
    from bot.web.surface import ApiSurface

log = logging.getLogger(__name__)

_EXAMPLE_URL = "https://bot.example.com"
_DRAWABLE = re.compile(r"[A-Za-z0-9._~:/\[\]%-]+")
"""Addresses that every platform displays as a link without escaping."""


def is_configured(settings: Settings) -> bool:
    """Return True if the admin token, an address for links or a listening address is set."""
    return settings.admin_api_token is not None or settings.public_url is not None or is_located(settings)


def is_located(settings: Settings) -> bool:
    """Return True if a listening address is set: every process then serves at least health and metrics."""
    return not settings.model_fields_set.isdisjoint({"web_host", "port"})


def check_settings(settings: Settings) -> None:
    """Raise SettingsError if the operator's token could be guessed, or cannot be sent."""
    token = secret_value(settings.admin_api_token)
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

    async def find_client(name: str) -> ApiClient | None:
        if name == OPERATOR_NAME:
            return ApiClient(name, ApiRole.ADMIN) if secret_value(settings.admin_api_token) else None
        tokens = await runtime.services.stores.tokens.tokens()
        valid = next((token for token in tokens if token.name == name and token.is_valid(time.time())), None)
        return None if valid is None else ApiClient(valid.name, valid.role, valid.workspace, since=valid.created_at)

    def admits(principal: str) -> bool:
        """Return True for users of the issuer that are named anywhere, and for all others if strangers may come."""
        named = principal in settings.admins | settings.approvers | runtime.services.rules.named
        return settings.oidc_issuer is not None and (named or settings.oidc_strangers)

    surface.set_client_lookup(find_client, admits)


def build_web_dependencies(settings: Settings, runtime: Runtime, surface: ApiSurface) -> WebDependencies:
    """Return the dependencies of the routes."""
    from bot.web.dependencies import WebDependencies  # noqa: PLC0415 - loaded only in processes that serve

    services = runtime.services
    return WebDependencies(
        engine=runtime.engine,
        commands=runtime.commands,
        command_dependencies=services.command_dependencies,
        tokens=services.stores.tokens,
        surface=surface,
        user_activity=services.stores.reporting,
        find_approval=runtime.turn_log.get_approval,
        may_approve=lambda member: decidable(
            runtime.turn_log, Surfaces((surface,)), member, partial(can_approve, services.rules)
        ),
        call_audit=services.stores.call_audit,
        gateway_calls=services.stores.gateway_calls,
        receipt_keys=services.stores.receipt_keys,
        offer_tools=partial(_offer_tools, services),
        models=frozenset(select_model(settings, name).name for name in settings.api_models),
        locales=services.locales,
        keeps_content=settings.keeps_content,
        issuer=(settings.public_url or "countersign").rstrip("/"),
    )


async def _offer_tools(services: AppServices, client: ApiClient) -> Sequence[Tool]:
    """Return the tools that a token may call: those of its profile that no rule forbids whatever the arguments."""
    conversation = client.place()
    offered = await services.toolbox.offer(conversation.workspace_key)
    rules = services.rules.rules(conversation)

    def is_forbidden(tool: Tool) -> bool:
        result = rules.judge(tool, {}, client.author, client.member)
        depends = result.rule is not None and result.rule.arguments
        return result.stored.policy is ApprovalPolicy.ALWAYS_DENY and not depends

    return [tool for tool in rules.enabled_tools(offered).tools if not is_forbidden(tool)]


@asynccontextmanager
async def serve_web(
    settings: Settings,
    *,
    hooks: Sequence[Hook] = (),
    dependencies: WebDependencies | None = None,
    pages: Sequence[Page] = (),
) -> AsyncIterator[int]:
    """Serve while the block runs: hooks, the API over `dependencies` unless None, and `pages`, which take no token.
    Yield the port. Raises SettingsError.
    """
    applications, server, limits = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.web.{name}") for name in ("application", "server", "limits"))
    )
    shares = limits.CallerShares(settings.api_requests_per_token, settings.api_streams_per_token)
    api, gateway = None, None
    if dependencies is not None:
        routes = applications.LazyRoutes(partial(_load_routes, dependencies))
        gateway = applications.LazyRoutes(partial(_load_gateway, settings, dependencies))
        api = applications.api_application(
            applications.gateway_routes(gateway, routes),
            dependencies.tokens,
            secret_value(settings.admin_api_token),
            shares=shares,
        )
        pages = [*pages, *(applications.documentation_routes(routes) if settings.api_docs else ())]
        receipts = importlib.import_module("bot.web.gateway.receipts")
        pages += [receipts.keys_route(receipts.Receipts(dependencies.receipt_keys, dependencies.issuer))]
    app = applications.application(hooks, api=api, pages=pages, language=settings.language)
    proxies = server.TrustedProxies(settings.forwarded_allow_ips)
    async with (
        contextlib.aclosing(gateway) if gateway is not None else contextlib.nullcontext(),
        server.serve(app, settings.web_host, settings.port, proxies=proxies) as port,
    ):
        log.info("listening for requests at %s, port %d", settings.web_host, port)
        if dependencies is not None and settings.console:
            address = lead_to_console(dependencies.command_dependencies, settings, port)
            log.info("the console is at %s/console/", address)
        yield port


@asynccontextmanager
async def serve_if_free(serving: AbstractAsyncContextManager[int]) -> AsyncIterator[int | None]:
    """Serve while the block runs, and yield the port; None if the address is in use, since nobody has chosen it."""
    async with AsyncExitStack() as stack:
        port = None
        try:
            port = await stack.enter_async_context(serving)
        except SettingsError as error:
            log.warning("there is no console: %s", error)
        yield port


def _load_routes(dependencies: WebDependencies) -> RouteNames:
    from bot.web.routes import RouteNames, build_api  # noqa: PLC0415 - loads FastAPI

    return RouteNames(build_api(dependencies))


def _load_gateway(settings: Settings, dependencies: WebDependencies) -> Closable:
    from bot.web.gateway.mcp_server import McpEndpoints  # noqa: PLC0415 - loads the MCP library

    hosts = {"127.0.0.1", "localhost", "[::1]", settings.web_host, urlsplit(settings.public_url or "").netloc}
    return McpEndpoints(dependencies, sorted(filter(None, hosts)))


def build_link_service(settings: Settings, store: LinkStore) -> LinkService | None:
    """Return the link service, None without a public address. An address without TLS is accepted only for this machine,
    because secrets must not cross a network in clear text.
    """
    if settings.public_url is None:
        return None
    address = settings.public_url.rstrip("/")
    parts = urlsplit(address)
    if not _DRAWABLE.fullmatch(address):
        log.warning(
            "there are no one-time links and no sign-ins: PUBLIC_URL must be without a question mark, such as %s",
            _EXAMPLE_URL,
        )
        return None
    if parts.scheme != "https" and not is_this_machine(parts.hostname or ""):
        log.warning(
            "there are no one-time links and no sign-ins: PUBLIC_URL must begin with https://, such as %s", _EXAMPLE_URL
        )
        return None
    return LinkService(store, address)


def build_console_links(settings: Settings, store: LinkStore) -> LinkService | None:
    """Return the service of links to the console, None without one. Without a public address they are for this
    machine.
    """
    if not (settings.console and is_configured(settings)):
        return None
    if settings.public_url is not None:
        return build_link_service(settings, store)
    return LinkService(store, console_address(settings, settings.port) if settings.port else "")


def lead_to_console(dependencies: CommandDependencies, settings: Settings, port: int) -> str:
    """Let links lead to the console at this port, and return its address."""
    address = console_address(settings, port)
    if dependencies.console is not None:
        dependencies.console.address = address
    return address


def console_address(settings: Settings, port: int) -> str:
    """Return the public address, or that on which this machine listens: a socket of all addresses by the loopback
    one.
    """
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.web_host, settings.web_host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class PlatformUserMessenger:
    """Messages and membership lookups on the platforms that this process serves
    (`bot.admin.dependencies.UserMessenger`).
    """

    def __init__(self, surfaces: Sequence[Surface], locales: LocaleResolver) -> None:
        self._surfaces = Surfaces(surfaces)
        self._locales = locales

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user's current membership. Raises DeliveryFailed if this process cannot ask the platform: names in
        the settings may belong to former users.
        """
        return await self._surface(conversation).member(author, conversation)

    async def locale(self, author: Author, conversation: ConversationKey) -> Locale:
        """Return the locale of messages to one user. Never raises."""
        return await self._locales.for_reader(self._surfaces.find(conversation), author, conversation)

    async def tell(self, author: Author, conversation: ConversationKey, text: str) -> None:
        """Send a private message to one user. Raises DeliveryFailed."""
        await self._surface(conversation).post_notice(NoticeTarget(str(conversation), author.id), Notice(text))

    def _surface(self, conversation: ConversationKey) -> Surface:
        surface = self._surfaces.find(conversation)
        if surface is None:
            raise DeliveryFailed(
                f"The process that serves this page cannot ask {conversation.platform}.",
                f"give it the token for {conversation.platform} too",
            )
        return surface


def console_pages(
    settings: Settings, dependencies: WebDependencies, runtime: Runtime, surfaces: Sequence[Surface]
) -> Sequence[Page]:
    """Return the pages of the console. Their libraries load with the first page."""
    from bot.web.application import console_routes  # noqa: PLC0415 - loaded only in processes that serve

    messenger = PlatformUserMessenger(surfaces, dependencies.locales)

    async def find_member(author: Author, conversation: ConversationKey) -> Member:
        """Return a user of a platform, or of this machine's terminal: its own user is the operator."""
        if conversation.platform == CONSOLE:
            return Member(author, platform_admin=author.id == login_name())
        return await messenger.member(author, conversation)

    dependencies.surface.set_user_lookup(find_member)
    return console_routes(partial(_load_console, settings, dependencies, runtime, surfaces, find_member))


def _load_console(
    settings: Settings,
    dependencies: WebDependencies,
    runtime: Runtime,
    surfaces: Sequence[Surface],
    find_member: Callable[[Author, ConversationKey], Awaitable[Member]],
) -> WebApp:
    from bot.app.openid import build_openid  # noqa: PLC0415 - loads with the pages
    from bot.chat.approval_inbox import ApprovalsCommand, PendingCallReader  # noqa: PLC0415 - loads with the pages
    from bot.chat.forms import CardForms  # noqa: PLC0415 - loads with the pages
    from bot.web.authentication import TokenCheck  # noqa: PLC0415 - loads with the pages
    from bot.web.console.application import build_console  # noqa: PLC0415 - loads Jinja2
    from bot.web.console.dependencies import ConsoleDependencies  # noqa: PLC0415 - loads with the pages

    stores = runtime.services.stores
    messenger = PlatformUserMessenger(surfaces, dependencies.locales)
    members = Surfaces(surfaces)
    reader = PendingCallReader(stores.reporting, runtime.turn_log, runtime.services.rules, members=members)

    return build_console(
        ConsoleDependencies(
            web=dependencies,
            commands=CardForms(runtime.engine, ApprovalsCommand(runtime.engine, runtime.commands, reader.read)),
            sessions=stores.sessions,
            links=stores.links,
            tokens=TokenCheck(stores.tokens, secret_value(settings.admin_api_token)),
            messenger=messenger,
            find_member=find_member,
            read_pending=reader.read_within,
            may_approve=lambda member: decidable(
                runtime.turn_log, members, member, partial(can_approve, runtime.services.rules)
            ),
            openid=build_openid(settings, surfaces),
            address=(settings.public_url or "").rstrip("/"),
        )
    )


def link_pages(parts: CommandDependencies, surfaces: Sequence[Surface], locales: LocaleResolver) -> Sequence[Page]:
    """Return the pages, an empty sequence without links. Loads the web libraries."""
    if parts.links is None:
        return ()
    from bot.admin.servers.secrets import SecretEntry  # noqa: PLC0415 - only processes with links need it
    from bot.admin.servers.sign_in import OAuthCallback  # noqa: PLC0415 - only processes with links need it
    from bot.web.pages import secret_routes, sign_in_routes  # noqa: PLC0415 - loads the web libraries

    messenger = PlatformUserMessenger(surfaces, locales)
    routes: list[Page] = [*secret_routes(SecretEntry(parts, parts.links.store, messenger))]
    if parts.sign_ins is not None:
        routes += sign_in_routes(OAuthCallback(parts, parts.sign_ins, messenger), parts.links.address)
    return routes
