"""What the commands are built from, beside the ports and stores: the rest of the house, as they see it.

The composition root gives all of it. Commands know no settings, no files and no connection.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bot.domain.api_clients import EVERYWHERE_ROLE
from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.health import Health
from bot.domain.launch_templates import Templates, no_templates
from bot.domain.metrics import ProcessCounters
from bot.domain.policies import PolicyResult, Rule
from bot.domain.secrets import SecretReference
from bot.domain.servers import ServerConfig
from bot.domain.tools import Tool
from bot.domain.usage import LimitStatus, UsageOwner
from bot.domain.views import TurnView
from bot.ports import (
    GrantStore,
    LinkStore,
    PinStore,
    PolicyStore,
    ProfileStore,
    ReportingStore,
    ServerAdmin,
    ServerStore,
    SignIns,
    UsageStore,
)


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """How the operator's file differs from what this process runs by: names of servers. `changed` are pairs of a name
    and what is different, in words without any secret; `problems` are sentences about what cannot be used.
    """

    added: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """The file says what runs already."""
        return not (self.added or self.changed or self.removed)


class Administration(Protocol):
    """What changes in this process when somebody administers, and what may not be."""

    async def refresh(self) -> None:
        """Let this process follow the stores at once. Returns when it does; connections may still be made."""

    async def difference(self) -> ConfigDiff:
        """Read the operator's file again and compare. Raises SettingsError."""

    async def reload(self) -> ConfigDiff:
        """Read it again and run by it from now on; what has changed. Raises SettingsError."""

    def rejection_reason(self, config: ServerConfig) -> str:
        """Why a definition made in chat is not allowed here, cause and fix in a sentence or two; empty if it is. It is
        about the address of a remote server, or the command of a local one, which the operator alone may define.
        """

    def ungranted(self, reference: SecretReference, config: ServerConfig) -> str:
        """Return why servers of admins may not use this reference, cause and fix; empty if the operator grants it."""

    def policy_of(self, tool: Tool, conversation: ConversationKey) -> ApprovalPolicy:
        """What happens if somebody asks for this tool there: file, database and profile taken together, as far as that
        depends on nobody and on no argument.
        """

    def judge(
        self, tool: Tool, arguments: Mapping[str, Any], asker: Member, conversation: ConversationKey
    ) -> PolicyResult:
        """The same of this very call by this person, and why."""

    def rules_in(self, conversation: ConversationKey) -> Sequence[Rule]:
        """All rules that hold there, of the file, the database and the profile."""

    def signed_by(self, terms: ApprovalRequirements, conversation: ConversationKey) -> str:
        """Whose signature a call takes there on these terms, in a few words: plain text."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may do what. `administers`, `operates` and `vouches` are asked for every command; `vouches` returns True for
    the operator at the terminal and for ADMIN_API_TOKEN, who give references to secrets without a grant. `who` tells
    people whom to turn to: `slack:U1, slack-group:S2`, or `an administrator`.
    """

    administers: Callable[[Member], bool]
    operates: Callable[[Member], bool]
    vouches: Callable[[Member], bool]
    who: str = "an administrator"

    def everywhere(self, member: Member) -> bool:
        """Whether this person may change what belongs to every workspace: the operator, and programs whose token is
        an administrator's of all workspaces. Local programs stay the operator's alone.
        """
        return self.operates(member) or (EVERYWHERE_ROLE in member.roles and self.administers(member))

    def is_confined(self, member: Member) -> bool:
        """Whether this is a program whose token is for one workspace: it changes nothing that holds in others, too, not
        even what people who administer one may (the operator's file read again, a tool of it approved).
        """
        return member.author.platform == HTTP and not self.everywhere(member)


class UserMessenger(Protocol):
    """The people of every platform that this process can ask, where a person is not there to show who they are."""

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Who somebody is there now. Raises DeliveryFailed if their platform does not say, or cannot be asked here."""

    async def tell(self, author: Author, where: ConversationKey, text: str) -> None:
        """Say a plain sentence to one person alone, where they stand or directly. Raises DeliveryFailed."""


@dataclass(frozen=True, slots=True)
class LinkService:
    """What one-time links take. `address` is what they begin with, `https://bot.example.com`, without a slash behind
    it.
    """

    store: LinkStore
    address: str


def any_name(slug: str) -> bool:  # noqa: ARG001 - see CommandDependencies.admits
    """Where the operator names no servers."""
    return True


@dataclass(frozen=True, slots=True)
class CommandDependencies:
    """Everything the commands need.

    `recent` are the last turns of a conversation, oldest first (`EngineApi.recent_turns`). `health` looks how this
    process stands, and never raises; `since_start` is what it has counted of servers, by their slugs. `balances` are
    the limits that hold for a person there, and how much of them is used up. `file` is the operator's file of servers
    as people know it. `admits` returns True if the operator allows a server of this slug. `clock` is in epoch seconds.
    `linking` is None where there are no one-time links, `sign_ins` where nobody can sign in in a browser. `templates`
    are the operator's launch templates as they are now.
    """

    servers: ServerAdmin
    administration: Administration
    rights: Rights
    server_store: ServerStore
    pins: PinStore
    policies: PolicyStore
    profiles: ProfileStore
    archive: ReportingStore
    grants: GrantStore
    recent: Callable[[ConversationKey, int], Awaitable[Sequence[TurnView]]]
    health: Callable[[], Awaitable[Health]]
    since_start: Callable[[Collection[str]], ProcessCounters]
    usage: UsageStore
    balances: Callable[[UsageOwner], Awaitable[Sequence[LimitStatus]]]
    file: str = "config/mcp_servers.json"
    admits: Callable[[str], bool] = any_name
    clock: Callable[[], float] = time.time
    linking: LinkService | None = None
    sign_ins: SignIns | None = None
    templates: Callable[[], Templates] = no_templates
