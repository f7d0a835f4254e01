"""The stores of one database."""

from __future__ import annotations

from bot.app.secrets import UsableSecrets, secret_box
from bot.domain.secret_binding import FindGrants, SecretGrants
from bot.domain.turns import TurnLimits
from bot.settings import Settings, read_environment
from bot.storage.admin.api_tokens import SqlTokenStore
from bot.storage.admin.browser_sessions import SqlBrowserSessionStore
from bot.storage.admin.capabilities import SqlPinStore
from bot.storage.admin.gateway_calls import SqlGatewayCallStore
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.admin.installations import SqlInstallationStore
from bot.storage.admin.policies import SqlPolicyStore
from bot.storage.admin.profiles import SqlProfileStore
from bot.storage.admin.receipt_keys import SqlReceiptKeyStore
from bot.storage.admin.server_secrets import SqlLinkStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.admin.sign_ins import SqlSignInStore
from bot.storage.audit import SqlCallAudit
from bot.storage.coordination import SqlFaultStore, SqlLeases, SqlQuotas
from bot.storage.database import Database
from bot.storage.reporting import SqlReporting
from bot.storage.usage import SqlUsageStore
from bot.storage.user_data import SqlFeedbackStore, SqlLocaleStore


def turn_limits(settings: Settings) -> TurnLimits:
    """Return the limits of each user's turns."""
    return TurnLimits(settings.max_running_turns_per_user, settings.max_queued_turns_per_user)


class Stores:
    """All stores of one database. `grants` returns the grants of operators' secrets to admins."""

    def __init__(self, settings: Settings, database: Database, grants: FindGrants = SecretGrants) -> None:
        box, usable = secret_box(settings), UsableSecrets(settings, read_environment())
        self._database = database
        self.servers = SqlServerStore(database, box, usable.environment, usable.open_file, grants)
        self.policies = SqlPolicyStore(database)
        self.profiles = SqlProfileStore(database)
        self.reporting = SqlReporting(database, turn_limits(settings))
        self.grants = SqlGrantStore(database)
        self.feedback = SqlFeedbackStore(database)
        self.quotas = SqlQuotas(database)
        self.leases = SqlLeases(database)
        self.pins = SqlPinStore(database)
        self.gateway_calls = SqlGatewayCallStore(database)
        self.receipt_keys = SqlReceiptKeyStore(database, box)
        self.links = SqlLinkStore(database)
        self.sessions = SqlBrowserSessionStore(database, settings.console_session_idle, settings.console_session_max)
        self.tokens = SqlTokenStore(database)
        self.sign_ins = SqlSignInStore(database, box)
        self.usage = SqlUsageStore(database)
        self.faults = SqlFaultStore(database)
        self.locales = SqlLocaleStore(database)
        self.installations = SqlInstallationStore(database, box)
        self.call_audit = SqlCallAudit(database)

    def takes_writes(self) -> bool:
        """Return True if the database accepts writes."""
        return self._database.takes_writes
