"""The stores of `bot/ports`, in memory. Every change leaves a line in `audit`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.approvals import ApprovalPolicy
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.browser_sessions import BrowserSession
from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import DELEGATION, Grant
from bot.domain.installations import Installation
from bot.domain.locales import Locale, UserLocale
from bot.domain.pins import REFUSED, Pin, Pinned
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.secret_binding import cleared_slots
from bot.domain.secrets import SecretSource
from bot.domain.servers import CachedCapabilities, ServerCapabilities, ServerEnablement, ServerRecord
from bot.domain.tools import Tool
from bot.domain.turns import ToolStep
from bot.domain.usage import LimitStatus, UsageGrouping, UsageOwner, UsageQuery, UsageTotal, total
from bot.errors import Conflict, DatabaseError, NotFound, SecretUnavailable
from bot.ports import Activity, ApprovalActivity, Backlog, CallQuery, CallSummary, ConversationSummary

NOW = 1_800_000_000.0
Line = tuple[str, str, str]
"""A recorded change: action, subject, user."""


@dataclass
class MemoryLocales:
    """Languages and time zones of users. `away` makes every read fail. `seconds` is the duration of a read."""

    entries: dict[str, UserLocale] = field(default_factory=dict)
    away: bool = False
    seconds: float = 0.0

    async def find(self, principal: str) -> UserLocale:
        if self.away:
            raise DatabaseError("The database is away.", "start it")
        await asyncio.sleep(self.seconds)
        return self.entries.get(principal, UserLocale())

    async def choose(self, principal: str, locale: Locale) -> None:
        self.entries[principal] = replace(await self.find(principal), chosen=locale)

    async def remember(self, principal: str, language: str) -> None:
        self.entries[principal] = replace(await self.find(principal), told_language=language)

    async def delete_old(self, seconds: float, limit: int) -> int:
        return 0


@dataclass
class MemoryServers:
    entries: dict[str, ServerRecord] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    audit: list[Line] = field(default_factory=list)
    changes: list[Mapping[str, str]] = field(default_factory=list)
    revisions: int = 0
    away: bool = False
    first_policies: dict[str, ApprovalPolicy] = field(default_factory=dict)

    async def revision(self) -> int:
        return self.revisions

    async def records(self) -> Sequence[ServerRecord]:
        if self.away:
            raise DatabaseError("The database is away.", "start it")
        return sorted(self.entries.values(), key=lambda record: record.config.name)

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        self._free(record)
        if policy is not None:
            self.first_policies[record.id] = policy
        fresh = replace(
            record,
            version=1,
            created_at=NOW,
            created_by=by.principal,
            updated_at=NOW,
            updated_by=by.principal,
        )
        return self._put(fresh, secrets, "server_added", by)

    async def change(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, changes: Mapping[str, str]
    ) -> ServerRecord:
        present = self._present(record.id)
        if present.version != record.version:
            raise Conflict(f"It was changed by {present.updated_by}.", "look at it again")
        self._free(record)
        self.changes.append(changes)
        fresh = replace(record, version=record.version + 1, updated_at=NOW, updated_by=by.principal)
        return self._put(fresh, secrets, "server_changed", by)

    async def set_enablement(self, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
        fresh = replace(self._present(server_id), enablement=standing, updated_at=NOW, updated_by=by.principal)
        return self._put(fresh, {}, f"server_{standing.value}", by)

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        if self._present(server_id).version != version:
            raise Conflict("It was changed.")
        del self.entries[server_id]
        self.values.pop(server_id, None)
        self.audit.append(("server_removed", server_id, by.principal))

    async def save_capabilities(self, server_id: str, capabilities: ServerCapabilities) -> None:
        raise NotImplementedError

    async def save_sync_failure(self, server_id: str, problem: str) -> None:
        raise NotImplementedError

    async def cached_capabilities(self) -> Mapping[str, CachedCapabilities]:
        return {}

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        missing = [slot for slot, each in record.secrets.items() if each.source is not SecretSource.STORED]
        if missing:
            raise SecretUnavailable(f"{missing[0]} is not there.")
        return self.values.get(record.id, {})

    def _present(self, server_id: str) -> ServerRecord:
        if server_id not in self.entries:
            raise NotFound("That server is gone.")
        return self.entries[server_id]

    def _free(self, record: ServerRecord) -> None:
        for other in self.entries.values():
            if other.id == record.id or other.config.workspace != record.config.workspace:
                continue
            if other.config.name == record.config.name:
                raise Conflict("The name is taken.", field="name")

    def _put(self, record: ServerRecord, secrets: Mapping[str, str], kind: str, by: Author) -> ServerRecord:
        before = self.entries.get(record.id)
        values = self.values.setdefault(record.id, {})
        for slot in cleared_slots(before, record, secrets) if before is not None else ():
            values.pop(slot, None)
        values.update(secrets)
        stored = {slot for slot, each in record.secrets.items() if each.source is SecretSource.STORED}
        record = replace(record, missing=frozenset(stored - values.keys()))
        self.entries[record.id] = record
        self.audit.append((kind, record.id, by.principal))
        self.revisions += 1
        return record


@dataclass
class MemoryPins:
    entries: dict[tuple[str, str], Pin] = field(default_factory=dict)
    audit: list[Line] = field(default_factory=list)
    unreadable: bool = False
    """True if the stored definitions cannot be read."""

    async def pinned_definitions(self) -> Mapping[str, Pinned]:
        found: dict[str, dict[str, str]] = {}
        for pin in self.entries.values():
            found.setdefault(pin.server_id, {})[pin.tool] = pin.definition
        return found

    async def pins_of(self, server_id: str) -> Sequence[Pin]:
        return [
            replace(pin, pinned_tool=None if self.unreadable else pin.pinned_tool)
            for pin in self.entries.values()
            if pin.server_id == server_id
        ]

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        for tool in tools:
            name = tool.original_name
            self.entries[server_id, name] = Pin(server_id, name, tool.definition, tool, by.principal, NOW)
            self.entries.pop((server_id, tool.definition), None)
            self.audit.append(("tools_pinned", server_id, by.principal))

    async def refuse(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        for tool in tools:
            self.entries[server_id, tool.definition] = Pin(server_id, tool.definition, REFUSED, tool, by.principal, NOW)
            self.audit.append(("tools_refused", server_id, by.principal))


@dataclass
class MemoryPolicies:
    entries: dict[str, Rule] = field(default_factory=dict)
    audit: list[Line] = field(default_factory=list)
    calls: dict[str, tuple[ConversationKey, ToolStep]] = field(default_factory=dict)
    """Tool calls with their conversation, by call id."""

    async def rules(self) -> Sequence[Rule]:
        return list(self.entries.values())

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        alike = (each for each in self.entries.values() if each.workspace == rule.workspace)
        before = next((each for each in alike if each.conditions == rule.conditions), None)
        fresh = before.id if before else f"rule_{len(self.audit) + 1}"
        self.entries[fresh] = saved = replace(rule, id=fresh, by=by.principal, at=NOW)
        self.audit.append(("policy_set", rule.server_id, by.principal))
        return saved

    async def clear_rule(self, rule_id: str, by: Author) -> bool:
        rule = self.entries.pop(rule_id, None)
        if rule is None:
            return False
        self.audit.append(("policy_cleared", rule.server_id, by.principal))
        return True

    async def stored_results(self, call: str, key_prefix: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        found = self.calls.get(call)
        return [found] if found and f"{found[0]}:".startswith(key_prefix) else []


@dataclass
class MemoryProfiles:
    entries: dict[str, Profile] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    by_name: list[tuple[str, str]] = field(default_factory=list)
    audit: list[Line] = field(default_factory=list)

    async def profiles(self) -> Sequence[Profile]:
        return sorted(self.entries.values(), key=lambda profile: profile.name)

    async def save(self, profile: Profile, by: Author) -> Profile:
        present = self.entries.get(profile.id)
        if profile.version and present is None:
            raise NotFound("That profile is gone.")
        if present is not None and present.version != profile.version:
            raise Conflict(f"It was changed by {present.updated_by}.")
        fresh = replace(profile, version=profile.version + 1, updated_at=NOW, updated_by=by.principal)
        self.entries[profile.id] = fresh
        self.audit.append(("profile_saved", profile.id, by.principal))
        return fresh

    async def delete(self, profile_id: str, by: Author) -> bool:
        if self.entries.pop(profile_id, None) is None:
            return False
        self.bound = {place: each for place, each in self.bound.items() if each != profile_id}
        self.by_name = [each for each in self.by_name if each[1] != profile_id]
        self.audit.append(("profile_deleted", profile_id, by.principal))
        return True

    async def bindings(self) -> Sequence[Binding]:
        return [
            *(Binding(place, profile) for place, profile in self.bound.items()),
            *(Binding(place, profile, by_name=True) for place, profile in self.by_name),
        ]

    async def bind_by_name(self, place: str, profile_id: str, by: Author) -> bool:
        if profile_id not in self.entries:
            raise NotFound("That profile is gone.")
        if (place, profile_id) in self.by_name:
            return False
        self.by_name.append((place, profile_id))
        self.audit.append(("agent_bound", place, by.principal))
        return True

    async def unbind_by_name(self, place: str, profile_id: str, by: Author) -> bool:
        if (place, profile_id) not in self.by_name:
            return False
        self.by_name.remove((place, profile_id))
        self.audit.append(("agent_unbound", place, by.principal))
        return True

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        if profile_id not in self.entries:
            raise NotFound("That profile is gone.")
        self.bound[place] = profile_id
        self.audit.append(("profile_bound", place, by.principal))

    async def unbind(self, place: str, by: Author) -> bool:
        if self.bound.pop(place, None) is None:
            return False
        self.audit.append(("profile_unbound", place, by.principal))
        return True


@dataclass
class MemoryGrants:
    entries: list[Grant] = field(default_factory=list)
    audit: list[Line] = field(default_factory=list)
    away: bool = False

    async def active_grants(self, workspace: str) -> Sequence[Grant]:
        if self.away:
            raise DatabaseError("The database is away.", "start it")
        return [each for each in self.entries if f"{each.place}:".startswith(f"{workspace}:")]

    async def delegations(self, workspace: str) -> Sequence[Grant]:
        return [each for each in await self.active_grants(workspace) if each.scope == DELEGATION]

    async def delegate(self, grant: Grant) -> bool:
        self.entries.append(replace(grant, expires_at=grant.lasts))
        return True

    async def revoke(self, grant_id: str, by: Author) -> bool:
        if all(each.id != grant_id for each in self.entries):
            return False
        self.entries = [each for each in self.entries if each.id != grant_id]
        self.audit.append(("grant_revoked", grant_id, by.principal))
        return True


@dataclass
class MemoryArchive:
    summaries: list[ConversationSummary] = field(default_factory=list)
    takers: dict[str, set[str]] = field(default_factory=dict)
    """Principals of the authors of messages, by conversation."""
    past: list[CallSummary] = field(default_factory=list)
    waiting: int = 0
    entries: list[AuditEntry] = field(default_factory=list)
    queries: list[AuditQuery] = field(default_factory=list)
    """Queries of the audit."""
    busy: bool = False
    deleted: list[str] = field(default_factory=list)
    unfinished: Backlog = Backlog({"queued": 0, "running": 0, "waiting": 0}, 0.0, 0, 0)
    activities: Activity = Activity({}, (), ApprovalActivity())
    looks: list[tuple[float, str, str]] = field(default_factory=list)
    """Arguments of each `activity` query: start time, workspace, server."""

    async def conversations(
        self, key_prefix: str, principal: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        found = [
            summary
            for summary in self.summaries
            if str(summary.key).startswith(key_prefix)
            and (not principal or principal in self.takers.get(str(summary.key), set()))
        ]
        return found[offset : offset + limit], len(found)

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        return next((summary for summary in self.summaries if summary.key == conversation), None)

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        if await self.summary(conversation) is not None:
            return False
        self.summaries.append(ConversationSummary(conversation, title, "CREATED", 0, "", 0.0, 0.0))
        return True

    async def has_participant(self, conversation: ConversationKey, principal: str) -> bool:
        return principal in self.takers.get(str(conversation), set())

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        if self.busy:
            return False
        self.deleted.append(str(conversation))
        return True

    async def calls(self, query: CallQuery, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        found = [
            call
            for call in self.past
            if call.name.startswith(f"{query.server}." if query.server else "")
            and call.status in (query.statuses or (call.status,))
            and call.at >= (query.since or 0.0)
            and query.workspace in ("", call.conversation.workspace_key)
        ]
        return found[offset : offset + limit], len(found)

    async def count_pending(self, server: str) -> int:
        return self.waiting

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        self.queries.append(query)
        return self.entries[offset : offset + limit], len(self.entries)

    async def backlog(self) -> Backlog:
        return self.unfinished

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        self.looks.append((since, workspace, server))
        return self.activities


@dataclass
class MemorySessions:
    """Sessions in browsers."""

    open: dict[str, BrowserSession] = field(default_factory=dict)

    async def create(self, author: Author, conversation: ConversationKey, rights: str) -> tuple[BrowserSession, str]:
        session = BrowserSession(str(len(self.open) + 1), author, conversation, rights, NOW, NOW, NOW + 60)
        self.open[session.id] = session
        return session, session.id

    async def find(self, secret: str) -> BrowserSession | None:
        return self.open.get(secret)

    async def sessions(self, principal: str = "") -> Sequence[BrowserSession]:
        return [each for each in self.open.values() if principal in ("", each.author.principal)]

    async def end(self, session_id: str, by: Author) -> bool:
        return self.open.pop(session_id, None) is not None


@dataclass
class MemoryTokens:
    """Tokens of the HTTP API."""

    made: dict[str, ApiToken] = field(default_factory=dict)

    async def create(
        self, name: str, role: ApiRole, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        expires = None if lifetime is None else NOW + lifetime
        self.made[name] = ApiToken(name, name, role, workspace, by.principal, NOW, expires)
        return self.made[name], f"cs_{name}"

    async def tokens(self) -> Sequence[ApiToken]:
        return [*self.made.values()]

    async def find_by_secret(self, token: str) -> ApiToken | None:
        return self.made.get(token.removeprefix("cs_"))

    async def revoke(self, name: str, by: Author) -> bool:
        return self.made.pop(name, None) is not None


@dataclass
class MemoryInstallations:
    """The app in workspaces of Slack."""

    entries: dict[str, Installation] = field(default_factory=dict)

    async def versions(self, platform: str) -> Mapping[str, int]:
        return {name: entry.version for name, entry in self.entries.items() if entry.platform == platform}

    async def find(self, platform: str, workspace: str) -> Installation | None:
        return self.entries.get(workspace)

    async def save(self, installation: Installation, by: Author) -> Installation:
        raise NotImplementedError

    async def renew(self, installation: Installation) -> Installation | None:
        raise NotImplementedError

    async def remove(self, installation: Installation, by: Author | None = None) -> bool:
        self.entries[installation.workspace] = replace(installation.without_tokens, removed_at=NOW)
        return True

    async def use_state(self, state: str, seconds: float) -> bool:
        raise NotImplementedError


@dataclass
class MemoryUsage:
    spent: dict[str, UsageTotal] = field(default_factory=dict)
    """Sums by name."""
    limits: list[LimitStatus] = field(default_factory=list)
    looks: list[tuple[UsageQuery, str]] = field(default_factory=list)
    """Queries of usage, with their grouping."""
    coming: dict[str, UsageTotal] = field(default_factory=dict)
    """Usage that is added after the next query."""

    async def totals(self, queries: Sequence[UsageQuery]) -> Sequence[UsageTotal]:
        found = total(self.spent.values())
        self.spent |= self.coming
        return [found for _ in queries]

    async def totals_by(self, query: UsageQuery, by: UsageGrouping) -> Sequence[tuple[str, UsageTotal]]:
        self.looks.append((query, by))
        found = list(self.spent.items())
        self.spent |= self.coming
        return found

    async def count_questions(self, query: UsageQuery) -> int:
        return total(self.spent.values()).questions

    async def delete_old(self, seconds: float, limit: int) -> int:
        raise NotImplementedError

    async def balances(self, spender: UsageOwner) -> Sequence[LimitStatus]:
        return self.limits
