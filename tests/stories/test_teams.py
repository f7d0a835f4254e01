"""The bot as a team meets it, on every platform: questions, answers, files, feedback, and queues."""

from __future__ import annotations

import asyncio
import math

from bot.chat.interactions import IN_HAND
from bot.chat.message_handler import ASK_AGAIN
from bot.domain.completions import Completion, ModelRequest
from bot.domain.messages import FilePart, TextPart, ToolCall, ToolResult
from bot.domain.tools import CallReturned, ToolOutcome
from bot.engine.engine import CONTINUE_QUESTION
from bot.ports import CallContext
from tests.fakes.parts import Unfinished, ask_for, call, say, text_outcome, tool, words
from tests.stories.team import Team, never, think

STOPPED = "Stopped by "
FINAL = "AI answer"
READ = "web__read"
EMOJI = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 1\ufe0f\u20e3 \U0001f1ef\U0001f1f5"
    " \U0001f44b\U0001f3fd \u845b\U000e0100\u57ce"
)
CODE = 'if a < b and "@here" in List<String> && c: echo("`x`", ``y``)  # #general <b>'


async def test_a_mention_is_answered_beside_it_once(team: Team) -> None:
    team.model.script = [say("The payments pool is too small.")]
    async with team.working_on("why 502?") as talk:
        message = await team.reads(talk, FINAL)
    assert "The payments pool is too small." in team.words(message)
    assert len(team.messages(talk)) == 1
    assert len(team.model.requests) == 1
    assert team.failed_calls() == []


async def test_earlier_messages_of_others_reach_the_model_with_their_names(team: Team) -> None:
    team.model.script = [say("Since the deploy.")]
    root = team.remark("checkout is broken since the deploy", by=team.sam)
    async with team.at_work():
        talk = team.ask_below(root, "since when?")
        await team.reads(talk, FINAL)
    told = [message.text for message in team.model.requests[0].messages]
    said = "sam: checkout is broken since the deploy"
    assert any(said in text.casefold() and "others" in text for text in told)
    assert told[-1] == "since when?"


async def test_a_conversation_goes_on_without_a_mention(team: Team) -> None:
    team.model.script = [say("The pool."), say("Since 14:05.")]
    async with team.working_on("why?") as talk:
        await team.reads(talk, FINAL)
        team.go_on(talk, "since when?")
        await team.reads(talk, "Since 14:05.")
    assert len(team.messages(talk)) == 2


async def test_people_who_turn_to_each_other_are_left_alone_also_after_a_restart(team: Team) -> None:
    team.model.script = [say("The pool."), say("Since 14:05.")]
    async with team.at_work() as engine:
        talk = team.ask("why?")
        await team.reads(talk, FINAL)
        team.go_on(talk, f"{team.sam.mention} do you know since when?")
        while await engine.is_followed(team.conversation(talk), math.inf):
            await asyncio.sleep(0.01)
        team.go_on(talk, "since noon, I think", by=team.sam)
    async with team.at_work():
        team.go_on(talk, "are you sure?")
        team.go_on(talk, f"{team.mention} since when?")
        await team.reads(talk, "Since 14:05.")
    assert len(team.model.requests) == 2
    assert team.model.requests[1].messages[-1].text == "since when?"


async def test_an_edited_question_is_asked_again_in_place_of_the_running_one(team: Team) -> None:
    team.model.script = [think, say("Since 14:05."), say("Since noon.")]
    async with team.working_on("why?") as talk:
        await team.until(lambda: team.model.requests)
        team.edit(talk, "since when?")
        await team.until(lambda: team.private_offers(team.priya, ASK_AGAIN))
        await team.press(team.priya, team.private_offers(team.priya, ASK_AGAIN)[-1], ASK_AGAIN)
        await team.reads(talk, "Since 14:05.")
        assert team.model.requests[1].messages[-1].text == "since when?"
        # A further edit is about the new turn.
        team.edit(talk, "since when exactly?")
        await team.until(lambda: len(team.private_offers(team.priya, ASK_AGAIN)) == 2)
        await team.press(team.priya, team.private_offers(team.priya, ASK_AGAIN)[-1], ASK_AGAIN)
        await team.reads(talk, "Since noon.")
    assert len(team.model.requests) == 3
    assert team.failed_calls() == []


async def test_an_edit_that_adds_the_mention_is_answered(team: Team) -> None:
    team.model.script = [say("The pool.")]
    async with team.at_work():
        talk = team.remark("why 502?", by=team.priya)
        team.edit(talk, "why 502?")
        await team.reads(talk, "The pool.")
        assert team.private_offers(team.priya, ASK_AGAIN) == []


async def test_emoji_ideographic_variants_and_code_arrive_whole(team: Team) -> None:
    team.toolbox.add(tool("web__note"))
    code = f"Done.\n\n```python\n{CODE}\n```"
    team.model.script = [ask_for(call("web__note", text=EMOJI)), say(f"{EMOJI}\n\n{code}")]
    async with team.waiting_on(EMOJI) as (talk, card):
        assert EMOJI in team.words(card)
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, FINAL)
    assert team.model.requests[0].messages[-1].text == EMOJI
    assert EMOJI in team.visible_text(talk)
    assert CODE in team.visible_text(talk)


async def test_a_long_answer_in_a_direct_message_is_whole(team: Team) -> None:
    team.model.script = [say("word " * 300 + "and the end.")]
    async with team.at_work():
        talk = team.ask_directly("tell me a lot")
        await team.reads(talk, FINAL)
    assert team.visible_text(talk).count("and the end.") >= 1
    assert team.failed_calls() == []


async def test_an_answer_of_forty_thousand_characters_arrives_whole(team: Team) -> None:
    lines = [f"- finding {number}: the pool was empty at that moment" for number in range(900)]
    team.model.script = [say("\n".join(lines))]
    async with team.working_on("list them all") as talk:
        await team.reads(talk, FINAL)
    everything = "\n".join([team.visible_text(talk), *(content.decode() for _, content in team.files(talk))])
    assert sum(map(len, lines)) > 40_000
    assert [number for number in range(900) if f"finding {number}:" not in everything] == []
    assert team.failed_calls() == []


async def test_a_question_is_received_while_the_model_thinks_about_another(team: Team) -> None:
    goes_on = asyncio.Event()

    async def slowly(_request: ModelRequest) -> Completion:
        await goes_on.wait()
        return say("At last.")

    team.model.script = [slowly, say("At once.")]
    async with team.working_on("why?") as talk:
        await team.until(lambda: team.model.requests)
        await team.until(lambda: not team.unacknowledged_actions())
        other = team.ask("and you?", by=team.sam)
        await team.reads(other, "At once.")
        await team.until(lambda: not team.unacknowledged_actions())
        assert "At last." not in team.visible_text(talk)
        goes_on.set()
        await team.reads(talk, "At last.")
    assert len(team.model.requests) == 2


async def test_ten_questions_at_once_stay_below_the_limits_of_the_platform(team: Team) -> None:
    team.pause = asyncio.sleep
    team.model.script = [say(f"Answer {number}. " + "word " * 50) for number in range(10)]
    async with team.at_work():
        team.keep_to_limits()
        talks = [team.ask("why?", where=team.another_channel(f"room-{number}")) for number in range(10)]
        for talk in talks:
            await team.reads(talk, FINAL)
    assert team.failed_calls() == []


async def test_feedback_on_an_answer_is_stored(team: Team) -> None:
    team.model.script = [say("The pool.")]
    async with team.working_on("why?") as talk:
        answer = await team.reads(talk, FINAL)
        await team.rate(team.priya, answer, good=False)
        await team.hears(team.priya, "Thank you, noted.")
        await team.rate(team.sam, answer, good=True)
        await team.until(lambda: len(team.opinions) == 2)
    assert [(good, f"{by.platform}:{by.id}") for good, by in team.opinions] == [
        (False, team.principal(team.priya)),
        (True, team.principal(team.sam)),
    ]


async def test_a_file_reaches_the_model_and_a_tools_file_is_shared(team: Team) -> None:
    async def export(asked: ToolCall, _context: CallContext) -> ToolOutcome:
        return CallReturned(
            ToolResult(asked.id, (TextPart("exported"), FilePart(b"pool,20\n", "text/csv", "pools.csv")))
        )

    team.toolbox.add(tool(READ, read_only=True), export)
    team.allowed = {READ}
    team.model.script = [ask_for(call(READ)), say("It is the pool.")]
    async with team.working_on("what is in it?", files=[("checkout.log", b"14:05 pool exhausted")]) as talk:
        await team.reads(talk, FINAL)
        await team.until(lambda: team.files(talk))
    assert "14:05 pool exhausted" in str(team.model.requests[0].messages)
    assert team.files(talk) == [("pools.csv", b"pool,20\n")]
    assert team.failed_calls() == []


async def test_stop_ends_a_running_turn(team: Team) -> None:
    team.early_seconds, team.model.script = 0.1, [think]
    async with team.working_on("think for ever") as talk:
        await team.until(lambda: any("Stop" in team.buttons(each) for each in team.messages(talk)))
        message = team.messages(talk)[-1]
        await team.press(team.priya, message, "Stop")
        await team.reads(talk, STOPPED)
        await team.until(lambda: team.buttons(message) == [])
    assert team.failed_calls() == []


async def test_stop_keeps_what_was_written_says_who_stopped_and_the_model_goes_on_once(team: Team) -> None:
    team.early_seconds, team.model.script = 0.1, [Unfinished("The pool was"), say("halved at 14:05.")]
    async with team.working_on("why?") as talk:
        await team.reads(talk, "The pool was")
        await team.press(team.sam, await team.offers(talk, "Stop"), "Stop")
        stopped = await team.offers(talk, "Continue")
        assert "The pool was" in team.words(stopped)
        assert "stopped by sam." in team.words(stopped).lower()
        assert "Stop" not in team.buttons(stopped)
        await team.press(team.priya, stopped, "Continue")
        await team.reads(talk, "halved at 14:05.")
        await team.press(team.sam, stopped, "Continue")
        await team.hears(team.sam, IN_HAND)
    written = words(team.model.requests[1])
    assert any("The pool was\n(I was stopped here.)" in text for text in written)
    assert CONTINUE_QUESTION in written[-1]
    assert team.visible_text(talk).count("The pool was") == 1
    assert len(team.model.requests) == 2
    assert team.failed_calls() == []


async def test_stop_while_a_tool_runs_leaves_nothing_running(team: Team) -> None:
    team.toolbox.add(tool("web__read", read_only=True), never)
    team.allowed = {"web__read"}
    team.early_seconds, team.model.script = 0.1, [ask_for(call("web__read"))]
    async with team.working_on("read it") as talk:
        await team.until(lambda: team.toolbox.calls and any("Stop" in team.buttons(m) for m in team.messages(talk)))
        await team.press(team.priya, team.messages(talk)[-1], "Stop")
        await team.reads(talk, STOPPED)
        await team.until(lambda: "Stop" not in str([team.buttons(message) for message in team.messages(talk)]))
    assert "◌" not in team.visible_text(talk)


async def test_no_text_of_a_tool_or_the_model_mentions_a_user(team: Team) -> None:
    shouting = "<!channel> <@U00000001> @everyone @here <@&1> <https://evil.example|click>"

    async def shout(asked: object, _context: CallContext) -> ToolOutcome:
        return text_outcome(asked, shouting)  # type: ignore[arg-type]

    team.toolbox.add(tool("web__read", read_only=True), shout)
    team.allowed = {"web__read"}
    team.model.script = [ask_for(call("web__read")), say(f"It says {shouting}.")]
    async with team.working_on("read it") as talk:
        await team.reads(talk, FINAL)
    assert team.notifying_mentions() == set()
    assert team.fetched_addresses() == set()
