"""With no stored content, messages and results are deleted once the answer is delivered, on every platform, and the
next question still has the conversation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from bot.domain.completions import ModelRequest
from bot.domain.messages import FilePart, MessageRole, TextPart, ToolCall, ToolResult
from bot.domain.tools import CallReturned, ToolOutcome
from bot.ports import CallContext
from bot.storage.address import PostgresServer
from bot.storage.postgresql import PostgresDatabase
from tests.audit_check import audit_rows
from tests.fakes.parts import ask_for, call, say, tool
from tests.postgres import Server
from tests.stored_content import columns_with, files_with
from tests.stories.team import PATIENCE, Team

CREATE, READ = "jira__create_issue", "notes__read"
QUESTION, ARGUMENT, RESULT, ANSWER, UPLOAD = "Apfelmus", "Birnensaft", "Kirschkuchen", "Dattelbrot", "Eierlikoer"
EVERYTHING = (QUESTION, ARGUMENT, RESULT, ANSWER, UPLOAD)


async def read(called: ToolCall, _context: CallContext) -> ToolOutcome:
    file = FilePart(f"{RESULT} in a file".encode(), "text/plain", f"{RESULT}.txt")
    return CallReturned(ToolResult(called.id, (TextPart(f"the notes say {RESULT}"), file)))


def traces(team: Team) -> list[str]:
    return [marker for marker in EVERYTHING if files_with(team.database, marker)]


def request_texts(request: ModelRequest) -> Sequence[tuple[MessageRole, str]]:
    """The texts of a request without the system prompt, one a message."""
    return [(message.role, message.text) for message in request.messages if message.role is not MessageRole.SYSTEM]


async def test_a_whole_turn_leaves_nothing_behind_and_the_next_one_reads_it_from_the_platform(team: Team) -> None:
    team.keeps_content = False
    team.allowed = {READ}
    team.toolbox.add(tool(CREATE))
    team.toolbox.add(tool(READ), read)
    team.model.script = [
        ask_for(call(READ, text=ARGUMENT)),
        ask_for(call(CREATE, summary=ARGUMENT * 300)),
        say(f"It is **{ANSWER}**.\n\nAs noted."),
    ]
    async with team.at_work() as engine:
        talk = team.ask(f"what about {QUESTION}?", files=[(f"{UPLOAD}.txt", b"some lines")])
        card = await team.card(talk)
        old = team.screen(card)
        assert traces(team) != []
        await team.press(team.sam, card, "Approve")
        answer = await team.reads(talk, ANSWER)
        await team.until(lambda: traces(team) == [])
        view = await team.turn(engine, talk)
        assert view.turn.content_deleted
        await team.press(team.sam, card, "Approve", old=old)
        await team.hears(team.sam, "has already approved it.")
        await team.press(team.sam, card, "View all", old=old)
        await team.hears(team.sam, "That is deleted")
        await team.rate(team.priya, answer, good=True)
        await team.until(lambda: team.opinions)

        team.model.script = [say("As I said.")]
        team.go_on(talk, f"{team.mention} say it again", by=team.sam)
        await team.reads(talk, "As I said.")
        await team.until(lambda: traces(team) == [])
    history = request_texts(team.model.requests[-1])
    texts = [text for _, text in history]
    asked = next(text for text in texts if QUESTION in text)
    (role, told), *more = [(role, text) for role, text in history if ANSWER in text]
    assert (role, more) == (MessageRole.ASSISTANT, [])
    assert "As noted." in told
    assert ARGUMENT not in "".join(texts), "cards and lines about tools are no part of the answer"
    assert texts.index(asked) < texts.index(told) < len(texts) - 1
    assert team.words(answer).count(ANSWER) == 1, "the answer still stands"
    assert team.failed_calls() == []


async def test_questions_that_follow_fast_know_the_answers_before_them_and_the_messages_of_others(team: Team) -> None:
    team.keeps_content = False
    lee = team.person("Lee")
    team.model.script = [say("Number one."), say("Number two."), say("Number three.")]
    async with team.working_on("first question") as talk:
        await team.reads(talk, "Number one.")
        team.go_on(talk, f"{team.mention} second question")
        team.go_on(talk, f"{team.mention} third question", by=lee)
        await team.reads(talk, "Number three.")
    *_, before, third = [text for _, text in request_texts(team.model.requests[-1])]
    texts = [text for _, text in request_texts(team.model.requests[-1])]
    assert "third question" in third
    assert before.startswith("Number two.")  # read back from a place that shows more below it, or not yet deleted
    order = [next(n for n, text in enumerate(texts) if part in text) for part in ("first", "one.", "second", "two.")]
    assert order == sorted(order)
    assert len([text for text in texts if "second question" in text]) == 1
    assert team.failed_calls() == []


async def test_a_process_that_is_killed_before_the_deletion_is_made_up_for_by_the_next(team: Team) -> None:
    async with team.process(KEEP_NOTHING="1", HOLD_DELETION="1") as process:
        talk = team.ask(f"what about {QUESTION}?")
        await team.reads(talk, "You said: ")
        process.kill()
        await process.wait()
    assert QUESTION in traces(team)
    async with team.process(KEEP_NOTHING="1"):
        await team.until(lambda: traces(team) == [])


async def test_on_a_server_no_table_has_anything_of_a_turn_whose_answer_is_out(team: Team, postgres: Server) -> None:
    team.keeps_content = False
    team.server = await asyncio.to_thread(postgres.fresh)
    team.allowed = {READ}
    team.toolbox.add(tool(READ), read)
    team.model.script = [ask_for(call(READ, text=ARGUMENT)), say(f"It is {ANSWER}.")]
    database = PostgresDatabase(PostgresServer(team.server))
    async with team.at_work() as engine:
        talk = team.ask(f"what about {QUESTION}?", files=[(f"{UPLOAD}.txt", b"some lines")])
        await team.reads(talk, ANSWER)
        async with asyncio.timeout(PATIENCE):
            while not (await team.turn(engine, talk)).turn.content_deleted:
                await asyncio.sleep(0.01)
    left = {marker: await columns_with(database, marker) for marker in EVERYTHING}
    rows = await database.run(audit_rows)
    await database.close()
    assert not any(left.values()), left
    (ran,) = [json.loads(row["body"]) for row in rows if row["kind"] == "ran"]
    assert (ran["server"], ran["tool"], ran["status"]) == ("notes", "read", "done")
    assert len(ran["fingerprint"]) == 64
