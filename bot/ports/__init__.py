"""Interfaces between the parts: the engine's dependencies, and its services for platforms.

Implementations translate errors of their vendor into `bot.errors`. Every method of a store is one transaction. A change
of admins' settings writes an audit entry and raises `revision`; `by` is its author.
"""

from __future__ import annotations

from bot.ports.coordination import FaultStore, Leases, Quota, QuotaExceeded, QuotaGranted, Quotas
from bot.ports.engine_api import Approvals, Commands, Elicitations, EngineApi
from bot.ports.models import LanguageModel, LanguageModels
from bot.ports.platform import Listener, Surface
from bot.ports.reporting import (
    ActiveThreads,
    Activity,
    ApprovalActivity,
    Backlog,
    CallQuery,
    CallSummary,
    ConversationSummary,
    PendingApproval,
    PendingApprovalPage,
    PendingApprovalPosition,
    ReportingStore,
    ServerActivity,
    UserActivity,
)
from bot.ports.sign_ins import AuthorizationResponse, SignedIn, SignInInfo, SignIns, SignInStore
from bot.ports.stores import (
    Feedback,
    FeedbackStore,
    GrantStore,
    InstallationStore,
    LinkStore,
    LocaleStore,
    PinStore,
    PolicyStore,
    ProfileStore,
    ServerStore,
    TokenStore,
    UsageStore,
)
from bot.ports.toolbox import CallContext, ServerAdmin, Toolbox, ToolCaller
from bot.ports.turn_log import (
    ApprovalLog,
    DeliveryQueue,
    ElicitationLog,
    TurnClaims,
    TurnExecution,
    TurnHistory,
    TurnLog,
    TurnQueue,
    TurnRetention,
    TurnViews,
    UsageLog,
)

__all__ = [
    "ActiveThreads",
    "Activity",
    "ApprovalActivity",
    "ApprovalLog",
    "Approvals",
    "AuthorizationResponse",
    "Backlog",
    "CallContext",
    "CallQuery",
    "CallSummary",
    "Commands",
    "ConversationSummary",
    "DeliveryQueue",
    "ElicitationLog",
    "Elicitations",
    "EngineApi",
    "FaultStore",
    "Feedback",
    "FeedbackStore",
    "GrantStore",
    "InstallationStore",
    "LanguageModel",
    "LanguageModels",
    "Leases",
    "LinkStore",
    "Listener",
    "LocaleStore",
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
    "ToolCaller",
    "Toolbox",
    "TurnClaims",
    "TurnExecution",
    "TurnHistory",
    "TurnLog",
    "TurnQueue",
    "TurnRetention",
    "TurnViews",
    "UsageLog",
    "UsageStore",
    "UserActivity",
]
