"""Tables. `migrations/` creates them, and the views `messages`, `tool_calls` and `conversation_states` on top of them;
a test compares the two.

conversations 1-1 summaries
conversations 1-n turns 1-n steps 1-1 approvals 1-n decisions
                  turns 1-n message_keys
                  turns 1-1 deliveries, 1-n message_refs
                  turns 1-n feedback
                  turns 1-n files
                  steps 1-n elicitations, approvals 1-n approval_views
grants            permissions for later calls
jobs              scheduled jobs, each run by one process
leases            exclusive leases of processes
quotas            rate limits shared by all processes; an expired row has no effect
faults 1-n fault_reports   reported faults, and their reporters
api_tokens        tokens of the HTTP API, as hashes
one_time_links    links to enter one secret, for one user; tokens as hashes
sign_ins          OAuth sign-ins by server and user, encrypted
pending_sign_ins  started OAuth sign-ins; states as hashes
mcp_servers 1-n mcp_secrets, by id alone 1-1 mcp_capabilities, 1-n tool_pins and 1-n policy_rules: also those of the
                  operator's servers
profiles 1-n profile_bindings
config_version    at most one row: the version of servers, policies and profiles, and their lock
usage             tokens and cost of each model request; no row refers to another table
audit             append-only and chained; no row refers to another table
"""

from __future__ import annotations

from bot.storage.dialect import Json, StorableText, metadata, storable
from bot.storage.tables.access import (
    api_tokens,
    one_time_links,
    pending_sign_ins,
    policy_rules,
    profile_bindings,
    profiles,
    sign_ins,
)
from bot.storage.tables.approvals import approval_views, approvals, decisions, elicitations, grants
from bot.storage.tables.audit import audit
from bot.storage.tables.coordination import config_version, fault_reports, faults, jobs, leases, quotas
from bot.storage.tables.deliveries import deliveries, message_refs
from bot.storage.tables.servers import mcp_capabilities, mcp_secrets, mcp_servers, tool_pins
from bot.storage.tables.turns import (
    ACTIVE,
    LIVE,
    conversations,
    feedback,
    files,
    is_active,
    is_live,
    message_keys,
    steps,
    summaries,
    turns,
    usage,
)

__all__ = [
    "ACTIVE",
    "LIVE",
    "Json",
    "StorableText",
    "api_tokens",
    "approval_views",
    "approvals",
    "audit",
    "config_version",
    "conversations",
    "decisions",
    "deliveries",
    "elicitations",
    "fault_reports",
    "faults",
    "feedback",
    "files",
    "grants",
    "is_active",
    "is_live",
    "jobs",
    "leases",
    "mcp_capabilities",
    "mcp_secrets",
    "mcp_servers",
    "message_keys",
    "message_refs",
    "metadata",
    "one_time_links",
    "pending_sign_ins",
    "policy_rules",
    "profile_bindings",
    "profiles",
    "quotas",
    "sign_ins",
    "steps",
    "storable",
    "summaries",
    "tool_pins",
    "turns",
    "usage",
]
