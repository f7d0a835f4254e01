"""MCP servers, sign-ins and admins' servers where a proxy is the only way out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from bot.domain.servers import ServerStatus
from bot.errors import ServerTrouble
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.oauth.http import open_client, open_guarded_transport
from bot.mcp.transports.http import GuardedTransport, http_client
from tests.fakes.proxy import FakeProxy
from tests.mcp.toolboxes import http_server, remote, running_toolbox

HTTP, HTTPS, ADDRESS = "tools.example:80", "tools.example:443", "93.184.216.34"
URL = "http://tools.example/mcp"


async def unknown(_host: str, _port: int) -> list[str]:
    raise OSError(-2, "Name or service not known")


async def public(_host: str, _port: int) -> list[str]:
    return [ADDRESS]


async def private(_host: str, _port: int) -> list[str]:
    return ["10.0.0.7"]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with http_server() as (url, _):
        yield url


@pytest.fixture
async def proxy(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProxy]:
    """The proxy of the environment, which knows the server by its name and by its address."""
    port = urlsplit(endpoint).port or 0
    async with FakeProxy({HTTP: port, f"{ADDRESS}:80": port}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        yield proxy


async def test_a_server_of_the_operator_is_reached_by_its_name_through_the_proxy(proxy: FakeProxy) -> None:
    async with running_toolbox(remote("s", URL)) as box:
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
        checks = {check.name: check async for check in box.diagnose("file:s")}
    assert set(proxy.asked) == {HTTP}
    assert all("HTTP_PROXY" in checks[name].detail for name in ("DNS", "TCP"))


async def test_a_server_of_this_machine_or_in_no_proxy_is_reached_directly(
    endpoint: str, proxy: FakeProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_toolbox(remote("s", endpoint)) as box:
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
    monkeypatch.setenv("NO_PROXY", ".example, other")
    async with running_toolbox(remote("s", "https://tools.example/mcp")) as box:
        assert (await box.connect("file:s")).status is ServerStatus.FAILED
    assert proxy.asked == []


async def test_what_the_proxy_refuses_names_its_variable_and_no_name_service(proxy: FakeProxy) -> None:
    async with running_toolbox(remote("s", "https://tools.example/mcp")) as box:
        state = await box.connect("file:s")
    assert "403 Not here (through the proxy of HTTPS_PROXY)" in state.problem
    assert set(proxy.asked) == {HTTPS}


@pytest.mark.parametrize(
    ("variable", "scheme"), [("ALL_PROXY", "http"), ("ALL_PROXY", "https"), ("MCP_PROXY", "https")]
)
@pytest.mark.parametrize("answer", ["407 Proxy Authentication Required", "hangs up", "is dead"])
async def test_a_proxy_that_lets_nothing_through_is_what_has_to_be_mended(
    variable: str, answer: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n" if answer.startswith("4") else ""
    url, allowances = f"{scheme}://tools.example/mcp", AllowedTargets()
    entry = remote("s", url)
    async with FakeProxy({}, refusal.encode()) as proxy:
        if answer == "is dead":
            await proxy.__aexit__(None, None, None)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        if variable == "MCP_PROXY":
            allowances, entry = AllowedTargets(proxy=proxy.url), remote("s", url, id="srv_1")
        async with running_toolbox(entry, allowances=allowances, resolve=public) as box:
            state = await box.connect(entry.id)
            checks = [check async for check in box.diagnose(entry.id)]
        async with open_client(open_guarded_transport(entry, allowances, public)) as client:
            with pytest.raises(ServerTrouble) as signing_in:
                await client.send(httpx2.Request("GET", f"{scheme}://tools.example/login"))
    fix = f"check {variable}, and that the proxy lets the bot out"
    assert state.problem.endswith(f"(through the proxy of {variable}). Fix: {fix}.")
    assert next(check.fix for check in checks if check.name == "HTTP") == fix
    assert signing_in.value.fix == fix


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ALL_PROXY", "socks://u:pass@127.0.0.1:1", "ALL_PROXY (socks://…) is not the address of a proxy"),
        ("ALL_PROXY", "none", "ALL_PROXY is not the address of a proxy"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE is '/nowhere/ca.pem'"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR is '/nowhere'"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_named_by_the_server_that_needs_it(
    variable: str, value: str, said: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    async with running_toolbox(remote("far", "https://tools.example/mcp"), remote("near", endpoint)) as box:
        state = await box.connect("file:far")
        assert said in state.problem
        assert f"Fix: set {variable}" in state.problem or f"Fix: correct {variable}" in state.problem
        assert "pass" not in state.problem
        assert (await box.connect("file:near")).status is ServerStatus.CONNECTED


async def test_a_proxy_of_admins_servers_that_cannot_be_used_is_named_by_its_setting() -> None:
    targets = AllowedTargets(proxy="http://u:pass@*:1")
    async with running_toolbox(
        remote("s", "https://tools.example/mcp", id="u1"), allowances=targets, resolve=public
    ) as box:
        problem = (await box.connect("u1")).problem
    assert "MCP_PROXY (http://…) is not the address of a proxy that can be used. Fix: set MCP_PROXY" in problem


async def test_a_sign_in_to_a_server_of_the_operator_goes_through_the_proxy(proxy: FakeProxy) -> None:
    async with open_client(open_guarded_transport(remote("s", URL), AllowedTargets(), unknown)) as client:
        await client.send(httpx2.Request("GET", "http://tools.example/.well-known/oauth-authorization-server"))
    assert proxy.asked == [HTTP]
    async with open_client(open_guarded_transport(remote("s", URL), AllowedTargets(), private)) as client:
        with pytest.raises(ServerTrouble, match="private network"):
            await client.send(httpx2.Request("GET", "http://login.example/"))
    assert proxy.asked == [HTTP]


@pytest.mark.parametrize(
    ("resolve", "hosts", "asked", "said"),
    [
        (public, (), [f"{ADDRESS}:80"], ""),
        (private, (), [], "private network"),
        (unknown, (), [], "cannot be checked before MCP_PROXY is asked"),
        (unknown, ("tools.example",), [HTTP], ""),
    ],
)
async def test_the_proxy_of_admins_servers_gets_checked_addresses_only(
    resolve: Any, hosts: tuple[str, ...], asked: list[str], said: str, proxy: FakeProxy
) -> None:
    targets = AllowedTargets(frozenset(hosts), proxy=proxy.url)
    async with http_client({}, 5.0, GuardedTransport(targets, resolve)) as client:
        answer = await client.get(URL)
    assert proxy.asked == asked
    assert said in answer.text
