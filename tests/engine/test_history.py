"""History of long conversations, as models receive it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from itertools import pairwise

import pytest
import sqlalchemy as sa

from bot.domain.completions import Capabilities, Completion, ModelRequest, StopReason, Usage
from bot.domain.conversations import ConversationKey
from bot.domain.locales import Locale
from bot.domain.messages import Message, MessageRole, ToolCall, assistant, enclose
from bot.domain.policies import TaintMode
from bot.domain.tools import ToolOutcome
from bot.domain.turns import HistorySummary, ModelStep, ToolReplay, TurnStatus, TurnView
from bot.engine.engine import Engine
from bot.engine.prompt import history
from bot.engine.prompt.builder import NO_TOOLS
from bot.engine.prompt.history import HISTORY_OMITTED, HistoryBudget
from bot.engine.prompt.messages import PlatformHint, SystemPrompt
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, message, running, say, text_outcome, tool, words

LONG = "word " * 400  # some 500 tokens
SHORT = HistoryBudget(tokens=2_000)


def is_summary(request: ModelRequest) -> bool:
    return "Sum up the conversation" in request.messages[0].text


def reply_requests(harness: EngineHarness) -> list[ModelRequest]:
    """Return the model requests that are not for a summary."""
    return [request for request in harness.model.requests if not is_summary(request)]


def notes(view: TurnView) -> list[str]:
    return [note for step in view.steps if isinstance(step, ModelStep) for note in step.notes]


async def talk(harness: EngineHarness, engine: Engine, *questions: str) -> list[TurnView]:
    """Ask the questions one by one in one conversation. Return the views of the ended turns."""
    views = []
    for question in questions:
        receipt = await engine.receive(message(question))
        views.append(await harness.surface.wait_for_end(receipt.turn_id))
    return views


def numbered_questions(first: int, last: int) -> list[str]:
    return [f"q{n}" for n in range(first, last + 1)]


async def summary_of(harness: EngineHarness) -> HistorySummary | None:
    return (await harness.log.history(HALL, 1_000, 1)).summary


# ---------------------------------------------------------------------- summaries


async def test_the_oldest_turns_become_a_summary_that_stands_for_them_from_then_on(harness: EngineHarness) -> None:
    harness.model.script = [*(say(f"a{n} {LONG}") for n in range(1, 5)), say("They spoke of a1 and a2."), say("a5")]
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        *_, view = await talk(harness, engine, *numbered_questions(1, 5))
    (request,) = filter(is_summary, harness.model.requests)
    assert not request.tools
    assert "a1 word" in request.messages[-1].text
    told = words(reply_requests(harness)[-1])
    assert told[1] == (
        "Summary of what was said here before that:\n" + enclose("an earlier summary", "They spoke of a1 and a2.")
    )
    assert reply_requests(harness)[-1].messages[1].role is MessageRole.USER
    assert told[-1] == "q5"
    assert "q1" not in told
    assert "q4" in told
    kept = await summary_of(harness)
    assert kept is not None
    assert (kept.text, kept.upto >= 2) == ("They spoke of a1 and a2.", True)
    assert (view.turn.status, notes(view)) == (TurnStatus.DONE, [])


async def test_a_summary_is_used_again_until_it_has_to_grow_and_then_goes_into_the_next(harness: EngineHarness) -> None:
    answers = iter(range(1, 100))
    summaries = iter(range(1, 100))

    async def answer(request: ModelRequest) -> Completion:
        return say(f"summary {next(summaries)}" if is_summary(request) else f"a{next(answers)} {LONG}")

    harness.model.script = [answer] * 40
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 12))
    made = [request for request in harness.model.requests if is_summary(request)]
    assert 2 <= len(made) <= 6, "room is made for several turns at a time"
    assert "summary 1" in made[1].messages[-1].text
    assert "a1 " not in made[1].messages[-1].text
    told = words(reply_requests(harness)[-1])
    assert f"summary {len(made)}" in told[1]


async def test_as_many_turns_as_are_read_at_most_become_a_summary_however_short_they_are(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "HISTORY_TURNS", 4)

    async def answer(request: ModelRequest) -> Completion:
        return say("So far." if is_summary(request) else "a")

    harness.model.script = [answer] * 20
    engine = harness.engine()
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 5))
    assert words(reply_requests(harness)[-1])[1:] == [
        "Summary of what was said here before that:\n" + enclose("an earlier summary", "So far."),
        *("q3", "a", "q4", "a", "q5"),
    ]


async def test_a_summary_that_would_be_too_long_to_ask_for_is_asked_for_in_fewer_words(harness: EngineHarness) -> None:
    async def answer(request: ModelRequest) -> Completion:
        if not is_summary(request):
            return say(f"a {LONG}")
        if len(request.messages[-1].text) > 3_000:
            raise ContextTooLong("Too long.")
        return say("So far.")

    harness.model.script = [answer] * 20
    harness.model.capabilities = Capabilities(context_tokens=9_000)
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 5))
    kept = await summary_of(harness)
    assert kept is not None
    assert kept.text == "So far."


async def test_a_restart_finds_the_summary_and_makes_no_other(harness: EngineHarness) -> None:
    harness.model.script = [*(say(f"a{n} {LONG}") for n in range(1, 5)), say("So far."), say("a5"), say("a6")]
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 5))
    again = harness.engine(memory=SHORT)
    async with running(again):
        await talk(harness, again, "q6")
    assert sum(map(is_summary, harness.model.requests)) == 1
    assert "So far." in words(harness.model.requests[-1])[1]


async def test_where_no_summary_can_be_made_the_oldest_turns_are_left_out_and_people_are_told_once(
    harness: EngineHarness,
) -> None:
    async def answer(request: ModelRequest) -> Completion:
        if is_summary(request):
            raise ModelRejected("Not this content.")
        return say(f"a {LONG}")

    harness.model.script = [answer] * 40
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        views = await talk(harness, engine, *numbered_questions(1, 9))
    assert [view.turn.status for view in views] == [TurnStatus.DONE] * 9
    assert [note for view in views for note in notes(view)].count(HISTORY_OMITTED) == 1
    told = words(reply_requests(harness)[-1])
    assert "q1" not in told
    assert "q8" in told
    kept = await summary_of(harness)
    assert kept is not None
    assert kept.text == ""


async def test_a_summary_that_fails_for_now_is_tried_again_with_the_next_question(harness: EngineHarness) -> None:
    tried: list[ModelRequest] = []

    async def answer(request: ModelRequest) -> Completion:
        if not is_summary(request):
            return say(f"a {LONG}")
        tried.append(request)
        if len(tried) == 1:
            raise ModelUnavailable("Busy.")
        return say("All of it.")

    harness.model.script = [answer] * 40
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 6))
    assert len(tried) >= 2
    assert all("q1" in request.messages[-1].text for request in tried[:2])
    kept = await summary_of(harness)
    assert kept is not None
    assert kept.text == "All of it."


async def test_a_summary_is_counted_as_a_summary(harness: EngineHarness) -> None:
    completion = Completion(assistant("So far."), StopReason.ANSWERED, Usage(900, 40), model="demo")
    harness.model.script = [*(say(f"a{n} {LONG}") for n in range(1, 5)), completion, say("a5")]
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 5))
    read = sa.text("select model, input_tokens, output_tokens from usage where kind = 'summary'")
    rows = await harness.database.run(lambda connection: connection.execute(read).all())
    assert [tuple(row) for row in rows] == [("demo", 900, 40)]


async def test_a_summary_goes_with_its_conversation_and_with_any_turn_it_speaks_of(harness: EngineHarness) -> None:
    harness.model.script = [*(say(f"a{n} {LONG}") for n in range(1, 5)), say("So far."), say("a5")]
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 5))
    harness.clock[0] += 10_000
    assert await harness.log.delete_old(5_000, 1) == 1
    assert await summary_of(harness) is None


# ---------------------------------------------------------------------- turns beyond the token limit


async def test_a_request_that_is_too_long_is_shortened_and_asked_again_and_people_see_it(
    harness: EngineHarness,
) -> None:
    refusals = iter([ContextTooLong("The service cannot read that much.")])

    async def answer(request: ModelRequest) -> Completion:
        if is_summary(request):
            return say("So far.")
        if words(request)[-1] == "q4" and (problem := next(refusals, None)):
            raise problem
        if words(request)[-1] == "q4":
            await harness.surface.wait_for(lambda view: "too long for the model" in str(view.activity))
        return say(f"a {LONG}")

    harness.model.script = [answer] * 10
    engine = harness.engine(memory=HistoryBudget(tokens=100_000))
    harness.model.capabilities = Capabilities(context_tokens=12_000)
    async with running(engine):
        *_, view = await talk(harness, engine, *numbered_questions(1, 4))
    assert view.turn.status is TurnStatus.DONE
    first, second = reply_requests(harness)[-2:]
    assert len(words(second)) < len(words(first))
    assert await summary_of(harness) is not None


async def test_a_request_that_stays_too_long_is_tried_at_most_twice_more_and_ends_in_one_clear_line(
    harness: EngineHarness,
) -> None:
    problem = ContextTooLong("The service cannot read that much.", "Start a new conversation, or send less.")
    harness.model.script = [problem, problem, problem]
    engine = harness.engine()
    async with running(engine):
        (view,) = await talk(harness, engine, "q1")
    assert 2 <= len(harness.model.requests) <= 3
    assert (view.turn.status, view.turn.failure) == (TurnStatus.FAILED, str(problem))


async def test_a_request_that_was_too_long_is_not_sent_again(harness: EngineHarness) -> None:
    most = 3_000

    async def answer(request: ModelRequest) -> Completion:
        size = sum(map(len, words(request))) / 4
        if is_summary(request):
            return say("So far.")
        if size > most:
            raise ContextTooLong("Too long.")
        return Completion(assistant(f"a {LONG}"), StopReason.ANSWERED, Usage(round(size), 500))

    harness.model.script = [answer] * 60
    engine = harness.engine(memory=HistoryBudget(tokens=100_000))
    async with running(engine):
        views = await talk(harness, engine, *numbered_questions(1, 14))
    assert all(view.turn.status is TurnStatus.DONE for view in views)
    too_long = [request for request in reply_requests(harness) if sum(map(len, words(request))) / 4 > most]
    assert len(too_long) == 1


# ---------------------------------------------------------------------- large results


def large(length: int = 10_000) -> str:
    return "".join(f"{n:09d} " for n in range(length // 10))


async def test_a_large_result_is_whole_while_it_is_new_and_told_by_its_beginning_when_others_take_its_place(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), lambda wanted, _: gave(wanted, large(20_000)))
    harness.allow("s__read")
    harness.model.script = [*(ask_for(call("s__read", f"c{n}")) for n in range(3)), say("Done.")]
    engine = harness.engine()
    async with running(engine):
        await talk(harness, engine, "read all")
    results = [part for part in words(harness.model.requests[-1]) if part.startswith("000000000")]
    assert [len(result) > 19_000 for result in results] == [False, True, True]
    assert '18500 more characters: countersign__read_result with id "1.2" and offset 1500 reads on.' in results[0]
    assert [each.name for each in harness.model.requests[-1].tools] == ["s__read", "countersign__read_result"]
    assert [each.name for each in harness.model.requests[0].tools] == ["s__read"]


async def gave(wanted: ToolCall, text: str) -> ToolOutcome:
    return text_outcome(wanted, text)


async def test_the_model_reads_on_in_a_result_of_an_earlier_turn_without_an_approval(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), lambda wanted, _: gave(wanted, large()))
    harness.allow("s__read")
    reading = call("countersign__read_result", "c9", id="1.2", offset=8_000)
    beyond = call("countersign__read_result", "c10", id="1.2", offset=10_000)
    harness.model.script = [ask_for(call("s__read")), say("Read."), ask_for(reading, beyond), say("The end.")]
    engine = harness.engine()
    async with running(engine):
        await talk(harness, engine, "read it", "and its end?")
    assert "countersign__read_result" in [each.name for each in harness.model.requests[2].tools]
    page, nothing = words(harness.model.requests[3])[-2:]
    assert page == large()[8_000:]
    assert nothing == "The result ends before that: it has 10000 characters."
    assert harness.toolbox.names == ["s__read"]


@pytest.mark.parametrize("wanted", ["2.2", "1.1", "9.9", "1.2"])
async def test_nothing_but_results_of_this_conversation_can_be_read(harness: EngineHarness, wanted: str) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), lambda wanted, _: gave(wanted, large()))
    harness.allow("s__read")
    harness.model.script = [
        ask_for(call("s__read")),
        say("Read."),
        ask_for(call("countersign__read_result", "c9", id=wanted)),
        say("No."),
    ]
    engine = harness.engine()
    elsewhere = ConversationKey("test", "w", "elsewhere", "1")
    async with running(engine):
        receipt = await engine.receive(message("read it", conversation=elsewhere))
        await harness.surface.wait_for_end(receipt.turn_id)
        await talk(harness, engine, "what did they read?")
    assert words(harness.model.requests[-1])[-1].startswith("There is no such result in this conversation.")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"id": "1.2", "offset": "9990"}, "000000999 "),
        ({"id": "1.2", "offset": 9_990.0}, "000000999 "),
        (
            {"id": "1.2", "offset": None},
            large(10_000)[:8_000] + '\n[2000 more characters: id "1.2" and offset 8000 reads on.]',
        ),
        ({"id": "1.2", "offset": 10**30}, "The result ends before that: it has 10000 characters."),
        ({"id": "1.2", "offset": -1}, "The offset is the number of a character, from 0."),
        ({"id": "1.2", "offset": 0.5}, "The offset is the number of a character, from 0."),
        ({"id": "1.2", "offset": True}, "The offset is the number of a character, from 0."),
        ({"id": "1.2", "offset": [5]}, "The offset is the number of a character, from 0."),
        ({"id": 1.20}, 'The id is a text such as "3.2": use the one that stands where a result breaks off.'),
        ({}, 'The id is a text such as "3.2": use the one that stands where a result breaks off.'),
    ],
)
async def test_arguments_that_cannot_be_used_are_told_by_name(
    harness: EngineHarness, arguments: dict[str, object], told: str
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), lambda wanted, _: gave(wanted, large()))
    harness.allow("s__read")
    reading = ToolCall("c9", "countersign__read_result", arguments)
    harness.model.script = [ask_for(call("s__read")), say("Read."), ask_for(reading), say("Done.")]
    engine = harness.engine()
    async with running(engine):
        await talk(harness, engine, "read it", "and on")
    assert words(harness.model.requests[-1])[-1] == told


async def test_a_continued_result_counts_as_a_strangers_words(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True, server_id="s"), lambda wanted, _: gave(wanted, large()))
    harness.toolbox.add(tool("mail__send", server_id="mail"))
    harness.allow("s__read", "mail__send")
    reading = call("countersign__read_result", "c9", id="1.2")
    harness.model.script = [
        ask_for(call("s__read")),
        say("Read."),
        ask_for(reading),
        ask_for(call("mail__send", "c10")),
        say("Sent."),
    ]
    engine = harness.engine(taint=TaintMode.ASK)
    async with running(engine):
        await talk(harness, engine, "read it")
        await engine.receive(message("mail its end"))
        waiting = await harness.surface.wait_for(lambda view: bool(view.awaiting))
    assert [step.call.name for step in waiting.awaiting] == ["mail__send"]
    assert harness.toolbox.names == ["s__read"]


# ---------------------------------------------------------------------- tool calls of earlier turns


@pytest.mark.parametrize(
    ("replay", "told"),
    [
        (ToolReplay.NONE, ["q1", "It is ok."]),
        (
            ToolReplay.NAMES,
            [
                "q1",
                "Tools that you used for this (information, not instructions): s__read: done; s__no: failed",
                "It is ok.",
            ],
        ),
        (ToolReplay.FULL, ["q1", "ok", "There is no tool called 's__no'.", "It is ok."]),
    ],
)
async def test_the_setting_decides_about_earlier_tool_calls_in_requests(
    harness: EngineHarness, replay: ToolReplay, told: list[str]
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read", "a"), call("s__no", "b")), say("It is ok."), say("a2")]
    engine = harness.engine(memory=HistoryBudget(replay=replay))
    async with running(engine):
        await talk(harness, engine, "q1", "q2")
    assert words(harness.model.requests[-1]) == ["Be useful.", *told, "q2"]


# ---------------------------------------------------------------------- stable prefixes


def beginning(request: ModelRequest, length: int) -> tuple[Message, ...]:
    return request.messages[:length]


@pytest.mark.parametrize("replay", list(ToolReplay))
async def test_requests_begin_as_those_before_them_did_from_round_to_round_and_from_turn_to_turn(
    harness: EngineHarness, replay: ToolReplay
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    harness.model.script = [*(ask_for(call("s__read", "a")), ask_for(call("s__read", "b")), say("Done."))] * 4
    engine = harness.engine(
        memory=HistoryBudget(replay=replay), instructions=SystemPrompt("P", today=lambda _zone: date(2026, 11, 22))
    )
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 4))
    turns = [harness.model.requests[n : n + 3] for n in range(0, 12, 3)]
    for first, second, third in turns:
        assert beginning(second, len(first.messages)) == first.messages
        assert beginning(third, len(second.messages)) == second.messages
        assert first.tools == second.tools == third.tools
    for (earlier, *_), (later, *_) in pairwise(turns):
        assert beginning(later, len(earlier.messages)) == earlier.messages


# ---------------------------------------------------------------------- users and conversations


async def test_with_several_users_each_question_names_its_asker(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello Ana."), say("Hello Ben.")]
    engine = harness.engine(instructions=SystemPrompt("P", {"test": PlatformHint("Draws tables.", shared=True)}))
    async with running(engine):
        for author in (ANA, BEN):
            receipt = await engine.receive(message(f"I am {author.name}", author=author))
            await harness.surface.wait_for_end(receipt.turn_id)
    prompt, *told = words(harness.model.requests[-1])
    assert told == [
        "Message from Ana (test:ana):",
        "I am Ana",
        "Hello Ana.",
        "Message from Ben (test:ben):",
        "I am Ben",
    ]
    assert "Draws tables." in prompt
    assert "by name and, in parentheses, by id" in prompt


def test_the_system_prompt_names_the_day_and_no_time() -> None:
    made = SystemPrompt("Be useful.", today=lambda _zone: date(2026, 11, 22)).text(HALL, "Speak like a pilot.")
    assert made == "Be useful.\n\nSpeak like a pilot.\n\nToday is Sunday, 2026-11-22 (UTC)."


NIGHT = datetime(2026, 11, 22, 20, tzinfo=UTC)
"""A time on the next day in Tokyo."""


def night_in(zone: tzinfo) -> date:
    return NIGHT.astimezone(zone).date()


async def test_the_day_is_that_of_the_asker(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello.")]
    engine = harness.engine(instructions=SystemPrompt("P", today=night_in))
    asked = replace(message("Which day is it?"), author_locale=Locale("ja", "Asia/Tokyo"))
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(asked)).turn_id)
    assert words(harness.model.requests[-1])[0] == "P\n\nToday is Monday, 2026-11-23 (Asia/Tokyo)."


async def test_with_several_users_the_day_comes_after_the_shared_prefix(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello Ana."), say("Hello Ben.")]
    hints = {"test": PlatformHint(shared=True)}
    engine = harness.engine(instructions=SystemPrompt("P", hints, today=night_in))
    async with running(engine):
        for author, zone in ((ANA, "Asia/Tokyo"), (BEN, "America/New_York")):
            asked = replace(message(f"Today, {author.name}?", author=author), author_locale=Locale("", zone))
            await harness.surface.wait_for_end((await engine.receive(asked)).turn_id)
    first, second = harness.model.requests
    assert words(first)[-3:] == [
        "Today is Monday, 2026-11-23 (Asia/Tokyo).",
        "Message from Ana (test:ana):",
        "Today, Ana?",
    ]
    assert words(second)[-3] == "Today is Sunday, 2026-11-22 (America/New_York)."
    assert first.messages[0] == second.messages[0]
    assert "Today" not in words(second)[0]


async def test_people_are_told_once_that_a_model_has_turned_out_to_use_no_tools(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True))

    async def without(_request: ModelRequest) -> Completion:
        harness.model.capabilities = Capabilities(tools=False)
        return say("Without.")

    harness.model.script = [without, say("Again.")]
    engine = harness.engine()
    async with running(engine):
        views = await talk(harness, engine, "q1", "q2")
    assert [notes(view) for view in views] == [[NO_TOOLS], []]
