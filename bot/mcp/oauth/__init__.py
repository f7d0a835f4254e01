"""OAuth 2.1 client for MCP servers (MCP specification 2026-07-28, basic/authorization).

`sign_ins` runs the sign-in of a user. `token_provider` caches and refreshes its token. `auth_transport` adds it to
requests. `discovery`, `registration`, `authorization` and `token_endpoint` are the steps of a sign-in; `http` sends
their requests.

The MCP library's pure functions are used. Its provider is not, because its lock serializes all requests.
"""

from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.registration import ClientIdentity
from bot.mcp.oauth.sign_ins import OAuthSignIns
from bot.mcp.oauth.token_providers import TokenProviders

__all__ = ["ClientIdentity", "OAuthDependencies", "OAuthSignIns", "TokenProviders"]
