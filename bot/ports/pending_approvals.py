"""Reading the waiting calls of one reader, among those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.ports.user_activity import PendingApproval, PendingApprovalPage, PendingApprovalPosition, UserActivity

BATCH = 500
"""Calls read in one transaction."""


async def read_pending_approvals(
    overview: UserActivity,
    reaches: Sequence[str],
    concerns: Callable[[PendingApproval], bool],
    *,
    limit: int,
    most_read: int,
    behind: PendingApprovalPosition | None = None,
) -> PendingApprovalPage:
    """Return up to `limit` calls that concern the reader, newest first. At most `most_read` calls, rounded up to a
    BATCH, are read: a page with fewer calls than `limit` has a next one as long as its `behind` is not None.
    """
    found: list[PendingApproval] = []
    for _ in range(0, most_read, BATCH):
        page = await overview.pending_approvals(reaches, BATCH, behind)
        found += filter(concerns, page.calls)
        behind = page.behind
        if len(found) > limit:
            last = found[limit - 1]
            return PendingApprovalPage(found[:limit], PendingApprovalPosition(last.asked_at, last.approval_id))
        if behind is None:
            break
    return PendingApprovalPage(found, behind)
