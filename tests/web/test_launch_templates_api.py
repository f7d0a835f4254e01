"""Servers from launch templates over HTTP, with the same drafts as in a chat."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.web.api_server import Api, opened_api
from tests.web.local_server import SERVERS

RAW = Path(__file__).parent.parent / "fakes/mcp/raw.py"
SCRIPT = {"listings": [[{"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}]]}
KEY = "s3cret-key-of-the-program"


@pytest.fixture
async def api(folder: Path) -> AsyncIterator[Api]:
    script = json.dumps(SCRIPT).replace("{", "{{").replace("}", "}}")
    file = folder / "launch_templates.toml"
    file.write_text(
        f"""
[templates.scripted]
command = '{sys.executable}'
args = ["-S", "-E", '{RAW}', '{script}', "--team={{team}}"]
[templates.scripted.slots.team]
type = "text"
pattern = "[a-z ]+"
[templates.scripted.slots.key]
type = "secret"
variable = "A_KEY"
"""
    )
    async with opened_api(folder, mcp_launch_templates_file=file) as api:
        yield api


BODY = {"name": "docs", "config": {"template": "scripted", "slots": {"team": "a b"}, "env": {"A_KEY": KEY}}}


async def test_a_program_adds_a_server_by_a_template(api: Api) -> None:
    answer = await api.post(SERVERS, json=BODY)
    assert answer.status_code == 201, answer.text
    kept = answer.json()
    assert (kept["transportType"], kept["status"], kept["toolCount"]) == ("STDIO", "CONNECTED", 1)
    shown = (await api.get(f"{SERVERS}/docs")).json()
    assert shown["config"] == {"template": "scripted", "slots": {"team": "a b"}, "env": {"A_KEY": "***"}}
    assert shown["commandLine"].endswith("'--team=a b'")
    assert KEY not in json.dumps([kept, shown])


async def test_a_read_template_can_be_sent_back_and_a_slot_can_be_changed(api: Api) -> None:
    await api.post(SERVERS, json=BODY)
    shown = (await api.get(f"{SERVERS}/docs")).json()
    same = await api.put(f"{SERVERS}/docs", json={"config": shown["config"]})
    assert (same.status_code, same.json()["version"]) == (200, shown["version"])
    other = await api.put(
        f"{SERVERS}/docs", json={"config": {"slots": {"team": "red"}, "env": {"A_KEY": "key-3Rw8pQz6YtM2vKx9"}}}
    )
    assert other.status_code == 200, other.text
    assert other.json()["commandLine"].endswith("--team=red")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"template": "nope"}, "config.template"),
    ({"template": "scripted", "slots": {"team": "A"}, "env": {"A_KEY": KEY}}, "config.slots.team"),
    ({"template": "scripted", "slots": {"team": "a"}}, "config.env"),
    ({"template": "scripted", "slots": {"team": "a"}, "env": {"A_KEY": KEY, "PATH": "/x"}}, "config.env"),
    ({"template": "scripted", "slots": {"team": "a"}, "env": {"A_KEY": KEY}, "command": "sh"}, "config.command"),
]


async def test_an_error_is_named_by_its_field(api: Api, subtests: pytest.Subtests) -> None:
    for config, field in WRONG:
        with subtests.test(field, config=config):
            answer = await api.post(SERVERS, json={"name": "docs", "config": config})
            assert answer.status_code == 422
            assert field in answer.json()["error"]["fields"], answer.json()
            assert (await api.get(SERVERS)).json()[0]["serverId"] == "fake"
