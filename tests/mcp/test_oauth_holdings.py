"""What a process knows of a sign-in while it reads and writes it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot.domain.sign_ins import Registration, SignIn, SignInKey
from bot.mcp.endpoint_fingerprint import endpoint_fingerprint
from bot.mcp.oauth import OAuthDependencies
from bot.mcp.oauth.tokens import SignInCache
from bot.mcp.redaction import KnownSecrets
from bot.ports import SignInStore
from bot.storage.leases import SqlLeases
from bot.storage.secret_box import SecretBox
from bot.storage.sign_in_store import SqlSignInStore
from bot.storage.sqlite import open_sqlite
from tests.mcp.boxes import LIMIT
from tests.mcp.signing import KEY, SERVER, server
from tests.migrated import migrated

CONFIG = server("https://jira.example/mcp")
OLD_TOKEN, NEW_TOKEN = "old-4kT9wQ2mZx7R", "new-8pL3vN6sYb1H"
OLD = SignIn(endpoint_fingerprint(CONFIG), "r", Registration("https://issuer.example", "bot"), access_token=OLD_TOKEN)


class Slow:
    """A store that has read and does not say what before it is told to."""

    def __init__(self, store: SqlSignInStore) -> None:
        self._store = store
        self.has_read, self.may_say = asyncio.Event(), asyncio.Event()

    async def find(self, key: SignInKey) -> SignIn | None:
        found = await self._store.find(key)
        self.has_read.set()
        async with asyncio.timeout(LIMIT):
            await self.may_say.wait()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[OAuthDependencies]:
    database = open_sqlite(await migrated(tmp_path / "turns.db"))
    store = cast("SignInStore", Slow(SqlSignInStore(database, SecretBox((KEY,)))))
    yield OAuthDependencies(store, SqlLeases(database), KnownSecrets())
    await database.close()


async def test_what_was_read_before_something_newer_was_kept_does_not_come_back(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    first = await desk.store.save(SignInKey(SERVER), OLD)
    assert first is not None
    holding = SignInCache(CONFIG, desk)
    reading = asyncio.create_task(holding.read())
    async with asyncio.timeout(LIMIT):
        await slow.has_read.wait()
    keeping = asyncio.create_task(holding.keep(replace(first, access_token=NEW_TOKEN)))
    slow.may_say.set()
    await asyncio.gather(reading, keeping)
    assert holding.access_token == NEW_TOKEN
    assert (await holding.read()) == holding.sign_in
    assert holding.access_token == NEW_TOKEN
    assert desk.secrets(f"{OLD_TOKEN}, {NEW_TOKEN}") == "***, ***"


async def test_no_request_uses_the_old_sign_in_while_another_reads_the_new_one(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    slow.may_say.set()
    first = await desk.store.save(SignInKey(SERVER), OLD)
    assert first is not None
    cache = SignInCache(CONFIG, desk)
    assert (await cache.current()) is not None
    assert cache.access_token == OLD_TOKEN
    second = await desk.store.save(SignInKey(SERVER), replace(first, access_token=NEW_TOKEN))
    assert second is not None
    cache.learn(second.version)
    slow.may_say.clear()
    slow.has_read.clear()
    one_request = asyncio.create_task(cache.current())
    async with asyncio.timeout(LIMIT):
        await slow.has_read.wait()
    another_request = asyncio.create_task(cache.current())
    await asyncio.sleep(0)
    slow.may_say.set()
    assert [sign_in and sign_in.access_token for sign_in in await asyncio.gather(one_request, another_request)] == [
        NEW_TOKEN,
        NEW_TOKEN,
    ]


async def test_a_sign_in_that_was_doubted_during_a_read_is_read_again(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    first = await desk.store.save(SignInKey(SERVER), OLD)
    assert first is not None
    cache = SignInCache(CONFIG, desk)
    reading = asyncio.create_task(cache.current())
    async with asyncio.timeout(LIMIT):
        await slow.has_read.wait()
    second = await desk.store.save(SignInKey(SERVER), replace(first, access_token=NEW_TOKEN))
    assert second is not None
    cache.learn(second.version)
    slow.may_say.set()
    await reading
    await cache.current()
    assert cache.access_token == NEW_TOKEN
