"""Elicitations without a terminal."""

from __future__ import annotations

import dataclasses
import io

import pytest

from bot.domain.approvals import NotAllowed
from bot.domain.elicitations import CANCELLED, DECLINED, Elicitation, ElicitationAction, ElicitationResult
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.folders import shell_command
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.plain_output import PlainStream
from bot.ports.platform import InvalidValues
from tests.platforms.console.scripted_engine import Script, ScriptedTurn, a_call, a_turn
from tests.platforms.console.test_headless import process
from tests.rendering.turns import a_form, a_link

FIELDS = {
    "title": {"type": "string", "title": "Title"},
    "copies": {"type": "integer", "default": 2},
    "tone": {"type": "string", "oneOf": [{"const": "w", "title": "Warm"}, {"const": "c", "title": "Cold"}]},
}


def asks(elicitation: Elicitation) -> Script:
    """Return the script of a turn with this elicitation, which continues after the answer."""

    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(elicitation,))
        settled = dataclasses.replace(elicitation, reply=await turn.engine.answered.get(), answered_by="ana")
        await turn.update(n, status=StepStatus.DONE, result="ok", elicitations=(settled,))
        await turn.end("Done with it.")

    return script


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("answer title=Milk", ElicitationResult(ElicitationAction.ACCEPT, {"title": "Milk", "copies": 2})),
        (
            "Answer 'title=Buy milk' copies=3 tone=warm",
            ElicitationResult(ElicitationAction.ACCEPT, {"title": "Buy milk", "copies": 3, "tone": "w"}),
        ),
        ('answer {"title": "Milk"}', ElicitationResult(ElicitationAction.ACCEPT, {"title": "Milk"})),
        ("decline", DECLINED),
    ],
)
async def test_a_line_answers_the_question(line: str, reply: ElicitationResult) -> None:
    async with process(None, {"go": asks(a_form(properties=FIELDS))}, stdin=f"go\n{line}\nhello\n") as chat:
        assert await chat.code() == 0
        assert [each for _, each, _ in chat.engine.replied] == [reply]
        assert "notes asks for an answer" in chat.err
        assert "What is it called?" in chat.err
        example = " ".join(("answer", *(f"{name}=…" for name in FIELDS)))
        assert f"It waits for a line: {example}, or decline." in chat.err
        assert chat.out == "Done with it.\n\nYou said: hello\n"


@pytest.mark.parametrize("stdin", ["go\nhello\n", "go\n"])
async def test_a_line_that_is_no_answer_is_a_message_and_the_question_waits_on(stdin: str) -> None:
    async with process(None, {"go": asks(a_form())}, stdin=stdin) as chat:
        assert await chat.code() == 0
        assert [each for _, each, _ in chat.engine.replied] == [CANCELLED]
        assert "notes has a question, and no terminal is open" in chat.err
        assert chat.out.startswith("Done with it.\n")
        assert [each.text for each in chat.engine.received] == stdin.split()


async def test_a_link_is_written_whole_and_a_line_says_that_one_has_been_there() -> None:
    async with process(None, {"go": asks(a_link())}, stdin="go\nanswer\n") as chat:
        assert await chat.code() == 0
        assert "The page is on jira.example.com" in chat.err
        assert "Visit https://jira.example.com/consent?id=7 and" in chat.err
        assert [each for _, each, _ in chat.engine.replied] == [ElicitationResult(ElicitationAction.ACCEPT)]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("answer name=Milk", "One of these, with = and its value: title, copies, tone."),
        ("answer title", "One of these, with = and its value: title, copies, tone."),
        ("answer copies=many", "A whole number, such as 3."),
        ("answer 'title=", "A quote is open."),
        ("answer {title}", "That is no JSON object"),
        ('answer {"title": "a", "title": "b"}', "the name 'title' is there twice"),
    ],
)
async def test_an_unreadable_answer_is_reported_and_the_next_line_counts(line: str, complaint: str) -> None:
    async with process(None, {"go": asks(a_form(properties=FIELDS))}, stdin=f"go\n{line}\ndecline\n") as chat:
        assert await chat.code() == 0
        assert complaint in chat.err
        assert [each for _, each, _ in chat.engine.replied] == [DECLINED]


async def test_an_invalid_answer_is_reported_and_the_next_line_counts() -> None:
    async with process(None, {"go": asks(a_form())}, stdin="go\nanswer title=M\nanswer title=Milk\n") as chat:
        chat.engine.answerings = [InvalidValues((ArgumentError("title", "it is too short"),))]
        assert await chat.code() == 0
        assert "title: it is too short" in chat.err
        assert [each.content for _, each, _ in chat.engine.replied] == [{"title": "M"}, {"title": "Milk"}]


async def test_one_question_waits_for_no_answer() -> None:
    async with process("go", {"go": asks(a_link())}) as chat:
        assert await chat.code() == 0
        assert [each for _, each, _ in chat.engine.replied] == [CANCELLED]
        assert "notes has a question, and no terminal is open" in chat.err
        assert "consent" not in chat.err
        assert chat.out == "Done with it.\n"


async def test_a_question_for_another_user_is_reported() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.ASKING, elicitations=(a_form(),))
        await turn.engine.answered.get()
        await turn.end("Done with it.")

    async with process(None, {"go": script}, stdin="go\ndecline\n") as chat:
        chat.engine.answerings = [NotAllowed("Only Priya can answer this.")]
        assert await chat.code() == 0
        assert "Only Priya can answer this." in chat.err


async def test_a_question_that_goes_away_takes_no_line() -> None:
    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(a_form(),))
        late = a_form(reply=CANCELLED, reason="The question expired without an answer.")
        await turn.update(n, status=StepStatus.FAILED, result="no", elicitations=(late,))
        await turn.end("Done with it.")

    async with process(None, {"go": script}, stdin="go\nhello\n") as chat:
        assert await chat.code() == 0
        assert chat.out == "Done with it.\n\nYou said: hello\n"


async def test_programs_read_the_question_and_its_end() -> None:
    async with process(None, {"go": asks(a_form())}, stdin='go\nanswer {"title": "Milk"}\n', json=True) as chat:
        assert await chat.code() == 0
        asked, settled = (event for event in chat.events if str(event["event"]).startswith("elicitation"))
        assert (asked["event"], asked["data"]["mode"], asked["data"]["message"]) == (
            "elicitation_required",
            "form",
            "What is it called?",
        )
        assert (settled["event"], settled["data"]["action"]) == ("elicitation_settled", "accept")
        assert "Milk" not in str(settled)


def test_a_turn_that_waits_elsewhere_names_the_question() -> None:
    err = io.StringIO()
    stream = PlainStream(io.StringIO(), err, ConsoleTheme(colour=False, unicode=True))
    turn = a_turn(status=TurnStatus.WAITING)
    stream.append_foreign(
        TurnView(turn, (a_call(0, StepStatus.ASKING, elicitations=(a_form(),)),), 1), "While you were away"
    )
    assert f"It waits for an answer: {shell_command('chat --conversation c1')}" in err.getvalue()
