"""`/mcp policy`: rules with conditions and approval requirements as options, and the explanation of a call's policy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.admin.policies.verbs import options_of
from bot.domain.approvals import Approval, ApprovalPolicy, ApprovalRequirements, Escalation, OnTimeout
from bot.domain.commands import Reply
from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.policies import Rule, StoredPolicyResult
from bot.domain.profiles import Profile
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Annotations
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from tests.admin.servers import NOTES, OPERATOR, CommandHarness, command_harness, tool, with_jira
from tests.fakes.parts import ANA, HALL

ALLOW, DENY, ASK, AUTO = (
    ApprovalPolicy.ALWAYS_ALLOW,
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.AUTO,
)


def facts(reply: Reply) -> dict[str, str]:
    return dict(reply.details)


def only_rule(held: CommandHarness) -> Rule:
    (rule,) = held.policies.entries.values()
    return rule


async def test_approvers_are_mentioned_by_name_and_stored_by_id() -> None:
    held = command_harness()
    mentions = ["<@U1|ana>", "<@!22>", "<@&33>", "<!subteam^S4|@leads>"]
    line = " ".join(f"--approver {mention}" for mention in mentions)
    await held.ask(f"mcp policy set notes add ask {line} --approver 30m:<!subteam^S5|@heads>,<@&66>")
    requirements = only_rule(held).requirements
    assert requirements.approvers == (frozenset({"slack:U1", "discord:22", "discord-role:33", "slack-group:S4"}),)
    assert requirements.escalate == Escalation(1800.0, frozenset({"slack-group:S5", "discord-role:66"}))


async def test_every_condition_and_every_term_can_be_said_and_said_again_by_the_button() -> None:
    held = command_harness()
    await held.profiles.save(Profile("p1", "Desk", "test:w"), ANA)
    line = (
        "mcp policy set notes add* ask --except add_all --argument to.name=ben* --annotation open-world=no "
        "--in kitchen --in test:w:hall --profile desk --asker members --asker test:ana "
        "--approver test-group:g --approver test:ana "
        "--approver 30m:test:ben,test-group:h --four-eyes --quorum 2 --expires 2h --on-timeout keep --remind "
        "--deliver kitchen --deliver approvers"
    )
    reply = await held.ask(line)
    rule = only_rule(held)
    assert replace(rule, id="", by="", at=0.0) == Rule(
        ASK,
        server_id=NOTES.id,
        tool="add*",
        excluded_tools=frozenset({"add_all"}),
        arguments={"to.name": "ben*"},
        annotations={"open_world": False},
        places=frozenset({"test:w:kitchen", "test:w:hall"}),
        profile="p1",
        askers=frozenset({"members", "test:ana"}),
        requirements=ApprovalRequirements(
            (frozenset({"test-group:g", "test:ana"}),),
            four_eyes=True,
            quorum=2,
            expires=7200.0,
            on_timeout=OnTimeout.KEEP,
            remind=True,
            deliver=frozenset({"test:w:kitchen", "approvers"}),
            escalate=Escalation(1800.0, frozenset({"test:ben", "test-group:h"})),
        ),
        workspace="test:w",
    )
    assert rule.id in facts(reply)
    cleared = await held.ask(f"mcp policy clear {rule.id}")
    assert not held.policies.entries
    await held.answers(*cleared.actions[0].words)
    assert replace(only_rule(held), id=rule.id) == rule
    await held.answers(*reply.actions[0].words[:3], only_rule(held).id)
    assert not held.policies.entries


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("notes add ask --argument project", "`--argument` is written NAME=VALUE."),
        ("notes add ask --annotation nice=yes", "`--annotation` cannot be used: must be true or false of one of"),
        ("notes add ask --asker everyone", "`--asker` cannot be used: must be PLATFORM:ID, members or guests."),
        (
            "notes add ask --approver @leads",
            "`@leads` says no id. Choose it in the list that opens after `@`, or write",
        ),
        ("notes add ask --asker test:ana --asker @on-call.eu", "`@on-call.eu` says no id."),
        ("notes add ask --approver test:ana --approver 30m:test:ben,@責任者", "`@責任者` says no id."),
        ("notes add ask --approver test:ana --approver 30m:@heads", "`@heads` says no id."),
        ("notes add ask --approver test:ana --quorum 2", "`--quorum` cannot be used: no one could approve"),
        ("notes add ask --approver test:ana --approver 30m:ben", "`--approver` cannot be used: must be a time from 1m"),
        (
            "notes add ask --approver 5s:test:ben --approver test:ana",
            "`--approver` cannot be used: must be a time",
        ),
        (
            "notes add ask --approver 30m:test:ben",
            "`--approver` cannot be used: needs `approvers`",
        ),
        ("notes add ask --quorum many", "`--quorum` cannot be used: must be a number of people, 1 to 20."),
        ("notes add ask --expires soon", "`--expires` cannot be used: must be a time from 1m to 30d"),
        ("notes add deny --four-eyes", "ALWAYS_DENY asks no approver"),
        ("notes add ask --deliver test:w", "`--deliver` cannot be used: must be thread, approvers or PLATFORM:"),
        ("notes add ask --profile nobody", "There is no profile of that name."),
        ("no* add ask", "A rule here is about one server, or about all"),
        ("notes ad ask", "`notes` has no tool of that name. Did you mean `add`?"),
    ],
)
async def test_an_invalid_policy_is_refused_and_nothing_is_set(line: str, said: str) -> None:
    held = command_harness()
    reply = await held.ask(f"mcp policy set {line}")
    assert reply.failed
    assert said in reply.text
    assert not held.policies.entries


async def test_all_approvers_that_a_rule_names_may_be_needed() -> None:
    both = await command_harness().ask(
        "mcp policy set notes add ask --approver test:ana --approver test:ben --quorum 2"
    )
    assert not both.failed, both


async def test_a_rule_that_sends_cards_to_all_members_is_kept_and_says_that_they_cannot_be_written_to() -> None:
    held = command_harness()
    reply = await held.ask("mcp policy set notes add ask --approver members --approver test:ana --deliver approvers")
    assert "All members cannot be written to, so the card stays in the thread." in reply.text
    assert only_rule(held).requirements.deliver == {"approvers"}
    await held.ask("mcp policy set notes add ask --deliver thread")
    assert only_rule(held).requirements.deliver == frozenset()


async def test_a_rule_for_all_servers_is_for_all_tools_of_that_name() -> None:
    held = await with_jira()
    reply = await held.ask("mcp policy set * *_issue deny")
    rule = only_rule(held)
    assert (rule.server, rule.server_id, rule.tool) == ("*", "", "*_issue")
    assert "Every server, these tools: deny." in reply.text
    assert facts(await held.ask("mcp policy explain jira create_issue"))["policy"] == "blocked"
    listed = await held.ask("mcp policy list")
    assert facts(listed)[rule.id] == "ALWAYS_DENY: *.*_issue"


async def test_the_list_has_the_policy_of_each_tool_and_the_rules_with_conditions() -> None:
    held = command_harness()
    held.operator_rules = (
        Rule(DENY, server="notes", tool="delete", id="policy.toml:1"),
        Rule(DENY, server="notes", id="policy.toml:2", excluded_tools=frozenset({"list"})),
        Rule(ASK, server="n*", id="policy.toml:5"),
        *(Rule(ASK, server="notes", arguments={"n": str(n)}, id=f"policy.toml:{n}") for n in range(10, 50)),
    )
    await held.ask("mcp policy set notes add ask --quorum 2")
    await held.ask("mcp policy set web-search ask")
    listed = await held.ask("mcp policy list notes")
    assert listed.table is not None
    assert ("notes", "delete", "destructive", "blocked", "policy.toml:1") in listed.table.rows
    assert listed.table.rows[1][4] == "ask, on terms, just now by test:ana"
    told = facts(listed)
    assert list(told)[:2] == ["policy.toml:5", "policy.toml:10"]
    assert told["policy.toml:10"] == "ASK_USER: notes.* where n is 10"
    assert told["more"] == "12 rules; name a server to see its own"


async def test_a_pattern_that_fits_nothing_is_kept_and_says_so() -> None:
    held = command_harness()
    assert "It fits no tool that is known now." in (await held.ask("mcp policy set notes drop_* deny")).text
    await held.ask("mcp policy set * drop_* deny")
    assert "(fits no tool that is known now)" in repr((await held.ask("mcp policy list")).details)


async def test_a_rule_of_the_file_about_an_unknown_server_is_listed_as_such() -> None:
    held = command_harness()
    held.operator_rules = (
        Rule(DENY, server="notse", id="policy.toml:5"),
        Rule(DENY, server="notes", id="policy.toml:7"),
    )
    assert facts(await held.ask("mcp policy list")) == {
        "policy.toml:5": "ALWAYS_DENY: notse.* (fits no tool that is known now)"
    }


async def test_a_tool_whose_name_looks_like_a_pattern_is_meant_alone() -> None:
    held = command_harness()
    held.servers.offered.append(tool("notes", "a*"))
    held.servers.offered.append(tool("notes", "ab"))
    await held.ask("mcp policy set notes a* allow")
    assert facts(await held.ask("mcp policy explain notes a*"))["policy"] == "runs, except after words of others"
    assert facts(await held.ask("mcp policy explain notes ab"))["policy"] == "asks"


async def test_an_admins_rule_is_for_their_workspace_and_the_operators_for_all() -> None:
    held = command_harness()
    await held.ask("mcp policy set notes add deny")
    await held.ask("mcp policy set notes add allow", OPERATOR)
    assert sorted(rule.workspace for rule in held.policies.entries.values()) == [EVERYWHERE, "test:w"]
    elsewhere = ConversationKey("test", "x", "hall", "1")
    assert (
        facts(await held.ask("mcp policy explain notes add", where=elsewhere))["policy"]
        == "runs, except after words of others"
    )
    assert facts(await held.ask("mcp policy explain notes add"))["policy"] == "blocked"


async def test_the_operators_rule_is_not_for_admins_to_clear() -> None:
    held = command_harness()
    await held.ask("mcp policy set notes add deny", OPERATOR)
    rule = only_rule(held)
    for line in (f"mcp policy clear {rule.id}", "mcp policy clear notes add"):
        reply = await held.ask(line)
        assert reply.failed
        assert "Only the operator can change it." in reply.text
    assert held.policies.entries
    await held.ask("mcp policy clear notes add", OPERATOR)
    assert not held.policies.entries


async def test_a_rule_of_another_workspace_can_neither_be_seen_nor_cleared() -> None:
    held = command_harness()
    elsewhere = ConversationKey("test", "x", "hall", "1")
    await held.ask("mcp policy set notes add ask --quorum 2", where=elsewhere)
    rule = only_rule(held)
    assert rule.id not in repr(await held.ask("mcp policy list"))
    assert (await held.ask(f"mcp policy clear {rule.id}")).failed
    assert held.policies.entries


async def test_a_server_that_is_renamed_does_not_escape_its_rule() -> None:
    held = await with_jira()
    await held.ask("mcp policy set jira deny")
    record = next(iter(held.store.entries.values()))
    renamed = replace(record, config=replace(record.config, name="harmless"))
    held.store.entries[record.id] = renamed
    held.servers.offered[-1] = replace(held.servers.offered[-1], server="harmless", name="harmless__create_issue")
    await held.refresh()
    assert facts(await held.ask("mcp policy explain harmless create_issue"))["policy"] == "blocked"


# ------------------------------------------------------------------ explain


async def explain_policy(held: CommandHarness, *more: str) -> dict[str, str]:
    (reply,) = await held.answers("mcp", "policy", "explain", "notes", "add", *more)
    assert isinstance(reply, Reply)
    assert not reply.failed
    return facts(reply)


async def test_a_call_that_is_only_thought_of_is_explained() -> None:
    held = command_harness()
    held.operator_rules = (
        Rule(
            ASK,
            server="notes",
            requirements=ApprovalRequirements((frozenset({"test:ben"}),), four_eyes=True, quorum=2),
            id="policy.toml:3",
        ),
        Rule(ALLOW, server="notes", tool="add", arguments={"title": "Rain"}, id="policy.toml:9"),
        Rule(DENY, tool="add", askers=frozenset({"guests"}), id="policy.toml:12"),
        Rule(DENY, places=frozenset({"test:w:kitchen"}), id="policy.toml:15"),
        Rule(DENY, tool="add", askers=frozenset({"test-group:g"}), id="policy.toml:18"),
    )
    asked = await explain_policy(held)
    assert asked == {
        "call": "notes.add",
        "risk": "writes",
        "policy": "asks",
        "decided by": "policy.toml:3",
        "which says": ("ASK_USER: notes.*; approved by test:ben, by 2 people, not by the asker or an editor"),
        "because": "It is the only rule that matches this call.",
        "approved by": "2 of test:ben, neither the asker nor an editor",
        "returns words of": "strangers: people outside the team, too (by its server's hints)",
        "can send": "world: people outside the team may read what is sent (by its server's hints)",
    }
    rain = await explain_policy(held, "--arguments", json.dumps({"title": "Rain"}))
    assert (rain["policy"], rain["decided by"]) == ("runs, except after words of others", "policy.toml:9")
    assert rain["policy.toml:3"].endswith(": policy.toml:9 is more specific")
    assert "approved by" not in rain
    assert rain["asks after words of"] == "shared or strangers"
    for options, by in (
        (("--as", "test:zoe", "--guest"), "policy.toml:12"),
        (("--in", "kitchen"), "policy.toml:15"),
        (("--in", "test:w:kitchen"), "policy.toml:15"),
        (("--as", "test:zoe", "--role", "test-group:g"), "policy.toml:18"),
    ):
        denied = await explain_policy(held, *options)
        assert (denied["policy"], denied["decided by"]) == ("blocked", by)
        assert denied["because"] == "A rule that denies wins over all others."
        assert denied["policy.toml:3"].endswith(f": {by} denies")


async def test_the_operator_explains_calls_anywhere_and_an_admin_those_of_their_workspace() -> None:
    held = command_harness()
    held.operator_rules = (Rule(DENY, places=frozenset({"slack:T1:C9"}), id="policy.toml:15"),)
    line = "mcp policy explain notes add --in slack:T1:C9"
    assert facts(await held.ask(line, OPERATOR))["decided by"] == "policy.toml:15"
    refused = await held.ask(line)
    assert refused.failed
    assert "another workspace" in refused.text


@pytest.mark.parametrize("text", ["{", "[]", "3", '"x"'])
async def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    held = command_harness()
    (reply,) = await held.answers("mcp", "policy", "explain", "notes", "add", "--arguments", text)
    assert isinstance(reply, Reply)
    assert reply.failed
    assert "`--arguments` is a JSON object" in reply.text


async def test_an_argument_that_is_there_twice_is_not_explained() -> None:
    held = command_harness()
    words = ("--arguments", '{"title": "a", "title": "b"}')
    (reply,) = await held.answers("mcp", "policy", "explain", "notes", "add", *words)
    assert isinstance(reply, Reply)
    assert reply.failed
    assert "the name 'title' is there twice" in reply.text


def decided_call(status: StepStatus, policy_result: StoredPolicyResult | None) -> ToolStep:
    approval = Approval(
        "approval-1-of-many", 1, "print", ANA, 60.0, decided_by="Ben", requirements=ApprovalRequirements(quorum=2)
    )
    return ToolStep(
        2, ToolCall("c", "notes__add"), ToolRef("notes", "add"), status, approval=approval, policy_result=policy_result
    )


OWN = "may approve it: it deletes nothing and names no others"
WHY = "An approver must approve this, "


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add",), OWN),
        (("wipe",), f"{WHY}because it may delete data"),
        (("add", "--arguments", '{"text": "ask @ben"}'), f"{WHY}because it may concern other people or places"),
        (("add", "--as", "test:eve"), OWN),
        (("add", "--as", "test:eve", "--guest"), f"{WHY}because guests and users of other workspaces may not"),
    ],
)
async def test_an_explanation_says_if_the_asker_may_approve_the_call(words: tuple[str, ...], said: str) -> None:
    held = command_harness()
    held.reviewed = True
    (add,) = (tool for tool in held.servers.offered if tool.original_name == "add")
    wipe = replace(add, name="notes__wipe", original_name="wipe", annotations=Annotations())
    held.servers.offered.append(wipe)
    (reply,) = await held.answers("mcp", "policy", "explain", "notes", *words)
    assert isinstance(reply, Reply)
    assert facts(reply)["the user who asks"] == said
    assert facts(reply)["approved by"] == ("the user who asked, or test:ana" if said == OWN else "test:ana")


async def test_an_explanation_says_that_only_approvers_approve_where_that_is_set() -> None:
    held = command_harness()
    assert facts(await held.ask("mcp policy explain notes add"))["the user who asks"] == (
        f"{WHY}because its definition is not the pinned one"
    )
    held.self_approval = False
    assert facts(await held.ask("mcp policy explain notes add"))["the user who asks"] == f"{WHY}as the operator has set"
    held.operator_rules = (Rule(ASK, requirements=ApprovalRequirements((frozenset({"asker"}),)), id="policy.toml:3"),)
    assert "the user who asks" not in facts(await held.ask("mcp policy explain notes add"))


async def test_a_call_that_happened_is_explained_as_it_was_decided_then() -> None:
    held = command_harness()
    policy_result = StoredPolicyResult(
        ASK, "policy.toml:3", "ASK_USER: notes.*", "It is the only rule that matches this call."
    )
    held.policies.calls["approval-1"] = (HALL, decided_call(StepStatus.DENIED, policy_result))
    reply = await held.ask("mcp policy explain approval-1")
    assert facts(reply) == {
        "call": "notes.add (denied)",
        "policy": "asks",
        "decided by": "policy.toml:3",
        "which said": "ASK_USER: notes.*",
        "because": "It is the only rule that matches this call.",
        "approved by": "2 of test:ana",
        "decided": "denied by Ben",
    }


async def test_a_server_alone_is_explained_tool_by_tool() -> None:
    listed = await command_harness().ask("mcp policy explain notes")
    assert listed.table is not None
    assert {row[0]: row[1:3] for row in listed.table.rows}["delete"] == ("blocked", "policy.toml:notes.delete")
    assert ("mcp", "policy", "explain", "notes", "delete") in listed.table.opens


async def test_a_call_without_a_policy_result_or_of_another_workspace_has_nothing_to_explain() -> None:
    held = command_harness()
    held.policies.calls["approval-1"] = (HALL, decided_call(StepStatus.DONE, None))
    assert "no rule" in facts(await held.ask("mcp policy explain approval-1"))["decided by"]
    elsewhere = ConversationKey("test", "x", "hall", "1")
    assert (await held.ask("mcp policy explain approval-1", where=elsewhere)).failed
    assert "No call of that id was asked for here." in (await held.ask("mcp policy explain nothing")).text


async def test_auto_is_one_more_word() -> None:
    held = command_harness()
    reply = await held.ask("mcp policy set notes auto")
    assert reply.text.startswith("`notes`, all its tools: auto.")
    assert only_rule(held).policy is AUTO
    asked = await explain_policy(held)
    assert (asked["policy"], asked["because"]) == (
        "asks",
        "It is the only rule that matches this call. AUTO asks: the server does not say that the tool only reads.",
    )


async def test_a_rule_on_a_host_is_set_said_and_explained() -> None:
    held = command_harness()
    line = "mcp policy set notes add deny --argument host(link)=.evil.com"
    assert not (await held.ask(line)).failed
    (rule,) = held.policies.entries.values()
    assert rule.arguments == {"host(link)": ".evil.com"}
    assert options_of(rule, "notes")[-2:] == ("--argument", "host(link)=.evil.com")
    for link, policy in (
        ("http://www.EVIL.com:80/", "blocked"),
        ("http://[::1%25x]/", "blocked"),
        ("good.com", "asks"),
    ):
        found = await explain_policy(held, "--arguments", json.dumps({"title": "Rain", "link": link}))
        assert found["policy"] == policy, link
    refused = await held.ask("mcp policy set notes add deny --argument host(link)=http://evil.com")
    assert refused.failed
    assert "must be a host alone" in refused.text
