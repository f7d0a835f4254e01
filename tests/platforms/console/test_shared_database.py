"""Several terminals on one database: each serves its open conversation, and does not wait for answers of others."""

from __future__ import annotations

import asyncio
import dataclasses
import io

import pytest

from bot.domain.approvals import DecisionType
from bot.domain.messages import assistant
from bot.domain.turns import ModelStep, StepStatus, TurnStatus, TurnView
from bot.errors import DatabaseUnavailable
from bot.platforms.console import turn_tracker
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import Streams
from bot.platforms.console.headless import HeadlessChat
from bot.platforms.console.interactive import InteractiveChat
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import StartState
from tests.platforms.console.chat import ENVIRON, now
from tests.platforms.console.scripted_engine import (
    Script,
    ScriptedCommands,
    ScriptedEngine,
    ScriptedTurn,
    a_call,
    a_turn,
    an_approval,
    forever,
)
from tests.platforms.console.terminal import LIMIT_SECONDS, PseudoTerminal, prompt_line

ANA = LocalUser("ana")


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_tracker, "POLL_SECONDS", 0.01)


def streams(typed: str = "") -> Streams:
    return Streams(io.StringIO(typed), io.StringIO(), io.StringIO(), {})


def stream_texts(to: Streams) -> tuple[str, str]:
    assert isinstance(to.stdout, io.StringIO)
    assert isinstance(to.stderr, io.StringIO)
    return to.stdout.getvalue(), to.stderr.getvalue()


async def run_to_end(chat: HeadlessChat, engine: ScriptedEngine, opening: StartState) -> int:
    engine.surface = chat.surface
    async with asyncio.timeout(LIMIT_SECONDS):
        code = await chat.run(now(engine), now(ScriptedCommands()), now(opening))
    await engine.close()
    return code


def elsewhere(*steps: ModelStep) -> Script:
    """Return the script of a stored turn that another process runs, without views in this process."""

    async def script(turn: ScriptedTurn) -> None:
        for n in range(1, len(steps) + 1):
            status = TurnStatus.DONE if n == len(steps) else TurnStatus.RUNNING
            turn.revision = n
            turn.turn = dataclasses.replace(turn.turn, status=status)
            turn.steps = list(steps[:n])
            turn.engine.on_disk[turn.turn.id] = turn.view()
            await asyncio.sleep(0)

    return script


async def test_a_terminal_has_the_conversations_that_were_opened_in_it_or_left_by_ended_processes() -> None:
    to = streams("one\n/new\ntwo")
    chat = HeadlessChat(None, ANA, to)
    engine = ScriptedEngine()
    assert chat.surface.key_prefixes == ()
    reaches: list[tuple[str, ...]] = []
    told: list[list[str]] = []
    chat.surface.on_open(lambda keys: told.append([f"{key}:" for key in keys]))

    async def note_prefixes(turn: ScriptedTurn) -> None:
        reaches.append(chat.surface.key_prefixes)
        assert f"{turn.turn.conversation}:" == chat.surface.key_prefixes[-1]
        assert told[-1] == list(chat.surface.key_prefixes)  # other processes know before the first input
        await turn.end("ok")

    engine.scripts = {"one": note_prefixes, "two": note_prefixes}
    assert await run_to_end(chat, engine, StartState("c1", left=["c0"])) == 0
    assert reaches[0] == (f"{ANA.key('c0')}:", f"{ANA.key('c1')}:")
    assert not f"{ANA.key('c10')}:".startswith(reaches[0])
    assert reaches[1][:2] == reaches[0]
    assert len(reaches[1]) == 3


async def test_turns_from_before_a_terminal_opened_are_shown_as_missed() -> None:
    to = streams("go")
    chat = HeadlessChat(None, ANA, to)
    answered = TurnView(a_turn("t0", "earlier", status=TurnStatus.DONE), (ModelStep(0, assistant("Late.")),), 1)
    later = TurnView(a_turn("t9", "later", status=TurnStatus.DONE), (ModelStep(0, assistant("Soon.")),), 1)

    async def beside(turn: ScriptedTurn) -> None:
        for view in (answered, later):
            async for _drawn in chat.surface.deliver(view, {}):
                pass
        await turn.end("ok")

    assert await run_to_end(chat, ScriptedEngine({"go": beside}), StartState("c1", (answered,))) == 0
    assert "While you were away (conversation c1): earlier\nLate.\n" in stream_texts(to)[1]
    assert "From another window: later\nSoon.\n" in stream_texts(to)[1]


async def test_the_answer_to_a_turn_that_another_process_drives_is_shown_here_once() -> None:
    to = streams()
    chat = HeadlessChat("go", ANA, to)
    script = elsewhere(ModelStep(0, assistant("Let me see.")), ModelStep(1, assistant("There.")))
    assert await run_to_end(chat, ScriptedEngine({"go": script}), StartState("c1")) == 0
    assert stream_texts(to) == ("Let me see.\n\nThere.\n", "")


async def test_a_view_older_than_the_shown_one_changes_nothing() -> None:
    to = streams()
    chat = HeadlessChat("go", ANA, to)
    last = TurnView(a_turn("t1", "go", status=TurnStatus.DONE), (ModelStep(0, assistant("There.")),), 5)

    async def late(turn: ScriptedTurn) -> None:
        turn.revision = 3
        await turn.stream("The")  # revision 4
        for revision in (2, 3):
            async for _drawn in chat.surface.deliver(TurnView(turn.turn, (), revision, streaming="Else"), {}):
                pass
        turn.engine.on_disk["t1"] = last

    assert await run_to_end(chat, ScriptedEngine({"go": late}), StartState("c1")) == 0
    assert stream_texts(to) == ("There.\n", "")


async def test_a_database_that_is_away_for_a_moment_is_looked_at_again() -> None:
    class Away(ScriptedEngine):
        tries = 0

        async def view(self, turn_id: str) -> TurnView:
            self.tries += 1
            if self.tries < 3:
                raise DatabaseUnavailable("The database is away.")
            return await super().view(turn_id)

    to = streams()
    chat = HeadlessChat("go", ANA, to)
    engine = Away({"go": elsewhere(ModelStep(0, assistant("There.")))})
    assert await run_to_end(chat, engine, StartState("c1")) == 0
    assert stream_texts(to)[0] == "There.\n"


async def test_a_question_from_another_window_is_told_as_such() -> None:
    async with PseudoTerminal() as terminal:
        chat = InteractiveChat(ANA, Streams(terminal.stdin, terminal.stdout, io.StringIO(), ENVIRON), model="m")
        engine = ScriptedEngine({"go": forever})
        engine.surface = chat.surface
        task = asyncio.create_task(chat.run(now(engine), now(ScriptedCommands()), now(StartState("c1"))))
        try:
            await terminal.prompts()
            terminal.press("go\r")
            await terminal.shows(prompt_line("go"), "Thinking…")
            card = a_call(0, StepStatus.AWAITING, approval=an_approval())
            waits = TurnView(a_turn("x", "and mine?", status=TurnStatus.WAITING), (card,), 1)
            ended = TurnView(a_turn("x", "and mine?", status=TurnStatus.DONE), (ModelStep(0, assistant("Yes.")),), 2)
            for theirs in (waits, ended):
                async for _drawn in chat.surface.deliver(theirs, {}):
                    pass
            await terminal.shows("From another window: and mine?", "Yes.", "Thinking…")
            await terminal.prompts()
            assert "▌" not in terminal.text, "its own window asks for the signature"
        finally:
            task.cancel()
            await asyncio.wait({task})
            await engine.close()


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [(ApproveMode.ASK, []), (ApproveMode.ALL, [DecisionType.APPROVE])],
)
async def test_a_card_that_others_may_see_is_decided_by_the_rule_alone(
    mode: ApproveMode, verdicts: list[DecisionType]
) -> None:
    waiting = TurnView(
        a_turn("t0", "file it", status=TurnStatus.WAITING), (a_call(0, StepStatus.AWAITING, approval=an_approval()),), 1
    )
    decided = asyncio.Event()

    async def after_that(turn: ScriptedTurn) -> None:
        await decided.wait()
        await turn.end("Done.")

    class Noting(ScriptedEngine):
        async def view(self, turn_id: str) -> TurnView:
            if len(self.decisions) == len(verdicts):
                decided.set()
            return await super().view(turn_id)

    to = streams()
    chat = HeadlessChat("go", ANA, to, approve=mode)
    engine = Noting({"go": after_that})
    assert await run_to_end(chat, engine, StartState("c1", (waiting,))) == 0
    assert [decision.type for decision in engine.decisions] == verdicts
