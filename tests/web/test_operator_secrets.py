"""The operator's secrets go to servers that the operator has named, and a stored secret stays with its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from tests.app.program import program
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint
from tests.web.api_server import Api, opened_api
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, opened_jira

OPERATORS = "the-operators-own-jira-key"
REFERENCE = "env:MCP_SECRET_JIRA"
HOME = "slack:T1"
THERE = f"/api/workspaces/{HOME}/mcp-servers"


@pytest.fixture(autouse=True)
def operators_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SECRET_JIRA", OPERATORS)


@pytest.fixture
async def evil() -> AsyncIterator[FakeEndpoint]:
    async with opened_jira() as endpoint:
        yield endpoint


def write_grants(folder: Path, *hosts: str, workspace: str = HOME) -> dict[str, Any]:
    """Write a file with a grant for these hosts and return the settings that use it."""
    file = folder / "grants.toml"
    file.write_text(
        f'[[grant]]\nsecret = "{REFERENCE}"\nworkspaces = ["{workspace}"]\nhosts = {list(hosts)}\n', encoding="utf-8"
    )
    return {"mcp_secret_grants_file": file, "mcp_allowed_hosts": ON_THIS_MACHINE}


def origin(endpoint: FakeEndpoint) -> str:
    return f"http://127.0.0.1:{endpoint.port}"


def heard(endpoint: FakeEndpoint) -> str:
    """Return all requests that a server received."""
    return repr(endpoint.seen)


async def admin(api: Api) -> str:
    """Create a token of an admin of one workspace."""
    return await api.token("admin-of-t1", ApiRole.ADMIN, HOME)


WAYS: dict[str, dict[str, Any]] = {
    "api key": {"apiKey": REFERENCE},
    "header": {"authType": "header", "config": {"headerName": "X-Key", "headerValue": REFERENCE}},
    "password": {"authType": "basic", "config": {"username": "bot", "password": REFERENCE}},
    "client secret": {"authType": "client_credentials", "config": {"clientId": "bot", "clientSecret": REFERENCE}},
    "further header": {"config": {"headers": {"X-Key": REFERENCE}}},
    "a file": {"apiKey": "file:/run/secrets/jira"},
}


async def test_an_admin_cannot_have_the_operators_secret_sent_to_a_server_of_their_own(
    folder: Path, evil: FakeEndpoint, subtests: pytest.Subtests
) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        token = await admin(api)
        for way, fields in WAYS.items():
            with subtests.test(way):
                answer = await api.post(THERE, json={"name": "own", "url": evil.url, **fields}, token=token)
                assert answer.status_code == 422, answer.text
                (said,) = answer.json()["error"]["fields"].values()
                assert "is the operator's, and is not granted" in said
                assert "config/secret_grants.toml" in said
                assert "enter the secret itself" in said
    assert OPERATORS not in heard(evil)


async def test_an_admin_of_all_workspaces_is_not_the_operator(folder: Path, evil: FakeEndpoint) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        token = await api.token("ci", ApiRole.ADMIN)
        answer = await api.post(SERVERS, json={"name": "own", "url": evil.url, "apiKey": REFERENCE}, token=token)
        assert answer.status_code == 422
        assert "ADMIN_API_TOKEN" in answer.text
    assert OPERATORS not in heard(evil)


async def test_a_granted_reference_works_at_its_host_and_at_no_other(
    folder: Path, jira: FakeEndpoint, evil: FakeEndpoint
) -> None:
    async with opened_api(folder, **write_grants(folder, origin(jira))) as api:
        token = await admin(api)
        body = {"name": "jira", "url": jira.url, "apiKey": REFERENCE}
        assert (await api.post(THERE, json=body, token=token)).json()["status"] == "CONNECTED"
        assert OPERATORS in heard(jira)
        for change in ({"url": evil.url}, {"url": evil.url, "apiKey": REFERENCE}):
            moved = await api.put(f"{THERE}/jira", json=change, token=token)
            assert moved.status_code == 422
            assert "not granted" in moved.text
        other = await api.token("admin-of-t2", ApiRole.ADMIN, "slack:T2")
        refused = await api.post("/api/workspaces/slack:T2/mcp-servers", json=body, token=other)
        assert refused.status_code == 422
    assert OPERATORS not in heard(evil)


@pytest.mark.usefixtures("rare_polls")
async def test_a_grant_that_is_taken_back_ends_with_a_reload_and_after_a_restart(
    folder: Path, jira: FakeEndpoint
) -> None:
    settings = write_grants(folder, origin(jira))
    async with opened_api(folder, **settings) as api:
        token = await admin(api)
        added = await api.post(THERE, json={"name": "jira", "url": jira.url, "apiKey": REFERENCE}, token=token)
        assert added.json()["status"] == "CONNECTED"
        settings["mcp_secret_grants_file"].write_text("", encoding="utf-8")
        assert "secret grants" in (await api.post("/api/commands", json={"command": "mcp", "words": ["reload"]})).text
        kept = (await api.get(f"{THERE}/jira")).json()
        assert kept["status"] == "FAILED"
        assert "not granted" in kept["lastError"]
        described = await api.put(f"{THERE}/jira", json={"description": "Tickets"}, token=token)
        assert described.status_code == 200
    jira.seen.clear()
    async with opened_api(folder, **settings) as api:
        assert "not granted" in (await api.post(f"{THERE}/jira/connect")).text
    assert jira.seen == []


async def test_the_operators_own_reference_needs_no_grant_and_does_not_move_with_an_admin(
    folder: Path, jira: FakeEndpoint, evil: FakeEndpoint
) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        body = {"name": "jira", "url": jira.url, "apiKey": REFERENCE}
        assert (await api.post(THERE, json=body)).json()["status"] == "CONNECTED"
        token = await admin(api)
        assert (await api.put(f"{THERE}/jira", json={"description": "Tickets"}, token=token)).status_code == 200
        assert (await api.put(f"{THERE}/jira", json={"url": evil.url}, token=token)).status_code == 422
        words = ["secret", "rotate", "jira", "auth"]
        again = await api.post("/api/commands", json={"command": "mcp", "words": words, "workspace": HOME}, token=token)
        assert again.status_code == 200
        moved = await api.put(f"{THERE}/jira", json={"url": evil.url})
        assert moved.status_code == 200, "the operator may move an own reference"
        assert (await api.post(f"{THERE}/jira/connect")).json()["connected"]
        assert OPERATORS in heard(evil)


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_stored_secret_is_cleared_by_every_move_of_the_server(
    folder: Path, jira: FakeEndpoint, evil: FakeEndpoint, *, everywhere: bool
) -> None:
    mine = "s3cret-that-was-typed"
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        servers = SERVERS if everywhere else THERE
        token = None if everywhere else await admin(api)
        more = {"token": token} if token else {}
        await api.post(servers, json={"name": "jira", "url": jira.url, "apiKey": mine}, **more)
        assert mine in heard(jira)
        for move in ({"url": evil.url}, {"config": {"url": evil.url}}, {"url": evil.url, "apiKey": "***"}):
            moved = await api.put(f"{servers}/jira", json=move, **more)
            assert moved.status_code == 200, moved.text
            assert (moved.json()["apiKeySet"], moved.json()["missingSecrets"]) == (False, ["auth"])
            assert "not set" in moved.json()["lastError"]
            back = await api.put(f"{servers}/jira", json={"url": jira.url}, **more)
            assert back.json()["missingSecrets"] == ["auth"]
            await api.put(f"{servers}/jira", json={"apiKey": mine}, **more)
        audit = await api.post("/api/commands", json={"command": "mcp", "words": ["audit"], "workspace": HOME})
        assert "cleared: it was entered for" in audit.text
        upserted = await api.post(f"{servers}?upsert=true", json={"name": "jira", "url": evil.url}, **more)
        assert upserted.json()["missingSecrets"] == ["auth"]
        given = await api.put(f"{servers}/jira", json={"apiKey": "for-the-new-address"}, **more)
        assert given.json()["missingSecrets"] == []
    assert mine not in heard(evil)
    assert "for-the-new-address" in heard(evil)


async def test_a_redirect_of_the_server_does_not_carry_the_secret_away(
    folder: Path, jira: FakeEndpoint, evil: FakeEndpoint
) -> None:
    mine = "s3cret-that-was-typed"
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        for transport, status in product(("STREAMABLE_HTTP", "AUTO", "SSE", "JSONRPC_HTTP"), (301, 302, 303, 307, 308)):
            jira.seen.clear()
            jira.on.clear()
            for method in ("server/discover", "initialize", "GET", "POST", "tools/list", "look", "ping"):
                jira.on[method] = Answer(status, headers={"location": evil.url})
            body = {"name": "jira", "url": jira.url, "transportType": transport, "apiKey": mine, "connectTimeout": 5}
            await api.post(SERVERS, json=body)
            run = {"serverId": "jira", "toolName": "call_mcp_jira", "arguments": {"method": "look"}}
            await api.post("/api/mcp/tools/execute", json=run)
            await api.post(f"{SERVERS}/jira/verify")
            await api.delete(f"{SERVERS}/jira")
            assert mine in heard(jira), (transport, status)
    assert evil.seen == []


async def test_a_header_that_names_a_host_is_refused(
    folder: Path, jira: FakeEndpoint, subtests: pytest.Subtests
) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        for header in ("Host", "X-Forwarded-Host", "Forwarded", "X-Original-URL", "Proxy-Authorization"):
            further = {"config": {"headers": {header: "evil.example"}}}
            secret = {"authType": "header", "config": {"headerName": header, "headerValue": "evil.example"}}
            for fields, field in ((further, "config.headers"), (secret, "config.headerName")):
                with subtests.test(header, field=field):
                    answer = await api.post(SERVERS, json={"name": "jira", "url": jira.url, **fields})
                    assert answer.status_code == 422
                    assert "names a host" in answer.json()["error"]["fields"][field]


async def test_doctor_explains_the_grants_and_names_the_server_that_is_kept_from_a_reference(
    folder: Path, jira: FakeEndpoint
) -> None:
    settings = write_grants(folder, origin(jira))
    async with opened_api(folder, **settings) as api:
        body = {"name": "jira", "url": jira.url, "apiKey": REFERENCE, "autoConnect": False}
        await api.post(THERE, json=body, token=await admin(api))
    file = settings["mcp_secret_grants_file"]
    file.write_text(
        f'[[grant]]\nsecret = "{REFERENCE}"\nworkspaces = ["{HOME}"]\nhosts = ["jira.example"]\n'
        '[[grant]]\nsecret = "env:X"\nworkspaces = ["*"]\nhosts = ["jira.example"]\n',
        encoding="utf-8",
    )
    variables = {
        "DATABASE_URL": f"sqlite:///{folder / 'countersign.db'}",
        "MCP_SERVERS_FILE": str(folder / "servers.json"),
        "MCP_ALLOWED_HOSTS": ON_THIS_MACHINE,
        "MCP_SECRET_GRANTS_FILE": str(file),
        "MCP_SECRET_JIRA": OPERATORS,
    }
    found = await asyncio.to_thread(program, folder, "doctor", **variables)
    assert f"{REFERENCE} is granted to servers of {HOME} at jira.example." in found.stdout
    assert "line 5: '*' is not a workspace. Patterns are not allowed. It grants nothing. Fix:" in found.stdout
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("✗ jira · standing")]
    assert "is not granted" in line
    assert OPERATORS not in found.stdout
