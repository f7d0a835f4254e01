"""Storage of MCP servers: definitions, capabilities with their pins, and sign-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bot.domain.approvals import ApprovalPolicy
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import Author, ConversationKey
from bot.domain.links import SecretLink
from bot.domain.pins import Pin, Pinned
from bot.domain.servers import CachedCapabilities, ServerEnablement, ServerRecord
from bot.domain.sign_ins import PendingSignIn, SignIn, SignInKey
from bot.domain.tools import Tool


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

    async def set_enablement(self, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
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

    async def pinned(self) -> Mapping[str, Pinned]:
        """Return the pinned definitions by server and tool. A server without an entry has never been synced."""

    async def pins_of(self, server_id: str) -> Sequence[Pin]:
        """Return the pins of a server, by tool, with the accepted definitions."""

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin exactly these definitions, replacing earlier pins of these tools. Raises NotFound."""


class LinkStore(Protocol):
    """One-time links for entering secrets, valid for `bot.domain.links.LINK_SECONDS` by the database's clock."""

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Create a link, replacing this user's other links for the same slot. Return its record and its token, which is
        not stored.
        """

    async def find(self, token: str) -> SecretLink | None:
        """Return the valid link of a token, or None. Does not use it up."""

    async def take(self, token: str) -> SecretLink | None:
        """Use up a link. Return it to one of several concurrent callers, None to the others."""


class SignInStore(Protocol):
    """OAuth sign-ins, stored encrypted, and pending ones. Expiry is by the database's clock. Every process is notified
    of changes. All methods raise DatabaseError; those that encrypt or decrypt also raise SecretUnavailable.
    """

    async def find(self, key: SignInKey) -> SignIn | None:
        """Return the stored sign-in; None if it is missing or unreadable by this release."""

    async def versions(self) -> Mapping[SignInKey, int]:
        """Return the version of every stored sign-in."""

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Store new tokens or a new registration under the next version. Return None if the stored version is not
        `sign_in.version` (0: none stored).
        """

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Replace any stored sign-in by this new one. Audited."""

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete tokens that the authorization server has revoked, and keep the registration. Returns as `save`.
        Audited.
        """

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Delete a stored sign-in. Return False if there was none. Audited."""

    async def begin(self, under_way: PendingSignIn) -> str:
        """Store a pending sign-in for `SIGN_IN_SECONDS`, replacing this user's other one for the server. Return the
        state for the link, which is not stored.
        """

    async def take(self, state: str) -> PendingSignIn | None:
        """Use up the state of a link. Return its pending sign-in to one of several callers; None if the state is not
        valid.
        """
