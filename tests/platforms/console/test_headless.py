"""One input and pipes: texts of stdout and stderr, and the exit code."""

from __future__ import annotations

import asyncio
import errno
import io
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import DecisionType, MoreApprovalsNeeded, NotAllowed, ViewRequired
from bot.domain.commands import Reply, Table
from bot.domain.messages import assistant, explained_failure
from bot.domain.turns import ModelRetry, ModelStep, StepStatus, ToolRef, TurnStatus, TurnView
from bot.errors import DatabaseHeld
from bot.folders import shell_command
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import Streams
from bot.platforms.console.headless import HeadlessChat, unnamed_approvers
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.plain_output import JsonLines
from bot.platforms.console.turn_tracker import StartState
from tests.platforms.console.chat import chatting, now
from tests.platforms.console.scripted_engine import (
    Saved,
    Script,
    ScriptedCommands,
    ScriptedEngine,
    ScriptedTurn,
    a_call,
    a_turn,
    an_approval,
    asking,
    ending,
)
from tests.turn_events import check_event, reply_texts


@dataclass
class Process:
    """A running chat without a terminal."""

    chat: HeadlessChat
    engine: ScriptedEngine
    streams: Streams
    task: asyncio.Task[int]

    async def code(self) -> int:
        async with asyncio.timeout(10):
            return await self.task

    @property
    def out(self) -> str:
        assert isinstance(self.streams.stdout, io.StringIO)
        return self.streams.stdout.getvalue()

    @property
    def err(self) -> str:
        assert isinstance(self.streams.stderr, io.StringIO)
        return self.streams.stderr.getvalue()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Output lines as events, checked against the published schema."""
        events = [json.loads(line) for line in self.out.splitlines()]
        assert all(map(check_event, events))
        return events


@asynccontextmanager
async def process(
    question: str | None,
    scripts: dict[str, Script] | None = None,
    *,
    stdin: str = "",
    approve: ApproveMode = ApproveMode.ASK,
    json: bool = False,
    commands: ScriptedCommands | None = None,
    opening: asyncio.Future[StartState] | None = None,
    engine: ScriptedEngine | None = None,
    stdout: io.StringIO | None = None,
) -> AsyncIterator[Process]:
    streams = Streams(io.StringIO(stdin), stdout or io.StringIO(), io.StringIO(), {})
    person = LocalUser("ana")
    chat = HeadlessChat(question, person, streams, approve=approve, as_json=json)
    scripted = engine or ScriptedEngine(scripts)
    scripted.surface = chat.surface
    running = chat.run(now(scripted), now(commands or ScriptedCommands()), opening or now(StartState("c1")))
    task = asyncio.create_task(running)
    try:
        yield Process(chat, scripted, streams, task)
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await scripted.close()


async def works(turn: ScriptedTurn) -> None:
    await turn.stream("Let me ", "Let me look.")
    await turn.say("Let me look.")
    n = await turn.call(StepStatus.STARTED, tool=ToolRef("weather", "forecast"))
    await turn.update(n, status=StepStatus.DONE, result="Sunny\x1b[31m")
    await turn.stream("It is", "It is \x1b[1msunny")
    await turn.end("It is \x1b[1msunny.")


asks = asking("Done with it.")


fails = ending(status=TurnStatus.FAILED, failure="The model is not reachable.")


async def forever(turn: ScriptedTurn) -> None:
    await turn.stream("Thinking")
    await asyncio.Event().wait()


async def test_the_answer_goes_to_standard_output_and_everything_else_to_standard_error() -> None:
    async with process("go", {"go": works}) as running:
        assert await running.code() == 0
        assert running.out == "Let me look.\n\nIt is sunny.\n"
        assert running.err.splitlines() == ["  ◌ weather.forecast  running", "  ✓ weather.forecast  Sunny"] or (
            running.err.splitlines() == ["  o weather.forecast  running", "  + weather.forecast  Sunny"]
        )


async def test_each_time_the_model_is_asked_again_is_told_on_standard_error() -> None:
    again = ModelRetry(20, "The service is overloaded (529).")

    async def waits(turn: ScriptedTurn) -> None:
        for activity in ("Thinking", again, again, "Thinking", again):
            await turn.show(activity=activity)
        await turn.end("There it is.")

    async with process("go", {"go": waits}) as running:
        assert await running.code() == 0
        assert (running.out, running.err) == ("There it is.\n", f"  {again}\n" * 2)


async def test_each_time_the_model_is_asked_again_is_an_event() -> None:
    pauses = [ModelRetry(20, "The service is overloaded (529).\nSorry."), ModelRetry(2, "It is away.")]

    async def waits(turn: ScriptedTurn) -> None:
        for activity in ("Thinking", pauses[0], pauses[0], "Thinking", pauses[0], "Thinking", pauses[1]):
            await turn.show(activity=activity)
        await turn.end("There it is.")

    async with process("go", {"go": waits}, json=True) as running:
        assert await running.code() == 0
        about = {"responseId": "t1", "conversationId": "c1"}
        assert [event["data"] for event in running.events if event["event"] == "model_retry"] == [
            {**about, "seconds": pause.seconds, "reason": pause.reason} for pause in (pauses[0], *pauses)
        ]


async def test_a_failed_turn_is_exit_code_1_and_its_reason() -> None:
    async with process("go", {"go": fails}) as running:
        assert await running.code() == 1
        assert (running.out, running.err) == ("", "  The model is not reachable.\n")


async def test_an_engine_that_cannot_be_had_is_one_line_and_exit_code_1() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    opening.set_exception(DatabaseHeld("Another chat uses this database.", "Close it."))
    async with process("go", opening=opening) as running:
        assert await running.code() == 1
        assert running.err == "countersign: Another chat uses this database. Fix: Close it.\n"


async def test_ctrl_c_stops_the_turn_and_is_exit_code_130() -> None:
    async with process("go", {"go": forever}) as running:
        async with asyncio.timeout(10):
            while "Thinking" not in running.out:
                await asyncio.sleep(0)
        running.chat.interrupt()
        assert await running.code() == 130
        assert running.engine.stops == ["t1"]
        assert "Stopped." in running.err


@pytest.mark.parametrize("mode", [ApproveMode.ASK, ApproveMode.NEVER])
async def test_without_a_terminal_an_approval_is_denied_with_a_fix(mode: ApproveMode) -> None:
    async with process("go", {"go": asks}, approve=mode) as running:
        assert await running.code() == 3
        (decision,) = running.engine.decisions
        assert (decision.type, decision.is_automatic) == (DecisionType.DENY, True)
        assert "Add note “Buy milk” (notes)?" in running.err
        assert "notes.add_note  not approved, not run" in running.err
        assert "--approve all" in running.err
        assert running.out == "Done with it.\n"


async def test_reads_approves_only_reads() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.ask(an_approval("one"), tool=ToolRef("notes", "list", read_only=True, destructive=False))
        await turn.ask(an_approval("two"))
        await turn.end("ok")

    async with process("go", {"go": script}, approve=ApproveMode.READS) as running:
        assert await running.code() == 3
        verdicts = {decision.approval_id: decision.type for decision in running.engine.decisions}
        assert verdicts == {"one": DecisionType.APPROVE, "two": DecisionType.DENY}


async def test_all_approves_and_denies_with_the_reason_where_that_is_refused() -> None:
    async with process("go", {"go": asks}, approve=ApproveMode.ALL) as running:
        running.engine.answers = [NotAllowed("Somebody else must approve this.")]
        assert await running.code() == 3
        verdicts = [decision.type for decision in running.engine.decisions]
        assert verdicts == [DecisionType.APPROVE, DecisionType.DENY]
        assert "Somebody else must approve this." in running.err


async def test_all_denies_with_the_reason_a_call_that_has_to_be_read_in_private() -> None:
    async with process("go", {"go": asks}, approve=ApproveMode.ALL) as running:
        running.engine.answers = [ViewRequired()]
        assert await running.code() == 3
        assert [decision.type for decision in running.engine.decisions] == [DecisionType.APPROVE, DecisionType.DENY]
        assert "could not be approved: Part of it looks like a secret" in running.err
        assert running.engine.decisions[-1].reason.startswith("Part of it looks like a secret")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"url": "https://g\u043e\u043egle.com/x"}, "mixes alphabets: Cyrillic, Latin."),
        ({"text": {"inner": ["rm \u202e/vrs"]}}, "1 character (U+202E) changes the order"),
        ({"pa\u200bth": "a"}, "1 invisible character (U+200B)."),
        ({"path": "a", "Path": "b"}, "can be taken for one another"),
        ({"text": "\u2022\u2022\u2022\u2022"}, "Imitates a hidden part."),
    ],
)
@pytest.mark.parametrize("mode", [ApproveMode.ALL, ApproveMode.READS])
async def test_a_rule_approves_nothing_that_can_deceive_a_reader(
    arguments: dict[str, Any], why: str, mode: ApproveMode
) -> None:
    reading = ToolRef("notes", "list", read_only=True, destructive=False)

    async with process("go", {"go": asking(tool=reading, arguments=arguments)}, approve=mode) as running:
        assert await running.code() == 3
        (decision,) = running.engine.decisions
        assert decision.type is DecisionType.DENY
        assert "Part of it can deceive a reader" in decision.reason
        assert why in decision.reason
        assert "could not be approved: Part of it can deceive a reader" in running.err


async def test_a_rule_approves_ordinary_texts_of_any_shape() -> None:
    script = asking(arguments={"text": "    return 1\n\n\n", "name": "\u0442\u0435\u0441\u0442.txt"})

    async with process("go", {"go": script}, approve=ApproveMode.ALL) as running:
        assert await running.code() == 0
        assert [decision.type for decision in running.engine.decisions] == [DecisionType.APPROVE]


async def test_every_line_of_a_pipe_is_a_message_and_the_worst_code_counts() -> None:
    async with process(None, {"bad": fails}, stdin="one\n\nbad\n/hlep\ntwo") as running:
        assert await running.code() == 1
        assert running.out == "You said: one\n\nYou said: two\n"
        assert "There is no /hlep. Did you mean /help?" in running.err
        assert [message.text for message in running.engine.received] == ["one", "bad", "two"]


async def test_of_several_codes_a_failure_is_worse_than_a_missing_approval() -> None:
    fails = ending(status=TurnStatus.FAILED, failure="No.")

    async with process(None, {"go": asks, "bad": fails}, stdin="go\nbad\nhello") as running:
        assert await running.code() == 1
    async with process(None, {"go": asks}, stdin="go\nhello") as running:
        assert await running.code() == 3


UNREVIEWED = explained_failure("call-0", "Not run: an admin has to review it first.", unreviewed=True)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"status": StepStatus.EXPIRED, "approval": an_approval()}, 3),
        ({"status": StepStatus.DENIED}, 0),
        ({"status": StepStatus.FAILED, "result": UNREVIEWED}, 3),
    ],
    ids=["expired", "forbidden by a policy", "waits for a review"],
)
async def test_a_call_that_lacks_an_approval_or_a_review_is_exit_code_3(call: dict[str, Any], code: int) -> None:
    async def script(turn: ScriptedTurn) -> None:
        turn.steps.append(replace(a_call(0, StepStatus.DONE), **call))
        await turn.end("It was not run.")

    async with process("go", {"go": script}) as running:
        assert await running.code() == code


async def test_open_continues_another_conversation_of_a_pipe() -> None:
    opening = now(StartState("c1", saved=Saved(c7="before")))
    async with process(None, stdin="/open c7\nhello\n/open c9\n", opening=opening) as running:
        assert await running.code() == 1
        assert [message.conversation.thread for message in running.engine.received] == ["c7"]
        assert "You have no conversation c9. Fix: /conversations list shows the ids" in running.err


async def test_commands_to_type_in_a_shell_have_the_path_of_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv/bin/countersign"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    fix = ("fix", "see `countersign doctor`")
    commands = ScriptedCommands(Reply("Run `countersign servers connect notes`.", details=(fix,)))
    async with process("/mcp", commands=commands) as running:
        assert await running.code() == 0
        assert (
            running.out
            == "Run `.venv/bin/countersign servers connect notes`.\n\nfix: see `.venv/bin/countersign doctor`\n"
        )
    async with process("go", {"go": asks}) as running:
        assert await running.code() == 3
        assert "Approve it in a terminal (.venv/bin/countersign chat)" in running.err
    async with chatting(commands=commands, size=(100, 24)) as chat:
        await chat.type("/mcp", ".venv/bin/countersign servers connect notes", ".venv/bin/countersign doctor")


async def test_a_turn_that_waits_for_another_approver_is_left_with_exit_code_3() -> None:
    async with process(None, {"go": asks}, stdin="go\nhello", approve=ApproveMode.ALL) as running:
        running.engine.answers = [MoreApprovalsNeeded(1)]
        assert await running.code() == 3
        assert [decision.type for decision in running.engine.decisions] == [DecisionType.APPROVE]
        assert [message.text for message in running.engine.received] == ["go"], "hello would wait behind it"
        assert f"It waits for an approval: {shell_command('chat --conversation c1')}" in running.err
        assert running.engine.stops == []


class HungUp(io.StringIO):
    """A pipe without a reader."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


async def test_when_the_reader_has_gone_nothing_more_is_asked() -> None:
    async with process(None, stdin="one\ntwo\nthree", stdout=HungUp()) as running:
        assert await running.code() == 1
        assert [message.text for message in running.engine.received] == ["one"]


async def test_when_the_reader_goes_in_the_middle_of_an_answer_the_turn_is_stopped() -> None:
    async with process("go", {"go": forever}, stdout=HungUp()) as running:
        assert await running.code() == 1
        assert running.engine.stops == ["t1"]


async def test_when_the_reader_of_a_table_has_gone_it_is_no_crash() -> None:
    async with process("/mcp list", commands=ScriptedCommands(Reply("none")), stdout=HungUp()) as running:
        assert await running.code() == 1


async def test_lines_are_read_from_a_real_pipe_as_they_come() -> None:
    reading, writing = os.pipe()
    engine = ScriptedEngine()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as ours:
        streams = Streams(stdin, io.StringIO(), io.StringIO(), {})
        chat = HeadlessChat(None, LocalUser("ana"), streams)
        engine.surface = chat.surface
        run = chat.run(now(engine), now(ScriptedCommands()), now(StartState("c1")))
        task = asyncio.create_task(run)
        ours.write("one\n")
        ours.flush()
        async with asyncio.timeout(10):
            while not engine.received:
                await asyncio.sleep(0)
            ours.write("quit\n")
            ours.flush()
            assert await task == 0
    await engine.close()


async def test_commands_work_in_a_pipe() -> None:
    reply = Reply("Two servers", Table(("name", "state"), (("notes", "on"), ("weather", "off"))), (("file", "x"),))
    async with process("/mcp list", commands=ScriptedCommands(reply)) as running:
        assert await running.code() == 0
        assert running.out == "Two servers\n\nname     state\nnotes    on\nweather  off\n\nfile: x\n"


async def test_json_is_one_event_a_line() -> None:
    async with process("go", {"go": asks}, json=True) as running:
        assert await running.code() == 3
        assert [event["event"] for event in running.events] == [
            "init",
            "tool_call_update",
            "approval_required",
            "tool_call_update",
            "conversation_status",
            "message",
            "conversation_status",
            "done",
        ]
        assert all(line.keys() == {"event", "data"} for line in running.events)
        denied = next(event["data"] for event in reversed(running.events) if event["event"] == "tool_call_update")
        assert (denied["status"], denied["decidedBy"]) == ("DENIED", "")
        assert denied["reason"] == "No terminal was open to approve it."
        done = running.events[-1]["data"]
        assert (done["status"], done["text"], done["conversationId"]) == ("COMPLETED", "Done with it.", "c1")


@pytest.mark.parametrize("failed", [False, True])
async def test_the_reply_to_a_command_is_a_line_of_json(failed: bool) -> None:
    table = Table(("server",), (("notes",),))
    commands = ScriptedCommands(Reply("Servers\u202e", table, (("fix", "a"), ("fix", "b")), failed))
    async with process("/mcp list", commands=commands, json=True) as running:
        assert await running.code() == int(failed)
        [line] = running.out.splitlines()
        event = json.loads(line)
        assert event["event"] == "reply"
        assert event["data"]["text"] == "Servers\u202e"
        assert event["data"]["rows"] == [{"server": "notes"}]
        assert event["data"]["details"] == {"fix": "a\nb"}
    async with process("/help", json=True) as running:
        assert await running.code() == 0
        assert json.loads(running.out)["data"]["text"].startswith("/help")


async def test_json_grows_with_the_answer_and_not_with_its_square() -> None:
    text = "The weather is fine. " * 500

    async def writes(turn: ScriptedTurn) -> None:
        await turn.stream(*(text[:length] for length in range(1, len(text), 20)))
        await turn.end(text)

    async with process("go", {"go": writes}, json=True) as running:
        assert await running.code() == 0
        pieces = [event["data"] for event in running.events if event["event"] == "message"]
        assert sum(len(piece["delta"]) for piece in pieces) == len(text)
        assert len(running.out) < 6 * len(text), "the pieces, the reply, and the response at the end"


@given(
    replies=st.lists(
        st.tuples(st.lists(st.tuples(st.text(max_size=8), st.booleans()), max_size=6), st.text(max_size=20)), max_size=3
    ),
    seconds=st.sampled_from([0, 0.04, 1]),
)
def test_the_pieces_of_a_reply_joined_are_its_final_text(
    replies: list[tuple[list[tuple[str, bool]], str]], seconds: float
) -> None:
    """Replies arrive in pieces, may restart and may be cut off."""
    out = io.StringIO()
    clock = itertools.count(0, seconds).__next__
    lines = JsonLines(out, io.StringIO(), ConsoleTheme(colour=False, unicode=True), unnamed_approvers, clock)
    steps: list[ModelStep] = []
    for n, (pieces, text) in enumerate(replies, start=1):
        written = ""
        for piece, begins_anew in pieces:
            written = piece if begins_anew else written + piece
            lines.append_own(TurnView(a_turn(), tuple(steps), n, streaming=written))
        steps.append(ModelStep(n, assistant(text)))
        lines.append_own(TurnView(a_turn(), tuple(steps), n))
    lines.append_own(TurnView(a_turn(status=TurnStatus.DONE), tuple(steps), len(steps) + 1))
    events = [check_event(json.loads(line)) for line in out.getvalue().splitlines()]
    final = {f"t1:{n}": text for n, (_, text) in enumerate(replies, start=1)}
    assert all(final[n] == text for n, text in reply_texts(events).items())
    assert {n: text for n, text in final.items() if text} == {
        n: text for n, text in reply_texts(events).items() if text
    }
    contents = {event["data"]["id"]: event["data"]["content"] for event in events if "content" in event["data"]}
    assert all(final[n] == text for n, text in contents.items())
    assert events[-1]["data"]["text"] == (replies[-1][1] if replies else "")


async def test_answers_to_other_turns_go_to_standard_error_once() -> None:
    async with process("go", {"go": forever}) as running:
        view = TurnView(
            a_turn("old", "earlier", "c0", status=TurnStatus.DONE), (ModelStep(0, assistant("Late answer.")),), 1
        )
        for _ in range(2):
            async for _drawn in running.chat.surface.deliver(view, {}):
                pass
        assert running.err.count("Late answer.") == 1
        assert "While you were away (conversation c0): earlier" in running.err
        assert "Late answer." not in running.out


async def test_a_turn_that_another_process_showed_to_its_end_is_not_shown_again() -> None:
    async with process("go", {"go": forever}) as running:
        view = TurnView(a_turn("old", "q", "c0", status=TurnStatus.DONE), (ModelStep(0, assistant("Old.")),), 1)
        drawn = [each async for each in running.chat.surface.deliver(view, {"reply": "complete"})]
        assert [each.ref for each in drawn] == ["complete"]
        assert "Old." not in running.err


async def test_the_approval_of_another_turn_is_left_to_its_person() -> None:
    async with process("go", {"go": forever}, approve=ApproveMode.ALL) as running:
        turn = a_turn("old", "file it", "c0", status=TurnStatus.WAITING)
        view = TurnView(turn, (a_call(0, StepStatus.AWAITING, approval=an_approval()),), 1)
        async for _drawn in running.chat.surface.deliver(view, {}):
            pass
        assert shell_command("chat --conversation c0") in running.err
        assert running.engine.decisions == []
