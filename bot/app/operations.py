"""The operations channel: which faults of this process operators are told of, and where.

Servers, platforms and the operator's files are looked at every few seconds, models and the audit rarely, because their
checks cost requests and reads. Without OPS_CHANNEL nothing of it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from bot.app.audit import examine_audit
from bot.app.discord import examine_discord_channel
from bot.app.model_checks import check_service
from bot.app.models import select_model
from bot.app.operator_files import OperatorFiles
from bot.app.slack import examine_slack_channel
from bot.chat.operations_channel import OperationsChannel
from bot.domain.health import Fault, FaultKind, Health, ListenerStatus
from bot.engine.faults import FaultSource, ServerFaults, Suspicion
from bot.errors import CountersignError
from bot.examination import Check
from bot.i18n import _, ngettext, use_language
from bot.llm.models import PARSE_CALLS
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.components import AppServices
    from bot.chat.delivery import ChannelMessages
    from bot.storage.database import Database

log = logging.getLogger(__name__)

DISCONNECTED_SECONDS = 120.0
"""Seconds without a connection after which a platform has failed. A reconnection takes some."""
AUDIT_SECONDS = 3600.0
MODEL_SECONDS = 600.0
MODEL_CONFIRMATION_SECONDS = 30.0
"""Seconds until a second check of a model that cannot be used: services fail for moments."""
_MOST_ENTRIES = 3
_GUIDE = "docs/configuration.md"
_DOCTOR = "countersign doctor"
_NAMES = {"slack": "Slack", "discord": "Discord"}

Task = tuple[str, Coroutine[Any, Any, None]]
"""Name and work of a background task."""


def operations_tasks(
    settings: Settings,
    services: AppServices,
    database: Database,
    channels: Mapping[str, ChannelMessages],
    unparsed: Collection[str],
) -> list[Task]:
    """Return the background tasks of the operations channel; none without OPS_CHANNEL. `channels` are the configured
    platforms by name, `unparsed` the models whose tool calls come as text.
    """
    channel = settings.ops_channel
    if channel is None:
        return []

    async def configuration() -> Iterable[Fault]:
        reloader = services.administration
        rejection = reloader.files_rejection
        return [*configuration_faults(reloader.files), *([_rejection_fault(rejection)] if rejection else [])]

    models = OccasionalSource(
        lambda: _model_faults(settings),
        MODEL_SECONDS,
        confirmed_after=MODEL_CONFIRMATION_SECONDS,
    )
    audit = OccasionalSource(lambda: _audit_faults(settings, database), AUDIT_SECONDS)
    servers, health = ServerFaults(services.toolbox), HealthFaults(services.health.check)
    for source in (servers, health, configuration, unparsed_calls(unparsed), models, audit):
        services.faults.watch(source)
    tasks = [
        ("check of the models", _speak(settings.language, models.run())),
        ("check of the audit", _speak(settings.language, audit.run())),
        ("report of faults", _speak(settings.language, services.faults.run())),
    ]
    messages = channels.get(channel.platform)
    if messages is None:
        log.error("OPS_CHANNEL is in %s, which is not configured: nothing is posted", _NAMES[channel.platform])
        return tasks
    stores, reporter = services.stores, services.faults.reporter
    delivery = OperationsChannel(stores.faults, stores.leases, messages, channel, reporter, locales=services.locales)
    return [*tasks, ("operations channel", _speak(settings.language, delivery.run()))]


async def _speak(language: str, work: Coroutine[Any, Any, None]) -> None:
    with use_language(language):
        await work


class OccasionalSource:
    """Faults that a check finds, which runs every `seconds`. With `confirmed_after`, a fault is found by a second check
    after so many seconds, too.
    """

    def __init__(
        self,
        check: Callable[[], Awaitable[Sequence[Fault]]],
        seconds: float,
        *,
        confirmed_after: float | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._check = check
        self._seconds = seconds
        self._confirmed_after = confirmed_after
        self._pause = pause
        self._found: Sequence[Fault] = ()

    async def __call__(self) -> Iterable[Fault | Suspicion]:
        """Return the faults of the last check."""
        return self._found

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            try:
                self._found = await self._confirm_faults(await self._check())
            except CountersignError as error:
                log.debug("check for faults: %s", error)
            except Exception:
                log.exception("check for faults")
            await self._pause(self._seconds)

    async def _confirm_faults(self, found: Sequence[Fault]) -> Sequence[Fault]:
        new = {fault.key for fault in found} - {fault.key for fault in self._found}
        if not new or self._confirmed_after is None:
            return found
        await self._pause(self._confirmed_after)
        keys = {fault.key for fault in found}
        return [fault for fault in await self._check() if fault.key in keys]


class HealthFaults:
    """Faults of platforms without arriving messages, and of checkpoints. `look` returns the health."""

    def __init__(self, look: Callable[[], Awaitable[Health]], *, clock: Callable[[], float] = monotonic) -> None:
        self._look = look
        self._clock = clock
        self._disconnected_since: dict[str, float] = {}

    async def __call__(self) -> Iterable[Fault | Suspicion]:
        """Return the faults of now."""
        health, now = await self._look(), self._clock()
        self._disconnected_since = {
            name: self._disconnected_since.get(name, now)
            for name, status in health.platforms.items()
            if status is ListenerStatus.CONNECTING
        }
        faults: list[Fault | Suspicion] = []
        for name, since in self._disconnected_since.items():
            fault = _platform_fault(name)
            faults.append(fault if now - since >= DISCONNECTED_SECONDS else Suspicion(fault.key))
        return [*faults, *([_checkpoint_fault()] if health.checkpoints_fail else [])]


def _checkpoint_fault() -> Fault:
    return Fault(
        "checkpoints",
        FaultKind.AUDIT,
        _("Checkpoints of the audit cannot be written"),
        _("Checkpoints of the audit are written again"),
        _("Without them nobody can prove that rows were cut off at the end. The log names the place and the reason."),
        _("free some space, or set AUDIT_CHECKPOINT_FILE"),
        "countersign audit verify",
        "docs/audit.md",
    )


def _platform_fault(name: str) -> Fault:
    label = _NAMES.get(name, name)
    return Fault(
        f"platform:{name}",
        FaultKind.PLATFORM,
        _("{platform} is not connected", platform=label),
        _("{platform} is connected again", platform=label),
        _("Messages from {platform} do not arrive.", platform=label),
        _("check the network, the token and the status page of {platform}", platform=label),
        _DOCTOR,
        f"docs/{name}.md",
    )


def configuration_faults(files: OperatorFiles) -> list[Fault]:
    """Return one fault about all ignored entries of the operator's files."""
    ignored = [*files.servers.warnings, *files.launches.problems]
    ignored += [problem.sentence for problem in files.secret_grants.problems]
    for name in files.unknown_servers():
        ignored.append(_("There are policies for {name}, which is no server.", name=repr(name)))
    for rule in files.unused_rules():
        texts = {"rule": rule.id, "server": repr(rule.server)}
        ignored.append(_("{rule} is about {server}, which is no server of the file.", **texts))
    if not ignored:
        return []
    more = len(ignored) - _MOST_ENTRIES
    entries = "\n".join(ignored[:_MOST_ENTRIES])
    if more > 0:
        entries += " " + ngettext("And {n} more.", "And {n} more.", more)
    return [
        Fault(
            "configuration",
            FaultKind.CONFIGURATION,
            ngettext(
                "One entry of the configuration is ignored",
                "{n} entries are ignored in the configuration",
                len(ignored),
            ),
            _("The configuration has no ignored entries any more"),
            entries,
            _("correct the files: a change counts once it is saved"),
            _DOCTOR,
            _GUIDE,
        )
    ]


def _rejection_fault(rejection: str) -> Fault:
    return Fault(
        "configuration:older",
        FaultKind.CONFIGURATION,
        _("A changed file of the operator cannot be used"),
        _("The operator's files are in use as they are saved"),
        rejection,
        _("correct the file; the previous one stays in use until then"),
        _DOCTOR,
        _GUIDE,
    )


async def _model_faults(settings: Settings) -> list[Fault]:
    checks = await asyncio.gather(*map(check_service, select_model(settings).all))
    return [
        Fault(
            f"model:{check.name}",
            FaultKind.MODEL,
            _("Model {model} cannot be used", model=check.name),
            _("Model {model} can be used again", model=check.name),
            _("Its service does not answer, does not take the key, or does not have the model."),
            _("run the doctor, which says why"),
            _DOCTOR,
            "docs/models.md",
        )
        for check in checks
        if check.is_broken
    ]


def unparsed_calls(models: Collection[str]) -> FaultSource:
    """Return the source of faults about models whose tool calls come as text."""

    async def look() -> Iterable[Fault]:
        return [
            Fault(
                f"calls:{model}",
                FaultKind.MODEL,
                _("Model {model} writes its tool calls as text", model=model),
                _("The service of model {model} parses its tool calls", model=model),
                _("Its service does not parse them. The bot reads most of them, and asks for approval as usual."),
                str(PARSE_CALLS),
                _DOCTOR,
                "docs/models.md",
            )
            for model in models
        ]

    return look


async def _audit_faults(settings: Settings, database: Database) -> list[Fault]:
    check = await examine_audit(settings, database)
    if not check.is_broken:
        return []
    return [
        Fault(
            "audit",
            FaultKind.AUDIT,
            _("The audit does not verify"),
            _("The audit verifies again"),
            check.detail,
            _("compare it with a backup, and find out who has access to the database"),
            "countersign audit verify",
            "docs/audit.md",
        )
    ]


async def examine_operations_channel(settings: Settings) -> AsyncGenerator[Check, None]:
    """Check that the bot may post in the operations channel; no checks without one."""
    channel = settings.ops_channel
    if channel is None:
        return
    check = await (examine_slack_channel if channel.platform == "slack" else examine_discord_channel)(settings, channel)
    yield check
