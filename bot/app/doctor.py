"""`countersign doctor`: checks of the whole setup, with a fix for each failure.

Checks settings, the operator's files, models and their providers, Slack, Discord, web, database and every MCP server.
It works beside a running bot. Model checks read the list of models, and have the model make one call of a tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.admin.servers.checks import examine_server
from bot.app.audit import examine_audit
from bot.app.check_report import Report
from bot.app.database import current, open_migrated_database, upgrade
from bot.app.discord import examine_discord
from bot.app.model_checks import examine_models
from bot.app.operations import examine_operations_channel
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.app.slack import examine_installations, examine_slack
from bot.app.web import check_settings, is_configured
from bot.domain.hosts import is_this_machine
from bot.domain.profiles import Profile, ServersEnabled
from bot.domain.servers import ConnectPolicy
from bot.engine.config_files import describe_grant
from bot.engine.scheduler import UNDELIVERED_SECONDS
from bot.errors import CountersignError
from bot.examination import Check, CheckDoubtful, CheckSkipped, CheckStatus, failed_check, run_check
from bot.folders import find_folders
from bot.machine import machine_problems
from bot.platforms.console.local_user import LocalUser, fresh_conversation, login_name
from bot.settings import Settings, find_ineffective_settings

if TYPE_CHECKING:
    from bot.app.components import AppServices
    from bot.storage.database import Database

_OVERDUE_SECONDS = UNDELIVERED_SECONDS + 3_600.0
_WEB_SECONDS = 3.0

# -------------------- web


async def check_token(settings: Settings) -> str:
    """Check ADMIN_API_TOKEN."""
    check_settings(settings)
    if settings.admin_api_token is None:
        return "No ADMIN_API_TOKEN: programs use tokens from `countersign tokens create`."
    return "ADMIN_API_TOKEN is hard to guess."


async def check_port(settings: Settings) -> str:
    """Check that the port is free, or served by a running bot."""
    where = f"{settings.web_host}, port {settings.port}"
    if await _is_alive(settings):
        return f"A running bot answers at {where}."
    server = await asyncio.to_thread(importlib.import_module, "bot.web.server")
    server.bind_socket(settings.web_host, settings.port).close()
    return f"{where}, is free."


async def _is_alive(settings: Settings) -> bool:
    """Return True if `/healthz` answers as this bot does."""
    host = "127.0.0.1" if settings.web_host in ("0.0.0.0", "") else settings.web_host  # noqa: S104 - compared, not bound
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_WEB_SECONDS):
            reader, writer = await asyncio.open_connection(host, settings.port)
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read(65_536)
            finally:
                writer.close()
            return answer.startswith(b"HTTP/1.1 200 ") and b"x-request-id:" in answer.lower()
    return False


async def check_public_url(settings: Settings) -> str:
    """Check that what is typed on the bot's pages is encrypted."""
    if settings.public_url is None:
        raise CheckSkipped("No PUBLIC_URL: no links for entering secrets or signing in.")
    parts = urlsplit(settings.public_url)
    if parts.scheme == "https" or is_this_machine(parts.hostname or ""):
        return f"Links begin with {parts.scheme}://{parts.netloc.rpartition('@')[2]}."
    raise CheckDoubtful(
        "PUBLIC_URL is not https: what is typed on its pages could be read on the way.",
        "put a proxy with a certificate before it, and set PUBLIC_URL to its https address",
    )


WEB_CHECKS: Sequence[tuple[str, Callable[[Settings], Awaitable[str]]]] = (
    ("token", check_token),
    ("address", check_port),
    ("public address", check_public_url),
)


async def examine_web(settings: Settings) -> AsyncGenerator[Check, None]:
    """Check all web settings; no checks if none is set."""
    for name, probe in WEB_CHECKS if is_configured(settings) else ():
        yield await run_check(name, partial(probe, settings), timed=False)


# -------------------- settings and files


async def examine_settings(settings: Settings) -> AsyncGenerator[Check, None]:
    """Check the environment and the machine."""
    yield Check("environment", CheckStatus.WELL, "It can be read.")
    folders = find_folders()
    places = f"Files are in {folders.config.absolute()}, data is in {settings.data_folder.absolute()}"
    yield Check("folders", CheckStatus.WELL, f"{places}: {folders.reason}.")
    for name, fix in find_ineffective_settings(settings).items():
        yield Check("environment", CheckStatus.DOUBTFUL, f"{name} has no effect.", fix)
    for problem in machine_problems():
        yield replace(failed_check("machine", problem), finding=CheckStatus.DOUBTFUL)
    try:
        check_operator_secrets(settings)
        yield Check("secrets", CheckStatus.WELL, "Those that the operator has chosen are hard to guess.")
    except CountersignError as error:
        yield failed_check("secrets", error)


async def examine_files(settings: Settings, files: OperatorFiles) -> AsyncGenerator[Check, None]:
    """Check the operator's files for entries that have no effect."""
    checks = list(_check_entries(settings, files))
    for check in checks or [Check("files", CheckStatus.WELL, "They can be read.")]:
        yield check
    detail = "The user who asked may approve a call that deletes nothing and names no others, unless a rule says more."
    if not files.policies.self_approval:
        detail = f"Only approvers approve: {files.policies.name} has self_approval = false."
    yield Check("approvals", CheckStatus.WELL, detail)


def _check_entries(settings: Settings, files: OperatorFiles) -> Iterator[Check]:
    for warning in files.servers.warnings:
        yield Check("servers file", CheckStatus.DOUBTFUL, warning)
    for problem in files.launches.problems:
        yield Check("launch templates", CheckStatus.BROKEN, problem, "correct the file")
    fix = "write its version behind it, such as PACKAGE@1.2.3"
    for warning in files.launches.warnings:
        yield Check("launch templates", CheckStatus.DOUBTFUL, warning, fix)
    name, where = "secret grants", files.secret_grants.source
    for grant in files.secret_grants.grants:
        yield Check(name, CheckStatus.WELL, f"{where}, line {grant.line}: {describe_grant(grant)}")
    for rejected in files.secret_grants.problems:  # servers report missing grants themselves
        line = f", line {rejected.line}" if rejected.line else ""
        yield Check(name, CheckStatus.BROKEN, f"{where}{line}: {rejected.cause} It grants nothing.", rejected.fix)
    for name in files.unknown_servers():
        text = f"{settings.policy_file} has policies for {name!r}, which is no server of the file."
        yield Check("policies", CheckStatus.DOUBTFUL, text, "correct the name")
    fix = "correct the name, unless it is that of a server which admins have added"
    for rule in files.unused_rules():
        text = f"{rule.id} is about {rule.server!r}, which no enabled server of the file is called."
        yield Check("policies", CheckStatus.DOUBTFUL, text, fix)


# -------------------- database and servers


async def _examine_database(report: Report, settings: Settings, files: OperatorFiles) -> None:
    from bot.app.runtime import open_services  # noqa: PLC0415 - the other checks do not need MCP

    person = LocalUser(login_name())
    try:
        if settings.auto_migrate and not (await current(settings))[0]:
            # Not started yet: report the effect of the first start. A database in use is left unchanged.
            await upgrade(settings)
        async with open_migrated_database(settings, migrate=False) as database:
            report.add("database", Check("opened", CheckStatus.WELL, database.name))
            report.add("database", await run_check("written", partial(_check_writes, database), timed=False))
            content = partial(_check_content, settings, database)
            report.add("database", await run_check("content", content, timed=False))
            report.add("audit", await examine_audit(settings, database))
            async with open_services(
                settings, files, database, operator=person.author.principal, connect=ConnectPolicy.LAZY
            ) as services:
                async with aclosing(examine_installations(settings, services.stores.installations)) as of_workspaces:
                    async for check in of_workspaces:
                        report.add("slack", check)
                await _examine_servers(report, settings, services, person)
    except CountersignError as error:
        report.add("database", failed_check("opened", error))


async def _examine_servers(report: Report, settings: Settings, services: AppServices, person: LocalUser) -> None:
    for check in _check_profiles(settings, await services.stores.profiles.profiles()):
        report.add("servers", check)
    if not services.toolbox.enabled:
        report.add("servers", Check("MCP", CheckStatus.SKIPPED, "MCP is switched off (MCP_ENABLED=false)."))
    for state in services.toolbox.servers():
        here = (person.member, person.key(fresh_conversation()))
        checks = examine_server(services.toolbox, services.administration, state.config, *here)
        await report.add_all(state.config.name, checks)


def _check_profiles(settings: Settings, profiles: Sequence[Profile]) -> Iterator[Check]:
    """Report MCP_SERVERS_ENABLED=per_profile, and the profiles that enable servers without naming them."""
    if settings.mcp_servers_enabled is ServersEnabled.ALL:
        return
    if everything := ", ".join(profile.name for profile in profiles if profile.servers is None):
        detail = f"MCP_SERVERS_ENABLED=per_profile, but these enable every server, also later ones: {everything}."
        yield Check("profiles", CheckStatus.DOUBTFUL, detail, "name their servers: /profile set NAME --server SERVER")
        return
    detail = "Each server is off until a profile enables it (MCP_SERVERS_ENABLED=per_profile)."
    yield Check("profiles", CheckStatus.WELL, detail)


async def _check_writes(database: Database) -> str:
    await database.check_writable()
    return "It takes what is written."


async def _check_content(settings: Settings, database: Database) -> str:
    """Report how long questions, answers and results are kept, and if any are kept for longer."""
    from bot.storage.turn_log.retention import overdue_content  # noqa: PLC0415 - with the database's libraries

    if settings.keeps_content:
        days = f"{settings.retention_days:g} day{'' if settings.retention_days == 1 else 's'}"
        return f"Turns are kept for {days} after their end (RETENTION_DAYS)."
    kept = "Nothing that is asked, answered or returned is kept once the answer is out (RETENTION_DAYS=0)"
    if overdue := await overdue_content(database, _OVERDUE_SECONDS):
        left = "1 ended turn" if overdue == 1 else f"{overdue} ended turns"
        raise CheckDoubtful(f"{kept}, but {left} still has content.", "start the bot")
    return f"{kept}.{' PostgreSQL frees deleted rows at its next VACUUM.' if database.shared else ''}"


# -------------------- all checks

EXAMINATIONS: Mapping[str, Callable[[Settings, OperatorFiles], AsyncGenerator[Check, None]]] = {
    "model": examine_models,
    "slack": lambda settings, files: examine_slack(settings, files.policies.all_rules),
    "discord": lambda settings, files: examine_discord(settings, files.policies.all_rules),
    "operations": lambda settings, _files: examine_operations_channel(settings),
    "web": lambda settings, _files: examine_web(settings),
}
"""Checks by subject, of what the setup sets up. Those of settings, files, database and servers are run by the doctor
alone.
"""


async def examine_all(settings: Settings, *, as_json: bool) -> int:
    """Run all checks and print each result on its line. Return the exit code."""
    report = Report(as_json=as_json)
    await report.add_all("settings", examine_settings(settings))
    try:
        files = read_operator_files(settings)
    except CountersignError as error:
        report.add("settings", failed_check("files", error))
        return 1
    await report.add_all("settings", examine_files(settings, files))
    for subject, examine in EXAMINATIONS.items():
        await report.add_all(subject, examine(settings, files))
    with report.guard("servers"):
        await _examine_database(report, settings, files)
    return 1 if report.worst is CheckStatus.BROKEN else 0


async def examine_subjects(
    settings: Settings, subjects: Sequence[str], *, as_json: bool, prefix: str = ""
) -> CheckStatus:
    """Run the checks of some subjects alone (`model`, `slack`, `discord`) and print each result on its line, behind
    `prefix`. Return the worst of them.
    """
    report, files = Report(as_json=as_json, prefix=prefix), read_operator_files(settings)
    for subject in subjects:
        await report.add_all(subject, EXAMINATIONS[subject](settings, files))
    return report.worst
