"""Slack: its workspaces, its surface and its listener, as far as the settings configure them."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from bot.app.process import end_check
from bot.app.secrets import secret_value
from bot.chat.listener_leases import ListenerLease
from bot.chat.users import AudiencePolicy
from bot.domain.approvals import APPROVERS
from bot.domain.conversations import ConversationKey
from bot.domain.health import Fault, FaultKind
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.policies import Rule
from bot.engine.policy.approvers import Approvers
from bot.engine.possible_approvers import check_deliveries
from bot.engine.surfaces import Surfaces
from bot.errors import CountersignError, SettingsError
from bot.examination import Check, CheckStatus
from bot.i18n import _
from bot.settings import Settings
from bot.storage.address import PostgresServer, read_address

if TYPE_CHECKING:
    from bot.app.components import Runtime
    from bot.chat.context import Lookups
    from bot.platforms.slack.app import SlackApp
    from bot.platforms.slack.listener import SlackListener
    from bot.platforms.slack.workspaces import AppCredentials, SlackWorkspace
    from bot.ports import InstallationStore
    from bot.web.application import Page


log = logging.getLogger(__name__)

SET_TOKEN = "set SLACK_BOT_TOKEN (xoxb-…)"  # noqa: S105
NAME_WORKSPACE = "name it with its workspace, such as slack:T0123ABCD:C0123ABCD"
_UNQUALIFIED = re.compile(r"slack(?:-group)?:[^:]+")
NO_TOKEN = "Slack can reach the bot, but without the bot's token nothing can be answered."  # noqa: S105


def is_configured(settings: Settings) -> bool:
    """Return True if there is a workspace to deliver to: that of a bot token, or those of installations."""
    return settings.slack_bot_token is not None or serves_installations(settings)


def serves_installations(settings: Settings) -> bool:
    """Return True if the app may be installed in several workspaces."""
    return bool(settings.slack_client_id)


def check_settings(settings: Settings) -> None:
    """Raise SettingsError for a client id without its secret, and for names that could be another user's in another
    workspace.
    """
    if serves_installations(settings) != (settings.slack_client_secret is not None):
        missing = "SLACK_CLIENT_SECRET" if serves_installations(settings) else "SLACK_CLIENT_ID"
        raise SettingsError(
            f"For installations in several Slack workspaces {missing} is missing.",
            "set SLACK_CLIENT_ID and SLACK_CLIENT_SECRET (App Credentials), or neither",
        )
    if not serves_installations(settings):
        return
    channel = settings.ops_channel
    is_unclear = channel is not None and channel.platform == "slack" and not channel.workspace
    if is_unclear and settings.slack_bot_token is None:
        raise SettingsError("OPS_CHANNEL does not say in which Slack workspace it is.", NAME_WORKSPACE)
    named = {"ADMINS": settings.admins, "APPROVERS": settings.approvers}
    for variable, names in named.items():
        if unclear := sorted(name for name in names if _UNQUALIFIED.fullmatch(name)):
            raise SettingsError(
                f"{variable} does not say of which Slack workspace {unclear[0]} is.",
                f"write it with the id of the workspace or organization, such as {_qualified(unclear[0])}",
            )


def is_named_in(name: str, conversation: ConversationKey) -> bool:
    """Return False for a name of another workspace of Slack: its id begins with T, that of an organization with E."""
    match name.split(":"):
        case ["slack" | "slack-group", str(workspace), _] if workspace.startswith("T"):
            return conversation.workspace_key == f"slack:{workspace}"
        case _:
            return True


def credentials_of(settings: Settings) -> AppCredentials:
    """Return the app's client id and secret. Loads Slack's library."""
    from bot.platforms.slack.workspaces import AppCredentials  # noqa: PLC0415 - only if Slack is configured

    return AppCredentials(settings.slack_client_id, secret_value(settings.slack_client_secret))


def can_receive(settings: Settings) -> bool:
    """Return True if events of Slack can arrive, by Socket Mode or by HTTP."""
    return is_configured(settings) and bool(settings.slack_app_token or settings.slack_signing_secret)


@asynccontextmanager
async def open_slack(settings: Settings, observe: MetricSink = null_sink) -> AsyncIterator[SlackApp]:
    """Open the workspaces of the configured bot token and of installations. `observe` receives metrics."""
    workspaces, sending = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.platforms.slack.{name}") for name in ("app", "sending"))
    )
    named = settings.admins | settings.approvers
    async with workspaces.open_slack(
        secret_value(settings.slack_bot_token),
        url=settings.slack_api_url,
        groups=frozenset(name for name in named if name.startswith("slack-group:")),
        streaming=sending.Streaming(settings.slack_streaming),
        observe=observe,
        allowed=settings.slack_workspaces if serves_installations(settings) else None,
    ) as slack:
        yield slack


async def examine_slack(settings: Settings, rules: Sequence[Rule] = ()) -> AsyncGenerator[Check, None]:
    """Check all Slack settings, and the groups in the operator's rules; no checks if none is set. Installations are
    checked by `examine_installations`.
    """
    if not is_configured(settings):
        if settings.slack_app_token or settings.slack_signing_secret:
            yield Check("token", CheckStatus.BROKEN, NO_TOKEN, SET_TOKEN)
        return
    try:
        check_settings(settings)
    except SettingsError as error:
        yield Check("settings", CheckStatus.BROKEN, error.cause, error.fix)
    async with open_slack(settings) as slack:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.slack.diagnostics")
        tokens = {"app_token": settings.slack_app_token, "signing_secret": settings.slack_signing_secret}
        plain = {name: secret_value(secret) for name, secret in tokens.items()}
        own = slack.workspaces.own
        found = (
            examining.diagnose_transports(slack.factory.app_api, **plain)
            if own is None
            else examining.diagnose(own.api, **plain, without=settings.slack_without)
        )
        async with aclosing(found) as checks:
            async for check in checks:
                yield check
        for check in _of_names(settings, rules):
            yield check
        if own is None or not any(APPROVERS in rule.requirements.deliver for rule in rules):
            return
        try:
            here = ConversationKey("slack", (await own.api.identity()).team, "", "")
        except CountersignError:
            return  # said above
        from bot.platforms.slack.app import SlackSurface  # noqa: PLC0415 - only if Slack is configured
        from bot.platforms.slack.workspaces import SlackWorkspaces  # noqa: PLC0415 - as above

        approvers = Approvers(settings.admins, settings.approvers)
        surface = SlackSurface(SlackWorkspaces(own))  # of the bot token alone: the doctor has no installations yet
        async with aclosing(check_deliveries(rules, approvers, surface, here)) as checks:
            async for check in checks:
                yield check


def _of_names(settings: Settings, rules: Sequence[Rule]) -> list[Check]:
    """Check that the operator's rules do not mean users or groups of this id in every workspace."""
    unclear = {
        name: rule.id
        for rule in (rules if serves_installations(settings) else ())
        for name in (*rule.askers, *(name for names in rule.requirements.approvers for name in names))
        if _UNQUALIFIED.fullmatch(name)
    }
    checks = []
    for name, rule in sorted(unclear.items()):
        text = f"{rule} names {name} without its Slack workspace: it counts for whoever has this id, in each of them."
        fix = f"write it with the id of the workspace or organization, such as {_qualified(name)}"
        checks.append(Check("names", CheckStatus.DOUBTFUL, text, fix))
    return checks


async def examine_installations(settings: Settings, store: InstallationStore) -> AsyncGenerator[Check, None]:
    """Check every workspace of an installation, and name those that are not served; no checks if the app may not be
    installed.
    """
    if not serves_installations(settings):
        return
    if settings.public_url is None:
        what = "Without PUBLIC_URL no workspace can be added: Slack sends browsers back to it."
        yield Check("installation", CheckStatus.BROKEN, what, "set PUBLIC_URL (https://…), and add it to the app")
    if not settings.slack_workspaces:
        what = "SLACK_WORKSPACES is empty: no workspace may be added, and none of an installation is served."
        yield Check("installation", CheckStatus.DOUBTFUL, what, "name workspaces or organizations there, such as T0123")
    examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.slack.diagnostics")
    allowed, known = settings.slack_workspaces, sorted(await store.versions("slack"))
    async with open_slack(settings) as slack:
        own = await _team_of(slack.workspaces.own)
        for workspace in dict.fromkeys((*known, *sorted(allowed - {own}))):
            again = f"{(settings.public_url or '').rstrip('/')}/slack/install?team={workspace}"
            try:
                installation = await store.find("slack", workspace) if workspace in known else None
            except CountersignError as error:
                yield Check(f"workspace {workspace}", CheckStatus.BROKEN, error.cause, error.fix)
                continue
            if installation is None or not installation.token or not installation.is_in(allowed):
                yield examining.diagnose_absence(workspace, installation, allowed, again)
                continue
            api = slack.factory.of_installation(installation, workspace).api
            async with aclosing(examining.diagnose_installation(api, installation, again)) as checks:
                async for check in checks:
                    yield check
            channel = settings.ops_channel
            if channel is not None and (channel.platform, channel.workspace) == ("slack", workspace):
                yield await examining.diagnose_channel(api, channel)


async def _team_of(own: SlackWorkspace | None) -> str:
    """Return the workspace of SLACK_BOT_TOKEN; empty without one, or if Slack does not say."""
    try:
        return "" if own is None else (await own.api.identity()).team
    except CountersignError:
        return ""  # said before


async def examine_slack_channel(settings: Settings, channel: ConversationKey) -> Check:
    """Check that the bot may post in a channel of Slack. One in the workspace of an installation is checked with it."""
    if not is_configured(settings):
        return Check("ops channel", CheckStatus.BROKEN, "OPS_CHANNEL is in Slack, which is not configured.", SET_TOKEN)
    if channel.workspace in settings.slack_workspaces and serves_installations(settings):
        return Check("ops channel", CheckStatus.SKIPPED, "It is checked with its workspace.")
    async with open_slack(settings) as slack:
        if slack.workspaces.own is None:
            what = "OPS_CHANNEL is in no workspace that the bot serves."
            return Check("ops channel", CheckStatus.BROKEN, what, NAME_WORKSPACE)
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.slack.diagnostics")
        check: Check = await examining.diagnose_channel(slack.workspaces.own.api, channel)
        return check


def share_limits(workspace: SlackApp, runtime: Runtime, settings: Settings) -> None:
    """Share Slack's rate limits among all processes on one database that allows several."""
    if isinstance(read_address(settings.database_url), PostgresServer):
        workspace.factory.share(runtime.services.stores.quotas)


def use_installations(workspace: SlackApp, runtime: Runtime, settings: Settings) -> None:
    """Serve the workspaces of installations, if the app may be installed in several. Call this before turns are run."""
    installed = workspace.workspaces.installed
    if installed is None:
        return
    stores = runtime.services.stores
    workspace.use_installations(stores.installations, credentials_of(settings), stores.leases)

    async def failing_workspaces() -> Sequence[Fault]:
        return [_workspace_fault(failing) for failing in installed.failing()]

    runtime.services.faults.watch(failing_workspaces)


def _workspace_fault(workspace: str) -> Fault:
    return Fault(
        f"slack:{workspace}",
        FaultKind.PLATFORM,
        _("Slack workspace {id} cannot be served", id=workspace),
        _("Slack workspace {id} is served again", id=workspace),
        _("The token of its installation cannot be read or renewed. The log says why."),
        _("look into the log, then install the app there again"),
        "countersign doctor",
        "docs/slack.md",
    )


def install_pages(workspace: SlackApp, runtime: Runtime, settings: Settings) -> Sequence[Page]:
    """Return the pages for installing the app in a browser; none if it serves no installations, or has no public
    address. Loads the web libraries.
    """
    links = runtime.services.command_dependencies.links
    if not serves_installations(settings):
        return ()
    if links is None:
        log.warning("the Slack app cannot be installed in further workspaces: set PUBLIC_URL (https://…)")
        return ()
    installer = importlib.import_module("bot.platforms.slack.installer")
    scopes = importlib.import_module("bot.platforms.slack.diagnostics").SCOPES
    web = importlib.import_module("bot.web.install_pages")
    pages: Sequence[Page] = web.install_routes(
        installer.SlackInstaller(
            credentials_of(settings),
            runtime.services.stores.installations,
            workspace.workspaces,
            workspace.factory.app_api,
            address=links.address,
            allowed=settings.slack_workspaces,
            scopes=[scope.name for scope in scopes],
        ),
        links.address,
    )
    return pages


def look_up_groups(workspace: SlackApp, runtime: Runtime) -> None:
    """Register the user groups that profiles and rules name for lookup. Call this before turns are run: a rule that
    denies a group has to know its members.
    """
    services = runtime.services

    async def named_groups() -> frozenset[str]:
        profiles = await services.stores.profiles.profiles()
        return services.rules.named.union(*(profile.approvers for profile in profiles))

    workspace.factory.also_ask_for(named_groups)


def build_lookups(workspace: SlackApp, runtime: Runtime) -> Lookups:
    """Return the lookups outside the engine: feedback, tool calls and Homes."""
    from bot.chat.approval_inbox import PendingCallReader  # noqa: PLC0415 - loaded with the app
    from bot.chat.context import Lookups  # noqa: PLC0415 - loaded with the app
    from bot.chat.home_message import HomeTabBuilder  # noqa: PLC0415 - loaded with the app

    services = runtime.services
    reader = PendingCallReader(
        services.stores.reporting,
        runtime.turn_log,
        services.rules,
        workspace.surface,
        lambda conversation: conversation.channel.startswith("D"),
        Surfaces((workspace.surface,)),
    )
    elicitation, rights = runtime.turn_log.get_elicitation, services.command_dependencies.rights
    builder = HomeTabBuilder(services.stores.reporting, reader.read, elicitation, rights, services.toolbox)
    return Lookups(
        opinion=services.stores.feedback.save,
        approval=runtime.turn_log.get_approval,
        pending_calls=reader.read,
        active_conversations=services.stores.reporting.active_conversations,
        build_home=builder.home,
        prompts=lambda conversation: services.rules.rules(conversation).profile.prompts,
        locales=services.locales,
    )


def build_listener(workspace: SlackApp, runtime: Runtime, settings: Settings, records: Lookups) -> SlackListener:
    """Build the listener for Socket Mode or HTTP. Raises SettingsError if neither is configured."""
    from bot.platforms.slack.listener import SlackListener  # noqa: PLC0415 - loaded with the app

    services = runtime.services

    def backfill_lease(name: str) -> ListenerLease:
        return ListenerLease(
            services.stores.leases,
            name,
            services.faults.reporter,
            "reading missed messages of Slack",
            has_ended=end_check(settings.database_url),
        )

    return SlackListener(
        workspace.workspaces,
        workspace.factory.app_api,
        app_token=secret_value(settings.slack_app_token),
        signing_secret=secret_value(settings.slack_signing_secret),
        audience=AudiencePolicy(settings.slack_follow_threads, settings.slack_guests, settings.slack_strangers),
        records=records,
        backfill_lease=backfill_lease,
    )


def _qualified(name: str) -> str:
    kind, _, own_id = name.partition(":")
    return f"{kind}:T0123ABCD:{own_id}"
