"""Questions and conversations in the console, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.conversations import ConversationKey, Member
from bot.web.console import events
from tests.fakes.parts import ANA, BEN, ScriptedModel, say
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.browser import Browser
from tests.web.pages_bot import PagesBot, opened_pages
from tests.web.test_approvals import an_api, received_arguments
from tests.web.test_console_sign_in import link_of, sign_in

MARKUP = "<img src=x onerror=alert(1)>\u202e & [a](javascript:alert(1))"


async def becomes(browser: Browser, text: str) -> None:
    """Open the page again until it has a text."""
    async with asyncio.timeout(60):
        while text not in browser.text:
            await asyncio.sleep(0.05)
            await browser.open(browser.page.url.path)


@asynccontextmanager
async def scripted(folder: Path, *script: object) -> AsyncIterator[Api]:
    async with opened_api(folder, model=scripted_choice(ScriptedModel([*script]))) as api:  # type: ignore[list-item]
        yield api


async def test_a_question_from_the_console_is_answered_in_its_conversation(folder: Path) -> None:
    async with scripted(folder, say("**Two** issues."), say("Yes.")) as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await browser.open("/console/ask")
        assert "<h1>Ask</h1>" in browser.page.text
        await browser.send("Message", message="Which issues?")
        assert browser.page.url.path.startswith("/console/conversations/api:default:ana:")
        await becomes(browser, "Two issues.")
        assert "<strong>Two</strong>" in browser.page.text
        await browser.send("Message", message="Sure?")
        await becomes(browser, "Yes.")
        await browser.open("/console/conversations")
        assert "Which issues?" in browser.text


async def test_the_same_form_sent_twice_asks_once(folder: Path) -> None:
    async with scripted(folder, say("One."), say("Two.")) as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await browser.open("/console/ask")
        fields = [*browser.form("Message").fields, ("message", "Which?")]
        first = await browser.post("/console/ask", fields)
        second = await browser.post("/console/ask", fields)
        assert first.headers["location"] == second.headers["location"]


async def test_an_empty_or_too_long_message_is_named_and_stays(folder: Path) -> None:
    async with scripted(folder) as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        for text in ("", " ", "x" * 20_001):
            await browser.open("/console/ask")
            page = await browser.send("Message", message=text)
            assert page.status_code == 422
            assert "Write a message of up to 20000 characters." in browser.text.replace(",", "")


async def test_a_card_is_decided_in_place_and_the_turn_goes_on(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}, who="api-role:approver") as api:
        browser = await sign_in(api, await api.token("ben", ApiRole.APPROVER))
        await browser.open("/console/ask")
        await browser.send("Message", message="write it")
        await becomes(browser, "Approve")
        await browser.send("'revision'", decision="approve", confirmed="yes")
        assert browser.page.url.path.startswith("/console/conversations/")
        await becomes(browser, "Written.")
        assert "Approved by ben" in browser.text
        assert received_arguments(api) == [{"text": "hello"}]


async def test_text_of_the_model_and_of_people_has_no_markup_and_no_active_link(folder: Path) -> None:
    async with scripted(folder, say(MARKUP)) as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await browser.open("/console/ask")
        await browser.send("Message", message=MARKUP)
        await becomes(browser, "javascript")
        content = browser.page.text.partition("<main")[2]
        for bad in ("<img", 'href="javascript', "\u202e"):
            assert bad not in content


async def test_a_turn_is_stopped_and_continued_by_its_asker(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}, who="api-role:approver") as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await browser.open("/console/ask")
        await browser.send("Message", message="write it")
        await becomes(browser, "waits for approval")
        assert 'value="approve"' not in browser.page.text
        await browser.send("'stop'")
        await becomes(browser, "Stopped")
        assert received_arguments(api) == []
        await browser.send("'continue'")
        await becomes(browser, "Written.")


async def test_conversations_of_others_are_as_missing_ones_to_members_and_shown_to_admins(folder: Path) -> None:
    async with scripted(folder, say("For ana alone.")) as api:
        ana = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await ana.open("/console/ask")
        await ana.send("Message", message="Which?")
        await becomes(ana, "For ana alone.")
        path = ana.page.url.path
        [turn] = await api.runtime.engine.recent_turns(own_of(path), 1)
        eve = await sign_in(api, await api.token("eve", ApiRole.MEMBER))
        missing = await eve.open("/console/conversations/api:default:ana:nothing")
        for address in (path, f"{path}/export", f"/console/events?turn={turn.turn.id}"):
            page = await eve.open(address)
            assert page.status_code == 404
            assert "For ana alone." not in page.text
        assert (await eve.open(path)).text.partition("<main")[2] == missing.text.partition("<main")[2]
        for odd in ("x", "a:b:c:d:e", "api:default:ana", "%00", "api:default:%61na:x"):
            assert (await eve.open(f"/console/conversations/{odd}")).status_code == 404
        admin = await sign_in(api)
        assert "For ana alone." in (await admin.open(path)).text
        await admin.open("/console/conversations?all=yes")
        assert "Which?" in admin.text


def own_of(path: str) -> ConversationKey:
    return ConversationKey.parse(path.rpartition("/")[2].replace("!", "%"))


async def test_a_conversation_is_exported_and_deleted_with_its_id_typed(folder: Path) -> None:
    async with scripted(folder, say("An answer.")) as api:
        browser = await sign_in(api, await api.token("ana", ApiRole.MEMBER))
        await browser.open("/console/ask")
        await browser.send("Message", message="Which?")
        await becomes(browser, "An answer.")
        path = browser.page.url.path
        file = await browser.request("GET", f"{path}/export")
        assert file.headers["content-disposition"].startswith("attachment; filename=")
        assert "An answer." in file.text
        page = await browser.send("'delete'", typed="something else")
        assert page.status_code == 422
        await browser.send("'delete'", typed=path.rpartition(":")[2])
        assert browser.page.url.path == "/console/conversations"
        assert (await browser.open(path)).status_code == 404


async def test_a_turn_streams_to_the_page_until_it_has_ended(folder: Path) -> None:
    async with an_api(folder, {"text": "hello"}, who="api-role:approver") as api:
        browser = await sign_in(api, await api.token("ben", ApiRole.APPROVER))
        await browser.open("/console/ask")
        await browser.send("Message", message="write it")
        await becomes(browser, "Approve")
        address = browser.page.text.partition('hx-sse:connect="')[2].partition('"')[0]
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        async with api.client.stream("GET", address, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            received = stream.aiter_lines()
            text = ""
            async for line in received:
                text += line + "\n"
                if "</article>" in line:
                    break
            assert 'value="approve"' in text
            await browser.send("'revision'", decision="approve", confirmed="yes")
            async for line in received:
                text += line + "\n"
            assert "Written." in text
            assert text.rstrip().endswith("event: end\ndata:")


async def test_a_stream_ends_with_its_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.05)
    async with an_api(folder, {"text": "hello"}) as api:
        browser = await sign_in(api, await api.token("ben", ApiRole.APPROVER))
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        async with api.client.stream("GET", "/console/events?approvals=old", headers=headers) as stream:
            received = stream.aiter_lines()
            async for line in received:
                if "The list has changed." in line:
                    break
            await api.parts.tokens.revoke("ben", ANA)
            async with asyncio.timeout(10):
                assert "secret" not in "".join([line async for line in received])


async def test_a_user_of_a_chat_asks_here_in_the_workspace_of_the_chat(folder: Path) -> None:
    async with opened_pages(folder, api=True) as parts:
        bot = PagesBot(*parts)
        browser = Browser(bot.client)
        await browser.open(await link_of(bot, Member(BEN)))
        await browser.send("Continue")
        await browser.open("/console/ask")
        await browser.send("Message", message="Hello")
        key = own_of(browser.page.url.path)
        assert (key.platform, key.workspace_key, key.channel) == ("api", "test:w", BEN.principal)
        async with asyncio.timeout(60):
            while not (views := await bot.runtime.engine.recent_turns(key, 1))[0].turn.status.ended:
                await asyncio.sleep(0.05)
        [view] = views
        assert view.turn.status.value == "done"
        assert view.turn.author.principal == BEN.principal
        await browser.open("/console/conversations")
        assert "Hello" in browser.text
