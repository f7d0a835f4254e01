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
    """MCP servers that admins have defined."""

    async def revision(self) -> int:
        """A number that grows with every change to servers, policies and profiles, in whichever process."""

    async def records(self) -> Sequence[ServerRecord]:
        """All servers of all workspaces, by name."""

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        """Keep a new server, with the values of its stored secrets by slot. `policy` holds for all its tools from the
        first moment. Raises Conflict if its slug or title is taken in its workspace.
        """

    async def change(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, changes: Mapping[str, str]
    ) -> ServerRecord:
        """Replace a record of the same version; `secrets` are new values of stored ones. `changes` is what the audit
        says of it, field by field, and holds no secret. Raises Conflict (taken name; or changed meanwhile, by whom),
        NotFound.
        """

    async def set_enablement(self, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
        """Switch a server on or off, whatever its version. Raises NotFound."""

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with its secrets, policies, pins, and what was known of it. Raises Conflict, NotFound."""

    async def save_capabilities(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Save the server's current capabilities. The first ones are pinned (`PinStore`). Also for servers of the
        operator's file; not audited.
        """

    async def save_sync_failure(self, server_id: str, problem: str) -> None:
        """The last attempt failed; what is known stays. No audit."""

    async def cached_capabilities(self) -> Mapping[str, CachedCapabilities]:
        """Return the stored capabilities of every server, by id. Unreadable rows are left out."""

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        """The values of all secrets of a server, by slot. Raises SecretUnavailable, which names the slot and says
        why.
        """


class PinStore(Protocol):
    """Definitions of tools that somebody answers for. The first sync of a server pins what it offers
    (`ServerStore.save_capabilities`), but for tools that are flagged; whatever comes later is for admins to pin.
    """

    async def pinned(self) -> Mapping[str, Pinned]:
        """The definitions that are pinned, by server and tool. A server that is not among them was never looked at."""

    async def pins_of(self, server_id: str) -> Sequence[Pin]:
        """The pins of a server, by tool, with what there was to be seen."""

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin exactly these definitions, in the place of what was pinned of these tools. Raises NotFound."""


class LinkStore(Protocol):
    """One-time links for entering secrets, good for `bot.domain.links.LINK_SECONDS` by the database's clock."""

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Make a link, instead of those that this person has for the same; what it is good for, and the token that is
        in it, which nobody can find out again.
        """

    async def find(self, token: str) -> SecretLink | None:
        """The link that this is, if it is good now. Looking uses nothing up."""

    async def take(self, token: str) -> SecretLink | None:
        """Use it up: the link, for one at most of all who ask; None for everybody else."""


class SignInStore(Protocol):
    """Sign-ins by OAuth, encrypted at rest, and links that were given out for one. The database's clock decides. What
    is changed is news to every process. All raise DatabaseError; those that encrypt or decrypt raise SecretUnavailable
    too.
    """

    async def find(self, key: SignInKey) -> SignIn | None:
        """Return the stored sign-in; None if it is missing or unreadable by this release."""

    async def versions(self) -> Mapping[SignInKey, int]:
        """Of everything that is kept, which version it is."""

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Keep it, under the next version: other tokens, or another registration. None if another version than
        `sign_in.version` is there meanwhile (0: none).
        """

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Replace any stored sign-in by this new one. Audited."""

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """The other side has ended it: of it, the registration alone is kept. As `save`; audited."""

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Sign out: keep nothing of it. False if there was nothing. Audited."""

    async def begin(self, under_way: PendingSignIn) -> str:
        """Keep what is needed when the person comes back, for `SIGN_IN_SECONDS`, instead of what they had begun for the
        same; the state that is in the link, which nobody can find out again.
        """

    async def take(self, state: str) -> PendingSignIn | None:
        """Use a link's state up: for one at most of all who come with it; None if it is no good now."""
