"""A server's secrets in its definition."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest

from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    Authentication,
    AuthenticationKind,
    DesiredServer,
    HttpTransport,
    OAuthTerms,
    ServerConfig,
    ServerRecord,
    StdioTransport,
)
from bot.mcp.config.credentials import inject_secrets
from bot.mcp.errors import InvalidDefinition
from bot.mcp.redaction import Redaction, secrets_of

STORED = SecretReference(SecretSource.STORED)
REMOTE = ServerConfig("s", HttpTransport("https://example.org/mcp", {"X-Plain": "yes"}), id="u1")
NONE, HEADER = AuthenticationKind.NONE, AuthenticationKind.HEADER
BASIC, API_KEY = AuthenticationKind.BASIC, AuthenticationKind.API_KEY
OAUTH, CREDENTIALS = AuthenticationKind.OAUTH, AuthenticationKind.CLIENT_CREDENTIALS


def headers(authentication: Authentication, values: Mapping[str, str]) -> dict[str, str]:
    transport = inject_secrets(record(REMOTE, authentication, values), values).transport
    assert isinstance(transport, HttpTransport)
    return dict(transport.headers)


def record(config: ServerConfig, authentication: Authentication, values: Mapping[str, str]) -> ServerRecord:
    return ServerRecord(config, authentication, dict.fromkeys(values, STORED))


@pytest.mark.parametrize(
    ("authentication", "sent"),
    [
        (Authentication(HEADER), {"Authorization": "my-secret"}),
        (Authentication(HEADER, "X-Token"), {"X-Token": "my-secret"}),
        (Authentication(API_KEY), {"Authorization": "Bearer my-secret"}),
        (Authentication(API_KEY, "authorization"), {"authorization": "Bearer my-secret"}),
        (Authentication(API_KEY, "X-Api-Key"), {"X-Api-Key": "my-secret"}),
        (Authentication(BASIC), {"Authorization": "Basic YW5hOm15LXNlY3JldA=="}),
    ],
)
def test_a_secret_goes_where_its_kind_wants_it(authentication: Authentication, sent: Mapping[str, str]) -> None:
    assert headers(authentication, {"auth": "my-secret", "username": "ana"}) == {"X-Plain": "yes", **sent}


def test_other_headers_may_be_secret_too_and_replace_those_of_the_same_name() -> None:
    assert headers(Authentication(), {"header:x-plain": "no", "header:X-More": "more"}) == {
        "x-plain": "no",
        "X-More": "more",
    }


def test_a_process_gets_its_secrets_in_its_environment() -> None:
    config = ServerConfig("s", StdioTransport("x", env={"A": "1"}), id="u1")
    values = {"env:TOKEN": "my-secret"}
    assert inject_secrets(record(config, Authentication(), values), values).transport == StdioTransport(
        "x", env={"A": "1", "TOKEN": "my-secret"}
    )


def test_a_sign_in_by_oauth_has_its_terms_and_no_header() -> None:
    by_hand = Authentication(OAUTH, client_id="bot", scope="read")
    config = inject_secrets(record(REMOTE, by_hand, {"auth": "my-secret"}), {"auth": "my-secret"})
    assert config.transport == REMOTE.transport
    assert config.sign_in == OAuthTerms(OAUTH, "bot", "my-secret", "read")
    assert "my-secret" not in repr(config)
    assert "my-secret" in [each.value for each in secrets_of(DesiredServer(config))]
    assert inject_secrets(record(REMOTE, Authentication(OAUTH), {}), {}).sign_in == OAuthTerms()


@pytest.mark.parametrize(
    ("authentication", "values", "why"),
    [
        (Authentication(CREDENTIALS, client_id="bot"), {}, "no client id and secret"),
        (Authentication(CREDENTIALS), {"auth": "my-secret"}, "no client id and secret"),
        (Authentication(OAUTH), {"header:authorization": "Bearer x"}, "a header Authorization of its own"),
    ],
)
def test_an_impossible_sign_in_by_oauth_is_reported(
    authentication: Authentication, values: Mapping[str, str], why: str
) -> None:
    with pytest.raises(InvalidDefinition, match=why):
        inject_secrets(record(REMOTE, authentication, values), values)


@pytest.mark.parametrize("kind", [HEADER, BASIC, API_KEY])
def test_without_its_secret_there_is_no_sign_in(kind: AuthenticationKind) -> None:
    with pytest.raises(InvalidDefinition, match="no secret to sign in"):
        inject_secrets(record(REMOTE, Authentication(kind), {}), {})


def test_a_secret_without_a_value_is_named() -> None:
    with pytest.raises(InvalidDefinition, match="header:X-More has no value"):
        inject_secrets(record(REMOTE, Authentication(), {"header:X-More": ""}), {})


@pytest.mark.parametrize(
    ("slot", "value"),
    [
        ("auth", "top-secret\r\nX-Injected: 1"),
        ("auth", "top-secret\n"),
        ("auth", "top-secret-\u00e9"),
        ("auth", "top-secret\0"),
        ("header:X-More", "top-secret\r\nX-Injected: 1"),
        ("header:X top-secret\n", "fine"),
        ("header:", "fine"),
        ("header:Host", "fine"),
    ],
)
def test_a_value_that_no_header_can_carry_is_refused_and_not_repeated(slot: str, value: str) -> None:
    values = {"auth": "fine", slot: value}
    with pytest.raises(InvalidDefinition) as refused:
        inject_secrets(record(REMOTE, Authentication(HEADER), values), values)
    assert "top-secret" not in refused.value.sentence


@pytest.mark.parametrize("slot", ["env:A=B", "env:", "env:A\0"])
def test_a_value_that_no_environment_can_carry_is_refused(slot: str) -> None:
    config = ServerConfig("s", StdioTransport("x"), id="u1")
    with pytest.raises(InvalidDefinition, match="environment"):
        inject_secrets(record(config, Authentication(), {slot: "top-secret"}), {slot: "top-secret"})


@pytest.mark.parametrize("kind", [HEADER, BASIC, API_KEY])
def test_every_form_of_a_secret_is_one(kind: AuthenticationKind) -> None:
    values = {"auth": "my-secret", "username": "ana"}
    config = inject_secrets(record(REMOTE, Authentication(kind), values), values)
    redact = Redaction(secrets_of(DesiredServer(config, secrets=frozenset({"my-secret"}))))
    pair = base64.b64encode(b"ana:my-secret").decode()
    shown = redact(f"my-secret / Bearer my-secret / Basic {pair if kind is BASIC else ''}")
    assert "my-secret" not in shown
    assert pair not in shown
