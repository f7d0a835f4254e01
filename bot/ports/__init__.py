"""Interfaces between the parts: the engine's dependencies, and its services for platforms.

Implementations translate errors of their vendor into `bot.errors`. Every method of a store is one transaction. A change
of admins' settings writes an audit entry and raises `revision`; `by` is its author.
"""

from __future__ import annotations

from bot.ports.api_tokens import TokenStore
from bot.ports.commands import Commands
from bot.ports.coordination import Leases, Quota, QuotaExceeded, QuotaGranted, Quotas
from bot.ports.engine_api import EngineApi
from bot.ports.feedback import Feedback, FeedbackStore
from bot.ports.language_models import LanguageModel, LanguageModels
from bot.ports.platform import Listener, Surface
from bot.ports.policies import GrantStore, PolicyStore
from bot.ports.profiles import ProfileStore
from bot.ports.reporting import (
    Activity,
    ApprovalActivity,
    Backlog,
    CallSummary,
    ConversationSummary,
    ReportingStore,
    ServerActivity,
)
from bot.ports.servers import LinkStore, PinStore, ServerStore, SignInStore
from bot.ports.sign_ins import AuthorizationResponse, SignedIn, SignInInfo, SignIns
from bot.ports.toolbox import CallContext, ServerAdmin, Toolbox
from bot.ports.turn_log import TurnLog
from bot.ports.usage import UsageStore
from bot.ports.user_activity import (
    ActiveThreads,
    PendingApproval,
    PendingApprovalPage,
    PendingApprovalPosition,
    UserActivity,
)

__all__ = [
    "ActiveThreads",
    "Activity",
    "ApprovalActivity",
    "AuthorizationResponse",
    "Backlog",
    "CallContext",
    "CallSummary",
    "Commands",
    "ConversationSummary",
    "EngineApi",
    "Feedback",
    "FeedbackStore",
    "GrantStore",
    "LanguageModel",
    "LanguageModels",
    "Leases",
    "LinkStore",
    "Listener",
    "PendingApproval",
    "PendingApprovalPage",
    "PendingApprovalPosition",
    "PinStore",
    "PolicyStore",
    "ProfileStore",
    "Quota",
    "QuotaExceeded",
    "QuotaGranted",
    "Quotas",
    "ReportingStore",
    "ServerActivity",
    "ServerAdmin",
    "ServerStore",
    "SignInInfo",
    "SignInStore",
    "SignIns",
    "SignedIn",
    "Surface",
    "TokenStore",
    "Toolbox",
    "TurnLog",
    "UsageStore",
    "UserActivity",
]
