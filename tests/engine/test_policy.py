"""Which tools run, which ask, which never run; and whose signature counts."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from bot.domain.approvals import ApprovalPolicy, Verdict
from bot.domain.conversations import Author, Member
from bot.engine.policy import Policies, Signatories, read_policies
from bot.errors import SettingsError

ALLOW, DENY, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER

ANA = Author("slack", "U1", "Ana")
BEN = Author("slack", "U2", "Ben")
OPERATOR = Author("console", "root", "root")


def read(text: str, default: ApprovalPolicy | None = None) -> Policies:
    return read_policies(tomllib.loads(text), default, "policy.toml")


def refused(table: dict[str, Any], default: ApprovalPolicy | None = None) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        read_policies(table, default, "policy.toml")
    assert caught.value.cause.startswith("policy.toml")
    assert caught.value.fix
    return caught.value


def test_an_empty_file_asks_for_everything() -> None:
    assert read("").of("any", "tool") is ASK


def test_the_most_particular_entry_counts() -> None:
    policies = read("""
        default = "ALWAYS_ALLOW"
        [servers.calendar]
        default = "ALWAYS_DENY"
        [servers.calendar.tools]
        list_events = "ASK_USER"
        [servers.notes.tools]
        "add.note" = "ALWAYS_DENY"
    """)
    assert policies.of("calendar", "list_events") is ASK
    assert policies.of("calendar", "delete_event") is DENY
    assert policies.of("notes", "add.note") is DENY
    assert policies.of("notes", "list_events") is ALLOW
    assert policies.of("weather", "list_events") is ALLOW


def test_the_variable_wins_over_the_files_default_and_over_nothing_else() -> None:
    policies = read(
        'default = "ALWAYS_ALLOW"\n[servers.a]\ndefault = "ALWAYS_ALLOW"\n[servers.b.tools]\nt = "ASK_USER"', DENY
    )
    assert policies.of("other", "t") is DENY
    assert policies.of("b", "other") is DENY
    assert policies.of("a", "t") is ALLOW
    assert policies.of("b", "t") is ASK


def test_names_are_taken_as_they_are_written() -> None:
    policies = read('[servers.Notes.tools]\nList = "ALWAYS_ALLOW"')
    assert policies.of("Notes", "List") is ALLOW
    assert policies.of("notes", "List") is policies.of("Notes", "list") is ASK


@pytest.mark.parametrize(
    ("table", "place", "choice"),
    [
        ({"defualt": "ASK_USER"}, "defualt", "default, servers"),
        ({"server": {}}, "server ", "default, servers"),
        ({"servers": {"a": {"tool": {}}}}, "servers.a.tool ", "default, tools"),
        ({"servers": {"a": {"list": "ALWAYS_ALLOW"}}}, "servers.a.list", "default, tools"),
    ],
)
def test_an_unknown_key_is_refused_with_its_place_and_what_may_stand_there(
    table: dict[str, Any], place: str, choice: str
) -> None:
    error = refused(table)
    assert place in error.cause
    assert error.fix == f"use one of {choice}"


@pytest.mark.parametrize("word", ["ALWAYS_ALOW", "always_allow", "ASK", "", True, 1, ["ASK_USER"], {"x": 1}, None])
@pytest.mark.parametrize("place", ["default", "servers.a.default", "servers.a.tools.t"])
def test_a_word_that_is_no_policy_is_refused_with_those_that_are(place: str, word: Any) -> None:
    table: dict[str, Any] = {place.rpartition(".")[2]: word}
    for name in reversed(place.split(".")[:-1]):
        table = {name: table}
    error = refused(table)
    assert f"policy.toml: {place} is {word!r}." in error.cause
    assert error.fix == "use one of ALWAYS_ALLOW, ALWAYS_DENY, ASK_USER"


def test_a_wrong_default_is_refused_also_where_the_variable_wins() -> None:
    assert "default is 'ALWAYS_ALOW'" in refused({"default": "ALWAYS_ALOW"}, ASK).cause


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"servers": []}, "servers"),
        ({"servers": {"a": "ALWAYS_ALLOW"}}, "servers.a"),
        ({"servers": {"a": {"tools": ["t"]}}}, "servers.a.tools"),
    ],
)
def test_what_must_be_a_table_is_named(table: dict[str, Any], place: str) -> None:
    error = refused(table)
    assert error.cause == f"policy.toml: {place} must be a table."
    assert f"[{place}]" in error.fix


@pytest.mark.parametrize("pattern", ["*", "delete_*", "get_?"])
def test_a_pattern_is_refused_because_it_would_match_nothing(pattern: str) -> None:
    tables: list[dict[str, Any]] = [
        {"servers": {"a": {"tools": {pattern: "ALWAYS_DENY"}}}},
        {"servers": {pattern: {}}},
    ]
    for error in map(refused, tables):
        assert repr(pattern) in error.cause
        assert "default" in error.fix


def test_a_long_value_does_not_fill_the_screen() -> None:
    assert len(str(refused({"default": "x" * 10_000}))) < 250


# ---------------------------------------------------------------------- signatories


def test_the_operator_administers_and_signs_whoever_else_is_named() -> None:
    signatories = Signatories(frozenset({"slack:U9"}), frozenset({"slack:U8"}), "console:root")
    operator = Member(OPERATOR)
    assert signatories.administers(operator)
    assert signatories.signs(operator)


def test_nobody_is_the_operator_where_there_is_none() -> None:
    stranger = Member(Author("", "", ""))
    signatories = Signatories()
    assert not signatories.administers(stranger)
    assert not signatories.signs(stranger)


def test_where_nobody_is_named_the_platforms_admins_administer_and_only_they_sign() -> None:
    signatories = Signatories()
    assert signatories.administers(Member(ANA, platform_admin=True))
    assert signatories.signs(Member(ANA, platform_admin=True))
    assert not signatories.administers(Member(BEN))
    assert not signatories.signs(Member(BEN))


def test_named_admins_take_the_place_of_the_platforms_own() -> None:
    signatories = Signatories(admins=frozenset({"slack:U1"}))
    assert signatories.administers(Member(ANA))
    assert signatories.signs(Member(ANA))
    assert not signatories.administers(Member(BEN, platform_admin=True))
    assert not signatories.signs(Member(BEN, platform_admin=True))


def test_approvers_sign_beside_the_admins_but_do_not_administer() -> None:
    signatories = Signatories(frozenset({"slack:U1"}), frozenset({"slack:U2"}))
    assert signatories.signs(Member(BEN))
    assert not signatories.administers(Member(BEN))
    assert signatories.signs(Member(ANA))


def test_naming_approvers_leaves_the_platforms_admins_their_rights() -> None:
    signatories = Signatories(approvers=frozenset({"slack:U2"}))
    assert signatories.administers(Member(ANA, platform_admin=True))
    assert signatories.signs(Member(ANA, platform_admin=True))


def test_a_group_or_role_stands_for_its_members() -> None:
    signatories = Signatories(frozenset({"discord-role:7"}), frozenset({"slack-group:S1"}))
    assert signatories.signs(Member(BEN, roles=frozenset({"slack-group:S0", "slack-group:S1"})))
    assert signatories.administers(Member(BEN, roles=frozenset({"discord-role:7"})))
    assert not signatories.signs(Member(BEN, roles=frozenset({"slack-group:S2"})))


def test_an_id_on_another_platform_is_somebody_else() -> None:
    signatories = Signatories(admins=frozenset({"slack:U1"}))
    assert not signatories.signs(Member(Author("discord", "U1", "Ana")))


def test_a_name_gives_no_rights() -> None:
    signatories = Signatories(admins=frozenset({"slack:U1"}), operator="console:root")
    assert not signatories.signs(Member(Author("slack", "U7", "slack:U1")))
    assert not signatories.signs(Member(Author("slack", "U7", "console:root")))


@pytest.mark.parametrize("outsider", [{"guest": True}, {"external": True}])
def test_guests_and_people_from_outside_never_sign_not_even_by_name_or_as_admins(outsider: dict[str, bool]) -> None:
    member = Member(ANA, frozenset({"slack-group:S1"}), platform_admin=True, **outsider)
    for named in ("slack:U1", "slack-group:S1"):
        signatories = Signatories(frozenset({named}), frozenset({named}))
        assert not signatories.administers(member)
        assert not signatories.signs(member)
    assert not Signatories().administers(member)


def test_whoever_asked_may_deny_but_not_sign() -> None:
    signatories = Signatories(admins=frozenset({"slack:U1"}))
    assert signatories.objection(Member(BEN), BEN, Verdict.DENY) == ""
    assert signatories.objection(Member(BEN), BEN, Verdict.APPROVE) == "You may not sign this. It needs slack:U1."


def test_whoever_asked_is_known_by_id_under_a_new_name_too() -> None:
    renamed = Author(BEN.platform, BEN.id, "Benjamin")
    assert Signatories().objection(Member(renamed), BEN, Verdict.DENY) == ""
    namesake = Author(BEN.platform, "U3", BEN.name)
    assert Signatories().objection(Member(namesake), BEN, Verdict.DENY) != ""


@pytest.mark.parametrize("verdict", list(Verdict))
def test_others_can_neither_sign_nor_deny_and_are_told_who_can(verdict: Verdict) -> None:
    signatories = Signatories(approvers=frozenset({"slack:U5", "slack-group:S1"}))
    assert signatories.objection(Member(BEN), ANA, verdict) == (
        "You may not sign this. It needs slack-group:S1, slack:U5."
    )
    assert "It needs an administrator." in Signatories().objection(Member(BEN), ANA, verdict)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_signatory_may_say_both_of_anybodys_call(verdict: Verdict) -> None:
    signatories = Signatories(approvers=frozenset({"slack:U1"}))
    assert signatories.objection(Member(ANA), BEN, verdict) == ""
    assert signatories.objection(Member(ANA), ANA, verdict) == ""
