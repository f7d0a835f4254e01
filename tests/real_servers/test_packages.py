"""Popular servers: the time, a git repository, a folder; and servers on an older MCP library."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.domain.servers import HttpKind, ServerConfig, ServerStatus
from bot.domain.tools import CallReturned
from bot.ports import CallContext
from tests.mcp.toolboxes import ANA, call, call_with, error_text, running_toolbox, text, tool_by_name
from tests.real_servers.servers import OLDER_PYTHON, from_npm, from_pypi, older_at

pytestmark = pytest.mark.real_servers


@pytest.mark.parametrize(
    ("python", "protocol"),
    [
        pytest.param(Path(sys.executable), "2026-07-28", id="on our library"),
        pytest.param(OLDER_PYTHON, "2025-11-25", id="on the older library"),
    ],
)
async def test_the_time_server_converts_a_time_in_whichever_protocol_it_speaks(python: Path, protocol: str) -> None:
    server = from_pypi("mcp_server_time", "--local-timezone", "UTC", python=python)
    async with running_toolbox(server) as box:
        state = await box.connect(server.id)
        assert (state.status, state.protocol) == (ServerStatus.CONNECTED, protocol)
        arguments = {"source_timezone": "Europe/Lisbon", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "Asia/Tokyo" in text(await call(tool_by_name(box, "convert_time"), box, **arguments))
        assert "nowhere" in error_text(await call(tool_by_name(box, "get_current_time"), box, timezone="nowhere"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit and an untracked file."""
    git = ("git", "-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-C", str(tmp_path))
    (tmp_path / "notes.md").write_text("first\n")
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True, timeout=30)
    subprocess.run([*git, "add", "notes.md"], check=True, timeout=30)
    subprocess.run([*git, "commit", "-q", "-m", "the first note"], check=True, timeout=30)
    (tmp_path / "draft.md").write_text("draft\n")
    return tmp_path


async def test_the_git_server_reads_a_repository_and_changes_it(repository: Path) -> None:
    server = from_pypi("mcp_server_git", "--repository", str(repository))
    async with running_toolbox(server) as box:
        await box.connect(server.id)
        path = str(repository)
        assert "draft.md" in text(await call(tool_by_name(box, "git_status"), box, repo_path=path))
        assert "the first note" in text(await call(tool_by_name(box, "git_log"), box, repo_path=path))
        await call(tool_by_name(box, "git_add"), box, repo_path=path, files=["draft.md"])
        assert "draft" in text(await call(tool_by_name(box, "git_diff_staged"), box, repo_path=path))


async def test_the_git_server_refuses_paths_outside_its_repository(repository: Path) -> None:
    server = from_pypi("mcp_server_git", "--repository", str(repository))
    async with running_toolbox(server) as box:
        await box.connect(server.id)
        assert "outside" in error_text(await call(tool_by_name(box, "git_status"), box, repo_path="/")).lower()


async def test_the_filesystem_server_writes_and_reads_in_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    folder, other = tmp_path / "shared", tmp_path / "private.txt"
    folder.mkdir()
    other.write_text("private")
    server = from_npm("mcp-server-filesystem", str(folder))
    async with running_toolbox(server) as box:
        await box.connect(server.id)
        note = str(folder / "note.txt")
        text(await call(tool_by_name(box, "write_file"), box, path=note, content="in here"))
        assert text(await call(tool_by_name(box, "read_text_file"), box, path=note)) == "in here"
        assert "note.txt" in text(await call(tool_by_name(box, "list_directory"), box, path=str(folder)))
        assert "denied" in error_text(await call(tool_by_name(box, "read_text_file"), box, path=str(other))).lower()
    assert (folder / "note.txt").read_text() == "in here"


@pytest.fixture(scope="module", params=["streamable HTTP", "HTTP+SSE"])
def older(request: pytest.FixtureRequest) -> Iterator[ServerConfig]:
    """Yield a server on the older library at an address. Its transport is not configured."""
    with older_at("sse" if request.param == "HTTP+SSE" else "mcp", HttpKind.AUTO) as server:
        yield server


async def test_a_server_on_the_older_library_answers_over_http(older: ServerConfig) -> None:
    async with running_toolbox(older) as box:
        state = await box.connect(older.id)
        assert (state.status, state.protocol) == (ServerStatus.CONNECTED, "2025-11-25")
        told: list[str] = []
        context = CallContext(ANA, "turn:1", on_progress=told.append)
        counted = await call_with(tool_by_name(box, "count"), box, context, to=3)
        assert isinstance(counted, CallReturned)
        assert counted.result.structured == {"result": 3}
        assert told == ["1/3", "2/3", "3/3"]


async def test_many_calls_at_once_on_the_older_library_get_their_own_answers(older: ServerConfig) -> None:
    async with running_toolbox(older) as box:
        await box.connect(older.id)
        tool = tool_by_name(box, "count")
        answers = await asyncio.gather(*(call(tool, box, f"turn:{n}", to=n) for n in range(30)))
        assert [text(answer) for answer in answers] == [str(n) for n in range(30)]
