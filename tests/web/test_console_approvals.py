"""Approvals in the console, over a real socket: the same cards, rules and races as in the chat."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from bot.domain.api_clients import ApiRole
from tests.fakes.mcp.endpoint import result
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.browser import Browser
from tests.web.test_approvals import (
    POLICY,
    WRITE,
    an_api,
    ask_for_approval,
    becomes_done,
    post_decision,
    received_arguments,
)
from tests.web.test_console_sign_in import sign_in

APPROVE = (("decision", "approve"), ("confirmed", "yes"))
"""Fields of an approval in its second step."""
MARKUP = "<img src=x onerror=alert(1)>\u202e & 'text'"


async def approver(api: Api, name: str = "ben") -> Browser:
    return await sign_in(api, await api.token(name, ApiRole.APPROVER))


def path_of(approval: dict[str, Any]) -> str:
    return f"/console/approvals/{approval['approvalRequestId']}"


async def approve(browser: Browser) -> None:
    """Approve the first call of the page, which may destroy data, in its two steps."""
    await browser.send("'revision'", decision="approve")
    await browser.send("'confirmed'")


async def test_a_waiting_call_is_shown_whole_and_approved(folder: Path) -> None:
    async with an_api(folder, {"text": "hello " * 400, "note": MARKUP}) as api:
        approval = await ask_for_approval(api)
        browser = await approver(api)
        page = await browser.open("/console")
        assert page.url.path == "/console/approvals"
        assert "<h1>Approvals</h1>" in page.text
        for shown in ("1 call waits for you", "hello " * 399, "write it", "asked by admin"):
            assert shown in browser.text
        assert "<img" not in page.text.partition("<main")[2]
        await approve(browser)
        assert browser.page.url.path == "/console/approvals"
        assert "Approved by ben" in browser.text
        assert "Nothing waits for you." in browser.text
        await becomes_done(api, approval)
        assert len(received_arguments(api)) == 1
        await browser.open(path_of(approval))
        assert "Approved by ben" in browser.text
        assert 'value="approve"' not in browser.page.text


async def test_many_waiting_calls_are_paged_oldest_first_and_counted_as_far_as_they_are_read(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.format(who="api-role:approver", more=""), encoding="utf-8")
    many = ask_for(*(call(WRITE, f"c{n}", text=f"letter {n}") for n in range(132)))
    async with opened_api(folder, model=scripted_choice(ScriptedModel([many]))) as api:
        await api.post("/api/responses/stream", json={"payload": {"input": "write it", "stream": False}})
        browser = await approver(api)
        await browser.open("/console/approvals")
        assert "At least 110 calls wait for you, oldest first." in browser.text
        assert "Page 1 of at least 11" in browser.text
        found = re.findall("letter [0-9]+", browser.text)
        while 'rel="next"' in browser.page.text:
            await browser.open(browser.link("More"))
            found += re.findall("letter [0-9]+", browser.text)
        assert "132 calls wait for you, oldest first." in browser.text
        assert "Page 14 of 14" in browser.text
        assert sorted(set(found)) == sorted(f"letter {n}" for n in range(132))


async def test_a_denial_has_a_reason_for_the_model_and_is_listed_among_what_one_has_decided(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        browser = await approver(api)
        await browser.open(path_of(approval))
        await browser.send("Reason", reason="too early", decision="deny")
        assert "Denied by ben: too early" in browser.text
        await browser.open("/console/approvals/decided")
        assert "Write" in browser.text
        assert "denied" in browser.text.lower()
        assert received_arguments(api) == []


async def test_of_two_who_decide_at_once_one_wins_and_the_other_is_told_who(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        browser, other = await approver(api), await api.token("eva", ApiRole.APPROVER)
        await browser.open(path_of(approval))
        assert (await post_decision(api, approval, other, approved=True))[0] == 200
        page = await browser.send("Reason", reason="no", decision="deny")
        assert page.status_code == 409
        assert "eva" in browser.text
        await becomes_done(api, approval)
        # The same form once more, as by the back button.
        fields = [("form-token", dict(browser.form("Sign out").fields)["form-token"]), ("revision", "1")]
        page = await browser.post(path_of(approval), [*fields, *APPROVE])
        assert page.status_code == 409
        assert len(received_arguments(api)) == 1


async def test_clicks_here_and_there_at_the_same_moment_count_once(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        browser, other = await approver(api), await api.token("eva", ApiRole.APPROVER)
        await browser.open(path_of(approval))
        page, (status, _body) = await asyncio.gather(
            browser.send("'revision'", decision="approve", confirmed="yes"),
            post_decision(api, approval, other, approved=True),
        )
        assert sorted((page.status_code, status)) == [200, 409]
        await becomes_done(api, approval)
        assert len(received_arguments(api)) == 1


async def test_an_edited_call_asks_again_and_an_older_form_has_no_effect(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        browser, late = await approver(api), await approver(api, "eva")
        await late.open(path_of(approval))
        await browser.open(path_of(approval) + "/edit")
        await browser.send("'form'", f_a0='"hi"')
        assert browser.page.url.path == path_of(approval)
        page = await late.send("'revision'", decision="approve", confirmed="yes")
        assert page.status_code == 409
        assert "out of date" in late.text


async def test_a_call_that_may_destroy_data_is_approved_in_a_second_step(folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rules]]\npolicy = "ASK_USER"\nserver = "fake"\n', encoding="utf-8")
    model = ScriptedModel([ask_for(call(WRITE, text="hello")), say("Done.")])
    async with opened_api(folder, model=scripted_choice(model)) as api:
        api.endpoint.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": "ok"}]})
        approval = await ask_for_approval(api, await api.token("ana", ApiRole.MEMBER))
        browser = await approver(api)
        await browser.open(path_of(approval))
        await browser.send("'revision'", decision="approve")
        assert "Nobody knows if write reads or writes" in browser.text
        assert " autofocus" in browser.page.text
        assert received_arguments(api) == []
        await browser.send("'confirmed'")
        assert "Approved by ben" in browser.text


async def test_a_call_of_others_is_neither_seen_nor_decided_without_the_right(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        browser = await sign_in(api, await api.token("mia", ApiRole.MEMBER))
        assert "Nothing waits for you." in browser.text
        for path in (path_of(approval), path_of(approval) + "/edit", "/console/approvals/nothing"):
            assert (await browser.open(path)).status_code == 404
        fields = [("form-token", dict(browser.form("Sign out").fields)["form-token"]), ("revision", "1")]
        assert (await browser.post(path_of(approval), [*fields, *APPROVE])).status_code == 404
        page = await browser.post("/console/approvals", [*fields, ("ref", f"{approval['approvalRequestId']}:1")])
        assert page.status_code == 409
        assert received_arguments(api) == []


async def test_an_approver_of_another_workspace_gets_the_same_answer_as_for_no_call(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}) as api:
        approval = await ask_for_approval(api)
        token = await api.token("eve", ApiRole.APPROVER, "slack:T2")
        browser = await sign_in(api, token)
        assert (await browser.open(path_of(approval))).status_code == 404


async def test_with_a_quorum_the_page_says_who_has_approved_and_how_many_more_are_needed(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}, more="quorum = 2") as api:
        approval = await ask_for_approval(api, await api.token("ana", ApiRole.MEMBER))
        ben, eva = await approver(api, "ben"), await approver(api, "eva")
        await ben.open(path_of(approval))
        await approve(ben)
        assert "1 of 2 approved by ben" in ben.text
        await ben.send("'revision'", decision="approve", confirmed="yes")
        assert ben.page.status_code == 409
        await eva.open(path_of(approval))
        await approve(eva)
        assert "Approved by ben and eva" in eva.text


async def test_a_hidden_part_is_opened_before_the_call_can_be_approved(folder: Path) -> None:
    async with an_api(folder, {"text": "hello", "api_key": "hunter2"}) as api:
        approval = await ask_for_approval(api)
        browser = await approver(api)
        await browser.open(path_of(approval))
        assert "hunter2" not in browser.page.text
        fields = [("form-token", dict(browser.form("Sign out").fields)["form-token"]), ("revision", "1")]
        assert (await browser.post(path_of(approval), [*fields, *APPROVE])).status_code == 409
        await browser.send("'revision'", decision="open")
        assert "hunter2" in browser.text
        await approve(browser)
        assert "Approved by ben" in browser.text
