"""The lines of README and the guides that add a server work as they stand there."""

from __future__ import annotations

import io
import json
import re
import shlex
import socket
import sys
from pathlib import Path

import pytest

from tests.cli.invocation import Countersign
from tests.fakes.package_runners import PackageRunners

PROJECT = Path(__file__).parents[2]
GUIDES = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
LINE = re.compile(r"^ *(?:(?:\.venv/bin/)?countersign servers|/mcp) add (?!alone)(.+?)(?:   +#.*)?$", re.MULTILINE)
OF_OTHER_PROGRAMS = {
    "inputs": [{"id": "folder", "type": "promptString", "default": "/srv"}],
    "mcpServers": {"github": {"command": "npx", "args": ["-y", "github-mcp@1.0.0", "${input:folder}"]}},
}
TEMPLATE = "template="
"""Lines with templates need files of the operator; `tests/commands/test_server_templates.py` runs such."""


def documented() -> list[str]:
    lines = (match[1] for guide in GUIDES for match in LINE.finditer(guide.read_text(encoding="utf-8")))
    return sorted({line for line in lines if TEMPLATE not in line})


class AtTerminal(io.StringIO):
    """What somebody types who says yes."""

    def isatty(self) -> bool:
        return True


def test_the_guides_show_an_address_a_package_of_npm_and_one_of_pypi() -> None:
    lines = [f" {line}" for line in documented()]
    assert any(" https://" in line for line in lines)
    assert any(" -- npx -y " in line for line in lines)
    assert any(" -- uvx " in line for line in lines)


@pytest.mark.parametrize("line", documented())
def test_a_documented_line_adds_its_server(
    line: str, countersign: Countersign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_name: object, **_more: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "no network in the tests")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("LOGNAME", "owner")
    monkeypatch.setenv("PATH", PackageRunners(tmp_path).path)
    monkeypatch.setenv("MCP_ALLOWED_HOSTS", "127.0.0.1:8123")
    for variable in re.findall(r"env:(\w+)", line):
        monkeypatch.setenv(variable, "tk-5d0e2f19ab3c-documented")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".config/Claude/claude_desktop_config.json", ".vscode/mcp.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(OF_OTHER_PROGRAMS))
    monkeypatch.setattr(io, "StringIO", AtTerminal)
    # The programs are allowed, the secret is entered later.
    typed = "y\nn\n" if "-- " in line or line.startswith("--file") else "n\n"
    added = countersign("servers", "add", *shlex.split(line), typed=typed)
    assert added.code == 0, added.err
    assert re.search(r"(is|are) added", added.out)
    assert sys.stdin.isatty()
