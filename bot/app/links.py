"""Links for users: one-time links for secrets and OAuth callback links, with the dependencies of their pages."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.commands.dependencies import CommandDependencies, LinkService
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.views import Notice, NoticeTarget
from bot.engine.view_delivery import surface_for
from bot.errors import DeliveryFailed
from bot.ports import LinkStore, Surface
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.web.application import Page

log = logging.getLogger(__name__)

_SUCH = "https://bot.example.com"
_DRAWABLE = re.compile(r"[A-Za-z0-9._~:/\[\]%-]+")
"""Addresses that every platform displays as a link without escaping."""


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
            _SUCH,
        )
        return None
    if parts.scheme != "https" and not _is_this_machine(parts.hostname or ""):
        log.warning(
            "there are no one-time links and no sign-ins: PUBLIC_URL must begin with https://, such as %s", _SUCH
        )
        return None
    return LinkService(store, address)


class PlatformUserMessenger:
    """Messages and membership lookups on the platforms that this process serves
    (`bot.commands.dependencies.UserMessenger`).
    """

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        self._surfaces = surfaces

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user's current membership. Raises DeliveryFailed if this process cannot ask the platform: names in
        the settings may belong to users who have left.
        """
        return await self._surface(conversation).member(author, conversation)

    async def tell(self, author: Author, conversation: ConversationKey, text: str) -> None:
        """Send a private message to one user. Raises DeliveryFailed."""
        await self._surface(conversation).post_notice(NoticeTarget(str(conversation), author.id), Notice(text))

    def _surface(self, conversation: ConversationKey) -> Surface:
        surface = surface_for(self._surfaces, conversation)
        if surface is None:
            raise DeliveryFailed(
                f"The process that serves this page cannot ask {conversation.platform}.",
                f"give it the token for {conversation.platform} too",
            )
        return surface


def link_pages(parts: CommandDependencies, surfaces: Sequence[Surface]) -> Sequence[Page]:
    """Return the pages, an empty sequence without links. Loads the web libraries."""
    if parts.links is None:
        return ()
    people = PlatformUserMessenger(surfaces)
    secrets = importlib.import_module("bot.commands.server_secrets")
    web = importlib.import_module("bot.web.pages")
    routes: list[Page] = web.secret_routes(secrets.SecretEntry(parts, parts.links.store, people))
    if parts.sign_ins is not None:
        sign_in = importlib.import_module("bot.commands.sign_in")
        routes += web.sign_in_routes(sign_in.OAuthCallback(parts, parts.sign_ins, people), parts.links.address)
    return routes


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
