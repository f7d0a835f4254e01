"""`/profile enable` and `disable`: the servers of a profile; and for which profiles of a place a server is off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bot.commands.command import SERVER, CommandContext, VerbHandler
from bot.commands.dependencies import Administration, CommandDependencies
from bot.commands.profiles import Outdated, ProfileService
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.text_format import error_reply, server_label
from bot.domain.agents import PLACE_NAME
from bot.domain.commands import ActionStyle, CompletionSource, Parameter, ParameterKind, Reply, ReplyAction, Verb
from bot.domain.conversations import ConversationKey
from bot.domain.profiles import Profile, ServersEnabled
from bot.domain.servers import EVERYWHERE
from bot.i18n import _, gettext_lazy

_PROFILE = Parameter(
    "profile",
    gettext_lazy("another profile than the one that holds here"),
    ParameterKind.OPTION,
    completes=CompletionSource.PROFILES,
    metavar="NAME",
)


def off_for(administration: Administration, server_id: str, conversation: ConversationKey) -> list[str]:
    """Return the names of the profiles of a place that may not use a server: the one that holds there, and the agents
    that are asked by name.
    """
    place = administration.profile_of(conversation)
    profiles = {profile.id: profile for profile in (place, *administration.agent_profiles(conversation))}
    return [profile.name for profile in profiles.values() if not profile.enables_server(server_id)]


def is_off_here(administration: Administration, server_id: str, conversation: ConversationKey) -> bool:
    """Return True if the profile that holds in a place may not use the server."""
    return not administration.profile_of(conversation).enables_server(server_id)


def enable_action(server: str) -> ReplyAction:
    """Return the action that enables a server for the profile that holds here."""
    return ReplyAction(_("Enable {server} here", server=server), ("profile", "enable", server), ActionStyle.PRIMARY)


class ProfileServers:
    """The verbs."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._service = ProfileService(dependencies)

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        parameters = (SERVER, _PROFILE)
        return (
            VerbHandler(Verb("enable", gettext_lazy("let a profile use a server"), parameters), self._enable),
            VerbHandler(Verb("disable", gettext_lazy("let a profile not use a server"), parameters), self._disable),
        )

    async def _enable(self, request: CommandContext) -> AsyncIterator[Reply]:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        profile = await self._profile(request)
        if profile is None and self._dependencies.servers_enabled is ServersEnabled.ALL:
            yield Reply(_("No profile holds here, so every server is enabled."))
        elif profile is None:
            yield await self._enable_in_new_profile(server, request)
        elif profile.servers is None or server.id in profile.servers:
            yield Reply(
                _("{server} is enabled for the profile already.", server=server_label(server.config)),
                details=((gettext_lazy("profile"), profile.name),),
            )
        else:
            self._service.may_change(profile, request.member)
            yield await self._save(replace(profile, servers=profile.servers | {server.id}), server, request)

    async def _disable(self, request: CommandContext) -> AsyncIterator[Reply]:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        profile = await self._profile(request)
        if profile is None:
            yield error_reply(
                _("No profile holds here. `/profile set NAME` makes one, and `/profile bind` lets it hold.")
            )
        elif not profile.enables_server(server.id):
            yield Reply(
                _("{server} is off for the profile already.", server=server_label(server.config)),
                details=((gettext_lazy("profile"), profile.name),),
            )
        else:
            self._service.may_change(profile, request.member)
            servers = profile.servers
            if servers is None:
                servers = frozenset(other.id for other in await self._directory.all(request.conversation))
            yield await self._save(replace(profile, servers=servers - {server.id}), server, request)

    async def _profile(self, request: CommandContext) -> Profile | None:
        """Return the named profile, or the one that holds here; None if none does. Raises NotFoundRejection."""
        if request.arguments.has("profile"):
            return await self._service.find(request.arguments.get("profile"), request.conversation)
        place = self._dependencies.administration.profile_of(request.conversation)
        return await self._service.find(place.id, request.conversation) if place.id else None

    async def _enable_in_new_profile(self, server: VisibleServer, request: CommandContext) -> Reply:
        """Let a profile with the server hold in the workspace: no other one holds in the conversation."""
        workspace = request.conversation.workspace_key
        everywhere = self._dependencies.rights.administers_everywhere(request.member)
        profile = await self._service.find_or_none(PLACE_NAME, request.conversation)
        profile = profile or self._service.blank(PLACE_NAME, EVERYWHERE if everywhere else workspace)
        self._service.may_change(profile, request.member)
        if profile.servers is not None:
            profile = replace(profile, servers=profile.servers | {server.id})
        reply = await self._save(profile, server, request)
        if not reply.failed:
            await self._dependencies.profiles.bind(workspace, profile.id, request.author)
            await self._dependencies.administration.refresh()
            reply = replace(reply, details=(*reply.details, (gettext_lazy("holds in"), _("this workspace"))))
        return reply

    async def _save(self, profile: Profile, server: VisibleServer, request: CommandContext) -> Reply:
        saved = await self._service.save(profile, request.author)
        if isinstance(saved, Outdated):
            return Reply(
                _("The profile has just been changed by somebody else. Nothing was saved: try again."),
                details=((gettext_lazy("cause"), saved.why),),
                failed=True,
            )
        enabled = saved.enables_server(server.id)
        text = (
            _("{server} is enabled from the next answer on.", server=server_label(server.config))
            if enabled
            else _("{server} is off from the next answer on.", server=server_label(server.config))
        )
        undo = ("profile", "disable" if enabled else "enable", server.name, "--profile", saved.name)
        return Reply(text, details=((gettext_lazy("profile"), saved.name),), actions=(ReplyAction(_("Undo"), undo),))
