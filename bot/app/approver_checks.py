"""Checks of the operator's rules whose cards go to their approvers directly: does the platform tell the members of the
groups, and are they few enough?
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from bot.domain.approvals import APPROVERS
from bot.domain.conversations import Author, ConversationKey
from bot.domain.health import Check, CheckStatus
from bot.domain.policies import Rule
from bot.engine.policy.rules import Approvers
from bot.engine.possible_approvers import route_approval
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.ports.platform import ApproverDirectory

REMEDY = gettext_lazy("name fewer people, or let the card go to a channel; on Discord, switch on Server Members Intent")


async def check_deliveries(
    rules: Sequence[Rule], approvers: Approvers, directory: ApproverDirectory, workspace: ConversationKey
) -> AsyncGenerator[Check, None]:
    """Check the rules that name groups of this platform. `workspace` is a conversation key of the workspace."""
    asker = Author(workspace.platform, "", "")
    for rule in rules:
        if APPROVERS not in rule.requirements.deliver:
            continue
        sets = rule.requirements.approvers or (approvers.approvers | approvers.admins,)
        prefix = f"{workspace.platform}-"
        groups = sorted({entry for entries in sets for entry in entries if entry.startswith(prefix)})
        if not groups:
            continue
        try:
            entries = await asyncio.gather(*(directory.find_approver(group, workspace) for group in groups))
        except DeliveryFailed as error:
            yield Check(f"rule {rule.id}", CheckStatus.BROKEN, error.cause, error.fix)
            continue
        members = {
            group: None if entry is None else entry.members for group, entry in zip(groups, entries, strict=True)
        }
        _requirements, note = route_approval(rule.requirements, approvers, workspace, asker, members)
        if note:
            yield Check(
                f"rule {rule.id}",
                CheckStatus.DOUBTFUL,
                _("The card stays in the conversation: {reason}.", reason=note),
                str(REMEDY),
            )
        else:
            yield Check(f"rule {rule.id}", CheckStatus.WELL, "Its approvers get the card directly.")
