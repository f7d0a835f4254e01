"""Signing in to MCP servers by OAuth: what keeps tokens good in every process, and who lets people sign in.

Called by `office`. What is here loads the MCP library, so nobody imports it before there is a house.
"""

from __future__ import annotations

from functools import partial

from bot.app.stores import Stores
from bot.commands.dependencies import LinkService
from bot.mcp.addresses import AllowedTargets
from bot.mcp.oauth import ClientIdentity, OAuthDependencies, OAuthSignIns, TokenProviders
from bot.mcp.redaction import KnownSecrets
from bot.mcp.toolbox import McpToolbox
from bot.ports import SignIns


def token_providers(kept: Stores, secrets: KnownSecrets, allowances: AllowedTargets) -> TokenProviders:
    """Whoever has the tokens of servers that are signed in to."""
    return TokenProviders(OAuthDependencies(kept.sign_ins, kept.leases, secrets, allowances))


def build_sign_ins(linking: LinkService | None, toolbox: McpToolbox, bearers: TokenProviders) -> SignIns | None:
    """Whoever lets people sign in, if there is an address that they can come back to."""
    return None if linking is None else OAuthSignIns(toolbox, bearers, partial(ClientIdentity.at, linking.address))
