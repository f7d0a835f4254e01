"""Stores of all that is no turn: servers, rules, grants, profiles, tokens, installations, usage, feedback; and of what
the processes of one bot share: rate limits, leases, faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.approvals import ApprovalPolicy
from bot.domain.browser_sessions import BrowserSession
from bot.domain.conversations import Author, ConversationKey
from bot.domain.gateway import GatewayRecord, ReceiptKey
from bot.domain.grants import Grant
from bot.domain.health import Fault, FaultRecord
from bot.domain.installations import Installation
from bot.domain.locales import Locale, UserLocale
from bot.domain.pins import Pin, Pinned
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.secrets import SecretLink
from bot.domain.servers import CachedCapabilities, ServerCapabilities, ServerEnablement, ServerRecord
from bot.domain.tools import Tool
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.usage import UsageGrouping, UsageQuery, UsageTotal


class ServerStore(Protocol):
    """MCP servers defined by admins."""

    async def revision(self) -> int:
        """Return a number that grows with every change of servers, policies and profiles, by any process."""

    async def records(self) -> Sequence[ServerRecord]:
        """Return all servers of all workspaces by name, without unreadable ones."""

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        """Store a new server, with the values of its stored secrets by slot. `policy` applies to all its tools at once.
        Raises Conflict if its slug or title is taken in its workspace.
        """

    async def change(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, changes: Mapping[str, str]
    ) -> ServerRecord:
        """Replace a record of the same version. `secrets` are new values by slot. `changes` is the text for the audit
        by field, without secrets. Raises NotFound, and Conflict if the name is taken or the record was changed
        meanwhile.
        """

    async def set_enablement(self, server_id: str, enablement: ServerEnablement, by: Author) -> ServerRecord:
        """Change a server's enablement regardless of its version. Raises NotFound."""

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with its secrets, policies, pins and cached capabilities. Raises Conflict, NotFound."""

    async def save_capabilities(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Save the server's current capabilities. The first ones are pinned (`PinStore`). Also for servers of the
        operator's file; not audited.
        """

    async def save_sync_failure(self, server_id: str, problem: str) -> None:
        """Record a failed sync. Cached capabilities are kept. Not audited."""

    async def cached_capabilities(self) -> Mapping[str, CachedCapabilities]:
        """Return the stored capabilities of every server, by id. Unreadable rows are left out."""

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        """Return the values of all secrets of a server, by slot. Raises SecretUnavailable, with the slot and the
        reason.
        """


class PinStore(Protocol):
    """Pinned definitions of tools. The first sync of a server pins all tools but flagged ones
    (`ServerStore.save_capabilities`). Admins pin later ones.
    """

    async def pinned_definitions(self) -> Mapping[str, Pinned]:
        """Return the pinned definitions by server and tool. A server without an entry has never been synced."""

    async def pins_of(self, server_id: str) -> Sequence[Pin]:
        """Return the pins of a server, by tool, with the accepted definitions; and refusals, by definition."""

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin exactly these definitions, replacing earlier pins of these tools and refusals. Raises NotFound."""

    async def refuse(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Refuse exactly these definitions. Earlier pins of these tools stay. Raises NotFound."""


class LinkStore(Protocol):
    """One-time links for entering secrets, valid for `bot.domain.secrets.LINK_SECONDS` by the database's clock."""

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Create a link, replacing this user's other links for the same slot. Return its record and its token, which is
        not stored.
        """

    async def find(self, token: str) -> SecretLink | None:
        """Return the valid link of a token, or None. Does not use it up."""

    async def use_link(self, token: str) -> SecretLink | None:
        """Use up a link. Return it to one of several concurrent callers, None to the others."""


class BrowserSessionStore(Protocol):
    """Sessions in browsers, valid for IDLE_SECONDS and SESSION_SECONDS of `bot.domain.browser_sessions` by the
    database's clock.
    """

    async def create(self, author: Author, conversation: ConversationKey, rights: str) -> tuple[BrowserSession, str]:
        """Begin a session. Return its record and its secret, which is not stored."""

    async def find(self, secret: str) -> BrowserSession | None:
        """Return the valid session of a secret, or None. It counts as used now."""

    async def sessions(self, principal: str = "") -> Sequence[BrowserSession]:
        """Return the valid sessions of a user, of all users without a principal, the last used first."""

    async def end(self, session_id: str, by: Author) -> bool:
        """End a session. Return False if it has ended already."""


class GatewayCallStore(Protocol):
    """Calls that other agents ask for. Expired or deleted turns take theirs with them."""

    async def add(self, call: GatewayRecord) -> GatewayRecord:
        """Store a call. Return it, or the stored one that has its `attach_key`, or else the one with its `effect`."""

    async def find(self, call_id: str) -> GatewayRecord | None:
        """Return a call, None if there is none."""

    async def save_turn(self, call_id: str, turn_id: str) -> None:
        """Store the turn of a call."""

    async def release(self, call_id: str) -> bool:
        """Let the next request like this call be a new call, unless an idempotency key says that it is the same. Return
        False if that was so before.
        """


class ReceiptKeyStore(Protocol):
    """Keys that sign receipts, their private parts stored encrypted."""

    async def keys(self) -> Sequence[ReceiptKey]:
        """Return all keys by number."""

    async def add(self, number: int, public: str, private: str) -> ReceiptKey:
        """Store a key unless there is one of this number. Return the stored one. Raises SecretUnavailable."""

    async def open_private(self, number: int) -> str:
        """Return the private part of a key. Raises SecretUnavailable."""


class PolicyStore(Protocol):
    """Rules set by admins. The operator's file has further ones."""

    async def rules(self) -> Sequence[Rule]:
        """Return all rules of all workspaces."""

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        """Save a rule, replacing the rule of its workspace with the same conditions. Return the stored rule with its
        id. Raises NotFound if its server is gone.
        """

    async def clear_rule(self, rule_id: str, by: Author) -> bool:
        """Delete a rule. Return False if it does not exist."""

    async def stored_results(self, call: str, key_prefix: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Return past calls with their policy results, in conversations with the key prefix. `call` is the
        beginning of an approval's id, a turn's id, or a turn's id and step number (`TURN:N`).
        """


class GrantStore(Protocol):
    """Store of grants. Grants are given with an approval (`bot.ports.ApprovalLog.grant`)."""

    async def active_grants(self, workspace: str) -> Sequence[Grant]:
        """Return the active grants of a workspace (`platform:workspace`), newest first."""

    async def delegations(self, workspace: str) -> Sequence[Grant]:
        """Return the active delegations of a workspace, newest first."""

    async def delegate(self, grant: Grant) -> bool:
        """Store a delegation. Return False if it exists."""

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """Revoke a grant for later calls. Return False if it is not active."""


@dataclass(frozen=True, slots=True)
class DirectCall:
    """Call without a turn: a resource or a prompt that a program or a shell reads directly. `id` is unique."""

    tool: Tool
    arguments: Mapping[str, Any]
    conversation: ConversationKey
    by: Author
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class CallAudit(Protocol):
    """Audit of calls without a turn."""

    async def record_call(self, call: DirectCall, status: StepStatus, seconds: float | None) -> None:
        """Record how a call ended. `seconds` is its duration, None if it was not sent."""

    async def record_forbidden(self, call: DirectCall, rule: str) -> None:
        """Record a call that a rule forbids."""


class ProfileStore(Protocol):
    """Profiles and their bindings to places."""

    async def profiles(self) -> Sequence[Profile]:
        """Return all profiles by name."""

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Store a new profile (version 0), or replace one of the same version. Raises Conflict, NotFound."""

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. Return False if it does not exist."""

    async def bindings(self) -> Sequence[Binding]:
        """Return all bindings."""

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Bind a profile to a place, replacing an earlier binding. Raises NotFound."""

    async def unbind(self, place: str, by: Author) -> bool:
        """Delete the binding of a place. Return False if there is none."""

    async def bind_by_name(self, place: str, profile_id: str, by: Author) -> bool:
        """Let a profile answer to its name in a place. Return False if it does already. Raises NotFound."""

    async def unbind_by_name(self, place: str, profile_id: str, by: Author) -> bool:
        """Let a profile not answer to its name in a place. Return False if it does not."""


class TokenStore(Protocol):
    """Tokens of the HTTP API, created and revoked by the operator."""

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Create a token that is valid for `lifetime` seconds; None means without an end. Return its record and the
        token itself, which is not stored. Raises Conflict if a valid token has the same name.
        """

    async def tokens(self) -> Sequence[ApiToken]:
        """Return all tokens by name, with revoked and expired ones."""

    async def find_by_secret(self, token: str) -> ApiToken | None:
        """Return the record of a valid token, or None."""

    async def revoke(self, name: str, by: Author) -> bool:
        """Revoke a token. Return False if it is missing or already revoked."""


class UsageStore(Protocol):
    """Recorded usage of models. The rows are written with their completions (`bot.ports.TurnLog`)."""

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        """Return the sum of each query."""

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        """Return the sums by name, the most expensive first; without prices, the most tokens first. They count their
        questions, and a question counts for each of its names.
        """

    async def count_questions(self, query: UsageQuery) -> int:
        """Return the number of turns with requests."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than `seconds`. Return their number."""


class LocaleStore(Protocol):
    """Languages and time zones of users, by principal. Personal data: changes leave no audit entry."""

    async def find(self, principal: str) -> UserLocale:
        """Return the stored values of a user."""
        ...

    async def choose(self, principal: str, locale: Locale) -> None:
        """Store a user's choice; empty values choose nothing."""

    async def remember(self, principal: str, language: str) -> None:
        """Store the language that a user's client has told."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete values that clients reported more than `seconds` ago for users without a choice. Return the number."""
        ...


class InstallationStore(Protocol):
    """Installations by platform and workspace, stored encrypted. A removed one stays without its tokens, so that
    operators see what happened to it. All methods raise DatabaseError; those that encrypt or decrypt also raise
    SecretUnavailable.
    """

    async def versions(self, platform: str) -> Mapping[str, int]:
        """Return the version of every installation, removed ones included, by workspace."""

    async def find(self, platform: str, workspace: str) -> Installation | None:
        """Return an installation, also a removed one; None if it is missing or unreadable by this release."""

    async def save(self, installation: Installation, by: Author) -> Installation:
        """Store an installation in place of any earlier one of the workspace. Audited."""

    async def renew(self, installation: Installation) -> Installation | None:
        """Store renewed tokens under the next version. Return None if the stored version is another, or the app was
        removed.
        """

    async def remove(self, installation: Installation, by: Author | None = None) -> bool:
        """Delete the tokens of an installation, for a user or because the platform reports the app as removed. Return
        False if the stored version is another: the app was installed again, or removed already. Audited.
        """

    async def use_state(self, state: str, seconds: float) -> bool:
        """Use up the state of an installation in a browser, which is remembered for `seconds`. Return False if it was
        used before.
        """


@dataclass(frozen=True, slots=True)
class Quota:
    """Rate limit: `at_once` times after a pause, and once more every `interval` seconds. In any `period` that is
    `at_once + period / interval` times at most.
    """

    at_once: int
    interval: float


@dataclass(frozen=True, slots=True)
class QuotaGranted:
    """Permission to start in `wait` seconds. `left` is the number of further starts without a wait; below zero, the
    number of waiting callers.
    """

    wait: float
    left: float


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """No start is available in time. The next one is in `wait` seconds."""

    wait: float


class Quotas(Protocol):
    """Rate limits by name, shared by all processes. The database's clock decides. A repeated request after a lost
    response uses up one start and does no other harm.
    """

    async def acquire(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded:
        """Acquire the next start if it is within `most_wait` seconds. Raises DatabaseError."""

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Delay all new requests by `seconds`; after that starts come one by one. Earlier grants remain. Raises
        DatabaseError.
        """

    async def forget_idle(self, limit: int) -> int:
        """Delete up to `limit` names that limit no request now. Return their number. Raises DatabaseError."""


class Leases(Protocol):
    """Leases for work that only one process should do at a time. The database's clock decides."""

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        """Acquire a free lease, or renew the holder's own. Return True if it is held for `seconds` from before this
        call. A lease of another holder is free once it is released or expired. Raises DatabaseError before half of
        `seconds` have passed if the database is unreachable.
        """

    async def find_holders(self, prefix: str) -> Mapping[str, str]:
        """Return the holders of the leases that have not expired and whose names begin with the prefix, by name. Raises
        DatabaseError.
        """

    async def release(self, name: str, holder: str) -> None:
        """Release a lease at once; no effect on another holder's. Raises DatabaseError."""


class FaultStore(Protocol):
    """Faults of all processes, and the messages about them. A fault lasts while any reporter reports it. The
    database's clock decides.
    """

    async def report(self, fault: Fault, reporter: str, seconds: float) -> None:
        """Open a fault, or keep it open for `seconds` more. A fault that was over gets a new message if the last one
        is older than an hour; otherwise the last one counts it. Raises DatabaseError.
        """

    async def extend(self, key: str, reporter: str, seconds: float) -> None:
        """Keep a fault open for `seconds` more if it is open. Raises DatabaseError."""

    async def withdraw(self, key: str, reporter: str) -> None:
        """Remove a reporter's report. The fault is over if no other reporter reports it. Raises DatabaseError."""

    async def close_unreported(self) -> None:
        """Close faults that no reporter reports any more, and delete those that were over days ago. Raises
        DatabaseError.
        """

    async def undelivered_faults(self) -> Sequence[FaultRecord]:
        """Return the faults with an outdated message, oldest first. Raises DatabaseError."""

    async def begin_message(self, record: FaultRecord) -> None:
        """Record that the message is about to be posted. Raises DatabaseError."""

    async def record_message(self, record: FaultRecord, ref: str) -> None:
        """Record that the message with this reference shows the fault as it is in `record`. Raises DatabaseError."""
