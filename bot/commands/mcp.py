"""`/mcp`: servers and their tools, put together from its topics."""

from __future__ import annotations

from bot.commands.audit_search import AuditSearch
from bot.commands.command import Command
from bot.commands.directory import Directory
from bot.commands.grants import Grants
from bot.commands.parts import CommandParts
from bot.commands.policy_explaining import PolicyExplaining
from bot.commands.server_adding import ServerAdding
from bot.commands.server_checks import ServerChecks
from bot.commands.server_drafting import ServerDrafting
from bot.commands.server_editing import ServerEditing
from bot.commands.server_keeping import ServerKeeping
from bot.commands.server_listing import ServerListing
from bot.commands.server_past import ServerPast
from bot.commands.server_policies import ServerPolicies
from bot.commands.server_review import ServerReview
from bot.commands.server_secrets import ServerSecrets
from bot.commands.server_statistics import ServerStatistics
from bot.commands.server_switches import ServerSwitches
from bot.commands.server_use import ServerUse
from bot.commands.signing_in import SigningIn

OFF = "MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools."


def mcp_command(parts: CommandParts, directory: Directory) -> Command:
    """The command with all its verbs, the ones for everybody first."""
    signing_in = SigningIn(parts, directory)
    listing = ServerListing(parts, directory, signing_in)
    drafting = ServerDrafting(parts, directory)
    keeping = ServerKeeping(parts, directory)
    return Command(
        "mcp",
        "MCP servers and their tools",
        (
            *listing.deeds,
            ServerAdding(parts, drafting, keeping).deed,
            ServerEditing(parts, directory, drafting, keeping).deed,
            *ServerSwitches(parts, directory, keeping, signing_in).deeds,
            *ServerChecks(parts, directory, signing_in).deeds,
            *ServerPolicies(parts, directory).deeds,
            PolicyExplaining(parts, directory).deed,
            *Grants(parts).deeds,
            *ServerSecrets(parts, directory, drafting, signing_in).deeds,
            ServerPast(parts, directory).deed,
            AuditSearch(parts, directory).deed,
            *ServerStatistics(parts, directory, signing_in).deeds,
            # What stands last moves into a menu of its own where a platform takes only so many verbs.
            *ServerUse(parts, directory).deeds,
            *ServerReview(parts, directory).deeds,
            *listing.more_deeds,
        ),
        parts.rights,
        objection=lambda: "" if parts.servers.enabled else OFF,
    )
