"""Signing in to servers by OAuth 2.1, the client's side (MCP specification 2026-07-28, basic/authorization).

`sign_ins` lets a person sign the bot in; `bearer` has the token that comes of it, which `holding` knows and `renewal`
keeps good, and `carrying` puts it on requests. `discovery`, `registration`, `authorization` and `tokens` are the steps;
`asking` sends what they ask. The MCP library's pure functions do what the specification says letter by letter; its
provider is not used, because its lock lets one request pass at a time.
"""

from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.registration import ClientIdentity
from bot.mcp.oauth.sign_ins import OAuthSignIns
from bot.mcp.oauth.token_providers import TokenProviders

__all__ = ["ClientIdentity", "OAuthDependencies", "OAuthSignIns", "TokenProviders"]
