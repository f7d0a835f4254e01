"""Grants: what somebody who may sign has allowed beforehand, so that the next such call does not ask.

A grant says whose calls of which tool, as the tool was then, where, and until when. Whether one may be made is for
`bot.engine.grants`; whether it is still in force only the database's clock can say. Knows no policy: what a policy
denies is denied, whoever has granted it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.tools import digest

IDLE_SECONDS = 3600.0
"""A grant of one thread ends when it was not used for so long."""
LONGEST_HOURS = 7 * 24.0


@dataclass(frozen=True, slots=True)
class ThreadScope:
    """All calls of the tool that the same person asks for in this thread, while it is used."""


@dataclass(frozen=True, slots=True)
class ArgumentsScope:
    """The same call again, with exactly these arguments, by the same person in this thread, while it is used."""


@dataclass(frozen=True, slots=True)
class HoursScope:
    """All calls of the tool that the same person asks for in this workspace, for some hours."""

    hours: float


@dataclass(frozen=True, slots=True)
class PermanentScope:
    """All calls of the tool in this workspace, until the grant is revoked."""


Scope = ThreadScope | ArgumentsScope | HoursScope | PermanentScope


def scope_name(scope: Scope) -> str:
    """Return the name of a scope as grants store and list it."""
    match scope:
        case ThreadScope():
            return "thread"
        case ArgumentsScope():
            return "arguments"
        case HoursScope():
            return "hours"
        case PermanentScope():
            return "always"


def parse_scope(word: str, seconds: float | None) -> Scope | None:
    """The scope of that word, for a grant that lasts so long; None for a word of another release."""
    match word:
        case "thread":
            return ThreadScope()
        case "arguments":
            return ArgumentsScope()
        case "hours" if seconds is not None:
            return HoursScope(round(seconds / 3600, 2))
        case "always":
            return PermanentScope()
        case _:
            return None


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """Requested grant for later calls. `everyone`: for all users instead of one. `destructive`: also for a
    destructive tool. Both need an admin.
    """

    scope: Scope
    everyone: bool = False
    destructive: bool = False


@dataclass(frozen=True, slots=True)
class CallToCover:
    """A call that waits for a signature, as far as it takes to see whether a grant covers it.

    `server` is the server's id, `fingerprint` what a signature would be bound to, `asker` a principal, `rule` the id of
    the rule that asks.
    """

    server: str
    tool: str
    definition: str
    fingerprint: str
    conversation: ConversationKey
    asker: str
    destructive: bool
    rule: str = ""
    terms: ApprovalRequirements = NO_TERMS


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission as it is kept.

    `place` is the text of a conversation's key, or of its beginning `platform:workspace`. `person` is a principal,
    empty for everyone; `fingerprint` is that of the one call it is for, empty for all of the tool. `rule` and `terms`
    (a digest) are what had asked: a call that is asked for by another rule, or on other terms, is not covered.
    `lasts` is in seconds from when it was given, None for ever; with `idle` each use begins them anew.

    `created_at`, `expires_at` and `used_at` are epoch seconds of the database's clock.
    """

    id: str
    scope: str
    server: str
    server_name: str
    tool: str
    definition: str
    place: str
    person: str
    granted_by: str
    granted_name: str
    approval_id: str
    rule: str = ""
    terms: str = ""
    fingerprint: str = ""
    destructive: bool = False
    lasts: float | None = None
    idle: bool = False
    created_at: float = 0.0
    expires_at: float | None = None
    used_at: float | None = None


@dataclass(frozen=True, slots=True)
class GrantUse:
    """The grant that a call ran on, kept with the call. `by` is the principal of whoever granted it, `fingerprint` what
    was covered: server, tool, definition and arguments. `rule` and `terms` are those that would have asked.
    """

    id: str
    by: str
    name: str
    fingerprint: str
    rule: str = ""
    terms: str = ""


def covers(grant: Grant, wanted: CallToCover) -> bool:
    """Return True if a grant in force lets this call run without an approval of its own."""
    same_tool = (grant.server, grant.tool, grant.definition) == (wanted.server, wanted.tool, wanted.definition)
    here = grant.place in (str(wanted.conversation), wanted.conversation.workspace_key)
    theirs = grant.person in ("", wanted.asker)
    these = grant.fingerprint in ("", wanted.fingerprint)
    asked_alike = (grant.rule, grant.terms) == (wanted.rule, requirements_digest(wanted.terms))
    return same_tool and here and theirs and these and asked_alike and _may_stand_in(grant, wanted)


def requirements_digest(terms: ApprovalRequirements) -> str:
    """A digest of what a signature takes; how long the question stands makes no difference."""
    return digest([sorted(sorted(each) for each in terms.approvers), terms.four_eyes, terms.quorum])


def _may_stand_in(grant: Grant, wanted: CallToCover) -> bool:
    """Return True if a grant by one user can ever replace the approval of such a call."""
    if wanted.destructive and not grant.destructive:
        return False
    own = grant.granted_by == wanted.asker
    return wanted.terms.quorum <= 1 and not (wanted.terms.four_eyes and own)
