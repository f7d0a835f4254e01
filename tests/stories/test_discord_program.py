"""The real program on a Discord server: questions, signatures, commands, a server that an admin adds, two processes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.chat.listener_leases import LEASE_SECONDS
from bot.platforms.discord.diagnostics import PERMISSIONS, invite_link
from bot.platforms.discord.gateway import shard_of
from tests.fakes.discord import Channel
from tests.fakes.discord.permissions import NOTHING
from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.postgres import Server, end_leases
from tests.stories.discord_program import a_company
from tests.stories.installation import KEY, Outcome
from tests.stories.program import PATIENCE, a_bot

KEEP_IT = "note that the deploy is at noon"
DROP_IT = "delete that note"
LOOK_UP = "look it up"
THINK = "think about it"
TOOL = "ticket-desk__lookup"
NOTES = {"notes": {"command": "python", "args": ["-m", "mcp_servers.notes"], "trusted": True}}
FINAL = "AI answer"


class Clerk:
    """Calls the tools for notes and look-ups as asked, and holds back one answer until the gate is opened."""

    def __init__(self) -> None:
        self.gate = Gate()

    def __call__(self, request: Request) -> Reply:
        if request.results:
            return Say(f"It said: {request.results[0].strip()}.")
        if request.question == KEEP_IT:
            return Say("Noting it.", calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
        if request.question == DROP_IT:
            return Say("Deleting it.", calls=(Call("notes__delete", {"id": 1}),))
        if request.question == LOOK_UP and TOOL in request.tool_names:
            return Say(calls=(Call(TOOL, {}),))
        answer = Say(f"You said: {request.question}.")
        return Hold(answer, self.gate) if request.question == THINK else answer


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
def model(clerk: Clerk) -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel("openai", rule=clerk) as model:
        yield model
    assert model.refusals == []


async def test_a_question_is_answered_and_a_change_waits_for_an_approver(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model) as company, company.bot(LOG_LEVEL="debug") as bot:
        discord, priya, sam = company.discord, company.priya, company.sam
        thread = await company.thread(company.ask("hello"))
        assert thread.name == "hello"
        await company.reads(thread, "You said: hello.", FINAL)
        assert len(company.words(thread)) == 1

        discord.say(priya, thread, KEEP_IT)
        card = await company.reads(thread, "Approve: Add a note")
        assert company.place.notes == []
        await company.press(priya, card, "Approve")
        await company.reads(thread, "It said: Saved as note #1", FINAL)
        assert company.place.notes == ["The deploy is at noon."]
        assert company.buttons(card) == []

        discord.say(priya, thread, DROP_IT)
        card = await company.reads(thread, "Approve: Delete a note", "because it may delete data")
        await company.press(priya, card, "Approve")
        await company.reads(thread, "You may not approve this.", "Sam")
        await company.press(sam, card, "Approve")
        question = await company.reads(thread, "cannot be taken back", user=sam)
        assert company.place.notes == ["The deploy is at noon."]
        await company.press(sam, question, "Approve")
        await company.reads(thread, "Deleted note #1")
        assert company.place.notes == []

        private = discord.dm(priya)
        discord.say(priya, private, "hello again")
        await company.reads(private, "You said: hello again.", FINAL)

        said = discord.say(sam, company.incidents, "checkout is slow since 14:05")
        await discord.shortcut(priya, "Ask about this", said)
        await discord.submit(priya, {"question": "why?"})
        about = await company.thread(said)
        await company.reads(about, "You said: why?.", FINAL)
        assert "Sam: checkout is slow since 14:05" in json.dumps(model.requests[-1].body)

        await discord.command(sam, "mcp list", company.incidents)
        await company.reads(company.incidents, "notes", "connected", "weather", user=sam)
        assert not any("weather" in word for word in company.words(company.incidents, priya))
        await discord.command(priya, "conversations list", company.incidents)
        await company.reads(company.incidents, "Conversations", "hello")
        discord.say(sam, thread, f"{discord.bot.mention} mcp list")
        await company.reads(discord.dm(sam), "notes", "weather", user=sam)

        assert not discord.calls.failed_calls()
        assert discord.gateway.identify_count == 1
        assert await bot.leaves() == 0
        assert "ERROR" not in bot.log
        assert "Traceback" not in bot.log
        for secret in (discord.token, KEY):
            assert not [name for name, content in company.place.folder_files().items() if secret.encode() in content]


async def test_a_server_that_an_admin_adds_in_a_modal_is_used_by_the_next_question(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_legacy("lookup")
        found = {"content": [{"type": "text", "text": "ticket 7 is open"}]}
        endpoint.on["tools/call"] = lambda asked: result(asked, found)
        allowed = f"127.0.0.1:{endpoint.port}"
        async with a_company(tmp_path, model, {}, MCP_ALLOWED_HOSTS=allowed) as company, company.bot() as bot:
            discord, sam, incidents = company.discord, company.sam, company.incidents
            await discord.command(sam, "mcp add", incidents)
            wrong = {"Name": "Ticket desk", "field.where": "http://169.254.169.254/mcp", "Policy": "allow"}
            await discord.submit(sam, wrong)
            refused = await company.reads(incidents, "Not yet right", user=sam)
            await company.press(sam, refused, "Correct it")
            await discord.submit(sam, {"field.where": endpoint.url})
            await company.reads(incidents, "`ticket-desk` is added.", "1 tool", user=sam)

            thread = await company.thread(company.ask(LOOK_UP))
            await company.reads(thread, "It said: ticket 7 is open.", FINAL)
            assert not discord.calls.failed_calls()
            assert "Traceback" not in bot.log


async def test_when_the_receiving_process_is_killed_another_goes_on_and_answers_the_messages_of_the_meantime(
    tmp_path: Path, model: FakeLanguageModel, clerk: Clerk, postgres: Server
) -> None:
    address = await asyncio.to_thread(postgres.fresh)
    async with a_company(tmp_path, model, NOTES, DATABASE_URL=address) as company:
        discord, priya, sam = company.discord, company.priya, company.sam
        async with company.bot() as first, a_bot(company.place) as second:
            await second.logs("holds the lease on receiving from Discord, this one stands by")
            signing = await company.thread(company.ask(KEEP_IT))
            card = await company.reads(signing, "Approve: Add a note")
            private = discord.dm(priya)
            discord.say(priya, private, "hello")
            await company.reads(private, "You said: hello.", FINAL)
            thinking = await company.thread(company.ask(THINK))
            await asyncio.wrap_future(clerk.gate.reached)
            assert discord.gateway.identify_count == 1

            await first.dies()
            await discord.gateway.wait_for_disconnect()
            discord.say(priya, private, "are you there?")
            discord.say(priya, signing, "and the time?")
            clerk.gate.open()
            await second.logs("the process with the lease on receiving from Discord has ended .*, this one takes over")
            await discord.until(lambda: discord.gateway.identify_count == 2, 30)
            await asyncio.to_thread(end_leases, address, first.owner)

            await company.reads(private, "You said: are you there?.", FINAL)
            await company.reads(thinking, f"You said: {THINK}.", FINAL)
            await company.press(sam, card, "Approve")
            await company.reads(signing, "It said: Saved as note #1", FINAL)
            await company.reads(signing, "You said: and the time?.", FINAL)
            assert company.place.notes == ["The deploy is at noon."]
            for place, answer in (
                (private, "You said: hello."),
                (private, "You said: are you there?."),
                (thinking, f"You said: {THINK}."),
                (signing, "You said: and the time?."),
            ):
                assert sum(answer in word for word in company.words(place)) == 1
            assert not discord.calls.failed_calls()
            assert "Traceback" not in second.log


async def test_a_process_that_follows_a_killed_one_receives_at_once(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_company(tmp_path, model, {}) as company:
        discord, private = company.discord, company.discord.dm(company.priya)
        async with company.bot() as first:
            discord.say(company.priya, private, "hello")
            await company.reads(private, "You said: hello.", FINAL)
            await first.dies()
        await discord.gateway.wait_for_disconnect()
        discord.say(company.priya, private, "are you there?")
        began = time.monotonic()
        async with company.bot() as second:
            # company.bot() waits for the gateway.
            assert time.monotonic() - began < LEASE_SECONDS / 2
            await company.reads(private, "You said: are you there?.", FINAL)
            assert "the process with the lease on receiving from Discord has ended" in second.log
            assert "stands by" not in second.log


@pytest.mark.parametrize("is_killed", [True, False])
async def test_remarks_of_colleagues_stay_unanswered_after_a_kill_and_after_a_long_disconnection(
    tmp_path: Path, model: FakeLanguageModel, is_killed: bool
) -> None:
    async with a_company(tmp_path, model, {}) as company:
        discord, priya, sam = company.discord, company.priya, company.sam
        discord.say(sam, company.incidents, "the checkout is slow")
        async with AsyncExitStack() as running:
            first = await running.enter_async_context(company.bot())
            thread = await company.thread(company.ask("why?"))
            await company.reads(thread, "You said: why?.", FINAL)
            discord.say(sam, thread, "I had that, too")
            if is_killed:
                await first.dies()
                await discord.gateway.wait_for_disconnect()
            else:
                discord.gateway.refuses = True
                await discord.gateway.drop()
            discord.say(sam, thread, "still slow")
            discord.say(priya, thread, f"{discord.bot.mention} and now?")
            discord.say(sam, thread, "thanks")
            if is_killed:
                await running.enter_async_context(company.bot())
            else:
                discord.gateway.forget_sessions()
                discord.gateway.refuses = False
            await company.reads(thread, "You said: and now?.", FINAL)
            discord.say(priya, thread, f"{discord.bot.mention} anything else?")
            await company.reads(thread, "You said: anything else?.", FINAL)
        assert [request.question for request in model.requests] == ["why?", "and now?", "anything else?"]
        posted = [words for place in (company.incidents, thread) for words in company.words(place)]
        assert len(posted) == sum("You said: " in words for words in posted) == 3, posted


async def test_processes_share_the_shards_of_a_large_bot_and_one_that_is_killed_is_followed_by_the_other(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    shards, address = 4, await asyncio.to_thread(postgres.fresh)
    async with a_company(tmp_path, model, {}, DATABASE_URL=address) as company:
        discord, priya = company.discord, company.priya
        discord.limits.shards = discord.limits.fewest_shards = shards
        discord.limits.max_concurrency = 16
        channels: dict[int, Channel] = {}
        while len(channels) < shards:
            discord.clock.advance(0.001)
            guild = discord.another_guild(f"Guild {len(channels)}")
            discord.join(priya, guild)
            channels.setdefault(shard_of(guild.id, shards), discord.channel("incidents", guild=guild))

        async def all_answered(text: str) -> None:
            for number, channel in channels.items():
                asked = discord.say(priya, channel, f"{discord.bot.mention} {text} {number}")
                await company.reads(await company.thread(asked), f"You said: {text} {number}.", FINAL)

        def connected_shards() -> list[tuple[int, int]]:
            return sorted(session.shard for session in discord.gateway.live)

        everything = [(number, shards) for number in range(shards)]
        async with company.bot() as first, a_bot(company.place) as second:
            await discord.until(
                lambda: connected_shards() == everything and second.log.count("receiving from Discord as") == 2,
                PATIENCE,
            )
            await all_answered("why")

            await first.dies()
            await discord.until(lambda: len(connected_shards()) == 2)
            await discord.until(lambda: connected_shards() == everything, PATIENCE)
            await all_answered("and since when")
            assert not discord.calls.failed_calls()
            assert "Traceback" not in second.log


async def test_the_doctor_says_what_discord_lets_the_bot_do_and_what_is_missing(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, {}) as company:
        discord = company.discord

        async def doctor() -> Outcome:
            return await asyncio.to_thread(company.place.countersign, "doctor")

        found = await doctor()
        assert found.code == 0, found.out
        assert "✓ discord · token  It is countersign, application " in found.out
        assert "✓ discord · server Acme  The bot may do there what it needs." in found.out
        assert (
            "! discord · commands  Discord does not know /agents, /approvals, /ask, /console, /conversations, "
            "/mcp, /preferences, /profile, /usage." in found.out
        )

        discord.app.message_content = False
        discord.guild.everyone.permissions = NOTHING
        lacking = await doctor()
        assert lacking.code == 1
        assert "! discord · message content  It is switched off" in lacking.out
        (line,) = [each for each in lacking.out.splitlines() if "discord · server Acme" in each]
        assert line.startswith("✗ discord · server Acme  It lacks permissions. View Channels: ")
        assert all(permission.name in line for permission in PERMISSIONS)
        assert line.endswith(invite_link(discord.app.id))

        company.place.environment["DISCORD_TOKEN"] = wrong = f"{discord.bot.id}.another.token"
        unknown = await doctor()
        assert unknown.code == 1
        assert "✗ discord · token  " in unknown.out
        assert not any(secret in found.out + lacking.out + unknown.out for secret in (wrong, discord.token))
        assert discord.gateway.identify_count == 0
