"""Configuration in force: servers, policies and profiles of admins from the database, with the operator's files.

The database is the truth for admins. After a change call `refresh`; other processes follow at a wakeup or at their
next poll. `follow` applies the operator's files if they were saved since. It runs before every turn and at every poll.
The files are applied together: as long as one of them cannot be used, the previous ones stay in use, so that no server
runs without its rules.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bot.admin.dependencies import ConfigDiff
from bot.app.operator_files import (
    MISSING,
    FileChange,
    FilesOnDisk,
    OperatorFiles,
    changed_paths,
    difference,
    holds_variables,
    read_operator_files,
    unusable_file,
    watch_files,
)
from bot.app.stores import Stores
from bot.domain.agents import AgentRef
from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.flows import Words
from bot.domain.pins import Pinned
from bot.domain.policies import Rule, TaintMode, describe_rule
from bot.domain.profiles import Binding, Profile
from bot.domain.secrets import SecretReference, weakness
from bot.domain.servers import (
    USER_SLOT,
    CachedCapabilities,
    DesiredServer,
    ServerConfig,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
)
from bot.domain.sign_ins import SignInKey
from bot.domain.tools import Tool, ToolSet
from bot.engine.policy.information_flow import asks_after
from bot.engine.policy.rules import RuleBook, unmatched_rules
from bot.errors import DatabaseError, SecretUnavailable, SettingsError
from bot.i18n import DEFAULT_LANGUAGE, _, gettext_lazy, ngettext, use_language
from bot.mcp.config.checks import AllowedPrograms, AllowedTargets, check_paths, check_target, resolve_launch
from bot.mcp.config.credentials import inject_secrets
from bot.mcp.errors import InvalidDefinition
from bot.ports import PolicyStore, ProfileStore, ServerAdmin
from bot.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
SETTLE_SECONDS = 0.1
"""Seconds without a change after which a saved file counts as whole: programs write in pieces."""
EMPTY_SETTLE_SECONDS = 0.5
"""The same for a file that is gone or empty, which may be the first half of saving it."""
DISK_SECONDS = 2.0
"""Seconds that a turn waits for the disk of the files; after that it runs with those in use."""
_READINGS = 5
_NOWHERE = ConversationKey("", "", "", "")


@dataclass(frozen=True, slots=True)
class _Stored:
    """Configuration of admins at one moment."""

    revision: int
    pinned: Mapping[str, Pinned]
    rules: Sequence[Rule]
    bindings: Sequence[Binding]
    profiles: Sequence[Profile]
    known: Mapping[str, CachedCapabilities]
    records: Sequence[ServerRecord]
    signed_in: Mapping[SignInKey, int]


_FileNews = tuple[FileChange | SettingsError, bool]
"""A change of the files that was applied, or the reason why changed files are not in use. True if it is a change after
files that could not be used.
"""


class ConfigReloader:
    """Keeps the toolbox and the rules of this process in line with the database and with the operator's files.

    `files` are those in use. `on_files` gets the new contents of changed ones. `notify` takes a line for each change,
    and for each reason why files cannot be used.
    """

    def __init__(
        self,
        stores: Stores,
        toolbox: ServerAdmin,
        rules: RuleBook,
        *,
        allowances: AllowedTargets,
        programs: AllowedPrograms,
        settings: Settings,
        files: OperatorFiles,
        on_files: Callable[[OperatorFiles], None],
        notify: Callable[[str], None],
    ) -> None:
        self._servers = stores.servers
        self._pins = stores.pins
        self._sign_ins = stores.sign_ins
        self.policies: PolicyStore = stores.policies
        self.profiles: ProfileStore = stores.profiles
        self._toolbox = toolbox
        self.rule_book = rules
        self.rules = rules.rules
        self._allowances = allowances
        self._programs = programs
        self._settings = settings
        self.files = files
        self._on_files = on_files
        self.notify = notify
        self.record: Callable[[Mapping[str, object]], Awaitable[None]] = stores.policies.record_files
        self.read_files: Callable[[], OperatorFiles] = partial(read_operator_files, settings)
        self.watch = watch_files(settings)
        self.pause: Callable[[float], Awaitable[object]] = asyncio.sleep
        self.rejected: SettingsError | None = None
        """Reason why the files on disk are not in use; None if they are."""
        self._handled_files: FilesOnDisk | None = files.on_disk
        """The files that were applied or rejected last."""
        self._rejected_files: FilesOnDisk | None = None
        """The rejected files that were reported last."""
        self._applying = asyncio.Lock()
        self._reading: asyncio.Future[FilesOnDisk] | None = None
        """The last read of the files' states, which may be running."""
        self._has_disk = True
        self._unreported: asyncio.Queue[_FileNews] = asyncio.Queue()
        self._applied_revision = -1
        self._warned_rules: list[Rule] = []
        self._wakeup = asyncio.Event()
        self._refreshing = asyncio.Lock()

    def wake(self) -> None:
        """Poll now: the configuration may have changed."""
        self._wakeup.set()

    async def run(self) -> None:
        """Apply and report changes of the database and the files, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_changes(), name="reported changes of files")
            group.create_task(self._run(), name="configuration")

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                if await self._servers.revision() != self._applied_revision:
                    await self.refresh()
            except DatabaseError:
                pass  # the database logs its own outages
            except Exception:  # a later change may be applied
                log.exception("configuration of admins could not be applied, next try at the next poll")
            await self.follow()
            with suppress(TimeoutError):
                # Jitter keeps many processes from asking in step; it is no secret.
                async with asyncio.timeout(POLL_SECONDS * random.uniform(0.8, 1)):  # noqa: S311
                    await self._wakeup.wait()

    async def refresh(self) -> None:
        """Read the stores and apply changes now."""
        async with self._refreshing:
            stored = await self._read()
            try:
                # The operator allows a program just before adding its server.
                await asyncio.to_thread(self._programs.refresh)
            except SettingsError as error:
                log.error("the allowed programs are those of before: %s", error)
            self.rule_book.replace_file(self.files.policies)
            self.rule_book.amend(stored.rules, stored.profiles, stored.bindings)
            await self._toolbox.reconcile(await self._entries(stored))
            for rule in unmatched_rules(self.files.policies.all_rules, self._known_tools()):
                if rule not in self._warned_rules:
                    self._warned_rules.append(rule)
                    log.warning("%s (%s) matches no tool of its server", rule.id, describe_rule(rule))
            self._applied_revision = stored.revision

    def _known_tools(self) -> list[Tool]:
        return [
            tool
            for state in self._toolbox.servers()
            for tool in (*self._toolbox.capabilities(state.config.id).tools, *self._toolbox.requests(state.config.id))
        ]

    async def _read(self) -> _Stored:
        """Read everything, again if a change was made meanwhile: a server must not be applied without its rules. If
        changes are faster than reads, the next poll finds the rest.
        """
        for _reading in range(_READINGS):
            # The revision is read before the rows, and bindings before the profiles that they name.
            stored = _Stored(
                await self._servers.revision(),
                await self._pins.pinned_definitions(),
                await self.policies.rules(),
                await self.profiles.bindings(),
                await self.profiles.profiles(),
                await self._servers.cached_capabilities(),
                await self._servers.records(),
                await self._sign_ins.versions(),
            )
            if await self._servers.revision() == stored.revision:
                break
        return stored

    # ------------------------------------------------------------------ the operator's files

    @property
    def files_rejection(self) -> str:
        """Reason why the operator's files on disk are not in use, with the fix; empty if they are."""
        return "" if self.rejected is None else str(self.rejected)

    async def difference(self) -> ConfigDiff:
        """Return the difference between the operator's files and the configuration in force. Raises SettingsError."""
        return difference(self.files, await asyncio.to_thread(self.read_files))

    async def reload(self) -> ConfigDiff:
        """Apply the operator's files now, if they were saved since. Return the difference to those that were in use.
        Raises SettingsError.
        """
        before = self.files
        self._handled_files = None
        await self._apply_changes()
        if self.rejected is not None:
            raise self.rejected
        return difference(before, self.files)

    async def follow(self) -> None:
        """Apply the operator's files if they were saved since the last call. Never raises."""
        try:
            if await self._read_states() != self._handled_files:
                await self._apply_changes()
            self._has_disk = True
        except TimeoutError:
            if self._has_disk:
                log.warning("the operator's files cannot be checked, because their disk does not answer")
            self._has_disk = False
        except DatabaseError:
            pass  # the database logs its own outages; the next poll finds the files still to be applied
        except Exception:  # a turn and later changes must go on
            log.exception("the operator's files could not be applied, next try at the next poll")

    async def _read_states(self) -> FilesOnDisk:
        """Return the present states of the files. Raises TimeoutError if the disk hangs; one thread waits then."""
        # A read that began earlier may have missed the change that this one is for. All who wait for it share the next.
        earlier = self._reading
        if earlier is not None and not earlier.done():
            await self._wait_for_disk(earlier)
        if self._reading is None or self._reading is earlier:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self.watch.look))
        return await self._wait_for_disk(self._reading)

    async def _wait_for_disk(self, disk: asyncio.Future[FilesOnDisk]) -> FilesOnDisk:
        async with asyncio.timeout(DISK_SECONDS):
            return await asyncio.shield(disk)

    async def _apply_changes(self) -> None:
        """Apply or reject the files once they have stopped changing. Raises DatabaseError and TimeoutError."""
        async with self._applying:
            on_disk = await self._read_states()
            for _reading in range(_READINGS):
                if on_disk == self._handled_files:
                    return
                used = self.files.on_disk
                emptied = any(not state.size and used.get(path, MISSING).size for path, state in on_disk.items())
                await self.pause(EMPTY_SETTLE_SECONDS if emptied else SETTLE_SECONDS)
                before, on_disk = on_disk, await self._read_states()
                if before != on_disk:
                    continue
                read = await asyncio.to_thread(self._read_files, on_disk)
                before, on_disk = on_disk, await self._read_states()
                if before == on_disk:
                    await self._apply_or_reject(on_disk, read)
                    return

    def _read_files(self, on_disk: FilesOnDisk) -> OperatorFiles | SettingsError:
        if (reason := self._rejection_of(on_disk)) is not None:
            return reason
        try:
            files = self.read_files()
            self._programs.check()
        except SettingsError as error:
            return error
        known = self.files.problems
        return next((problem for key, problem in files.problems.items() if key not in known), files)

    async def _apply_or_reject(self, on_disk: FilesOnDisk, read: OperatorFiles | SettingsError) -> None:
        """Apply or reject the files. Raises DatabaseError."""
        if isinstance(read, OperatorFiles):
            await self._apply(read)
        else:
            self.rejected = read
            if on_disk != self._rejected_files:
                self._unreported.put_nowait((read, False))
            self._rejected_files = on_disk
        self._handled_files = on_disk

    def _rejection_of(self, on_disk: FilesOnDisk) -> SettingsError | None:
        """Return a reason to reject changed files unread, None if there is none."""
        for path in changed_paths(self.files.on_disk, on_disk):
            state = on_disk.get(path, MISSING)
            if state.digest == MISSING.digest:
                return SettingsError(
                    gettext_lazy("{file} is gone.", file=path),
                    gettext_lazy("bring it back, or save an empty file if that is meant"),
                )
            if state.unusable:
                return unusable_file(path, state.unusable)
            if state.is_open_to_all:
                return SettingsError(
                    gettext_lazy("Every user of this machine may write to {file}.", file=path),
                    gettext_lazy("run chmod o-w {file}, or start again if the change is yours", file=path),
                )
        return None

    async def _apply(self, files: OperatorFiles) -> None:
        """Apply the files. Raises DatabaseError; without its row in the audit nothing is applied."""
        before, programs = self.files, self._programs.allowed
        if paths := changed_paths(before.on_disk, files.on_disk):
            await self.record(_audit_facts(paths, before, files, self._settings))
        was_rejected, self.rejected, self._rejected_files = self.rejected is not None, None, None
        self.files = files
        self._on_files(files)
        # If the refresh fails, the next poll applies the files.
        self._applied_revision = -1
        try:
            await self.refresh()
        finally:
            change = FileChange(
                self._settings,
                before,
                files,
                self.rules(_NOWHERE),
                self._known_tools(),
                self._programs.allowed - programs,
            )
            self._unreported.put_nowait((change, was_rejected))

    async def _report_changes(self) -> None:
        """Log each change of the files and notify of it, in the language of this task."""
        while True:
            news = await self._unreported.get()
            try:
                level = logging.ERROR
                if isinstance(news[0], FileChange):
                    level = logging.INFO
                    if news[0].added_servers:
                        await self._toolbox.wait_ready()
                with use_language(DEFAULT_LANGUAGE):
                    for line in self._lines(news):
                        log.log(level, "%s", line)
                for line in self._lines(news):
                    self.notify(line)
            except Exception:
                log.exception("a change of the operator's files could not be reported")

    def _lines(self, news: _FileNews) -> list[str]:
        match news:
            case SettingsError() as error, _was_rejected:
                problem = f"{str(error).rstrip('.')}."
                return [_("{problem} Nothing has changed: the previous files stay in use.", problem=problem)]
            case change, was_rejected:
                known = change.before.warnings(self._settings)
                warnings = [warning for warning in change.after.warnings(self._settings) if warning not in known]
                corrected = [_("The operator's files can be used again.")] if was_rejected else []
                states = [state for name in change.added_servers if (state := self._state(name)) is not None]
                problems = [str(state.own_problem) for state in states if state.own_problem]
                return [*corrected, *change.sentences(self._describe_server), *problems, *warnings]

    def _state(self, name: str) -> ServerSnapshot | None:
        states = (state for state in self._toolbox.servers() if state.config.from_file and state.config.name == name)
        return next(states, None)

    def _describe_server(self, name: str) -> str:
        state = self._state(name)
        match state.status if state is not None else None:
            case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
                return _("not connected")
            case ServerStatus.DISABLED:
                return _("disabled")
            case _ if state is not None and (tools := self._toolbox.capabilities(state.config.id).tools):
                return ngettext("{n} tool", "{n} tools", len(tools))
            case _:
                return ""

    def rejection_reason(self, config: ServerConfig) -> str:
        """Return the reason why a definition made in chat is not allowed; empty if it is."""
        try:
            check_target(config, self._allowances)
            check_paths(config, self._allowances.templates())
        except InvalidDefinition as unusable:
            return unusable.sentence
        return ""

    def allows_program(self, program: str) -> bool:
        """Return True if the operator's servers may run this program here."""
        return program in self._programs

    async def allow_program(self, program: str) -> None:
        """Allow a program on this machine, for good. Raises SettingsError."""
        await asyncio.to_thread(self._programs.allow, program)

    def reference_rejection(self, reference: SecretReference, config: ServerConfig) -> str:
        """Return the reason why servers of admins may not use this reference; empty if the operator grants it."""
        cause, fix = self.files.secret_grants.objection(reference, config)
        return f"{cause} Fix: {fix}." if cause else ""

    def asks_after(self, tool: Tool, arguments: Mapping[str, Any]) -> Sequence[Words]:
        """Return the authors of words after which a call needs an approval although a rule lets it run."""
        if self._settings.taint_mode is not TaintMode.ASK:
            return ()
        return asks_after(tool, arguments, ToolSet(tuple(self._known_tools())))

    def signed_by(
        self, terms: ApprovalRequirements, conversation: ConversationKey, agent: AgentRef | None = None
    ) -> str:
        """Return a short text that names the approvers of a call in a conversation, by the profile of an agent."""
        rules = self.rules(conversation, agent)
        return rules.approvers.format_requirements(rules.restrict(terms))

    async def _entries(self, stored: _Stored) -> Sequence[DesiredServer]:
        of_file = [_with_memory(entry, stored) for entry in self.files.servers.entries]
        names = {entry.config.name for entry in of_file}
        # In parallel: one file on an unavailable disk must not delay the others.
        of_admins = await asyncio.gather(*(self._entry(record, stored, names) for record in stored.records))
        return [*of_file, *of_admins]

    async def _entry(self, record: ServerRecord, stored: _Stored, names_of_file: set[str]) -> DesiredServer:
        config, problem, secrets = record.config, "", frozenset[str]()
        try:
            values = await self._servers.read_secrets(record)
            # A user name may be a common word, which must not be redacted everywhere.
            secrets = frozenset(value for slot, value in values.items() if slot != USER_SLOT or not weakness(value))
            config = inject_secrets(
                replace(record, config=resolve_launch(record.config, self._allowances.templates())), values
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


def _with_memory(entry: DesiredServer, stored: _Stored) -> DesiredServer:
    """Return the server with its stored capabilities and pins."""
    server_id = entry.config.id
    return replace(
        entry,
        synced=stored.known.get(server_id, CachedCapabilities()),
        pinned=stored.pinned.get(server_id),
        signed_in=stored.signed_in.get(SignInKey(server_id), 0),
    )


def _audit_facts(
    paths: Sequence[Path], before: OperatorFiles, after: OperatorFiles, settings: Settings
) -> Mapping[str, object]:
    """Return the changes: fingerprints of the files, and the servers. Those with variables have none, because they
    may hold nothing but one short secret.
    """
    with use_language(DEFAULT_LANGUAGE):
        names = difference(before, after)
    return {
        "files": {
            str(path): {
                "before": "" if holds_variables(path, settings) else before.on_disk.get(path, MISSING).digest,
                "after": "" if holds_variables(path, settings) else after.on_disk.get(path, MISSING).digest,
                "owner": after.on_disk.get(path, MISSING).owner,
            }
            for path in paths
        },
        "added": list(names.added),
        "changed": [name for name, _what in names.changed],
        "removed": list(names.removed),
        "process": f"{socket.gethostname()}:{os.getpid()}",
    }
