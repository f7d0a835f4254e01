"""`countersign doctor`: is everything there that a bot needs, and what to do where it is not.

Settings, the operator's files, the models and their services, Slack, Discord, the web part, database, then every MCP
server. It works beside a running bot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

from bot.app.audit import examine_audit
from bot.app.database import current, open_migrated_database, upgrade
from bot.app.discord import examine_discord
from bot.app.login import login_name
from bot.app.model_check import examine_models
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.app.services import open_services
from bot.app.slack import examine_slack
from bot.app.web_check import examine_web
from bot.domain.checks import Check, CheckStatus
from bot.domain.secret_grants import SecretGrants
from bot.domain.servers import ConnectPolicy
from bot.engine.secret_grant_file import describe_grant
from bot.errors import CountersignError, DatabaseError, SettingsError
from bot.platforms.console.local_user import LocalUser
from bot.rendering.text_safety import single_line
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.database import Database

_MARKS = {CheckStatus.WELL: "✓", CheckStatus.DOUBTFUL: "!", CheckStatus.BROKEN: "✗", CheckStatus.SKIPPED: "-"}
_LONGEST = 600
"""Characters of what was found, and of its fix."""


async def examine_all(settings: Settings, *, as_json: bool) -> int:
    """Look at everything and say what was found, line by line; the exit code."""
    broken = False
    async with aclosing(_checks(settings)) as checks:
        async for subject, check in checks:
            broken |= check.finding is CheckStatus.BROKEN
            sys.stdout.write(f"{_json(subject, check) if as_json else _line(subject, check)}\n")
            sys.stdout.flush()
    return 1 if broken else 0


def _json(subject: str, check: Check) -> str:
    return json.dumps({"subject": subject, **asdict(check)})


def _line(subject: str, check: Check) -> str:
    took = f" ({check.seconds * 1000:.0f} ms)" if check.seconds is not None else ""
    fix = f" Fix: {single_line(check.fix, _LONGEST)}" if check.fix else ""
    return (
        f"{_MARKS[check.finding]} {subject} · {check.name}  {single_line(check.detail, _LONGEST)}{took}{fix}".rstrip()
    )


async def _checks(settings: Settings) -> AsyncGenerator[tuple[str, Check], None]:
    """What was looked at, and what was found."""
    yield "settings", Check("environment", CheckStatus.WELL, "It can be read.")
    yield "settings", _of_secrets(settings)
    try:
        files = read_operator_files(settings)
    except CountersignError as error:
        yield "settings", _broken("files", error)
        return
    for check in _of_files(settings, files):
        yield "settings", check
    async with aclosing(examine_models(settings, files)) as of_models:
        async for check in of_models:
            yield "model", check
    async with aclosing(examine_slack(settings)) as of_slack:
        async for check in of_slack:
            yield "slack", check
    async with aclosing(examine_discord(settings)) as of_discord:
        async for check in of_discord:
            yield "discord", check
    async with aclosing(examine_web(settings)) as of_web:
        async for check in of_web:
            yield "web", check
    async with aclosing(_of_database_and_servers(settings, files)) as found:
        async for each in found:
            yield each


def _of_secrets(settings: Settings) -> Check:
    try:
        check_operator_secrets(settings)
    except SettingsError as error:
        return _broken("secrets", error)
    return Check("secrets", CheckStatus.WELL, "Those that the operator has chosen are hard to guess.")


def _of_files(settings: Settings, files: OperatorFiles) -> list[Check]:
    checks = [Check("servers file", CheckStatus.DOUBTFUL, warning) for warning in files.servers.warnings]
    checks += [
        Check("launch templates", CheckStatus.BROKEN, problem, "correct the file")
        for problem in files.launches.problems
    ]
    checks += [
        Check("launch templates", CheckStatus.DOUBTFUL, warning, "write its version behind it, such as PACKAGE@1.2.3")
        for warning in files.launches.warnings
    ]
    checks += _of_grants(files.secret_grants)
    checks += [
        Check(
            "policies",
            CheckStatus.DOUBTFUL,
            f"{settings.policy_file} has policies for {name!r}, which is no server of the file.",
            "correct the name",
        )
        for name in files.unknown_servers()
    ]
    checks += [
        Check(
            "policies",
            CheckStatus.DOUBTFUL,
            f"{rule.id} is about {rule.server!r}, which no enabled server of the file is called.",
            "correct the name, unless it is that of a server which admins have added",
        )
        for rule in files.unused_rules()
    ]
    return checks or [Check("files", CheckStatus.WELL, "They can be read.")]


def _of_grants(grants: SecretGrants) -> list[Check]:
    """What the file of secret grants allows, and which of its entries grant nothing. A server that is kept from a
    reference says so itself.
    """
    where = grants.source
    return [
        *(
            Check("secret grants", CheckStatus.WELL, f"{where}, line {grant.line}: {describe_grant(grant)}")
            for grant in grants.grants
        ),
        *(
            Check(
                "secret grants",
                CheckStatus.BROKEN,
                f"{where}{f', line {problem.line}' if problem.line else ''}: {problem.cause} It grants nothing.",
                problem.fix,
            )
            for problem in grants.problems
        ),
    ]


async def _of_database_and_servers(settings: Settings, files: OperatorFiles) -> AsyncGenerator[tuple[str, Check], None]:
    operator = LocalUser(login_name()).author.principal
    try:
        if settings.auto_migrate and not (await current(settings))[0]:
            # Nobody has started yet: what the first start would do. A database that is in use is left as it is.
            await upgrade(settings)
        async with open_migrated_database(settings, migrate=False) as database:
            yield "database", Check("opened", CheckStatus.WELL, database.name)
            yield "database", await _written(database)
            yield "audit", await examine_audit(settings, database)
            async with open_services(
                settings, files, database, operator=operator, connect=ConnectPolicy.LAZY
            ) as office:
                if not office.toolbox.enabled:
                    yield "servers", Check("MCP", CheckStatus.SKIPPED, "MCP is switched off (MCP_ENABLED=false).")
                for state in office.toolbox.servers():
                    async with aclosing(office.toolbox.diagnose(state.config.id)) as checks:
                        async for check in checks:
                            yield state.config.name, check
    except CountersignError as error:
        yield "database", _broken("opened", error)


async def _written(database: Database) -> Check:
    try:
        await database.check_writable()
    except DatabaseError as error:
        return _broken("written", error)
    return Check("written", CheckStatus.WELL, "It takes what is written.")


def _broken(name: str, error: CountersignError) -> Check:
    return Check(name, CheckStatus.BROKEN, error.cause, error.fix)
