"""Rules and calls over HTTP: the policy of a tool, and its effect on a call."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.approvals import Decision, DecisionType
from bot.domain.audit import AuditQuery
from tests.fakes.mcp.endpoint import FakeEndpoint, error, result
from tests.web.api_server import Api, opened_api
from tests.web.local_server import SERVERS, add_server

POLICIES, EXECUTE = "/api/mcp/approval-policies", "/api/mcp/tools/execute"


async def put(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.put(POLICIES, json=body)
    assert answer.status_code == 200, answer.text
    kept: dict[str, Any] = answer.json()
    return kept


async def test_a_policy_is_set_listed_replaced_and_taken_back(api: Api, jira: FakeEndpoint) -> None:
    server = await add_server(api, jira)
    assert (await api.get(POLICIES)).json() == []
    first = await put(api, serverId="jira", toolName="find_issue", policy="ALWAYS_ALLOW")
    assert (first["serverId"], first["server"], first["toolName"]) == (server["id"], "jira", "find_issue")
    assert (first["policy"], first["setBy"], first["managedIn"]) == ("ALWAYS_ALLOW", "api:admin", "database")
    second = await put(api, serverId=server["id"], toolName="find_issue", policy="ALWAYS_DENY")
    assert second["id"] == first["id"]
    assert [each["policy"] for each in (await api.get(POLICIES)).json()] == ["ALWAYS_DENY"]
    answer = await api.delete(POLICIES, params={"serverId": "jira", "toolName": "find_issue"})
    assert answer.status_code == 204
    assert (await api.get(POLICIES)).json() == []
    assert (await api.delete(POLICIES, params={"serverId": "jira", "toolName": "find_issue"})).status_code == 404
    assert (await api.delete(POLICIES)).status_code == 422
    whole = await put(
        api,
        serverId="*",
        policy="ASK_USER",
        rule={"arguments": {"project": "OPS"}, "approvers": ["slack:U1", "slack:U2"], "quorum": 2, "expires": "2h"},
    )
    assert whole["rule"]["quorum"] == 2
    assert "where project is OPS" in whole["words"]
    assert (await api.delete(POLICIES, params={"id": whole["id"]})).status_code == 204


async def test_a_rule_that_cannot_be_used_says_which_key_of_it(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    for body, status, field in (
        ({"serverId": "jira", "policy": "MAYBE"}, 422, "policy"),
        ({"serverId": "jira", "policy": "ALWAYS_DENY", "rule": {"quorum": 2}}, 422, "policy"),
        ({"serverId": "jira", "policy": "ASK_USER", "rule": {"quorom": 2}}, 422, "rule.quorom"),
        ({"serverId": "jira", "policy": "ASK_USER", "rule": {"expires": "never"}}, 422, "rule.expires"),
        ({"serverId": "nothing", "policy": "ASK_USER"}, 404, ""),
        ({"serverId": "jira", "toolName": "nothing", "policy": "ASK_USER"}, 404, ""),
        ({"serverId": "ji*", "policy": "ASK_USER"}, 422, ""),
        ({"serverId": "jira"}, 422, "policy"),
    ):
        answer = await api.put(POLICIES, json=body)
        assert answer.status_code == status, (body, answer.text)
        assert not field or field in answer.json()["error"]["fields"], (body, answer.text)
    assert (await api.get(POLICIES)).json() == []


async def test_a_workspaces_rule_is_its_own_and_the_files_are_listed_beside_it(folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rules]]\npolicy = "ALWAYS_DENY"\ntool = "delete_*"\n', "utf-8")
    async with opened_api(folder) as api:
        own = await api.token("t1", ApiRole.ADMIN, "slack:T1")
        answer = await api.put(POLICIES, json={"serverId": "fake", "policy": "ALWAYS_ALLOW"}, token=own)
        assert answer.json()["workspace"] == "slack:T1"
        assert (await api.get(POLICIES)).json() == []
        assert len((await api.get(f"{POLICIES}?workspace=slack:T1")).json()) == 1
        other = await api.token("t2", ApiRole.ADMIN, "slack:T2")
        assert (await api.delete(POLICIES, params={"id": answer.json()["id"]}, token=other)).status_code == 404
        everybodys = await put(api, serverId="fake", policy="ALWAYS_DENY")
        refused = await api.delete(POLICIES, params={"id": everybodys["id"]}, token=own)
        assert refused.status_code == 403
        effective = (await api.get(f"{POLICIES}?effective=true", token=own)).json()
        assert {each["managedIn"] for each in effective} == {"file", "database"}


async def test_a_tool_runs_at_once_where_a_rule_lets_it(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, policy="ALWAYS_ALLOW")
    call = {"serverId": "jira", "toolName": "find_issue", "arguments": {"key": "OPS-1"}}
    answer = await api.post(EXECUTE, json=call)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["isError"] is False
    assert [(part["type"], part["text"]) for part in told["content"]] == [
        ("text", "find_issue was given {'key': 'OPS-1'}")
    ]
    # Listings of a new server may come after the call.
    calls = [message for _, message in jira.seen if message.get("method") == "tools/call"]
    assert [message["params"]["name"] for message in calls] == ["find_issue"]


async def test_images_and_files_of_a_tool_come_with_their_bytes(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, policy="ALWAYS_ALLOW")
    image, sound = base64.b64encode(b"\x89PNG cat").decode(), base64.b64encode(b"OggS purr").decode()
    content = [
        {"type": "image", "data": image, "mimeType": "image/png"},
        {"type": "audio", "data": sound, "mimeType": "audio/ogg"},
    ]
    jira.on["tools/call"] = lambda m: result(m, {"content": content})
    told = (await api.post(EXECUTE, json={"serverId": "jira", "toolName": "find_issue"})).json()["content"]
    assert [(part["type"], part["text"], part["mimeType"], part["data"]) for part in told] == [
        ("image", None, "image/png", image),
        ("text", "[Audio: audio/ogg]", None, None),
        ("resource", None, "audio/ogg", sound),
    ]


async def test_a_tool_that_asks_first_is_approved_before_it_runs(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    answer = await api.post(EXECUTE, json={"serverId": "jira", "toolName": "create_issue"})
    assert answer.status_code == 202
    pending = answer.json()
    assert (pending["status"], pending["revision"]) == ("approval_required", 1)
    assert answer.headers["Location"] == pending["follow"]
    assert pending["approve"].endswith(pending["approvalRequestId"])
    assert "tools/call" not in jira.methods()
    # The first call does not delay a second one.
    assert (await api.post(EXECUTE, json={"serverId": "jira", "toolName": "find_issue"})).status_code == 202
    admin = ApiClient("admin", ApiRole.ADMIN)
    decision = Decision(pending["approvalRequestId"], 1, DecisionType.APPROVE, admin.author)
    await api.parts.engine.approvals.decide(decision, admin.member)
    async with asyncio.timeout(20):
        while not (await api.parts.engine.view(pending["turnId"])).turn.status.ended:
            await asyncio.sleep(0.05)
    assert jira.methods().count("tools/call") == 1


async def test_a_tool_that_a_rule_forbids_is_an_error_result_and_never_sent(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, policy="ALWAYS_DENY")
    answer = await api.post(EXECUTE, json={"serverId": "jira", "toolName": "create_issue"})
    assert (answer.status_code, answer.json()["isError"]) == (200, True)
    assert answer.json()["content"][0]["text"]
    assert "tools/call" not in jira.methods()
    for body in ({"serverId": "jira", "toolName": "nothing"}, {"serverId": "nothing", "toolName": "find_issue"}):
        assert (await api.post(EXECUTE, json=body)).status_code == 404


async def test_a_resource_is_read_and_a_prompt_written_out(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    read = await api.post("/api/mcp/resources/read", json={"serverId": "jira", "uri": "jira://board"})
    assert read.json()["contents"] == [
        {"uri": "jira://board", "mimeType": "text/plain", "text": "two issues", "size": None}
    ]
    body = {"serverId": "jira", "name": "sum-up", "arguments": {"of": "OPS"}}
    [message] = (await api.post("/api/mcp/prompts/get", json=body)).json()["messages"]
    assert (message["role"], message["content"]["text"]) == ("user", "Sum up OPS.")
    assert (await api.post("/api/mcp/prompts/get", json={**body, "arguments": {}})).status_code == 422
    assert (await api.post("/api/mcp/prompts/get", json={**body, "name": "nothing"})).status_code == 404


async def test_a_direct_read_is_in_the_audit_like_a_call(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    read = {"serverId": "jira", "uri": "jira://board"}
    prompt = {"serverId": "jira", "name": "sum-up", "arguments": {"of": "OPS"}}
    await api.post("/api/mcp/resources/read", json=read)
    await api.post("/api/mcp/prompts/get", json=prompt)
    jira.on["resources/read"] = lambda m: error(m, -32002, "no such resource")
    assert (await api.post("/api/mcp/resources/read", json=read)).status_code == 502
    # Equal arguments have equal fingerprints in all turns.
    run = {"serverId": "jira", "toolName": "read_mcp_resource", "arguments": {"uri": "jira://board"}}
    await api.post(EXECUTE, json=run)
    await api.put(POLICIES, json={"serverId": "jira", "policy": "ALWAYS_DENY"})
    assert (await api.post("/api/mcp/prompts/get", json=prompt)).status_code == 403
    found = await api.parts.command_dependencies.stores.archive.audit(AuditQuery(kinds=("ran", "forbidden")), 10, 0)
    facts = [(entry.kind, entry.actor, entry.facts) for entry in reversed(found[0])]
    assert [(kind, actor, row["tool"], row.get("status")) for kind, actor, row in facts] == [
        ("ran", "api:admin", "read_mcp_resource", "done"),
        ("ran", "api:admin", "get_mcp_prompt", "done"),
        ("ran", "api:admin", "read_mcp_resource", "failed"),
        ("ran", "api:admin", "read_mcp_resource", "failed"),
        ("forbidden", "api:admin", "get_mcp_prompt", None),
    ]
    prints = [row["fingerprint"] for _kind, _actor, row in facts]
    assert prints[0] == prints[2] == prints[3]
    assert prints[1] == prints[4]
    assert all(row["server"] == "jira" for _kind, _actor, row in facts)


async def test_a_rule_that_forbids_reading_holds_for_administrators_too(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, policy="ALWAYS_DENY")
    await api.post(f"{SERVERS}/jira/sync")
    for path, body in (
        ("/api/mcp/resources/read", {"serverId": "jira", "uri": "jira://board"}),
        ("/api/mcp/prompts/get", {"serverId": "jira", "name": "sum-up", "arguments": {"of": "OPS"}}),
    ):
        answer = await api.post(path, json=body)
        assert (answer.status_code, "A policy forbids" in answer.text) == (403, True)
    unknown = {"serverId": "jira", "name": "no-such-prompt", "arguments": {}}
    assert (await api.post("/api/mcp/prompts/get", json=unknown)).status_code == 403
    assert not {"resources/read", "prompts/get"} & set(jira.methods())


async def test_a_direct_read_of_an_unreachable_server_has_not_run(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    await jira.stop()
    await api.post(f"{SERVERS}/jira/sync")
    answer = await api.post("/api/mcp/resources/read", json={"serverId": "jira", "uri": "jira://board"})
    assert answer.status_code == 502
    rows, _ = await api.parts.command_dependencies.stores.archive.audit(AuditQuery(kinds=("ran", "not run")), 10, 0)
    assert [(row.kind, row.facts["status"], row.facts["seconds"]) for row in rows] == [("not run", "failed", None)]


async def test_a_resource_that_a_rule_wants_approved_is_not_read_without_an_approval(
    api: Api, jira: FakeEndpoint
) -> None:
    await add_server(api, jira, policy="ASK_USER")
    await api.post(f"{SERVERS}/jira/sync")
    for path, body in (
        ("/api/mcp/resources/read", {"serverId": "jira", "uri": "jira://board"}),
        ("/api/mcp/prompts/get", {"serverId": "jira", "name": "sum-up", "arguments": {"of": "OPS"}}),
    ):
        answer = await api.post(path, json=body)
        assert (answer.status_code, "wants an approval" in answer.text) == (403, True)
    assert not {"resources/read", "prompts/get"} & set(jira.methods())
    run = {"serverId": "jira", "toolName": "read_mcp_resource", "arguments": {"uri": "jira://board"}}
    assert (await api.post(EXECUTE, json=run)).json()["status"] == "approval_required"


async def test_a_rule_about_an_address_holds_for_a_template_with_values(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    rule = {"arguments": {"uri": "jira://board"}}
    await put(api, serverId="jira", toolName="read_mcp_resource", policy="ALWAYS_DENY", rule=rule)
    for uri, value, denied in (
        ("jira://{x}", "board", True),
        ("jira://boar{x}", "d", True),
        ("jira://{x}", "b", False),
    ):
        arguments = {"uri": uri, "values": {"x": value}}
        run = {"serverId": "jira", "toolName": "read_mcp_resource", "arguments": arguments}
        answer = (await api.post(EXECUTE, json=run)).json()
        assert ("a policy forbids" in str(answer), answer["isError"]) == (denied, denied), answer
    assert jira.methods().count("resources/read") == 1


async def test_a_server_that_lists_no_resources_is_read_past_no_rule(api: Api, jira: FakeEndpoint) -> None:
    jira.on["resources/list"] = lambda m: result(m, {"resources": []})
    await add_server(api, jira, policy="ALWAYS_DENY")
    await api.post(f"{SERVERS}/jira/sync")
    answer = await api.post("/api/mcp/resources/read", json={"serverId": "jira", "uri": "jira://board"})
    assert (answer.status_code, "has no resources" in answer.text) == (404, True)
    assert "resources/read" not in jira.methods()


async def test_a_rule_about_a_chat_workspace_holds_for_calls_that_are_made_there_over_http(folder: Path) -> None:
    (folder / "policy.toml").write_text('[[rules]]\npolicy = "ALWAYS_DENY"\nin = ["slack:T1"]\n', "utf-8")
    async with opened_api(folder) as api:
        call = {"serverId": "fake", "toolName": "look"}
        there = await api.post(f"{EXECUTE}?workspace=slack:T1", json=call)
        assert (there.status_code, there.json()["isError"]) == (200, True)
        assert (await api.post(EXECUTE, json=call)).status_code == 202
