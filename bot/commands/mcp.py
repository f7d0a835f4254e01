"""`/mcp`: servers and their tools, put together from its topics."""

from __future__ import annotations

from bot.commands.audit_search import AuditSearch
from bot.commands.call_log import CallLog
from bot.commands.command import Command
from bot.commands.dependencies import CommandDependencies
from bot.commands.grants import Grants
from bot.commands.manual_calls import ManualCalls
from bot.commands.policy_explain import PolicyExplain
from bot.commands.server_add import ServerAdd
from bot.commands.server_checks import ServerChecks
from bot.commands.server_control import ServerControl
from bot.commands.server_directory import ServerDirectory
from bot.commands.server_edit import ServerEdit
from bot.commands.server_listing import ServerListing
from bot.commands.server_policies import ServerPolicies
from bot.commands.server_review import ServerReview
from bot.commands.server_secrets import ServerSecrets
from bot.commands.server_service import ServerService
from bot.commands.server_statistics import ServerStatistics
from bot.commands.server_validation import ServerValidator
from bot.commands.sign_in import SignInSteps

OFF = "MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools."


def mcp_command(parts: CommandDependencies, directory: ServerDirectory) -> Command:
    """The command with all its verbs, the ones for everybody first."""
    signing_in = SignInSteps(parts, directory)
    listing = ServerListing(parts, directory, signing_in)
    drafting = ServerValidator(parts, directory)
    keeping = ServerService(parts, directory)
    return Command(
        "mcp",
        "MCP servers and their tools",
        (
            *listing.deeds,
            ServerAdd(parts, drafting, keeping).deed,
            ServerEdit(parts, directory, drafting, keeping).deed,
            *ServerControl(parts, directory, keeping, signing_in).deeds,
            *ServerChecks(parts, directory, signing_in).deeds,
            *ServerPolicies(parts, directory).deeds,
            PolicyExplain(parts, directory).deed,
            *Grants(parts).deeds,
            *ServerSecrets(parts, directory, drafting, signing_in).deeds,
            CallLog(parts, directory).deed,
            AuditSearch(parts, directory).deed,
            *ServerStatistics(parts, directory, signing_in).deeds,
            # What stands last moves into a menu of its own where a platform takes only so many verbs.
            *ManualCalls(parts, directory).deeds,
            *ServerReview(parts, directory).deeds,
            *listing.more_deeds,
        ),
        parts.rights,
        objection=lambda: "" if parts.servers.enabled else OFF,
    )
