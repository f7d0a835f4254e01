"""Interfaces between the parts: the engine's dependencies, and its services for platforms.

Implementations translate errors of their vendor into `bot.errors`. Every method of a store is one transaction. A change
of admins' settings writes an audit entry and raises `revision`; `by` is its author.
"""

from __future__ import annotations

from bot.ports.models import LanguageModel, LanguageModels
from bot.ports.platform import Approvals, Commands, Elicitations, EngineApi, Listener, Surface
from bot.ports.reporting import (
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
from bot.ports.stores import (
    BrowserSessionStore,
    CallAudit,
    DirectCall,
    FaultStore,
    GatewayCallStore,
    GrantStore,
    InstallationStore,
    Leases,
    LinkStore,
    LocaleStore,
    PinStore,
    PolicyStore,
    ProfileStore,
    Quota,
    QuotaExceeded,
    QuotaGranted,
    Quotas,
    ReceiptKeyStore,
    ServerStore,
    TokenStore,
    UsageStore,
)
from bot.ports.toolbox import (
    AuthorizationResponse,
    CallContext,
    ServerAdmin,
    SignedIn,
    SignInInfo,
    SignIns,
    SignInStore,
    Toolbox,
    ToolCaller,
)
from bot.ports.turn_log import (
    ApprovalLog,
    DeliveryQueue,
    ElicitationLog,
    TurnExecution,
    TurnHistory,
    TurnLog,
    TurnQueue,
    TurnRetention,
    TurnViews,
)
