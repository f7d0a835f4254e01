"""The real program in Slack is stopped, killed, and spread over two processes: no message is lost or answered twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.fakes.slack import Fails
from tests.postgres import Server
from tests.stories.slack_program import Company, a_company

KEEP_IT = "note that the deploy is at noon"
THINK = "think for ever"
NOTES = {"notes": {"command": "python", "args": ["-m", "mcp_servers.notes"]}}
KEY = "CFvTzyVIeFl0NFofOfa26IKJ8Z5EL3fV4yChTH9aivU="
FORGED_TS = "1700000000.000100"


class Slowly:
    """A model that stands still in the middle of its first answer; from then on it answers at once."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.asked = 0

    def __call__(self, request: Request) -> Reply:
        self.asked += 1
        answer = Say(f"You said: {request.question}. That was all.")
        return Hold(answer, self.gate) if self.asked == 1 else answer


def clerk(request: Request) -> Reply:
    """Calls the tool for notes as asked, and never answers one question."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}")
    if request.question == KEEP_IT:
        return Say(calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
    answer = Say(f"You said: {request.question}.")
    return Hold(answer, Gate()) if request.question == THINK else answer


async def wait_for_acknowledgements(company: Company) -> None:
    """Wait until everything that Slack sent is acknowledged."""
    slack = company.slack
    await slack.until(lambda: slack.sent_deliveries and all(each.is_acknowledged for each in slack.sent_deliveries), 30)


async def test_an_answer_in_the_middle_of_which_the_program_is_told_to_leave_is_completed_by_the_next(
    tmp_path: Path,
) -> None:
    slowly = Slowly()
    with FakeLanguageModel("openai", rule=slowly) as model:
        async with a_company(tmp_path, model, {}) as company:
            async with company.bot() as bot:
                asked = company.ask("why?")
                await asyncio.wrap_future(slowly.gate.reached)
                await wait_for_acknowledgements(company)
                await company.draws(asked.ts, "You said: why?")
                assert await bot.leaves() == 0
                assert "Traceback" not in bot.log
            async with company.bot():
                await company.draws(asked.ts, "AI answer")
            said = company.public_texts(asked.ts)
            assert len(said) == 1, said
            assert said[0].count("You said: why?. That was all.") == 1
            assert "Stop" not in said[0]
            assert slowly.asked == 2
            assert not company.slack.calls.failed_calls()


async def test_when_the_app_is_removed_from_the_workspace_the_program_ends_with_cause_and_fix(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, {}) as company, company.bot() as bot:
        company.slack.fail("auth.test", Fails("account_inactive"), times=1000)
        company.slack.tell("app_uninstalled", {"type": "app_uninstalled"})
        assert await bot.ends() != 0
        (said,) = [line for line in bot.log.splitlines() if "The app was removed from Slack" in line]
        assert "Fix: install the app again and set the new SLACK_BOT_TOKEN" in said
        assert "Traceback" not in bot.log


async def test_by_http_requests_with_the_signature_of_slack_are_answered_and_others_are_not(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, {}, SLACK_APP_TOKEN="", PORT="0") as company:
        slack = company.slack
        secret = slack.app.signing_secret
        async with company.bot(receiving=False, SLACK_SIGNING_SECRET=secret) as bot:
            port = (await bot.logs(r"listening for requests at 127\.0\.0\.1, port (\d+)"))[1]
            await bot.logs("receiving from Slack")
            posts = slack.deliver_by_http(f"http://127.0.0.1:{port}/slack/events")

            posts.secret = "not-the-one"
            # Slack has no such message: the bot would find a real one later, when it reads up on missed messages.
            slack.tell("app_mention", _forged_mention(company, "let me in"))
            sent = list(slack.sent_deliveries)
            await slack.until(lambda: all(len(each.attempts) == 2 and each.attempts[1].outcome for each in sent))
            assert {attempt.status for each in sent for attempt in each.attempts} == {401}

            posts.secret = secret
            asked = company.ask("hello")
            await company.draws(asked.ts, "AI answer")
            assert "You said: hello." in company.public_texts(asked.ts)[0]
            assert company.public_texts(FORGED_TS) == []
            await slack.command(company.sam, "/mcp", "list", company.incidents)
            await company.hears(company.sam, "No servers yet.")
            assert [request.question for request in model.requests] == ["hello"]
            assert await bot.leaves() == 0
            assert secret not in bot.log


def _forged_mention(company: Company, text: str) -> dict[str, str]:
    slack, channel = company.slack, company.incidents
    mention = {"type": "app_mention", "channel": channel.id, "user": company.sam.id, "team": company.sam.team.id}
    return mention | {"ts": FORGED_TS, "event_ts": FORGED_TS, "text": f"{slack.bot.mention} {text}"}


async def test_one_process_receives_and_another_that_slack_never_calls_answers_approves_and_stops(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    shared = {"DATABASE_URL": postgres.fresh(), "MCP_ENCRYPTION_KEY": KEY}
    async with a_company(tmp_path, model, NOTES, **shared) as company:
        slack = company.slack
        async with company.bot("--only", "slack") as front:
            asked = company.ask(KEEP_IT)
            await wait_for_acknowledgements(company)
            assert company.public_texts(asked.ts) == []
            async with company.bot("--only", "worker", receiving=False, SLACK_APP_TOKEN="") as back:
                card = await company.draws(asked.ts, "cs.approve")
                assert company.place.notes == []
                await slack.press(company.sam, card, "Approve: Add a note")
                await company.draws(asked.ts, "It said: Saved as note #1")
                assert company.place.notes == ["The deploy is at noon."]

                company.ask(THINK, asked.ts)
                message = await company.draws(asked.ts, THINK)
                await slack.press(company.priya, message, "Stop")
                await company.draws(asked.ts, "Stopped by ")
                assert "\nStop\n" not in f"{company.public_texts(asked.ts)[-1]}\n"
                assert slack.sockets.ever == 1
                assert not slack.calls.failed_calls()
                assert (await back.leaves(), await front.leaves()) == (0, 0)
                assert "Traceback" not in front.log + back.log
