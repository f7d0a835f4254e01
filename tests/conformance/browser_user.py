"""A user who signs the bot in wherever a server wants it, repeatedly, and agrees to everything."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2

from bot.domain.conversations import Author, ConversationKey
from bot.domain.servers import DesiredServer, ServerConfig, ServerSnapshot, ServerStatus
from bot.errors import CountersignError
from bot.mcp.oauth.client import ClientIdentity
from bot.mcp.oauth.http import OAuthDependencies
from bot.mcp.oauth.sign_ins import OAuthSignIns
from bot.mcp.oauth.tokens import TokenProviders
from bot.mcp.redaction import KnownSecrets
from bot.mcp.toolbox import McpToolbox
from bot.ports import AuthorizationResponse, SignedIn
from bot.storage.admin.sign_ins import SqlSignInStore
from bot.storage.coordination import SqlLeases
from bot.storage.encryption import SecretBox
from bot.storage.sqlite import open_sqlite
from tests.migrated import create_database

ANA = Author("console", "ana", "Ana")
HALL = ConversationKey("console", "suite", "hall", "1")
CALLBACK = "http://localhost:9/oauth/mcp/callback"
DESCRIPTION = "https://conformance-test.local/client-metadata.json"
"""The description that the suite serves."""
_PATIENCE = 3


class Person:
    """Connects servers."""

    def __init__(self, box: McpToolbox, sign_ins: OAuthSignIns) -> None:
        self._box = box
        self._sign_ins = sign_ins
        self._left = _PATIENCE

    async def connect(self, server: str) -> ServerSnapshot:
        """Connect to a server, and sign in to it if it wants that."""
        state = await self._box.connect(server)
        while state.status is ServerStatus.AUTH_REQUIRED and await self.signs_in(server):
            state = await self._box.connect(server)
        return state

    async def signs_in(self, server: str) -> bool:
        """Sign in, if the server takes that and it has not been too often; whether it went well."""
        if self._left == 0 or not await self._sign_ins.is_available(server):
            return False
        self._left -= 1
        try:
            brought = await _visit_address(await self._sign_ins.begin(server, ANA, HALL))
            error, code = brought.get("error", ""), brought.get("code", "")
            response = AuthorizationResponse("callback", brought["state"], code, brought.get("iss"), error)
            await self._sign_ins.complete(response, _anybody)
        except CountersignError as trouble:
            print(trouble, file=sys.stderr)
            return False
        return True


@asynccontextmanager
async def signing_in(server: ServerConfig) -> AsyncIterator[tuple[McpToolbox, Person]]:
    """A toolbox with one server, and a user who signs in to it."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_sqlite(await create_database(Path(folder) / "turns.db"))
        store = SqlSignInStore(database, SecretBox((b"k" * 32,)))
        bearers = TokenProviders(OAuthDependencies(store, SqlLeases(database), KnownSecrets()))
        box = McpToolbox([DesiredServer(server)], bearers=bearers)
        await box.start()
        try:
            yield box, Person(box, OAuthSignIns(box, bearers, lambda _: ClientIdentity(CALLBACK, DESCRIPTION)))
        finally:
            await box.close()
            await database.close()


async def _visit_address(address: str) -> dict[str, str]:
    """Return the parameters that a browser brings back."""
    async with httpx2.AsyncClient() as client:
        answer = await client.get(address)
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


async def _anybody(_: SignedIn) -> None:
    """Every returning user is allowed."""
