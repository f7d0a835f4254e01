"""A script uses the chat: no terminal, answers on standard output, everything else on standard error."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.platforms.console.lines import cells
from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Reply, Request, Rule, Say, Status
from tests.fakes.programs import python
from tests.fakes.terminal import PATIENCE
from tests.stories.installation import CHAT, Installation, Outcome, ScriptedServer, a_tool, scripted_server
from tests.turn_events import check_event, reply_texts

READ, WRITE = Call("desk__look", {"at": "shelf"}), Call("desk__file", {"paper": "A4"})


def desk(folder: Path) -> ScriptedServer:
    """A server with a tool that reads and one that writes. Neither runs without a signature."""
    tools = a_tool("look", reads=True, at="string"), a_tool("file", paper="string")
    return scripted_server(folder, "desk", *tools, trusted=True)


def answering(answers: Mapping[str, Reply]) -> Rule:
    """A model that calls both tools for `go`, reports how many of them ran, and has fixed answers for the rest."""

    def rule(request: Request) -> Reply:
        if request.results:
            ran = sum(not result.startswith("Error") for result in request.results)
            return Say(f"{ran} of {len(request.results)} ran.")
        return answers.get(request.question, Say("Let me see.", calls=(READ, WRITE)))

    return rule


def test_one_question_prints_its_answer_alone_and_a_call_that_needs_an_approval_does_not_run(tmp_path: Path) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({})) as model:
        said = Installation(tmp_path, {"desk": server.entry}, model=model).chat("-m", "go")
    assert (said.code, said.out) == (3, "Let me see.\n\n0 of 2 ran.\n")
    assert "▌ Look “shelf” (desk)?" in said.err
    way_out = "Approve it in a terminal (countersign chat), or in advance with --approve all;"
    assert f"desk.file needs an approval and was not run. {way_out}" in said.err
    assert "⊘ desk.file  not approved, not run  No terminal was open to approve it." in said.err
    assert server.calls == []


def test_a_server_with_known_tools_is_started_by_a_call_alone(tmp_path: Path) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({"hello": Say("Hello.")})) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model)
        assert place.chat("-m", "hello").out == "Hello.\n"
        assert len(server.pids) == 1
        assert place.chat("-m", "hello").out == "Hello.\n"
        listed = place.chat("-m", "/mcp list").out
        assert "○ desk" in listed
        assert "idle: it starts when one of its tools is used" in listed
        assert len(server.pids) == 1, "its tools are stored"
        assert place.chat("-m", "go", "--approve", "all").out == "Let me see.\n\n2 of 2 ran.\n"
        assert len(server.pids) == 2


def test_a_question_without_a_call_loads_neither_the_mcp_library_nor_that_of_the_terminal(tmp_path: Path) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({"hello": Say("Hello.")})) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model)
        first, second = imported_by_a_question(place), imported_by_a_question(place)
    assert "mcp" in first, "it lists the tools"
    assert not second & {
        "mcp",
        "mcp_types",
        "alembic",
        "anthropic",
        "cryptography",
        "discord",
        "prompt_toolkit",
        "rich",
    }


def imported_by_a_question(place: Installation) -> set[str]:
    """Return the packages that `chat -m hello` imports, in a process of its own."""
    ended = subprocess.run(
        [python(), "-X", "importtime", "-m", *CHAT, "-m", "hello"],
        cwd=place.folder,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )
    assert ended.stdout == "Hello.\n"
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_every_line_of_standard_input_is_a_message_and_reads_can_be_approved_alone(tmp_path: Path) -> None:
    server = desk(tmp_path)
    answers: dict[str, Reply] = {
        "hello": Say("Hello."),
        "forbidden": Status(400, "that is too long", "invalid_request_error"),
    }
    with FakeLanguageModel("openai", rule=answering(answers)) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model)
        said = place.chat("--approve", "reads", typed="hello\n\ngo\n/mcp list\nforbidden\nhello")
    assert said.code == 1, "the worst of all lines counts"
    assert said.out.startswith("Hello.\n\nLet me see.\n\n1 of 2 ran.\n")
    assert "● desk" in said.out
    assert said.out.endswith("\nHello.\n")
    assert "that is too long" in said.err
    assert "✓ desk.look  done" in said.err
    assert "desk.look approved by --approve reads." in said.err
    assert server.calls == [("look", {"at": "shelf"})]


def test_json_is_one_event_a_line_in_the_order_of_events(tmp_path: Path) -> None:
    server = desk(tmp_path)
    answers: dict[str, Reply] = {"forbidden": Status(400, "that is too long", "invalid_request_error")}
    with FakeLanguageModel("openai", rule=answering(answers)) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model)
        said = place.chat("--json", "--approve", "all", typed="go\nforbidden\n")
    assert said.code == 1
    events = [check_event(event) for event in said.events]
    *went, failed, ended = events
    assert (failed["event"], ended["event"], ended["data"]["status"]) == ("error", "done", "FAILED")
    assert "that is too long" in failed["data"]["message"]
    assert ended["data"]["error"] == failed["data"]["message"]
    ends = [at for at, event in enumerate(went) if event["event"] == "done"]
    went = went[: ends[0] + 1]
    assert len({event["data"]["responseId"] for event in went}) == 1
    for tool in ("look", "file"):
        mine = [event for event in went if tool in (event["data"].get("name"), event["data"].get("tool"))]
        assert [event["event"] for event in mine][:2] == ["tool_call_update", "approval_required"]
        assert mine[1]["data"]["signedBy"], "who may approve it"
        assert (mine[-1]["event"], mine[-1]["data"]["status"]) == ("tool_call_update", "COMPLETED")
    assert list(reply_texts(went).values()) == ["Let me see.", "2 of 2 ran."]
    assert went[-1]["data"]["text"] == "2 of 2 ran."
    (filed,) = (call for call in went[-1]["data"]["toolCalls"] if call["name"] == "file")
    assert (filed["server"], filed["arguments"], filed["status"]) == ("desk", {"paper": "A4"}, "COMPLETED")
    assert (filed["result"], filed["error"], filed["decidedBy"]) == ("done", None, "owner")
    assert filed["createdAt"] <= filed["startedAt"] <= filed["endedAt"]
    times = [message["createdAt"] for message in went[-1]["data"]["messages"]]
    assert times[0] < times[-1], "the answer is later than the question"
    assert sorted(server.calls) == [("file", {"paper": "A4"}), ("look", {"at": "shelf"})]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--user", "guest", "--approve", "all"), "desk.file could not be approved: You may not approve this."),
        (("--approve", "never"), "desk.file needs an approval and was not run."),
    ],
    ids=["somebody without rights", "nobody approves"],
)
def test_without_the_right_or_the_will_to_approve_nothing_runs(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({})) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model, policy="self_approval = false\n")
        said = place.chat(*options, "-m", "go")
    assert (said.code, said.out) == (3, "Let me see.\n\n0 of 2 ran.\n")
    assert told in said.err
    assert server.calls == []


def test_a_denial_without_a_person_names_none_to_the_model_the_audit_and_the_record_in_every_language(
    tmp_path: Path,
) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({})) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model, LANGUAGE="ja")
        said = place.chat("-m", "go", "--new", "--conversation", "c1")
        assert said.code == 3
        assert "承認するための端末が開いていませんでした" in said.err
        told = "Error: Nobody approved this call. It was not run. Reason: No terminal was open to approve it."
        assert model.requests[-1].results == (told, told)
    decided = [json.loads(line) for line in place.countersign("audit", "export").out.splitlines()]
    decisions = [entry for entry in decided if entry["kind"] == "decided"]
    assert [(entry["actor"], entry["facts"]["verdict"]) for entry in decisions] == [("countersign", "deny")] * 2
    assert {entry["facts"]["reason"] for entry in decisions} == {"No terminal was open to approve it."}
    assert place.countersign("audit", "verify").code == 0


def test_a_call_that_needs_a_second_approver_waits_for_that_one(tmp_path: Path) -> None:
    server = desk(tmp_path)
    policy = '[[rules]]\nserver = "desk"\ntool = "file"\npolicy = "ASK_USER"\nquorum = 2\n'
    with FakeLanguageModel("openai", rule=lambda request: Say(calls=(WRITE,))) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model, policy=policy)
        said = place.chat("--approve", "all", "--new", "--conversation", "c1", "-m", "go")
    assert (said.code, said.out, server.calls) == (3, "", [])
    assert "desk.file, by --approve all: Approved. 1 more approval is needed." in said.err
    assert "It waits for an approval: countersign chat --conversation c1" in said.err


def test_a_user_without_rights_approves_reads_and_no_deletions(tmp_path: Path) -> None:
    server = desk(tmp_path)
    with FakeLanguageModel("openai", rule=answering({})) as model:
        place = Installation(tmp_path, {"desk": server.entry}, model=model)
        said = place.chat("--user", "guest", "--approve", "all", "-m", "go")
    assert (said.code, said.out) == (3, "Let me see.\n\n1 of 2 ran.\n")
    assert "desk.file could not be approved: You may not approve this. An approver must" in said.err
    assert server.calls == [("look", {"at": "shelf"})]


def test_a_command_line_that_means_nothing_is_exit_code_2_with_a_reason(tmp_path: Path) -> None:
    place = Installation(tmp_path, {})
    odd = place.chat("--new", "--conversation", "my talk")
    unknown = place.chat("--model", "abacus:3")
    assert (odd.code, odd.out, unknown.code, unknown.out) == (2, "", 2, "")
    assert "a name has up to 64 letters, digits and . _ ~ -" in odd.err
    assert "There is no model provider called 'abacus'. Fix: set BOT_MODEL" in unknown.err
    assert "Traceback" not in odd.err + unknown.err


def test_a_conversation_is_named_as_the_list_shows_it_or_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=lambda request: Say(f"{len(request.messages)} messages.")) as model:
        place = Installation(tmp_path, {}, model=model, COLUMNS="80")
        first = place.chat("-m", "a question that is longer than its row in a list of eighty columns can show")
        assert first.code == 0
        listed = place.chat("--list")
        assert (listed.code, listed.err) == (0, "")
        assert all(len(line) <= 80 for line in listed.out.splitlines())
        shown = listed.out.splitlines()[-1].split()[0]
        assert len(shown) == 8
        for named in (shown, shown[:5], f"owner:{shown}", f"console:local:owner:{shown}"):
            assert place.chat("--conversation", named, "-m", "and now?").code == 0
        assert "5" in place.chat("-m", f"/conversations show {shown[:4]}").out.splitlines()[0]
        assert len(model.requests[-1].messages) > len(model.requests[0].messages)

        for name in ("report-1", "report-2"):
            assert place.chat("--new", "--conversation", name, "-m", "hello").code == 0
        reopened = place.chat("--conversation", "report-1", typed=f"/open {shown[:4]}\nagain\n/open report\n")
        assert reopened.code == 1
        assert any("and now?" in str(message["content"]) for message in model.requests[-1].messages)
        assert "report is the beginning of several ids" in reopened.err
        ambiguous = place.chat("--conversation", "report", "-m", "hello")
        assert (ambiguous.code, ambiguous.out) == (2, "")
        assert "report is the beginning of several ids: report-2, report-1" in ambiguous.err
        unknown = place.chat("--conversation", "raport-2", "-m", "hello")
        assert (unknown.code, unknown.out) == (2, "")
        assert "You have no conversation raport-2. Fix: did you mean report-2" in unknown.err
        assert "countersign chat --list lists them" in unknown.err
        taken = place.chat("--new", "--conversation", "report-1", "-m", "hello")
        assert (taken.code, taken.out) == (2, "")
        assert "There is a conversation report-1 already. Fix: go on without --new" in taken.err
        elsewhere = place.chat("--user", "guest", "--conversation", shown, "-m", "hello")
        assert (elsewhere.code, elsewhere.out) == (2, ""), "the conversations of others are none of hers"


def test_a_list_of_japanese_titles_fits_eighty_columns(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=lambda request: Say("はい。")) as model:
        place = Installation(tmp_path, {}, model=model, LANGUAGE="ja")
        place.chat("-m", "札幌の天気と、大阪の天気と、東京の天気と、福岡の天気を教えてください")
        rows = place.chat("--list").out.splitlines()[1:]
    assert rows
    assert all(cells(row) <= 80 for row in rows)


async def test_a_terminal_that_is_to_go_on_with_an_unknown_conversation_ends_with_exit_code_2(tmp_path: Path) -> None:
    async with Installation(tmp_path, {}).terminal("--conversation", "nowhere") as terminal:
        assert await terminal.wait_for_exit() == 2
        assert "You have no conversation nowhere." in terminal.text


async def test_an_interrupt_stops_the_question_with_exit_code_130(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", Hold(Say("It all began"), Gate())) as model:
        async with (
            Installation(tmp_path, {}, model=model).begun("-m", "tell me a story") as program,
            asyncio.timeout(PATIENCE),
        ):
            assert program.stdout is not None
            begun = await program.stdout.readuntil(b"began")
            program.send_signal(signal.SIGINT)
            rest, errors = await program.communicate()
    assert program.returncode == 130
    assert (begun + rest).decode().strip() == "It all began"
    assert "Stopped." in errors.decode()


IN_STANDARD_INPUT = "bot.platforms.console.standard_input"
READS = answering({"Summarize.": Say("Short."), "hi": Say("Hello.")})


def test_standard_input_goes_with_the_question_as_its_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with FakeLanguageModel("openai", rule=READS) as model:
        place = Installation(tmp_path, {}, model=model)
        with subtests.test("a text"):
            said = place.chat("-m", "Summarize.", typed="line one\nline two: Ærø\n")
            assert (said.code, said.out) == (0, "Short.\n")
            assert "line two: Ærø" in json.dumps(model.requests[-1].messages, ensure_ascii=False)
            assert "stdin.txt" in json.dumps(model.requests[-1].messages)
        with subtests.test("a text for the demo"):
            said = Installation(tmp_path / "demo").chat("-m", "summarise", typed="Sales rose.\nCosts fell.\n")
            assert said.code == 0
            assert "I have read stdin.txt (lines: 2). It begins:" in said.out
            assert "Sales rose.\nCosts fell." in said.out
            assert "does not read files" not in said.out + said.err
        asked = len(model.requests)
        with subtests.test("nothing"):
            assert place.chat("-m", "hi").err == ""
            assert "stdin" not in json.dumps(model.requests[-1].messages)
        for name, typed, cause in (
            ("too large", "x" * (200 * 1024 + 1), "larger than 200 KB"),
            ("no text", "\0\1\2", "neither text in UTF-8 nor an image or a PDF"),
        ):
            with subtests.test(name):
                said = _ask_from_file(place, typed)
                assert (said.code, said.out) == (1, "")
                assert cause in said.err
        assert len(model.requests) == asked + 1


def _ask_from_file(place: Installation, typed: str) -> Outcome:
    """Ask with a file at standard input, which may be larger than a pipe."""
    file = place.folder / "given"
    file.write_text(typed)
    script = place.folder / "fed.sh"
    script.write_text(f'exec "{python()}" -m bot chat -m "Summarize." < "{file}"\n')
    done = subprocess.run(
        ("sh", str(script)), cwd=place.folder, env=place.environment, capture_output=True, check=False
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


async def test_a_pipe_to_which_nobody_writes_holds_no_question(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=READS) as model:
        place = Installation(tmp_path, {}, model=model)
        place.environment["TESTS_SHORTER_WAITS"] = json.dumps({f"{IN_STANDARD_INPUT}.FIRST_SECONDS": 0.2})
        async with place.begun("-m", "hi", idle=True) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            async with asyncio.timeout(PATIENCE):
                assert await program.stdout.readline() == b"Hello.\n"
                assert b"so the question goes without it" in await program.stderr.readline()


def test_a_pasted_log_or_a_binary_is_no_list_of_questions(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with FakeLanguageModel("openai", rule=READS) as model:
        place = Installation(tmp_path, {}, model=model)
        for name, typed, cause in (
            ("a log", "hi\n" * 21, "More than 20 lines came at once"),
            ("a binary", "hi\n\0\0\n", "not text in UTF-8"),
        ):
            with subtests.test(name):
                said = place.chat(typed=typed)
                assert (said.code, said.out) == (2, "")
                assert cause in said.err
                assert 'countersign chat -m "What is this?" < FILE' in said.err
        assert model.requests == []
        assert place.chat(typed="hi\n" * 20).out.split() == ["Hello."] * 20


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_that_was_started_with_closed_streams_works(closed: str, tmp_path: Path) -> None:
    place = Installation(tmp_path)
    command = f'exec "$0" -m bot chat -m hello {closed}'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=place.folder,
        env={**place.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, "Something broke" in ended.stderr) == (0, False), ended
    assert ended.stdout.startswith("Hello!") == (">&- " not in f"{closed} ".replace("2>&- ", ""))


@pytest.mark.parametrize("words", ["chat -m hello", "config path"])
def test_a_working_folder_that_is_gone_is_said_in_one_line(words: str, tmp_path: Path) -> None:
    place = Installation(tmp_path, {})
    ended = subprocess.run(
        ["sh", "-c", f'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m bot {words}', sys.executable],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended
    assert ended.stderr.startswith("countersign: The working folder cannot be used: No such file or directory. Fix: ")


@pytest.mark.parametrize("words", ["chat -m hello", "chat -m hello --json", "doctor", "audit head", "--help"])
def test_an_output_that_cannot_be_written_is_one_line_and_a_closed_pipe_none(words: str, tmp_path: Path) -> None:
    place = Installation(tmp_path, {})
    for redirection, lines in ((">/dev/full", 1), (">/dev/full 2>/dev/full", 0), ("| true", 0)):
        ended = subprocess.run(
            ["bash", "-c", f'"$0" -m bot {words} {redirection}; exit "${{PIPESTATUS[0]}}"', sys.executable],
            cwd=place.folder,
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = ended.stderr.splitlines()
        cause = "countersign: The output cannot be written: No space left on device. Fix: "
        assert (ended.returncode, len(said), all(line.startswith(cause) for line in said)) == (1, lines, True), ended
