"""Every piece of Python in README and the guides, run as it stands there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import Block, Kind, blocks
from tests.stories.installation import Installation


def test_the_first_questions_of_the_first_page_run_or_ask_as_it_says(tmp_path: Path) -> None:
    [questions] = [block.text for block in blocks_of("README.md", Kind.OUTPUT) if "umbrella" in block.text]
    asked = Installation(tmp_path, WEATHER_SAMPLE="always").chat(typed=questions)
    assert asked.code == 3
    assert "✓ weather.forecast" in asked.err
    assert "✓ notes.list" in asked.err
    waiting = [line.split()[0] for line in asked.err.splitlines() if "needs an approval and was not run" in line]
    assert waiting == ["notes.add", "notes.delete"]


def python_of(document: str) -> Block:
    [block] = blocks_of(document, Kind.PYTHON)
    return block


def blocks_of(document: str, kind: Kind) -> list[Block]:
    return [block for block in blocks(kind) if block.document == document]


def test_the_server_that_asks_back_works(tmp_path: Path) -> None:
    place = Installation(tmp_path, {})
    (tmp_path / "trains.py").write_text(python_of("docs/writing-servers.md").text, encoding="utf-8")
    add_server(tmp_path, '"trains": {"command": "python", "args": ["trains.py"]}')
    verified = place.countersign("servers", "verify", "trains")
    assert verified.code == 0, verified
    assert "1 tool" in verified.out


def test_an_export_of_the_audit_is_checked(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    place.chat("--approve", "all", "-m", "Please note: the office closes early")
    exported = place.countersign("audit", "export").out
    check = [sys.executable, "-c", python_of("docs/audit.md").text]
    assert exported.count("\n") > 2
    subprocess.run(check, input=exported, text=True, check=True, timeout=30)
    changed = exported.replace("notes", "other", 1)
    assert subprocess.run(check, input=changed, text=True, check=False, timeout=30, capture_output=True).returncode == 1


def add_server(folder: Path, entry: str) -> None:
    """Write an entry into the servers' file."""
    path = folder / "config" / "mcp_servers.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["mcpServers"] |= json.loads(f"{{{entry}}}")
    path.write_text(json.dumps(document), encoding="utf-8")
