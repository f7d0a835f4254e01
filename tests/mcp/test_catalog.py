"""Servers that can be added by name: the bundled ones, and entries of a registry, which are untrusted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from bot.domain.catalog import CatalogServer, unpinned_package
from bot.domain.servers import HttpKind, is_address
from bot.errors import ServerTrouble
from bot.mcp.config.catalog import FRESH_SECONDS, STALE_SECONDS, Catalog, PublicRegistry, bundled_servers, parse_server
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.transports.http import GuardedTransport

ADDRESS = "https://registry.example"
OFFICIAL = "io.modelcontextprotocol.registry/official"


def package(**fields: Any) -> dict[str, Any]:
    return {
        "registryType": "npm",
        "identifier": "@ana/desk",
        "version": "1.2.3",
        "transport": {"type": "stdio"},
        **fields,
    }


def entry(name: str = "io.github.ana/desk", **fields: Any) -> dict[str, Any]:
    return {"server": {"name": name, "description": "A desk.", "version": "1.2.3", **fields}, "_meta": {}}


def parse_entry(**fields: Any) -> CatalogServer:
    server = parse_server(entry(**fields))
    assert server is not None
    return server


def test_every_bundled_server_can_be_reached_or_started_as_it_stands_there() -> None:
    servers = bundled_servers()
    assert len(servers) == len({server.name for server in servers}) > 15
    assert {"n8n", "github", "filesystem", "git"} <= {server.name for server in servers}
    for server in servers:
        assert server.title
        assert server.description
        assert all(item.description for item in server.inputs)
        if server.url:
            assert is_address(server.url.replace("{", "").replace("}", ""))
            assert server.url.startswith("https://")
        else:
            program, *words = (word for group in server.command_line for word in group)
            assert unpinned_package(program, words) == ""


def test_a_package_becomes_a_command_line_with_its_version() -> None:
    variables = [{"name": "DESK_TOKEN", "isRequired": True, "isSecret": True}, {"name": "MODE", "default": "quiet"}]
    arguments = [
        {"type": "positional", "value": "serve"},
        {"type": "named", "name": "--root", "valueHint": "root_dir", "isRequired": True},
        {"type": "named", "name": "--verbose", "isRequired": False},
        {"type": "named", "name": "--bind", "value": "{host}:{port}", "variables": {"port": {"default": "80"}}},
    ]
    server = parse_entry(packages=[package(environmentVariables=variables, packageArguments=arguments)])
    assert server.place == "npx -y @ana/desk@1.2.3 serve --root {root_dir} --bind {host}:{port}"
    assert [(item.name, item.required, item.secret, item.default) for item in server.inputs] == [
        ("desk_token", True, True, ""),
        ("mode", False, False, "quiet"),
        ("root_dir", True, False, ""),
        ("host", True, False, ""),
        ("port", True, False, "80"),
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"registryType": "pypi", "identifier": "desk-mcp"}, "uvx desk-mcp@1.2.3"),
        ({"registryType": "oci", "identifier": "docker.io/ana/desk"}, "docker run -i --rm docker.io/ana/desk:1.2.3"),
        ({"registryType": "oci", "identifier": "ana/desk:2", "version": None}, "docker run -i --rm ana/desk:2"),
        ({"runtimeHint": "/bin/sh"}, "npx -y @ana/desk@1.2.3"),
        ({"runtimeArguments": [{"type": "positional", "value": "--yes"}]}, "npx --yes @ana/desk@1.2.3"),
    ],
)
def test_the_kind_of_package_chooses_the_program_and_the_entry_does_not(fields: dict[str, Any], place: str) -> None:
    assert parse_entry(packages=[package(**fields)]).place == place


def test_the_first_form_of_the_format_is_read_too() -> None:
    old = {"registry_type": "pypi", "identifier": "desk-mcp", "version": "1.0", "environment_variables": [
        {"name": "KEY", "is_required": True, "is_secret": True}
    ]}  # fmt: skip
    server = parse_server({"name": "io.github.ana/desk", "description": "", "packages": [old]})
    assert server is not None
    assert server.place == "uvx desk-mcp@1.0"
    assert server.inputs[0].secret


def test_an_address_is_preferred_to_a_program_and_the_current_transport_to_the_old() -> None:
    remotes = [
        {"type": "sse", "url": "https://a.example/sse"},
        {"type": "streamable-http", "url": "https://a.example/mcp"},
    ]
    server = parse_entry(remotes=remotes, packages=[package()])
    assert (server.url, server.kind, server.command_line) == ("https://a.example/mcp", HttpKind.STREAMABLE, ())
    assert parse_entry(remotes=remotes[:1]).kind is HttpKind.SSE


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"server": {"name": "a b"}},
        {"server": {"name": "x" * 300, "remotes": []}},
        entry(),
        entry(packages=[package(registryType="mcpb")]),
        entry(packages=[package(transport={"type": "sse"})]),
        entry(packages=[package(identifier="a\nb")]),
        entry(packages=[package(identifier="x" * 600)]),
        entry(packages=[package(environmentVariables=[{"name": "A=B"}])]),
        entry(remotes=[{"type": "streamable-http", "url": 5}]),
        entry(remotes=[{"type": "websocket", "url": "wss://a.example"}]),
        {**entry(packages=[package()]), "_meta": {OFFICIAL: {"isLatest": False}}},
        {**entry(packages=[package()]), "_meta": {OFFICIAL: {"status": "deleted"}}},
        entry(packages=[package()], status="deleted"),
        entry(
            packages=[
                package(
                    environmentVariables=[{"name": f"V{n}"} for n in range(30)],
                    packageArguments=[{"type": "positional", "valueHint": f"a{n}"} for n in range(30)],
                )
            ],
            remotes="x",
        ),
    ],
)
def test_an_entry_that_cannot_be_used_is_left_out(document: Any) -> None:
    assert parse_server(document) is None


def test_texts_of_an_entry_are_cut_and_cleaned() -> None:
    server = parse_entry(title="a\u202eb\x1b[31m\nc", description="x" * 10_000, packages=[package()])
    assert server.title == "a b [31m c"
    assert len(server.description) == 300


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 65_536):
        yield content[begin : begin + 65_536]


class FakeRegistry:
    """A registry in memory; `pages` are its answers by cursor."""

    def __init__(self, pages: dict[str, Any] | None = None) -> None:
        self.pages = pages if pages is not None else {"": {"servers": [entry(packages=[package()])]}}
        self.asked: list[httpx2.Request] = []
        self.now = 0.0
        self.status = 200
        self.registry = PublicRegistry(
            ADDRESS + "/", lambda: httpx2.MockTransport(self._answer), clock=lambda: self.now
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        page = self.pages[request.url.params.get("cursor", "")]
        content = page if isinstance(page, bytes) else json.dumps(page).encode()
        headers = {"location": "https://other.example/"}
        return httpx2.Response(self.status, content=in_pieces(content), headers=headers)


async def test_the_registry_is_asked_for_the_latest_versions_by_name() -> None:
    fake = FakeRegistry()
    [server] = await fake.registry.search("  desk ")
    assert server.name == "io.github.ana/desk"
    assert not server.bundled
    [request] = fake.asked
    assert str(request.url) == f"{ADDRESS}/v0/servers?search=desk&version=latest&limit=20"


async def test_pages_are_followed_to_a_limit() -> None:
    def page(number: int) -> dict[str, Any]:
        return {"servers": [entry(f"a/{number}", packages=[package()])], "metadata": {"nextCursor": f"c{number + 1}"}}

    fake = FakeRegistry({"": page(0), **{f"c{number}": page(number) for number in range(1, 9)}})
    assert [server.name for server in await fake.registry.search("a")] == ["a/0", "a/1", "a/2"]


async def test_answers_are_kept_for_a_while_and_used_while_the_registry_is_away() -> None:
    fake = FakeRegistry()
    await fake.registry.search("desk")
    fake.now, fake.status = FRESH_SECONDS - 1, 503
    await fake.registry.search("desk")
    assert len(fake.asked) == 1
    fake.now = FRESH_SECONDS + 1
    [server] = await fake.registry.search("desk")
    assert (server.name, len(fake.asked)) == ("io.github.ana/desk", 2)
    fake.now = STALE_SECONDS + 1
    with pytest.raises(ServerTrouble, match="status 503"):
        await fake.registry.search("desk")


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"<html>", 200, "no list of servers"),
        (b"[]", 200, "no list of servers"),
        (b"[" * 100_000, 200, "no list of servers"),
        (b" " * 300_000, 200, "larger than 256 KiB"),
        (b"{}", 302, "status 302"),
        (b"{}", 500, "status 500"),
    ],
)
async def test_other_answers_are_an_error_with_a_fix(answer: bytes, status: int, said: str) -> None:
    fake = FakeRegistry({"": answer})
    fake.status = status
    with pytest.raises(ServerTrouble, match=said) as caught:
        await fake.registry.search("desk")
    assert caught.value.fix
    assert len(fake.asked) == 1, "a redirect is not followed"


async def test_a_registry_in_a_private_network_needs_the_operators_leave() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["10.0.0.7"]

    registry = PublicRegistry(ADDRESS, lambda: GuardedTransport(AllowedTargets(), resolve))
    with pytest.raises(ServerTrouble, match="private network"):
        await registry.search("desk")


async def test_the_registry_is_only_asked_for_names_with_a_slash_and_words() -> None:
    fake = FakeRegistry()
    catalog = Catalog(fake.registry.search)
    assert await catalog.find("desk") is None
    github = await catalog.find("GitHub")
    assert github is not None
    assert github.bundled
    assert len((await catalog.search("")).servers) == len(bundled_servers())
    assert fake.asked == []
    found = await catalog.find("io.github.ana/desk")
    assert found is not None
    assert await catalog.find("io.github.ana/other") is None
    assert await Catalog().find("io.github.ana/desk") is None


async def test_bundled_servers_are_found_while_the_registry_is_away() -> None:
    fake = FakeRegistry()
    fake.status = 503
    result = await Catalog(fake.registry.search).search("git repositor")
    assert {server.name for server in result.servers} >= {"git"}
    assert "status 503" in result.problem
