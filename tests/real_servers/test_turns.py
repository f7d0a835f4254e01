"""Servers of other authors, in TypeScript, Python and Go: each is connected, and called in a turn.

None needs a network. They come from npm, PyPI and as programs in Go within npm packages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from aiohttp import web

from bot.domain.messages import ToolResult
from tests.app.program import bare
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.node import MODULES, NODE, program
from tests.real_servers.servers import OLDER_PYTHON
from tests.web.api_server import Api, opened_api, scripted_choice

pytestmark = pytest.mark.real_servers

KUBERNETES = MODULES / "kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64"
"""Its npm package has a program for one platform only."""
PAGE = "The kettle is in the kitchen."
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://cluster.test"}}]
users: [{name: ana, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: ana}}]
current-context: lab
"""


@dataclass(frozen=True)
class Place:
    """Working place of a server: a folder of the test, and the address of a web page."""

    folder: Path
    page: str

    def file(self, name: str, text: str = "") -> str:
        """Return the path of a file in the folder; with a text the file exists."""
        path = self.folder / name
        if text:
            path.write_text(text, encoding="utf-8")
        return str(path)


def npm(name: str, *arguments: str) -> list[str]:
    return [str(NODE), str(program(name)), *arguments]


def pypi(name: str, *arguments: str) -> list[str]:
    return [str(OLDER_PYTHON.with_name(name)), *arguments]


def workbook(path: Path) -> str:
    """Make an Excel file with one empty sheet. Return its path."""
    package = "http://schemas.openxmlformats.org/package/2006"
    document = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{document}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{document}">'
        '<sheets><sheet name="Empty" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{document}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData/></worksheet>',
    }
    with ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return str(path)


@dataclass(frozen=True)
class OtherServer:
    """A server of another author: its command line, a call, and a part of the call's result."""

    name: str
    command: Callable[[Place], list[str]]
    tool: str
    arguments: Callable[[Place], Mapping[str, Any]]
    expected: str
    environment: Callable[[Place], Mapping[str, str]] = field(default=lambda _place: {})


SERVERS = [
    OtherServer(
        "memory",
        lambda _: npm("mcp-server-memory"),
        "create_entities",
        lambda _: {"entities": [{"name": "Priya", "entityType": "person", "observations": ["likes tea"]}]},
        "likes tea",
        lambda place: {"MEMORY_FILE_PATH": place.file("memory.jsonl")},
    ),
    OtherServer(
        "thinking",
        lambda _: npm("mcp-server-sequential-thinking"),
        "sequentialthinking",
        lambda _: {"thought": "First", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "totalThoughts",
    ),
    OtherServer(
        "tasks",
        lambda _: npm("mcp-taskmanager"),
        "request_planning",
        lambda _: {"originalRequest": "Ship it", "tasks": [{"title": "Test", "description": "Run the tests"}]},
        "req-1",
        lambda place: {"TASK_MANAGER_FILE_PATH": place.file("tasks.json")},
    ),
    OtherServer(
        "commands",
        lambda _: npm("mcp-server-commands"),
        "run_command",
        lambda place: {"command": "echo from a shell", "workdir": str(place.folder)},
        "from a shell",
    ),
    OtherServer(
        "git",
        lambda _: npm("git-mcp-server"),
        "git_set_working_dir",
        lambda place: {"path": str(place.folder), "initializeIfNotPresent": True},
        "success",
    ),
    OtherServer(
        "kubernetes",
        lambda place: [str(KUBERNETES), "--kubeconfig", place.file("kube.yaml", KUBECONFIG)],
        "configuration_view",
        lambda _: {},
        "https://cluster.test",
    ),
    OtherServer(
        "excel",
        lambda _: npm("excel-mcp-server"),
        "excel_write_to_sheet",
        lambda place: {
            "fileAbsolutePath": workbook(place.folder / "book.xlsx"),
            "sheetName": "Tea",
            "newSheet": True,
            "range": "A1:B1",
            "values": [["green", 3]],
        },
        "green",
    ),
    OtherServer(
        "sqlite",
        lambda place: pypi("mcp-server-sqlite", "--db-path", place.file("notes.db")),
        "create_table",
        lambda _: {"query": "CREATE TABLE notes (text TEXT)"},
        "created",
    ),
    OtherServer(
        "calculator",
        lambda _: pypi("mcp-server-calculator"),
        "calculate",
        lambda _: {"expression": "6*7"},
        "42",
    ),
    OtherServer(
        "fetch",
        lambda _: pypi("mcp-server-fetch", "--ignore-robots-txt"),
        "fetch",
        lambda place: {"url": place.page, "raw": True},
        PAGE,
    ),
    OtherServer(
        "word",
        lambda _: pypi("word_mcp_server"),
        "create_document",
        lambda place: {"filename": place.file("letter.docx")},
        "created",
    ),
    OtherServer(
        "duckdb",
        lambda place: pypi("mcp-server-duckdb", "--db-path", place.file("facts.duckdb")),
        "query",
        lambda _: {"query": "select 6 * 7 as answer"},
        "42",
    ),
    OtherServer(
        "code",
        lambda _: pypi("code-index-mcp"),
        "set_project_path",
        lambda place: {"path": str(place.folder)},
        "ndexed",
    ),
]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    app = web.Application()
    app.router.add_get("/page", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        folder = tmp_path / "place"
        folder.mkdir()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        yield Place(folder, f"http://127.0.0.1:{port}/page")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def bot_with(
    server: OtherServer, place: Place, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """Start a whole bot with the server in its file of servers and a policy that allows all calls."""
    folder = place.folder.parent
    bare(folder, monkeypatch)
    (folder / "policy.toml").write_text('default = "ALWAYS_ALLOW"\n', encoding="utf-8")
    program_path, *arguments = server.command(place)
    definition = {
        "command": program_path,
        "args": arguments,
        "env": {**server.environment(place)},
        "connect_timeout": 60,
        "cwd": str(place.folder),
    }
    async with opened_api(folder, model=scripted_choice(model), servers={server.name: definition}) as api:
        yield api


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
async def test_a_server_of_another_author_is_called_in_a_turn(
    server: OtherServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.name == "kubernetes" and not KUBERNETES.exists():
        pytest.skip("the program in Go is for Linux on x86-64")
    model = ScriptedModel()
    model.script = [ask_for(call(f"{server.name}__{server.tool}", **server.arguments(place))), say("Done.")]
    async with bot_with(server, place, model, monkeypatch) as api:
        verified = (await api.post(f"/api/mcp/servers/{server.name}/verify")).json()
        assert verified["ok"], verified
        body = {"payload": {"input": "please", "stream": False}}
        response = (await api.post("/api/responses/stream", json=body)).json()
    (made,) = response["toolCalls"]
    assert (made["status"], made["error"], response["text"]) == ("COMPLETED", None, "Done."), response
    assert server.expected in made["result"]
    (result,) = model.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert server.expected in result.text
