"""Cache of a sign-in during simultaneous reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot.domain.sign_ins import Registration, SignIn, SignInKey
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.oauth.http import OAuthDependencies
from bot.mcp.oauth.tokens import SignInCache
from bot.mcp.redaction import KnownSecrets
from bot.ports import SignInStore
from bot.storage.admin.sign_ins import SqlSignInStore
from bot.storage.coordination import SqlLeases
from bot.storage.encryption import SecretBox
from bot.storage.sqlite import open_sqlite
from tests.mcp.oauth_process import KEY, SERVER, server
from tests.mcp.toolboxes import LIMIT
from tests.migrated import create_database

CONFIG = server("https://jira.example/mcp")
OLD_TOKEN, NEW_TOKEN = "old-4kT9wQ2mZx7R", "new-8pL3vN6sYb1H"
OLD = SignIn(endpoint_fingerprint(CONFIG), "r", Registration("https://issuer.example", "bot"), access_token=OLD_TOKEN)


class Slow:
    """A store that reads a sign-in at once and returns it when `may_say` is set."""

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
    database = open_sqlite(await create_database(tmp_path / "turns.db"))
    store = cast("SignInStore", Slow(SqlSignInStore(database, SecretBox((KEY,)))))
    yield OAuthDependencies(store, SqlLeases(database), KnownSecrets())
    await database.close()


async def begin_read(slow: Slow, reading: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """Start a read, and return once it has the row and waits to return it."""
    slow.may_say.clear()
    slow.has_read.clear()
    task = asyncio.create_task(reading)
    async with asyncio.timeout(LIMIT):
        await slow.has_read.wait()
    return task


async def save(desk: OAuthDependencies, sign_in: SignIn) -> SignIn:
    saved = await desk.store.save(SignInKey(SERVER), sign_in)
    assert saved is not None
    return saved


async def test_an_older_read_does_not_replace_a_newer_sign_in(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    first = await save(desk, OLD)
    holding = SignInCache(CONFIG, desk)
    reading = await begin_read(slow, holding.read_sign_in())
    keeping = asyncio.create_task(holding.save(replace(first, access_token=NEW_TOKEN)))
    slow.may_say.set()
    await asyncio.gather(reading, keeping)
    assert holding.access_token == NEW_TOKEN
    assert (await holding.read_sign_in()) == holding.sign_in
    assert holding.access_token == NEW_TOKEN
    assert desk.secrets(f"{OLD_TOKEN}, {NEW_TOKEN}") == "***, ***"


async def test_no_request_uses_the_old_sign_in_while_another_reads_the_new_one(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    slow.may_say.set()
    first = await save(desk, OLD)
    cache = SignInCache(CONFIG, desk)
    assert (await cache.read_if_outdated()) is not None
    assert cache.access_token == OLD_TOKEN
    second = await save(desk, replace(first, access_token=NEW_TOKEN))
    cache.record_version(second.version)
    one_request = await begin_read(slow, cache.read_if_outdated())
    another_request = asyncio.create_task(cache.read_if_outdated())
    await asyncio.sleep(0)
    slow.may_say.set()
    await one_request
    sign_in = await another_request
    assert sign_in is not None
    assert sign_in.access_token == NEW_TOKEN


async def test_a_sign_in_that_was_doubted_during_a_read_is_read_again(desk: OAuthDependencies) -> None:
    slow = cast("Slow", desk.store)
    first = await save(desk, OLD)
    cache = SignInCache(CONFIG, desk)
    reading = await begin_read(slow, cache.read_if_outdated())
    second = await save(desk, replace(first, access_token=NEW_TOKEN))
    cache.record_version(second.version)
    slow.may_say.set()
    await reading
    await cache.read_if_outdated()
    assert cache.access_token == NEW_TOKEN
