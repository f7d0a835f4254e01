"""Fake `bot.ports.SignIns`, which needs no authorization server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from bot.admin.dependencies import CommandDependencies
from bot.domain.conversations import Author, ConversationKey
from bot.domain.sign_ins import callback_path
from bot.errors import NotFound, ServerTrouble
from bot.ports import AuthorizationResponse, SignedIn, SignInInfo
from tests.admin.memory_stores import NOW
from tests.admin.servers import CommandHarness

LOGIN = "https://login.example"


@dataclass
class MemorySignIns:
    """Fake sign-ins. Servers in `takes` support a sign-in. The state of a link is its number."""

    takes: set[str] = field(default_factory=set)
    begun: list[SignedIn] = field(default_factory=list)
    signed_in: dict[str, SignInInfo] = field(default_factory=dict)
    on_arrival: Callable[[str], None] = lambda _server: None
    address: str = f"{LOGIN}/authorize?client_id=bot&scope=read%20write"
    trouble: ServerTrouble | None = None

    async def is_available(self, server: str) -> bool:
        return server in self.takes

    def redirect_uri(self, server: str) -> str:
        return f"https://bot.example.com{callback_path(server)}"

    async def begin(self, server: str, by: Author, conversation: ConversationKey, *, on_page: bool = False) -> str:
        if self.trouble is not None:
            raise self.trouble
        self.begun.append(SignedIn(server, by, conversation, on_page))
        return f"{self.address}&state={len(self.begun):043d}"

    async def complete(
        self, response: AuthorizationResponse, allowed: Callable[[SignedIn], Awaitable[None]]
    ) -> SignedIn:
        state = response.state
        if not state.isdigit() or not 0 < int(state) <= len(self.begun):
            raise NotFound("This sign-in is not under way.", "ask for another link")
        who = self.begun[int(state) - 1]
        await allowed(who)
        if response.error:
            raise ServerTrouble("The bot was not let in: it was denied.", "ask for another link")
        if response.issuer not in (None, LOGIN):
            raise ServerTrouble("The answer does not come from whom you were sent to.", "sign in again")
        self.signed_in[who.server] = SignInInfo(who.by.principal, NOW - 7200, LOGIN)
        self.on_arrival(who.server)
        return who

    async def get(self, server: str) -> SignInInfo | None:
        return self.signed_in.get(server)

    async def sign_out(self, server: str, by: Author) -> bool:
        return self.signed_in.pop(server, None) is not None


@dataclass
class SigningOffice(CommandHarness):
    """A harness where users can sign in to servers."""

    sign_ins: MemorySignIns = field(default_factory=MemorySignIns)

    @property
    def parts(self) -> CommandDependencies:
        return replace(super().parts, sign_ins=self.sign_ins)
