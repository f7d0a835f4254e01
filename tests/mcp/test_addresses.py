"""Addresses and commands that an admin may give a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.mcp.config.checks import AllowedTargets, Resolve, check_definition, resolve_allowed
from bot.mcp.errors import InvalidDefinition

NOBODY = AllowedTargets()


def theirs(url: str) -> ServerConfig:
    return ServerConfig("s", HttpTransport(url), id="u1")


def said_to(url: str, allowances: AllowedTargets = NOBODY) -> str:
    with pytest.raises(InvalidDefinition) as refused:
        check_definition(theirs(url), allowances)
    return refused.value.sentence


def answering(*addresses: str) -> Resolve:
    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolve


PRIVATE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "0x7f000001", "10.0.0.5", "192.168.1.1",
    "172.16.0.1", "169.254.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "[::1]", "[::]",
    "[fd12::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2002:a00:1::]", "localhost",
    "LOCALHOST.", "db.localhost", "\uff11\uff12\uff17.0.0.1",
]  # fmt: skip
METADATA = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "100.100.100.200",
    "168.63.129.16", "metadata.google.internal", "Metadata.Google.Internal.", "metadata", "[64:ff9b::a9fe:a9fe]",
]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_an_admin_may_not_name_addresses_that_only_this_machine_reaches(host: str) -> None:
    assert "private network" in said_to(f"https://{host}/mcp")


@pytest.mark.parametrize("host", METADATA)
def test_a_metadata_service_is_never_allowed(host: str) -> None:
    bare = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    everywhere = AllowedTargets(hosts=frozenset((host, bare, f"{bare}:443", "169.254.169.254")))
    for allowances in (NOBODY, everywhere):
        assert "metadata service" in said_to(f"https://{host}/mcp", allowances)


@pytest.mark.parametrize(
    "url", ["https://example.org/mcp", "https://example.org:8443/mcp", "https://8.8.8.8/mcp", "https://[2606:4700::1]/"]
)
def test_a_public_address_may_be_used(url: str) -> None:
    check_definition(theirs(url), NOBODY)


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080/mcp"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/mcp"),
        ("localhost:8080", "http://LOCALHOST:8080/mcp"),
        ("N8N:5678", "http://n8n:5678/api/mcp"),
        ("10.0.0.5", "https://10.0.0.5/mcp"),
        ("[::1]:8080", "http://[::1]:8080/mcp"),
        ("::1", "http://[::1]:8080/mcp"),
        ("localhost:443", "https://localhost/mcp"),
    ],
)
def test_the_operator_may_allow_a_host_or_one_port_of_it(allowed: str, url: str) -> None:
    check_definition(theirs(url), AllowedTargets(hosts=frozenset((allowed,))))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8081/mcp", "https://127.0.0.1/mcp", "http://127.0.0.2:8080/mcp"])
def test_a_port_that_is_not_allowed_is_none(url: str) -> None:
    assert "MCP_ALLOWED_HOSTS" in said_to(url, AllowedTargets(hosts=frozenset(("127.0.0.1:8080",))))


def test_a_public_command_line_with_a_secret_is_refused() -> None:
    assert "https://" in said_to("http://example.org/mcp")


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    said = said_to("https://ana:passw0rd@example.org/mcp")
    assert "secret" in said
    assert "passw0rd" not in said


@pytest.mark.parametrize(
    "url", ["", "ftp://example.org", "https://", "https://exa mple.org", "https://[::1", "x" * 3000]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    assert "not an http or https address" in said_to(url)


def test_the_operators_file_is_not_limited() -> None:
    check_definition(ServerConfig("s", HttpTransport("http://127.0.0.1:1/")), NOBODY)
    check_definition(ServerConfig("s", StdioTransport("anything")), NOBODY)


def test_an_admin_may_run_only_programs_that_the_operator_allows() -> None:
    server = ServerConfig("s", StdioTransport("npx", ("-y", "x")), id="u1")
    with pytest.raises(InvalidDefinition, match="program"):
        check_definition(server, NOBODY)
    check_definition(server, AllowedTargets(commands=frozenset(("npx",))))


async def test_a_name_is_as_good_as_all_the_addresses_behind_it() -> None:
    assert await resolve_allowed("example.org", 443, NOBODY, answering("8.8.8.8", "1.1.1.1")) == [
        "8.8.8.8",
        "1.1.1.1",
    ]
    for addresses in (["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%eth0"]):
        with pytest.raises(InvalidDefinition, match="private network"):
            await resolve_allowed("example.org", 443, NOBODY, answering(*addresses))
    with pytest.raises(InvalidDefinition, match="metadata"):
        await resolve_allowed("n8n", 80, AllowedTargets(hosts=frozenset(("n8n",))), answering("169.254.169.254"))


@pytest.mark.parametrize("hosts", [("n8n",), ("n8n:80",), ("10.0.0.7",), ("10.0.0.7:80",)])
async def test_a_name_may_be_allowed_by_itself_or_by_its_address(hosts: Sequence[str]) -> None:
    allowances = AllowedTargets(hosts=frozenset(hosts))
    assert await resolve_allowed("n8n", 80, allowances, answering("10.0.0.7")) == ["10.0.0.7"]
