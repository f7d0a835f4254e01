"""Commands over HTTP: the real application over a real socket, with a token for each user."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any, cast

import httpx2
from starlette.types import ASGIApp

from bot.domain.api_clients import ApiRole
from bot.domain.commands import (
    ActionStyle,
    Field,
    FieldKind,
    Form,
    FormSubmission,
    Invocation,
    PageInfo,
    Reply,
    ReplyAction,
    ReplyFile,
    Table,
)
from bot.domain.conversations import HTTP, Author, ConversationKey, InboundMessage, Member
from bot.domain.servers import EVERYWHERE
from bot.domain.turns import Receipt
from bot.engine.locales import LocaleResolver
from bot.web.application import LazyRoutes, api_application, application
from bot.web.dependencies import WebDependencies
from bot.web.routes import RouteNames, build_api
from bot.web.server import serve
from tests.admin.servers import OPERATOR, CommandHarness
from tests.admin.tokens import MemoryTokens
from tests.fakes.parts import ANA


@dataclass
class Engine:
    """Fake engine that records received messages."""

    received: list[InboundMessage] = field(default_factory=list)

    async def receive(self, message: InboundMessage) -> Receipt:
        self.received.append(message)
        return Receipt("turn-1")


@dataclass
class HttpCommands:
    """Sends commands over HTTP. The application runs them on the harness of the last request."""

    client: httpx2.AsyncClient
    address: str
    tokens: MemoryTokens
    engine: Engine
    held: CommandHarness | None = None

    async def answers(self, held: CommandHarness, request: Invocation | FormSubmission) -> list[Reply | Form]:
        self.held = held
        token = await self._token(request.member, request.conversation)
        # A user in a workspace acts for that workspace only.
        workspace = "" if request.member == OPERATOR else request.conversation.workspace_key
        place = {"workspace": workspace, "conversationId": request.conversation.thread}
        path, said = "", dict[str, Any]()
        match request:
            case Invocation():
                path, said = "", {"command": request.command, "words": list(request.words)}
            case FormSubmission():
                path, said = "/forms", {"form": request.form, "fields": dict(request.fields)}
        answer = await self.client.post(
            f"{self.address}/api/commands{path}", json={**said, **place}, headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 200, answer.text
        read = _read(answer.json())
        if isinstance(read, Reply) and answer.json()["turn"] is not None:
            read = replace(read, message=self.engine.received[-1])
        return [read]

    def author(self, author: Author) -> Author:
        return Author(HTTP, author.id, author.id)

    def place(self, where: ConversationKey, author: Author = ANA) -> ConversationKey:
        return ConversationKey(HTTP, where.workspace_key, author.id, where.thread)

    async def _token(self, member: Member, where: ConversationKey) -> str:
        """Return a token of the user.

        The operator has no API token; an admin's token for all workspaces comes closest.
        """
        role = ApiRole.ADMIN if member.platform_admin else ApiRole.MEMBER
        workspace = EVERYWHERE if member == OPERATOR else where.workspace_key
        return await self.tokens.for_whom(member.author.id, role, workspace)


@asynccontextmanager
async def http_commands() -> AsyncIterator[HttpCommands]:
    """Serve the application and yield a way to send commands to it."""
    api, now = _api()
    async with serve(application(api=api), "127.0.0.1", 0) as port, httpx2.AsyncClient(timeout=30) as client:
        now.way = HttpCommands(client, f"http://127.0.0.1:{port}", now.tokens, now.engine)
        yield now.way


@dataclass
class _Now:
    """The commands of the current harness, and the other dependencies of the command routes."""

    tokens: MemoryTokens = field(default_factory=MemoryTokens)
    engine: Engine = field(default_factory=Engine)
    way: HttpCommands | None = None

    def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        assert self.way is not None
        assert self.way.held is not None
        return self.way.held.registry.handle(request)


@functools.cache
def _api() -> tuple[ASGIApp, _Now]:
    """Build the application's API. The result is cached, because building takes longer than most requests."""
    now = _Now()
    parts = _parts(now)
    return api_application(LazyRoutes(lambda: RouteNames(build_api(parts))), now.tokens, ""), now


def _parts(now: _Now) -> WebDependencies:
    given: Mapping[str, Any] = {
        "engine": now.engine,
        "commands": now,
        "command_dependencies": CommandHarness().parts,
        "tokens": now.tokens,
        "locales": LocaleResolver(),
        "surface": SimpleNamespace(subscriptions=None, uploads=None),
    }
    rest = {each.name: None for each in fields(WebDependencies)}
    return WebDependencies(**cast("Any", {**rest, **given}))


def _read(answer: Mapping[str, Any]) -> Reply | Form:
    """Decode a response into the reply or form that it represents."""
    if answer["form"] is not None:
        return Form(
            answer["form"],
            answer["text"],
            tuple(_field(each) for each in answer["fields"]),
            intro=answer["intro"],
            carried=answer["carried"],
            instead=answer["instead"],
        )
    rows, page, document = answer["rows"], answer["page"], answer["document"]
    return Reply(
        answer["text"],
        None if rows is None else Table(tuple(rows[0]) if rows else (), tuple(tuple(row.values()) for row in rows)),
        tuple((name, value) for name, value in answer["facts"]),
        failed=answer["failed"],
        actions=tuple(
            ReplyAction(each["label"], tuple(each["words"]), ActionStyle(each["tone"]), each["confirm"])
            for each in answer["actions"]
        ),
        page=None if page is None else PageInfo(page["number"], page["of"], tuple(page["words"])),
        document=None if document is None else ReplyFile(document["name"], document["text"], document["mimeType"]),
    )


def _field(field: Mapping[str, Any]) -> Field:
    return Field(
        field["name"],
        field["label"],
        FieldKind(field["kind"]),
        field["hint"],
        field["required"],
        tuple(field["choices"]),
        field["value"],
        field["error"],
        field["longest"],
    )
