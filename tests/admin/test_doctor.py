"""`/mcp doctor`: checks of a server for the current conversation."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.commands import Reply
from bot.domain.profiles import Profile
from bot.domain.tools import Annotations
from tests.admin.servers import CommandHarness, config_of, with_jira


async def rows(held: CommandHarness) -> dict[str, tuple[str, ...]]:
    reply = await held.ask("mcp doctor jira")
    assert isinstance(reply, Reply)
    assert reply.table is not None
    return {row[2]: row for row in reply.table.rows}


async def test_a_server_that_the_profile_does_not_enable_is_reported() -> None:
    held = await with_jira()
    assert "profile" not in await rows(held)
    held.profiles.entries["p-1"] = Profile("p-1", "Support", workspace="test:w", servers=frozenset(), version=1)
    held.profiles.bound["test:w"] = "p-1"
    assert "The profile Support of this conversation does not enable it" in (await rows(held))["profile"][3]


async def test_a_context_tool_that_is_not_called_is_told_with_the_reason() -> None:
    held = await with_jira()
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    held.servers.offered[:] = [replace(tool, input_schema=schema) for tool in held.servers.offered]
    await held.ask("mcp edit jira --auto-context-tool create_issue")
    assert config_of(held, "jira").auto_context_tool == "create_issue"
    _, mark, _, text, fix = (await rows(held))["context tool"]
    assert mark == "!"
    assert "create_issue is its auto_context_tool and is not called with each question" in text
    assert "wants an approval of each call" in text
    assert "/mcp policy set jira create_issue allow" in fix


async def test_tools_that_ask_are_counted_by_the_rights_of_the_asker() -> None:
    held = await with_jira()
    (jira,) = held.servers.offered[-1:]
    hints = (Annotations(destructive=False), Annotations(destructive=True), Annotations(read_only=True))
    held.servers.offered[-1:] = [
        replace(jira, name=f"jira__{n}", original_name=f"t{n}", trusted=True, annotations=hint)
        for n, hint in enumerate(hints)
    ]
    assert (await rows(held))["approvals"][3] == "0 of 3 tools that ask may be approved by the user who asked."
    held.reviewed = True
    assert (await rows(held))["approvals"][3] == "2 of 3 tools that ask may be approved by the user who asked."


async def test_rules_that_forbid_tools_are_reported() -> None:
    held = await with_jira()
    assert "rules" not in await rows(held)
    await held.ask("mcp policy set jira create_issue deny")
    _, mark, _, text, fix = (await rows(held))["rules"]
    assert (mark, text) == ("!", "Rules forbid jira__create_issue here.")
    assert "/mcp policy explain jira" in fix
