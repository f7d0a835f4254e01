"""A bot with its pages for browsers over a real socket, on real stores, and the users of a platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import httpx2

from bot.app.components import Runtime
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_runtime
from bot.app.stores import Stores
from bot.app.web import attach_surface, build_web_dependencies, console_pages, link_pages, open_surface, serve_web
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.commands import Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.openid import Identity
from bot.domain.turns import Notice, NoticeTarget
from bot.ports import Surface
from bot.settings import read_settings
from tests.fakes.parts import ANA, HALL, RecordingSurface
from tests.migrated import at_hand
from tests.web.api_server import DEMO

PUBLIC = "https://bot.example.com"
ADMIN = Member(ANA, platform_admin=True)


@dataclass
class Staff(RecordingSurface):
    """A surface with administrators, which records notices."""

    admins: set[str] = field(default_factory=lambda: {ANA.id})
    told: list[tuple[NoticeTarget, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    away: Exception | None = None
    locale: Locale = UNKNOWN
    people: dict[str, Sequence[tuple[Member, ConversationKey]]] = field(default_factory=dict)
    """Members by their e-mail addresses, or by their ids at the platform's own issuer."""

    async def find_people(self, identity: Identity) -> Sequence[tuple[Member, ConversationKey]]:
        return self.people.get(identity.slack_user or identity.email, ())

    async def member(self, author: Author, where: ConversationKey) -> Member:
        self.asked.append(author.id)
        if self.away is not None:
            raise self.away
        return Member(author, platform_admin=author.id in self.admins)

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:
        return self.locale

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        if self.away is not None:
            raise self.away
        self.told.append((audience, notice.text))


@dataclass
class PagesBot:
    """The bot, a browser and the users."""

    runtime: Runtime
    client: httpx2.AsyncClient
    staff: Staff

    @property
    def stores(self) -> Stores:
        return self.runtime.services.stores

    async def ask(
        self, line: str, member: Member = ADMIN, where: ConversationKey = HALL, *, on_page: bool = False
    ) -> Reply:
        """Run a command line in a chat and return the last reply."""
        command, *words = line.split()
        request = Invocation(command, tuple(words), member, where, on_page=on_page)
        *_, last = [answer async for answer in self.runtime.commands.handle(request)]
        assert isinstance(last, Reply), last
        return last

    async def audit(self) -> list[AuditEntry]:
        """Return the audit, newest first."""
        return [*(await self.stores.reporting.audit(AuditQuery(), 100, 0))[0]]


def text_of(page: httpx2.Response) -> str:
    """Return the visible text of a page."""
    body = page.text.partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


@asynccontextmanager
async def opened_pages(
    folder: Path, *hosts: str, operator: str = "", api: bool = False, **settings: Any
) -> AsyncIterator[tuple[Runtime, httpx2.AsyncClient, Staff]]:
    """Serve the pages of a bot that may connect to servers on these hosts, and with `api` its HTTP API."""
    given = {
        "database_url": f"sqlite:///{await at_hand(folder / 'countersign.db')}",
        "port": 0,
        "mcp_servers_file": folder / "no servers.json",
        "public_url": PUBLIC,
        "mcp_allowed_hosts": frozenset(hosts),
        **settings,
    }
    read, staff, programs = read_settings(**given), Staff(), await open_surface()
    surfaces: list[Surface] = [staff, programs]
    async with open_runtime(read, read_operator_files(read), DEMO, surfaces, operator=operator) as runtime:
        attach_surface(programs, read, runtime)
        dependencies = build_web_dependencies(read, runtime, programs) if api else None
        pages = [*link_pages(runtime.services.command_dependencies, surfaces, runtime.services.locales)]
        if dependencies is not None:
            pages += console_pages(read, dependencies, runtime, surfaces)
        async with (
            serve_web(read, dependencies=dependencies, pages=pages) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        ):
            yield runtime, client, staff
