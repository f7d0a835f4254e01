"""Doctor checks of rules that send approval cards to groups of approvers."""

from __future__ import annotations

import pytest

from bot.domain.approvals import APPROVERS, ApprovalPolicy, ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.policies import Rule
from bot.domain.turns import MessageRefs, TurnView
from bot.engine.policy.approvers import Approvers
from bot.engine.possible_approvers import check_deliveries
from bot.errors import DeliveryFailed
from bot.examination import CheckStatus
from bot.ports.platform import DirectoryEntry

HERE = ConversationKey("slack", "T1", "", "")
GROUPS = {
    "slack-group:SMALL": DirectoryEntry("small", frozenset({"slack:U1", "slack:U2"})),
    "slack-group:LARGE": DirectoryEntry("large", frozenset(f"slack:U{n}" for n in range(30))),
    "slack-group:SECRET": DirectoryEntry("secret"),
}


class Directory:
    """A platform with the groups of `GROUPS`, and one group whose lookup fails."""

    async def find_approver(self, principal: str, _conversation: ConversationKey) -> DirectoryEntry | None:
        if principal == "slack-group:AWAY":
            raise DeliveryFailed("Slack does not answer.")
        return GROUPS.get(principal)

    async def card_url(self, _view: TurnView, _approval_id: str, _refs: MessageRefs) -> str:
        return ""


def a_rule(*approvers: str, deliver: str = APPROVERS) -> Rule:
    requirements = ApprovalRequirements((frozenset(approvers),), deliver=frozenset({deliver}))
    return Rule(ApprovalPolicy.ASK_USER, requirements=requirements, id="policy.toml:1")


@pytest.mark.parametrize(
    ("group", "finding", "text"),
    [
        ("slack-group:SMALL", CheckStatus.WELL, "get the card directly"),
        ("slack-group:LARGE", CheckStatus.DOUBTFUL, "30 people may approve"),
        ("slack-group:SECRET", CheckStatus.DOUBTFUL, "the members of slack-group:SECRET are unknown here"),
        ("slack-group:GONE", CheckStatus.DOUBTFUL, "the members of slack-group:GONE are unknown here"),
        ("slack-group:AWAY", CheckStatus.BROKEN, "Slack does not answer."),
    ],
)
async def test_a_group_that_gets_no_cards_is_said(group: str, finding: CheckStatus, text: str) -> None:
    (check,) = [check async for check in check_deliveries([a_rule(group)], Approvers(), Directory(), HERE)]
    assert (check.name, check.finding) == ("rule policy.toml:1", finding)
    assert text in check.detail


async def test_people_other_platforms_and_other_places_are_not_looked_at() -> None:
    rules = [a_rule("slack:U1"), a_rule("discord-role:7"), a_rule("slack-group:LARGE", deliver="slack:T1:C9")]
    assert [check async for check in check_deliveries(rules, Approvers(), Directory(), HERE)] == []
