"""Verbs, replies and forms as pages of the console, over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.admin.command import CommandContext, verb
from bot.admin.grants import Grants
from bot.domain.api_clients import ApiRole
from bot.domain.commands import Reply, RequiredRole
from bot.errors import DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.web.api_server import Api, opened_api
from tests.web.browser import Browser
from tests.web.local_server import ON_THIS_MACHINE
from tests.web.test_console_sign_in import sign_in

MARKUP = "<b onload=alert(1)>x</b> \u202e & \"'"


@pytest.fixture
async def browser(api: Api) -> Browser:
    return await sign_in(api)


async def test_the_list_of_servers_leads_to_each_with_its_tabs_and_actions(browser: Browser) -> None:
    await browser.open("/console/run/mcp?w=list")
    assert "MCP servers · 1" in browser.text
    await browser.open(browser.link("● fake"))
    for shown in ("MCP server fake", "Tools", "Policy list", "Actions", "Verify", "Disconnect"):
        assert shown in browser.text


async def test_a_server_is_added_by_its_form_verified_and_removed_with_its_name(
    browser: Browser, jira: FakeEndpoint
) -> None:
    await browser.open("/console/run/mcp?w=list")
    await browser.send("Add server")
    await browser.send("Save", f_title="jira", f_where=jira.url)
    assert "jira" in browser.text
    await browser.open("/console/run/mcp?w=show&w=jira")
    await browser.send("Verify")
    assert "is verified" in browser.text
    await browser.open("/console/run/mcp?w=show&w=jira")
    await browser.send("Type jira to confirm", a_typed="jira")
    await browser.open("/console/run/mcp?w=list")
    assert "jira" not in browser.text


async def test_the_policy_of_a_tool_is_chosen_on_its_page(browser: Browser, api: Api) -> None:
    await browser.open("/console/run/mcp?w=tools&w=fake")
    await browser.open(browser.link("fake__look"))
    await browser.send("Change the policy")
    assert [value for name, value in browser.form("Run").fields if name in ("a.server", "a.tool")] == [
        "fake",
        "look",
    ]
    await browser.send("Run", a_policy="deny")
    [rule] = await api.runtime.services.stores.policies.rules()
    assert (rule.tool, rule.policy.value) == ("look", "ALWAYS_DENY")


async def test_a_mistake_in_a_form_is_named_and_what_was_typed_stays(browser: Browser) -> None:
    await browser.open("/console/run/mcp?w=log")
    await browser.send("Search", a_since="when pigs fly")
    assert "`--since`" not in browser.text
    assert "--since is a point in time" in browser.text
    assert dict(browser.form("Search").fields)["a.since"] == "when pigs fly"


async def test_a_verb_that_is_added_tomorrow_appears_without_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tomorrow(Grants):
        @verb("juggle", "throw three balls", who=RequiredRole.EVERYONE, reads=True)
        async def _juggle(self, request: CommandContext) -> Reply:
            return Reply("Three balls are in the air.")

    monkeypatch.setattr("bot.admin.mcp.Grants", Tomorrow)
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        browser = await sign_in(api)
        await browser.open("/console/commands")
        assert "throw three balls" in browser.text
        await browser.open(browser.link("juggle"))
        assert "Three balls are in the air." in browser.text


async def test_a_member_sees_and_runs_no_verb_of_admins(api: Api) -> None:
    browser = await sign_in(api, await api.token("ci", ApiRole.MEMBER))
    await browser.open("/console/commands")
    assert "audit" not in browser.text
    assert "w=audit" not in browser.page.text
    await browser.open("/console/run/mcp?w=audit")
    assert "Only" in browser.text
    assert "can do this" in browser.text


async def test_markup_and_hidden_characters_in_names_are_text(browser: Browser) -> None:
    for path in ("/console/run/mcp", "/console/run/" + "x" * 3000, "/console/run/mcp"):
        page = await browser.open(path, params={"w": ["show", MARKUP * 100]})
        assert "<b onload" not in page.text
        assert "\u202e" not in browser.text


async def test_pages_follow_the_language_of_the_browser(browser: Browser) -> None:
    page = await browser.open("/console/run/mcp?w=list", headers={"Accept-Language": "ja"})
    assert '<html lang="ja">' in page.text
    assert page.headers["content-language"] == "ja"


async def test_the_audit_is_searched_by_its_form_and_downloaded(browser: Browser) -> None:
    await browser.open("/console/run/mcp?w=audit")
    await browser.send("Search", a_kind="sessions")
    assert "began session" in browser.text
    await browser.send("'--download'")
    file = await browser.request("GET", browser.link("Download audit.csv"))
    assert file.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    assert "began session" in file.text


async def test_a_secret_is_typed_into_the_page_and_not_shown_again(
    browser: Browser, jira: FakeEndpoint, api: Api
) -> None:
    await browser.open("/console/run/mcp?w=add")
    await browser.send("Run", a_name="jira", a_url=jira.url, a_auth="api_key")
    assert 'type="password"' in browser.page.text
    await browser.send("'form'", f_hidden="s3cret-of-the-board")
    assert "s3cret-of-the-board" not in browser.page.text
    servers = api.runtime.services.stores.servers
    [record] = await servers.records()
    assert dict(await servers.read_secrets(record)) == {"auth": "s3cret-of-the-board"}


async def test_an_unknown_command_is_a_page(browser: Browser) -> None:
    for path in ("/console/run/nothing", "/console/run/mcp?w=nothing", "/console/nowhere"):
        assert (await browser.open(path)).status_code == 404


async def test_a_call_by_hand_leads_to_its_conversation(browser: Browser) -> None:
    await browser.open("/console/run/mcp?w=run&w=fake&w=look")
    await browser.send("Run")
    await browser.open(browser.link("Follow it"))
    assert browser.page.url.path.startswith("/console/conversations/api:default:admin:")
    assert "look" in browser.text


async def test_while_the_database_is_away_a_page_says_so_and_nothing_is_lost(browser: Browser, api: Api) -> None:
    await browser.open("/console/run/mcp?w=policy&w=set&w=fake")
    form = browser.form("Run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.storage.database.Database.run", _away)
        for page in (
            await browser.open("/console/servers"),
            await browser.post(form.action, [*form.fields, ("a.policy", "deny")]),
        ):
            assert page.status_code == 503
            assert "cannot reach its own database" in page.text
    assert (await browser.post(form.action, [*form.fields, ("a.policy", "deny")])).status_code == 200
    assert len(await api.runtime.services.stores.policies.rules()) == 1


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (DatabaseUnwritable("d", reason="its disk is full"), 503, "accepts no changes. Nothing was saved."),
        (DatabaseError("The database postgresql://db.internal failed."), 500, "has rejected this. Nothing was saved."),
    ],
)
async def test_a_database_that_refuses_is_told_from_one_that_is_away(
    browser: Browser, error: DatabaseError, status: int, said: str
) -> None:
    async def refuse(*_arguments: Any, **_more: Any) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.storage.database.Database.run", refuse)
        page = await browser.open("/console/servers")
    assert page.status_code == status
    assert said in browser.text
    assert "Tell the operator" in browser.text
    assert "db.internal" not in page.text


async def _away(*_arguments: Any, **_more: Any) -> None:
    raise DatabaseUnavailable("The database does not answer.", "wait")
