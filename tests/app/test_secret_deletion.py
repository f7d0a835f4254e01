"""Two processes on one database: after one deletes a secret, the other neither redacts nor sends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app.components import AppServices
from bot.app.database import open_migrated_database
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_services
from bot.domain.conversations import Author
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    Authentication,
    AuthenticationKind,
    ConnectPolicy,
    HttpTransport,
    ServerConfig,
    ServerRecord,
)
from bot.domain.tools import CallNotSent, Tool, ToolOutcome
from bot.settings import read_settings
from bot.storage.encryption import generate_key
from tests.fakes.mcp.endpoint import FakeEndpoint, Message, Reaction, result
from tests.fakes.parts import until
from tests.mcp.toolboxes import call, text
from tests.postgres import Server

ANA = Author("console", "ana", "ana")
SECRET = "Zk29vT4x-q7Lm"
NEW = "Wb83nR5y-p2Kd"
SAID = f"{SECRET} {NEW}"
SIGNED_IN = ServerRecord(
    ServerConfig("tickets", HttpTransport(""), id="t1"),
    Authentication(AuthenticationKind.HEADER, "X-Key"),
    {AUTH_SECRET: SecretReference(SecretSource.STORED)},
)


@pytest.fixture(params=["sqlite", "postgresql"])
async def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 0.1)
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/countersign.db"
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    return await asyncio.to_thread(server.fresh)


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_modern("t")

        def echo(message: Message) -> Reaction:
            said = message["params"]["arguments"]["text"]
            return result(message, {"content": [{"type": "text", "text": said}]})

        endpoint.on["tools/call"] = echo
        yield endpoint


@asynccontextmanager
async def processes(address: str) -> AsyncIterator[Sequence[AppServices]]:
    """Yield the services of two processes that follow one database. Connections, toolbox and known secrets are
    separate.
    """
    key = generate_key()
    async with AsyncExitStack() as stack:
        offices = []
        for _ in range(2):
            settings = read_settings(
                database_url=address, mcp_encryption_key=key, mcp_allowed_hosts=frozenset({"127.0.0.1"})
            )
            database = await stack.enter_async_context(open_migrated_database(settings, migrate=True))
            opened = open_services(
                settings, read_operator_files(settings), database, operator=ANA.principal, connect=ConnectPolicy.EAGER
            )
            office = await stack.enter_async_context(opened)
            task = asyncio.create_task(office.administration.run())
            stack.push_async_callback(asyncio.wait, {task})
            stack.callback(task.cancel)
            offices.append(office)
        yield offices


def tools(office: AppServices) -> list[Tool]:
    return [tool for state in office.toolbox.servers() for tool in office.toolbox.capabilities(state.config.id).tools]


async def repeat_secrets(office: AppServices) -> ToolOutcome:
    """Return the outcome of a call whose tool repeats both secrets."""
    return await call(tools(office)[0], office.toolbox, text=SAID)


async def test_a_secret_that_one_process_deletes_is_neither_hidden_nor_sent_by_the_other(
    address: str, endpoint: FakeEndpoint
) -> None:
    record = replace(SIGNED_IN, config=replace(SIGNED_IN.config, transport=HttpTransport(endpoint.url)))
    async with processes(address) as (here, there):
        added = await here.stores.servers.add(record, {AUTH_SECRET: SECRET}, ANA)
        await until(lambda: bool(tools(here) and tools(there)))
        assert [text(await repeat_secrets(here)), text(await repeat_secrets(there))] == [f"*** {NEW}", f"*** {NEW}"]
        assert endpoint.seen[-1][0]["x-key"] == SECRET
        bare = replace(added, authentication=Authentication(), secrets={})
        changed = await here.stores.servers.change(bare, {}, ANA, changes={})
        await until_said(there, SAID)
        assert "x-key" not in endpoint.seen[-1][0]
        signed_in = replace(changed, authentication=record.authentication, secrets=record.secrets)
        again = await here.stores.servers.change(signed_in, {AUTH_SECRET: NEW}, ANA, changes={})
        await until_said(there, f"{SECRET} ***")
        await here.stores.servers.remove("t1", again.version, ANA)
        await until(lambda: not there.toolbox.servers())
        assert not there.toolbox.secret_spans("t1", SAID)


async def until_said(office: AppServices, wanted: str) -> None:
    """Wait until a call of this process returns the text `wanted`."""
    async with asyncio.timeout(20):
        # A process that has read the server and not yet its secrets sends nothing.
        while isinstance(outcome := await repeat_secrets(office), CallNotSent) or text(outcome) != wanted:
            await asyncio.sleep(0.05)
