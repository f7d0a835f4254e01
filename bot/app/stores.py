"""The stores over one database: admins' configuration, users' data and shared state. Loads the database libraries."""

from __future__ import annotations

from dataclasses import dataclass

from bot.app.secrets import UsableSecrets
from bot.domain.secret_binding import FindGrants, no_grants
from bot.domain.turns import NO_TURN_LIMITS, TurnLimits
from bot.storage.api_tokens import SqlTokenStore
from bot.storage.capabilities import SqlPinStore
from bot.storage.coordination import SqlLeases, SqlQuotas
from bot.storage.database import Database
from bot.storage.encryption import SecretBox
from bot.storage.feedback import SqlFeedbackStore
from bot.storage.grants import SqlGrantStore
from bot.storage.links import SqlLinkStore
from bot.storage.policies import SqlPolicyStore
from bot.storage.profiles import SqlProfileStore
from bot.storage.reporting import SqlReporting
from bot.storage.servers import SqlServerStore
from bot.storage.sign_ins import SqlSignInStore
from bot.storage.usage import SqlUsageStore


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one database."""

    servers: SqlServerStore
    policies: SqlPolicyStore
    profiles: SqlProfileStore
    archive: SqlReporting
    grants: SqlGrantStore
    opinions: SqlFeedbackStore
    quotas: SqlQuotas
    leases: SqlLeases
    pins: SqlPinStore
    links: SqlLinkStore
    tokens: SqlTokenStore
    sign_ins: SqlSignInStore
    usage: SqlUsageStore


def build_stores(
    database: Database,
    box: SecretBox,
    usable: UsableSecrets,
    grants: FindGrants = no_grants,
    limits: TurnLimits = NO_TURN_LIMITS,
) -> Stores:
    """Build the stores. `usable` restricts references to secrets, `grants` those of admins. `limits` are the turns of
    one user.
    """
    return Stores(
        SqlServerStore(database, box, usable.environment, usable.open_file, grants),
        SqlPolicyStore(database),
        SqlProfileStore(database),
        SqlReporting(database, limits),
        SqlGrantStore(database),
        SqlFeedbackStore(database),
        SqlQuotas(database),
        SqlLeases(database),
        SqlPinStore(database),
        SqlLinkStore(database),
        SqlTokenStore(database),
        SqlSignInStore(database, box),
        SqlUsageStore(database),
    )
