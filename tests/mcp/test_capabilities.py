"""Resources, prompts and instructions of a server: listing, caching and reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.domain.servers import (
    BlobContents,
    CachedCapabilities,
    DesiredServer,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    ServerEnablement,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
    TextContents,
)
from bot.errors import ServerTrouble
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, Reaction, Silence, error, result, tool
from tests.mcp.toolboxes import call, raw, remote, running_toolbox, text, tool_by_name, tools_of, until

ALL: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
NOTE = {"uri": "note://1", "name": "one", "mimeType": "text/plain", "size": 3}
GREET = {"name": "greet", "description": "Say\u200b hello", "arguments": [{"name": "who", "required": True}]}


@dataclass
class Kept:
    """Recorder of synced capabilities and of failed syncs."""

    synced: list[tuple[str, ServerCapabilities]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    async def on_synced(self, server_id: str, capabilities: ServerCapabilities) -> None:
        self.synced.append((server_id, capabilities))

    async def on_sync_failed(self, server_id: str, problem: str) -> None:
        self.failed.append((server_id, problem))

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"on_synced": self.on_synced, "on_sync_failed": self.on_sync_failed}


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(capabilities=ALL) as endpoint:
        endpoint.speak_modern("t")
        endpoint.on["resources/list"] = lambda m: result(m, {"resources": [NOTE]})
        endpoint.on["resources/templates/list"] = lambda m: result(
            m, {"resourceTemplates": [{"uriTemplate": "note://{id}", "name": "note"}]}
        )
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": [GREET]})
        yield endpoint


def state(box: McpToolbox) -> ServerSnapshot:
    [only] = box.servers()
    return only


async def wait_for_sync(box: McpToolbox) -> ServerCapabilities:
    await until(lambda: state(box).sync is SyncStatus.SYNCED)
    return box.capabilities("file:s")


# listing


async def test_all_offers_of_a_server_are_listed(endpoint: FakeEndpoint) -> None:
    kept = Kept()
    async with running_toolbox(remote("s", endpoint.url), **kept.callbacks) as box:
        known = await wait_for_sync(box)
        await until(lambda: kept.synced)
    assert [each.original_name for each in known.tools] == ["t"]
    assert known.resources == (Resource("note://1", "one", mime_type="text/plain", size=3),)
    assert known.templates == (ResourceTemplate("note://{id}", "note"),)
    assert known.prompts == (Prompt("greet", "", "Say hello", (PromptArgument("who", required=True),)),)
    assert known.protocol == "2026-07-28"
    assert kept.synced == [("file:s", known)]
    assert kept.failed == []


async def test_both_ages_of_the_protocol_are_listed() -> None:
    async with FakeEndpoint(capabilities=ALL) as endpoint:
        endpoint.speak_legacy("t")
        endpoint.on["resources/list"] = lambda m: result(m, {"resources": [NOTE]})
        endpoint.on["resources/templates/list"] = lambda m: error(m, -32601, "Method not found")
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": [GREET]})
        async with running_toolbox(remote("s", endpoint.url)) as box:
            known = await wait_for_sync(box)
    assert (len(known.resources), known.templates, len(known.prompts)) == (1, (), 1)
    assert (known.protocol, known.server_version) == ("2025-11-25", "1")


async def test_only_declared_capabilities_are_requested(endpoint: FakeEndpoint) -> None:
    endpoint.capabilities = {"tools": {}}
    endpoint.speak_modern("t")
    async with running_toolbox(remote("s", endpoint.url)) as box:
        known = await wait_for_sync(box)
    assert (known.resources, known.prompts) == ((), ())
    assert {method for method in endpoint.methods() if method.endswith("/list")} == {"tools/list"}


async def test_all_pages_are_read_and_a_malformed_item_hides_no_other(endpoint: FakeEndpoint) -> None:
    def page(message: Message) -> Reaction:
        cursor = message["params"].get("cursor")
        listed = [{"uri": f"note://{cursor}", "name": 5, "size": "big", "icons": "?"}, {"name": "no uri"}, 7]
        return result(
            message, {"resources": listed} | ({} if cursor == "2" else {"nextCursor": "2" if cursor else "1"})
        )

    endpoint.on["resources/list"] = page
    endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": [{"name": "p", "arguments": [{"name": 5}, "x"]}]})
    async with running_toolbox(remote("s", endpoint.url)) as box:
        known = await wait_for_sync(box)
    assert [resource.uri for resource in known.resources] == ["note://None", "note://1", "note://2"]
    assert known.resources[0] == Resource("note://None", "note://None")
    assert known.prompts == (Prompt("p"),)


async def test_tools_are_there_before_slow_resources_are(endpoint: FakeEndpoint) -> None:
    go_on = asyncio.Event()
    asked = endpoint.hold("resources/list", go_on)
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await asked.wait()
        assert [each.name for each in (await box.offer()).tools] == ["s__t"]
        assert state(box).sync is SyncStatus.SYNCING
        go_on.set()
        assert len((await wait_for_sync(box)).resources) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(500),
        Silence(),
        lambda m: error(m, -32603, "no disk"),
        lambda m: result(m, {"resources": [], "ttlMs": "?"}),
    ],
)
async def test_resources_that_cannot_be_listed_cost_no_tool(endpoint: FakeEndpoint, trouble: Any) -> None:
    kept = Kept()
    endpoint.on["resources/list"] = trouble
    before = CachedCapabilities(SyncStatus.SYNCED, ServerCapabilities(resources=(Resource("note://0", "old"),)), at=1.0)
    entry = DesiredServer(remote("s", endpoint.url, connect_timeout=0.5, list_timeout=0.5), synced=before)
    async with running_toolbox(entry, **kept.callbacks) as box:
        await until(lambda: kept.failed)
        assert [each.name for each in (await box.offer()).tools] == ["s__t"]
        assert state(box).status is ServerStatus.CONNECTED
        assert state(box).sync is SyncStatus.SYNC_FAILED
        assert box.capabilities("file:s").resources == before.capabilities.resources
    assert kept.synced == []
    [(server, problem)] = kept.failed
    assert server == "file:s"
    assert "Fix:" in problem


# asking again


async def test_a_sync_asks_for_everything_anew(endpoint: FakeEndpoint) -> None:
    kept = Kept()
    async with running_toolbox(remote("s", endpoint.url), **kept.callbacks) as box:
        before = await wait_for_sync(box)
        endpoint.on["tools/list"] = lambda m: result(m, {"tools": [tool("t"), tool("new")]})
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": []})
        known = await box.sync("file:s")
        assert [each.original_name for each in known.tools] == ["t", "new"]
        assert (known.resources, known.prompts) == (before.resources, ())
        offer = await box.offer()
        assert [each.name for each in offer.tools] == ["s__t"]
        assert offer.withheld == {"s__new"}
        assert box.capabilities("file:s") == known
        await until(lambda: kept.synced and kept.synced[-1] == ("file:s", known))


async def test_a_failed_sync_has_its_reason_and_keeps_the_known_offers(endpoint: FakeEndpoint) -> None:
    kept = Kept()
    async with running_toolbox(remote("s", endpoint.url), **kept.callbacks) as box:
        before = await wait_for_sync(box)
        since = state(box).connected_at
        endpoint.on["prompts/list"] = lambda m: error(m, -32603, "the disk is full")
        with pytest.raises(ServerTrouble, match="the disk is full") as refused:
            await box.sync("file:s")
        assert refused.value.fix
        assert box.capabilities("file:s") == before
        assert (state(box).sync, state(box).connected_at) == (SyncStatus.SYNC_FAILED, since)
        await until(lambda: kept.failed)


async def test_a_server_that_is_silent_about_resources_does_not_hold_up_the_end(endpoint: FakeEndpoint) -> None:
    endpoint.on["resources/list"] = Silence()
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await until(lambda: "resources/list" in endpoint.methods())
        async with asyncio.timeout(10):
            await box.close()


async def test_a_cancelled_sync_leaves_a_working_connection(endpoint: FakeEndpoint) -> None:
    async with running_toolbox(remote("s", endpoint.url)) as box:
        await wait_for_sync(box)
        go_on = asyncio.Event()
        asked = endpoint.hold("tools/list", go_on)
        asking = asyncio.create_task(box.sync("file:s"))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go_on.set()
        await until(lambda: endpoint.methods().count("tools/list") == 3)
        assert len((await wait_for_sync(box)).tools) == 1


async def test_a_sync_of_a_server_that_is_not_there_says_why() -> None:
    async with running_toolbox(raw(script={"probe": "exit", "era": "modern"})) as box:
        with pytest.raises(ServerTrouble, match="ended while it was starting"):
            await box.sync("file:s")


async def test_one_servers_trouble_does_not_keep_the_others_from_a_sync(endpoint: FakeEndpoint) -> None:
    kept = Kept()
    async with FakeEndpoint() as sick:
        sick.speak_modern("t")
        configs = remote("sick", sick.url), remote("well", endpoint.url), remote("away", "http://127.0.0.1:9/mcp")
        async with running_toolbox(*configs, **kept.callbacks) as box:
            await until(lambda: {name for name, _ in kept.synced} == {"file:sick", "file:well"})
            sick.on["tools/list"] = lambda m: error(m, -32603, "no")
            kept.synced.clear()
            await box.sync_all()
            await until(lambda: kept.synced and kept.failed)
    assert [name for name, _ in kept.synced] == ["file:well"]
    assert {name for name, _ in kept.failed} == {"file:sick"}


async def test_a_change_of_resources_that_is_told_is_fetched() -> None:
    script = {
        "era": "legacy",
        "listings": [[{"tools": [tool("change")]}], [{"tools": [tool("change"), tool("new")]}]],
        "calls": {"change": {"do": "change", "notification": "notifications/resources/list_changed"}},
    }
    async with running_toolbox(raw(script=script)) as box:
        await wait_for_sync(box)
        await call(tool_by_name(box, "change"), box)
        await until(lambda: len(tools_of(box)) == 2)


async def test_a_failing_store_of_capabilities_does_no_harm(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(server_id: str, known: ServerCapabilities) -> None:
        raise RuntimeError("the database holds the secret abc123")

    async with running_toolbox(remote("s", endpoint.url), on_synced=failing) as box:
        await wait_for_sync(box)
        await until(lambda: "were not stored" in caplog.text)
        assert state(box).status is ServerStatus.CONNECTED
        assert len((await box.sync("file:s")).tools) == 1
    assert "abc123" not in caplog.text


async def test_a_slow_keeper_is_waited_for_at_the_end(endpoint: FakeEndpoint) -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()
    kept: list[str] = []

    async def slowly(server_id: str, known: ServerCapabilities) -> None:
        begun.set()
        await go_on.wait()
        kept.append(server_id)

    async with running_toolbox(remote("s", endpoint.url), on_synced=slowly):
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert kept == ["file:s"]


async def test_nothing_is_told_of_a_server_that_is_gone(endpoint: FakeEndpoint) -> None:
    kept, listing, answering = Kept(), asyncio.Event(), asyncio.Event()
    asked, called = endpoint.hold("resources/list", listing), endpoint.hold("tools/call", answering)
    endpoint.on["tools/call"] = lambda m: result(m, {"content": []})
    async with running_toolbox(remote("s", endpoint.url), **kept.callbacks) as box:
        await asked.wait()
        calling = asyncio.create_task(call(tool_by_name(box, "t"), box))
        await called.wait()
        await box.reconcile([])
        listing.set()
        await until(lambda: "prompts/list" in endpoint.methods())
        answering.set()
        assert text(await calling) == ""
    assert (kept.synced, kept.failed) == ([], [])


# reading


async def test_a_resource_is_read_as_text_and_binary_content_as_its_size(endpoint: FakeEndpoint) -> None:
    contents = [
        {"uri": "note://1", "text": "a\u200bb my-secret \x1b[31mred", "mimeType": "text/plain"},
        {"uri": "note://1/pic", "blob": "AAAA", "mimeType": "image/png"},
    ]
    endpoint.on["resources/read"] = lambda m: result(m, {"contents": contents})
    entry = DesiredServer(remote("s", endpoint.url), secrets=frozenset(("my-secret",)))
    async with running_toolbox(entry) as box:
        pieces = await box.read_resource("file:s", "note://1")
    assert list(pieces) == [
        TextContents("note://1", "ab *** red", "text/plain"),
        BlobContents("note://1/pic", "image/png", 3),
    ]


async def test_a_prompt_is_written_out_with_its_roles(endpoint: FakeEndpoint) -> None:
    messages = [
        {"role": "user", "content": {"type": "text", "text": "Hello my-secret"}},
        {"role": "assistant", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}},
        {"role": "user", "content": {"type": "resource", "resource": {"uri": "note://1", "text": "one"}}},
        {"role": "user", "content": {"type": "resource_link", "uri": "note://2", "name": "two"}},
    ]
    endpoint.on["prompts/get"] = lambda m: result(m, {"messages": messages})
    entry = DesiredServer(remote("s", endpoint.url), secrets=frozenset(("my-secret",)))
    async with running_toolbox(entry) as box:
        pieces = await box.get_prompt("file:s", "greet", {"who": "Ana"})
    assert list(pieces) == [
        TextContents("user", "Hello ***"),
        BlobContents("assistant", "image/png", 3),
        TextContents("note://1", "one"),
        TextContents("user", "[Link: two note://2]"),
    ]
    [asked] = [message for _, message in endpoint.seen if message["method"] == "prompts/get"]
    assert (asked["params"]["name"], asked["params"]["arguments"]) == ("greet", {"who": "Ana"})


async def test_a_text_that_is_too_long_is_cut(endpoint: FakeEndpoint) -> None:
    endpoint.on["resources/read"] = lambda m: result(m, {"contents": [{"uri": "note://1", "text": "x" * 200_000}]})
    async with running_toolbox(remote("s", endpoint.url)) as box:
        [piece] = await box.read_resource("file:s", "note://1")
    assert isinstance(piece, TextContents)
    assert len(piece.text) <= 50_000
    assert "left out" in piece.text


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda m: error(m, -32602, "no such note: my-secret"), "no such note: ***"),
        (Silence(), "within 0.3 s"),
        (Answer(500), "Server returned an error response"),
        (lambda m: result(m, {"contents": 5}), "not in the form"),
    ],
)
async def test_an_unreadable_resource_has_its_reason(endpoint: FakeEndpoint, trouble: Any, said: str) -> None:
    endpoint.on["resources/read"] = endpoint.on["prompts/get"] = trouble
    limit = 0.3 if isinstance(trouble, Silence) else 15.0
    entry = DesiredServer(remote("s", endpoint.url, tool_timeout=limit), secrets=frozenset(("my-secret",)))
    async with running_toolbox(entry) as box:
        for asking in (box.read_resource("file:s", "note://9"), box.get_prompt("file:s", "p", {})):
            with pytest.raises(ServerTrouble) as refused:
                await asking
            assert said in refused.value.cause
            assert refused.value.fix
        assert state(box).status is ServerStatus.CONNECTED


async def test_left_out_tools_are_known_after_a_restart_without_a_connection() -> None:
    script = {"listings": [[{"tools": [{"inputSchema": {}}, {"name": "t"}]}]]}
    async with running_toolbox(raw("s", script=script)) as box:
        known = await wait_for_sync(box)
    assert known.left_out == ("1 without a name",)
    stored = DesiredServer(
        raw("s", script=script),
        synced=CachedCapabilities(SyncStatus.SYNCED, known, 1.0),
        enablement=ServerEnablement.DISABLED,
    )
    async with running_toolbox(stored) as box:
        assert box.servers()[0].left_out == known.left_out
