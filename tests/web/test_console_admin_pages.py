"""Audit, usage, tokens and policies in the console, over a real socket."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.installations import Installation
from tests.fakes.parts import ANA, ScriptedModel, ask_for, call, say
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.browser import Browser
from tests.web.local_server import ON_THIS_MACHINE
from tests.web.test_console_sign_in import sign_in

ADMIN_PAGES = ("/audit", "/policies", "/profiles", "/tokens", "/installations", "/health")


async def post(api: Api, text: str) -> None:
    await api.post("/api/responses/stream", json={"payload": {"input": text, "stream": False}})


@pytest.fixture
async def browser(api: Api) -> Browser:
    return await sign_in(api)


async def test_pages_of_admins_are_403_for_a_member(api: Api) -> None:
    admin, member = await sign_in(api), await sign_in(api, await api.token("ci", ApiRole.MEMBER))
    for path in ADMIN_PAGES:
        page = await admin.open(f"/console{path}")
        assert page.status_code == 200
        assert f"<h1>{path[1:].capitalize()}</h1>" in page.text
        if path != "/profiles":
            assert (await member.open(f"/console{path}")).status_code == 403


async def test_a_token_is_made_by_the_operator_shown_once_and_revoked_with_its_name(browser: Browser, api: Api) -> None:
    await browser.open("/console/tokens")
    assert "There are no tokens." in browser.text
    await browser.send("/console token create", a_name="nightly", a_role="admin", a_expires="90d")
    assert "It is shown this once" in browser.text
    token = browser.text.partition("cs_")[2].split()[0]
    other = await sign_in(api, f"cs_{token}")
    await other.open("/console/tokens")
    assert "nightly" in other.text
    assert token not in other.page.text
    await other.send("/console token create", a_name="next", a_role="admin")
    assert "Only the operator makes tokens" in other.text
    await browser.open("/console/tokens")
    await browser.send("Revoke nightly", a_typed="nightly")
    assert "is good for nothing any more" in browser.text
    assert (await other.open("/console/tokens")).url.path == "/console/sign-in"


async def test_the_app_is_taken_from_a_workspace_by_its_admins_and_the_operator(browser: Browser, api: Api) -> None:
    await browser.open("/console/installations")
    assert "/slack/install" in browser.text
    store = api.runtime.services.stores.installations
    for workspace in ("T0ACME", "T0GLOBEX"):
        await store.save(
            Installation("slack", workspace, workspace.title(), token="xoxb-1", installed_by="slack:U1"), ANA
        )
    globex = await sign_in(api, await api.token("globex", ApiRole.ADMIN, "slack:T0GLOBEX"))
    await globex.open("/console/installations")
    assert "T0GLOBEX" in globex.text
    assert "T0ACME" not in globex.text
    await globex.send("Uninstall T0GLOBEX", a_typed="T0GLOBEX")
    assert "The tokens of T0GLOBEX are deleted" in globex.text
    await globex.open("/console/run/console?w=uninstall")
    await globex.send("'uninstall'", a_workspace="T0ACME", a_confirm="T0ACME")
    assert "No workspace of this id has the app." in globex.text
    acme = await store.find("slack", "T0ACME")
    assert acme is not None
    assert acme.token
    await browser.open("/console/installations")
    assert "served" in browser.text
    assert "removed" in browser.text


async def test_the_audit_is_searched_by_tool_and_outcome_and_tells_the_story_of_a_call(
    folder: Path, model: ScriptedModel
) -> None:
    (folder / "policy.toml").write_text('[servers.fake.tools]\nlook = "ALWAYS_ALLOW"\n', encoding="utf-8")
    model.script = [ask_for(call("fake__look", "c1")), say("Done.")]
    async with opened_api(folder, model=scripted_choice(model), mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await post(api, "look")
        await check_audit(await sign_in(api))


async def check_audit(browser: Browser) -> None:
    await browser.open("/console/audit")
    await browser.send("Search", a_tool="look", a_outcome="done")
    assert "Audit · 1" in browser.text
    await browser.open(re.findall(r'href="([^"]*--call[^"]*)"', browser.page.text)[0].replace("&amp;", "&"))
    assert "fake" in browser.text
    assert "Audit · 1" in browser.text
    await browser.open("/console/audit")
    await browser.send("Search", a_tool="nothing-of-the-kind")
    assert "Nothing of that kind is in the audit." in browser.text
    assert browser.page.url.path == "/console/audit"
    await browser.open("/console/audit")
    await browser.send("Search", a_until="2001-01-01")
    assert "Nothing of that kind is in the audit." in browser.text
    await browser.open("/console/audit")
    await browser.send("'--verify'")
    assert "Each of the latest rows follows the one before" in browser.text
    assert "checkpoint" in browser.text


async def test_usage_is_by_day_with_bars_and_tables(browser: Browser, api: Api) -> None:
    await post(api, "hello")
    page = await browser.open("/console/usage")
    for shown in ("Your days", "Models", "1 question"):
        assert shown in browser.text
    assert '<svg class="bars"' in page.text
    assert "style=" not in page.text.partition("<main")[2]
