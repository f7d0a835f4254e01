"""The token that requests to one server carry, and what is said where there is none.

Calls with a good token wait for nobody. Called by `auth_transport` for every request, and by whoever hears that
something has changed.
"""

from __future__ import annotations

from bot.domain.characters import visible
from bot.domain.servers import AuthenticationKind, HttpTransport, ServerConfig
from bot.domain.sign_ins import SignIn
from bot.errors import CountersignError
from bot.mcp.oauth.challenges import Challenge
from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.refresh import TokenRefresh
from bot.mcp.oauth.sign_in_cache import SignInCache

_LONGEST_SCOPE = 200


class TokenProvider:
    """One server's token. `challenge` is the last one of the server, and `problem` says why there is no good token.
    `rejected_page`: the server has not let the bot in since it was last connected to; `out`: and it should have.
    """

    def __init__(self, config: ServerConfig, endpoint: HttpTransport, desk: OAuthDependencies) -> None:
        self._holding = SignInCache(config, desk)
        self._renewal = TokenRefresh(config, endpoint, self._holding, desk)
        self.terms = self._holding.terms
        self.defined = config.sign_in is not None
        self.challenge: Challenge | None = None
        self.problem = ""
        self.turned_away = False
        self.out = False
        self._config = config
        self._desk = desk

    def fits(self, config: ServerConfig) -> bool:
        """It is for this server, as it is defined."""
        return self._config == config

    def learn(self, version: int) -> bool:
        """Which version of the sign-in is kept now, 0 for none; whether that is news."""
        return self._holding.learn(version)

    def doubt(self) -> None:
        """There may be another sign-in than the one that is known, or none. `learn` is news all the same."""
        self._holding.doubt()

    @property
    def known(self) -> SignIn | None:
        """What this process knows of what is kept."""
        return self._holding.sign_in

    @property
    def has_token(self) -> bool:
        """Requests carry one, good or not."""
        return bool(self._holding.access_token)

    async def token(self) -> str:
        """One that is good, as far as anybody here can know; empty if there is none. Raises CountersignError if one
        cannot be had now and may be later.
        """
        held, now = await self._holding.current(), self._desk.clock()
        if held is None:
            return ""
        over = not held.access_token or (held.expires_at is not None and now >= held.expires_at)
        if over and not self._renewal.possible(held):
            return ""
        if over:
            await self._renewal.done(held.access_token)
        elif held.renew_at is not None and now >= held.renew_at and self._renewal.possible(held):
            self._renewal.begin(held.access_token)
        return self._holding.access_token

    async def another(self, refused: str, challenge: Challenge) -> str:
        """A token in place of one that the server has refused, or of none; empty if there is no other. Raises as
        `token`.
        """
        self.challenge = self._renewal.challenge = challenge
        self._holding.doubt()
        held = await self._holding.current()
        if self._holding.access_token in ("", refused) and self._renewal.possible(held):
            await self._renewal.done(refused)
        return "" if self._holding.access_token == refused else self._holding.access_token

    async def wider(self, refused: str, challenge: Challenge) -> str:
        """The same, for a token that is good and not for this. Only who signs in by itself can ask for more."""
        known = set((self.known.scope if self.known else "").split())
        if not self._itself or set((challenge.scope or "").split()) <= known:
            self.challenge = challenge
            return ""
        return await self.another(refused, challenge)

    def begins(self) -> None:
        """The server is being connected to: whether it lets the bot in is to be seen."""
        self.turned_away = self.out = False

    def works(self) -> None:
        """The server has let the bot in."""
        self.turned_away = self.out = False
        self.problem = ""

    def refused(self, challenge: Challenge) -> str:
        """The server does not let the bot in, whatever was tried: why, for people. Empty if nobody expected it to and
        it does not say that it wants a token.
        """
        self.challenge = challenge
        had = self.known is not None and bool(self.known.access_token or self.known.signed_in_by)
        self.turned_away = True
        self.out = self.defined or had
        if self._itself:
            self.problem = self._not_enough
        elif had:
            self.problem = self._over
        elif self.defined or challenge.bearer:
            self.problem = self._wanted
        return self.problem

    def signed_in(self, version: int) -> None:
        """Somebody has just signed the bot in: what the server has said before does not count any more."""
        self._holding.learn(version)
        self.challenge = self._renewal.challenge = None

    def needs_wider_scope(self, challenge: Challenge) -> str:
        """The token is good and not for this: a sentence for people."""
        name = self._config.name
        scope = f" ({visible(challenge.scope)[:_LONGEST_SCOPE]})" if challenge.scope else ""
        if self._itself:
            return f"Server {name} wants more rights{scope} than the bot is given. Fix: check what its client may do."
        return (
            f"Server {name} wants more rights{scope} for this than it was given. "
            f"Fix: an admin signs in again with `/mcp connect {name}`."
        )

    def unusable(self, error: CountersignError) -> str:
        """There is no token now, and there may be one later: a sentence for people."""
        return f"Server {self._config.name} has to be signed in to, and that does not work now. {error}"

    @property
    def _itself(self) -> bool:
        return self.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS

    @property
    def _wanted(self) -> str:
        name = self._config.name
        return f"Server {name} wants the bot to be signed in. Fix: an admin signs in with `/mcp connect {name}`."

    @property
    def _over(self) -> str:
        name = self._config.name
        return f"The sign-in to {name} has ended. Fix: an admin signs in again with `/mcp connect {name}`."

    @property
    def own_problem(self) -> str:
        """`problem` without text of a server."""
        return self._not_taken if self._itself and self.problem else self.problem

    @property
    def _not_enough(self) -> str:
        name, refusal = self._config.name, self._renewal.refusal
        if refusal is not None:
            return f"Server {name}: {refusal.cause} Fix: check its client_id and scope, and set its secret again."
        return self._not_taken

    @property
    def _not_taken(self) -> str:
        name = self._config.name
        return (
            f"Server {name} does not take the token that its authorization server gave the bot. "
            f"Fix: check its scope, and what its client may do."
        )
