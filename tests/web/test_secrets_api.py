"""Secrets never appear in a response, an error or the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.web.api_server import Api, opened_api
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, opened_jira

MARK = "mark3r"


def secret(where: str) -> str:
    return f"{MARK}-{where}-Zk29vT4x"


async def paths(api: Api) -> list[str]:
    """Return the paths of all GET routes for the objects of this test."""
    return [
        SERVERS,
        f"{SERVERS}?vocab=idle-error&time=epoch_ms",
        "/api/mcp/tools",
        "/api/mcp/instructions",
        "/api/mcp/approval-policies?effective=true",
        "/api/workspaces/slack:T1/mcp-servers",
        "/api/workspaces/slack:T1/agents",
        "/api/conversations",
        *(f"{SERVERS}/{ref}{rest}" for ref in ("one", "two", "three", "file-one") for rest in ("", "/capabilities")),
        "/healthz",
    ]


async def test_no_secret_is_in_any_answer_or_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened_jira() as jira:
        of_file = {"file-one": {"url": jira.url, "headers": {"X-Key": secret("file")}}}
        async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE, servers=of_file) as api:
            bodies = []
            for name, more in (
                ("one", {"apiKey": secret("api-key"), "config": {"headers": {"X-More": secret("header")}}}),
                ("two", {"authType": "header", "config": {"headerValue": secret("header-value")}}),
                (
                    "three",
                    {"authType": "basic", "config": {"username": secret("user"), "password": secret("password")}},
                ),
            ):
                answer = await api.post(SERVERS, json={"name": name, "url": jira.url, **more})
                assert answer.status_code == 201, answer.text
                bodies.append(answer.text)
            for method, path, body in (
                ("PUT", f"{SERVERS}/one", {"apiKey": secret("new")}),
                ("PUT", f"{SERVERS}/one", {"apiKey": f"{secret('bad')}\n", "colour": secret("extra")}),
                ("PUT", f"{SERVERS}/one", {"apiKey": f"{secret('bad')}\n"}),
                ("PUT", f"{SERVERS}/one", {"config": {"headers": {"a b": secret("bad-header")}}}),
                ("PUT", f"{SERVERS}/one", {"apiKey": {"value": secret("bad-type")}}),
                ("POST", SERVERS, {"name": "one", "url": jira.url, "apiKey": secret("taken")}),
                ("POST", SERVERS, {"name": "x", "config": {"command": "x", "env": {"TOKEN": secret("env")}}}),
                ("POST", f"{SERVERS}/one/verify?deep=true", None),
                ("POST", f"{SERVERS}/one/sync", None),
                ("POST", "/api/commands", {"command": "mcp", "words": ["show", "one"]}),
                ("POST", "/api/commands", {"command": "mcp", "words": ["audit"]}),
                ("POST", "/api/commands", {"command": "mcp", "words": ["edit", "one"]}),
                ("POST", "/api/commands", {"command": "mcp", "words": ["doctor"]}),
            ):
                answer = await api.request(method, path, json=body)
                assert answer.status_code != 500
                bodies.append(answer.text)
            for path in await paths(api):
                answer = await api.get(path)
                assert answer.status_code < 500, path
                bodies.append(answer.text)
    assert not [body for body in bodies if MARK in body]
    assert not [record.getMessage() for record in caplog.records if MARK in record.getMessage()]
    assert not [record for record in caplog.records if record.exc_text and MARK in record.exc_text]
