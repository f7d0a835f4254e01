"""Commands over HTTP: their user, their replies, and forms. The effect of each verb is tested in tests/admin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.domain.api_clients import ApiRole
from tests.web.api_server import Api, opened_api
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, add_server, opened_jira

COMMANDS = "/api/commands"


async def run_command(api: Api, *words: str, **more: Any) -> dict[str, Any]:
    token = {"token": more.pop("token")} if "token" in more else {}
    command, *rest = words
    answer = await api.post(COMMANDS, json={"command": command, "words": rest, **more}, **token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_form_goes_back_step_by_step_and_keeps_a_server(folder: Path) -> None:
    async with opened_jira() as jira, opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        form = await run_command(api, "mcp", "add")
        assert (form["failed"], form["form"]) == (True, "mcp add:1")
        assert {field["name"] for field in form["fields"]} == {"title", "transport", "where", "auth", "policy"}
        present = {field["name"]: field["value"] for field in form["fields"]}
        filled = {**form["carried"], **present, "title": "Jira", "where": "no address"}
        wrong = (await api.post(f"{COMMANDS}/forms", json={"form": form["form"], "fields": filled})).json()
        errors = {field["name"]: field["error"] for field in wrong["fields"]}
        assert errors["where"].startswith("That is no http or https address.")
        filled["where"] = jira.url
        kept = (await api.post(f"{COMMANDS}/forms", json={"form": form["form"], "fields": filled})).json()
        assert kept["failed"] is False
        assert "`jira` is added" in kept["text"]
        assert (await api.get(f"{SERVERS}/jira")).json()["name"] == "Jira"


async def test_no_secret_is_taken_by_a_form_or_on_a_line(folder: Path) -> None:
    async with opened_jira() as jira, opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await add_server(api, jira, apiKey="env:NOTHING_IS_THERE")
        kept = (await api.get(f"{SERVERS}/jira")).json()
        form = f"mcp secret set:{kept['id']}:{kept['version']}"
        fields = {"slot": "auth", "hidden": "the-secret-itself"}
        answer = (await api.post(f"{COMMANDS}/forms", json={"form": form, "fields": fields})).json()
        assert "the-secret-itself" not in str(answer)
        assert answer["failed"] is True
        line = await run_command(
            api, "mcp", "edit", "jira", "--secret", "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
        )
        assert line["failed"] is True
        assert (await api.get(f"{SERVERS}/jira")).json()["version"] == 1


async def test_rights_for_commands_are_those_of_a_chat(folder: Path) -> None:
    async with opened_api(folder) as api:
        member = await api.token("reader", ApiRole.MEMBER)
        assert (await run_command(api, "mcp", "list", token=member))["failed"] is False
        refused = await run_command(api, "mcp", "reload", "--apply", token=member)
        assert refused["failed"] is True
        assert refused["text"].startswith("Only ")
        bound = await api.token("t1", ApiRole.ADMIN, "slack:T1")
        elsewhere = {"command": "mcp", "words": ["list"], "workspace": "slack:T2"}
        assert (await api.post(COMMANDS, json=elsewhere, token=bound)).status_code == 403
        assert (await run_command(api, "mcp", "disable", "fake", token=bound))["failed"] is True


async def test_a_call_by_hand_is_a_turn_that_can_be_followed(folder: Path) -> None:
    async with opened_api(folder) as api:
        answer = await run_command(api, "mcp", "run", "fake", "look")
        followed = (await api.get(answer["turn"]["follow"])).json()
        assert followed["responseId"] == answer["turn"]["turnId"]
