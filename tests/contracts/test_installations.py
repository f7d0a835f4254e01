"""Contract of installations (`bot.ports.InstallationStore`), on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.installations import INSTALL_SECONDS, Installation
from bot.errors import SecretUnavailable
from bot.storage.admin.installations import SqlInstallationStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.encryption import SecretBox
from bot.storage.tables import installations, used_install_states
from tests.audit_check import audit_rows
from tests.fakes.parts import ANA
from tests.turn_log_harness import START, Harness

KEY = b"k" * 32
ACME = Installation(
    "slack",
    "T0ACME",
    "Acme",
    "E0ACME",
    "xoxe.xoxb-token-1",
    "xoxe-1-refresh-1",
    START + 43_200,
    "U0BOT",
    "slack:U1",
    START,
)
GLOBEX = replace(ACME, workspace="T0GLOBEX", name="Globex", organization="", token="xoxb-token-2")


@pytest.fixture
def store(harness: Harness) -> SqlInstallationStore:
    return SqlInstallationStore(harness.database, SecretBox((KEY,)))


async def audit_entries(harness: Harness) -> list[tuple[str, str, str]]:
    def read(connection: sa.Connection) -> list[tuple[str, str, str]]:
        return [(row["kind"], row["actor"], row["subject"]) for row in audit_rows(connection)]

    return await harness.database.run(read)


async def rows(harness: Harness, table: sa.Table) -> list[Any]:
    return await harness.database.run(lambda connection: list(connection.execute(sa.select(table)).all()))


async def test_each_workspace_has_its_own_installation(store: SqlInstallationStore) -> None:
    acme, globex = await store.save(ACME, ANA), await store.save(GLOBEX, ANA)
    assert (acme, globex) == (replace(ACME, version=1), replace(GLOBEX, version=1))
    assert await store.find("slack", "T0ACME") == acme
    assert await store.find("slack", "T0GLOBEX") == globex
    assert await store.find("slack", "T0NONE") is None
    assert await store.find("discord", "T0ACME") is None
    assert await store.versions("slack") == {"T0ACME": 1, "T0GLOBEX": 1}
    assert await store.versions("discord") == {}


def test_an_installation_in_an_organization_is_told_from_one_in_its_workspace() -> None:
    assert not ACME.is_organization
    assert not GLOBEX.is_organization
    assert replace(ACME, workspace="E0ACME").is_organization


async def test_a_new_installation_replaces_the_earlier_one_of_its_workspace(store: SqlInstallationStore) -> None:
    await store.save(ACME, ANA)
    again = await store.save(replace(ACME, token="xoxb-another"), ANA)
    assert again.version == 2
    assert await store.find("slack", "T0ACME") == again


async def test_of_two_processes_that_renew_the_same_token_one_saves(store: SqlInstallationStore) -> None:
    saved = await store.save(ACME, ANA)
    tries = await asyncio.gather(*(store.renew(replace(saved, token=f"token-{n}")) for n in range(5)))
    [renewed] = [each for each in tries if each is not None]
    assert renewed.version == 2
    assert await store.find("slack", "T0ACME") == renewed


async def test_removing_one_deletes_its_tokens_and_leaves_the_others(
    harness: Harness, store: SqlInstallationStore
) -> None:
    acme, globex = await store.save(ACME, ANA), await store.save(GLOBEX, ANA)
    harness.time = START + 60
    assert await store.remove(acme)
    removed = await store.find("slack", "T0ACME")
    assert removed == replace(acme.without_tokens, removed_at=START + 60, version=2)
    assert (removed.token, removed.refresh_token, removed.name) == ("", "", "Acme")
    assert await store.find("slack", "T0GLOBEX") == globex
    assert not await store.remove(acme)
    assert await store.renew(removed) is None


async def test_an_event_of_an_earlier_installation_does_not_remove_the_next_one(
    store: SqlInstallationStore,
) -> None:
    first = await store.save(ACME, ANA)
    assert await store.remove(first)
    second = await store.save(ACME, ANA)
    assert second.removed_at is None
    assert not await store.remove(first)
    assert await store.renew(replace(first, token="late")) is None
    assert await store.find("slack", "T0ACME") == second


async def test_installing_and_removing_is_audited_and_renewing_is_not(
    harness: Harness, store: SqlInstallationStore
) -> None:
    saved = await store.save(ACME, ANA)
    renewed = await store.renew(saved)
    assert renewed is not None
    await store.remove(renewed)
    await store.remove(await store.save(ACME, ANA), ANA)
    assert await audit_entries(harness) == [
        ("installed app", ANA.principal, "slack:T0ACME"),
        ("uninstalled app", "countersign", "slack:T0ACME"),
        ("installed app", ANA.principal, "slack:T0ACME"),
        ("uninstalled app", ANA.principal, "slack:T0ACME"),
    ]


async def test_no_token_and_no_state_is_on_disk(harness: Harness, store: SqlInstallationStore, tmp_path: Path) -> None:
    await store.save(ACME, ANA)
    assert await store.use_state("a-state-1", INSTALL_SECONDS)
    stored = repr([*await rows(harness, installations), *await rows(harness, used_install_states)])
    stored += repr(await harness.database.run(audit_rows))
    files = b"".join(file.read_bytes() for file in tmp_path.glob("turns.db*"))  # noqa: ASYNC240
    for secret in ("xoxe.xoxb-token-1", "xoxe-1-refresh-1", "a-state-1"):
        assert secret not in stored
        assert secret.encode() not in files
    assert "token-1" not in repr(ACME)
    assert "refresh-1" not in repr(ACME)


async def test_a_body_that_was_copied_to_another_workspace_does_not_open(
    harness: Harness, store: SqlInstallationStore
) -> None:
    await store.save(ACME, ANA)
    move = installations.update().values(workspace="T0GLOBEX")
    await harness.database.run(lambda connection: connection.execute(move))
    with pytest.raises(SecretUnavailable, match="another key"):
        await store.find("slack", "T0GLOBEX")


async def test_a_body_of_a_later_release_counts_for_nothing(harness: Harness, store: SqlInstallationStore) -> None:
    await store.save(ACME, ANA)
    [row] = await rows(harness, installations)
    box, context = SecretBox((KEY,)), '["installation", "slack", "T0ACME"]'
    later = box.seal(box.open(row.body, context).replace('"v": 1', '"v": 2'), context)
    await harness.database.run(lambda connection: connection.execute(installations.update().values(body=later)))
    assert await store.find("slack", "T0ACME") is None


async def test_a_new_key_encrypts_installations_anew(harness: Harness, store: SqlInstallationStore) -> None:
    saved, new = await store.save(ACME, ANA), b"n" * 32
    await SqlInstallationStore(harness.database, SecretBox((b"o" * 32,))).save(GLOBEX, ANA)
    resealed = await SqlServerStore(harness.database, SecretBox((new, KEY)), {}).reseal(ANA)
    assert resealed == (1, ["slack:T0GLOBEX installation"])
    assert await SqlInstallationStore(harness.database, SecretBox((new,))).find("slack", "T0ACME") == saved


async def test_a_state_is_used_once_and_forgotten_when_it_has_expired(
    harness: Harness, store: SqlInstallationStore
) -> None:
    results = await asyncio.gather(*(store.use_state("one", INSTALL_SECONDS) for _ in range(5)))
    assert sorted(results) == [False] * 4 + [True]
    harness.time = START + INSTALL_SECONDS
    assert await store.use_state("two", INSTALL_SECONDS)
    assert len(await rows(harness, used_install_states)) == 1


async def test_two_processes_see_each_others_installations(harness: Harness, store: SqlInstallationStore) -> None:
    process = harness.another_process()
    other = SqlInstallationStore(process.database, SecretBox((KEY,)))
    saved = await store.save(ACME, ANA)
    assert await other.find("slack", "T0ACME") == saved
    used = await asyncio.gather(store.use_state("one", 60), other.use_state("one", 60))
    assert sorted(used) == [False, True]
    removals = await asyncio.gather(store.remove(saved), other.remove(saved))
    await process.close()
    assert sorted(removals) == [False, True]
