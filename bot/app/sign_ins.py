"""Signing in to MCP servers by OAuth: what keeps tokens good in every process, and who lets people sign in.

Called by `office`. What is here loads the MCP library, so nobody imports it before there is a house.
"""

from __future__ import annotations

from functools import partial

from bot.app.stores import Stores
from bot.commands.parts import Linking
from bot.ports import SignIns
from bot.tools.addresses import Allowances
from bot.tools.oauth import Bearers, Desk, OAuthSignIns, Ourselves
from bot.tools.redaction import KnownSecrets
from bot.tools.toolbox import McpToolbox


def bearers_of(kept: Stores, secrets: KnownSecrets, allowances: Allowances) -> Bearers:
    """Whoever has the tokens of servers that are signed in to."""
    return Bearers(Desk(kept.sign_ins, kept.leases, secrets, allowances))


def sign_ins_of(linking: Linking | None, toolbox: McpToolbox, bearers: Bearers) -> SignIns | None:
    """Whoever lets people sign in, if there is an address that they can come back to."""
    return None if linking is None else OAuthSignIns(toolbox, bearers, partial(Ourselves.at, linking.address))
