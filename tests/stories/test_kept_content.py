"""The stored content of the real program: its place, its retention, and an operator's commands for one person."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.terminal import PATIENCE, ProgramOnTerminal
from tests.postgres import Server
from tests.stories.counted_calls import counting
from tests.stories.installation import Installation, becomes
from tests.stories.slack_program import a_company

WORD = "Kirschkuchen"
KEEP_IT = "note it"


def keeping(request: Request) -> Reply:
    """Call the tool for notes as asked, and repeat every other question."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == KEEP_IT:
        return Say(calls=(Call("notes__add", {"text": f"{WORD} at noon"}),))
    return Say(f"You said: {request.question}.")


def traces(installation: Installation, word: str = WORD) -> list[str]:
    """The files of the program with the word in any of their bytes."""
    files = [path for path in installation.folder.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(installation.folder)) for path in files if word.encode() in path.read_bytes())


def test_with_no_days_of_retention_one_question_in_a_shell_leaves_nothing_behind(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model, RETENTION_DAYS="0")
        (installation.data / "history").write_text(json.dumps(WORD) + "\n")
        answered = installation.chat("-m", f"about {WORD}")
        assert (answered.code, WORD in answered.out) == (0, True)
        assert traces(installation) == ["data/history"]
        audit = installation.countersign("audit", "export").out
        assert "deleted content" in audit
        doctor = installation.countersign("doctor").out
        assert (
            "Nothing that is asked, answered or returned is kept once the answer is out (RETENTION_DAYS=0)." in doctor
        )


async def test_a_terminal_remembers_its_conversation_while_it_runs_and_writes_no_history_of_lines(
    tmp_path: Path,
) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model, RETENTION_DAYS="0")
        (installation.data / "history").write_text(json.dumps(WORD) + "\n")
        async with installation.terminal() as terminal:
            await _ask(terminal, f"about {WORD}")
            await _ask(terminal, "and now?")
            assert await terminal.leaves() == 0
        assert WORD in json.dumps(model.requests[-1].body)
        assert traces(installation) == []
        async with installation.terminal() as terminal:
            await _ask(terminal, "once more")
            assert await terminal.leaves() == 0
        assert WORD not in json.dumps(model.requests[-1].body)


async def _ask(terminal: ProgramOnTerminal, line: str) -> None:
    await terminal.asks(line)
    await terminal.until(lambda: f"You said: {line}" in "\n".join(terminal.lines), f"the answer to {line}")


def test_with_days_of_retention_a_turn_stays_for_so_long_and_is_gone_from_the_bytes_then(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model, RETENTION_DAYS="1")
        assert installation.chat("-m", f"about {WORD}").code == 0
        assert traces(installation) != []
        doctor = installation.countersign("doctor").out
        assert "Turns are kept for 1 day after their end (RETENTION_DAYS)." in doctor


def test_everything_about_one_person_is_exported_and_deleted(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model)
        installation.chat("-m", f"about {WORD}")
        exported = json.loads(installation.countersign("db", "export-person", "console:owner").out)
        assert (exported["person"], exported["turns"][0]["input"]["text"]) == ("console:owner", f"about {WORD}")
        assert {"steps", "usage", "audit"} <= exported.keys()
        file = tmp_path / "export.json"
        saved = installation.countersign("db", "export-person", "console:owner", "--output", str(file))
        assert (saved.code, saved.out, file.stat().st_mode & 0o777) == (0, "", 0o600)
        assert json.loads(file.read_text())["turns"] == exported["turns"]
        again = installation.countersign("db", "export-person", "console:owner", "--output", str(file))
        assert "exists, and an export overwrites no file" in again.err
        file.unlink()

        refused = installation.countersign("db", "forget", "console:owner")
        assert (refused.code, refused.err) == (2, "countersign: Nobody can be asked here. Fix: add --yes\n")
        assert traces(installation) != []
        forgotten = installation.countersign("db", "forget", "console:owner", "--yes")
        assert (forgotten.code, forgotten.out) == (0, "The content of 1 turn of console:owner is deleted.\n")
        assert traces(installation) == []
        assert installation.countersign("audit", "verify").code == 0
        unknown = installation.countersign("db", "export-person", "slack:U404")
        assert "Nothing is stored about slack:U404" in unknown.err
        assert "is no person" in installation.countersign("db", "forget", "ana", "--yes").err


def test_on_a_server_everything_about_one_person_is_exported_and_deleted(tmp_path: Path, postgres: Server) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model, DATABASE_URL=postgres.fresh())
        installation.chat("-m", f"about {WORD}")
        exported = installation.countersign("db", "export-person", "console:owner").out
        assert json.loads(exported)["turns"][0]["input"]["text"] == f"about {WORD}"
        forgotten = installation.countersign("db", "forget", "console:owner", "--yes")
        assert (forgotten.code, forgotten.out) == (0, "The content of 1 turn of console:owner is deleted.\n")
        assert "until its next VACUUM" in forgotten.err
        assert WORD not in installation.countersign("db", "export-person", "console:owner").out
        installation.environment["RETENTION_DAYS"] = "0"
        assert "PostgreSQL frees deleted rows at its next VACUUM." in installation.countersign("doctor").out


def test_deleted_content_of_a_database_from_before_is_gone_from_its_bytes_too(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        installation = Installation(tmp_path, {}, model=model)
        installation.chat("-m", f"about {WORD}")
        with closing(sqlite3.connect(installation.data / "countersign.db")) as connection:
            connection.execute("pragma secure_delete=off")
            connection.execute("create table earlier (words text)")
            connection.execute("insert into earlier values (?)", (f"{WORD} " * 9_000,))
            connection.execute("drop table earlier")
            connection.commit()
        installation.environment["RETENTION_DAYS"] = "0"
        deadline = time.monotonic() + PATIENCE
        while traces(installation) and time.monotonic() < deadline:
            installation.chat("-m", "hello")
        assert traces(installation) == []


async def test_a_killed_bot_in_slack_keeps_a_waiting_question_until_its_answer_and_nothing_after_it(
    tmp_path: Path,
) -> None:
    with FakeLanguageModel("openai", rule=keeping) as model:
        async with a_company(tmp_path, model, RETENTION_DAYS="0") as company:
            async with company.bot() as bot:
                asked = company.ask(f"about {WORD}")
                await company.draws(asked.ts, f"You said: about {WORD}")
                await becomes(lambda: traces(company.place) == [], "no trace of the first turn", PATIENCE)
                company.ask(KEEP_IT, asked.ts)
                card = await company.draws(asked.ts, "cs.approve")
                await bot.dies()
            assert "data/countersign.db" in str(traces(company.place))
            async with company.bot() as bot:
                await company.slack.press(company.sam, card, "Approve: Add a note")
                await company.draws(asked.ts, "It said: Saved as note #1")
                await becomes(lambda: traces(company.place) == ["data/notes.json"], "the note alone", PATIENCE)
                company.ask("what was it about?", asked.ts)
                await company.draws(asked.ts, "You said: what was it about?")
                assert await bot.leaves() == 0
                assert "Traceback" not in bot.log
            assert not company.slack.calls.failed_calls()
        history = json.dumps(model.requests[-1].body)
        assert f"You said: about {WORD}" in history
        assert "It said: Saved as note #1" in history
        assert traces(company.place) == ["data/notes.json"]
        assert company.place.countersign("audit", "verify").code == 0


async def test_a_person_is_forgotten_beside_a_running_bot_which_no_longer_knows_their_messages(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=keeping) as model:
        async with a_company(tmp_path, model) as company, company.bot() as bot:
            asked = company.ask(f"about {WORD}")
            await company.draws(asked.ts, f"You said: about {WORD}")
            await company.draws(asked.ts, "AI answer")
            company.ask(KEEP_IT, asked.ts)
            card = await company.draws(asked.ts, "cs.approve")
            person = f"slack:{company.priya.id}"
            waiting = await asyncio.to_thread(company.place.countersign, "db", "forget", person, "--yes")
            assert waiting.code == 1
            assert f"1 turn of {person} still waiting or running." in waiting.err
            await company.slack.press(company.sam, card, "Approve: Add a note")
            await company.draws(asked.ts, "It said: Saved as note #1")
            forgotten = await asyncio.to_thread(company.place.countersign, "db", "forget", person, "--yes")
            assert (forgotten.code, forgotten.out) == (0, f"The content of 1 turn of {person} is deleted.\n")
            assert traces(company.place) == ["data/notes.json"]
            company.ask("and now?", asked.ts)
            await company.draws(asked.ts, "You said: and now?")
            assert WORD not in json.dumps(model.requests[-1].body)
            assert await bot.leaves() == 0
            assert "Traceback" not in bot.log
        assert company.place.countersign("audit", "verify").code == 0
