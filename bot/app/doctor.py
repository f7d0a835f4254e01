"""`countersign doctor`: checks of the whole setup, with a fix for each failure.

Checks settings, the operator's files, models and their providers, Slack, Discord, web, database and every MCP server.
It works beside a running bot. Model checks read the list of models, and have the model make one call of a tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import importlib
import json
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from bot.app.audit import examine_audit
from bot.app.database import current, open_migrated_database, upgrade
from bot.app.discord import examine_discord
from bot.app.models import select_model
from bot.app.operations import examine_operations_channel
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.app.slack import examine_installations, examine_slack
from bot.app.web import check_settings, is_configured
from bot.commands.server_checks import checks_in_place
from bot.commands.server_directory import capabilities
from bot.commands.text_format import pluralize
from bot.domain.completions import Completion, ModelLimits, ModelRequest
from bot.domain.health import Check, CheckStatus
from bot.domain.hosts import is_this_machine
from bot.domain.messages import user
from bot.domain.profiles import Profile, ServersEnabled
from bot.domain.secret_binding import SecretGrants
from bot.domain.servers import ConnectPolicy
from bot.domain.tools import OWN_SERVER, Tool
from bot.engine.config_files import describe_grant
from bot.engine.scheduler import UNDELIVERED_SECONDS
from bot.errors import CountersignError, DatabaseError, ModelUnavailable, SettingsError
from bot.folders import find_folders, in_shell
from bot.llm.models import (
    PARSE_CALLS,
    Availability,
    Available,
    ListsModels,
    ModelChoice,
    NotListed,
    NotReported,
    Retired,
)
from bot.llm.providers import PROVIDERS
from bot.llm.static_embeddings import load_embedder
from bot.machine import machine_problems
from bot.platforms.console.local_user import LocalUser, fresh_conversation, login_name
from bot.rendering.text_safety import single_line
from bot.settings import Settings, find_ineffective_settings

if TYPE_CHECKING:
    from bot.storage.database import Database

log = logging.getLogger(__name__)

T = TypeVar("T")
_LONGEST = 600
"""Longest finding and longest fix in characters."""
_LONGEST_NAME = 60
_MOST_NAMES = 5
_OVERDUE_SECONDS = UNDELIVERED_SECONDS + 3_600.0
_WEB_SECONDS = 3.0
TRIAL_SECONDS = 60.0
_TRIAL_TOOL = Tool(
    "note_word",
    OWN_SERVER,
    "note_word",
    description="Notes one word.",
    input_schema={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_TRIAL = ModelRequest(
    (user("Call the tool note_word with the word ready. Write nothing else."),),
    (_TRIAL_TOOL,),
    limits=ModelLimits(max_tokens=2_048),
)

# -------------------- models


async def examine_models(settings: Settings, files: OperatorFiles) -> AsyncGenerator[Check, None]:
    """Check the bot's own model, each of its fallbacks, and the model of the search among tools."""
    try:
        choice = select_model(settings)
    except CountersignError as error:
        yield _broken_check("configured", error)
        return
    yield Check("configured", CheckStatus.WELL, choice.label)
    for check in (*_of_order(choice), *_of_windows(settings, choice), *_of_prices(settings, files, choice)):
        yield check
    for checks in await asyncio.gather(*map(_check_model, choice.all)):
        for check in checks:
            yield check
    if (folder := settings.tool_search_embeddings) is not None:
        try:
            await asyncio.to_thread(load_embedder, folder, "TOOL_SEARCH_EMBEDDINGS")
            yield Check("embeddings", CheckStatus.WELL, f"The search among tools uses {folder}.")
        except CountersignError as error:
            yield _broken_check("embeddings", error)


def _of_order(choice: ModelChoice) -> list[Check]:
    names = choice.names
    if "demo" not in names[:-1]:
        return []
    problem = f"The demo always answers: {', '.join(names[names.index('demo') + 1 :])} will never be asked."
    return [Check("order", CheckStatus.DOUBTFUL, problem, "write demo last, or leave it out")]


def _of_windows(settings: Settings, choice: ModelChoice) -> list[Check]:
    checks = []
    before: list[str] = []
    for pattern, _ in settings.context_tokens:
        fitting = [name for name in choice.names if fnmatchcase(name, pattern)]
        if pattern != "*" and not fitting:
            problem = f"CONTEXT_TOKENS has a window for {pattern!r}, which no model of BOT_MODEL is called."
            fix = "write it like PROVIDER:NAME, with * for any letters, unless a profile names such a model"
            checks.append(Check("windows", CheckStatus.DOUBTFUL, problem, fix))
        elif pattern != "*" and all(any(fnmatchcase(name, earlier) for earlier in before) for name in fitting):
            problem = f"The window that CONTEXT_TOKENS has for {pattern!r} never counts: one before it fits as well."
            checks.append(Check("windows", CheckStatus.DOUBTFUL, problem, "write the narrower ones first"))
        before.append(pattern)
    return checks


def _of_prices(settings: Settings, files: OperatorFiles, choice: ModelChoice) -> list[Check]:
    why = f"has no price in {settings.prices_file}: limits on money do not count it."
    names = files.unpriced_models(choice.names)
    return [Check("prices", CheckStatus.DOUBTFUL, f"{name} {why}", "write its price there") for name in names]


async def _check_model(choice: ModelChoice) -> list[Check]:
    service = await check_service(choice)
    is_usable = service.finding is not CheckStatus.BROKEN and bool(choice.config)
    return [service, *([await _check_call(choice)] if is_usable else [])]


async def _check_call(choice: ModelChoice) -> Check:
    """Have the model call a tool, which costs some tokens."""
    began = monotonic()
    finding, fix = CheckStatus.DOUBTFUL, ""
    try:
        model = await asyncio.to_thread(choice.create)
        try:
            began = monotonic()
            async with asyncio.timeout(TRIAL_SECONDS), aclosing(model.stream(_TRIAL)) as events:
                replies = [event async for event in events if isinstance(event, Completion)]
            takes_tools = model.capabilities.tools
        finally:
            await model.close()
    except TimeoutError:
        detail = f"It did not answer a trial within {TRIAL_SECONDS:g} seconds."
        fix = "ask it something: a server that loads the model with the first question takes longer then"
    except CountersignError as error:
        detail, fix = f"A trial of a tool call failed: {error.cause}", error.fix
        if not isinstance(error, ModelUnavailable):
            finding = CheckStatus.BROKEN
    else:
        called = any(call.name == _TRIAL_TOOL.name for reply in replies for call in reply.message.tool_calls)
        if not takes_tools:
            detail, fix = "Its service refuses tools: it answers without them.", f"use another model, or {PARSE_CALLS}"
        elif not called:
            detail = "It answered a trial without calling the tool that it was asked for."
            fix = "use a model that is made for tool calls"
        elif replies[-1].calls_as_text:
            detail = "It wrote a trial call as text, because its service does not parse it."
            fix = f"{PARSE_CALLS}, or use a model that is made for tool calls"
        else:
            finding, detail = CheckStatus.WELL, "It called the tool of a trial properly."
    return Check(f"{choice.name} tool call", finding, detail, fix, monotonic() - began)


async def check_service(choice: ModelChoice) -> Check:
    """Check that a model's service takes the key and has the model."""
    began = monotonic()
    try:
        model = await asyncio.to_thread(choice.create)
        try:
            if not isinstance(model, ListsModels):
                return Check(choice.name, CheckStatus.WELL, "It needs no service.")
            began = monotonic()  # loading the vendor's library does not count
            return _as_check(choice, model, await model.look_up(), monotonic() - began)
        finally:
            await model.close()
    except CountersignError as error:
        return Check(choice.name, CheckStatus.BROKEN, error.cause, error.fix, monotonic() - began)


def _as_check(choice: ModelChoice, model: ListsModels, availability: Availability, seconds: float) -> Check:
    service = model.service_name
    match availability:
        case Available(window, until) if until:
            finding, result = CheckStatus.DOUBTFUL, f"{service} has it until {until}.{_window(choice, model, window)}"
            fix = "name a newer one in BOT_MODEL by then"
        case Available(int(window)) if choice.window is not None and choice.window > window:
            finding = CheckStatus.DOUBTFUL
            result = f"{service} has it, with a window of {window:,} tokens. CONTEXT_TOKENS says {choice.window:,}."
            fix = "set CONTEXT_TOKENS to no more than that for it, or leave it out"
        case Available(window):
            finding, result, fix = CheckStatus.WELL, f"{service} has it.{_window(choice, model, window)}", ""
        case Retired():
            finding, result = CheckStatus.BROKEN, f"{service} has retired it: nothing is answered with it any more."
            fix = "name a newer one in BOT_MODEL"
        case NotListed(names):
            result = f"{service} does not list it among its {pluralize(len(names), 'model')}."
            fix = f"have it loaded there, or name one that it has{_such_as(choice, names)}"
            finding = CheckStatus.BROKEN
            # Only the provider's own list is complete. Servers at a custom address often accept names
            # that they do not list.
            provider = PROVIDERS.get(choice.name.partition(":")[0])
            if not (provider is not None and provider.address is not None):
                finding, fix = CheckStatus.DOUBTFUL, f"if questions fail, {fix}"
        case NotReported(why):
            finding = CheckStatus.DOUBTFUL
            result = f"{service} was reached, and could not be asked which models it has" + (f": {why}" if why else "")
            result, fix = (
                f"{result.rstrip('.')}.",
                "ask it something: it may answer all the same" if why else _address(choice),
            )
    return Check(choice.name, finding, result, fix, seconds)


def _address(choice: ModelChoice) -> str:
    ending = ", which mostly ends " + ("before /v1" if choice.module == "anthropic" else "with /v1")
    return f"if questions fail, correct the address in {choice.config['variables']}_BASE_URL{ending}"


def _window(choice: ModelChoice, model: ListsModels, tokens: int | None) -> str:
    if choice.window is not None:
        return f" CONTEXT_TOKENS gives it a window of {choice.window:,} tokens."
    if tokens is not None:
        return f" Its window has {tokens:,} tokens."
    window = model.capabilities.context_tokens
    return f" How large its window is was not said: without CONTEXT_TOKENS it is taken for {window:,} tokens."


def _such_as(choice: ModelChoice, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(choice.config["model"], names, _MOST_NAMES) or sorted(names)[:_MOST_NAMES]
    return f", such as {', '.join(single_line(name, _LONGEST_NAME) for name in close)}" if close else ""


# -------------------- web


async def examine_web(settings: Settings) -> AsyncGenerator[Check, None]:
    """Check all web settings; no checks if none is set."""
    if not is_configured(settings):
        return
    yield _of_token(settings)
    yield await _of_port(settings)
    yield _of_public_url(settings)


def _of_token(settings: Settings) -> Check:
    try:
        check_settings(settings)
    except SettingsError as error:
        return _broken_check("token", error)
    text = "ADMIN_API_TOKEN is hard to guess."
    if settings.admin_api_token is None:
        text = "No ADMIN_API_TOKEN: programs use tokens from `countersign tokens create`."
    return Check("token", CheckStatus.WELL, text)


async def _of_port(settings: Settings) -> Check:
    """Check that the port is free, or served by a running bot."""
    where = f"{settings.web_host}, port {settings.port}"
    if await _is_alive(settings):
        return Check("address", CheckStatus.WELL, f"A running bot answers at {where}.")
    server = await asyncio.to_thread(importlib.import_module, "bot.web.server")
    try:
        server.bind_socket(settings.web_host, settings.port).close()
    except SettingsError as error:
        return _broken_check("address", error)
    return Check("address", CheckStatus.WELL, f"{where}, is free.")


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


def _of_public_url(settings: Settings) -> Check:
    name = "public address"
    if settings.public_url is None:
        return Check(name, CheckStatus.SKIPPED, "No PUBLIC_URL: no links for entering secrets or signing in.")
    parts = urlsplit(settings.public_url)
    if parts.scheme == "https" or is_this_machine(parts.hostname or ""):
        return Check(name, CheckStatus.WELL, f"Links begin with {parts.scheme}://{parts.netloc.rpartition('@')[2]}.")
    text = "PUBLIC_URL is not https: what is typed on its pages could be read on the way."
    fix = "put a proxy with a certificate before it, and set PUBLIC_URL to its https address"
    return Check(name, CheckStatus.DOUBTFUL, text, fix)


# -------------------- all checks


async def examine_all(settings: Settings, *, as_json: bool) -> int:
    """Run all checks and print each result on its line. Return the exit code."""
    broken = False
    async with aclosing(_checks(settings)) as checks:
        async for subject, check in checks:
            broken |= check.finding is CheckStatus.BROKEN
            sys.stdout.write(f"{_json(subject, check) if as_json else _line(subject, check)}\n")
            sys.stdout.flush()
    return 1 if broken else 0


async def examine_subjects(
    settings: Settings, subjects: Sequence[str], *, as_json: bool, prefix: str = ""
) -> CheckStatus:
    """Run the checks of some subjects alone (`model`, `slack`, `discord`) and print each result on its line, behind
    `prefix`. Return the worst of them.
    """
    worst = CheckStatus.WELL
    examinations = _examinations(settings, read_operator_files(settings))
    for subject in subjects:
        async for check in _survived(examinations[subject], lambda failed: failed):
            if CheckStatus.BROKEN in (worst, check.finding):
                worst = CheckStatus.BROKEN
            elif check.finding is CheckStatus.DOUBTFUL:
                worst = CheckStatus.DOUBTFUL
            sys.stdout.write(f"{_json(subject, check) if as_json else prefix + _line(subject, check)}\n")
            sys.stdout.flush()
    return worst


def _json(subject: str, check: Check) -> str:
    return json.dumps({"subject": subject, **asdict(check)})


def _line(subject: str, check: Check) -> str:
    took = f" ({check.seconds * 1000:.0f} ms)" if check.seconds is not None else ""
    fix = f" Fix: {single_line(check.fix, _LONGEST)}" if check.fix else ""
    detail = single_line(check.detail, _LONGEST)
    return in_shell(f"{check.finding.mark} {subject} · {check.name}  {detail}{took}{fix}".rstrip())


def _examinations(settings: Settings, files: OperatorFiles) -> dict[str, AsyncGenerator[Check, None]]:
    """Return the checks of each area that needs no database."""
    rules = files.policies.all_rules
    return {
        "model": examine_models(settings, files),
        "slack": examine_slack(settings, rules),
        "discord": examine_discord(settings, rules),
        "operations": examine_operations_channel(settings),
        "web": examine_web(settings),
    }


async def _checks(settings: Settings) -> AsyncGenerator[tuple[str, Check], None]:
    """Yield each check with the name of its area."""
    yield "settings", Check("environment", CheckStatus.WELL, "It can be read.")
    folders = find_folders()
    places = f"Files are in {folders.config.absolute()}, data is in {settings.data_folder.absolute()}"
    yield "settings", Check("folders", CheckStatus.WELL, f"{places}: {folders.reason}.")
    for name, fix in find_ineffective_settings(settings).items():
        yield "settings", Check("environment", CheckStatus.DOUBTFUL, f"{name} has no effect.", fix)
    for problem in machine_problems():
        yield "settings", replace(_broken_check("machine", problem), finding=CheckStatus.DOUBTFUL)
    yield "settings", _of_secrets(settings)
    try:
        files = read_operator_files(settings)
    except CountersignError as error:
        yield "settings", _broken_check("files", error)
        return
    for check in _of_files(settings, files):
        yield "settings", check
    yield "settings", _of_self_approval(files)
    for subject, checks in _examinations(settings, files).items():
        async for check in _survived(checks, lambda failed: failed):
            yield subject, check
    servers = _of_database_and_servers(settings, files)
    async for labelled in _survived(servers, lambda failed: ("servers", failed)):
        yield labelled


async def _survived(checks: AsyncGenerator[T, None], failed: Callable[[Check], T]) -> AsyncGenerator[T, None]:
    """Yield checks. An error of one is a failed check, after which the other subjects go on."""
    async with aclosing(checks):
        try:
            async for check in checks:
                yield check
        except CountersignError as error:
            yield failed(_broken_check("check", error))
        except Exception as error:
            log.exception("a check failed")
            detail = f"{type(error).__name__}: {error}"
            yield failed(Check("check", CheckStatus.BROKEN, detail, "see the log, or run it with --debug"))


def _of_secrets(settings: Settings) -> Check:
    try:
        check_operator_secrets(settings)
    except SettingsError as error:
        return _broken_check("secrets", error)
    return Check("secrets", CheckStatus.WELL, "Those that the operator has chosen are hard to guess.")


def _of_files(settings: Settings, files: OperatorFiles) -> list[Check]:
    checks = [Check("servers file", CheckStatus.DOUBTFUL, warning) for warning in files.servers.warnings]
    templates, fix = "launch templates", "write its version behind it, such as PACKAGE@1.2.3"
    checks += [Check(templates, CheckStatus.BROKEN, problem, "correct the file") for problem in files.launches.problems]
    checks += [Check(templates, CheckStatus.DOUBTFUL, warning, fix) for warning in files.launches.warnings]
    checks += _of_grants(files.secret_grants)
    for name in files.unknown_servers():
        text = f"{settings.policy_file} has policies for {name!r}, which is no server of the file."
        checks.append(Check("policies", CheckStatus.DOUBTFUL, text, "correct the name"))
    fix = "correct the name, unless it is that of a server which admins have added"
    for rule in files.unused_rules():
        text = f"{rule.id} is about {rule.server!r}, which no enabled server of the file is called."
        checks.append(Check("policies", CheckStatus.DOUBTFUL, text, fix))
    return checks or [Check("files", CheckStatus.WELL, "They can be read.")]


def _of_self_approval(files: OperatorFiles) -> Check:
    detail = "The user who asked may approve a call that deletes nothing and names no others, unless a rule says more."
    if not files.policies.self_approval:
        detail = f"Only approvers approve: {files.policies.name} has self_approval = false."
    return Check("approvals", CheckStatus.WELL, detail)


def _of_grants(grants: SecretGrants) -> list[Check]:
    """Check the file of secret grants for entries that grant nothing. Servers report missing grants themselves."""
    name, where = "secret grants", grants.source
    checks = [
        Check(name, CheckStatus.WELL, f"{where}, line {grant.line}: {describe_grant(grant)}") for grant in grants.grants
    ]
    for problem in grants.problems:
        line = f", line {problem.line}" if problem.line else ""
        text = f"{where}{line}: {problem.cause} It grants nothing."
        checks.append(Check(name, CheckStatus.BROKEN, text, problem.fix))
    return checks


async def _of_database_and_servers(settings: Settings, files: OperatorFiles) -> AsyncGenerator[tuple[str, Check], None]:
    from bot.app.runtime import open_services  # noqa: PLC0415 - the other checks do not need MCP

    person = LocalUser(login_name())
    operator = person.author.principal
    try:
        if settings.auto_migrate and not (await current(settings))[0]:
            # Not started yet: report the effect of the first start. A database in use is left unchanged.
            await upgrade(settings)
        async with open_migrated_database(settings, migrate=False) as database:
            yield "database", Check("opened", CheckStatus.WELL, database.name)
            yield "database", await _check_writes(database)
            yield "database", await _check_content(settings, database)
            yield "audit", await examine_audit(settings, database)
            async with open_services(
                settings, files, database, operator=operator, connect=ConnectPolicy.LAZY
            ) as services:
                async with aclosing(examine_installations(settings, services.stores.installations)) as of_workspaces:
                    async for check in of_workspaces:
                        yield "slack", check
                for check in _of_profiles(settings, await services.stores.profiles.profiles()):
                    yield "servers", check
                if not services.toolbox.enabled:
                    yield "servers", Check("MCP", CheckStatus.SKIPPED, "MCP is switched off (MCP_ENABLED=false).")
                for state in services.toolbox.servers():
                    async for check in _survived(services.toolbox.diagnose(state.config.id), lambda failed: failed):
                        yield state.config.name, check
                    tools = capabilities(services.toolbox, state.config.id).tools
                    place = person.key(fresh_conversation())
                    for check in checks_in_place(services.administration, state.config, tools, person.member, place):
                        yield state.config.name, check
    except CountersignError as error:
        yield "database", _broken_check("opened", error)


def _of_profiles(settings: Settings, profiles: Sequence[Profile]) -> list[Check]:
    """Report MCP_SERVERS_ENABLED=per_profile, and the profiles that enable servers without naming them."""
    if settings.mcp_servers_enabled is ServersEnabled.ALL:
        return []
    everything = ", ".join(profile.name for profile in profiles if profile.servers is None)
    if not everything:
        detail = "Each server is off until a profile enables it (MCP_SERVERS_ENABLED=per_profile)."
        return [Check("profiles", CheckStatus.WELL, detail)]
    detail = f"MCP_SERVERS_ENABLED=per_profile, but these enable every server, also later ones: {everything}."
    fix = "name their servers: /profile set NAME --server SERVER"
    return [Check("profiles", CheckStatus.DOUBTFUL, detail, fix)]


async def _check_writes(database: Database) -> Check:
    try:
        await database.check_writable()
    except DatabaseError as error:
        return _broken_check("written", error)
    return Check("written", CheckStatus.WELL, "It takes what is written.")


async def _check_content(settings: Settings, database: Database) -> Check:
    """Report how long questions, answers and results are kept, and if any are kept for longer."""
    from bot.storage.turn_log.retention import overdue_content  # noqa: PLC0415 - with the database's libraries

    if settings.keeps_content:
        days = f"{settings.retention_days:g} day{'' if settings.retention_days == 1 else 's'}"
        return Check("content", CheckStatus.WELL, f"Turns are kept for {days} after their end (RETENTION_DAYS).")
    kept = "Nothing that is asked, answered or returned is kept once the answer is out (RETENTION_DAYS=0)"
    try:
        overdue = await overdue_content(database, _OVERDUE_SECONDS)
    except DatabaseError as error:
        return _broken_check("content", error)
    if overdue:
        left = "1 ended turn" if overdue == 1 else f"{overdue} ended turns"
        return Check("content", CheckStatus.DOUBTFUL, f"{kept}, but {left} still has content.", "start the bot")
    freed = " PostgreSQL frees deleted rows at its next VACUUM." if database.shared else ""
    return Check("content", CheckStatus.WELL, f"{kept}.{freed}")


def _broken_check(name: str, error: CountersignError) -> Check:
    return Check(name, CheckStatus.BROKEN, error.cause, error.fix)
