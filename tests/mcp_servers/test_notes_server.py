"""The notes server as a host sees it: its tools, and the changes of the file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from mcp import Client

from mcp_servers.notes.note import LONGEST_NOTE
from mcp_servers.notes.server import create_server
from tests.mcp_servers.processes import process, structured_output, text_of


def here(path: Path) -> Client:
    """Return a client of the same server in this process."""
    return Client(create_server(path), read_timeout_seconds=20)


async def add(client: Client, *texts: str) -> list[int]:
    return [structured_output(await client.call_tool("add", {"text": text}))["id"] for text in texts]


async def test_a_host_adds_lists_searches_and_deletes_notes(tmp_path: Path) -> None:
    async with process("notes", {"NOTES_FILE": str(tmp_path / "new" / "notes.json")}) as client:
        added = await client.call_tool("add", {"text": "  Buy milk \x07"})
        await client.call_tool("add", {"text": "Call the dentist\nabout Monday"})
        listed = await client.call_tool("list", {})
        found = await client.call_tool("search", {"words": "MILK buy"})
        deleted = await client.call_tool("delete", {"id": 1})
        rest = await client.call_tool("list", {})
    assert text_of(added) == "Saved as note #1: Buy milk"
    day = structured_output(added)["created_at"][:10]
    assert text_of(listed) == f"#2 Call the dentist\n    about Monday ({day})\n#1 Buy milk ({day})"
    assert [note["id"] for note in structured_output(found)["notes"]] == [1]
    assert text_of(deleted) == "Deleted note #1: Buy milk"
    assert [note["text"] for note in structured_output(rest)["notes"]] == ["Call the dentist\nabout Monday"]


async def test_the_hints_tell_reading_adding_and_deleting_apart(tmp_path: Path) -> None:
    async with here(tmp_path / "notes.json") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    hints = {
        name: (a.read_only_hint, a.destructive_hint, a.idempotent_hint, a.open_world_hint)
        for name, tool in tools.items()
        if (a := tool.annotations) is not None
    }
    assert hints == {
        "add": (False, False, False, False),
        "list": (True, False, True, False),
        "search": (True, False, True, False),
        "delete": (False, True, True, False),
    }
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert all(each["description"] for each in tool.input_schema["properties"].values())


async def test_notes_outlive_the_server_and_ids_are_never_used_again(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    async with here(path) as client:
        assert await add(client, "one", "two") == [1, 2]
        await client.call_tool("delete", {"id": 2})
    async with here(path) as client:
        assert await add(client, "three") == [3]
        again = await client.call_tool("delete", {"id": 2})
    assert again.is_error
    assert "There is no note #2. Use list or search" in text_of(again)


async def test_an_empty_or_endless_note_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    async with here(path) as client:
        empty = await client.call_tool("add", {"text": " \n\x00 "})
        endless = await client.call_tool("add", {"text": "x" * (LONGEST_NOTE + 1)})
        nothing = await client.call_tool("search", {"words": " "})
        listed = await client.call_tool("list", {})
    assert empty.is_error
    assert "The note is empty, so nothing was saved." in text_of(empty)
    assert endless.is_error
    assert "4001 characters and was not saved; 4000 is the most" in text_of(endless)
    assert nothing.is_error
    assert "There is nothing to search for." in text_of(nothing)
    assert text_of(listed) == "There are no notes."
    assert not path.exists()


async def test_a_long_list_comes_in_pages(tmp_path: Path) -> None:
    async with here(tmp_path / "notes.json") as client:
        await add(client, "a", "b", "c")
        first = await client.call_tool("list", {"limit": 2})
        second = await client.call_tool("list", {"limit": 2, "before_id": 2})
    assert [note["id"] for note in structured_output(first)["notes"]] == [3, 2]
    assert text_of(first).endswith("There are 1 older notes: set before_id to 2 to see them.")
    assert text_of(second).startswith("#1 a (")
    assert "older" not in text_of(second)


async def test_two_servers_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    env = {"NOTES_FILE": str(tmp_path / "notes.json")}
    async with process("notes", env) as one, process("notes", env) as other:
        both = await asyncio.gather(
            *(client.call_tool("add", {"text": f"note {n}"}) for n in range(20) for client in (one, other))
        )
    ids = [structured_output(result)["id"] for result in both]
    assert sorted(ids) == list(range(1, 41))
    kept = json.loads((tmp_path / "notes.json").read_text())
    assert {note["id"]: note["text"] for note in kept["notes"]} == {
        structured_output(result)["id"]: structured_output(result)["text"] for result in both
    }


GOOD = {"id": 1, "text": "a", "created_at": "2026-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2, "next_id": 1, "notes": []}',
        b'{"version": 1, "next_id": "1", "notes": []}',
        json.dumps({"version": 1, "next_id": 1, "notes": [GOOD]}).encode(),
        json.dumps({"version": 1, "next_id": 3, "notes": [GOOD, GOOD]}).encode(),
        json.dumps({"version": 1, "next_id": 3, "notes": [{**GOOD, "text": None}]}).encode(),
        json.dumps({"version": 1, "next_id": 3, "notes": [{**GOOD, "created_at": "2026-01-01"}]}).encode(),
    ],
)
async def test_a_damaged_file_is_reported_and_never_written_over(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    async with here(path) as client:
        for tool, arguments in (
            ("add", {"text": "x"}),
            ("list", {}),
            ("search", {"words": "x"}),
            ("delete", {"id": 1}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert f"The notes file {path} is damaged, so it was left as it is." in text_of(result)
    assert path.read_bytes() == content
