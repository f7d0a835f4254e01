"""One workspace over HTTP: tokens of another workspace cannot read or change its servers and profiles."""

from __future__ import annotations

from typing import Any

from bot.domain.api_clients import ApiRole
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.web.api_server import Api
from tests.web.local_server import SERVERS, add_server

HERE, THERE = "/api/workspaces/slack:T1", "/api/workspaces/slack:T2"


async def test_a_server_of_one_workspace_is_no_other_ones_and_shows_no_config_in_lists(
    api: Api, jira: FakeEndpoint
) -> None:
    body = {
        "name": "Weather API",
        "url": jira.url,
        "authType": "header",
        "config": {"headerValue": "Bearer tok_8f2K9qLw4ZtX7vBn"},
    }
    answer = await api.post(f"{HERE}/mcp-servers", json=body)
    assert answer.status_code == 201
    kept = answer.json()
    assert answer.headers["Location"] == f"{HERE}/mcp-servers/{kept['id']}"
    assert {"id", "name", "url", "authType", "createdAt", "updatedAt"} <= kept.keys()
    assert "config" not in kept
    assert kept["workspace"] == "slack:T1"
    assert [each["serverId"] for each in (await api.get(f"{HERE}/mcp-servers")).json()] == ["fake", "weather-api"]
    for place in (f"{THERE}/mcp-servers", SERVERS):
        assert [each["serverId"] for each in (await api.get(place)).json()] == ["fake"]
        assert (await api.get(f"{place}/{kept['id']}")).status_code == 404
        assert (await api.delete(f"{place}/{kept['id']}")).status_code == 404
    changed = await api.put(f"{HERE}/mcp-servers/weather-api", json={"description": "Weather"})
    assert changed.json()["config"]["headerValue"] == "***"
    assert (await api.delete(f"{HERE}/mcp-servers/weather-api")).status_code == 204


async def test_a_token_of_one_workspace_acts_in_it_alone(api: Api, jira: FakeEndpoint) -> None:
    own = await api.token("t1", ApiRole.ADMIN, "slack:T1")
    other = await api.token("t2", ApiRole.ADMIN, "slack:T2")
    shared = await add_server(api, jira, serverId="shared", name="shared")
    answer = await api.post(SERVERS, json={"name": "mine", "url": jira.url}, token=own)
    assert answer.json()["workspace"] == "slack:T1"
    mine = answer.json()["id"]
    for path in (f"{SERVERS}/{mine}", f"{SERVERS}/mine", f"{SERVERS}/{mine}/capabilities"):
        assert (await api.get(path, token=other)).status_code == 404
    for path in (f"{HERE}/mcp-servers", f"{HERE}/mcp-servers/{mine}", f"{HERE}/agents"):
        assert (await api.get(path, token=other)).status_code == 403
    call = {"serverId": mine, "toolName": "find_issue"}
    assert (await api.post("/api/mcp/tools/execute", json=call, token=other)).status_code == 404
    asked = "/api/mcp/tools/execute?workspace=slack:T1"
    assert (await api.post(asked, json=call, token=other)).status_code == 403
    # Every token can read a server of all workspaces. Only a token of all workspaces may change it.
    assert (await api.get(f"{SERVERS}/shared", token=own)).status_code == 200
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/disconnect")):
        more: dict[str, Any] = {"json": {"description": "x"}} if method == "PUT" else {}
        refused = await api.request(method, f"{SERVERS}/{shared['id']}{path}", token=own, **more)
        assert refused.status_code == 403, (method, path)
    refused = await api.post(f"{SERVERS}/{shared['id']}/review", json={"definition": "0" * 64}, token=own)
    assert refused.status_code == 403
    assert (await api.post("/api/mcp/reload", token=own)).status_code == 403
    assert (await api.post("/api/mcp/reload?dryRun=true", token=own)).status_code == 200
    for words in (["reload", "--apply"], ["review", "approve", "shared", "--definition", "0" * 64]):
        answer = (await api.post("/api/commands", json={"command": "mcp", "words": words}, token=own)).json()
        assert answer["failed"], words
        assert "token for all of them" in answer["text"]
    assert (await api.post("/api/mcp/reload")).status_code == 200
    # In a workspace, a token of all workspaces acts for that workspace only.
    assert (await api.delete(f"{HERE}/mcp-servers/shared")).status_code == 403
    said = {"command": "mcp", "words": ["policy", "set", "shared", "deny"], "workspace": "slack:T1"}
    assert (await api.post("/api/commands", json=said)).json()["failed"] is False
    [rule] = (await api.get("/api/mcp/approval-policies", token=own)).json()
    assert rule["workspace"] == "slack:T1"
    listed = (await api.get("/api/mcp/tools", token=other)).json()
    assert {entry["serverId"] for entry in listed} == {"fake", "shared"}


async def test_a_profile_is_made_changed_and_read_as_an_agent(api: Api, jira: FakeEndpoint) -> None:
    kept = await add_server(api, jira)
    made = await api.put(f"{HERE}/agents/support", json={"enabledMcpServerIds": [kept["id"]], "persona": "Kind."})
    assert made.status_code == 201, made.text
    agent = made.json()
    assert made.headers["Location"] == f"{HERE}/agents/{agent['id']}"
    assert (agent["name"], agent["enabledMcpServerIds"], agent["workspace"]) == ("support", [kept["id"]], "slack:T1")
    assert [each["name"] for each in (await api.get(f"{HERE}/agents")).json()] == ["support"]
    changed = await api.put(f"{HERE}/agents/{agent['id']}", json={"enabledMcpServerIds": ["jira", "fake"]})
    assert changed.json()["enabledMcpServerIds"] == sorted([kept["id"], "file:fake"])
    assert (changed.json()["persona"], changed.headers["ETag"]) == ("Kind.", '"2"')
    zone = await api.put(f"{HERE}/agents/support", json={"timeZone": "Asia/Tokio"})
    assert zone.json()["error"]["fields"] == {
        "timeZone": "There is no such time zone. Did you mean Asia/Tokyo or Asia/Tomsk?"
    }
    rounds = await api.put(f"{HERE}/agents/support", json={"maxToolRounds": 0})
    assert (rounds.status_code, rounds.json()["maxToolRounds"]) == (200, 0)
    rounds = await api.put(f"{HERE}/agents/support", json={"maxToolRounds": 201})
    assert rounds.json()["error"]["fields"] == {"maxToolRounds": "Write a number from 1 to 200, or nothing."}
    everything = await api.put(f"{HERE}/agents/support", json={"enabledMcpServerIds": ["*"], "timeZone": "asia/tokyo"})
    assert (everything.json()["timeZone"], everything.json()["language"]) == ("Asia/Tokyo", "")
    assert everything.json()["enabledMcpServerIds"] is None
    unknown = await api.put(f"{HERE}/agents/support", json={"enabledMcpServerIds": ["server_123"]})
    assert unknown.status_code == 422
    assert "does not exist" in unknown.json()["error"]["fields"]["enabledMcpServerIds"]
    late = await api.put(f"{HERE}/agents/support", json={"persona": "x", "version": 1})
    assert (late.status_code, late.json()["error"]["fields"]) == (409, {"version": "4"})
    assert (await api.put(f"{HERE}/agents/support", json={}, headers={"If-Match": '"1"'})).status_code == 412
    assert (await api.get(f"{THERE}/agents/support")).status_code == 404
    said = {"command": "profile", "words": ["bind", "support", "workspace"], "workspace": "slack:T1"}
    assert (await api.post("/api/commands", json=said)).json()["failed"] is False
    assert (await api.get(f"{HERE}/agents/support")).json()["boundTo"] == ["slack:T1"]
    assert (await api.delete(f"{HERE}/agents/support")).status_code == 204
    assert (await api.get(f"{HERE}/agents/support")).status_code == 404


async def test_a_workspace_is_written_with_its_platform(api: Api) -> None:
    for name in ("T1", "slack:", "slack:T 1", "slack:T1:C1"):
        assert (await api.get(f"/api/workspaces/{name}/mcp-servers")).status_code == 422
