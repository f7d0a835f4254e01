"""Sign-in of the bot itself by client credentials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.servers import AuthenticationKind, DesiredServer, ServerStatus
from bot.domain.tools import CallReturned
from tests.fakes.oauth import FakeOAuth
from tests.mcp.oauth_process import SERVER, meet, oauth_process, server
from tests.mcp.toolboxes import Clock, call, tool_by_name, unsent_reason

ITSELF = AuthenticationKind.CLIENT_CREDENTIALS


async def test_a_bot_with_credentials_of_its_own_signs_itself_in_and_again(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock, refresh_tokens=False, scopes=("read",)) as oauth:
        oauth.clients["bot"] = ("s3cret&of=the bot", "client_secret_basic")
        config = server(oauth.url, ITSELF, client_id="bot", client_secret="s3cret&of=the bot")
        async with oauth_process(tmp_path, config, clock=clock) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
            assert not await here.sign_ins.is_available(SERVER)
            [form] = oauth.forms("/token")
            assert (form["grant_type"], form["resource"], form["scope"]) == ("client_credentials", oauth.url, "read")
            clock.now += 3601
            assert await meet(here, "hall", 8) == ["met"] * 8
            assert oauth.grants("client_credentials") == 2
        async with oauth_process(tmp_path, config, clock=clock) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert oauth.grants("client_credentials") == 2


async def test_rejected_credentials_are_reported_with_a_fix(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        oauth.clients["bot"] = ("right", "client_secret_basic")
        config = server(oauth.url, ITSELF, client_id="bot", client_secret="wrong-secret")
        async with oauth_process(tmp_path, config) as here:
            state = await here.box.connect(SERVER)
            assert state.status is ServerStatus.AUTH_REQUIRED
            assert f"{oauth.issuer} gave no token: invalid_client." in state.problem
            [absent] = (await here.box.offer()).absent
            assert "invalid_client" not in absent, "the word of the authorization server is for people"
            assert state.problem.endswith("Fix: check its client_id and scope, and set its secret again.")
            right = replace(config, sign_in=replace(config.sign_in, client_secret="right"))  # type: ignore[type-var]
            await here.box.reconcile([DesiredServer(right)])
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED


async def test_credentials_are_shown_to_the_authorization_server_that_was_used_first(tmp_path: Path) -> None:
    clock = Clock()
    async with FakeOAuth(clock=clock) as oauth, FakeOAuth() as other:
        oauth.clients["bot"] = ("right-one", "client_secret_basic")
        config = server(oauth.url, ITSELF, client_id="bot", client_secret="right-one")
        async with oauth_process(tmp_path, config, clock=clock) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
            oauth.signed_in_at = other.issuer
            oauth.expire()
            reason = unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x"))
            assert f"{other.issuer} in place of {oauth.issuer}" in reason
        assert other.asked == []


async def test_credentials_that_are_not_enough_for_a_call_get_more_once(tmp_path: Path) -> None:
    async with FakeOAuth(wants="read", needs={"echo": "write"}) as oauth:
        oauth.clients["bot"] = ("right-one", "client_secret_post")
        oauth.methods = ["client_secret_post"]
        config = server(oauth.url, ITSELF, client_id="bot", client_secret="right-one")
        async with oauth_process(tmp_path, config) as here:
            await here.box.connect(SERVER)
            assert isinstance(await call(tool_by_name(here.box, "echo"), here.box, text="x"), CallReturned)
            assert [form["scope"] for form in oauth.forms("/token")] == ["read", "read write"]


@pytest.mark.parametrize(("query", "client"), [("?v=2", "bot"), ("", "robot")])
async def test_credentials_at_another_address_or_of_another_client_get_a_token_of_their_own(
    tmp_path: Path, query: str, client: str
) -> None:
    async with FakeOAuth() as oauth:
        oauth.clients |= {"bot": ("right-one", "client_secret_basic"), "robot": ("other-one", "client_secret_basic")}
        async with oauth_process(
            tmp_path, server(oauth.url, ITSELF, client_id="bot", client_secret="right-one")
        ) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        secret = oauth.clients[client][0]
        config = server(f"{oauth.url}{query}", ITSELF, client_id=client, client_secret=secret)
        async with oauth_process(tmp_path, config) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert oauth.grants("client_credentials") == 2


@pytest.mark.parametrize(("query", "client"), [("?v=2", "bot"), ("", "robot")])
async def test_a_secret_is_shown_to_no_other_authorization_server_wherever_it_is_taken_along(
    tmp_path: Path, query: str, client: str
) -> None:
    async with FakeOAuth() as oauth, FakeOAuth() as other:
        oauth.clients["bot"] = ("right-one", "client_secret_basic")
        async with oauth_process(
            tmp_path, server(oauth.url, ITSELF, client_id="bot", client_secret="right-one")
        ) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        oauth.signed_in_at = other.issuer
        config = server(f"{oauth.url}{query}", ITSELF, client_id=client, client_secret="right-one")
        async with oauth_process(tmp_path, config) as here:
            assert "in place of" in (await here.box.connect(SERVER)).problem
        assert other.asked == []


async def test_a_bot_that_is_to_sign_itself_in_does_not_go_on_as_the_person_before(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        oauth.clients["bot"] = ("right-one", "client_secret_basic")
        async with oauth_process(tmp_path, server(oauth.url, client_id="bot", client_secret="right-one")) as here:
            await here.sign_in(oauth)
        theirs = set(oauth.tokens)
        oauth.carried.clear()
        async with oauth_process(
            tmp_path, server(oauth.url, ITSELF, client_id="bot", client_secret="right-one")
        ) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert theirs.isdisjoint(each.removeprefix("Bearer ") for each in oauth.carried)
