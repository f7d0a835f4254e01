"""A small API with a few routes of the test over a real socket: the full middleware, and no bot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from fastapi import APIRouter
from starlette.routing import BaseRoute

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.conversations import Author
from bot.domain.servers import EVERYWHERE
from bot.web.application import Hook, LazyRoutes, RequestMiddleware, api_application, application
from bot.web.authentication import LoginThrottle
from bot.web.routes import RouteNames, api_routes
from bot.web.server import serve

OPERATORS = "the-operators-own-token-Zk29vT4x"


@dataclass
class MemoryTokens:
    """Fake `TokenStore`. `find_by_secret` raises `trouble` if it is set."""

    entries: dict[str, ApiToken] = field(default_factory=dict)
    looked: int = 0
    trouble: Exception | None = None

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        token = f"cs_{len(self.entries):043}"
        self.entries[token] = ApiToken(name, name, role, workspace)
        return self.entries[token], token

    async def tokens(self) -> Sequence[ApiToken]:
        return list(self.entries.values())

    async def find_by_secret(self, token: str) -> ApiToken | None:
        self.looked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.entries.get(token)

    async def revoke(self, name: str, by: Author) -> bool:
        self.entries = {token: each for token, each in self.entries.items() if each.name != name}
        return True

    def add(self, name: str, role: ApiRole = ApiRole.MEMBER, workspace: str = EVERYWHERE) -> str:
        token = f"cs_{len(self.entries):043}"
        self.entries[token] = ApiToken(name, name, role, workspace)
        return token


def small_application(
    router: APIRouter,
    *,
    tokens: MemoryTokens | None = None,
    attempts: LoginThrottle | None = None,
    hooks: Sequence[Hook] = (),
    pages: Sequence[BaseRoute] = (),
    largest: int = 100,
    seconds: float = 60.0,
) -> RequestMiddleware:
    """Return the routes with the full middleware. The body limit is small, so that tests need no long bodies."""
    routes = LazyRoutes(lambda: RouteNames(api_routes([router])))
    api = api_application(
        routes, tokens or MemoryTokens(), OPERATORS, throttle=attempts, largest=largest, seconds=seconds
    )
    return application(hooks, api=api, pages=pages)


def client_of(port: int) -> httpx2.AsyncClient:
    """Return an HTTP client that sends the operator's token."""
    headers = {"Authorization": f"Bearer {OPERATORS}"}
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20, verify=False)


@asynccontextmanager
async def serve_routes(router: APIRouter, **more: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the routes and yield an HTTP client for them."""
    async with serve(small_application(router, **more), "127.0.0.1", 0) as port, client_of(port) as client:
        yield client
