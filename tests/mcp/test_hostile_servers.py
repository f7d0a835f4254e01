"""Limits on a hostile server, or a hostile admin's definition: memory, time, words, secrets."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest

from bot.domain.pins import ReviewPolicy
from bot.domain.servers import DesiredServer, HttpTransport, ServerCapabilities, ServerConfig, ServerStatus
from bot.logs import redact_logs
from bot.mcp import toolbox
from bot.mcp.config.checks import AllowedTargets, resolve_host
from bot.mcp.redaction import KnownSecrets, Redaction, secrets_of
from bot.mcp.transports.http import GuardedTransport, http_client
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, result, tool
from tests.mcp.toolboxes import connected_toolbox, raw, remote, running_toolbox, until

_MEGABYTE = 1024 * 1024


def status_and_problem(box: Any) -> tuple[ServerStatus, str]:
    (state,) = box.servers()
    return state.status, state.problem


@pytest.mark.parametrize("count", [40, 1])
async def test_a_catalogue_that_is_too_large_is_cut_and_says_so(endpoint: FakeEndpoint, count: int) -> None:
    huge = [{**tool(f"t{n}"), "description": "x" * (6 * _MEGABYTE // count)} for n in range(count)]
    endpoint.speak_modern()
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [tool("first"), *huge]})
    async with running_toolbox(remote("s", endpoint.url), review=ReviewPolicy.OFF) as box:
        offered = (await box.offer()).tools
        assert offered[0].original_name == "first"
        assert len(offered) < count + 1
        assert sum(len(each.description) for each in offered) < 4 * _MEGABYTE
        found = [check async for check in box.diagnose(box.servers()[0].config.id)]
    assert any("comes after" in check.detail for check in found)


async def test_resources_and_prompts_are_bounded_like_tools() -> None:
    async with FakeEndpoint(capabilities={"tools": {}, "resources": {}, "prompts": {}}) as endpoint:
        endpoint.speak_modern("t")
        many = [{"uri": f"note://{n}", "name": "n", "description": "x" * _MEGABYTE} for n in range(6)]
        endpoint.on["resources/list"] = lambda m: result(m, {"resources": many})
        endpoint.on["resources/templates/list"] = lambda m: result(m, {"resourceTemplates": []})
        prompts = [{"name": f"p{n}", "description": "x" * _MEGABYTE} for n in range(6)]
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": prompts})
        kept: list[ServerCapabilities] = []

        async def keep(_server: str, capabilities: ServerCapabilities) -> None:
            kept.append(capabilities)

        async with running_toolbox(remote("s", endpoint.url), on_synced=keep):
            await until(lambda: bool(kept))
    assert 0 < len(kept[0].resources) < 6
    assert 0 < len(kept[0].prompts) < 6


async def test_an_item_with_the_servers_own_secret_is_left_out_and_the_rest_stays() -> None:
    secret = "zq7-hidden-Zk29vT4x"
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "enum": ["eu", secret], "default": secret, "description": f"not {secret}"},
            f"x-{secret}": {"type": "string"},
        },
    }
    async with FakeEndpoint(capabilities={"tools": {}, "resources": {}, "prompts": {}}) as endpoint:
        endpoint.speak_modern()
        tools = [tool(f"tell-{secret}"), {**tool("hear"), "inputSchema": schema}, tool("tell")]
        endpoint.on["tools/list"] = lambda m: result(m, {"tools": tools})
        uris = [{"uri": f"note://{secret}", "name": "n"}, {"uri": "note://1", "name": "one"}]
        endpoint.on["resources/list"] = lambda m: result(m, {"resources": uris})
        patterns = [{"uriTemplate": "note://{" + secret + "}", "name": "n"}]
        endpoint.on["resources/templates/list"] = lambda m: result(m, {"resourceTemplates": patterns})
        prompts = [{"name": secret}, {"name": "p", "arguments": [{"name": secret}]}, {"name": "q"}]
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": prompts})
        kept: list[ServerCapabilities] = []

        async def keep(_server: str, capabilities: ServerCapabilities) -> None:
            kept.append(capabilities)

        async with running_toolbox(remote("s", endpoint.url, {"X-Key": secret}), on_synced=keep) as box:
            await until(lambda: bool(kept))
            found = [check async for check in box.diagnose(box.servers()[0].config.id)]
    assert secret not in repr(kept)
    assert [each.original_name for each in kept[0].tools] == ["tell"]
    assert [resource.uri for resource in kept[0].resources] == ["note://1"]
    assert [prompt.name for prompt in kept[0].prompts] == ["q"]
    assert any("hear: one with a secret of the server in it" in check.detail for check in found)


def test_an_address_of_an_admin_redacts_no_ordinary_word() -> None:
    theirs = ServerConfig("s", HttpTransport("https://evil.example/mcp?approve"), id="u1")
    assert Redaction(secrets_of(DesiredServer(theirs)))("Type approve to go on") == "Type approve to go on"


def test_a_key_in_an_address_of_the_operators_is_hidden_by_itself_too() -> None:
    config = ServerConfig("s", HttpTransport("https://example.org/mcp?api_key=top%2Fsecret&region=europe"))
    redact = Redaction(secrets_of(DesiredServer(config)))
    assert redact("key top/secret of top%2Fsecret is too old") == "key *** of *** is too old"
    assert redact("servers in europe") == "servers in europe"


def test_a_secret_across_the_end_of_a_cut_line_of_the_library_does_not_show_its_beginning() -> None:
    redact = KnownSecrets(["top-secret-value"])
    lines: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    toolbox.contain_library_logs(redact)
    ours = logging.getLogger("bot.mcp.toolbox.mcp")
    listening = Listening()
    ours.addHandler(listening)
    ours.setLevel(logging.DEBUG)
    root = logging.getLogger()
    root.addHandler(listening)
    try:
        redact_logs(redact)
        logging.getLogger("mcp.client").warning("%s", "x" * 492 + "top-secret-value")
    finally:
        root.removeHandler(listening)
        ours.removeHandler(listening)
        ours.setLevel(logging.NOTSET)
    assert lines
    assert all("top-sec" not in line for line in lines)


async def test_no_proxy_of_the_environment_is_asked_for_an_admins_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as proxy, FakeEndpoint() as endpoint:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        endpoint.on["GET"] = Answer(200, {})
        network = GuardedTransport(AllowedTargets(frozenset({"127.0.0.1"})), resolve_host)
        async with http_client({"X-Key": "k"}, 5.0, network) as client:
            assert (await client.get(endpoint.url)).status_code == 200
        assert proxy.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{}/mcp",
        "http://[::ffff:127.0.0.1]:{}/mcp",
        "http://[::ffff:7f00:1]:{}/mcp",
        "http://2130706433:{}/mcp",
        "http://0x7f.1:{}/mcp",
        "http://127。0。0。1:{}/mcp",
        "http://①②⑦.0.0.1:{}/mcp",
        "http://localhost:{}/mcp",
        "http://localhost.:{}/mcp",
        "http://0.0.0.0:{}/mcp",
        "http://[::]:{}/mcp",
        "http://[::1%25lo]:{}/mcp",
        "http://[64:ff9b::7f00:1]:{}/mcp",
        "http://[2002:7f00:1::]:{}/mcp",
    ],
)
async def test_no_spelling_of_this_machine_is_reached(endpoint: FakeEndpoint, url: str) -> None:
    endpoint.on["GET"] = Answer(200, {})
    async with http_client({}, 5.0, GuardedTransport(AllowedTargets(), resolve_host)) as client:
        try:
            response = await client.get(url.format(endpoint.port))
        except (httpx2.InvalidURL, ValueError):
            return
    assert response.status_code == 503
    assert "private network" in json.loads(response.text)["error"]["message"]
    assert endpoint.seen == []


async def test_of_the_addresses_of_a_name_the_first_that_answers_is_taken(endpoint: FakeEndpoint) -> None:
    async def two(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    endpoint.on["GET"] = Answer(200, {})
    allowed = AllowedTargets(frozenset({f"two.example:{endpoint.port}"}))
    async with http_client({}, 5.0, GuardedTransport(allowed, two)) as client:
        assert (await client.get(f"http://two.example:{endpoint.port}/")).status_code == 200


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (OSError(-2, "Name or service not known"), "the name is not known: Name or service not known"),
        ([], "the name has no address"),
    ],
)
async def test_a_name_that_leads_nowhere_is_told_so(known: OSError | list[str], said: str) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        if isinstance(known, OSError):
            raise known
        return known

    async with http_client({}, 5.0, GuardedTransport(AllowedTargets(), resolve)) as client:
        answer = await client.get("http://nowhere.example/")
    assert said in answer.text


async def test_a_redirect_is_not_followed_and_takes_no_header_along() -> None:
    async with FakeEndpoint() as elsewhere, FakeEndpoint() as endpoint:
        moved = Answer(307, b"", {"location": elsewhere.url})
        endpoint.on = dict.fromkeys(("server/discover", "initialize"), moved)
        async with connected_toolbox(remote("s", endpoint.url, {"Authorization": "Bearer top-secret"})) as box:
            assert status_and_problem(box)[0] is ServerStatus.FAILED
        assert elsewhere.seen == []


async def test_a_tool_that_only_a_page_of_the_servers_own_may_use_is_offered_to_no_model() -> None:
    tools = [
        {"name": "for_pages", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["app"]}}},
        {"name": "for_both", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["model", "app"]}}},
        {"name": "odd", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": "app"}}},
        {"name": "plain", "inputSchema": {"type": "object"}},
    ]
    async with running_toolbox(raw(script={"listings": [[{"tools": tools}]]})) as box:
        offered = await box.offer()
    assert [tool.original_name for tool in offered.tools] == ["for_both", "odd", "plain"]
