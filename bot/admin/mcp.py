"""`/mcp`: the command with all its verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.admin.audit_search import AuditSearch
from bot.admin.command import Command
from bot.admin.dependencies import CommandDependencies
from bot.admin.grants import Grants
from bot.admin.policies.explain import PolicyExplain
from bot.admin.policies.verbs import ServerPolicies
from bot.admin.servers.catalog import CatalogCommands
from bot.admin.servers.checks import ServerChecks
from bot.admin.servers.control import ServerControl, ServerService
from bot.admin.servers.directory import ServerDirectory
from bot.admin.servers.editor import ServerAdd, ServerEdit
from bot.admin.servers.imports import PastedImport, ServerImport
from bot.admin.servers.listing import ServerListing
from bot.admin.servers.manual_calls import ManualCalls, PromptCommands, ResourceCommands
from bot.admin.servers.review import ServerReview
from bot.admin.servers.secrets import ServerSecrets
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.servers.validation import ServerValidator
from bot.admin.statistics import CallLog, ServerStatistics
from bot.i18n import gettext_lazy

OFF = gettext_lazy("MCP is switched off (`MCP_ENABLED=false`), so there are no servers and no tools.")


TOPICS: Mapping[str, Sequence[str]] = {
    gettext_lazy("what there is"): ("list", "show", "tools", "resource", "prompt"),
    gettext_lazy("add and change"): ("add", "import", "catalog", "edit", "remove", "secret", "reload"),
    gettext_lazy("on and off"): ("enable", "disable", "connect", "disconnect", "sync"),
    gettext_lazy("what may run"): ("policy", "grants", "review"),
    gettext_lazy("find out why"): ("verify", "doctor", "health", "stats"),
    gettext_lazy("what was done"): ("log", "audit"),
    gettext_lazy("by hand"): ("run",),
    gettext_lazy("help"): ("help",),
}
"""First words of the verbs by the lines of the help."""


def mcp_command(dependencies: CommandDependencies, directory: ServerDirectory) -> Command:
    """Return the command with all its verbs, those for all users first."""
    sign_in_steps = SignInSteps(dependencies, directory)
    listing = ServerListing(dependencies, directory, sign_in_steps)
    validator = ServerValidator(dependencies, directory)
    service = ServerService(dependencies, directory)
    catalog = CatalogCommands(dependencies)
    importing = ServerImport(dependencies, validator, service)
    return Command(
        "mcp",
        "MCP servers and their tools",
        (
            *listing.handlers,
            *ResourceCommands(directory).handlers,
            *PromptCommands(directory).handlers,
            *ServerAdd(dependencies, validator, service, catalog, importing).handlers,
            *catalog.handlers,
            *ServerEdit(dependencies, directory, validator, service).handlers,
            *ServerControl(dependencies, directory, service, sign_in_steps).handlers,
            *ServerChecks(dependencies, directory, sign_in_steps).handlers,
            *ServerPolicies(dependencies, directory).handlers,
            *PolicyExplain(dependencies, directory).handlers,
            *Grants(dependencies).handlers,
            *ServerSecrets(dependencies, directory, validator, sign_in_steps).handlers,
            *ManualCalls(directory).handlers,
            *CallLog(dependencies, directory).handlers,
            *AuditSearch(dependencies, directory).handlers,
            *ServerStatistics(dependencies, directory, sign_in_steps).handlers,
            # On platforms with a limit on verbs, the last ones that stand alone move into a menu of their own.
            *PastedImport(dependencies, importing).handlers,
            *ServerReview(dependencies, directory).handlers,
        ),
        dependencies.rights,
        objection=lambda: "" if dependencies.servers.enabled else OFF,
        topics=TOPICS,
    )
