"""Token providers of all servers with OAuth. The toolbox, its diagnostics and the sign-ins share them."""

from __future__ import annotations

from weakref import WeakValueDictionary

from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.token_provider import TokenProvider


class TokenProviders:
    """Token providers by server, one for all connections of a server."""

    def __init__(self, desk: OAuthDependencies) -> None:
        self.desk = desk
        # Weak, so that definitions that were only checked leave no entry.
        self._known: WeakValueDictionary[str, TokenProvider] = WeakValueDictionary()

    def of(self, config: ServerConfig) -> TokenProvider | None:
        """Return the provider of a server; None for another type of authentication."""
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
        """Wait for running refreshes, at most `limit` seconds."""
        await self.desk.close(limit)


def no_token_provider(config: ServerConfig) -> TokenProvider | None:  # noqa: ARG001 - see Surroundings
    """Return None, for a process without stored sign-ins."""
    return None
