"""What may go wrong in Slack, or be done at the wrong moment: stopped, late, crowded, without this or that feature."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.domain.completions import Completion, ModelRequest
from bot.domain.tools import ToolOutcome
from bot.ports import CallContext
from tests.fakes.parts import ask_for, call, say, tool
from tests.fakes.slack import Channel, Message
from tests.stories.slack_office import Office, an_office

STOPPED = "Okay, I stopped."
CREATE = "jira__create_issue"


def shown(office: Office, message: Message, channel: Channel | None = None) -> str:
    """Everything that can be read of the bot in a thread."""
    return "\n".join(office.said(message.ts, channel))


async def never(_asked: object, _context: CallContext) -> ToolOutcome:
    await asyncio.Event().wait()
    raise AssertionError("nobody lets it go on")


async def think(_request: ModelRequest) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError("nobody lets it go on")


async def test_stop_while_a_tool_runs_leaves_nothing_running(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool("web__read", read_only=True), never)
        office.allowed = {"web__read"}
        office.model.script = [ask_for(call("web__read"))]
        async with office.at_work():
            asked = office.ask("read it")
            message = await office.reads(asked.ts, "running")
            await office.slack.press(office.priya, message, "Stop")
            await office.reads(asked.ts, STOPPED)
            await office.slack.until(lambda: "cs.stop" not in str(message.blocks))
        assert "running" not in shown(office, asked)
        assert "◌" not in shown(office, asked)
        assert not office.slack.calls.refused()


async def test_stop_while_a_signature_is_waited_for_takes_the_question_back(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool(CREATE))
        office.model.script = [ask_for(call(CREATE, summary="One"))]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "cs.approve")
            before = card.written()
            (first, _) = office.slack.posted(office.incidents, asked.ts)
            await office.slack.press(office.priya, first, "Stop")
            await office.reads(asked.ts, STOPPED)
            await office.slack.until(lambda: "Cancelled. Not run." in str(card.blocks))
            assert "cs." not in str([each.blocks for each in office.slack.posted(office.incidents, asked.ts)])
            await office.slack.press(office.sam, card, "cs.approve", as_of=before)
            await office.slack.until(lambda: office.whispers(office.sam))
        assert office.toolbox.calls == []
        assert "waits" not in shown(office, asked)


async def test_slacks_own_stop_ends_the_stream_and_the_work(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        dm = office.slack.dm(office.priya)
        office.toolbox.add(tool("web__read", read_only=True), never)
        office.allowed = {"web__read"}
        office.model.script = [ask_for(call("web__read"), text="I look.")]
        async with office.at_work():
            asked = office.slack.say(office.priya, dm, "read it")
            await office.slack.until(lambda: [each for each in office.slack.posted(dm, asked.ts) if each.stream])
            office.slack.stop(office.priya, dm, asked.ts)
            await office.reads(asked.ts, STOPPED, dm)
        assert all(each.stream is None or not each.stream.open for each in office.slack.posted(dm))
        assert office.slack.status(dm, asked.ts) == ""
        assert "running" not in shown(office, asked, dm)


async def test_a_press_on_a_card_that_has_timed_out_runs_nothing(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.approval_seconds = 0.3
        office.toolbox.add(tool(CREATE))
        office.model.script = [ask_for(call(CREATE, summary="One")), say("Nobody signed.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "cs.approve")
            before = card.written()
            await office.reads(asked.ts, "Nobody signed.")
            await office.slack.until(lambda: "Timed out. Not run." in str(card.blocks))
            await office.slack.press(office.sam, card, "cs.approve", as_of=before)
            await office.slack.until(lambda: office.whispers(office.sam))
        assert office.toolbox.calls == []
        assert "cs.approve" not in str(card.blocks)


async def test_a_guest_neither_asks_nor_signs(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        gus = office.slack.user("Gus", guest="multi", admin=True)
        office.incidents.members.append(gus.id)
        office.toolbox.add(tool(CREATE))
        office.model.script = [ask_for(call(CREATE, summary="One"))]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "cs.approve")
            await office.slack.press(gus, card, "cs.approve")
            await office.slack.until(lambda: office.whispers(gus))
            office.ask("file another", user=gus)
            await office.slack.until(lambda: len(office.whispers(gus)) == 2)
        assert office.toolbox.calls == []
        assert len(office.model.requests) == 1


async def test_ten_streams_at_once_stay_below_what_slack_takes_and_end_complete(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        people = [office.slack.user(f"Person {number}") for number in range(10)]
        office.model.script = [say(f"Answer {number}. " + "word " * 200 + "The end.") for number in range(10)]
        async with office.at_work():
            asked = [(office.slack.dm(each), office.slack.say(each, office.slack.dm(each), "why?")) for each in people]
            for dm, question in asked:
                await office.reads(question.ts, "AI answer", dm)
            for dm, _ in asked:
                (answer,) = office.slack.posted(dm)
                assert answer.text.endswith("The end.") or "The end." in str(answer.blocks)
        assert office.slack.calls.of("chat.startStream")
        assert not office.slack.calls.refused()


@pytest.mark.parametrize(
    "absent",
    [
        ("chat.startStream", "chat.appendStream", "chat.stopStream"),
        ("agents.sessions.setStatus", "agents.sessions.rename", "assistant.threads.setStatus"),
    ],
    ids=["no streams", "no agents"],
)
async def test_a_workspace_without_the_newest_features_gets_the_same_answers(
    tmp_path: Path, absent: tuple[str, ...]
) -> None:
    async with an_office(tmp_path) as office:
        office.slack.absent.update(absent)
        dm = office.slack.dm(office.priya)
        office.toolbox.add(tool(CREATE))
        office.model.script = [ask_for(call(CREATE, summary="One"), text="I file it."), say("Filed, at last.")]
        office.allowed = {CREATE}
        async with office.at_work():
            asked = office.slack.say(office.priya, dm, "file it")
            await office.reads(asked.ts, "AI answer", dm)
        said = shown(office, asked, dm)
        assert said.count("I file it.") == said.count("Filed, at last.") == 1
        assert office.toolbox.names == [CREATE]
