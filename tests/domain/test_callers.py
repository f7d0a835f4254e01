"""Callers over HTTP as values: what a token is good for, and who it is in rules."""

from __future__ import annotations

from bot.domain.callers import EVERYWHERE_ROLE, ApiToken, Caller, Role


def test_a_role_may_what_the_smaller_ones_may() -> None:
    may = {role: [other for other in Role if Caller("ci", role).may(other)] for role in Role}
    assert may == {
        Role.MEMBER: [Role.MEMBER],
        Role.APPROVER: [Role.MEMBER, Role.APPROVER],
        Role.ADMIN: [Role.MEMBER, Role.APPROVER, Role.ADMIN],
    }


def test_rules_know_a_caller_by_its_name_and_its_roles() -> None:
    member = Caller("ci", Role.APPROVER).member
    assert member.author.principal == "api:ci"
    assert member.roles == {"api-role:member", "api-role:approver"}
    assert not member.platform_admin


def test_only_an_admin_of_all_workspaces_is_one_everywhere() -> None:
    callers = [
        Caller("a", Role.ADMIN),
        Caller("b", Role.ADMIN, "slack:T1"),
        Caller("c", Role.APPROVER),
    ]
    assert [EVERYWHERE_ROLE in each.member.roles for each in callers] == [True, False, False]


def test_a_caller_stands_in_its_own_conversation_of_the_workspace_it_has_to_do_with() -> None:
    everywhere, of_one = Caller("a", Role.MEMBER), Caller("b", Role.MEMBER, "slack:T1")
    assert [str(everywhere.place()), everywhere.place().home] == ["api:default:a:", "api:default"]
    assert [str(of_one.place()), of_one.place().home] == ["api:slack%3AT1:b:", "slack:T1"]
    assert everywhere.place("discord:7", "t").home == "discord:7"
    assert [of_one.reaches(home) for home in ("slack:T1", "slack:T", "slack:T10", "", "api:default")] == [True] + [
        False
    ] * 4
    assert everywhere.reaches("slack:T1")
    assert everywhere.reaches("")


def test_a_token_is_good_until_it_is_revoked_or_over() -> None:
    assert ApiToken("1", "ci", Role.MEMBER).is_good(1e12)
    assert not ApiToken("1", "ci", Role.MEMBER, revoked_at=1.0).is_good(0.5)
    over = ApiToken("1", "ci", Role.MEMBER, expires_at=100.0)
    assert [over.is_good(now) for now in (99.9, 100.0)] == [True, False]
