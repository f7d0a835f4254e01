"""A folder in which the real program works as a person has it: its settings, its servers, its files.

Files are where the defaults say: `config/mcp_servers.json`, `config/policy.toml`, `data/countersign.db`. Nothing of
the environment of the tests gets in.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from tests.fakes import AUTHORITY
from tests.fakes.llm import FakeLanguageModel
from tests.fakes.programs import Program, python
from tests.fakes.terminal import PATIENCE, ProgramOnTerminal
from tests.migrated import copy_template

PROJECT = Path(__file__).parents[2]
CHAT = ("bot", "chat")
KEY = "sk-test-5f0c1e77aa93b6d2"
"""The key for the fake model services."""


@dataclass(frozen=True)
class Outcome:
    """Exit status and output of a program that was run to its end."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Standard output as one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Installation:
    """A folder, and the program run in it. Its database is there already, unless the environment names another.

    `servers` are the entries of the servers' file; None means the bundled servers with the bundled policies.
    `model` is the service to talk to; None means the demo model. `policy` is the policy file's text.
    """

    def __init__(
        self,
        folder: Path,
        servers: Mapping[str, Any] | None = None,
        *,
        model: FakeLanguageModel | None = None,
        policy: str = "",
        **environment: str,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._write_config(servers, policy)
        self.environment = {
            "PATH": os.environ["PATH"],
            "SSL_CERT_FILE": AUTHORITY,
            "HOME": str(folder),
            "LOGNAME": "owner",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(PROJECT),
            **(_settings(model) if model else {"BOT_MODEL": "demo"}),
            # Programs of several tests at once cannot share the usual port.
            **({} if "PORT" in environment else {"CONSOLE": "false"}),
            **environment,
        }
        if "DATABASE_URL" not in environment:
            copy_template(self.data / "countersign.db")

    def _write_config(self, servers: Mapping[str, Any] | None, policy: str) -> None:
        config = self.folder / "config"
        if servers is None:
            shutil.copytree(PROJECT / "config", config)
            return
        config.mkdir(parents=True)
        (config / "mcp_servers.json").write_text(json.dumps({"mcpServers": servers}))
        self.rule(policy)

    def afresh(self) -> Self:
        """The same with no database yet, as before the first start."""
        (self.data / "countersign.db").unlink()
        return self

    def rule(self, policy: str) -> None:
        """Replace the policy file."""
        (self.folder / "config" / "policy.toml").write_text(policy)

    def chat(self, *arguments: str, typed: str = "") -> Outcome:
        """Run `countersign chat` without a terminal, to its end."""
        return self.run(*CHAT, *arguments, typed=typed)

    def countersign(self, *words: str, typed: str = "") -> Outcome:
        """Run any command to its end."""
        return self.run("bot", *words, typed=typed)

    def run(self, *arguments: str, typed: str = "") -> Outcome:
        """Run a module or a file to its end, without a terminal."""
        reading, writing = os.pipe()
        os.write(writing, typed.encode())  # a pipe holds what a test types
        os.close(writing)
        with TemporaryFile("w+", encoding="utf-8") as out, TemporaryFile("w+", encoding="utf-8") as err:
            program = Program(arguments, self.folder, self.environment, (reading, out.fileno(), err.fileno()))
            os.close(reading)
            try:
                code = program.wait_for(2 * PATIENCE)
            finally:
                program.kill()
            out.seek(0)
            err.seek(0)
            return Outcome(code, out.read(), err.read())

    @asynccontextmanager
    async def begun(self, *arguments: str, idle: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
        """`countersign chat` without a terminal while it runs; its streams are pipes. `-m` has no input, or with
        `idle` a pipe to which nobody writes. It is killed in the end.
        """
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(
            *(await asyncio.to_thread(python), "-m", *CHAT, *arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL if "-m" in arguments and not idle else pipe,
            stdout=pipe,
            stderr=pipe,
        )
        try:
            yield program
        finally:
            if program.returncode is None:
                program.kill()
                await program.communicate()

    def terminal(self, *arguments: str, columns: int = 100, rows: int = 40) -> ProgramOnTerminal:
        """`countersign chat` on a terminal, to be used in `async with`."""
        environment = {**self.environment, "TERM": "xterm-256color"}
        return ProgramOnTerminal((*CHAT, *arguments), self.folder, environment, columns=columns, rows=rows)

    @property
    def log(self) -> str:
        """The log file's text."""
        return (self.data / "countersign.log").read_text(encoding="utf-8")

    @property
    def notes(self) -> list[str]:
        """The notes in the bundled notes server's file."""
        file = self.data / "notes.json"
        return [note["text"] for note in json.loads(file.read_text())["notes"]] if file.exists() else []

    def folder_files(self) -> dict[str, bytes]:
        """Every file in the folder."""
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}


@dataclass(frozen=True)
class ScriptedServer:
    """Return an MCP server that plays a script (see `tests/fakes/mcp/raw.py`) and records its input."""

    folder: Path
    name: str
    script: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in the servers' file."""
        script = {**self.script, "record": str(self._record), "pids": str(self._pids)}
        program = str(PROJECT / "tests/fakes/mcp/raw.py")
        return {"command": sys.executable, "args": [program, json.dumps(script)], **self.options}

    @property
    def heard(self) -> list[dict[str, Any]]:
        """Every message it got."""
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls it got: tool and arguments."""
        wanted = (message["params"] for message in self.heard if message["method"] == "tools/call")
        return [(each["name"], each.get("arguments", {})) for each in wanted]

    @property
    def pids(self) -> list[int]:
        """Its processes, in the order they were started."""
        return [int(line) for line in self._pids.read_text().splitlines()] if self._pids.exists() else []

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.name}.heard"

    @property
    def _pids(self) -> Path:
        return self.folder / f"{self.name}.pids"


def scripted_server(
    folder: Path, name: str, *tools: dict[str, Any], calls: Mapping[str, Any] | None = None, **rest: Any
) -> ScriptedServer:
    """A scripted server with these tools. A call says "done" unless `calls` says otherwise. `deaf` and `probe` go to
    its script, everything else to its entry in the servers' file.
    """
    said = {tool["name"]: says("done") for tool in tools} | dict(calls or {})
    script = {"listings": [[{"tools": list(tools)}]], "calls": said}
    script |= {key: rest.pop(key) for key in ("deaf", "probe") if key in rest}
    return ScriptedServer(folder, name, script, rest)


def a_tool(name: str, *, reads: bool = False, **properties: str) -> dict[str, Any]:
    """A tool's definition; `properties` are the types of its arguments, all of them required."""
    schema = {
        "type": "object",
        "properties": {each: {"type": kind} for each, kind in properties.items()},
        "required": list(properties),
    }
    return {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": reads}}


def says(text: str) -> dict[str, Any]:
    """The answer to a call: this text."""
    return {"result": {"content": [{"type": "text", "text": text}]}}


async def becomes(condition: Callable[[], bool], what: str, limit: float = PATIENCE) -> None:
    """Wait, within the limit, until something outside this process has happened."""
    try:
        async with asyncio.timeout(limit):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"in {limit:g} s it did not come to this: {what}") from None


def _settings(model: FakeLanguageModel) -> dict[str, str]:
    provider, prefix = {
        "openai": ("openai", "OPENAI"),
        "responses": ("openai-responses", "OPENAI"),
        "anthropic": ("anthropic", "ANTHROPIC"),
    }[model.api]
    return {
        "BOT_MODEL": f"{provider}:test-model",
        f"{prefix}_API_KEY": KEY,
        f"{prefix}_BASE_URL": model.base_url,
    }
