"""The operator's policy file, and the users that may approve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bot.domain.approvals import (
    NO_REQUIREMENTS,
    ApprovalPolicy,
    ApprovalRequirements,
    DecisionType,
    Escalation,
    NotAllowed,
    OnTimeout,
)
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule
from bot.engine.config_files import read_policies
from bot.engine.policy.approvers import Approvers, check_approver
from bot.engine.policy.rules import Policies
from bot.errors import SettingsError
from tests.rules import policy_of

ALLOW, DENY, ASK, AUTO = (
    ApprovalPolicy.ALWAYS_ALLOW,
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.AUTO,
)

ANA = Author("slack", "U1", "Ana")
BEN = Author("slack", "U2", "Ben")
OPERATOR = Author("console", "root", "root")


def read(text: str, default: ApprovalPolicy | None = None) -> Policies:
    return read_policies(text, default, "config/policy.toml")


def policy_error(text: str, default: ApprovalPolicy | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        read(text, default)
    assert caught.value.cause.startswith("config/policy.toml")
    assert caught.value.fix
    return caught.value


def objection(approvers: Approvers, who: Member, asker: Author, verdict: DecisionType) -> str:
    """Return the reason why the member may not make this decision without a rule; empty if allowed."""
    found = check_approver(approvers, NO_REQUIREMENTS, who, verdict, asker=asker)
    return found.reason if isinstance(found, NotAllowed) else ""


def test_an_empty_file_asks_for_everything() -> None:
    assert policy_of(read(""), "any", "tool") is ASK


def test_a_servers_default_is_for_the_tools_that_are_not_named() -> None:
    policies = read("""
        default = "ALWAYS_ALLOW"
        [servers.calendar]
        default = "ALWAYS_DENY"
        [servers.calendar.tools]
        list_events = "ASK_USER"
        [servers.notes.tools]
        "add.note" = "ALWAYS_DENY"
    """)
    assert policy_of(policies, "calendar", "list_events") is ASK
    assert policy_of(policies, "calendar", "delete_event") is DENY
    assert policy_of(policies, "notes", "add.note") is DENY
    assert policy_of(policies, "notes", "list_events") is ALLOW
    assert policy_of(policies, "weather", "list_events") is ALLOW


def test_the_variable_wins_over_the_files_default_and_over_nothing_else() -> None:
    policies = read(
        'default = "ALWAYS_ALLOW"\n[servers.a]\ndefault = "ALWAYS_ALLOW"\n[servers.b.tools]\nt = "ASK_USER"', DENY
    )
    assert policy_of(policies, "other", "t") is DENY
    assert policy_of(policies, "b", "other") is DENY
    assert policy_of(policies, "a", "t") is ALLOW
    assert policy_of(policies, "b", "t") is ASK


def test_names_are_taken_as_they_are_written() -> None:
    policies = read('[servers.Notes.tools]\nList = "ALWAYS_ALLOW"')
    assert policy_of(policies, "Notes", "List") is ALLOW
    assert policy_of(policies, "notes", "List") is policy_of(policies, "Notes", "list") is ASK


def test_a_rule_says_everything_that_a_rule_can_say() -> None:
    policies = read("""
        [[rules]]
        policy = "ASK_USER"
        server = "jira*"
        tool = "create_*"
        except = ["create_comment"]
        annotations = { open_world = false }
        arguments = { "issue.project" = "OPS", count = 3, force = true }
        in = ["slack:T1:C9", "discord"]
        profile = "Release"
        asker = "guests"
        approvers = ["slack-group:S1", "slack:U2"]
        four_eyes = true
        quorum = 2
        expires = "2h"
        on_timeout = "keep"
        remind = true
        deliver = ["slack:T1:C8", "approvers"]
        escalate = "30m:slack-group:S2"
    """)
    assert policies.rules == (
        Rule(
            ASK,
            server="jira*",
            tool="create_*",
            excluded_tools=frozenset({"create_comment"}),
            annotations={"open_world": False},
            arguments={"issue.project": "OPS", "count": "3", "force": "true"},
            places=frozenset({"slack:T1:C9", "discord"}),
            profile="Release",
            askers=frozenset({"guests"}),
            requirements=ApprovalRequirements(
                (frozenset({"slack-group:S1", "slack:U2"}),),
                four_eyes=True,
                quorum=2,
                expires=7200.0,
                on_timeout=OnTimeout.KEEP,
                remind=True,
                deliver=frozenset({"slack:T1:C8", "approvers"}),
                escalate=Escalation(1800.0, frozenset({"slack-group:S2"})),
            ),
            id="policy.toml:2",
        ),
    )


def test_every_rule_of_the_file_is_known_as_the_operators() -> None:
    policies = read('[[rules]]\npolicy = "AUTO"\n[servers.a]\ndefault = "ASK_USER"\n[servers.a.tools]\nt = "AUTO"')
    assert [rule.of_file for rule in policies.all_rules] == [True, True, True]


@pytest.mark.parametrize("guide", ["docs/policies.md", "docs/configuration.md"])
def test_examples_of_the_guides_are_valid(guide: str) -> None:
    text = (Path(__file__).parents[2] / guide).read_text(encoding="utf-8")
    shown = [
        block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "policy" in block or "ALWAYS" in block
    ]
    assert shown
    for block in shown:
        assert read(block).all_rules


def test_rules_are_called_by_the_lines_they_stand_on() -> None:
    policies = read("""default = "ALWAYS_DENY"
# [[rules]]
[[rules]]
policy = "AUTO"
tool = '''
[[rules]]
'''

  [[ rules ]]  # the second
  policy = "ASK_USER"

[servers.notes.tools]
list = "ALWAYS_ALLOW"
"add.note" = "ALWAYS_DENY"
[servers.calendar]
default = "ASK_USER"
""")
    assert [(rule.id, rule.policy) for rule in policies.all_rules] == [
        ("policy.toml:3", AUTO),
        ("policy.toml:9", ASK),
        ("policy.toml:13", ALLOW),
        ("policy.toml:14", DENY),
        ("policy.toml:16", ASK),
    ]


@pytest.mark.parametrize(
    ("text", "cause", "choice"),
    [
        ('defualt = "ASK_USER"', ", line 1: defualt means nothing here.", "default, rules, self_approval, servers"),
        ("\n[server]", ", line 2: server means nothing here.", "default, rules, self_approval, servers"),
        ("[servers.a.tool]", ", line 1: servers.a.tool means nothing here.", "default, tools"),
        ('[servers.a]\nlist = "ALWAYS_ALLOW"', ", line 2: servers.a.list means nothing here.", "default, tools"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_known_keys(text: str, cause: str, choice: str) -> None:
    error = policy_error(text)
    assert error.cause == f"config/policy.toml{cause}"
    assert error.fix == f"use one of {choice}"


@pytest.mark.parametrize(
    ("entries", "line", "problem"),
    [
        ('polcy = "ASK_USER"', 4, "rules.polcy means nothing here (did you mean policy?)"),
        ('tool = "x"', 3, "rules.policy is missing"),
        ('policy = "ALLOW"', 4, "rules.policy 'ALLOW' is no policy; use one of ALWAYS_ALLOW,"),
        ('policy = "ASK_USER"\ntool = 3', 5, "rules.tool must be a text"),
        ('policy = "ASK_USER"\ntool = ""', 5, "rules.tool must be a text"),
        ('policy = "ASK_USER"\nserver = "a"\nserver_id = "b"', 6, "rules.server_id stands beside server"),
        ('policy = "ASK_USER"\nannotations = { read = true }', 5, "rules.annotations.read must be true or false of"),
        ('policy = "ASK_USER"\nannotations.destructive = "yes"', 5, "rules.annotations.destructive must be true"),
        ('policy = "ASK_USER"\n\narguments = { to = [1] }', 6, "rules.arguments.to must be a text, a number"),
        ('policy = "ASK_USER"\nin = "slack:*"', 5, "rules.in 'slack:*' must be PLATFORM,"),
        ('policy = "ASK_USER"\nin = []', 5, "rules.in must be a text or a list of 1 to 50"),
        ('policy = "ASK_USER"\nexcept = "list_*"', 5, "rules.except 'list_*' must be a tool's name, no pattern"),
        ('policy = "ASK_USER"\nasker = "everyone"', 5, "rules.asker 'everyone' must be PLATFORM:ID"),
        ('policy = "ASK_USER"\napprovers = ["guests"]', 5, "rules.approvers 'guests' must be PLATFORM:ID"),
        ('policy = "ASK_USER"\nquorum = 0', 5, "rules.quorum must be a number of people, 1 to 20"),
        ('policy = "ASK_USER"\nquorum = true', 5, "rules.quorum must be a number of people"),
        ('policy = "ASK_USER"\napprovers = "asker"\nfour_eyes = true', 6, "rules.four_eyes no one could approve"),
        ('policy = "ASK_USER"\napprovers = "asker"\nquorum = 2', 6, "rules.quorum no one could approve"),
        ('policy = "ASK_USER"\napprovers = ["slack:U1"]\nquorum = 2', 6, "rules.quorum no one could approve"),
        ('policy = "ASK_USER"\nexpires = "soon"', 5, "rules.expires must be a time from 1m to 30d"),
        ('policy = "ASK_USER"\nexpires = 5', 5, "rules.expires must be a time from 1m to 30d"),
        ('policy = "ASK_USER"\non_timeout = "allow"', 5, "rules.on_timeout must be one of deny, keep"),
        ('policy = "ASK_USER"\n\ndeliver = "slack:T1"', 6, "rules.deliver 'slack:T1' must be thread, approvers or PLA"),
        ('policy = "ASK_USER"\ndeliver = ["thread", "slack:T1:C9"]', 5, "rules.deliver thread stands alone"),
        ('policy = "ALWAYS_ALLOW"\ndeliver = "approvers"', 4, "rules.policy ALWAYS_ALLOW asks no approver"),
        ('policy = "ALWAYS_DENY"\nquorum = 2', 4, "rules.policy ALWAYS_DENY asks no approver"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_line(entries: str, line: int, problem: str) -> None:
    error = policy_error(f'default = "ASK_USER"\n\n[[rules]]\n{entries}\n[[rules]]\npolicy = "AUTO"\n')
    assert error.cause.startswith(f"config/policy.toml, line {line}: {problem}")


@pytest.mark.parametrize("value", ["ALWAYS_ALOW", "always_allow", "ASK", "", True, 1, ["ASK_USER"], {"x": 1}])
@pytest.mark.parametrize("place", ["default", "servers.a.default", "servers.a.tools.t"])
def test_a_word_that_is_no_policy_is_refused_with_those_that_are(place: str, value: Any) -> None:
    written = "{ x = 1 }" if isinstance(value, dict) else str(value).lower() if value is True else repr(value)
    error = policy_error(f"{place} = {written}")
    assert error.cause == f"config/policy.toml, line 1: {place} is {value!r}."
    assert error.fix == "use one of ALWAYS_ALLOW, ALWAYS_DENY, ASK_USER, AUTO"


def test_a_wrong_default_is_refused_also_where_the_variable_wins() -> None:
    assert "default is 'ALWAYS_ALOW'" in policy_error('default = "ALWAYS_ALOW"', ASK).cause


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("servers = []", "servers"),
        ('servers.a = "ALWAYS_ALLOW"', "servers.a"),
        ('servers.a.tools = ["t"]', "servers.a.tools"),
    ],
)
def test_a_value_that_must_be_a_table_is_named(text: str, place: str) -> None:
    error = policy_error(text)
    assert error.cause == f"config/policy.toml, line 1: {place} must be a table."
    assert f"[{place}]" in error.fix


@pytest.mark.parametrize("text", ["rules = 3", "[rules]\nx = 1", "rules = [1]"])
def test_rules_that_are_no_rules_are_refused(text: str) -> None:
    assert "line 1: rules must be rules of their own." in policy_error(text).cause


@pytest.mark.parametrize("pattern", ["*", "delete_*", "get_?", "[a]"])
def test_a_pattern_in_the_short_form_is_refused_because_it_would_match_nothing(pattern: str) -> None:
    for text in (f'[servers.a.tools]\n"{pattern}" = "ALWAYS_DENY"', f'[servers."{pattern}"]'):
        error = policy_error(text)
        assert repr(pattern) in error.cause
        assert "[[rules]]" in error.fix


def test_a_long_value_does_not_fill_the_screen() -> None:
    assert len(str(policy_error(f'default = "{"x" * 10_000}"'))) < 260
    assert len(str(policy_error(f'[[rules]]\npolicy = "{"x" * 10_000}"'))) < 260


# ---------------------------------------------------------------------- approvers


def test_the_operator_administers_and_approves_beside_named_users() -> None:
    approvers = Approvers(frozenset({"slack:U9"}), frozenset({"slack:U8"}), "console:root")
    operator = Member(OPERATOR)
    assert approvers.administers(operator)
    assert approvers.evidence(operator)


def test_no_user_is_the_operator_where_there_is_none() -> None:
    stranger = Member(Author("", "", ""))
    approvers = Approvers()
    assert not approvers.administers(stranger)
    assert not approvers.evidence(stranger)


def test_without_named_users_only_admins_of_the_platform_administer_and_approve() -> None:
    approvers = Approvers()
    assert approvers.administers(Member(ANA, platform_admin=True))
    assert approvers.evidence(Member(ANA, platform_admin=True))
    assert not approvers.administers(Member(BEN))
    assert not approvers.evidence(Member(BEN))


def test_named_admins_take_the_place_of_the_platforms_own() -> None:
    approvers = Approvers(admins=frozenset({"slack:U1"}))
    assert approvers.administers(Member(ANA))
    assert approvers.evidence(Member(ANA))
    assert not approvers.administers(Member(BEN, platform_admin=True))
    assert not approvers.evidence(Member(BEN, platform_admin=True))


def test_approvers_approve_beside_the_admins_but_do_not_administer() -> None:
    approvers = Approvers(frozenset({"slack:U1"}), frozenset({"slack:U2"}))
    assert approvers.evidence(Member(BEN))
    assert not approvers.administers(Member(BEN))
    assert approvers.evidence(Member(ANA))


def test_naming_approvers_leaves_the_platforms_admins_their_rights() -> None:
    approvers = Approvers(approvers=frozenset({"slack:U2"}))
    assert approvers.administers(Member(ANA, platform_admin=True))
    assert approvers.evidence(Member(ANA, platform_admin=True))


def test_a_group_or_role_stands_for_its_members() -> None:
    approvers = Approvers(frozenset({"discord-role:7"}), frozenset({"slack-group:S1"}))
    assert approvers.evidence(Member(BEN, roles=frozenset({"slack-group:S0", "slack-group:S1"})))
    assert approvers.administers(Member(BEN, roles=frozenset({"discord-role:7"})))
    assert not approvers.evidence(Member(BEN, roles=frozenset({"slack-group:S2"})))


def test_an_id_on_another_platform_is_another_user() -> None:
    approvers = Approvers(admins=frozenset({"slack:U1"}))
    assert not approvers.evidence(Member(Author("discord", "U1", "Ana")))


def test_a_name_gives_no_rights() -> None:
    approvers = Approvers(admins=frozenset({"slack:U1"}), operator="console:root")
    assert not approvers.evidence(Member(Author("slack", "U7", "slack:U1")))
    assert not approvers.evidence(Member(Author("slack", "U7", "console:root")))


@pytest.mark.parametrize("outsider", [{"guest": True}, {"external": True}])
def test_guests_and_people_from_outside_never_approve_not_even_by_name_or_as_admins(outsider: dict[str, Any]) -> None:
    member = Member(ANA, frozenset({"slack-group:S1"}), platform_admin=True, **outsider)
    for named in ("slack:U1", "slack-group:S1"):
        approvers = Approvers(frozenset({named}), frozenset({named}))
        assert not approvers.administers(member)
        assert not approvers.evidence(member)
    assert not Approvers().administers(member)


def test_the_asker_may_deny_but_not_approve() -> None:
    approvers = Approvers(admins=frozenset({"slack:U1"}))
    assert objection(approvers, Member(BEN), BEN, DecisionType.DENY) == ""
    assert (
        objection(approvers, Member(BEN), BEN, DecisionType.APPROVE) == "You may not approve this. It needs slack:U1."
    )


def test_the_asker_is_known_by_id_under_a_new_name_too() -> None:
    renamed = Author(BEN.platform, BEN.id, "Benjamin")
    assert objection(Approvers(), Member(renamed), BEN, DecisionType.DENY) == ""
    namesake = Author(BEN.platform, "U3", BEN.name)
    assert objection(Approvers(), Member(namesake), BEN, DecisionType.DENY) != ""


@pytest.mark.parametrize("verdict", list(DecisionType))
def test_others_can_neither_approve_nor_deny_and_read_who_can(verdict: DecisionType) -> None:
    approvers = Approvers(approvers=frozenset({"slack:U5", "slack-group:S1"}))
    assert objection(approvers, Member(BEN), ANA, verdict) == (
        "You may not approve this. It needs slack-group:S1, slack:U5."
    )
    assert "It needs an administrator." in objection(Approvers(), Member(BEN), ANA, verdict)


@pytest.mark.parametrize("verdict", list(DecisionType))
def test_an_approver_may_approve_and_deny_every_call(verdict: DecisionType) -> None:
    approvers = Approvers(approvers=frozenset({"slack:U1"}))
    assert objection(approvers, Member(ANA), BEN, verdict) == ""
    assert objection(approvers, Member(ANA), ANA, verdict) == ""


def test_the_file_decides_if_the_asker_may_approve() -> None:
    assert read("").self_approval
    assert read("self_approval = true").self_approval
    assert not read('default = "ASK_USER"\nself_approval = false\n').self_approval
    error = policy_error('self_approval = "never"')
    assert error.cause == "config/policy.toml, line 1: self_approval is 'never'."
    assert error.fix == "write true or false"
