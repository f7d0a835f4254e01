"""The knowledge server as a host sees it: its tools, its results, its start and its end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from bot.domain.approvals import ApprovalPolicy
from bot.domain.servers import ServerConfig, StdioTransport
from bot.domain.turns import CallOrigin
from bot.engine.policy.authorization import CallAuthorizer
from bot.engine.policy.rules import Policies, Rules
from mcp_servers.knowledge import server
from mcp_servers.knowledge.folder import Refused
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.server import GUIDES, STILL_READING, InvalidSetting, Settings, create_server, read_settings
from tests.fakes.programs import python
from tests.mcp.toolboxes import call as called
from tests.mcp.toolboxes import running_toolbox as toolbox
from tests.mcp.toolboxes import text, tool_by_name
from tests.mcp_servers.processes import PATIENCE, begun, process, shake_hands, start_process, structured_output, text_of

BUNDLED_GUIDES = sorted(
    path.relative_to(GUIDES.resolve()).as_posix()
    for pattern in ("*.md", "ja/*.md")
    for path in GUIDES.resolve().glob(pattern)
)
"""Guides to the program for its users, by their ids."""


def here(folder: Path, **options: Any) -> Client:
    """Return a client of the same server in this process."""
    return Client(create_server(Library(folder, None), **options), read_timeout_seconds=20)


def handbook(folder: Path) -> Path:
    """Write two short documents, and return their folder."""
    (folder / "guide").mkdir()
    (folder / "guide" / "travel.md").write_text(
        "# Travel\n\n## Trains\n\nBook second class.\nKeep the receipt.\n\n## Hotels\n\nAsk the office first.\n"
    )
    (folder / "lunch.txt").write_text("Lunch is at noon.\n")
    return folder


async def test_a_host_searches_reads_and_lists(tmp_path: Path) -> None:
    async with process("knowledge", {"KNOWLEDGE_FOLDER": str(handbook(tmp_path))}) as client:
        found = await client.call_tool("search", {"query": "Which trains may I book?"})
        section = await client.call_tool("read", {"id": "guide/travel.md#trains"})
        whole = await client.call_tool("read", {"id": "guide/travel.md"})
        listed = await client.call_tool("list", {})
    assert text_of(found).splitlines() == [
        "1. Travel > Trains [guide/travel.md#trains]",
        "   Book second class.",
        "   Keep the receipt.",
        "To see all of a section or a document, read it by the id in brackets.",
    ]
    (hit,) = structured_output(found)["hits"]
    assert hit["modified_at"].endswith("Z")
    assert {**hit, "modified_at": ""} == {
        "id": "guide/travel.md#trains",
        "document": "guide/travel.md",
        "title": "Travel",
        "headings": ["Travel", "Trains"],
        "text": "Book second class.\nKeep the receipt.",
        "modified_at": "",
    }
    assert text_of(section).startswith("Travel > Trains [guide/travel.md#trains]\n\n# Travel\n\n## Trains\n\nBook")
    assert structured_output(whole)["text"] == (tmp_path / "guide" / "travel.md").read_text()
    day = structured_output(listed)["documents"][0]["modified_at"][:10]
    assert text_of(listed).splitlines() == [
        f"Travel [guide/travel.md] (2 sections, {day})",
        f"lunch [lunch.txt] (1 section, {day})",
    ]
    assert all(structured_output(each)["complete"] for each in (found, section, whole, listed))


async def test_without_settings_it_tells_about_countersign() -> None:
    async with process("knowledge", {"KNOWLEDGE_FOLDER": "", "KNOWLEDGE_DATABASE": " "}) as client:
        found = structured_output(
            await client.call_tool("search", {"query": "which buttons does an approval card have?"})
        )
        listed = structured_output(await client.call_tool("list", {}))
    assert found["hits"][0]["document"] == "approvals.md"
    assert [each["id"] for each in listed["documents"]] == BUNDLED_GUIDES
    assert not [each for each in BUNDLED_GUIDES if each.startswith(("adr/", "pictures/"))]
    assert "ja/using.md" in BUNDLED_GUIDES


async def test_every_tool_says_truthfully_that_it_only_reads_and_describes_what_it_takes_and_gives(
    tmp_path: Path,
) -> None:
    async with here(handbook(tmp_path)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["search", "read", "list"]
    assert tools["search"].input_schema["required"] == ["query"]
    for tool in tools.values():
        assert tool.title
        assert tool.annotations is not None
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
        assert (hints.idempotent_hint, hints.open_world_hint) == (True, False)
        assert all(each["description"] for each in tool.input_schema["properties"].values())
        assert tool.output_schema is not None
        described = [tool.output_schema, *tool.output_schema.get("$defs", {}).values()]
        assert {"object"} == {each["type"] for each in described}


async def test_search_is_marked_for_use_with_every_question() -> None:
    transport = StdioTransport(python(), ("-m", "mcp_servers.knowledge"))
    config = ServerConfig("knowledge", transport, trusted=True, auto_context_tool="search")
    async with toolbox(config) as box:
        await box.wait_ready()
        offered = await box.offer()
        (step,) = CallAuthorizer(Rules(Policies(ApprovalPolicy.ALWAYS_ALLOW))).context_calls(
            "what waits for you in approvals?", offered
        )
        assert (step.call.name, step.origin) == ("knowledge__search", CallOrigin.CONTEXT)
        answer = text(await called(tool_by_name(box, "search", "knowledge"), box, **step.call.arguments))
    assert re.match(r"1\. .* \[(?:approvals|using)\.md#", answer)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("kettle pot", "No document has any of these words: kettle pot. Try others, or use list"),
        ("who are you", "No document has these words side by side: who are you."),
        ("hello", "No document has any of these words: hello."),
        ("👍 \x00", "There is no word to search for in this. Use list"),
        ("", "There is no word to search for in this."),
        ("kettle " * 9000, "No document has any of these words: kettle."),
        ("k" * 9000, "kkk…. Try others"),
    ],
)
async def test_a_question_that_finds_nothing_is_no_error(query: str, said: str, tmp_path: Path) -> None:
    async with here(handbook(tmp_path)) as client:
        answer = await client.call_tool("search", {"query": query})
    assert structured_output(answer) == {"hits": [], "complete": True}
    assert said in text_of(answer)


async def test_as_many_sections_are_found_as_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("".join(f"# Kettle {n}\ntext\n" for n in range(30)))
    async with here(tmp_path) as client:
        five = structured_output(await client.call_tool("search", {"query": "kettle"}))
        twenty = structured_output(await client.call_tool("search", {"query": "kettle", "limit": 20}))
        too_many = await client.call_tool("search", {"query": "kettle", "limit": 21})
    assert [len(answer["hits"]) for answer in (five, twenty)] == [5, 20]
    assert too_many.is_error


async def test_a_long_list_and_a_long_text_come_in_pages(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_text("word " * 2000)
    async with here(tmp_path) as client:
        first = await client.call_tool("list", {"limit": 2})
        second = await client.call_tool("list", {"limit": 2, "after_id": "1.txt"})
        third = await client.call_tool("list", {"after_id": "2.txt"})
        page = await client.call_tool("read", {"id": "0.txt"})
        last = await client.call_tool("read", {"id": "0.txt", "page": 2})
        over = await client.call_tool("read", {"id": "0.txt", "page": 3})
    assert [each["id"] for each in structured_output(first)["documents"]] == ["0.txt", "1.txt"]
    assert text_of(first).endswith("(There are 3 in all: set after_id to 1.txt to go on.)")
    assert [each["id"] for each in structured_output(second)["documents"]] == ["2.txt"]
    assert text_of(second).count("\n") == 0
    assert text_of(third) == "There are no documents after '2.txt', and 3 in all."
    assert text_of(page).endswith("(Page 1 of 2; set page to 2 to go on.)")
    assert text_of(last).endswith("(Page 2 of 2.)")
    assert structured_output(page)["text"] + structured_output(last)["text"] == "word " * 2000
    assert over.is_error
    assert "0.txt has no page 3: it ends with page 2." in text_of(over)


async def test_a_missing_document_is_an_error_with_the_existing_ones(tmp_path: Path) -> None:
    async with here(handbook(tmp_path)) as client:
        document = await client.call_tool("read", {"id": "../lunch.txt"})
        section = await client.call_tool("read", {"id": "guide/travel.md#planes"})
    assert document.is_error
    assert "no document and no section '../lunch.txt'. Give an id exactly as search or list shows it" in text_of(
        document
    )
    assert section.is_error
    assert "guide/travel.md has no section 'planes'. Its sections are: trains, hotels." in text_of(section)


async def test_an_empty_folder_says_so_and_left_out_files_are_named(tmp_path: Path) -> None:
    async with here(tmp_path) as client:
        empty = await client.call_tool("list", {})
        for n in range(25):
            (tmp_path / f"binary{n:02}.txt").write_bytes(b"\x00")
        left = await client.call_tool("list", {})
    assert text_of(empty) == "There are no documents. Put Markdown (.md) or text (.txt) files into the folder."
    assert "Left out: binary00.txt, because it is not text." in text_of(left)
    assert text_of(left).endswith("Left out: 5 more files.")
    assert (structured_output(left)["left_out_total"], len(structured_output(left)["left_out"])) == (25, 20)


async def test_a_change_is_seen_by_the_next_question_and_a_lost_folder_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with here(handbook(folder)) as client:
        await client.call_tool("search", {"query": "lunch"})
        (folder / "lunch.txt").write_text("Dinner at six")
        changed = structured_output(await client.call_tool("search", {"query": "dinner"}))
        folder.rename(tmp_path / "away")
        lost = await client.call_tool("search", {"query": "dinner"})
        (tmp_path / "away").rename(folder)
        back = structured_output(await client.call_tool("search", {"query": "dinner"}))
    assert [hit["id"] for hit in changed["hits"]] == ["lunch.txt#start"]
    assert lost.is_error
    assert f"The folder {folder} cannot be read (No such file or directory). Bring it back" in text_of(lost)
    assert back == changed


async def test_many_questions_at_once_are_all_answered(tmp_path: Path) -> None:
    async with here(handbook(tmp_path)) as client:
        answers = await asyncio.gather(
            *(client.call_tool("search", {"query": query}) for query in ("lunch", "trains", "hotels") * 10)
        )
    ids = [structured_output(answer)["hits"][0]["id"] for answer in answers]
    assert ids == ["lunch.txt#start", "guide/travel.md#trains", "guide/travel.md#hotels"] * 10


class Endless(Library):
    """A library whose reading of the folder never ends."""

    def refresh(self) -> Iterator[None]:
        while True:
            yield


async def test_while_a_big_folder_is_read_questions_are_answered_from_the_files_read_so_far(tmp_path: Path) -> None:
    library = Endless(handbook(tmp_path), None)
    for _ in Library.refresh(library):
        pass
    async with Client(create_server(library, patience=0.05), read_timeout_seconds=20) as client:
        found = await client.call_tool("search", {"query": "lunch"})
        nothing = await client.call_tool("search", {"query": "kettle"})
        listed = await client.call_tool("list", {})
    assert [hit["id"] for hit in structured_output(found)["hits"]] == ["lunch.txt#start"]
    for answer in (found, nothing, listed):
        assert structured_output(answer)["complete"] is False
        assert text_of(answer).endswith(STILL_READING)


async def test_no_other_request_waits_for_a_slow_disk(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    one = server.BackgroundIndexer(Library(handbook(tmp_path), None))
    async with one.running():
        # The only thread blocks in opening a pipe until this loop writes to it.
        waiting = asyncio.create_task(one.answer(lambda _: (tmp_path / "gate").read_text()))
        gate = await asyncio.to_thread(lambda: (tmp_path / "gate").open("w"))
        assert not waiting.done()
        gate.write("opened")
        gate.close()
        assert await waiting == ("opened", True)


async def test_an_answer_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_PATIENCE", 0.05)
    os.mkfifo(tmp_path / "gate")
    one = server.BackgroundIndexer(Library(handbook(tmp_path), None))
    async with one.running():
        with pytest.raises(
            Refused, match=r"has not answered for 0 seconds\. Ask again with fewer words; .+ check the disk"
        ):
            await one.answer(lambda _: (tmp_path / "gate").read_text())
        await asyncio.to_thread(lambda: (tmp_path / "gate").write_text("opened"))
        monkeypatch.setattr(server, "ANSWER_PATIENCE", PATIENCE)
        assert await one.answer(lambda library: library.listing("", 1).total) == (2, True)


def test_empty_settings_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings({}) == read_settings({"KNOWLEDGE_FOLDER": "", "KNOWLEDGE_DATABASE": " "}) == Settings()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    settings = read_settings({"KNOWLEDGE_FOLDER": "~", "KNOWLEDGE_DATABASE": "index.db"})
    assert settings == Settings(tmp_path, tmp_path / "index.db", excluded=frozenset())


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (
            {"KNOWLEDGE_FOLDER": "/nowhere/at all"},
            "KNOWLEDGE_FOLDER is '/nowhere/at all', which is not a folder here; create",
        ),
        ({"KNOWLEDGE_FOLDER": __file__}, "which is not a folder here; create it, name another one, or unset it"),
        ({"KNOWLEDGE_FOLDER": "~nobody at all/x"}, "begins with a home folder that is not known here; give the whole"),
        ({"KNOWLEDGE_DATABASE": "/tmp"}, "KNOWLEDGE_DATABASE is '/tmp', which is a folder; name a file in it"),
    ],
)
def test_an_invalid_setting_is_refused_with_a_valid_one(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read_settings(environment)
    assert problem in str(refused.value)


async def test_an_invalid_setting_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear reader, " * 100)
    for environment, problem in (
        ({"KNOWLEDGE_FOLDER": "/nowhere"}, "KNOWLEDGE_FOLDER is '/nowhere', which is not a folder here;"),
        ({"KNOWLEDGE_DATABASE": str(tmp_path / "letter")}, f"The index {tmp_path}/letter cannot be used (file is not"),
    ):
        child = await begun("knowledge", environment)
        output, errors = await asyncio.wait_for(child.communicate(), PATIENCE)
        assert (child.returncode, output) == (2, b"")
        assert errors.decode().startswith(f"knowledge: {problem}")
        assert errors.count(b"\n") == 1


async def test_it_ends_quietly_when_its_input_ends_even_while_the_folder_is_being_read(tmp_path: Path) -> None:
    for n in range(2000):
        (tmp_path / f"{n}.md").write_text("# Page\n\n" + "word " * 500)
    child = await start_process("knowledge", {"KNOWLEDGE_FOLDER": str(tmp_path)})
    assert (await shake_hands(child))["result"]["serverInfo"]["name"] == "knowledge"
    output, errors = await asyncio.wait_for(child.communicate(b""), PATIENCE)
    assert (child.returncode, output, errors) == (0, b"", b"")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_without_a_traceback_and_the_index_is_whole(by: signal.Signals, tmp_path: Path) -> None:
    environment = {"KNOWLEDGE_DATABASE": str(tmp_path / "index.db")}
    child = await begun("knowledge", environment)
    await shake_hands(child)
    child.send_signal(by)
    # Not `communicate()`: it closes the input, and the server also ends with its input.
    await asyncio.wait_for(child.wait(), PATIENCE)
    _, errors = await asyncio.wait_for(child.communicate(), PATIENCE)
    assert (child.returncode, errors) == (-by, b"")
    async with process("knowledge", environment) as client:
        assert structured_output(await client.call_tool("list", {}))["total"] == len(BUNDLED_GUIDES)
