"""MCP servers over HTTP: stored data, its representation, and the roles that may read and change it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.web.api_server import Api, opened_api
from tests.web.local_server import SERVERS, add_server

SECRET, OTHER_SECRET = "s3cret-of-jira-one", "s3cret-of-jira-two"


def database_files(folder: Path) -> list[bytes]:
    """Return the bytes of the database's files."""
    return [path.read_bytes() for path in folder.iterdir() if path.name.startswith("countersign.db")]


def sent_credentials(endpoint: FakeEndpoint) -> str:
    """Return the credentials of the last request."""
    return endpoint.seen[-1][0].get("authorization", "")


async def test_every_http_transport_is_stored_and_returned(
    api: Api, jira: FakeEndpoint, subtests: pytest.Subtests
) -> None:
    default = "STREAMABLE_HTTP"
    for sent in (None, "HTTP", "STREAMABLE_HTTP", "AUTO", "SSE", "JSONRPC_HTTP"):
        with subtests.test(sent or "none"):
            more = {"transportType": sent} if sent else {}
            body = {"name": f"Jira {sent}", "url": jira.url, "autoConnect": False, **more}
            added = (await api.post(SERVERS, json=body)).json()
            found = (await api.get(f"{SERVERS}/{added['id']}")).json()
            kept = default if sent in (None, "HTTP") else sent
            assert (added["transportType"], found["transportType"]) == (kept, kept)


async def test_a_server_is_added_connected_to_and_found_by_id_slug_and_name(api: Api, jira: FakeEndpoint) -> None:
    answer = await api.post(SERVERS, json={"name": "Jira Cloud", "url": jira.url, "apiKey": SECRET})
    assert answer.status_code == 201
    kept = answer.json()
    assert answer.headers["Location"] == f"{SERVERS}/{kept['id']}"
    assert answer.headers["ETag"] == '"1"'
    assert (kept["serverId"], kept["name"], kept["status"], kept["toolCount"]) == (
        "jira-cloud",
        "Jira Cloud",
        "CONNECTED",
        2,
    )
    assert (kept["authType"], kept["apiKeySet"], kept["createdBy"]) == ("api_key", True, "api:admin")
    assert "config" not in kept
    assert sent_credentials(jira) == f"Bearer {SECRET}"
    for ref in (kept["id"], "jira-cloud", "JIRA CLOUD"):
        found = await api.get(f"{SERVERS}/{ref}")
        assert found.status_code == 200
        assert found.json()["tools"] == ["find_issue", "create_issue"]
        assert found.json()["config"]["url"] == jira.url
    listed = (await api.get(SERVERS)).json()
    assert [entry["serverId"] for entry in listed] == ["fake", "jira-cloud"]
    assert all("config" not in entry for entry in listed)


async def test_an_unknown_server_is_404_for_every_verb(api: Api) -> None:
    for method, path in (
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("POST", "/connect"),
        ("POST", "/disconnect"),
        ("POST", "/verify"),
        ("POST", "/sync"),
        ("GET", "/capabilities"),
        ("GET", "/status/stream"),
    ):
        more: dict[str, Any] = {"json": {}} if method == "PUT" else {}
        answer = await api.request(method, f"{SERVERS}/server_123{path}", **more)
        problem = answer.json()["error"]
        assert (answer.status_code, problem["code"]) == (404, "not_found"), path
        assert problem["message"].startswith("MCP server `server_123` not found."), path


async def test_the_same_name_is_a_conflict_unless_it_is_meant_to_change_that_server(
    api: Api, jira: FakeEndpoint
) -> None:
    first = await add_server(api, jira)
    again = {"name": "jira", "url": jira.url, "description": "Tickets"}
    answer = await api.post(SERVERS, json=again)
    assert answer.status_code == 409
    assert answer.json()["error"]["fields"] == {"name": "It is taken."}
    answer = await api.post(f"{SERVERS}?upsert=true", json=again)
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["description"], answer.json()["version"]) == (first["id"], "Tickets", 2)


async def test_a_server_need_not_be_connected_to_at_once_and_its_standing_has_the_words_of_each_seed(
    api: Api, jira: FakeEndpoint
) -> None:
    answer = await api.post(f"{SERVERS}?connect=false", json={"name": "jira", "url": jira.url, "enabled": False})
    assert (answer.json()["status"], answer.json()["sessionState"], answer.json()["enabled"]) == (
        "DISABLED",
        "CLOSED",
        False,
    )
    assert (await api.get(f"{SERVERS}/jira?vocab=idle-error")).json()["status"] == "IDLE"
    assert (await api.get(f"{SERVERS}/jira?vocab=pending-failed")).json()["status"] == "DISABLED"
    answer = await api.post(f"{SERVERS}/jira/connect")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "disabled")
    assert (await api.put(f"{SERVERS}/jira", json={"enabled": True})).json()["enabled"] is True
    assert (await api.post(f"{SERVERS}/jira/connect")).json()["connected"] is True


async def test_times_are_iso_or_epoch_milliseconds_as_is_asked(api: Api, jira: FakeEndpoint) -> None:
    iso = (await add_server(api, jira))["createdAt"]
    assert iso.startswith("20")
    assert iso.endswith("Z")
    milliseconds = (await api.get(f"{SERVERS}/jira?time=epoch_ms")).json()["createdAt"]
    assert isinstance(milliseconds, int)
    assert milliseconds > 1_700_000_000_000


async def test_sessions_groups_and_connections_are_set_and_their_bounds_are_named(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    wanted = {
        "reconnect": False,
        "connectRetries": 2,
        "outputLimit": 9_000,
        "fallbackGroup": "tickets",
        "fallbackOrder": 2,
        "toolNames": "plain",
        "sessions": "conversation",
        "maxSessions": 3,
        "sessionIdleTimeout": 120,
        "protocol": "2025-06-18",
    }
    changed = (await api.put(f"{SERVERS}/jira", json=wanted)).json()
    assert {name: changed[name] for name in wanted} == wanted
    assert changed["openSessions"] == []
    wrong = {"maxSessions": 101, "connectRetries": 11, "outputLimit": 5, "protocol": "2025"}
    refused = await api.put(f"{SERVERS}/jira", json=wrong)
    assert refused.status_code == 422
    for bounds in ("from 1 to 100", "from 0 to 10", "from 1000 to 200000", "auto, 2024-11-05, 2025-03-26, 2025-06-18"):
        assert bounds in refused.text


async def test_a_change_leaves_everything_that_it_does_not_name(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, apiKey=SECRET, description="Tickets", systemInstruction="Be brief.")
    answer = await api.put(f"{SERVERS}/jira", json={"name": "Jira", "toolTimeout": 12, "toolTimeouts": {"export": 60}})
    changed = answer.json()
    assert answer.headers["ETag"] == '"2"'
    assert (changed["name"], changed["serverId"], changed["toolTimeout"]) == ("Jira", "jira", 12)
    assert (changed["toolTimeouts"], changed["toolTimeoutMax"], changed["listTimeout"]) == ({"export": 60}, 300, 15)
    assert (changed["description"], changed["systemInstruction"], changed["apiKeySet"]) == (
        "Tickets",
        "Be brief.",
        True,
    )
    assert changed["protocol"] == "auto"
    assert (await api.put(f"{SERVERS}/jira", json={})).json()["version"] == 2
    renamed = await api.put(f"{SERVERS}/jira", json={"serverId": "tickets"})
    assert (renamed.json()["serverId"], renamed.json()["name"]) == ("tickets", "Jira")


async def test_a_read_server_can_be_sent_back_and_stars_keep_a_secret(api: Api, jira: FakeEndpoint) -> None:
    headers = {"X-Team": OTHER_SECRET, "X-From": "env:SOMEWHERE"}
    config = {"url": jira.url, "headerValue": SECRET, "headers": {"X-Team": OTHER_SECRET}}
    answer = await api.post(SERVERS, json={"name": "jira", "authType": "header", "config": config})
    assert answer.status_code == 201, answer.text
    read = (await api.get(f"{SERVERS}/jira")).json()["config"]
    assert read["headerValue"] == read["headers"]["X-Team"] == "***"
    assert (await api.put(f"{SERVERS}/jira", json={"config": read})).json()["version"] == 1
    await api.post(f"{SERVERS}/jira/sync")
    assert sent_credentials(jira) == SECRET
    assert jira.seen[-1][0]["x-team"] == OTHER_SECRET
    answer = await api.put(f"{SERVERS}/jira", json={"config": {"headerValue": OTHER_SECRET, "headers": {}}})
    assert answer.json()["version"] == 2
    await api.post(f"{SERVERS}/jira/connect")
    assert sent_credentials(jira) == OTHER_SECRET
    assert "x-team" not in jira.seen[-1][0]
    answer = await api.put(f"{SERVERS}/jira", json={"config": {"headers": headers}})
    assert answer.json()["config"]["headers"] == {"X-Team": "***", "X-From": "env:SOMEWHERE"}


async def test_a_header_that_is_no_secret_is_sent_and_shown(api: Api, jira: FakeEndpoint, folder: Path) -> None:
    await add_server(api, jira, config={"headers": {"X-Team": "red", "X-Trace": OTHER_SECRET}})
    read = (await api.get(f"{SERVERS}/jira")).json()["config"]
    assert read["headers"] == {"X-Team": "red", "X-Trace": "***"}
    assert (await api.put(f"{SERVERS}/jira", json={"config": read})).json()["version"] == 1
    await api.post(f"{SERVERS}/jira/sync")
    assert [jira.seen[-1][0][name] for name in ("x-team", "x-trace")] == ["red", OTHER_SECRET]
    changed = await api.put(f"{SERVERS}/jira", json={"config": {"headers": {"X-Team": OTHER_SECRET}}})
    assert changed.json()["config"]["headers"] == {"X-Team": "***"}
    changed = await api.put(f"{SERVERS}/jira", json={"config": {"headers": {"X-Team": "blue"}}})
    assert changed.json()["config"]["headers"] == {"X-Team": "blue"}
    assert not any(OTHER_SECRET.encode() in content for content in database_files(folder))


async def test_secrets_of_other_services_may_be_weak_and_are_not_shown(
    api: Api, jira: FakeEndpoint, folder: Path
) -> None:
    for number, name in enumerate(("X-Api-Key", "Cookie", "X-Team-Token")):
        body = {"name": f"Jira {number}", "url": jira.url, "config": {"headers": {name: "token_123"}}}
        answer = await api.post(SERVERS, json=body)
        assert answer.status_code == 201
        assert "token_123" not in answer.text
    config = {"username": "db_user", "password": "db_pass"}
    answer = await api.post(SERVERS, json={"name": "DB", "url": jira.url, "authType": "basic", "config": config})
    assert answer.status_code == 201
    assert not any(word in content for content in database_files(folder) for word in (b"token_123", b"db_pass"))


async def test_a_new_value_of_a_secret_is_used_from_the_next_request_on(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, apiKey=SECRET)
    changed = await api.put(f"{SERVERS}/jira", json={"apiKey": OTHER_SECRET})
    assert changed.json()["version"] == 2
    await api.post(f"{SERVERS}/jira/connect")
    assert sent_credentials(jira) == f"Bearer {OTHER_SECRET}"
    assert (await api.put(f"{SERVERS}/jira", json={"apiKey": "***"})).json()["version"] == 2
    gone = await api.put(f"{SERVERS}/jira", json={"apiKey": ""})
    assert (gone.json()["apiKeySet"], gone.json()["authType"]) == (False, "none")


async def test_the_user_name_of_basic_is_written_and_never_read(
    api: Api, jira: FakeEndpoint, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user, other = "u5er-of-jira-9f2c71", "0ther-u5er-b3aa46"
    config = {"url": jira.url, "username": user, "password": SECRET}
    await api.post(SERVERS, json={"name": "jira", "authType": "basic", "config": config})
    assert sent_credentials(jira) == f"Basic {base64.b64encode(f'{user}:{SECRET}'.encode()).decode()}"
    assert (await api.get(f"{SERVERS}/jira")).json()["config"] == {**config, "username": "***", "password": "***"}
    await api.put(f"{SERVERS}/jira", json={"description": "Tickets"})
    kept = await api.put(f"{SERVERS}/jira", json={"config": {"username": "***", "password": OTHER_SECRET}})
    assert kept.status_code == 200
    await api.post(f"{SERVERS}/jira/connect")
    assert sent_credentials(jira) == f"Basic {base64.b64encode(f'{user}:{OTHER_SECRET}'.encode()).decode()}"
    await api.put(f"{SERVERS}/jira", json={"config": {"username": other}})
    await api.post(f"{SERVERS}/jira/connect")
    assert sent_credentials(jira) == f"Basic {base64.b64encode(f'{other}:{OTHER_SECRET}'.encode()).decode()}"
    wrong = await api.put(f"{SERVERS}/jira", json={"config": {"username": f"{user}:x"}})
    assert wrong.json()["error"]["fields"] == {"config.username": "A user name is without a colon."}
    said = [wrong.text, (await api.get(f"{SERVERS}/jira")).text, (await api.get(SERVERS)).text]
    said += [
        (await api.post("/api/commands", json={"command": "mcp", "words": words})).text
        for words in (["show", "jira"], ["edit", "jira"], ["audit"], ["doctor", "jira"])
    ]
    said += [record.getMessage() for record in caplog.records]
    assert not [text for text in said if user in text or other in text]
    assert not [content for content in database_files(folder) if user.encode() in content or other.encode() in content]


UNUSABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"url": "https://x.example/mcp"}, "serverId", "What is it called?"),
    ({"name": "x"}, "url", "The address is missing"),
    ({"name": "x", "url": "ftp://x"}, "url", "no http or https address"),
    ({"name": "x", "config": {"url": "no address"}}, "config.url", "no http or https address"),
    ({"name": "x", "url": "https://u:p@x.example"}, "url", "kept readable"),
    ({"name": "x", "url": "http://169.254.169.254/"}, "url", ""),
    ({"name": "x", "url": "http://10.0.0.1/mcp"}, "url", ""),
    ({"name": "x", "transportType": "CARRIER", "url": "https://x.example"}, "transportType", "One of: "),
    ({"name": "x", "config": {"command": "python", "args": ["-m", "x"]}}, "transportType", "Only the operator"),
    ({"name": "x", "url": "https://x.example", "authType": "basic"}, "config.password", "It is missing"),
    ({"name": "x", "url": "https://x.example", "authType": "header"}, "config.headerValue", "It is missing"),
    ({"name": "x", "url": "https://x.example", "authType": "magic"}, "authType", "One of"),
    ({"name": "x", "url": "https://x.example", "authType": "none", "apiKey": "abc"}, "apiKey", "how it signs in"),
    ({"name": "x", "url": "https://x.example", "apiKey": "env:a b"}, "apiKey", "env:NAME"),
    ({"name": "x", "url": "https://x.example", "apiKey": "two\nlines"}, "apiKey", "plain ASCII"),
    ({"name": "x", "serverId": "No Slug", "url": "https://x.example"}, "serverId", "Lower-case"),
    ({"name": "x", "url": "https://x.example", "policy": "maybe"}, "policy", "One of"),
    ({"name": "x", "url": "https://x.example", "config": {"headers": {"a b": "v"}}}, "config.headers", ""),
    ({"name": "x", "url": "https://x.example", "colour": "red"}, "colour", "not known here"),
    ({"name": "x", "config": {"url": "https://x.example", "color": 1}}, "config.color", "not known here"),
]
"""A body, its invalid field, and the error."""


async def test_invalid_values_are_named_field_by_field_and_nothing_is_stored(api: Api) -> None:
    for body, field, said in UNUSABLE:
        answer = await api.post(SERVERS, json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert said in answer.json()["error"]["fields"][field], (body, answer.text)
    assert [each["serverId"] for each in (await api.get(SERVERS)).json()] == ["fake"]


async def test_a_name_that_the_operator_does_not_allow_is_refused(folder: Path) -> None:
    async with opened_api(folder, mcp_allowed_servers="jira") as api:
        answer = await api.post(SERVERS, json={"name": "other", "url": "https://x.example/mcp"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "name_not_allowed")


async def test_an_overtaken_editor_reads_who_was_faster(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.put(f"{SERVERS}/jira", json={"description": "one"}, token=await api.token("ci", ApiRole.ADMIN))
    conflict = await api.put(f"{SERVERS}/jira", json={"description": "two", "version": 1})
    assert conflict.status_code == 409
    assert "changed by api:ci" in conflict.json()["error"]["message"]
    assert conflict.json()["error"]["fields"] == {"version": "2"}
    failed = await api.put(f"{SERVERS}/jira", json={"description": "two"}, headers={"If-Match": '"1"'})
    assert (failed.status_code, failed.headers["ETag"]) == (412, '"2"')
    assert (await api.delete(f"{SERVERS}/jira", headers={"If-Match": '"1"'})).status_code == 412
    assert (await api.get(f"{SERVERS}/jira")).json()["description"] == "one"
    for tag in ('"2"', "*"):
        changed = await api.put(f"{SERVERS}/jira", json={"description": f"three {tag}"}, headers={"If-Match": tag})
        assert changed.status_code == 200
    assert (await api.delete(f"{SERVERS}/jira", headers={"If-Match": '"4"'})).status_code == 204


async def test_a_removed_server_is_gone_with_its_connection(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    assert (await api.delete(f"{SERVERS}/jira")).status_code == 204
    assert (await api.get(f"{SERVERS}/jira")).status_code == 404
    assert (await api.delete(f"{SERVERS}/jira")).status_code == 404


async def test_the_operators_own_server_is_read_only(api: Api) -> None:
    answer = await api.get(f"{SERVERS}/fake")
    assert (answer.json()["managedIn"], answer.json()["version"], "ETag" in answer.headers) == ("file", None, False)
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/disconnect")):
        more: dict[str, Any] = {"json": {"description": "x"}} if method == "PUT" else {}
        refused = await api.request(method, f"{SERVERS}/fake{path}", **more)
        assert refused.status_code == 403
        assert "operator's file" in refused.json()["error"]["message"]


async def test_a_secret_does_not_follow_to_another_address(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, apiKey=SECRET)
    moved = await api.put(f"{SERVERS}/jira", json={"url": "https://elsewhere.example/mcp"})
    assert (moved.json()["apiKeySet"], moved.json()["missingSecrets"]) == (False, ["auth"])
    both = await api.put(f"{SERVERS}/jira", json={"url": "https://other.example/mcp", "apiKey": OTHER_SECRET})
    assert (both.json()["apiKeySet"], both.json()["missingSecrets"]) == (True, [])


async def test_with_mcp_switched_off_everything_says_so(folder: Path) -> None:
    async with opened_api(folder, mcp_enabled=False) as api:
        for path in (SERVERS, "/api/mcp/tools", "/api/mcp/approval-policies", "/api/workspaces/slack:T1/mcp-servers"):
            answer = await api.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "mcp_disabled")
