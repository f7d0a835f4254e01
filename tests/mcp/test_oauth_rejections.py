"""Rejected sign-ins: forbidden targets, and responses from other servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from bot.domain.servers import ServerStatus
from bot.domain.sign_ins import SignInKey, callback_path
from bot.errors import NotFound, ServerTrouble
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.oauth.client import is_one_party
from bot.ports import SignedIn
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint
from tests.fakes.oauth import FakeOAuth
from tests.mcp.oauth_process import BACK, HALL, SERVER, oauth_process, refusal, server
from tests.mcp.toolboxes import ANA


def _refuses_in(charset: str) -> dict[str, Any]:
    return {"refuses_to_register": (400, b"\xff{}", f"application/json; charset={charset}")}


@pytest.mark.parametrize(
    ("flaw", "cause", "fix"),
    [
        *(({"proof": proof}, "PKCE with S256", "has to switch PKCE on") for proof in (None, [], ["plain"])),
        ({"says_issuer": "https://other.example"}, "says that it is another one, https://other.example", "set its"),
        ({"says_resource": "https://bank.example/mcp"}, "itself as another one, https://bank.example/mcp", "operator"),
        ({"padding": 300_000}, "its answer is larger than 256 KiB", ""),
        ({"scopes": tuple(map(str, range(1_000)))}, "more than a link in a chat takes", "fewer scopes"),
        *(
            (_refuses_in(charset), "does not register the bot", "by hand")
            for charset in ("zlib", "hex", "undefined", "idna", "rot13")
        ),
    ],
)
async def test_no_user_is_sent_to_an_unfit_authorization_server(
    tmp_path: Path, flaw: dict[str, Any], cause: str, fix: str
) -> None:
    async with FakeOAuth(**flaw) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        told = await refusal(here)
        assert cause in told.cause
        assert fix in told.fix
        assert "proof" not in flaw or oauth.asked == []


@pytest.mark.parametrize(
    ("name", "endpoint", "cause"),
    [
        *(
            (f"{kind}_endpoint", address, f"The {kind} endpoint {cause}")
            for kind in ("authorization", "token", "registration")
            for address, cause in (
                ("http://issuer.example.org/x", "at issuer.example.org begins with http://"),
                ("https://ana:pw@issuer.example.org/x", "is not an allowed address"),
            )
        ),
        *(
            ("authorization_endpoint", f"{{issuer}}/authorize?{query}", "says itself what the bot has to say")
            for query in ("resource=https://bank.example/mcp", "client_id=x", "a=b&state=", "request_uri=urn:x")
        ),
    ],
)
async def test_no_secret_and_no_user_is_sent_to_an_unsafe_endpoint(
    tmp_path: Path, name: str, endpoint: str, cause: str
) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        oauth.endpoints[name] = endpoint.format(issuer=oauth.issuer)
        assert cause in (await refusal(here)).cause


@pytest.mark.parametrize(("host", "path"), [("127.0.0.1", "/tenant"), ("localhost", "")])
async def test_an_issuer_that_the_server_names_otherwise_counts_if_it_is_set(
    tmp_path: Path, host: str, path: str
) -> None:
    async with FakeOAuth() as oauth:
        oauth.says_issuer = oauth.sends_issuer = said = oauth.issuer.replace("127.0.0.1", host) + path
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            assert (await refusal(here)).fix.endswith(f"set its issuer to {said}")
        async with oauth_process(tmp_path, server(oauth.url, issuer=oauth.url.removesuffix("/mcp"))) as here:
            assert f"{oauth.url.removesuffix('/mcp')} says that it is another one" in (await refusal(here)).cause
        async with oauth_process(tmp_path, server(oauth.url, issuer=said)) as here:
            await here.sign_in(oauth)
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED


async def test_a_set_issuer_is_no_way_to_another_party(tmp_path: Path) -> None:
    """A server could name metadata that claim the issuer, and send people elsewhere."""
    async with FakeOAuth(says_issuer="https://slack.com") as oauth:
        async with oauth_process(tmp_path, server(oauth.url, issuer="https://slack.com")) as here:
            assert "which is not its own domain" in (await refusal(here)).cause
        assert oauth.asked == []


@pytest.mark.parametrize("named", ["user", "bot", "Example", "BEARER", 5])
async def test_a_token_of_an_unknown_type_is_a_bearers(tmp_path: Path, named: object) -> None:
    async with FakeOAuth(token_type=named) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        await here.sign_in(oauth)
        assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED
        assert oauth.carried[-1].startswith("Bearer ")


@pytest.mark.parametrize(
    ("odd", "life"),
    [
        *(({"expires_in": text}, 3600.0) for text in ("3600", "3600.0", " 3600 ")),
        *(({"expires_in": text}, None) for text in ("", "soon", "NaN", "9" * 400)),
        ({"expires_in": 3600.5}, 3600.0),
        ({"expires_in": [1]}, None),
        ({"scope": ["a", "b"]}, None),
        ({"token_type": None}, None),
    ],
)
async def test_a_token_is_used_with_any_lifetime_and_form_of_scopes(
    tmp_path: Path, odd: dict[str, object], life: float | None
) -> None:
    body = {"access_token": "t-Zk29vT4xq7Lm", **odd}
    async with (
        FakeOAuth(refuses={"authorization_code": (200, body)}) as oauth,
        oauth_process(tmp_path, server(oauth.url)) as here,
    ):
        await here.sign_in(oauth)
        stored = await here.store.find(SignInKey(SERVER))
        assert stored is not None
        assert (stored.access_token, stored.expires_at is None) == ("t-Zk29vT4xq7Lm", life is None)
        assert stored.scope == ("a b" if "scope" in odd else "")


async def test_an_issuer_with_and_without_a_slash_at_its_end_is_the_same(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        oauth.says_issuer = oauth.sends_issuer = f"{oauth.issuer}/"
        for issuer in ("", oauth.issuer):
            async with oauth_process(tmp_path, server(oauth.url, issuer=issuer)) as here:
                await here.sign_in(oauth)


@pytest.mark.parametrize(
    ("advertised", "sent", "accepted"),
    [
        (True, "its own", True),
        (False, None, True),
        (False, "its own", True),
        (True, None, False),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
    ],
)
async def test_an_answer_counts_only_from_the_expected_issuer(
    tmp_path: Path, advertised: bool, sent: str | None, accepted: bool
) -> None:
    async with (
        FakeOAuth(advertises_issuer=advertised, sends_issuer=sent) as oauth,
        oauth_process(tmp_path, server(oauth.url)) as here,
    ):
        if accepted:
            await here.sign_in(oauth)
            return
        with pytest.raises(ServerTrouble, match="does not come from the authorization server"):
            await here.sign_in(oauth)
        assert oauth.forms("/token") == []


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with FakeEndpoint() as inside, FakeOAuth(elsewhere=inside.url) as oauth:
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            assert "has no metadata for OAuth" in (await refusal(here)).cause
        assert inside.seen == []


async def test_a_server_cannot_send_the_bot_where_admins_may_not(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        config = replace(server(oauth.url), id="u1")
        only = AllowedTargets(frozenset((oauth.url.split("/")[2],)))
        async with oauth_process(tmp_path, config, allowances=only) as here:
            with pytest.raises(ServerTrouble) as raised:
                await here.sign_ins.begin("u1", ANA, HALL)
        assert "in a private network, which admins may not use" in raised.value.cause
        assert f"127.0.0.1:{urlsplit(oauth.issuer).port} in MCP_ALLOWED_HOSTS" in raised.value.fix
        assert oauth.asked == []


async def test_an_operators_server_elsewhere_cannot_send_the_bot_to_this_machine(tmp_path: Path) -> None:
    async def outside(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with FakeOAuth() as oauth:
        port = urlsplit(oauth.url).port
        config = server(f"http://mcp.example.org:{port}/mcp")
        async with oauth_process(tmp_path, config, resolve=outside) as here:
            told = await refusal(here)
        assert "127.0.0.1 is on this machine" in told.cause


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("http://[", "names an address that is none"),
        ("javascript:alert(1)", "is not an allowed address"),
        ("//issuer.example", "is not an allowed address"),
        ("ftp://issuer.example/x", "is not an allowed address"),
        ("http://169.254.169.254/latest", "begins with http://"),
        ("https://169.254.169.254/latest", "metadata service"),
        (f"https://{'a' * 300}.example/x", "cannot be asked"),
        ("https://issuer.example:99999/x", "cannot be asked"),
    ],
)
async def test_a_server_that_names_a_strange_place_for_its_metadata_is_not_followed(
    tmp_path: Path, named: str, said: str
) -> None:
    async def unknown(host: str, _port: int) -> list[str]:
        host.encode("idna")
        raise OSError("no such name")

    headers = {"www-authenticate": f'Bearer resource_metadata="{named}"', "content-type": "text/plain"}
    async with FakeEndpoint() as endpoint, oauth_process(tmp_path, server(endpoint.url), resolve=unknown) as here:
        endpoint.on["ping"] = Answer(401, b"no", headers)
        assert said in (await refusal(here)).cause


@pytest.mark.parametrize("client", ["", "by-hand"])
async def test_no_user_is_sent_to_another_party_than_the_authorization_server(tmp_path: Path, client: str) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url, client_id=client)) as here:
        oauth.endpoints["authorization_endpoint"] = "https://login.bank.example/authorize"
        told = await refusal(here)
        assert "has its authorization endpoint at login.bank.example, which is not its own domain" in told.cause
        assert oauth.asked == []


@pytest.mark.parametrize("name", ["token_endpoint", "registration_endpoint", "revocation_endpoint"])
async def test_codes_and_secrets_go_to_another_party_only_where_an_admin_has_registered_the_bot(
    tmp_path: Path, name: str
) -> None:
    async with FakeOAuth() as oauth:
        oauth.endpoints[name] = "https://tokens.bank.example/x"
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            told = await refusal(here)
            assert f"has its {name.replace('_', ' ')} at tokens.bank.example" in told.cause
            assert "register the bot there by hand" in told.fix
            assert oauth.asked == []
        async with oauth_process(tmp_path, server(oauth.url, client_id="by-hand")) as here:
            assert (await here.sign_ins.begin(SERVER, ANA, HALL)).startswith(f"{oauth.issuer}/authorize?")


@pytest.mark.parametrize("endpoint", ["http://localhost:9000/delete", "https://127.0.0.1/x", "http://[::1]:1/y"])
async def test_a_remote_server_cannot_send_users_to_their_own_machine(tmp_path: Path, endpoint: str) -> None:
    async def here_too(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with FakeOAuth() as oauth:
        config = replace(server(oauth.url.replace("127.0.0.1", "mcp.example")), id="u1")
        oauth.says_resource, oauth.endpoints["authorization_endpoint"] = config.transport.url, endpoint  # type: ignore[union-attr]
        hosts = AllowedTargets(frozenset(("mcp.example", "127.0.0.1")))
        async with oauth_process(tmp_path, config, allowances=hosts, resolve=here_too) as here:
            with pytest.raises(ServerTrouble, match=r"on the user.s own machine"):
                await here.sign_ins.begin("u1", ANA, HALL)


async def test_an_authorization_endpoint_may_have_a_query_of_its_own(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        oauth.endpoints["authorization_endpoint"] = f"{oauth.issuer}/authorize?tenant=t1"
        await here.sign_in(oauth)
        assert oauth.forms("/authorize")[0]["tenant"] == "t1"


# ---------------------------------------------------------------------- coming back


async def test_a_link_is_good_for_one_return(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        brought = await oauth.browser(await here.sign_ins.begin(SERVER, ANA, HALL))
        await here.back(brought)
        for state in (brought["state"], "never-was"):
            with pytest.raises(NotFound, match="not under way"):
                await here.back({**brought, "state": state})
        assert oauth.grants("authorization_code") == 1


async def test_an_answer_of_one_server_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    """Mix-up attack: Ana's authorization server redirects her browser to an honest one.

    The bot is registered there, too. The redirect carries the state of the malicious server's sign-in.
    """
    async with FakeOAuth() as evil, FakeOAuth(sends_issuer=None, advertises_issuer=False) as honest:
        evil.sends_issuer, evil.advertises_issuer = None, False
        bank = replace(server(honest.url), name="bank", id="file:bank")
        async with oauth_process(tmp_path, server(evil.url), bank) as here:
            theirs = _query(await here.sign_ins.begin("file:bank", ANA, HALL))
            begun = _query(await here.sign_ins.begin(SERVER, ANA, HALL))
            assert begun["redirect_uri"] != theirs["redirect_uri"]
            sent_on = {**begun, "client_id": theirs["client_id"], "resource": theirs["resource"]}
            async with httpx2.AsyncClient() as browser:
                answer = await browser.get(f"{honest.issuer}/authorize", params=sent_on)
            assert answer.status_code == 400, "the honest server knows the address of the other one"
            sent_on["redirect_uri"] = theirs["redirect_uri"]
            brought = await honest.browser(f"{honest.issuer}/authorize?{urlencode(sent_on)}")
            assert brought["code"]
            with pytest.raises(ServerTrouble, match="came to the address of another server"):
                await here.back(brought)
        assert evil.forms("/token") == honest.forms("/token") == []


async def test_a_bot_that_was_registered_with_another_address_is_registered_again(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        async with oauth_process(tmp_path, server(oauth.url), address="http://localhost:8") as here:
            await here.sign_in(oauth)
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.CONNECTED, "tokens that are good stay"
            await here.sign_in(oauth)
        assert [form["redirect_uris"] for form in oauth.forms("/register")] == [
            repr([f"http://localhost:8{callback_path(SERVER)}"]), repr([BACK]),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("issuer", "endpoint", "same"),
    [
        ("https://login.example.com", "https://auth.example.com/authorize", True),
        ("https://example.co.uk", "https://a.b.example.co.uk/x", True),
        ("https://login.example.com/tenant", "https://login.example.com:443/x", True),
        ("https://keycloak:8443", "https://keycloak:8443/x", True),
        ("https://LOGIN.example.com", "https://login.Example.com/x", True),
        ("https://bank.co.uk", "https://evil.co.uk/x", False),
        ("https://bank.github.io", "https://evil.github.io/x", False),
        ("https://example.com", "https://example.com.evil.net/x", False),
        ("https://keycloak:8443", "https://keycloak:9443/x", False),
        ("http://localhost:8080", "http://localhost:9090/x", False),
        ("https://10.0.0.1", "https://10.0.0.2/x", False),
        ("https://10.0.0.1", "https://10.0.0.1:8443/x", False),
        ("https://[fd00::1]", "https://[fd00::1]/x", True),
        ("https://[fd00::1]", "https://[fd00::2]/x", False),
    ],
)
def test_two_addresses_are_of_one_party_by_origin_or_registrable_domain(issuer: str, endpoint: str, same: bool) -> None:
    assert is_one_party(issuer, endpoint) is same


def _query(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


async def test_a_refused_sign_in_is_reported_and_nothing_is_stored(tmp_path: Path) -> None:
    async with FakeOAuth(denies=True) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        with pytest.raises(ServerTrouble, match="The bot was not let in to s: it was denied"):
            await here.sign_in(oauth)
        assert await here.sign_ins.get(SERVER) is None


async def test_a_user_who_lost_the_right_completes_no_sign_in(tmp_path: Path) -> None:
    async def nobody(who: SignedIn) -> None:
        raise NotFound(f"{who.by.name} is gone.")

    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        brought = await oauth.browser(await here.sign_ins.begin(SERVER, ANA, HALL))
        with pytest.raises(NotFound, match="Ana is gone"):
            await here.back(brought, nobody)
        assert oauth.forms("/token") == []


async def test_a_server_that_is_elsewhere_by_now_gets_no_token_that_was_meant_for_the_one_before(
    tmp_path: Path,
) -> None:
    async with FakeOAuth() as oauth:
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            brought = await oauth.browser(await here.sign_ins.begin(SERVER, ANA, HALL))
        async with FakeOAuth() as other, oauth_process(tmp_path, server(other.url)) as here:
            with pytest.raises(ServerTrouble, match="somewhere else by now"):
                await here.back(brought)
            assert other.forms("/token") == []


async def test_a_sign_in_is_not_used_for_a_server_at_another_address(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth:
        async with oauth_process(tmp_path, server(oauth.url)) as here:
            await here.sign_in(oauth)
        async with FakeOAuth() as other, oauth_process(tmp_path, server(other.url)) as here:
            assert (await here.box.connect(SERVER)).status is ServerStatus.AUTH_REQUIRED
            assert await here.sign_ins.get(SERVER) is None
            assert set(other.carried) == {""}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, {"error": "invalid_grant", "error_description": "the code\u202e is old"}, r"invalid_grant \(the code"),
        (200, {"error": "bad_verification_code"}, "gave no token: bad_verification_code"),
        (500, "<html>", "gave no token: 500"),
        (200, {"access_token": "x", "token_type": "mac"}, "is not in the form that OAuth wants"),
        (200, {"access_token": "a\nb", "token_type": "bearer"}, "a token that no header can carry"),
        (200, "[" * 100_000, "is not in the form that OAuth wants"),
        (200, '{"access_token": "x", "refresh_token": "\\ud800"}', "a token that cannot be sent back"),
        (200, '{"access_token": "x", "scope": "\\ud800"}', "a token that cannot be sent back"),
    ],
)
async def test_a_code_that_brings_no_token_is_told_with_its_reason(
    tmp_path: Path, status: int, body: object, said: str
) -> None:
    refuses = {"authorization_code": (status, body)}
    async with FakeOAuth(refuses=refuses) as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        with pytest.raises(ServerTrouble, match=said) as raised:
            await here.sign_in(oauth)
        assert "\u202e" not in raised.value.cause
        assert await here.sign_ins.get(SERVER) is None


async def test_a_refusal_that_repeats_the_code_is_told_without_it(tmp_path: Path) -> None:
    async with FakeOAuth() as oauth, oauth_process(tmp_path, server(oauth.url)) as here:
        brought = await oauth.browser(await here.sign_ins.begin(SERVER, ANA, HALL))
        said = {"error": "invalid_grant", "error_description": f"{brought['code']} is old"}
        oauth.refuses["authorization_code"] = (400, said)
        with pytest.raises(ServerTrouble, match=r"invalid_grant \(\*\*\* is old\)"):
            await here.back(brought)
