"""Servers in the console: one page with all about a server, and the choices in it, over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.audit import AuditQuery
from bot.domain.profiles import Profile
from bot.web.console import events
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.fakes.parts import ANA
from tests.web.api_server import Api, opened_api
from tests.web.browser import Browser
from tests.web.local_server import ON_THIS_MACHINE
from tests.web.test_console_sign_in import sign_in

SECRET = "s3cret-of-the-board"


@pytest.fixture
async def browser(api: Api) -> Browser:
    return await sign_in(api)


async def add_jira(browser: Browser, jira: FakeEndpoint, **values: str) -> None:
    await browser.open("/console/servers")
    await browser.send("Add server")
    await browser.send("Save", f_title="jira", f_where=jira.url, **values)


async def test_a_page_shows_all_about_a_server(browser: Browser, jira: FakeEndpoint) -> None:
    await add_jira(browser, jira)
    page = await browser.open("/console/servers/jira")
    assert "<h1>jira</h1>" in page.text
    for shown in ("Verify", "Sync", "Connect", "Disconnect", "Edit", "Tools · 2", "No tool waits for a review", "Name"):
        assert shown in browser.text
    for button in ("Verify", "Remove"):
        assert page.text.count(f">{button}</button>") == 1


async def test_a_server_is_added_with_its_secret_on_one_page(browser: Browser, jira: FakeEndpoint, api: Api) -> None:
    await add_jira(browser, jira, f_auth="api_key")
    assert "Something is needed here." in browser.text
    await browser.send("Save", f_auth="api_key", f_hidden=SECRET, f_auth_header="X-Api-Key")
    assert "jira is added" in browser.text
    assert SECRET not in browser.page.text
    servers = api.runtime.services.stores.servers
    [record] = await servers.records()
    assert dict(await servers.read_secrets(record)) == {"auth": SECRET}
    assert record.authentication.header == "X-Api-Key"


async def test_a_secret_is_replaced_in_the_form_of_its_server_and_stays_without_another(
    browser: Browser, jira: FakeEndpoint, api: Api
) -> None:
    await add_jira(browser, jira, f_auth="api_key", f_hidden=SECRET)
    servers = api.runtime.services.stores.servers
    for typed, stored in (("", SECRET), ("another-of-the-board", "another-of-the-board")):
        await browser.open("/console/servers/jira")
        await browser.send("Edit")
        assert 'type="password"' in browser.page.text
        assert SECRET not in browser.page.text
        await browser.send("Description", f_description=f"Typed: {bool(typed)}", f_hidden=typed)
        assert "jira is changed" in browser.text
        assert not typed or typed not in browser.page.text
        [record] = await servers.records()
        assert dict(await servers.read_secrets(record)) == {"auth": stored}


async def test_the_list_of_servers_follows_their_states(
    browser: Browser, jira: FakeEndpoint, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.05)
    await add_jira(browser, jira)
    await browser.open("/console/servers")
    address = unescape(browser.page.text.partition('hx-sse:connect="')[2].partition('"')[0])
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
    async with asyncio.timeout(20), api.client.stream("GET", address, headers=headers) as stream:
        received = stream.aiter_lines()
        assert any(["connected" in line async for line in lines_until(received, "finished")])
        await api.post("/api/mcp/servers/jira/disconnect")
        assert any(["disconnected" in line async for line in lines_until(received, "finished")])


async def lines_until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if last in line:
            return


async def test_the_policy_of_a_tool_is_a_choice_with_what_wins_over_it(browser: Browser, api: Api) -> None:
    page = await browser.open("/console/servers/fake")
    assert 'aria-label="Policy of look"' in page.text
    assert "the default decides: ask." in browser.text
    await browser.send("Save", run="mcp policy set fake look deny")
    assert browser.page.url.path == "/console/servers/fake"
    assert '<option value="" selected>always deny</option>' in browser.page.text
    [rule] = await api.runtime.services.stores.policies.rules()
    assert (rule.tool, rule.policy.value) == ("look", "ALWAYS_DENY")
    await browser.send("Save", run="mcp policy clear fake look")
    assert await api.runtime.services.stores.policies.rules() == []


async def test_a_rule_of_the_file_that_wins_is_named(folder: Path) -> None:
    rule = '[[rules]]\nserver = "fake"\ntool = "look"\npolicy = "ALWAYS_DENY"\n'
    (folder / "policy.toml").write_text(rule, encoding="utf-8")
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        browser = await sign_in(api)
        await browser.open("/console/servers/fake")
        await browser.send("Save", run="mcp policy set fake look allow")
        assert "policy.toml:1 decides: always deny." in browser.text
        assert '<option value="" selected>always allow</option>' in browser.page.text


async def test_a_changed_tool_is_refused_on_the_page_of_its_server(browser: Browser, api: Api) -> None:
    api.endpoint.speak_modern("look", "write", "wipe")
    await browser.open("/console/servers/fake")
    await browser.send("Sync")
    await browser.open("/console/servers/fake")
    assert "wipe of fake waits for a review: it was not there" in browser.text
    await browser.send("Refuse")
    assert "Refused: 1 tool of fake ." in browser.text
    await browser.open("/console/servers/fake")
    assert "No tool of fake waits for a review." in browser.text
    assert "fake__wipe" in browser.text
    await browser.open("/console/reviews")
    assert "No tool waits for a review" in browser.text
    [entry] = (await api.runtime.services.stores.reporting.audit(AuditQuery(kinds=("refused tools",)), 9, 0))[0]
    assert entry.facts["server"] == "fake"


async def test_a_server_is_switched_for_each_profile_on_its_page(browser: Browser, api: Api) -> None:
    await browser.open("/console/servers/fake")
    assert "No profiles yet: everything is enabled everywhere." in browser.text
    for name in ("Support", "Night shift"):
        await api.runtime.services.stores.profiles.save(Profile(name, name), ANA)
    page = await browser.open("/console/servers/fake")
    assert 'aria-label="fake in Night shift"' in page.text
    await browser.send("Night shift", run="profile disable fake --profile 'Night shift'")
    assert browser.page.url.path == "/console/servers/fake"
    profiles = api.runtime.services.stores.profiles
    fake = "file:fake"
    assert {each.name: each.enables_server(fake) for each in await profiles.profiles()} == {
        "Support": True,
        "Night shift": False,
    }


async def test_a_member_reads_servers_and_changes_nothing(api: Api) -> None:
    browser = await sign_in(api, await api.token("ci", ApiRole.MEMBER))
    page = await browser.open("/console/servers/fake")
    assert "Tools · 2" in browser.text
    for absent in ("<select", ">Verify</button>", ">Remove</button>", "Waiting reviews"):
        assert absent not in page.text.partition("<main")[2]
    token = dict(browser.form("Sign out").fields)["form-token"]
    pairs = [("form-token", token), ("run", "mcp policy set fake look deny"), ("back", "/servers/fake")]
    assert (await browser.post("/console/choose", pairs)).status_code == 400
    assert await api.runtime.services.stores.policies.rules() == []


async def test_choices_lead_back_to_pages_of_the_console_alone(browser: Browser) -> None:
    await browser.open("/console/servers/fake")
    page = await browser.send("Save", run="mcp policy set fake look deny", back="//evil.example/")
    assert page.url.path == "/console/commands"


async def test_a_stale_form_names_who_changed_the_server_and_shows_both_values(
    browser: Browser, jira: FakeEndpoint, api: Api
) -> None:
    await add_jira(browser, jira)
    await browser.open("/console/servers/jira")
    await browser.send("'edit'")
    first = browser.page
    other = await sign_in(api, await api.token("boss", ApiRole.ADMIN))
    await other.open("/console/servers/jira")
    await other.send("'edit'")
    await other.send("Save", f_description="theirs")
    browser.page = first
    await browser.send("Save", f_description="mine")
    for shown in ("has been changed since you opened it", "by api:boss", "Description mine theirs"):
        assert shown in browser.text


async def test_the_arguments_of_a_tool_are_shown_with_its_schema(browser: Browser) -> None:
    await browser.open("/console/servers/fake")
    await browser.open(browser.link("fake__look"))
    for shown in ("Tool look of fake", "Explain the policy", "schema.json"):
        assert shown in browser.text


async def test_pasted_json_is_shown_before_it_is_saved(browser: Browser, jira: FakeEndpoint, api: Api) -> None:
    await browser.open("/console/servers")
    await browser.send("Paste JSON")
    board = {"url": jira.url, "headers": {"Authorization": SECRET}}
    pasted = json.dumps({"mcpServers": {"board": board, "x": {}}})
    await browser.send("Preview", f_hidden=pasted)
    assert "1 server of 2 can be added. Nothing was added yet." in browser.text
    assert SECRET not in browser.page.text
    assert await api.runtime.services.stores.servers.records() == []
    await browser.send("Add 1 server")
    assert "1 server is added." in browser.text
    [record] = await api.runtime.services.stores.servers.records()
    assert record.config.name == "board"
    await browser.open("/console/run/mcp?w=import")
    await browser.send("Digest", a_digest="0123456789ab")
    assert "Paste it again." in browser.text


async def test_programs_are_not_allowed_from_a_page(browser: Browser) -> None:
    await browser.open("/console/run/mcp?w=import")
    await browser.send("Run")
    await browser.send("Preview", f_hidden='{"mcpServers": {"x": {"command": "rm", "args": ["-rf"]}}}')
    assert "0 servers of 1 can be added." in browser.text
    await browser.open("/console/run/mcp?w=add")
    await browser.send("Run", a_name="x", a_file="/etc/passwd")
    assert "Only the operator may import a file" in browser.text
