"""The HTTP API of a whole bot over a real socket: stores on SQLite, engine, toolbox and commands as in production.

The model is the bundled demo, or a script; the MCP server `fake` is an endpoint in the test's own loop, in the
operator's file.

    async with opened_api(tmp_path) as api:
        token = await api.token("ci", Role.MEMBER)
        answer = await api.get("/api/…", token=token)
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bot.app.components import Runtime
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_runtime
from bot.app.web import attach_surface, build_web_dependencies, console_pages, link_pages, open_surface, serve_web
from bot.domain.api_clients import ApiRole
from bot.domain.servers import EVERYWHERE
from bot.llm.models import ModelChoice
from bot.ports import LanguageModel, Surface
from bot.settings import read_settings
from bot.web.dependencies import WebDependencies
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.fakes.parts import ANA, ScriptedModel
from tests.migrated import at_hand

ADMIN_TOKEN = "the-operators-own-token-of-the-tests"
DEMO = ModelChoice("demo", "demo")
TOOLS = ("look", "write")
"""The tools of the server `fake`."""


@dataclass(frozen=True, slots=True)
class ScriptedChoice(ModelChoice):
    """A model choice with a scripted model."""

    model: ScriptedModel | None = None

    def create(self) -> LanguageModel:
        assert self.model is not None
        return self.model


def scripted_choice(model: ScriptedModel) -> ModelChoice:
    return ScriptedChoice("scripted", "scripted", model=model)


@dataclass
class Api:
    """The API for its clients. `client` sends no token by default. The methods here send the operator's token."""

    runtime: Runtime
    parts: WebDependencies
    endpoint: FakeEndpoint
    port: int
    client: httpx2.AsyncClient

    async def token(self, name: str, role: ApiRole, workspace: str = EVERYWHERE, lifetime: float | None = None) -> str:
        """Create a token and return its secret."""
        return (await self.parts.tokens.create(name, role, workspace, lifetime, ANA))[1]

    async def request(self, method: str, path: str, *, token: str | None = ADMIN_TOKEN, **more: Any) -> httpx2.Response:
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **more)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.request("GET", path, **more)

    async def post(self, path: str, **more: Any) -> httpx2.Response:
        return await self.request("POST", path, **more)

    async def put(self, path: str, **more: Any) -> httpx2.Response:
        return await self.request("PUT", path, **more)

    async def patch(self, path: str, **more: Any) -> httpx2.Response:
        return await self.request("PATCH", path, **more)

    async def delete(self, path: str, **more: Any) -> httpx2.Response:
        return await self.request("DELETE", path, **more)


@asynccontextmanager
async def opened_api(
    folder: Path,
    *,
    model: ModelChoice = DEMO,
    surfaces: list[Surface] | None = None,
    servers: dict[str, Any] | None = None,
    operator: str = "",
    **settings: Any,
) -> AsyncIterator[Api]:
    """Serve the API of a bot in `folder` on a free port. `servers` adds entries to the operator's file."""
    async with FakeEndpoint() as endpoint:
        endpoint.speak_modern(*TOOLS)
        entries = {"fake": {"url": endpoint.url}, **(servers or {})}
        file = folder / "servers.json"
        file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        given = {
            "database_url": f"sqlite:///{await at_hand(folder / 'countersign.db')}",
            "admin_api_token": ADMIN_TOKEN,
            "port": 0,
            "mcp_servers_file": file,
            "policy_file": folder / "policy.toml",
            "system_prompt_file": folder / "system_prompt.md",
            "bot_model": "demo",
            **settings,
        }
        read = read_settings(**given)
        surface = await open_surface()
        async with open_runtime(
            read, read_operator_files(read), model, [surface, *(surfaces or [])], operator=operator
        ) as runtime:
            attach_surface(surface, read, runtime)
            parts = build_web_dependencies(read, runtime, surface)
            pages = [
                *link_pages(parts.command_dependencies, [surface, *(surfaces or [])], parts.locales),
                *console_pages(read, parts, runtime, [surface, *(surfaces or [])]),
            ]
            async with (
                serve_web(read, dependencies=parts, pages=pages) as port,
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, verify=False) as client,
            ):
                yield Api(runtime, parts, endpoint, port, client)
