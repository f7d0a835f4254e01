"""A user signs the bot in to a server, over real sockets: the bot's requests, rejections and results."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.domain.servers import HttpTransport, ServerStatus
from bot.domain.sign_ins import client_path
from bot.errors import CountersignError
from bot.ports import SignedIn
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint
from tests.fakes.oauth import FakeOAuth
from tests.mcp.oauth_process import BACK, HALL, SERVER, OAuthProcess, oauth_process, refusal, server
from tests.mcp.toolboxes import ANA, call, text, tool_by_name, unsent_reason, until

PUBLIC = "https://bot.example.org"
DESCRIPTION = f"{PUBLIC}{client_path(SERVER)}"


async def link(here: OAuthProcess) -> dict[str, str]:
    """Return the parameters of Ana's link."""
    address = await here.sign_ins.begin(SERVER, ANA, HALL)
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


async def test_a_user_who_follows_the_link_and_agrees_has_signed_the_bot_in(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        state = await here.box.connect(SERVER)
        assert state.status is ServerStatus.AUTH_REQUIRED
        assert state.problem == "Server s needs a sign-in. Fix: an admin signs in with `/mcp connect s`."
        assert await here.sign_ins.is_available(SERVER)
        assert await here.sign_ins.get(SERVER) is None
        assert await here.sign_in(oauth) == SignedIn(SERVER, ANA, HALL)
        assert here.box.servers()[0].status is ServerStatus.CONNECTED
        assert text(await call(tool_by_name(here.box, "echo"), here.box, text="hello")) == "hello"
        kept = await here.sign_ins.get(SERVER)
        assert kept is not None
        assert (kept.by, kept.issuer) == (ANA.principal, oauth.issuer)


@pytest.mark.parametrize("challenges", [True, False])
async def test_a_server_that_asks_for_a_sign_in_itself_needs_no_definition_of_it(
    tmp_path: Path, challenges: bool
) -> None:
    async with FakeOAuth(challenges=challenges) as oauth, oauth_process(tmp_path, server(oauth.url, None)) as here:
        assert (await here.box.connect(SERVER)).status is ServerStatus.AUTH_REQUIRED
        assert await here.sign_ins.is_available(SERVER)
        await here.sign_in(oauth)
        assert here.box.servers()[0].status is ServerStatus.CONNECTED


async def test_a_refusal_without_an_authorization_server_offers_no_sign_in(tmp_path: Path) -> None:
    async with FakeEndpoint() as endpoint, oauth_process(tmp_path, server(endpoint.url, None)) as here:
        for method in ("server/discover", "initialize"):
            endpoint.on[method] = Answer(401, b"no", {"content-type": "text/plain"})
        assert (await here.box.connect(SERVER)).status is ServerStatus.AUTH_REQUIRED
        assert not await here.sign_ins.is_available(SERVER)
        assert "has no metadata for OAuth" in (await refusal(here)).cause


async def test_link_and_token_request_follow_the_specifications(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        sent = await link(here)
        assert {name: sent[name] for name in ("response_type", "code_challenge_method", "redirect_uri")} == {
            "response_type": "code",
            "code_challenge_method": "S256",
            "redirect_uri": BACK,
        }
        assert sent["resource"] == oauth.url
        assert len(sent["code_challenge"]) == 43
        assert len(sent["state"]) == 43
        assert "scope" not in sent
        await here.sign_in(oauth)
        [form] = oauth.forms("/token")
        assert (form["resource"], form["redirect_uri"]) == (oauth.url, BACK)
        assert 43 <= len(form["code_verifier"]) <= 128
        assert "client_secret" not in form


# ---------------------------------------------------------------------- identity of the bot


async def test_the_bot_registers_itself_once_for_any_number_of_links(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await link(here)
        await link(here)
        await here.sign_in(oauth)
        await here.sign_in(oauth)
        [form] = oauth.forms("/register")
        assert form["redirect_uris"] == repr([BACK])
        assert form["application_type"] == "native"
        assert form["token_endpoint_auth_method"] == "client_secret_basic"


@pytest.mark.parametrize(
    ("methods", "used"),
    [
        (["client_secret_post", "none"], "client_secret_post"),
        (["none"], "none"),
        (None, "client_secret_basic"),
        (["private_key_jwt", "client_secret_basic"], "client_secret_basic"),
    ],
)
async def test_the_bot_identifies_itself_by_the_method_of_the_server(
    tmp_path: Path, methods: list[str] | None, used: str
) -> None:
    async with FakeOAuth(methods=methods) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        assert [method for _, method in oauth.clients.values()] == [used]


async def test_a_client_that_was_registered_by_hand_is_used_and_no_other(tmp_path: Path) -> None:
    config = server("", client_id="by-hand", client_secret="s3cret-of-hand-Zk29")
    async with FakeOAuth() as oauth:
        oauth.clients["by-hand"] = ("s3cret-of-hand-Zk29", "client_secret_basic")
        config = replace(config, transport=HttpTransport(oauth.url))
        async with oauth_process(tmp_path, config, address=PUBLIC) as here:
            await here.sign_in(oauth)
            assert oauth.forms("/register") == []
            assert here.secrets("it is s3cret-of-hand-Zk29") == "it is ***"


async def test_a_server_that_reads_descriptions_of_clients_is_given_the_bots_address(tmp_path: Path) -> None:
    async with (
        FakeOAuth(described_clients=True) as oauth,
        oauth_process(tmp_path, server(oauth.url), address=PUBLIC) as here,
    ):
        assert (await link(here))["client_id"] == DESCRIPTION
        await here.sign_in(oauth)
        assert oauth.forms("/register") == []
        assert [form["client_id"] for form in oauth.forms("/token")] == [DESCRIPTION]


async def test_without_registration_the_admin_is_asked_to_register_by_hand(tmp_path: Path) -> None:
    async with FakeOAuth(registers=False) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        told = await refusal(here)
        assert "does not allow the bot to register itself" in told.cause
        assert f"with the redirect address {BACK}, and set the server's client_id" in told.fix


async def test_a_client_id_of_one_authorization_server_is_not_sent_to_another(tmp_path: Path) -> None:
    async with FakeOAuth() as before, FakeOAuth() as after, oauth_process(tmp_path, server(before.url)) as here:
        await here.sign_in(before)
        known = before.clients["client-1"][0]
        after.clients["taken"] = ("", "none")
        before.signed_in_at, after.tokens = after.issuer, before.tokens
        await here.sign_in(after)
        assert len(after.forms("/register")) == 1
        assert known not in repr([form for _, form, _ in after.asked])
        assert here.box.servers()[0].status is ServerStatus.CONNECTED


async def test_a_client_that_was_registered_by_hand_is_not_shown_to_another_authorization_server(
    tmp_path: Path,
) -> None:
    async with FakeOAuth() as oauth, FakeOAuth() as other:
        oauth.clients["by-hand"] = ("s3cret-of-hand-Zk29", "client_secret_basic")
        config = server(oauth.url, client_id="by-hand", client_secret="s3cret-of-hand-Zk29")
        async with oauth_process(tmp_path, config) as here:
            await here.sign_in(oauth)
            oauth.signed_in_at = other.issuer
            assert f"{other.issuer} in place of {oauth.issuer}" in (await refusal(here)).cause
            await here.sign_ins.sign_out(SERVER, ANA)
            assert other.issuer in await here.sign_ins.begin(SERVER, ANA, HALL)


# ---------------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("says", "set_by_admin", "asked"),
    [
        ({"wants": "read", "scopes": ("read", "write")}, "mine", "read"),
        ({"scopes": ("read", "write")}, "mine", "read write"),
        ({"server_scopes": ("everything",)}, "mine", "mine"),
        ({"server_scopes": ("everything",)}, "", None),
        ({"wants": "read", "server_scopes": ("offline_access",)}, "", "read offline_access"),
        ({"server_scopes": ("offline_access",)}, "", None),
    ],
)
async def test_no_more_is_asked_for_than_the_server_or_an_admin_says(
    tmp_path: Path, says: dict[str, Any], set_by_admin: str, asked: str | None
) -> None:
    async with FakeOAuth(**says) as oauth, oauth_process(tmp_path, server(oauth.url, scope=set_by_admin)) as here:
        sent = await link(here)
    assert sent.get("scope") == asked
    assert sent.get("prompt") == ("consent" if asked and "offline_access" in asked else None)


async def test_a_call_that_needs_more_says_so_and_the_next_sign_in_asks_for_both(tmp_path: Path) -> None:
    async with (
        FakeOAuth(wants="read", needs={"echo": "write"}) as oauth,
        oauth_process(tmp_path, server(oauth.url)) as here,
    ):
        await here.sign_in(oauth)
        echo = tool_by_name(here.box, "echo")
        assert unsent_reason(await call(echo, here.box, text="x")) == (
            "Server s wants more rights (write) for this than it was given. "
            "Fix: an admin signs in again with `/mcp connect s`."
        )
        assert here.box.servers()[0].status is ServerStatus.CONNECTED
        assert await here.sign_ins.is_available(SERVER)
        assert (await link(here))["scope"] == "read write"
        await here.sign_in(oauth)
        assert text(await call(echo, here.box, text="x")) == "x"


# ---------------------------------------------------------------------- signing out, and secrets


async def test_signing_out_revokes_and_forgets(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        assert not await here.sign_ins.sign_out(SERVER, ANA)
        await here.sign_in(oauth)
        assert await here.sign_ins.sign_out(SERVER, ANA)
        [form] = oauth.forms("/revoke")
        assert form["token_type_hint"] == "refresh_token"
        assert oauth.tokens == {}
        assert await here.sign_ins.get(SERVER) is None
        unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x"))
        await until(lambda: here.box.servers()[0].status is ServerStatus.AUTH_REQUIRED)


async def test_nothing_of_a_sign_in_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bot")
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.box.connect(SERVER)
        brought = await oauth.browser(await here.sign_ins.begin(SERVER, ANA, HALL))
        await here.back(brought)
        await call(tool_by_name(here.box, "echo"), here.box, text="x")
        oauth.end()
        unsent_reason(await call(tool_by_name(here.box, "echo"), here.box, text="x"))
        [form] = [each for each in oauth.forms("/token") if each["grant_type"] == "authorization_code"]
        refreshed = [each["refresh_token"] for each in oauth.forms("/token") if "refresh_token" in each]
        tokens = [each.removeprefix("Bearer ") for each in oauth.carried if each]
        secrets = [brought["code"], brought["state"], form["code_verifier"], oauth.clients["client-1"][0]]
        said = caplog.text
        assert len(refreshed) == 1
        assert not [each for each in (*secrets, *refreshed, *tokens) if each in said]
        assert here.secrets(f"{tokens[0]} {refreshed[0]}") == "*** ***"


async def test_a_server_with_an_unknown_client_authentication_is_refused(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        config = replace(server(oauth.url, None), transport=HttpTransport(oauth.url, {"Authorization": "Bearer mine"}))
        async with oauth_process(tmp_path, config) as here:
            assert "401 Unauthorized" in (await here.box.connect(SERVER)).problem
            assert not await here.sign_ins.is_available(SERVER)
            with pytest.raises(CountersignError, match="No user signs in to server s in a browser"):
                await here.sign_ins.begin(SERVER, ANA, HALL)
