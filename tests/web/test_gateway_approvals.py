"""Other agents ask for approvals of calls that they run themselves, over a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from bot.errors import CountersignError
from bot.web.gateway.receipts import RECEIPT_SECONDS, ROTATION_SECONDS, Receipts, verify_receipt
from tests.fakes.parts import ANA
from tests.web.api_server import Api, opened_api

PATH = "/api/approvals"
DEPLOY: dict[str, Any] = {"tool": "deploy", "arguments": {"env": "prod", "version": "1.2"}}
POLICY = """
[[rules]]
policy = "ALWAYS_ALLOW"
server = "ci"
tool = "read*"

[[rules]]
policy = "ALWAYS_DENY"
server = "ci"
tool = "rm"

[[rules]]
policy = "ASK_USER"
server = "ci"
tool = "release"
quorum = 2
approvers = ["api-role:approver"]
"""


@asynccontextmanager
async def a_gateway(folder: Path, **settings: Any) -> AsyncIterator[tuple[Api, str, str]]:
    """Yield the API with the tokens of an agent and an approver."""
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
    async with opened_api(folder, **settings) as api:
        yield api, await api.token("ci", ApiRole.MEMBER), await api.token("boss", ApiRole.APPROVER)


async def ask(api: Api, token: str, question: dict[str, Any] = DEPLOY, key: str = "", status: int = 201) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await api.post(PATH, json=question, token=token, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def pending(api: Api, token: str) -> list[Any]:
    answer: list[Any] = (await api.get("/api/responses/approvals", token=token)).json()["approvals"]
    return answer


async def decide(api: Api, token: str, **decision: Any) -> Any:
    """Decide the one pending call."""
    (approval,) = await pending(api, token)
    body = {"approved": True, "revision": approval["revision"], **decision}
    answer = await api.post(f"/api/responses/approval/{approval['approvalRequestId']}", json=body, token=token)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def read(api: Api, token: str, approval_id: str, wait: float = 0) -> Any:
    answer = await api.get(f"{PATH}/{approval_id}", token=token, params={"wait": wait})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_call_waits_for_its_approver_and_is_approved_with_its_arguments(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        assert (asked["status"], asked["server"], asked["tool"]) == ("pending", "ci", "deploy")
        waiting = asyncio.create_task(read(api, agent, asked["approvalId"], wait=30))
        await decide(api, boss)
        answer = await waiting
        assert answer["status"] == "approved"
        assert answer["arguments"] == DEPLOY["arguments"]
        assert answer["deciders"] == ["boss"]
        assert not answer["edited"]


async def test_the_asking_token_cannot_approve_its_own_call(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, _boss):
        await ask(api, agent)
        (approval,) = await pending(api, agent)
        address = f"/api/responses/approval/{approval['approvalRequestId']}"
        assert (await api.post(address, json={"approved": True}, token=agent)).status_code == 403


async def test_rules_allow_and_deny_calls_at_once(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        allowed = await ask(api, agent, {"tool": "read_file", "arguments": {"path": "a"}})
        assert (allowed["status"], allowed["deciders"]) == ("approved", [])
        denied = await ask(api, agent, {"tool": "rm", "arguments": {"path": "/"}})
        assert denied["status"] == "denied"
        assert "a policy forbids" in denied["reason"]
        assert await pending(api, boss) == []


async def test_an_edited_call_is_approved_with_the_new_arguments(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        await decide(api, boss, arguments={"env": "staging", "version": "1.2"})
        answer = await read(api, agent, asked["approvalId"], wait=30)
        assert (answer["status"], answer["edited"]) == ("approved", True)
        assert answer["arguments"] == {"env": "staging", "version": "1.2"}


async def test_a_denial_has_the_reason_of_the_approver(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        await decide(api, boss, approved=False, reason="not on a Friday")
        answer = await read(api, agent, asked["approvalId"], wait=30)
        assert (answer["status"], answer["reason"]) == ("denied", "not on a Friday")


async def test_a_quorum_of_two_is_needed_where_a_rule_says_so(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent, {"tool": "release"})
        assert (await decide(api, boss))["outcome"] == "counted"
        assert (await read(api, agent, asked["approvalId"]))["status"] == "pending"
        await decide(api, await api.token("chief", ApiRole.APPROVER))
        answer = await read(api, agent, asked["approvalId"], wait=30)
        assert (answer["status"], answer["deciders"]) == ("approved", ["boss", "chief"])


async def test_a_call_expires_after_the_seconds_of_the_request(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, _boss):
        asked = await ask(api, agent, {**DEPLOY, "expiresIn": 0.1})
        assert (await read(api, agent, asked["approvalId"], wait=30))["status"] == "expired"


async def test_the_same_request_attaches_until_its_answer_was_read(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        reordered = {**DEPLOY, "arguments": dict(reversed(list(DEPLOY["arguments"].items())))}
        again = await ask(api, agent, reordered, status=200)
        assert again["approvalId"] == asked["approvalId"]
        other = await ask(api, agent, {**DEPLOY, "session": "s2"})
        changed = await ask(api, agent, {**DEPLOY, "arguments": {"env": "prod", "version": "1.3"}})
        assert len({each["approvalId"] for each in (asked, other, changed)}) == 3
        await api.delete(f"{PATH}/{other['approvalId']}", token=agent)
        await api.delete(f"{PATH}/{changed['approvalId']}", token=agent)
        await decide(api, boss)
        assert (await read(api, agent, asked["approvalId"], wait=30))["status"] == "approved"
        assert (await ask(api, agent))["approvalId"] != asked["approvalId"]


async def test_an_idempotency_key_names_one_call_also_after_its_answer(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent, key="job-7")
        await decide(api, boss)
        assert (await read(api, agent, asked["approvalId"], wait=30))["status"] == "approved"
        again = await ask(api, agent, key="job-7", status=200)
        assert (again["approvalId"], again["status"]) == (asked["approvalId"], "approved")
        changed = {**DEPLOY, "arguments": {"env": "prod", "version": "6.6.6"}}
        assert (await ask(api, agent, changed, key="job-7", status=409))["error"]["code"] == "idempotency_key_reused"
        other = await api.token("other", ApiRole.MEMBER)
        assert (await ask(api, other, key="job-7"))["status"] == "pending"


async def test_a_call_of_another_token_is_missing_for_every_method(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        for token in (boss, await api.token("other", ApiRole.ADMIN)):
            for method in ("GET", "DELETE"):
                answer = await api.request(method, f"{PATH}/{asked['approvalId']}", token=token)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        for guess in ("0", asked["approvalId"][:-1], "%00", "💡"):
            assert (await api.get(f"{PATH}/{guess}", token=agent)).status_code == 404
        await api.parts.tokens.revoke("ci", ANA)
        renewed = await api.token("ci", ApiRole.MEMBER)
        assert (await api.get(f"{PATH}/{asked['approvalId']}", token=renewed)).status_code == 404


async def test_a_withdrawn_call_can_be_asked_for_again(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
        answer = await api.delete(f"{PATH}/{asked['approvalId']}", token=agent)
        assert answer.json()["status"] == "withdrawn"
        assert await pending(api, boss) == []
        assert (await ask(api, agent))["approvalId"] != asked["approvalId"]


async def test_concurrent_requests_are_one_call(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        answers = await asyncio.gather(*(api.post(PATH, json=DEPLOY, token=agent) for _ in range(8)))
        assert len({answer.json()["approvalId"] for answer in answers}) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
        assert len(await pending(api, boss)) == 1


async def test_one_effect_is_one_open_call(tmp_path: Path) -> None:
    refund = {"tool": "refund", "arguments": {"id": 42}, "effect": "refund:42"}
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent, refund)
        same = await ask(api, agent, {**refund, "session": "another"}, status=200)
        assert same["approvalId"] == asked["approvalId"]
        other = await api.token("other", ApiRole.MEMBER)
        assert (await ask(api, other, refund, status=409))["error"]["code"] == "effect_in_progress"
        assert len(await pending(api, boss)) == 1
        await decide(api, boss, approved=False)
        await read(api, agent, asked["approvalId"], wait=30)
        assert (await ask(api, other, refund))["status"] == "pending"


async def test_a_call_survives_the_end_of_the_process(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent)
    async with opened_api(tmp_path) as api:
        assert (await ask(api, agent, status=200))["approvalId"] == asked["approvalId"]
        await decide(api, boss)
        assert (await read(api, agent, asked["approvalId"], wait=30))["status"] == "approved"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"arguments": {"n": 2**60}}, "arguments"),
        ({"tool": "a b"}, "tool"),
        ({"tool": ""}, "tool"),
        ({"server": "<b>"}, "server"),
        ({"expiresIn": 0}, "expiresIn"),
        ({"approved": True}, "approved"),
    ],
)
async def test_a_request_that_cannot_be_used_is_explained(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    async with a_gateway(tmp_path) as (api, agent, _boss):
        answer = await ask(api, agent, {**DEPLOY, **change}, status=422)
        assert field in answer["error"]["fields"]


async def test_markup_and_long_arguments_come_back_as_they_were(tmp_path: Path) -> None:
    arguments = {"text": "<b>*_`\u202e&amp;" * 8_000, "number": 1e21, "none": None, "list": [1, 2.5, True]}
    async with a_gateway(tmp_path) as (api, agent, boss):
        asked = await ask(api, agent, {"tool": "deploy", "arguments": arguments})
        (approval,) = await pending(api, boss)
        address = f"/api/responses/approval/{approval['approvalRequestId']}"
        await api.post(f"{address}/open", json={}, token=boss)
        assert (await api.post(address, json={"approved": True}, token=boss)).status_code == 200
        answer = await read(api, agent, asked["approvalId"], wait=30)
        assert (answer["status"], answer["arguments"]) == ("approved", arguments)


# -------------------- receipts


async def approve(api: Api, agent: str, boss: str, **more: Any) -> Any:
    asked = await ask(api, agent, {**DEPLOY, **more})
    await decide(api, boss)
    return await read(api, agent, asked["approvalId"], wait=30)


async def keys_of(api: Api) -> Any:
    return (await api.get("/.well-known/jwks.json", token=None)).json()


async def test_a_receipt_is_checked_without_asking(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        answer = await approve(api, agent, boss, audience="deployer")
        claims = verify_receipt(answer["receipt"], await keys_of(api), "deployer", answer["arguments"])
        assert (claims["sub"], claims["jti"], claims["aud"]) == ("api:ci", answer["approvalId"], "deployer")
        assert (claims["server"], claims["tool"], claims["decision"]) == ("ci", "deploy", "approved")
        assert (claims["deciders"], claims["edited"]) == (["boss"], False)
        (key,) = (await keys_of(api))["keys"]
        assert "d" not in key
        again = await read(api, agent, answer["approvalId"])
        assert again["receipt"] == answer["receipt"]


async def test_a_receipt_counts_for_its_audience_arguments_and_keys_alone(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        answer = await approve(api, agent, boss)
        receipt, keys = answer["receipt"], await keys_of(api)
        assert verify_receipt(receipt, keys, "ci")["aud"] == "ci"
        head, _dot, rest = receipt.partition(".")
        body, _dot, signature = rest.partition(".")
        other = await approve(api, agent, boss, title="again")
        for wrong, audience, arguments in (
            (receipt, "deployer", None),
            (receipt, "ci", {"env": "prod", "version": "1.3"}),
            (f"{head}.{body}.{signature[:-4]}AAAA", "ci", None),
            (f"{head}.{other['receipt'].split('.')[1]}.{signature}", "ci", None),
            (f"eyJhbGciOiJub25lIn0.{body}.", "ci", None),
            ("", "ci", None),
            ("💡", "ci", None),
        ):
            with pytest.raises(CountersignError):
                verify_receipt(wrong, keys, audience, arguments)
        with pytest.raises(CountersignError):
            verify_receipt(receipt, {"keys": []}, "ci")


async def test_a_call_without_an_approval_has_no_receipt(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, _boss):
        assert (await ask(api, agent))["receipt"] is None
        assert (await ask(api, agent, {"tool": "rm"}))["receipt"] is None


async def test_keys_are_made_once_and_old_ones_stay_as_long_as_their_receipts_count(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        now = time.time()
        receipts = Receipts(api.parts.receipt_keys, "x", lambda: now)
        await asyncio.gather(*(receipts.issue({"n": n}, now) for n in range(5)))
        assert len((await keys_of(api))["keys"]) == 1
        old = (await approve(api, agent, boss))["receipt"]
        await receipts.rotate()
        new = (await approve(api, agent, boss, title="again"))["receipt"]
        keys = await keys_of(api)
        assert len(keys["keys"]) == 2
        for receipt in (old, new):
            verify_receipt(receipt, keys, "ci")
        now += RECEIPT_SECONDS + 60
        (left,) = (await receipts.public_keys())["keys"]
        assert left == keys["keys"][1]
        now += ROTATION_SECONDS
        await receipts.issue({}, now)
        assert len(await api.parts.receipt_keys.keys()) == 3


# -------------------- rules alone, and hooks


async def test_rules_alone_allow_deny_or_ask(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        for tool, decision in (("read_file", "allow"), ("rm", "deny"), ("deploy", "ask")):
            answer = (await api.post(f"{PATH}/check", json={"tool": tool}, token=agent)).json()
            assert answer["decision"] == decision
        assert await pending(api, boss) == []


async def hook(api: Api, token: str, command: str = "git push", status: int = 200, **query: Any) -> Any:
    event = {
        "session_id": "s1",
        "transcript_path": "/x",
        "cwd": "/work",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": "toolu_1",
    }
    answer = await api.post(f"{PATH}/hook", json=event, token=token, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()["hookSpecificOutput"]


async def test_a_hook_is_denied_or_deferred_while_it_waits_and_attaches_when_it_comes_back(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        first = await hook(api, agent, status=202, wait=0)
        assert (first["hookEventName"], first["permissionDecision"]) == ("PreToolUse", "deny")
        assert "The approval stays" in first["permissionDecisionReason"]
        assert (await hook(api, agent, status=202, wait=0, defer="true"))["permissionDecision"] == "defer"
        await decide(api, boss, arguments={"command": "git push --dry-run"})
        answer = await hook(api, agent, wait=30)
        assert (answer["permissionDecision"], answer["updatedInput"]) == ("allow", {"command": "git push --dry-run"})
        assert "boss" in answer["permissionDecisionReason"]
        assert (await hook(api, agent, status=202, wait=0))["permissionDecision"] == "deny"


async def test_one_approval_lets_one_of_two_waiting_hooks_go_on(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, agent, boss):
        await hook(api, agent, status=202, wait=0)
        hooks = [asyncio.create_task(hook(api, agent, wait=30)) for _ in range(2)]
        await decide(api, boss)
        done, left = await asyncio.wait(hooks, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        (allowed,), (waiting,) = done, left
        assert allowed.result()["permissionDecision"] == "allow"
        async with asyncio.timeout(30):
            while not await pending(api, boss):
                pass
        await decide(api, boss, approved=False, reason="once is enough")
        assert (await waiting)["permissionDecisionReason"] == "once is enough"
