"""Clients of the HTTP API: programs, each with a token that the operator made for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.servers import EVERYWHERE

DEFAULT_WORKSPACE = "default"
"""The workspace of conversations over HTTP that are held in no other platform's."""


OPERATOR_NAME = "admin"
"""Name of the client with the operator's own token, ADMIN_API_TOKEN; reserved for it."""
OPERATOR_PRINCIPAL = f"{HTTP}:{OPERATOR_NAME}"
"""The same as a principal."""


class ApiRole(StrEnum):
    """Role of a token. Each role includes the ones before it."""

    MEMBER = "member"
    """Talk to the bot, and see its own conversations."""
    APPROVER = "approver"
    """Sign what it is asked to sign."""
    ADMIN = "admin"
    """Administer."""

    @property
    def principal(self) -> str:
        """The role as rules and settings name it: `api-role:approver`."""
        return f"api-role:{self}"


EVERYWHERE_ROLE = "api-role:everywhere"
"""The role of a caller who administers every workspace: it may change what belongs to all of them."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """Record of a token; the token itself is shown once. `workspace` is the only one it is valid for (`slack:T1`),
    EVERYWHERE for all. Times are epoch seconds.
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
        """Return True if the token is valid at that moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Client of a request: the name of its token and the token's rights."""

    name: str
    role: ApiRole
    workspace: str = EVERYWHERE

    @property
    def author(self) -> Author:
        """The caller as one who asks: `api:NAME`."""
        return Author(HTTP, self.name, self.name)

    @property
    def member(self) -> Member:
        """The caller as one who may do something: rules and settings name it `api:NAME` or `api-role:approver`."""
        roles = frozenset(role.principal for role in self._roles)
        if self.role is ApiRole.ADMIN and self.workspace == EVERYWHERE:
            roles |= {EVERYWHERE_ROLE}
        return Member(self.author, roles, platform_admin=self.role is ApiRole.ADMIN)

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
        """Return the client's own conversation in a workspace; the token's workspace if none is named."""
        return ConversationKey(HTTP, workspace or self.workspace or DEFAULT_WORKSPACE, self.name, thread)
