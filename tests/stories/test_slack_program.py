"""The real program in a Slack workspace: questions, signatures, commands, and a server that an admin adds."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.stories.installation import KEY
from tests.stories.program import PATIENCE, Bot
from tests.stories.slack_program import Company, a_company

KEEP_IT = "note that the deploy is at noon"
LOOK_UP = "look it up"
TOOL = "ticket-desk__lookup"


def clerk(request: Request) -> Reply:
    """Calls the tools for notes and look-ups as asked."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == KEEP_IT:
        return Say("Noting it.", calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
    if request.question == LOOK_UP and TOOL in request.tool_names:
        return Say(calls=(Call(TOOL, {}),))
    return Say(f"You said: {request.question}.")


def strict(company: Company) -> AbstractAsyncContextManager[Bot]:
    """The bot where only approvers approve, by the two lines of the policy file."""
    policy = company.place.folder / "config" / "policy.toml"
    before, line, after = policy.read_text().partition('\ndefault = "ASK_USER"\n')
    company.place.rule(f"{before}{line}self_approval = false\n{after}")
    return company.bot()


async def test_a_question_is_answered_and_a_change_waits_for_an_approver(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, LOG_LEVEL="debug") as company, strict(company) as bot:
        slack, priya, sam = company.slack, company.priya, company.sam
        asked = company.ask("hello")
        answer = await company.draws(asked.ts, "AI answer")
        assert "You said: hello." in company.public_texts(asked.ts)[0]
        assert company.buttons(answer) == []

        company.ask(KEEP_IT, asked.ts)
        card = await company.draws(asked.ts, "cs.approve")
        await slack.press(priya, card, "Approve: Add a note")
        await company.hears(priya, "You may not approve this.")
        assert company.place.notes == []
        await slack.press(sam, card, "Approve: Add a note")
        await company.draws(asked.ts, "It said: Saved as note #1")
        assert company.place.notes == ["The deploy is at noon."]
        await slack.until(
            lambda: not any("cs.stop" in str(message.blocks) for message in slack.bot_messages(company.incidents))
        )

        dm = slack.dm(priya)
        model.script(Hold(Say("You said: hello again."), gate := Gate()))
        private = slack.say(priya, dm, "hello again")
        await slack.until(lambda: slack.calls.of("chat.startStream"), PATIENCE)
        gate.open()
        await company.reads(private.ts, "AI answer", dm, seconds=30)
        assert len(company.public_texts(private.ts, dm)) == 1

        await slack.command(priya, "/conversations", "list", company.incidents)
        await company.hears(priya, "Conversations", "hello")
        await slack.command(sam, "/profile", "list", company.incidents)
        await company.hears(sam, "No profiles yet")
        company.ask("mcp list", asked.ts, sam)
        listed = await company.hears(sam, "notes", "connected", "weather")
        assert listed.thread_ts == asked.ts
        slack.open_home(sam)
        await slack.until(lambda: slack.home(sam))
        assert not slack.calls.failed_calls()
        assert await bot.leaves() == 0
        assert "ERROR" not in bot.log
        assert "Traceback" not in bot.log
        for secret in (slack.bot_token, slack.app.app_token, KEY):
            assert not [name for name, content in company.place.folder_files().items() if secret.encode() in content]


async def test_a_message_written_after_a_kill_is_answered_once_by_the_next_process(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, {}) as company:
        slack, dm = company.slack, company.slack.dm(company.priya)
        slack.post.retries = ()  # the downtime is longer than Slack delivers again
        async with company.bot() as first:
            asked = company.ask("hello")
            await company.draws(asked.ts, "You said: hello.")
            private = slack.say(company.priya, dm, "hello again")
            await company.reads(private.ts, "AI answer", dm, seconds=30)
            await first.dies()
        company.ask("and now?", asked.ts)
        slack.say(company.priya, company.incidents, "are you there?", thread_ts=asked.ts)
        other = company.ask("and here?")
        late = slack.say(company.priya, dm, "and me?")
        async with company.bot() as second:
            await company.draws(asked.ts, "You said: and now?.")
            await company.draws(asked.ts, "You said: are you there?.")
            await company.draws(other.ts, "You said: and here?.")
            await company.reads(late.ts, "You said: and me?.", dm, seconds=30)
            posted = [message.text for place in (company.incidents, dm) for message in slack.bot_messages(place)]
            assert len(posted) == 6, posted
            assert str(company.public_texts(asked.ts)).count("You said: and now?.") == 1
            assert "Traceback" not in second.log
            assert not slack.calls.failed_calls()


async def test_remarks_of_colleagues_stay_unanswered_after_a_kill(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_company(tmp_path, model, {}) as company:
        slack, sam = company.slack, company.sam
        slack.post.retries = ()
        root = slack.say(sam, company.incidents, "the checkout is slow")
        slack.say(sam, company.incidents, "since the deploy", thread_ts=root.ts)
        async with company.bot() as first:
            company.ask("why?", root.ts)
            await company.draws(root.ts, "You said: why?.")
            slack.say(sam, company.incidents, "I had that, too", thread_ts=root.ts)
            await first.dies()
        slack.say(sam, company.incidents, "still slow", thread_ts=root.ts)
        company.ask("and now?", root.ts)
        slack.say(sam, company.incidents, "thanks", thread_ts=root.ts)
        async with company.bot() as second:
            await company.draws(root.ts, "You said: and now?.")
            last = company.ask("anything else?", root.ts)
            await company.draws(root.ts, "You said: anything else?.")
            assert last.ts > root.ts
            assert [request.question for request in model.requests] == ["why?", "and now?", "anything else?"]
            places = (company.incidents, slack.dm(sam), slack.dm(company.priya))
            posted = [message.text for place in places for message in slack.bot_messages(place)]
            assert len(posted) == str(company.public_texts(root.ts)).count("You said: ") == 3, posted
            assert "Traceback" not in second.log


async def test_a_server_that_an_admin_adds_in_a_modal_is_used_by_the_next_question_until_it_is_off(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_legacy("lookup")
        found = {"content": [{"type": "text", "text": "ticket 7 is open"}]}
        endpoint.on["tools/call"] = lambda asked: result(asked, found)
        allowed = f"127.0.0.1:{endpoint.port}"
        async with a_company(tmp_path, model, {}, MCP_ALLOWED_HOSTS=allowed) as company, company.bot() as bot:
            slack, sam = company.slack, company.sam
            await slack.command(sam, "/mcp", "add", company.incidents)
            await slack.until(lambda: slack.modals(sam))
            wrong = {"Name": "Ticket desk", "Address or command line": "http://169.254.169.254/mcp", "Policy": "allow"}
            await slack.submit(sam, wrong)
            assert set(slack.modal(sam).errors) == {"field.where"}
            await slack.submit(sam, {"Address or command line": endpoint.url})
            await company.hears(sam, "ticket-desk is added.", "1 tool")
            assert slack.modals(sam) == []

            asked = company.ask(LOOK_UP)
            await company.draws(asked.ts, "It said: ticket 7 is open.")

            await slack.command(sam, "/mcp", "disable ticket-desk", company.incidents)
            off = await company.hears(sam, "is off", "Undo")
            company.ask(LOOK_UP, asked.ts)
            await company.draws(asked.ts, f"You said: {LOOK_UP}.")
            await slack.press(sam, off, "Undo")
            await company.hears(sam, "is on")
            company.ask(LOOK_UP, asked.ts)
            await slack.until(lambda: str(company.public_texts(asked.ts)).count("It said: ticket 7 is open.") == 2, 30)
            assert not slack.calls.failed_calls()
            assert "Traceback" not in bot.log


async def test_each_sees_the_language_and_the_time_that_are_theirs(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_company(tmp_path, model, TIME_ZONE="Europe/Berlin") as company, strict(company):
        slack, aki, sam = company.slack, company.priya, company.sam
        aki.locale, aki.time_zone = "ja-JP", "Asia/Tokyo"
        asked = company.ask(KEEP_IT)
        card = await company.draws(asked.ts, "cs.approve")
        assert "Approve: Add a note" in str(card.blocks), "everybody in the channel reads it"
        await slack.press(aki, card, "Approve: Add a note")
        await company.hears(aki, "承認")
        await slack.press(sam, card, "Approve: Add a note")
        await company.draws(asked.ts, "It said: Saved as note #1")

        await slack.command(aki, "/mcp", "list", company.incidents)
        await company.hears(aki, "サーバー")
        await slack.command(sam, "/mcp", "log", company.incidents)
        await company.hears(sam, "times in Europe/Lisbon")
        await slack.command(aki, "/preferences", "set --language en --timezone America/New_York", company.incidents)
        await company.hears(aki, "Saved. It counts from now on.", "America/New_York, chosen by you")
        await slack.command(aki, "/mcp", "list", company.incidents)
        await company.hears(aki, "MCP servers · 3")

        company.ask("which day is it?", asked.ts)
        await company.draws(asked.ts, "You said: which day is it?")
        prompt = str(model.requests[-1].messages)
        assert "(America/New_York)." in prompt
        assert "(Asia/Tokyo)." in str([request.messages for request in model.requests])
        await slack.command(aki, "/preferences", "clear", company.incidents)
        await company.hears(aki, "What you had chosen is deleted.")
