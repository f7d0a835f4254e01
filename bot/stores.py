"""What admins set, on disk: servers, secrets, policies, profiles; conversations as people look them up; opinions; what
processes share.

Every method is one transaction. What changes something that admins set has its line in the audit, and makes `revision`
grow. `by` is whoever did it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.approvals import ApprovalPolicy
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.callers import ApiToken, Role
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import Grant
from bot.domain.links import SecretLink
from bot.domain.pins import Pin, Pinned
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.servers import ServerRecord, Standing, Synced
from bot.domain.sign_ins import SignIn, SignInKey, SignInUnderWay
from bot.domain.terms import NO_TERMS, Terms
from bot.domain.tools import Tool
from bot.domain.turns import ToolStep, Turn
from bot.domain.usage import Spent, SpentBy, UsageQuery


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

    async def stand(self, server_id: str, standing: Standing, by: Author) -> ServerRecord:
        """Switch a server on or off, whatever its version. Raises NotFound."""

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with its secrets, policies, pins, and what was known of it. Raises Conflict, NotFound."""

    async def synced(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """What the server offers now; the first time it is pinned with that (`PinStore`). Also for servers of the
        operator's file; no audit.
        """

    async def sync_failed(self, server_id: str, problem: str) -> None:
        """The last attempt failed; what is known stays. No audit."""

    async def known(self) -> Mapping[str, Synced]:
        """What is known of every server, by its id. Rows that cannot be read are left out."""

    async def reveal(self, record: ServerRecord) -> Mapping[str, str]:
        """The values of all secrets of a server, by slot. Raises SecretUnavailable, which names the slot and says
        why.
        """


class PinStore(Protocol):
    """Definitions of tools that somebody answers for. The first sync of a server pins what it offers
    (`ServerStore.synced`), but for tools that are flagged; whatever comes later is for admins to pin.
    """

    async def pinned(self) -> Mapping[str, Pinned]:
        """The definitions that are pinned, by server and tool. A server that is not among them was never looked at."""

    async def of(self, server_id: str) -> Sequence[Pin]:
        """The pins of a server, by tool, with what there was to be seen."""

    async def adopt(self) -> bool:
        """Pin what is known of servers of which nothing is pinned: what an earlier release has let run. Whether there
        were any. No audit.
        """

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin exactly these definitions, in the place of what was pinned of these tools. Raises NotFound."""


class PolicyStore(Protocol):
    """Rules that admins have set, beside those of the operator's file."""

    async def rules(self) -> Sequence[Rule]:
        """All of them, of all workspaces."""

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        """Keep a rule, in the place of the one of its workspace that is about the same calls; as it is kept, with its
        id. Raises NotFound if its server is gone.
        """

    async def clear_rule(self, rule_id: str, by: Author) -> bool:
        """Take a rule away. False if there was none."""

    async def past(self, named: str, reach: str) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Calls that were asked for, with what was ruled of them then, in conversations whose key begins with `reach`:
        by the beginning of their approval's id, by their turn's id, or by that and their number (`TURN:N`).
        """


class GrantStore(Protocol):
    """What was allowed beforehand. Grants are given with a signature (`bot.ports.TurnLog.grant`)."""

    async def in_force(self, home: str) -> Sequence[Grant]:
        """The grants in force in a workspace (`platform:workspace`), the latest first."""

    async def revoke(self, grant_id: str, by: Author) -> bool:
        """End a grant, for calls that are asked for from now on. False if it is not in force."""


class ProfileStore(Protocol):
    """Profiles and where they hold."""

    async def profiles(self) -> Sequence[Profile]:
        """All of them, by name."""

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Keep a new profile (version 0) or replace one of the same version. Raises Conflict, NotFound."""

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. False if there was none."""

    async def bindings(self) -> Sequence[Binding]:
        """Which profile holds where."""

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Let a profile hold in a place, instead of the one before. Raises NotFound."""

    async def unbind(self, place: str, by: Author) -> bool:
        """Let none hold there. False if none did."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list. `state` is one of the seeds' words (checklist 89). Times are epoch seconds."""

    key: ConversationKey
    title: str
    state: str
    turns: int
    started_by: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class PastCall:
    """One tool call that was asked for: what (`server.tool`, or a name the model made up), by whom, how it ended.
    Times are epoch seconds.
    """

    at: float
    name: str
    status: str
    asked_by: str
    decided_by: str
    seconds: float | None
    turn_id: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is unfinished now: live turns by status; how many seconds ago the oldest was asked that could begin, if
    anybody took it; calls that wait for a signature; turns whose drawing is behind. Each is counted up to 10,000.
    """

    turns: Mapping[str, int]
    oldest_ready: float
    approvals: int
    drawings: int


@dataclass(frozen=True, slots=True)
class ServerActivity:
    """The calls to one server's tools that have run: how many, how many of them succeeded, and how long half of them
    and 95 of 100 took at most, in seconds; None if that is not known of any.
    """

    server: str
    calls: int
    succeeded: int
    median: float | None
    slowest: float | None


@dataclass(frozen=True, slots=True)
class ApprovalActivity:
    """The signatures that were asked for, and what has become of them by now. `median` is how many seconds half of the
    decisions took at most; None if nobody has decided any.
    """

    asked: int = 0
    approved: int = 0
    denied: int = 0
    expired: int = 0
    median: float | None = None

    @property
    def others(self) -> int:
        """They still wait, or the turn was stopped, or nobody could see them."""
        return self.asked - self.approved - self.denied - self.expired


@dataclass(frozen=True, slots=True)
class Activity:
    """What has happened in a while: turns that were asked for, by status; servers, the busiest first. `whole` is False
    if so much has happened that only the latest of it was counted.
    """

    turns: Mapping[str, int]
    servers: Sequence[ServerActivity]
    approvals: ApprovalActivity
    whole: bool = True


class Archive(Protocol):
    """What has happened, for people who look it up."""

    async def conversations(
        self, reach: str, person: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """A page of the conversations whose key begins with `reach`, the latest first, and how many there are in all.
        `person`, a principal, narrows it to those in which that person has asked something; empty for all.
        """

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """One conversation as a list has it; None if there is none."""

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Keep a conversation in which nothing was said yet, under a title of its own. False if there is one."""

    async def took_part(self, conversation: ConversationKey, person: str) -> bool:
        """Whether this person, a principal, has asked something there."""

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit. False if there is none or it is not at rest."""

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[PastCall], int]:
        """A page of the calls to a server's tools (its slug; empty for all servers) in a workspace, the latest first,
        and how many there are in all.
        """

    async def running(self, server: str) -> int:
        """How many calls to a server's tools wait for a signature now."""

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """A page of the audit, the latest row first, and how many rows fit in all."""

    async def backlog(self) -> Backlog:
        """How much there is to do now, in all workspaces."""

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        """What has happened since then, epoch seconds: in a workspace, empty for all; with one server, by its id, empty
        for all. Turns are those of all servers either way.
        """


@dataclass(frozen=True, slots=True)
class AwaitedCall:
    """A call that waits for a signature, as far as it takes to say whose: without what would be signed. `editors` are
    the principals of those who have changed that.
    """

    approval_id: str
    conversation: ConversationKey
    asked_by: Author
    terms: Terms = NO_TERMS
    editors: frozenset[str] = frozenset()


class Overview(Protocol):
    """What concerns one person now."""

    async def waiting(self, reach: str, limit: int) -> Sequence[AwaitedCall]:
        """Calls that wait for a signature and have not expired, in conversations whose key begins with `reach`, the
        latest first.
        """

    async def asked(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """What this person, a principal, has asked there, the latest first. Turns that cannot be read are left out."""

    async def inquired(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """What servers wait to hear from this person there, by the questions' ids, the latest first."""


class Engagements(Protocol):
    """Where people and the bot are talking to each other."""

    async def engaged(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """The conversations whose key begins with `reach` and in which somebody has asked something in the last
        `seconds`, the latest first, at most `limit`.
        """


@dataclass(frozen=True, slots=True)
class Opinion:
    """What somebody thinks of the answer of a turn. `person` is a principal, `at` epoch seconds."""

    turn_id: str
    good: bool
    person: str
    at: float


class OpinionStore(Protocol):
    """What people think of answers. Opinions go when their turn does, and leave nothing in the audit."""

    async def keep(self, turn_id: str, good: bool, by: Author) -> None:
        """Keep what a person thinks now, in the place of what they thought before. Raises NotFound if the turn is not
        there any more.
        """

    async def of(self, turn_id: str) -> Sequence[Opinion]:
        """What people think of a turn's answer, the first to say so first."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How often something may be done: `at_once` times after a quiet time, and once more every `interval` seconds. In
    any `period` that is `at_once + period / interval` times at most.
    """

    at_once: int
    interval: float


@dataclass(frozen=True, slots=True)
class Granted:
    """It may be done in `wait` seconds. `left` is how often it may be done at once after that; below zero, how many
    wait for it.
    """

    wait: float
    left: float


@dataclass(frozen=True, slots=True)
class Refused:
    """It may not be done in time; in `wait` seconds it might."""

    wait: float


class Quotas(Protocol):
    """Limits that all processes keep together, by name. The database's clock decides. Asking twice where the answer to
    the first was lost costs a turn and does no harm.
    """

    async def take(self, name: str, quota: Quota, most_wait: float) -> Granted | Refused:
        """Take the next turn if it comes within `most_wait` seconds; nothing otherwise. Raises DatabaseError."""

    async def hold_off(self, name: str, quota: Quota, seconds: float) -> None:
        """Let nobody who asks from now on have a turn before `seconds` are over; after that they come one by one.
        Turns that were granted stay granted. Raises DatabaseError.
        """


class Leases(Protocol):
    """Who alone may do a thing that only one process should do at a time. The database's clock decides."""

    async def hold(self, name: str, holder: str, seconds: float) -> bool:
        """Take what is free, or renew what is the holder's: True if it is theirs for `seconds`, to be counted from
        before this was called. What another holds is free once they released it, or once their seconds are over.
        Raises DatabaseError, before half of the seconds are over if the database is away.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let another have it at once. Nothing happens if it is not the holder's. Raises DatabaseError."""


class TokenStore(Protocol):
    """Tokens of the HTTP API. Made and revoked by the operator."""

    async def create(
        self, name: str, role: Role, workspace: str, lifetime: float | None, by: Author
    ) -> tuple[ApiToken, str]:
        """Make a token, good for `lifetime` seconds; what is known of it, and the token itself, which nobody can find
        out again. Raises Conflict if the name is taken by one that is still good.
        """

    async def tokens(self) -> Sequence[ApiToken]:
        """All of them, by name, those that are good for nothing any more included."""

    async def found(self, token: str) -> ApiToken | None:
        """The token that this is, if it is good for something now."""

    async def revoke(self, name: str, by: Author) -> bool:
        """Let it be good for nothing from now on. False if there is no such token, or it is revoked."""


class LinkStore(Protocol):
    """One-time links for entering secrets, good for `bot.domain.links.LINK_SECONDS` by the database's clock."""

    async def make(
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

    async def found(self, key: SignInKey) -> SignIn | None:
        """What is kept; None if there is nothing, or nothing that this release can read."""

    async def versions(self) -> Mapping[SignInKey, int]:
        """Of everything that is kept, which version it is."""

    async def keep(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Keep it, under the next version: other tokens, or another registration. None if another version than
        `sign_in.version` is there meanwhile (0: none).
        """

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Somebody has signed the bot in: keep that instead of whatever is there. Audited."""

    async def ended(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """The other side has ended it: of it, the registration alone is kept. As `keep`; audited."""

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Sign out: keep nothing of it. False if there was nothing. Audited."""

    async def begin(self, under_way: SignInUnderWay) -> str:
        """Keep what is needed when the person comes back, for `SIGN_IN_SECONDS`, instead of what they had begun for the
        same; the state that is in the link, which nobody can find out again.
        """

    async def take(self, state: str) -> SignInUnderWay | None:
        """Use a link's state up: for one at most of all who come with it; None if it is no good now."""


class UsageStore(Protocol):
    """What was asked of models. The rows are written with the replies they are about (`bot.ports.TurnLog`)."""

    async def sums(self, queries: Sequence[UsageQuery]) -> Sequence[Spent]:
        """What fits each query, added up."""

    async def by(self, query: UsageQuery, by: SpentBy) -> Sequence[tuple[str, Spent]]:
        """What fits, added up by name, the most expensive first; where nothing has a price, the most tokens."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` rows that are older than that; how many there were."""
