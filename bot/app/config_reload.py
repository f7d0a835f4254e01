"""Configuration in force: servers, policies and profiles of admins from the database, with the operator's files.

The database is the truth. After a change call `refresh`; other processes follow at a wakeup or at their next poll.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bot.app.operator_files import OperatorFiles
from bot.commands.dependencies import ConfigDiff
from bot.domain.agents import AgentRef, Agents
from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import ConversationKey, Member
from bot.domain.pins import Pinned
from bot.domain.policies import PolicyResult, Rule
from bot.domain.policy_syntax import describe_rule
from bot.domain.profiles import Binding, Profile
from bot.domain.secret_detection import weakness
from bot.domain.secrets import SecretReference
from bot.domain.servers import USER_SLOT, CachedCapabilities, DesiredServer, ServerConfig, ServerRecord
from bot.domain.sign_ins import SignInKey
from bot.domain.tools import Tool
from bot.engine.policy.rules import RuleBook, unmatched_rules
from bot.errors import DatabaseError, SecretUnavailable, SettingsError
from bot.i18n import _, gettext_lazy
from bot.mcp.config.checks import AllowedTargets, check_paths, check_target, resolve_launch
from bot.mcp.config.credentials import inject_secrets
from bot.mcp.config.programs import AllowedPrograms
from bot.mcp.errors import InvalidDefinition
from bot.ports import PinStore, PolicyStore, ProfileStore, ServerAdmin, ServerStore, SignInStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_READINGS = 5


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """Configuration of admins at one moment."""

    revision: int
    pinned: Mapping[str, Pinned]
    rules: Sequence[Rule]
    bindings: Sequence[Binding]
    profiles: Sequence[Profile]
    known: Mapping[str, CachedCapabilities]
    records: Sequence[ServerRecord]
    signed_in: Mapping[SignInKey, int]


@dataclass(slots=True)
class ConfigReloader:
    """Keeps the toolbox and the rules of this process in line with the database. `read_files` reads the operator's
    files again; `files` are those in force.
    """

    servers: ServerStore
    pins: PinStore
    policies: PolicyStore
    profiles: ProfileStore
    toolbox: ServerAdmin
    rules: RuleBook
    files: OperatorFiles
    read_files: Callable[[], OperatorFiles]
    allowances: AllowedTargets
    programs: AllowedPrograms
    sign_ins: SignInStore | None = None
    _seen: int = -1
    _warned_of: list[Rule] = field(default_factory=list)
    _looking: asyncio.Event = field(default_factory=asyncio.Event)
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self) -> None:
        """Poll now: the configuration may have changed."""
        self._looking.set()

    async def run(self) -> None:
        """Follow the database until cancelled."""
        while True:
            self._looking.clear()
            try:
                if await self.servers.revision() != self._seen:
                    await self.refresh()
            except DatabaseError:
                pass  # the database logs its own outages
            except Exception:  # an unreadable file must not prevent later changes
                log.exception("configuration of admins could not be applied, next try at the next poll")
            with suppress(TimeoutError):
                # Jitter keeps many processes from asking in step; it is no secret.
                async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.8, 1)):  # noqa: S311
                    await self._looking.wait()

    async def refresh(self) -> None:
        """Read the stores and apply changes now."""
        async with self._refreshing:
            stored = await self._read()
            await self._read_programs()
            self.rules.replace_file(self.files.policies)
            self.rules.amend(stored.rules, stored.profiles, stored.bindings)
            await self.toolbox.reconcile(await self._entries(stored))
            self._warn_of_idle_rules()
            self._seen = stored.revision

    async def _read_programs(self) -> None:
        """Read the allowed programs again: the operator allows one just before adding its server."""
        try:
            await asyncio.to_thread(self.programs.refresh)
        except SettingsError as error:
            log.error("the allowed programs are those of before: %s", error)

    def _warn_of_idle_rules(self) -> None:
        """Log each rule of the operator that names a tool missing from its server, once."""
        servers = self.toolbox.servers()
        tools = [
            tool
            for state in servers
            for tool in (*self.toolbox.capabilities(state.config.id).tools, *self.toolbox.requests(state.config.id))
        ]
        for rule in unmatched_rules(self.files.policies.all_rules, tools):
            if rule not in self._warned_of:
                self._warned_of.append(rule)
                log.warning("%s (%s) matches no tool of its server", rule.id, describe_rule(rule))

    async def _read(self) -> _OnDisk:
        """Read everything, again if a change was made meanwhile: a server must not be applied without its rules. If
        changes are faster than reads, the next poll finds the rest.
        """
        for _reading in range(_READINGS):
            # The revision is read before the rows, and bindings before the profiles that they name.
            stored = _OnDisk(
                await self.servers.revision(),
                await self.pins.pinned_definitions(),
                await self.policies.rules(),
                await self.profiles.bindings(),
                await self.profiles.profiles(),
                await self.servers.cached_capabilities(),
                await self.servers.records(),
                {} if self.sign_ins is None else await self.sign_ins.versions(),
            )
            if await self.servers.revision() == stored.revision:
                break
        return stored

    async def difference(self) -> ConfigDiff:
        """Return the difference between the operator's files and the configuration in force. Raises SettingsError."""
        return _difference(self.files, await asyncio.to_thread(self.read_files))

    async def reload(self) -> ConfigDiff:
        """Read the operator's files again and apply them. Raises SettingsError."""
        files = await asyncio.to_thread(self.read_files)
        difference = _difference(self.files, files)
        self.files = files
        # If the refresh fails, the next poll applies the files.
        self._seen = -1
        await self.refresh()
        return difference

    def rejection_reason(self, config: ServerConfig) -> str:
        """Return the reason why a definition made in chat is not allowed; empty if it is."""
        try:
            check_target(config, self.allowances)
            check_paths(config, self.allowances.templates())
        except InvalidDefinition as unusable:
            return unusable.sentence
        return ""

    def allows_program(self, program: str) -> bool:
        """Return True if the operator's servers may run this program here."""
        return program in self.programs

    async def allow_program(self, program: str) -> None:
        """Allow a program on this machine, for good. Raises SettingsError."""
        await asyncio.to_thread(self.programs.allow, program)

    def reference_rejection(self, reference: SecretReference, config: ServerConfig) -> str:
        """Return the reason why servers of admins may not use this reference; empty if the operator grants it."""
        cause, fix = self.files.secret_grants.objection(reference, config)
        return f"{cause} Fix: {fix}." if cause else ""

    def policy_of(self, tool: Tool, conversation: ConversationKey) -> ApprovalPolicy:
        """Return the approval policy of a tool in a conversation."""
        return self.rules.rules(conversation).policy_of(tool)

    def enables(self, tool: Tool, conversation: ConversationKey) -> bool:
        """Return True if the profile of a conversation enables the tool."""
        return self.rules.rules(conversation).profile.enables(tool)

    def judge(
        self, tool: Tool, arguments: Mapping[str, Any], asker: Member, conversation: ConversationKey
    ) -> PolicyResult:
        """Return the effect of the rules on one call of this member, and the reason."""
        return self.rules.rules(conversation).judge(tool, arguments, asker.author, asker)

    def profile_of(self, conversation: ConversationKey) -> Profile:
        """Return the profile of a conversation."""
        return self.rules.rules(conversation).profile

    def agents(self, conversation: ConversationKey) -> Agents:
        """Return the agents that users of a conversation may ask by name."""
        return self.rules.agents(conversation)

    def agent_profiles(self, conversation: ConversationKey) -> Sequence[Profile]:
        """Return the profiles of these agents, the one that holds there first."""
        return self.rules.agent_profiles(conversation)

    def profiles_in_use(self, conversation: ConversationKey) -> Sequence[Profile]:
        """Return the profiles that hold or answer to their names anywhere in the conversation's workspace, and that of
        places without one.
        """
        return self.rules.profiles_in_use(conversation)

    def rules_in(self, conversation: ConversationKey) -> Sequence[Rule]:
        """Return all rules that apply in a conversation."""
        return self.rules.rules(conversation).all

    def signed_by(
        self, terms: ApprovalRequirements, conversation: ConversationKey, agent: AgentRef | None = None
    ) -> str:
        """Return a short text that names the approvers of a call in a conversation, by the profile of an agent."""
        rules = self.rules.rules(conversation, agent)
        return rules.approvers.format_requirements(rules.restrict(terms))

    async def _entries(self, stored: _OnDisk) -> Sequence[DesiredServer]:
        of_file = [_with_memory(entry, stored) for entry in self.files.servers.entries]
        names = {entry.config.name for entry in of_file}
        # In parallel: one file on an unavailable disk must not delay the others.
        of_admins = await asyncio.gather(*(self._entry(record, stored, names) for record in stored.records))
        return [*of_file, *of_admins]

    async def _entry(self, record: ServerRecord, stored: _OnDisk, names_of_file: set[str]) -> DesiredServer:
        config, problem, secrets = record.config, "", frozenset[str]()
        try:
            values = await self.servers.read_secrets(record)
            # A user name may be a common word, which must not be redacted everywhere.
            secrets = frozenset(value for slot, value in values.items() if slot != USER_SLOT or not weakness(value))
            config = inject_secrets(
                replace(record, config=resolve_launch(record.config, self.allowances.templates())), values
            )
        except SecretUnavailable as error:
            problem = str(error)
        except InvalidDefinition as unusable:
            problem = unusable.sentence
        if config.name in names_of_file:
            problem = gettext_lazy(
                "The operator's file has a server {server} too, which goes first. Fix: rename one of them; "
                "this one goes by its id, {id}",
                server=config.name,
                id=config.id,
            )
        return _with_memory(DesiredServer(config, record.enablement, secrets=secrets, problem=problem), stored)


def _with_memory(entry: DesiredServer, stored: _OnDisk) -> DesiredServer:
    """Return the server with its stored capabilities and pins."""
    server_id = entry.config.id
    return replace(
        entry,
        synced=stored.known.get(server_id, CachedCapabilities()),
        pinned=stored.pinned.get(server_id),
        signed_in=stored.signed_in.get(SignInKey(server_id), 0),
    )


def _difference(before: OperatorFiles, after: OperatorFiles) -> ConfigDiff:
    old = {entry.config.name: entry for entry in before.servers.entries}
    new = {entry.config.name: entry for entry in after.servers.entries}
    changed = [(name, _what_changed(old[name], new[name])) for name in old.keys() & new.keys()]
    others = [(_("policies"), _("other rules"))] if before.policies != after.policies else []
    others += [(_("launch templates"), what)] if (what := _templates_changed(before, after)) else []
    others += [(_("secret grants"), _("other grants"))] if before.secret_grants != after.secret_grants else []
    return ConfigDiff(
        added=tuple(sorted(new.keys() - old.keys())),
        changed=tuple(sorted([(name, what) for name, what in changed if what] + others)),
        removed=tuple(sorted(old.keys() - new.keys())),
        problems=(
            *(entry.problem for entry in after.servers.entries if entry.problem),
            *after.launches.problems,
            *(f"{after.secret_grants.source}: {problem.sentence}" for problem in after.secret_grants.problems),
        ),
    )


def _templates_changed(before: OperatorFiles, after: OperatorFiles) -> str:
    old, new = before.launches.templates, after.launches.templates
    return ", ".join(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name)))


def _what_changed(old: DesiredServer, new: DesiredServer) -> str:
    """Return the names of the changed fields, without values: they may be secrets."""
    names = [
        option.name
        for option in fields(ServerConfig)
        if getattr(old.config, option.name) != getattr(new.config, option.name)
    ]
    if old.enablement is not new.enablement:
        names.insert(0, str(new.enablement))
    return ", ".join(name.replace("_", " ") for name in names) or ("problem" if old.problem != new.problem else "")
