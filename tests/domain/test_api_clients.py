"""Workspaces of API clients: the workspaces of a token, and the admins of all workspaces."""

from __future__ import annotations

from bot.domain.api_clients import EVERYWHERE_ROLE, ApiClient, ApiRole


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
