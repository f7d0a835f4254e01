"""Callers over HTTP as values: what a token is good for, and who it is in rules."""

from __future__ import annotations

from bot.domain.api_clients import EVERYWHERE_ROLE, ApiClient, ApiRole, ApiToken


def test_a_role_may_what_the_smaller_ones_may() -> None:
    may = {role: [other for other in ApiRole if ApiClient("ci", role).may(other)] for role in ApiRole}
    assert may == {
        ApiRole.MEMBER: [ApiRole.MEMBER],
        ApiRole.APPROVER: [ApiRole.MEMBER, ApiRole.APPROVER],
        ApiRole.ADMIN: [ApiRole.MEMBER, ApiRole.APPROVER, ApiRole.ADMIN],
    }


def test_rules_know_a_caller_by_its_name_and_its_roles() -> None:
    member = ApiClient("ci", ApiRole.APPROVER).member
    assert member.author.principal == "api:ci"
    assert member.roles == {"api-role:member", "api-role:approver"}
    assert not member.platform_admin


def test_only_an_admin_of_all_workspaces_is_one_everywhere() -> None:
    callers = [
        ApiClient("a", ApiRole.ADMIN),
        ApiClient("b", ApiRole.ADMIN, "slack:T1"),
        ApiClient("c", ApiRole.APPROVER),
    ]
    assert [EVERYWHERE_ROLE in caller.member.roles for caller in callers] == [True, False, False]


def test_a_caller_stands_in_its_own_conversation_of_the_workspace_it_has_to_do_with() -> None:
    everywhere, of_one = ApiClient("a", ApiRole.MEMBER), ApiClient("b", ApiRole.MEMBER, "slack:T1")
    assert [str(everywhere.place()), everywhere.place().workspace_key] == ["api:default:a:", "api:default"]
    assert [str(of_one.place()), of_one.place().workspace_key] == ["api:slack%3AT1:b:", "slack:T1"]
    assert everywhere.place("discord:7", "t").workspace_key == "discord:7"
    assert [of_one.covers_workspace(home) for home in ("slack:T1", "slack:T", "slack:T10", "", "api:default")] == [
        True
    ] + [False] * 4
    assert everywhere.covers_workspace("slack:T1")
    assert everywhere.covers_workspace("")


def test_a_token_is_good_until_it_is_revoked_or_over() -> None:
    assert ApiToken("1", "ci", ApiRole.MEMBER).is_valid(1e12)
    assert not ApiToken("1", "ci", ApiRole.MEMBER, revoked_at=1.0).is_valid(0.5)
    over = ApiToken("1", "ci", ApiRole.MEMBER, expires_at=100.0)
    assert [over.is_valid(now) for now in (99.9, 100.0)] == [True, False]
