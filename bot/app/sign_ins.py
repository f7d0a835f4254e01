"""OAuth sign-in to MCP servers: token providers and the sign-in service. Imports the MCP library, so import it late."""

from __future__ import annotations

from functools import partial

from bot.app.stores import Stores
from bot.commands.dependencies import LinkService
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.oauth import ClientIdentity, OAuthDependencies, OAuthSignIns, TokenProviders
from bot.mcp.redaction import KnownSecrets
from bot.mcp.toolbox import McpToolbox
from bot.ports import SignIns


def token_providers(kept: Stores, secrets: KnownSecrets, allowances: AllowedTargets) -> TokenProviders:
    """Return the token providers of all servers that are signed in to."""
    return TokenProviders(OAuthDependencies(kept.sign_ins, kept.leases, secrets, allowances))


def build_sign_ins(linking: LinkService | None, toolbox: McpToolbox, bearers: TokenProviders) -> SignIns | None:
    """Return the sign-in service, None without a public address for the callback."""
    return None if linking is None else OAuthSignIns(toolbox, bearers, partial(ClientIdentity.at, linking.address))
