"""Clients of the HTTP API: programs, each with a token that the operator made for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.servers import EVERYWHERE

DEFAULT_WORKSPACE = "default"
"""Workspace of API conversations outside all other platforms' workspaces."""


OPERATOR_NAME = "admin"
"""Name of the client with the operator's own token, ADMIN_API_TOKEN. No other client can have this name."""
OPERATOR_PRINCIPAL = f"{HTTP}:{OPERATOR_NAME}"
"""Principal of the operator's client."""


class ApiRole(StrEnum):
    """Role of a token. Each role includes the ones before it."""

    MEMBER = "member"
    """Send messages and read the client's own conversations."""
    APPROVER = "approver"
    """Decide approvals."""
    ADMIN = "admin"
    """Administer the bot."""

    @property
    def principal(self) -> str:
        """Principal of the role in rules and settings: `api-role:approver`."""
        return f"api-role:{self}"


EVERYWHERE_ROLE = "api-role:everywhere"
"""Role of an administrator of all workspaces: may change settings that all of them share."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """Record of a token, without the token itself. `workspace` is the only workspace it is valid for (`slack:T1`);
    EVERYWHERE means all. Times are epoch seconds. `expires_at` is None for a token that never expires.
    """

    id: str
    name: str
    role: ApiRole
    workspace: str = EVERYWHERE
    created_by: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Return True if the token is valid at `now`, in epoch seconds."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Client of a request: the name of its token and the token's rights. `language` is the one that the request asks
    for, as a BCP 47 tag; None if it asks for none. `since` is the time of the token in epoch seconds: another token may
    have had the name before.
    """

    name: str
    role: ApiRole
    workspace: str = EVERYWHERE
    language: str | None = None
    since: float = 0.0

    @property
    def author(self) -> Author:
        """The client as an author: `api:NAME`."""
        return Author(HTTP, self.name, self.name)

    @property
    def member(self) -> Member:
        """The client as a member: rules and settings name it `api:NAME` or `api-role:approver`."""
        roles = frozenset(role.principal for role in self._roles)
        if self.role is ApiRole.ADMIN and self.workspace == EVERYWHERE:
            roles |= {EVERYWHERE_ROLE}
        admin = self.role is ApiRole.ADMIN
        return Member(self.author, roles, platform_admin=admin, language=self.language, since=self.since)

    @property
    def _roles(self) -> tuple[ApiRole, ...]:
        ranked = tuple(ApiRole)
        return ranked[: ranked.index(self.role) + 1]

    def may(self, role: ApiRole) -> bool:
        """Return True if the client's role includes this one."""
        return role in self._roles

    def covers_workspace(self, home: str) -> bool:
        """Return True if the client may access a workspace, `platform:workspace`."""
        return self.workspace in (EVERYWHERE, home)

    def place(self, workspace: str = EVERYWHERE, thread: str = "") -> ConversationKey:
        """Return the key of the client's own conversation in a workspace. Without `workspace`, the token's workspace is
        used, then DEFAULT_WORKSPACE.
        """
        return ConversationKey(HTTP, workspace or self.workspace or DEFAULT_WORKSPACE, self.name, thread)
