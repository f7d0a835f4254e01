"""Slack and Discord where a proxy is the only way out, or must not be taken."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from bot import machine
from bot.errors import DeliveryFailed
from bot.platforms.discord.rest import Rest
from bot.platforms.slack.web_api import WebApi
from tests.fakes.discord import FakeDiscord
from tests.fakes.proxy import FakeProxy
from tests.fakes.slack import FakeSlack
from tests.platforms.discord import connected_bot as discord_bot
from tests.platforms.slack.connected_bot import connected_bot

FAR = "far.example"


def at_far(url: str) -> tuple[str, dict[str, int]]:
    """Return the URL of a service under a name that only the proxy knows, and the proxy's routes."""
    parts = urlsplit(url)
    return parts._replace(netloc=FAR).geturl(), {f"{FAR}:80": parts.port or 80}


async def test_discord_is_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeDiscord() as discord:
        url, routes = at_far(discord.url)
        async with FakeProxy(routes) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            async with Rest(discord.token, url=url) as rest:
                assert (await rest.identity()).user == discord.bot.id
            assert set(proxy.asked) == {f"{FAR}:80"}


async def test_slack_is_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeSlack() as slack:
        url, routes = at_far(slack.url)
        async with FakeProxy(routes) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            async with WebApi(slack.bot_token, url=url) as api:
                assert (await api.identity()).user
            assert set(proxy.asked) == {f"{FAR}:80"}


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9", "http://unknown.example:3128"])
async def test_a_proxy_that_refuses_is_named_in_place_of_the_platform(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is down, or has an unknown name."""

    def unknown_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with FakeProxy({}) as proxy:
        monkeypatch.setattr(socket, "getaddrinfo", unknown_name)
        monkeypatch.setenv("ALL_PROXY", url or proxy.url)
        async with (
            Rest("t.o.ken", url="https://far.example/api/v10") as rest,
            WebApi("xoxb-1", url="https://far.example/") as api,
        ):
            for platform, ask in (("Discord", rest.identity), ("Slack", api.identity)):
                with pytest.raises(DeliveryFailed) as failure:
                    await ask()
                assert failure.value.cause == f"{platform} cannot be reached through the proxy."
                assert "ALL_PROXY" in failure.value.fix


@pytest.mark.usefixtures("far_services")
@pytest.mark.parametrize("excluded", ["127.0.0.1", "127.0.0.0/8", "*"])
async def test_slack_is_reached_directly_where_no_proxy_says_so(monkeypatch: pytest.MonkeyPatch, excluded: str) -> None:
    async with FakeProxy({}) as proxy:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        monkeypatch.setenv("NO_PROXY", excluded)
        async with connected_bot() as place:
            await place.slack.sockets.wait_for_connections()
        assert proxy.asked == []


@pytest.fixture
def far_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fakes count as services of another machine, which a proxy is for."""
    monkeypatch.setattr(machine, "is_this_machine", lambda _host: False)


def paths(proxy: FakeProxy) -> set[str]:
    """Return the beginning of each path that the proxy was asked for by a whole URL, and CONNECT for tunnels."""
    return {method if method == "CONNECT" else urlsplit(target).path.split("/")[1] for method, target in proxy.requests}


@pytest.mark.usefixtures("far_services")
async def test_the_gateway_of_discord_and_its_requests_take_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProxy(None) as proxy:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        async with discord_bot.connected_bot() as place:
            place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
            await place.wait_for_messages(1)
            assert len(place.discord.gateway.live) == 1
        assert paths(proxy) == {"api", "gateway"}


@pytest.mark.usefixtures("far_services")
async def test_the_socket_of_slack_and_its_requests_take_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProxy(None) as proxy:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        async with connected_bot() as place:
            await place.slack.sockets.wait_for_connections()
        assert paths(proxy) == {"api", "link"}


@pytest.mark.usefixtures("far_services")
@pytest.mark.parametrize("excluded", ["127.0.0.1", "elsewhere.example,127.0.0.0/8", "*"])
async def test_discord_is_reached_directly_where_no_proxy_says_so(
    monkeypatch: pytest.MonkeyPatch, excluded: str
) -> None:
    async with FakeProxy({}) as proxy:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        monkeypatch.setenv("NO_PROXY", excluded)
        async with discord_bot.connected_bot() as place:
            assert len(place.discord.gateway.live) == 1
        assert proxy.requests == []
