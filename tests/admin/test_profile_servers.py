"""Servers that are off until a profile enables them (`MCP_SERVERS_ENABLED=per_profile`)."""

from __future__ import annotations

from bot.domain.commands import Reply
from bot.domain.profiles import Profile, ServersEnabled
from tests.admin.servers import GUEST, OPERATOR, CommandHarness, config_of, with_jira
from tests.fakes.parts import HALL

ENABLE = ("profile", "enable", "jira")


async def harness() -> CommandHarness:
    held = await with_jira()
    held.servers_enabled = ServersEnabled.PER_PROFILE
    return held


def details(reply: Reply) -> dict[str, str]:
    return dict(reply.details)


async def test_a_server_is_off_until_the_profile_of_the_place_enables_it() -> None:
    held = await harness()
    jira = config_of(held, "jira").id
    assert not held.rules(HALL).profile.enables_server(jira)
    listing = await held.ask("mcp list")
    assert details(listing)["jira"] == "off for default: /profile enable jira"
    assert ENABLE in [action.words for action in listing.actions]
    shown = await held.ask("mcp show jira")
    assert details(shown)["off for"] == "default"
    assert shown.actions[0].words == ENABLE
    tools = await held.ask("mcp tools jira")
    assert tools.table is not None
    assert {row[2] for row in tools.table.rows} == {"off here"}

    held.profiles.entries["p-1"] = Profile("p-1", "Support", "test:w", servers=frozenset(), version=1)
    held.profiles.bound["test:w:hall"] = "p-1"
    enabled = await held.ask("profile enable jira")
    assert enabled.text == "`jira` is enabled from the next answer on."
    assert details(enabled) == {"profile": "Support"}
    assert held.profiles.entries["p-1"].servers == frozenset({jira})
    assert "jira" not in details(await held.ask("mcp list"))
    assert "off for" not in details(await held.ask("mcp show jira"))
    await held.run(*enabled.actions[0].words)
    assert held.profiles.entries["p-1"].servers == frozenset()


async def test_without_a_profile_one_is_made_that_holds_in_the_workspace() -> None:
    held = await harness()
    reply = await held.ask("profile enable jira")
    assert details(reply) == {"profile": "default", "holds in": "this workspace"}
    [profile] = held.profiles.entries.values()
    assert (profile.name, profile.workspace) == ("default", "test:w")
    assert held.profiles.bound == {"test:w": profile.id}
    assert held.rules(HALL).profile.enables_server(config_of(held, "jira").id)
    again = await held.ask("profile enable jira")
    assert again.text == "`jira` is enabled for the profile already."


async def test_a_new_profile_begins_without_servers_and_a_star_enables_all() -> None:
    held = await harness()
    await held.ask("profile set Night --persona Calm.")
    [profile] = held.profiles.entries.values()
    assert profile.servers == frozenset()
    await held.ask("profile set Night --server *")
    assert held.profiles.entries[profile.id].servers is None


async def test_the_agents_of_a_place_are_named_where_a_server_is_off_for_them() -> None:
    held = await harness()
    jira = config_of(held, "jira").id
    held.profiles.entries = {
        "p-1": Profile("p-1", "Support", "test:w", servers=frozenset({jira}), version=1),
        "p-2": Profile("p-2", "データ", "test:w", servers=frozenset(), version=1),
    }
    held.profiles.bound["test:w:hall"] = "p-1"
    held.profiles.by_name.append(("test:w:hall", "p-2"))
    assert details(await held.ask("mcp show jira"))["off for"] == "データ"
    reply = await held.ask("profile enable jira --profile データ")
    assert not reply.failed
    assert held.profiles.entries["p-2"].servers == frozenset({jira})


async def test_only_admins_enable_and_only_the_operator_for_every_workspace() -> None:
    held = await harness()
    assert (await held.ask("profile enable jira", GUEST)).failed
    assert details(await held.ask("mcp list", GUEST))["jira, notes"] == "off for default"
    held.profiles.entries["p-1"] = Profile("p-1", "Global", servers=frozenset(), version=1)
    held.profiles.bound["test:w"] = "p-1"
    assert (await held.ask("profile enable jira")).failed
    assert not (await held.ask("profile enable jira", OPERATOR)).failed


async def test_disabling_one_of_all_servers_leaves_the_others() -> None:
    held = await with_jira()
    assert (await held.ask("profile disable jira")).failed
    held.profiles.entries["p-1"] = Profile("p-1", "Support", "test:w", version=1)
    held.profiles.bound["test:w"] = "p-1"
    assert not (await held.ask("profile disable jira")).failed
    jira, servers = config_of(held, "jira").id, held.profiles.entries["p-1"].servers
    assert servers is not None
    assert jira not in servers
    assert len(servers) > 0


async def test_the_doctor_says_that_no_profile_enables_a_server() -> None:
    held = await harness()
    reply = await held.ask("mcp doctor jira")
    assert reply.table is not None
    row = next(row for row in reply.table.rows if row[2] == "profile")
    assert row[3:] == ("No profile enables it: its tools are offered nowhere.", "enable it here: /profile enable jira")


async def test_a_server_that_is_added_says_that_it_is_off() -> None:
    held = await harness()
    reply = await held.run("mcp", "add", "https://desk.example/mcp", "--no-verify")
    assert details(reply)["off for"] == "default"
    assert reply.actions[0].words[:2] == ("profile", "enable")
