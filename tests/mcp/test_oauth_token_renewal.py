"""Renewal of tokens: in time, once, by one process; and the failures of a renewal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from bot.domain.servers import DesiredServer, ServerConfig, ServerStatus
from bot.domain.sign_ins import SignIn, SignInKey
from bot.errors import DatabaseUnavailable
from bot.examination import CheckStatus
from bot.mcp.oauth.tokens import AuthTransport
from bot.ports import SignInStore
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.fakes.oauth import FakeOAuth
from tests.mcp.oauth_process import SERVER, OAuthProcess, meet, oauth_process, server
from tests.mcp.toolboxes import Clock, call, text, tool_by_name, unsent_reason, until

KEY = SignInKey(SERVER)
OVER = "The sign-in to s has ended. Fix: an admin signs in again with `/mcp connect s`."


def status(here: OAuthProcess) -> ServerStatus:
    return here.box.servers()[0].status


async def stored_sign_in(here: OAuthProcess) -> SignIn:
    found = await here.store.find(KEY)
    assert found is not None
    return found


async def reconcile_process(here: OAuthProcess, config: ServerConfig) -> None:
    """Reconcile this process with the stored sign-ins, as after a wakeup."""
    versions = await here.store.versions()
    await here.box.reconcile([DesiredServer(config, signed_in=versions.get(KEY, 0))])


async def test_calls_with_an_expired_token_cause_one_renewal_and_go_on_side_by_side(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
        await here.sign_in(oauth)
        clock.now += 3601
        assert await meet(here, "hall", 8) == ["met"] * 8
        assert oauth.grants("refresh_token") == 1
        assert await meet(here, "garden", 8) == ["met"] * 8
        assert oauth.grants("refresh_token") == 1


async def test_a_token_is_renewed_a_minute_before_its_end_and_calls_do_not_wait_for_it(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
        await here.sign_in(oauth)
        first = (await stored_sign_in(here)).access_token
        oauth.held["refresh_token"] = asyncio.Event()
        clock.now += 3539
        echo = tool_by_name(here.box, "echo")
        assert text(await call(echo, here.box, text="x")) == "x"
        assert oauth.grants("refresh_token") == 0
        clock.now += 1
        for _ in range(3):
            assert text(await call(echo, here.box, text="x")) == "x"
        await until(lambda: oauth.grants("refresh_token") == 1)
        assert oauth.carried[-1] == f"Bearer {first}"
        oauth.held["refresh_token"].set()
        async with asyncio.timeout(10):
            while (await stored_sign_in(here)).access_token == first:
                await asyncio.sleep(0.01)
        assert text(await call(echo, here.box, text="x")) == "x"
        assert oauth.carried[-1] == f"Bearer {(await stored_sign_in(here)).access_token}"
        assert oauth.grants("refresh_token") == 1


async def test_a_token_that_lives_shortly_is_used_for_half_its_life(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        FakeOAuth(clock=clock, life=30) as oauth,
        oauth_process(tmp_path, server(oauth.url), clock=clock) as here,
    ):
        await here.sign_in(oauth)
        for _ in range(5):
            await call(tool_by_name(here.box, "echo"), here.box, text="x")
        assert oauth.grants("refresh_token") == 0
        assert (await stored_sign_in(here)).renew_at == clock.now + 15


async def test_after_a_restart_an_expired_token_is_renewed_without_a_question(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth:
        async with oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
            await here.sign_in(oauth)
        clock.now += 86_400
        async with oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
            assert text(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == "x"
        assert (oauth.grants("refresh_token"), len(oauth.forms("/authorize"))) == (1, 1)
        assert len(oauth.forms("/register")) == 1


async def test_a_token_that_is_refused_before_its_time_is_renewed_once_and_the_call_repeated(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        oauth.expire()
        assert await meet(here, "hall", 8) == ["met"] * 8
        assert oauth.grants("refresh_token") == 1


async def test_a_token_without_an_end_is_never_renewed_before_it_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        FakeOAuth(clock=clock, life=None) as oauth,
        oauth_process(tmp_path, server(oauth.url), clock=clock) as here,
    ):
        await here.sign_in(oauth)
        clock.now += 10 * 86_400
        assert text(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == "x"
        assert oauth.grants("refresh_token") == 0


async def test_two_processes_renew_once_between_them(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth:
        config = server(oauth.url)
        async with (
            oauth_process(tmp_path, config, clock=clock) as one,
            oauth_process(tmp_path, config, clock=clock) as other,
        ):
            await one.sign_in(oauth)
            assert (await other.box.connect(SERVER)).status is ServerStatus.CONNECTED
            clock.now += 3601
            oauth.held["refresh_token"] = asyncio.Event()
            calls = [asyncio.create_task(meet(each, place, 4)) for each, place in ((one, "a"), (other, "b"))]
            await until(lambda: oauth.grants("refresh_token") == 1)
            oauth.held["refresh_token"].set()
            assert await asyncio.gather(*calls) == [["met"] * 4] * 2
        assert oauth.grants("refresh_token") == 1


async def test_a_process_after_a_renewal_elsewhere_takes_its_token(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth:
        config = server(oauth.url)
        async with (
            oauth_process(tmp_path, config, clock=clock) as one,
            oauth_process(tmp_path, config, clock=clock) as other,
        ):
            await one.sign_in(oauth)
            await other.box.connect(SERVER)
            clock.now += 3601
            assert text(await call(tool_by_name(one.box, "echo"), one.box, text="x")) == "x"
            assert text(await call(tool_by_name(other.box, "echo"), other.box, text="x")) == "x"
        assert oauth.grants("refresh_token") == 1


async def test_a_sign_in_elsewhere_connects_a_server_that_waits_for_it(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        config = server(oauth.url)
        async with oauth_process(tmp_path, config) as one, oauth_process(tmp_path, config) as other:
            assert (await other.box.connect(SERVER)).status is ServerStatus.AUTH_REQUIRED
            await one.sign_in(oauth)
            await reconcile_process(other, config)
            await until(lambda: status(other) is ServerStatus.CONNECTED)


async def test_signing_out_elsewhere_ends_a_connection(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        config = server(oauth.url)
        async with oauth_process(tmp_path, config) as one, oauth_process(tmp_path, config) as other:
            await one.sign_in(oauth)
            assert (await other.box.connect(SERVER)).status is ServerStatus.CONNECTED
            await one.store.forget(KEY, (await one.sign_in(oauth)).by)
            await reconcile_process(other, config)
            await until(lambda: status(other) is ServerStatus.AUTH_REQUIRED)


async def test_a_caller_who_gives_up_does_not_lose_a_running_renewal(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
        await here.sign_in(oauth)
        clock.now += 3601
        oauth.held["refresh_token"] = asyncio.Event()
        waiting = asyncio.create_task(call(tool_by_name(here.box, "echo"), here.box, text="x"))
        await until(lambda: oauth.grants("refresh_token") == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        oauth.held["refresh_token"].set()
        assert text(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == "x"
        assert oauth.grants("refresh_token") == 1


@pytest.mark.parametrize("refresh_tokens", [True, False])
async def test_an_ended_sign_in_is_reported_with_a_fix(tmp_path: Path, refresh_tokens: bool) -> None:
    async with FakeOAuth(refresh_tokens=refresh_tokens) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        oauth.end()
        assert unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == OVER
        await until(lambda: status(here) is ServerStatus.AUTH_REQUIRED)
        assert here.box.servers()[0].problem == OVER
        assert unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == OVER
        assert oauth.grants("refresh_token") == int(refresh_tokens)
        if refresh_tokens:
            assert await here.sign_ins.get(SERVER) is None
        await here.sign_in(oauth)
        assert status(here) is ServerStatus.CONNECTED
        assert len(oauth.forms("/register")) == 1


async def test_after_a_restart_a_sign_in_that_had_ended_is_told_as_such(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            await here.sign_in(oauth)
            oauth.end()
            unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x"))
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            assert (await here.box.connect(SERVER)).problem == OVER


async def test_a_bot_that_the_authorization_server_has_forgotten_registers_anew(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
        await here.sign_in(oauth)
        oauth.clients.clear()
        clock.now += 3601
        assert unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == OVER
        await here.sign_in(oauth)
        assert len(oauth.forms("/register")) == 2
        assert status(here) is ServerStatus.CONNECTED


class Forgetful:
    """A store that raises DatabaseUnavailable while `away` is True."""

    def __init__(self, store: SignInStore) -> None:
        self._store = store
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise DatabaseUnavailable("The database is away.")
        return getattr(self._store, name)


async def test_tokens_that_came_while_the_database_was_away_are_used_and_kept_later(tmp_path: Path) -> None:
    clock = Clock()
    stores: list[Forgetful] = []

    def watch(store: SignInStore) -> SignInStore:
        stores.append(Forgetful(store))
        return cast("SignInStore", stores[0])

    async with FakeOAuth(clock=clock) as oauth:
        async with oauth_process(tmp_path, server(oauth.url), clock=clock, watch=watch) as here:
            await here.sign_in(oauth)
            before = await stored_sign_in(here)
            clock.now += 3550
            oauth.held["refresh_token"] = asyncio.Event()
            echo = tool_by_name(here.box, "echo")
            assert text(await call(echo, here.box, text="x")) == "x"
            await until(lambda: oauth.grants("refresh_token") == 1)
            stores[0].away = True
            oauth.held["refresh_token"].set()
            await until(lambda: oauth.tokens.keys() - {before.access_token})
            clock.now += 60
            assert text(await call(echo, here.box, text="x")) == "x"
            assert await stored_sign_in(here) == before
            stores[0].away = False
            assert text(await call(echo, here.box, text="x")) == "x"
            assert (await stored_sign_in(here)).refresh_token != before.refresh_token
        async with oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert oauth.grants("refresh_token") == 1


async def test_an_authorization_server_that_is_away_ends_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, oauth_process(tmp_path, server(oauth.url), clock=clock) as here:
        await here.sign_in(oauth)
        before = await stored_sign_in(here)
        oauth.refuses["refresh_token"] = (503, "busy")
        clock.now += 3545
        assert text(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == "x"
        await until(lambda: oauth.grants("refresh_token") == 1)
        clock.now += 60
        reason = unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x"))
        assert reason == (
            "Server s needs a sign-in, which does not work now. "
            f"{oauth.issuer} gave no token: 503. Fix: try again later"
        )
        assert status(here) is not ServerStatus.AUTH_REQUIRED
        [look] = [check async for check in here.box.diagnose(SERVER) if check.name == "HTTP"]
        assert (look.finding, look.fix) == (CheckStatus.BROKEN, "try again later")
        assert "which does not work now" in look.detail
        assert await stored_sign_in(here) == before
        oauth.refuses.clear()
        assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert text(await call(tool_by_name(here.box, "echo"), here.box, text="x")) == "x"
        assert len(oauth.forms("/authorize")) == 1


async def test_a_server_that_refuses_every_token_is_asked_twice_for_a_call(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        echo = tool_by_name(here.box, "echo")
        oauth.says_resource = "https://other.example"
        asked = len(oauth.carried)
        assert unsent_reason(await call(echo, here.box, text="x")) == OVER
        await until(lambda: status(here) is ServerStatus.AUTH_REQUIRED)
        assert oauth.grants("refresh_token") <= 3
        assert len(oauth.carried) - asked <= 8


async def test_the_token_goes_to_its_server_and_to_no_other_origin(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, FakeEndpoint() as other, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        await call(tool_by_name(here.box, "echo"), here.box, text="x")
        token = (await stored_sign_in(here)).access_token
        assert oauth.carried[-1] == f"Bearer {token}"
        assert token not in repr(oauth.asked)
        assert here.secrets(f"got {token}") == "got ***"
        bearer = here.bearers.provider_for(server(oauth.url))
        assert bearer is not None
        carrying = AuthTransport(httpx2.AsyncHTTPTransport(), bearer, oauth.url)
        async with httpx2.AsyncClient(transport=carrying) as client:
            await client.post(other.url, json={"method": "x"})
            assert oauth.carried[-1] == f"Bearer {token}"
            await client.post(oauth.url, json={"method": "x"})
        [(headers, _)] = other.seen
        assert "authorization" not in headers


async def test_the_doctor_looks_with_the_token(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        before = {check.name: check async for check in here.box.diagnose(SERVER)}
        assert before["authentication"].detail == "Server s needs a sign-in."
        assert before["authentication"].fix == "an admin signs in with `/mcp connect s`"
        await here.sign_in(oauth)
        after = [check async for check in here.box.diagnose(SERVER)]
        assert {check.name: check.detail for check in after if check.finding is not CheckStatus.WELL} == {
            "TLS": "The url begins with http://, so nothing is encrypted."
        }
        [authentication] = [check.detail for check in after if check.name == "authentication"]
        assert authentication == "not refused; the bot sends an Authorization header of the kind Bearer"
