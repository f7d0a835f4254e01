"""Rules about arguments. A missing argument counts as its default. Hosts and letters are normalized."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import RuleError, describe_rule, parse_rule, rule_to_table
from bot.domain.tools import Tool
from bot.engine.policy.rules import Policies, Rules
from bot.mcp.hosts import read_hosts

ALLOW, ASK, DENY = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_DENY


def resulting_policy(
    arguments: dict[str, Any], path: str, pattern: str, *, policy: ApprovalPolicy = DENY, schema: Any = None
) -> ApprovalPolicy:
    """Return the policy of a call under one rule. The default is to ask for a rule that allows, and to allow for any
    other.
    """
    rule = parse_rule({"policy": policy.value, "arguments": {path: pattern}})
    file = Policies(default=ASK if policy is ALLOW else ALLOW, rules=(rule,))
    tool = Tool("web__get", "web", "get", input_schema=schema or {"type": "object"})
    return Rules(file, read_hosts=read_hosts).judge(tool, arguments).stored.policy


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


OPS = {"type": "string", "default": "OPS"}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("project", an_object(project=OPS)),
        ("issue.project", an_object(issue={**an_object(project=OPS), "default": {}})),
        ("issue.project", an_object(issue={**an_object(), "default": {"project": "OPS"}})),
        ("issue.project", an_object(issue=an_object(project=OPS))),
        ("issue.project", {**an_object(issue={"$ref": "#/$defs/I"}), "$defs": {"I": an_object(project=OPS)}}),
        ("project", an_object(project={"anyOf": [{"type": "null"}, OPS]})),
        ("project", {"allOf": [an_object(project=OPS)]}),
        ("labels", an_object(labels={"type": "array", "default": ["a", "OPS"]})),
        ("issue.project", an_object(**{"issue.project": OPS})),
    ],
)
def test_an_argument_that_is_left_out_counts_as_its_default(path: str, schema: Any) -> None:
    assert resulting_policy({}, path, "OPS", schema=schema) is DENY
    assert resulting_policy({}, path, "OTHER", schema=schema) is ALLOW


def test_defaults_fill_in_what_an_object_or_an_entry_of_a_list_lacks() -> None:
    schema = an_object(issue=an_object(project=OPS), to={"type": "array", "items": an_object(project=OPS)})
    assert resulting_policy({"issue": {}}, "issue.project", "OPS", schema=schema) is DENY
    assert resulting_policy({"issue": {"project": "DEV"}}, "issue.project", "OPS", schema=schema) is ALLOW
    assert resulting_policy({"to": [{"project": "DEV"}, {}]}, "to.project", "OPS", schema=schema) is DENY
    assert resulting_policy({"to": []}, "to.project", "OPS", schema=schema) is ALLOW


def test_a_call_allowed_by_its_default_runs_and_one_with_open_values_asks() -> None:
    assert resulting_policy({}, "project", "OPS", policy=ALLOW, schema=an_object(project=OPS)) is ALLOW
    assert resulting_policy({"project": "DEV"}, "project", "OPS", policy=ALLOW, schema=an_object(project=OPS)) is ASK
    maybe = an_object(issue=an_object(project=OPS))
    assert resulting_policy({}, "issue.project", "OPS", policy=ALLOW, schema=maybe) is ASK
    either = an_object(project={"anyOf": [OPS, {"default": "DEV"}]})
    assert resulting_policy({}, "project", "OPS", policy=ALLOW, schema=either) is ASK


def test_a_schema_without_end_is_not_followed_without_end() -> None:
    schema: dict[str, Any] = {"$ref": "#", "anyOf": [{"$ref": "#"}] * 3, "properties": {"project": {"$ref": "#"}}}
    assert resulting_policy({}, "project", "OPS", schema=schema) is ALLOW
    wide: dict[str, Any] = {"allOf": [{"properties": {"a": {}}} for _ in range(100)]}
    assert resulting_policy({}, "project", "OPS", schema=wide) is DENY, "a default may be in what is not looked at"
    assert resulting_policy({}, "project", "OPS", policy=ALLOW, schema=wide) is ASK


EVIL = [
    "http://evil.com/x", "http://EVIL.com", "evil.com.", "http://\uff45\uff56\uff49\uff4c.com", "http://user@evil.com:80/",
    "http://evil.com\\@good.com", "http://good.com@evil.com", "ana@EVIL.com", ["http://good.com", "http://evil.com"],
    "http://good.com, http://evil.com", "http://[fe80::1%25eth0]/", {"address": "http://evil.com"}, True,
]  # fmt: skip


@pytest.mark.parametrize("value", EVIL)
def test_no_spelling_of_a_host_passes_a_rule_on_it(value: Any) -> None:
    assert resulting_policy({"url": value}, "host(url)", "evil.com") is DENY
    assert resulting_policy({"url": value}, "host(url)", "EVIL.com") is DENY
    assert resulting_policy({"url": value}, "host(url)", ".evil.com") is DENY
    assert resulting_policy({"url": value}, "host(url)", "evil.com", policy=ASK) is ASK
    assert resulting_policy({"url": value}, "host(url)", "good.com", policy=ALLOW) is ASK


@pytest.mark.parametrize(
    ("value", "pattern", "fits"),
    [
        ("http://GOOD.com:443/x", "good.com", True),
        ("http://www.good.com", "good.com", False),
        ("http://www.good.com", "*.good.com", True),
        ("http://good.com", "*.good.com", False),
        ("http://good.com", ".good.com", True),
        ("http://a.b.good.com", ".good.com", True),
        ("http://notgood.com", ".good.com", False),
        ("http://good.com.evil.com", "*good.com", False),
        ("http://xn--bcher-kva.example", "bücher.example", True),
        ("http://www.xn--bcher-kva.example", "*.BÜCHER.example", True),
        ("http://0177.0.0.1", "127.0.0.1", True),
        (2130706433, "127.0.0.1", True),
        ("http://[::1]:80", "::1", True),
        ("http://[::ffff:10.0.0.1]", "10.0.0.*", True),
        (["http://a.good.com", "b.good.com"], ".good.com", True),
        ("a@good.com, B <b@good.com>", "good.com", True),
        ("http://good.com/?next=http://evil.com", "good.com", True),
        ("nothing at all", "good.com", False),
        ("", "good.com", False),
        (None, "good.com", False),
    ],
)
def test_a_rule_that_allows_a_host_allows_that_host_alone(value: Any, pattern: str, *, fits: bool) -> None:
    assert resulting_policy({"url": value}, "host(url)", pattern, policy=ALLOW) is (ALLOW if fits else ASK)


def test_a_call_without_an_address_is_about_no_host() -> None:
    without: list[dict[str, Any]] = [{}, {"url": None}, {"url": ""}, {"url": []}]
    for arguments in without:
        assert resulting_policy(arguments, "host(url)", "evil.com") is ALLOW
    schema = an_object(url={"type": "string", "default": "https://EVIL.com"})
    assert resulting_policy({}, "host(url)", "evil.com", schema=schema) is DENY


def test_letters_are_compared_without_capitals_and_looks_where_a_rule_says_so() -> None:
    for value in ("ops", "\uff2f\uff30\uff33", "O\u200bps", "ﬁ"):
        assert resulting_policy({"project": value}, "folded(project)", "fi" if value == "ﬁ" else "OPS") is DENY
        assert resulting_policy({"project": value}, "project", "OPS") is ALLOW
    assert resulting_policy({"project": "ops-1"}, "folded(project)", "OPS-*") is DENY


def test_a_comparison_is_said_as_it_is_written() -> None:
    rule = parse_rule({"policy": "ALWAYS_DENY", "arguments": {"host(url)": ".evil.com"}})
    assert parse_rule(rule_to_table(rule)) == rule
    assert "where host(url) is .evil.com" in describe_rule(rule)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("hots(url)", "evil.com"), ("host()", "evil.com"), ("host(url)", "http://evil.com"),
        ("host(url)", "evil.com:80"),
        ("host(url)", "a@evil.com"), ("host(url)", "[::1]"), ("host(url)", "evil.com/x"),
        ("host(url)", "."),
    ],
)  # fmt: skip
def test_a_comparison_that_could_not_fit_is_refused(path: str, pattern: str) -> None:
    with pytest.raises(RuleError):
        parse_rule({"policy": "ALWAYS_DENY", "arguments": {path: pattern}})


def test_without_a_reader_of_addresses_a_rule_on_a_host_holds_for_every_call() -> None:
    rule = parse_rule({"policy": "ALWAYS_DENY", "arguments": {"host(url)": "evil.com"}})
    tool = Tool("web__get", "web", "get")
    assert Rules(Policies(default=ALLOW, rules=(rule,))).judge(tool, {"url": "x"}).stored.policy is DENY
