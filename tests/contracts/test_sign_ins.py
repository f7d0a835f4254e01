"""Contract of sign-ins (`bot.ports.SignInStore`), on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.servers import HttpTransport, ServerConfig, ServerRecord
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, Registration, SignIn, SignInKey
from bot.errors import SecretUnavailable
from bot.storage.admin.servers import SqlServerStore
from bot.storage.admin.sign_ins import SqlSignInStore
from bot.storage.coordination import read_version
from bot.storage.encryption import SecretBox
from bot.storage.tables import pending_sign_ins, sign_ins
from tests.audit_check import audit_rows
from tests.fakes.parts import ANA, BEN, HALL
from tests.turn_log_harness import START, Harness

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
JIRA, WIKI = SignInKey("id-of-jira"), SignInKey("id-of-wiki")
REGISTRATION = Registration(
    "https://issuer.example", "client", "client-secret-1", "client_secret_basic", 5.0, "https://b"
)
TOKENS = SignIn(
    "place",
    "https://jira.example/mcp",
    REGISTRATION,
    {"token_endpoint": "https://issuer.example/token"},
    "read write",
    "access-token-1",
    "refresh-token-1",
    START + 3600,
    START + 3540,
)
UNDER_WAY = PendingSignIn(JIRA, ANA, HALL, TOKENS, "verifier-1", "https://bot.example/back")


@pytest.fixture
def store(harness: Harness) -> SqlSignInStore:
    return SqlSignInStore(harness.database, SecretBox((KEY,)), clock=lambda: START)


async def audit_entries(harness: Harness) -> list[tuple[str, str]]:
    def read(connection: sa.Connection) -> list[tuple[str, str]]:
        return [(row["kind"], row["actor"]) for row in audit_rows(connection)]

    return await harness.database.run(read)


async def rows(harness: Harness, table: sa.Table) -> list[Any]:
    return await harness.database.run(lambda connection: list(connection.execute(sa.select(table)).all()))


async def test_a_stored_sign_in_is_read_back_and_by_no_other_user(store: SqlSignInStore) -> None:
    kept = await store.save(JIRA, TOKENS)
    assert kept == replace(TOKENS, version=kept.version if kept else 0)
    assert await store.find(JIRA) == kept
    assert await store.find(WIKI) is None
    assert await store.find(SignInKey(JIRA.server_id, "slack:T1:U1")) is None
    assert await store.versions() == {JIRA: kept.version if kept else 0}


async def test_of_two_renewals_of_one_version_one_is_stored(store: SqlSignInStore) -> None:
    first = await store.save(JIRA, TOKENS)
    assert first is not None
    tries = await asyncio.gather(*(store.save(JIRA, replace(first, access_token=f"token-{n}")) for n in range(5)))
    [winner] = [each for each in tries if each is not None]
    assert winner.version > first.version
    assert await store.find(JIRA) == winner


async def test_a_renewal_from_before_a_new_sign_in_is_not_stored(
    store: SqlSignInStore,
) -> None:
    old = await store.save(JIRA, TOKENS)
    assert old is not None
    assert await store.forget(JIRA, ANA)
    assert await store.save(JIRA, old) is None
    new = await store.signed_in(JIRA, replace(TOKENS, access_token="another"), BEN)
    assert await store.save(JIRA, old) is None
    assert await store.find(JIRA) == new


async def test_a_new_sign_in_replaces_any_version(store: SqlSignInStore) -> None:
    await store.save(JIRA, TOKENS)
    kept = await store.signed_in(JIRA, replace(TOKENS, access_token="another", version=7), ANA)
    found = await store.find(JIRA)
    assert found == kept
    assert (kept.access_token, kept.signed_in_by, kept.signed_in_at) == ("another", ANA.principal, START)


async def test_of_a_sign_in_that_has_ended_the_registration_is_left(store: SqlSignInStore) -> None:
    kept = await store.signed_in(JIRA, TOKENS, ANA)
    ended = await store.mark_revoked(JIRA, kept)
    assert ended is not None
    assert (ended.access_token, ended.refresh_token, ended.expires_at) == ("", "", None)
    assert (ended.registration, ended.signed_in_by) == (REGISTRATION, ANA.principal)
    assert await store.find(JIRA) == ended
    assert await store.mark_revoked(JIRA, kept) is None


async def test_signing_in_and_out_is_audited_and_renewing_is_not(harness: Harness, store: SqlSignInStore) -> None:
    kept = await store.signed_in(JIRA, TOKENS, ANA)
    renewed = await store.save(JIRA, kept)
    assert renewed is not None
    await store.mark_revoked(JIRA, renewed)
    assert await store.forget(JIRA, BEN)
    assert not await store.forget(JIRA, BEN)
    assert await audit_entries(harness) == [
        ("signed in", ANA.principal),
        ("sign-in ended", "countersign"),
        ("signed out", BEN.principal),
    ]


async def test_every_change_is_news(harness: Harness, store: SqlSignInStore) -> None:
    numbers = [await harness.database.run(read_version)]
    kept = await store.signed_in(JIRA, TOKENS, ANA)
    numbers.append(await harness.database.run(read_version))
    await store.save(JIRA, kept)
    numbers.append(await harness.database.run(read_version))
    await store.forget(JIRA, ANA)
    numbers.append(await harness.database.run(read_version))
    assert numbers == sorted(set(numbers))


async def test_nothing_secret_is_on_disk(harness: Harness, store: SqlSignInStore, tmp_path: Path) -> None:
    await store.signed_in(JIRA, TOKENS, ANA)
    state = await store.begin(UNDER_WAY)
    said = repr([*await rows(harness, sign_ins), *await rows(harness, pending_sign_ins)])
    said += repr(await harness.database.run(audit_rows))
    files = b"".join(file.read_bytes() for file in tmp_path.glob("turns.db*"))  # noqa: ASYNC240
    for secret in ("access-token-1", "refresh-token-1", "client-secret-1", "verifier-1", state):
        assert secret not in said
        assert secret.encode() not in files
    assert not {"access-token-1", "refresh-token-1", "client-secret-1"} & set(repr(TOKENS).split("'"))


async def test_a_body_that_was_copied_to_another_server_does_not_open(harness: Harness, store: SqlSignInStore) -> None:
    await store.save(JIRA, TOKENS)
    await harness.database.run(lambda connection: connection.execute(sign_ins.update().values(server_id="id-of-wiki")))
    with pytest.raises(SecretUnavailable, match="another key"):
        await store.find(WIKI)


async def test_a_body_of_a_later_release_counts_for_nothing(harness: Harness, store: SqlSignInStore) -> None:
    await store.save(JIRA, TOKENS)
    [row] = await rows(harness, sign_ins)
    box, place = SecretBox((KEY,)), '["sign-in", "id-of-jira", ""]'
    later = box.open(row.body, place).replace('"v": 1', '"v": 2')
    await harness.database.run(
        lambda connection: connection.execute(sign_ins.update().values(body=box.seal(later, place)))
    )
    assert await store.find(JIRA) is None


async def test_a_state_is_good_once_for_ten_minutes(harness: Harness, store: SqlSignInStore) -> None:
    state = await store.begin(UNDER_WAY)
    results = await asyncio.gather(*(store.take(state) for _ in range(5)))
    assert [each for each in results if each] == [replace(UNDER_WAY, expires_at=START + SIGN_IN_SECONDS)]
    late = await store.begin(UNDER_WAY)
    harness.time = START + SIGN_IN_SECONDS
    assert await store.take(late) is None
    for strange in ("", "x", "\0", "💡"):
        assert await store.take(strange) is None


async def test_a_persons_next_link_replaces_their_last_one_and_none_of_others(store: SqlSignInStore) -> None:
    first = await store.begin(UNDER_WAY)
    others = [await store.begin(replace(UNDER_WAY, by=BEN)), await store.begin(replace(UNDER_WAY, key=WIKI))]
    second = await store.begin(UNDER_WAY)
    assert await store.take(first) is None
    assert all([await store.take(state) for state in (second, *others)])


async def test_a_server_that_is_deleted_takes_its_sign_ins_along(harness: Harness, store: SqlSignInStore) -> None:
    servers = SqlServerStore(harness.database, SecretBox((KEY,)), {})
    record = await servers.add(
        ServerRecord(ServerConfig("jira", HttpTransport("https://jira.example/mcp"), id=JIRA.server_id)), {}, ANA
    )
    await store.save(JIRA, TOKENS)
    await store.save(WIKI, TOKENS)
    state = await store.begin(UNDER_WAY)
    await servers.remove(record.id, record.version, ANA)
    assert set(await store.versions()) == {WIKI}
    assert await store.take(state) is None


async def test_a_new_key_encrypts_sign_ins_anew_and_unreadable_ones_are_named(harness: Harness) -> None:
    await SqlSignInStore(harness.database, SecretBox((OTHER_KEY,))).save(WIKI, TOKENS)
    await SqlSignInStore(harness.database, SecretBox((KEY,))).save(JIRA, TOKENS)
    new = b"n" * 32
    resealed = await SqlServerStore(harness.database, SecretBox((new, KEY)), {}).reseal(ANA)
    assert resealed == (1, ["id-of-wiki sign-in"])
    found = await SqlSignInStore(harness.database, SecretBox((new,))).find(JIRA)
    assert found is not None
    assert found.access_token == "access-token-1"


async def test_two_processes_see_each_others_sign_ins(harness: Harness, store: SqlSignInStore) -> None:
    process = harness.another_process()
    other = SqlSignInStore(process.database, SecretBox((KEY,)))
    first = await store.save(JIRA, TOKENS)
    assert first is not None
    assert await other.find(JIRA) == first
    tries = await asyncio.gather(
        *(each.save(JIRA, replace(first, access_token=name)) for each, name in ((store, "a-token"), (other, "b-token")))
    )
    await process.close()
    assert len([each for each in tries if each is not None]) == 1
