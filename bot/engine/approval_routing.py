"""Where the card of a call goes: what the terms say of it, as far as it can be done from where the call is asked for.

Found out once, when the call is asked for, and stored with it: whoever draws needs no rules. How a card gets there is
for the platforms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bot.domain.approval_requirements import APPROVERS, ASKER, ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policy_syntax import is_person
from bot.engine.policy import Approvers

MOST_PEOPLE = 20
"""No more of them are written to; if there are more, the card stays where it was asked for."""


def route_approval(
    terms: ApprovalRequirements, signatories: Approvers, where: ConversationKey, asker: Author
) -> ApprovalRequirements:
    """The same terms with the places and people the card goes to from there: of the same workspace, and not where it is
    anyway. None of them if the card stays in the conversation.
    """
    if not terms.deliver:
        return terms
    here = f"{where.workspace_key}:{where.channel}"
    places = {each for each in terms.deliver if each.startswith(f"{where.workspace_key}:") and each != here}
    people = _addressees(terms, signatories, asker) if APPROVERS in terms.deliver else frozenset()
    return replace(terms, deliver=frozenset(places | people))


def named_people(approvers: Iterable[frozenset[str]], asker: Author, barred: frozenset[str] = frozenset()) -> list[str]:
    """The principals of those who are named as people of the asker's platform, without those who are barred."""
    named = _of_platform(approvers, asker)
    return sorted(each for each in named - barred if is_person(each))


def _addressees(terms: ApprovalRequirements, signatories: Approvers, asker: Author) -> frozenset[str]:
    """Everybody who could sign; nobody if some of them are not named as people, and would never see the card."""
    approvers = terms.approvers or (signatories.approvers | signatories.admins,)
    people = named_people(approvers, asker, frozenset({asker.principal}) if terms.four_eyes else frozenset())
    if not all(map(is_person, _of_platform(approvers, asker))) or not 0 < len(people) <= MOST_PEOPLE:
        return frozenset()
    return frozenset() if people == [asker.principal] else frozenset(people)


def _of_platform(approvers: Iterable[frozenset[str]], asker: Author) -> set[str]:
    """Those entries that somebody on the asker's platform can be, among them what names no person."""
    named = {asker.principal if each == ASKER else each for entries in approvers for each in entries}
    platform = asker.platform
    return {each for each in named if ":" not in each or each.startswith((f"{platform}:", f"{platform}-"))}
