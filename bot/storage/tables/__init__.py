"""The tables. `migrations/` makes them, and the views `messages`, `tool_calls` and `conversation_states` on top of
them; a test compares the two.

conversations 1-1 summaries
conversations 1-n turns 1-n steps 1-1 approvals 1-n decisions
                  turns 1-n message_keys
                  turns 1-1 deliveries, 1-n drawings
                  turns 1-n opinions
                  turns 1-n files
                  steps 1-n elicitations, approvals 1-n approval_views
grants            standing permissions
jobs              work that is due once, whoever does it
leases            what one process does alone
quotas            limits that all processes keep together; a row whose time is over says nothing
api_tokens        who may use the HTTP API; of the token itself only a hash
one_time_links    links by which one person enters one secret, once; of what is in the link only a hash
sign_ins          who is signed in to which server by OAuth, encrypted
sign_ins_under_way  links that were given out for it; of what is in the link only a hash
mcp_servers 1-n mcp_secrets, by id alone 1-1 mcp_capabilities, 1-n tool_pins and 1-n policy_rules: those also of the
                  operator's servers
profiles 1-n profile_bindings
revisions         at most one row: a number that grows with every change to servers, policies and profiles; their lock
usage             what was asked of models and what it cost; no row refers to another table
audit             what happened, for ever: no row refers to another table, none is changed, each is chained to the last
"""

from __future__ import annotations

from bot.storage.tables.access import api_tokens, one_time_links, sign_ins, sign_ins_under_way
from bot.storage.tables.approvals import approval_views, approvals, decisions, elicitations, grants
from bot.storage.tables.audit import audit
from bot.storage.tables.columns import Json, StorableText, metadata, storable
from bot.storage.tables.coordination import jobs, leases, quotas, revisions
from bot.storage.tables.deliveries import deliveries, drawings
from bot.storage.tables.rules import policy_rules, profile_bindings, profiles
from bot.storage.tables.servers import mcp_capabilities, mcp_secrets, mcp_servers, tool_pins
from bot.storage.tables.turns import (
    ACTIVE,
    LIVE,
    conversations,
    files,
    is_active,
    is_live,
    message_keys,
    opinions,
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
    "conversations",
    "decisions",
    "deliveries",
    "drawings",
    "elicitations",
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
    "metadata",
    "one_time_links",
    "opinions",
    "policy_rules",
    "profile_bindings",
    "profiles",
    "quotas",
    "revisions",
    "sign_ins",
    "sign_ins_under_way",
    "steps",
    "storable",
    "summaries",
    "tool_pins",
    "turns",
    "usage",
]
