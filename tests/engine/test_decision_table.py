"""The deciding rule: a table readable without the code, and properties of all rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import Rule, parse_rule, rule_to_table
from bot.domain.profiles import Profile
from bot.domain.tools import Annotations, Tool
from bot.engine.policy.evaluation import STRICTEST_FIRST, PolicyRequest, evaluate, outranks, specificity

ALLOW, DENY, ASK, AUTO = (
    ApprovalPolicy.ALWAYS_ALLOW,
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.AUTO,
)
RUNS, NEVER, ASKS = ALLOW, DENY, ASK
"""Expected decisions on a call."""

ANA = Author("slack", "U1", "Ana")
OPS = ConversationKey("slack", "T1", "C-ops", "1.0")
SEND = Tool("jira__create_issue", "jira", "create_issue", server_id="id-1")
READ = Tool("jira__get_issue", "jira", "get_issue", annotations=Annotations(read_only=True), server_id="id-1")
CALL = PolicyRequest(SEND, OPS, {"project": "OPS", "title": "Rain"}, ANA, Member(ANA, frozenset({"slack-group:S1"})))
READING = replace(CALL, tool=READ)
TRUSTED_READING = replace(CALL, tool=replace(READ, trusted=True))


def rules(*written: str) -> list[Rule]:
    """Parse rules such as `allow jira.create_* argument.project=OPS in=slack:T1`: a policy, a tool, then conditions."""
    return [_rule(line, f"#{number}") for number, line in enumerate(written, 1)]


def _rule(line: str, name: str) -> Rule:
    word, target, *more = line.split()
    words = {"allow": "ALWAYS_ALLOW", "deny": "ALWAYS_DENY", "ask": "ASK_USER", "auto": "AUTO"}
    server, _, tool = target.partition(".")
    table: dict[str, Any] = {"policy": words[word], "tool": tool or "*"}
    table["server_id" if server.startswith("id-") else "server"] = server
    for key, _, value in (each.partition("=") for each in more):
        group, _, inner = key.partition(".")
        if inner:
            table.setdefault(group, {})[inner] = value == "yes" if group == "annotations" else value
        else:
            table[key] = value.split(",") if "," in value else value
    return replace(parse_rule(table), id=name)


@pytest.mark.parametrize(
    ("case", "written", "comes", "by"),
    [
        # ------------------------------------------------ no rule matches
        (CALL, [], ASKS, ""),
        (CALL, ["allow jira.get_issue"], ASKS, ""),
        (CALL, ["allow wiki", "deny jira.delete_*"], ASKS, ""),
        # ------------------------------------------------ one rule
        (CALL, ["allow *"], RUNS, "#1"),
        (CALL, ["allow jira"], RUNS, "#1"),
        (CALL, ["allow ji*"], RUNS, "#1"),
        (CALL, ["allow Jira"], ASKS, ""),
        (CALL, ["allow id-1"], RUNS, "#1"),
        (CALL, ["allow id-2"], ASKS, ""),
        (CALL, ["allow jira.create_issue"], RUNS, "#1"),
        (CALL, ["allow jira.create_*"], RUNS, "#1"),
        (CALL, ["allow *.*_issue"], RUNS, "#1"),
        (CALL, ["allow jira.create"], ASKS, ""),
        (CALL, ["allow jira except=create_issue"], ASKS, ""),
        (CALL, ["deny *"], NEVER, "#1"),
        # ------------------------------------------------ a denial wins over more specific rules
        (
            CALL,
            ["deny *", "allow id-1.create_issue arguments.project=OPS in=slack:T1:C-ops asker=slack:U1"],
            NEVER,
            "#1",
        ),
        (CALL, ["allow jira.create_issue", "deny jira"], NEVER, "#2"),
        (CALL, ["deny *.create_*", "allow jira.create_issue"], NEVER, "#1"),
        (CALL, ["deny jira except=create_issue", "allow jira.create_issue"], RUNS, "#2"),
        # ------------------------------------------------ otherwise the more specific rule wins
        (CALL, ["ask *", "allow jira"], RUNS, "#2"),
        (CALL, ["allow jira.create_issue", "ask jira"], RUNS, "#1"),
        (CALL, ["allow jira.create_issue", "ask jira.create_*"], RUNS, "#1"),
        (CALL, ["allow jira", "ask ji*"], RUNS, "#1"),
        (CALL, ["allow id-1", "ask ji*"], RUNS, "#1"),
        (CALL, ["ask jira.create_issue", "allow jira.create_issue arguments.project=OPS"], RUNS, "#2"),
        (CALL, ["ask jira arguments.project=O*", "allow jira arguments.project=OPS"], RUNS, "#2"),
        (CALL, ["ask jira in=slack:T1", "allow jira in=slack:T1:C-ops"], RUNS, "#2"),
        (CALL, ["ask jira asker=slack-group:S1", "allow jira asker=slack:U1"], RUNS, "#2"),
        (CALL, ["ask jira", "allow jira profile=desk"], ASKS, "#1"),
        (replace(CALL, profile=Profile("p1", "desk")), ["ask jira", "allow jira profile=desk"], RUNS, "#2"),
        (replace(CALL, profile=Profile("p1", "desk")), ["ask jira", "allow jira profile=p1"], RUNS, "#2"),
        # ------------------------------------------------ if neither is more specific, the stricter wins
        (CALL, ["allow jira.create_issue", "ask jira in=slack:T1:C-ops"], ASKS, "#2"),
        (CALL, ["allow jira in=slack:T1:C-ops", "ask *.create_issue"], ASKS, "#2"),
        (CALL, ["allow jira", "ask id-1"], ASKS, "#2"),
        (CALL, ["allow jira.create_issue", "ask jira.create_issue"], ASKS, "#2"),
        (CALL, ["allow jira.create_issue", "ask jira.create_issue", "allow jira.create_issue in=slack"], RUNS, "#3"),
        (CALL, ["allow jira", "auto jira"], ASKS, "#2"),
        # ------------------------------------------------ arguments
        (CALL, ["deny jira arguments.project=OPS"], NEVER, "#1"),
        (CALL, ["deny jira arguments.project=ops"], ASKS, ""),
        (CALL, ["deny jira arguments.project=O?S"], NEVER, "#1"),
        (CALL, ["deny jira arguments.board=*"], ASKS, ""),
        (CALL, ["allow jira arguments.project=OPS arguments.title=Rain"], RUNS, "#1"),
        (CALL, ["allow jira arguments.project=OPS arguments.title=Snow"], ASKS, ""),
        # ------------------------------------------------ conversations
        (CALL, ["deny * in=slack"], NEVER, "#1"),
        (CALL, ["deny * in=slack:T1"], NEVER, "#1"),
        (CALL, ["deny * in=slack:T1:C-ops"], NEVER, "#1"),
        (CALL, ["deny * in=slack:T1:C-o"], ASKS, ""),
        (CALL, ["deny * in=discord,slack:T2"], ASKS, ""),
        # ------------------------------------------------ the asker
        (CALL, ["allow jira asker=slack:U1"], RUNS, "#1"),
        (CALL, ["allow jira asker=slack:U2,slack-group:S1"], RUNS, "#1"),
        (CALL, ["allow jira asker=members"], RUNS, "#1"),
        (CALL, ["deny jira asker=guests"], ASKS, ""),
        (replace(CALL, member=Member(ANA, guest=True)), ["deny jira asker=guests"], NEVER, "#1"),
        (replace(CALL, member=Member(ANA, external=True)), ["allow jira asker=members"], ASKS, ""),
        (replace(CALL, member=Member(ANA)), ["allow jira asker=slack-group:S1"], ASKS, ""),
        # The member is unknown: a rule for a group allows nothing, and a denial applies.
        (replace(CALL, member=None), ["allow jira asker=slack-group:S1"], ASKS, ""),
        (replace(CALL, member=None), ["deny jira asker=slack-group:S9"], NEVER, "#1"),
        (replace(CALL, member=None), ["allow jira asker=slack:U1"], RUNS, "#1"),
        # ------------------------------------------------ annotations, of a trusted server
        (TRUSTED_READING, ["allow * annotations.read_only=yes"], RUNS, "#1"),
        (TRUSTED_READING, ["deny * annotations.read_only=no"], ASKS, ""),
        (TRUSTED_READING, ["deny * annotations.destructive=yes"], ASKS, ""),
        (TRUSTED_READING, ["deny * annotations.open_world=yes"], NEVER, "#1"),
        # The hints of an untrusted server do not count.
        (READING, ["allow * annotations.read_only=yes"], ASKS, ""),
        (READING, ["deny * annotations.destructive=yes"], NEVER, "#1"),
        (READING, ["allow jira.get_issue", "ask * annotations.destructive=yes"], ASKS, "#2"),
    ],
)
def test_the_decision_table(case: PolicyRequest, written: list[str], comes: ApprovalPolicy, by: str) -> None:
    found = evaluate(rules(*written), case, ASK)
    assert (found.stored.policy, found.stored.rule) == (comes, by)
    assert evaluate(rules(*written)[::-1], case, ASK).stored.policy is comes, "the order of rules means nothing"
    assert found.stored.why
    assert found.stored.words


@pytest.mark.parametrize(
    ("case", "pinned", "comes", "because"),
    [
        (TRUSTED_READING, True, RUNS, "AUTO runs it: it only reads, and its definition is pinned."),
        (TRUSTED_READING, False, ASKS, "AUTO asks: the tool's definition is not the pinned one."),
        (READING, True, ASKS, "AUTO asks: the server is not marked trusted."),
        (
            replace(CALL, tool=replace(SEND, trusted=True)),
            True,
            ASKS,
            "AUTO asks: the server does not say that the tool only reads.",
        ),
    ],
)
def test_auto_runs_pinned_reads_of_a_trusted_server(
    case: PolicyRequest, pinned: bool, comes: ApprovalPolicy, because: str
) -> None:
    for default, written in ((AUTO, []), (ASK, ["auto jira"])):
        found = evaluate(rules(*written), case, default, lambda _tool: pinned).stored
        assert found.policy is comes
        assert found.why.endswith(because)


def test_auto_asks_where_definitions_cannot_be_reviewed() -> None:
    assert evaluate([], TRUSTED_READING, AUTO).stored.policy is ASKS


@pytest.mark.parametrize(
    ("arguments", "pattern", "denied", "allowed"),
    [
        ({"to": "a@evil.example"}, "to=*@evil.example", True, True),
        ({"to": ["a@home.example", "b@evil.example"]}, "to=*@evil.example", True, False),
        ({"to": ["b@evil.example"]}, "to=*@evil.example", True, True),
        ({"to": []}, "to=*", False, False),
        ({"to": None}, "to=null", True, True),
        ({"n": 5}, "n=5", True, True),
        ({"n": 5.0}, "n=5", True, True),
        ({"n": "5"}, "n=5", True, True),
        ({"n": 5e300}, "n=5", False, False),
        ({"force": True}, "force=true", True, True),
        ({"issue": {"project": "OPS"}}, "issue.project=OPS", True, True),
        ({"issue.project": "OPS"}, "issue.project=OPS", True, True),
        ({"issue.project": "x", "issue": {"project": "OPS"}}, "issue.project=OPS", True, False),
        ({"issues": [{"project": "OPS"}, {"project": "X"}]}, "issues.project=OPS", True, False),
        ({"issues": [{"project": "OPS"}, {}]}, "issues.project=OPS", True, False),
        ({"issues": [{"project": "OPS"}, {"project": "OPS"}]}, "issues.project=OPS", True, True),
        ({"labels": [["a"], ["b"]]}, "labels=b", True, False),
        ({"issue": {"b": 1, "a": [2]}}, 'issue={"a":[2],"b":1}', True, True),
        ({"issue": "OPS"}, "issue.project=OPS", False, False),
        ({}, "issue.project=*", False, False),
    ],
)
def test_a_rule_that_denies_takes_one_value_that_fits_and_a_rule_that_allows_takes_all(
    arguments: dict[str, Any], pattern: str, denied: bool, allowed: bool
) -> None:
    case = replace(CALL, arguments=arguments)
    path, _, text = pattern.partition("=")
    for policy, fits, comes in ((DENY, denied, NEVER), (ALLOW, allowed, RUNS)):
        rule = Rule(policy, server="jira", arguments={path: text.replace("[", "[[]")})
        assert evaluate([rule], case, ASK).stored.policy is (comes if fits else ASKS)


def test_a_default_of_denying_gives_way_to_a_rule_that_fits_and_not_to_one_that_may_fit() -> None:
    assert evaluate(rules("allow jira"), CALL, DENY).stored.policy is RUNS
    assert evaluate(rules("ask jira asker=slack-group:S1"), CALL, DENY).stored.policy is ASKS
    assert evaluate(rules("ask jira asker=slack-group:S1"), replace(CALL, member=None), DENY).stored.policy is NEVER


def test_a_policy_result_has_its_reason_and_the_other_rules() -> None:
    found = evaluate(rules("allow jira", "ask *", "allow jira.create_issue", "ask jira"), CALL, ASK)
    assert found.stored.rule == "#3"
    assert found.stored.words == "ALWAYS_ALLOW: jira.create_issue"
    assert found.stored.why == "It is more specific than the other rules that match this call."
    assert [(each.id, why) for each, why in found.passed] == [
        ("#1", "#3 is more specific"),
        ("#2", "#1 is more specific"),
        ("#4", "#3 is more specific"),
    ]


def test_of_several_rules_that_ask_alike_the_terms_of_all_count() -> None:
    asked = [
        Rule(
            ASK, server="jira", requirements=ApprovalRequirements((frozenset({"slack:U2"}),), quorum=2, expires=600.0)
        ),
        Rule(
            ASK,
            tool="create_issue",
            requirements=ApprovalRequirements((frozenset({"members"}),), four_eyes=True, expires=300.0),
        ),
        Rule(ASK, requirements=ApprovalRequirements((frozenset({"slack:U9"}),), quorum=9)),
    ]
    assert evaluate(asked, CALL, ASK).requirements == ApprovalRequirements(
        (frozenset({"slack:U2"}), frozenset({"members"})), four_eyes=True, quorum=2, expires=300.0
    )


def test_approvers_of_the_operators_file_are_never_overruled() -> None:
    (asks, allows, loosens) = rules("ask jira", "allow jira.create_issue in=slack:T1:C-ops", "ask jira.create_issue")
    two = replace(asks, requirements=ApprovalRequirements(quorum=2), of_file=True)
    found = evaluate([two, allows], CALL, ASK)
    assert (found.stored.policy, found.stored.rule, found.requirements.quorum) == (ASKS, "#1", 2)
    assert [why for _rule, why in found.passed] == ["#1 is stricter"]
    mine = replace(loosens, requirements=ApprovalRequirements((frozenset({"asker"}),)))
    assert evaluate([two, mine], CALL, ASK).requirements == ApprovalRequirements((frozenset({"asker"}),), quorum=2)
    assert evaluate([two, replace(allows, of_file=True)], CALL, ASK).stored.policy is RUNS
    assert evaluate([replace(two, of_file=False), allows], CALL, ASK).stored.policy is RUNS
    assert (
        evaluate([replace(two, requirements=ApprovalRequirements(expires=60.0)), allows], CALL, ASK).stored.policy
        is RUNS
    )


# ------------------------------------------------------------------ properties of all rules

SERVERS, TOOLS = ("jira", "wiki"), ("create_issue", "get_issue")
PATTERNS = st.sampled_from(["*", "j*", "jira", "wiki"])
TOOL_PATTERNS = st.sampled_from(["*", "*_issue", "create_*", "create_issue", "get_issue"])
POLICIES = st.sampled_from([ALLOW, DENY, ASK, AUTO])
MEMBERS_OF = st.sampled_from([None, Member(ANA), Member(ANA, frozenset({"slack-group:S1"})), Member(ANA, guest=True)])


HINTS = st.sampled_from([None, True, False])
SENT: list[dict[str, Any]] = [{}, {"a": "x"}, {"a": ["x", "y"]}, {"a": {"b": "x"}}, {"a": [{"b": "x"}, {}]}]
RULES = st.builds(
    Rule,
    POLICIES,
    server=PATTERNS,
    server_id=st.sampled_from(["", "", "id-jira", "id-wiki"]),
    tool=TOOL_PATTERNS,
    excluded_tools=st.frozensets(st.sampled_from(TOOLS), max_size=1),
    annotations=st.dictionaries(st.sampled_from(["read_only", "destructive"]), st.booleans(), max_size=2),
    arguments=st.dictionaries(st.sampled_from(["a", "a.b"]), st.sampled_from(["x", "x*", "*"]), max_size=2),
    places=st.frozensets(st.sampled_from(["slack", "slack:T1", "slack:T1:C-ops", "discord"]), max_size=2),
    askers=st.frozensets(st.sampled_from(["slack:U1", "slack-group:S1", "members", "guests"]), max_size=2),
)
CASES = st.builds(
    lambda server, tool, hints, trusted, sent, member: PolicyRequest(
        Tool(f"{server}__{tool}", server, tool, annotations=hints, trusted=trusted, server_id=f"id-{server}"),
        OPS,
        sent,
        ANA,
        member,
    ),
    st.sampled_from(SERVERS),
    st.sampled_from(TOOLS),
    st.builds(Annotations, HINTS, HINTS),
    st.booleans(),
    st.sampled_from(SENT),
    MEMBERS_OF,
)


def covers(rule: Rule, case: PolicyRequest) -> bool:
    """Return True if the rule applies to the call with certainty. A simple second implementation."""
    alone = evaluate([replace(rule, policy=ALLOW)], case, DENY)
    return alone.stored.policy is ALLOW


@given(st.lists(RULES, max_size=6), CASES, POLICIES, st.booleans())
def test_no_set_of_rules_runs_a_denied_call(
    written: list[Rule], case: PolicyRequest, default: ApprovalPolicy, pinned: bool
) -> None:
    policy = evaluate(written, case, default, lambda _tool: pinned).stored.policy
    if any(rule.policy is DENY and covers(rule, case) for rule in written):
        assert policy is DENY


@given(st.lists(RULES, max_size=6), RULES, CASES, POLICIES)
def test_one_more_denial_never_loosens_anything(
    written: list[Rule], more: Rule, case: PolicyRequest, default: ApprovalPolicy
) -> None:
    before = evaluate(written, case, default).stored.policy
    after = evaluate([*written, replace(more, policy=DENY)], case, default).stored.policy
    assert STRICTEST_FIRST.index(after) <= STRICTEST_FIRST.index(before)


@given(st.lists(RULES, max_size=6), CASES, POLICIES)
def test_knowing_less_never_lets_more_run(written: list[Rule], case: PolicyRequest, default: ApprovalPolicy) -> None:
    if evaluate(written, case, default).stored.policy is ALLOW:
        return
    stranger = replace(case, tool=replace(case.tool, trusted=False))
    assert evaluate(written, stranger, default).stored.policy is not ALLOW


@given(st.lists(RULES, max_size=6), CASES, POLICIES, st.randoms())
def test_the_order_of_rules_means_nothing(
    written: list[Rule], case: PolicyRequest, default: ApprovalPolicy, shuffled: Any
) -> None:
    other = list(written)
    shuffled.shuffle(other)
    assert evaluate(other, case, default).stored.policy is evaluate(written, case, default).stored.policy


@given(RULES, RULES)
def test_of_two_rules_at_most_one_beats_the_other(one: Rule, other: Rule) -> None:
    assert not (outranks(one, other) and outranks(other, one))
    assert not outranks(one, one)
    if outranks(one, other):
        assert len(specificity(one)) >= len(specificity(other))


@given(RULES)
def test_a_rule_that_is_written_down_is_read_as_it_was(rule: Rule) -> None:
    rule = replace(rule, server="*") if rule.server_id else rule
    table = rule_to_table(rule)
    assert parse_rule(table) == rule
    assert "*" not in (table.get("server"), table.get("tool")), "what every call matches is not written"
