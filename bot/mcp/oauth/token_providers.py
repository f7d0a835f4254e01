"""The bearers of all servers that may want to be signed in to. Held by the toolbox, its doctor and the sign-ins."""

from __future__ import annotations

from weakref import WeakValueDictionary

from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.token_provider import TokenProvider


class TokenProviders:
    """Bearers by server: one for each, however many connections it has."""

    def __init__(self, desk: OAuthDependencies) -> None:
        self.desk = desk
        # Whoever has a connection has its bearer; definitions that were only looked at leave nothing behind.
        self._known: WeakValueDictionary[str, TokenProvider] = WeakValueDictionary()

    def of(self, config: ServerConfig) -> TokenProvider | None:
        """The bearer of a server as it is defined; None for one that shows who the bot is in another way."""
        match config.transport:
            case StdioTransport():
                return None
            case HttpTransport(headers=headers) as endpoint:
                if any(name.lower() == "authorization" for name in headers):
                    return None
                known = self._known.get(config.id)
                if known is None or not known.fits(config):
                    known = TokenProvider(config, endpoint, self.desk)
                    self._known[config.id] = known
                return known

    async def close(self, limit: float) -> None:
        """Let what is under way come to its end, for so many seconds."""
        await self.desk.close(limit)


def no_token_provider(config: ServerConfig) -> TokenProvider | None:  # noqa: ARG001 - see Surroundings
    """Where nothing is kept of sign-ins."""
    return None
