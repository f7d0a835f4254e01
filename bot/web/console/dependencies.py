"""Dependencies of the console's pages, apart from Jinja2, which loads with the first page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bot.admin.dependencies import Rights, UserMessenger
from bot.chat.approval_inbox import PendingCalls
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.openid import Identity
from bot.ports import BrowserSessionStore, Commands, LinkStore, PendingApproval
from bot.ports.openid import OpenIdIssuer
from bot.web.authentication import LoginThrottle, TokenCheck
from bot.web.dependencies import WebDependencies

MayApprove = Callable[[Member], Callable[[PendingApproval], Awaitable[bool]]]
ReadPending = Callable[[Member, Sequence[str], int, int], Awaitable[PendingCalls]]
FindMember = Callable[[Author, ConversationKey], Awaitable[Member]]
FindPerson = Callable[[Identity], Awaitable[tuple[Member, ConversationKey]]]


@dataclass(frozen=True, slots=True)
class OpenIdSignIn:
    """The operator's issuer. `find_person` returns the member that a user of it is, with a conversation. It raises
    NotFound if the user may not come in, and DeliveryFailed.
    """

    issuer: OpenIdIssuer
    find_person: FindPerson


@dataclass(frozen=True, slots=True)
class ConsoleDependencies:
    """Dependencies of the pages. `commands` are those of a chat, with the forms of cards. `find_member` returns a user
    with the rights of now and raises DeliveryFailed. `read_pending` returns the calls in conversations with these key
    prefixes that wait for a user, `may_approve` a test of calls. `address` is PUBLIC_URL, empty without one.
    """

    web: WebDependencies
    commands: Commands
    sessions: BrowserSessionStore
    links: LinkStore
    tokens: TokenCheck
    messenger: UserMessenger
    find_member: FindMember
    read_pending: ReadPending
    may_approve: MayApprove
    openid: OpenIdSignIn | None = None
    address: str = ""
    attempts: LoginThrottle = field(default_factory=LoginThrottle)

    @property
    def rights(self) -> Rights:
        """Rights that decide which verbs a user sees."""
        return self.web.command_dependencies.rights
