"""Approval routing: the conversations and users that get a remote approval card.

The route is computed once, with the approval, and stored. Delivery needs no rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bot.domain.approval_requirements import APPROVERS, ASKER, ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policy_syntax import is_person
from bot.engine.policy import Approvers

MAX_RECIPIENTS = 20
"""Most users who get a remote card. Above that, the card stays in the conversation."""


def route_approval(
    terms: ApprovalRequirements, signatories: Approvers, conversation: ConversationKey, asker: Author
) -> ApprovalRequirements:
    """Return the requirements with the targets of remote cards: of the same workspace, without the present channel.
    Without targets the card stays in the conversation.
    """
    if not terms.deliver:
        return terms
    channel = f"{conversation.workspace_key}:{conversation.channel}"
    places = {
        place for place in terms.deliver if place.startswith(f"{conversation.workspace_key}:") and place != channel
    }
    people = _card_recipients(terms, signatories, asker) if APPROVERS in terms.deliver else frozenset()
    return replace(terms, deliver=frozenset(places | people))


def named_people(
    approvers: Iterable[frozenset[str]], asker: Author, excluded: frozenset[str] = frozenset()
) -> list[str]:
    """Return the users of the author's platform among the approvers, as principals, sorted."""
    entries = _of_platform(approvers, asker)
    return sorted(each for each in entries - excluded if is_person(each))


def _card_recipients(terms: ApprovalRequirements, signatories: Approvers, asker: Author) -> frozenset[str]:
    """Return all possible approvers; none if some are not named as users and would never see the card."""
    approvers = terms.approvers or (signatories.approvers | signatories.admins,)
    people = named_people(approvers, asker, frozenset({asker.principal}) if terms.four_eyes else frozenset())
    if not all(map(is_person, _of_platform(approvers, asker))) or not 0 < len(people) <= MAX_RECIPIENTS:
        return frozenset()
    return frozenset() if people == [asker.principal] else frozenset(people)


def _of_platform(approvers: Iterable[frozenset[str]], asker: Author) -> set[str]:
    """Return the entries that a user of the author's platform may match, groups and roles included."""
    entries = {asker.principal if each == ASKER else each for entries in approvers for each in entries}
    platform = asker.platform
    return {each for each in entries if ":" not in each or each.startswith((f"{platform}:", f"{platform}-"))}
