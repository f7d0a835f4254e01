"""API clients as admins and approvers, by the role of their token and the configured names."""

from __future__ import annotations

import pytest

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.approvals import ApprovalRequirements, ApproverEvidence, DecisionType, NotAllowed
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Binding, Profile
from bot.engine.policy.approvers import Approvers, check_approver
from bot.engine.policy.rules import RuleBook

ANA = Author("slack", "U1", "Ana")
NAMED = Approvers(frozenset({"slack:UADMIN"}), frozenset({"slack:UBEN"}))
CI, NIGHT, ROOT = (
    ApiClient("ci", ApiRole.MEMBER),
    ApiClient("night", ApiRole.APPROVER),
    ApiClient("root", ApiRole.ADMIN),
)


def approval_evidence(caller: ApiClient, *approvers: str, asker: Author = ANA, **more: object) -> str:
    """Return the evidence by which an API client may approve the asker's call; empty if it may not."""
    terms = ApprovalRequirements((frozenset(approvers),) if approvers else (), **more)  # type: ignore[arg-type]
    found = check_approver(NAMED, terms, caller.member, DecisionType.APPROVE, asker=asker)
    return found.evidence if isinstance(found, ApproverEvidence) else ""


@pytest.mark.parametrize("admins", [frozenset(), frozenset({"slack:UADMIN"})])
def test_a_program_administers_by_its_token_beside_named_users(admins: frozenset[str]) -> None:
    approvers = Approvers(admins)
    assert [approvers.administers(each.member) for each in (CI, NIGHT, ROOT)] == [False, False, True]


def test_a_role_of_programs_counts_for_no_user_of_a_chat() -> None:
    for platform in ("slack", "discord", "console"):
        member = Member(Author(platform, "U9", "x"), ROOT.member.roles)
        assert not NAMED.administers(member)
        assert not NAMED.evidence(member)
        assert isinstance(
            check_approver(NAMED, ApprovalRequirements(), member, DecisionType.APPROVE, asker=ANA), NotAllowed
        )


def test_a_program_approves_by_its_token_if_no_rule_names_approvers() -> None:
    assert [approval_evidence(each) for each in (CI, NIGHT, ROOT)] == ["", "api-role:approver", "api-role:admin"]


def test_a_role_alone_does_not_approve_where_a_rule_names_approvers() -> None:
    for named in ("slack:UBEN", "slack-group:S1", "members", "asker", "api:other"):
        assert [approval_evidence(each, named) for each in (NIGHT, ROOT)] == ["", ""], named


def test_a_rule_may_name_a_program_or_all_that_approve() -> None:
    assert approval_evidence(NIGHT, "api:night") == "api:night"
    assert approval_evidence(CI, "api:night") == ""
    assert [approval_evidence(each, "api-role:approver") for each in (CI, NIGHT, ROOT)] == [
        "",
        "api-role:approver",
        "api-role:approver",
    ]


def test_settings_may_name_a_program_that_has_no_such_role() -> None:
    named = Approvers(approvers=frozenset({"api:ci"}))
    assert named.evidence(CI.member) == "api:ci"
    assert not named.administers(CI.member)


def test_where_programs_talk_members_are_those_that_approve_and_four_eyes_are_kept() -> None:
    assert [approval_evidence(each, "members", asker=CI.author) for each in (CI, NIGHT)] == ["", "members"]
    assert approval_evidence(CI, "asker", asker=CI.author) == "asker"
    assert approval_evidence(NIGHT, asker=NIGHT.author, four_eyes=True) == ""


def test_a_role_alone_does_not_approve_where_a_profile_names_approvers() -> None:
    book = RuleBook(None, NAMED)
    profile = Profile("p", "ops", "slack:T1", approvers=frozenset({"slack:UZOE"}))
    book.amend((), (profile,), (Binding("slack:T1", "p"),))
    inside = book.rules(ConversationKey("slack", "T1", "C1", "1")).approvers
    outside = book.rules(ConversationKey("slack", "T2", "C1", "1")).approvers
    assert [bool(inside.evidence(each.member)) for each in (NIGHT, ROOT)] == [False, True]
    assert [bool(outside.evidence(each.member)) for each in (NIGHT, ROOT)] == [True, True]
