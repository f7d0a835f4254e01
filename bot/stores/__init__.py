"""What admins set, on disk: servers, secrets, policies, profiles; conversations as people look them up; opinions; what
processes share.

Every method is one transaction. What changes something that admins set has its line in the audit, and makes `revision`
grow. `by` is whoever did it.
"""

from __future__ import annotations

from bot.stores.accounts import TokenStore, UsageStore
from bot.stores.past import Activity, ApprovalActivity, Archive, Backlog, ConversationSummary, PastCall, ServerActivity
from bot.stores.people import (
    AwaitedCall,
    AwaitedPage,
    AwaitedPosition,
    Engagements,
    Opinion,
    OpinionStore,
    Overview,
)
from bot.stores.rules import GrantStore, PolicyStore, ProfileStore
from bot.stores.servers import LinkStore, PinStore, ServerStore, SignInStore
from bot.stores.sharing import Granted, Leases, Quota, Quotas, Refused

__all__ = [
    "Activity",
    "ApprovalActivity",
    "Archive",
    "AwaitedCall",
    "AwaitedPage",
    "AwaitedPosition",
    "Backlog",
    "ConversationSummary",
    "Engagements",
    "GrantStore",
    "Granted",
    "Leases",
    "LinkStore",
    "Opinion",
    "OpinionStore",
    "Overview",
    "PastCall",
    "PinStore",
    "PolicyStore",
    "ProfileStore",
    "Quota",
    "Quotas",
    "Refused",
    "ServerActivity",
    "ServerStore",
    "SignInStore",
    "TokenStore",
    "UsageStore",
]
