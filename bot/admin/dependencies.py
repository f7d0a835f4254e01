"""Dependencies of the commands besides ports and stores: administration, rights, messages to users and links."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bot.domain.agents import AgentRef
from bot.domain.api_clients import EVERYWHERE_ROLE
from bot.domain.approvals import ApprovalRequirements
from bot.domain.audit import AuditReport
from bot.domain.catalog import CatalogResult, CatalogServer
from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.flows import Words
from bot.domain.health import Health
from bot.domain.launch_templates import Templates
from bot.domain.locales import Locale
from bot.domain.metrics import ProcessCounters
from bot.domain.profiles import ServersEnabled
from bot.domain.secrets import SecretReference
from bot.domain.servers import EVERYWHERE, ServerConfig
from bot.domain.tools import Tool
from bot.domain.turns import TurnView
from bot.domain.usage import LimitStatus, UsageOwner
from bot.engine.policy.rules import RuleBook, Rules
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.ports import (
    BrowserSessionStore,
    GrantStore,
    InstallationStore,
    LinkStore,
    LocaleStore,
    PinStore,
    PolicyStore,
    ProfileStore,
    ReportingStore,
    ServerAdmin,
    ServerStore,
    SignIns,
    TokenStore,
    UsageStore,
)

log = logging.getLogger(__name__)

MEMBER_SECONDS = 10.0
"""Seconds that a page waits for a platform's answer about a user."""
_MESSAGE_SECONDS = 3.0
"""Seconds that a page waits for a message to be sent."""


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """Difference between the operator's file and the running configuration, as names of servers. `changed` has pairs of
    a name and its changed fields, without secrets; `problems` has sentences about unusable entries.
    """

    added: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if the file matches the running configuration."""
        return not (self.added or self.changed or self.removed)


class Administration(Protocol):
    """Configuration of this process: reload, policies and restrictions of definitions."""

    async def refresh(self) -> None:
        """Read the stores and apply changes. Connections may still be in progress on return."""

    @property
    def files_rejection(self) -> str:
        """Why the operator's files on disk are not in use, with the fix; empty if they are. The previous ones are."""

    async def difference(self) -> ConfigDiff:
        """Return the changes that a reload of the operator's files would make. Raises SettingsError."""

    async def reload(self) -> ConfigDiff:
        """Apply the operator's files now, which happens by itself within a second of saving them. Return the
        difference. Raises SettingsError.
        """

    def rejection_reason(self, config: ServerConfig) -> str:
        """Return the reason why a definition made in chat is not allowed, with cause and fix; empty if it is. It checks
        the address of a remote server, or the command of a local one, which only the operator may define.
        """

    def allows_program(self, program: str) -> bool:
        """Return True if the operator's servers may run this program here."""

    async def allow_program(self, program: str) -> None:
        """Allow a program on this machine, for good. Only the operator may. Raises SettingsError."""

    def reference_rejection(self, reference: SecretReference, config: ServerConfig) -> str:
        """Return why servers of admins may not use this reference, cause and fix; empty if the operator grants it."""

    @property
    def rule_book(self) -> RuleBook:
        """Rules, profiles and agents of every place, from file and database."""

    def rules(self, conversation: ConversationKey, agent: AgentRef | None = None, /) -> Rules:
        """Return the rules and the profile of a conversation."""

    def asks_after(self, tool: Tool, arguments: Mapping[str, Any]) -> Sequence[Words]:
        """Return the authors after whose words a call needs an approval although a rule lets it run."""

    def signed_by(
        self, terms: ApprovalRequirements, conversation: ConversationKey, agent: AgentRef | None = None
    ) -> str:
        """Return the approvers of a call in a conversation, by the profile of an agent, as short plain text."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of members. `administers`, `operates` and `vouches` are checked for every command; `vouches` returns True
    for the operator at the terminal and for ADMIN_API_TOKEN, which may use references to secrets without a grant. `who`
    names the admins for users: `slack:U1, slack-group:S2`, or `an administrator`. `is_of_one_workspace` returns True
    for a member of one of several workspaces that have admins of their own.
    """

    administers: Callable[[Member], bool]
    operates: Callable[[Member], bool]
    vouches: Callable[[Member], bool]
    who: str = gettext_lazy("an administrator")
    is_of_one_workspace: Callable[[Member], bool] = lambda member: member.author.platform == HTTP

    def administers_everywhere(self, member: Member) -> bool:
        """Return True if the member may change global records: the operator, and tokens of administrators of all
        workspaces. Local programs are for the operator alone.
        """
        return self.operates(member) or (EVERYWHERE_ROLE in member.roles and self.administers(member))

    def workspace_for(self, member: Member, conversation: ConversationKey) -> str:
        """Return the workspace of the member's new records: EVERYWHERE for one who may change global records."""
        return EVERYWHERE if self.administers_everywhere(member) else conversation.workspace_key

    def is_confined(self, member: Member) -> bool:
        """Return True for a token or an admin of one workspace: they change nothing that applies in others too, such as
        the operator's file or the approval of a tool.
        """
        return self.is_of_one_workspace(member) and not self.administers_everywhere(member)


class UserMessenger(Protocol):
    """Messages to users on the platforms that this process serves, and lookup of their memberships."""

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return a user's current membership. Raises DeliveryFailed if the platform cannot be asked here."""

    async def locale(self, author: Author, conversation: ConversationKey) -> Locale:
        """Return the locale of what a user sees alone. Never raises."""

    async def tell(self, author: Author, conversation: ConversationKey, text: str) -> None:
        """Send plain text to one user, in an ephemeral or direct message. Raises DeliveryFailed."""


async def notify_user(messenger: UserMessenger, author: Author, conversation: ConversationKey, text: str) -> None:
    """Send plain text to one user, if the platform takes it in time."""
    try:
        async with asyncio.timeout(_MESSAGE_SECONDS):
            await messenger.tell(author, conversation, text)
    except (DeliveryFailed, TimeoutError) as failure:
        log.info("message to %s was not sent: %s", author.principal, failure or "no answer in time")


@dataclass(slots=True)
class LinkService:
    """Dependencies of one-time links. `address` is the public address, `https://bot.example.com`, without a trailing
    slash. Without one, it is that of this machine, empty before its port is known.
    """

    store: LinkStore
    address: str


class ServerCatalog(Protocol):
    """Servers that can be added by name: bundled ones, and those of the operator's registry."""

    async def find(self, name: str) -> CatalogServer | None:
        """Return the server of this name. Raises ServerTrouble if the registry does not answer."""

    async def search(self, words: str) -> CatalogResult:
        """Return the servers with all these words."""


def any_name(slug: str) -> bool:  # noqa: ARG001 - see OperatorTerms.admits
    """Accept every name: the operator reserves none."""
    return True


@dataclass(frozen=True, slots=True)
class AdminStores:
    """Stores of the records of admins and users, and of their use."""

    servers: ServerStore
    pins: PinStore
    policies: PolicyStore
    profiles: ProfileStore
    grants: GrantStore
    usage: UsageStore
    locales: LocaleStore
    archive: ReportingStore
    sessions: BrowserSessionStore
    tokens: TokenStore
    installations: InstallationStore


@dataclass(frozen=True, slots=True)
class OperatorTerms:
    """Offers and limits of the operator. `file` is the display name of the file of servers. `admits` returns True for
    the slug of an allowed server. `templates` returns the current launch templates. `servers_enabled` are those that a
    profile may use without naming them.
    """

    catalog: ServerCatalog
    file: str = "config/mcp_servers.json"
    admits: Callable[[str], bool] = any_name
    templates: Callable[[], Templates] = dict
    servers_enabled: ServersEnabled = ServersEnabled.ALL


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """State of this process. `recent_turns` returns the last turns of a conversation, oldest first
    (`EngineApi.recent_turns`). `health` never raises. `counters` returns those of servers by slug. `usage_limits`
    returns the usage limits of a member and their current use. `verify_audit` compares the latest rows of the audit.
    """

    recent_turns: Callable[[ConversationKey, int], Awaitable[Sequence[TurnView]]]
    health: Callable[[], Awaitable[Health]]
    counters: Callable[[Collection[str]], ProcessCounters]
    usage_limits: Callable[[UsageOwner], Awaitable[Sequence[LimitStatus]]]
    verify_audit: Callable[[], Awaitable[AuditReport]]


@dataclass(frozen=True, slots=True)
class CommandDependencies:
    """Dependencies of the commands. `clock` is in epoch seconds. `links` is None without one-time links, `console`
    without a console, `sign_ins` without sign-ins in a browser.
    """

    servers: ServerAdmin
    administration: Administration
    rights: Rights
    stores: AdminStores
    operator: OperatorTerms
    process: RunningProcess
    clock: Callable[[], float] = time.time
    links: LinkService | None = None
    console: LinkService | None = None
    sign_ins: SignIns | None = None
