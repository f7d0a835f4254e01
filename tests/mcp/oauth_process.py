"""A process with its database, its toolbox and its sign-ins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bot.domain.conversations import ConversationKey
from bot.domain.servers import AuthenticationKind, HttpTransport, OAuthTerms, ServerConfig
from bot.domain.sign_ins import CALLBACK_PATH, callback_path
from bot.errors import ServerTrouble
from bot.mcp.config.checks import AllowedTargets, Resolve, resolve_host
from bot.mcp.oauth.client import ClientIdentity
from bot.mcp.oauth.http import OAuthDependencies
from bot.mcp.oauth.sign_ins import OAuthSignIns
from bot.mcp.oauth.tokens import TokenProviders
from bot.mcp.redaction import KnownSecrets
from bot.mcp.toolbox import McpToolbox
from bot.ports import AuthorizationResponse, SignedIn, SignInStore
from bot.storage.admin.sign_ins import SqlSignInStore
from bot.storage.coordination import SqlLeases
from bot.storage.encryption import SecretBox
from bot.storage.sqlite import open_sqlite
from tests.fakes.oauth import FakeOAuth
from tests.mcp.toolboxes import ANA, call, text, tool_by_name, toolbox
from tests.migrated import create_database

SERVER = "file:s"
HALL = ConversationKey("console", "w", "hall", "1")
ADDRESS = "http://localhost:9"
BACK = f"{ADDRESS}{callback_path(SERVER)}"
KEY = b"k" * 32


async def anybody(_: SignedIn) -> None:
    """Allow every returning user."""


@dataclass
class OAuthProcess:
    """One process. `store` holds its sign-ins."""

    box: McpToolbox
    sign_ins: OAuthSignIns
    store: SqlSignInStore
    secrets: KnownSecrets
    bearers: TokenProviders

    async def sign_in(self, oauth: FakeOAuth) -> SignedIn:
        """Sign in as Ana: request a link, agree, and return."""
        return await self.back(await oauth.browser(await self.sign_ins.begin(SERVER, ANA, HALL)))

    async def back(self, brought: dict[str, str], allowed: Callable[[SignedIn], Awaitable[None]] = anybody) -> SignedIn:
        """Finish a sign-in with the parameters of the authorization server's redirect."""
        error, code = brought.get("error", ""), brought.get("code", "")
        callback = brought["to"].removeprefix(CALLBACK_PATH)
        response = AuthorizationResponse(callback, brought["state"], code, brought.get("iss"), error)
        return await self.sign_ins.complete(response, allowed)


def server(url: str, kind: AuthenticationKind | None = AuthenticationKind.OAUTH, **terms: str) -> ServerConfig:
    """Return a server of the operator's file."""
    return ServerConfig("s", HttpTransport(url), sign_in=None if kind is None else OAuthTerms(kind, **terms))


@asynccontextmanager
async def oauth_process(
    folder: Path,
    *configs: ServerConfig,
    clock: Callable[[], float] = time.time,
    address: str = ADDRESS,
    allowances: AllowedTargets | None = None,
    resolve: Resolve = resolve_host,
    watch: Callable[[SignInStore], SignInStore] = lambda store: store,
) -> AsyncIterator[OAuthProcess]:
    """Yield a process on the database in the folder, which keeps the rows of earlier processes.

    `watch` may wrap the store of its sign-ins.
    """
    path = folder / "turns.db"
    if not path.exists():
        await create_database(path)
    database = open_sqlite(path)
    store = SqlSignInStore(database, SecretBox((KEY,)))
    secrets = KnownSecrets()
    allowances = allowances or AllowedTargets()
    bearers = TokenProviders(OAuthDependencies(watch(store), SqlLeases(database), secrets, allowances, resolve, clock))
    box = toolbox(*configs, secrets=secrets, bearers=bearers, allowances=allowances, resolve=resolve)
    await box.start()
    try:
        yield OAuthProcess(
            box, OAuthSignIns(box, bearers, partial(ClientIdentity.from_address, address)), store, secrets, bearers
        )
    finally:
        await box.close()
        await database.close()


async def refusal(here: OAuthProcess) -> ServerTrouble:
    """Return the error of a request for Ana's link."""
    with pytest.raises(ServerTrouble) as raised:
        await here.sign_ins.begin(SERVER, ANA, HALL)
    return raised.value


async def meet(here: OAuthProcess, place: str, people: int) -> list[str]:
    """Make `people` calls that wait for each other in the server, and return their texts."""
    tool = tool_by_name(here.box, "meet")
    outcomes = await asyncio.gather(*(call(tool, here.box, place=place, people=people) for _ in range(people)))
    return [text(outcome) for outcome in outcomes]
