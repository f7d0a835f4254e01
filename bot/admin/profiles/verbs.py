"""`/profile`: the bot's name, instructions and allowed servers in a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.admin.command import (
    CONFIRM,
    SERVER,
    CommandContext,
    CommandRejected,
    SubmissionContext,
    form_of,
    option,
    verb,
)
from bot.admin.dependencies import Administration, CommandDependencies
from bot.admin.profiles.fields import (
    PROFILE,
    Outdated,
    ProfileService,
    parse_profile,
    profile_form,
    profile_values,
)
from bot.admin.servers.directory import ServerDirectory, ServerVerbs, VisibleServer
from bot.admin.servers.forms import next_step
from bot.admin.text_format import (
    error_reply,
    format_change,
    known_facts,
    page_of,
    page_rows,
    sentences,
    server_label,
)
from bot.domain.agents import PLACE_NAME
from bot.domain.commands import (
    ActionStyle,
    CompletionSource,
    Form,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    RequiredRole,
    RowChoice,
    Table,
)
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Profile, ServersEnabled, binding_scopes
from bot.domain.servers import EVERYWHERE
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext

_PROFILE_NAME = Parameter(
    "profile", "the profile's name", required=True, completes=CompletionSource.PROFILES, metavar="NAME"
)
SCOPES = ("channel", "workspace", "everywhere")
_SCOPE = Parameter("scope", "where it holds", choices=SCOPES)
_BY_NAME = Parameter("agent", "only when it is asked by name, beside the one that holds", ParameterKind.FLAG)
_NAMED_AGENT = option("agent", "one that is asked by name", completes=CompletionSource.PROFILES, metavar="NAME")
_OF_SERVER = Parameter("server", "whether each may use this server", completes=CompletionSource.SERVERS, metavar="NAME")
_OTHER_PROFILE = option(
    "profile", "another profile than the one that holds here", completes=CompletionSource.PROFILES, metavar="NAME"
)


def off_for(administration: Administration, server_id: str, conversation: ConversationKey) -> list[str]:
    """Return the names of the profiles of a place that may not use a server: the one that holds there, and the agents
    that are asked by name.
    """
    place = administration.rules(conversation).profile
    profiles = {profile.id: profile for profile in (place, *administration.rule_book.agent_profiles(conversation))}
    return [profile.name for profile in profiles.values() if not profile.enables_server(server_id)]


def is_off_here(administration: Administration, server_id: str, conversation: ConversationKey) -> bool:
    """Return True if the profile that holds in a place may not use the server."""
    return not administration.rules(conversation).profile.enables_server(server_id)


def _use_choice(profile: Profile, server: VisibleServer) -> RowChoice:
    """Return the choice to let a profile use a server or not."""
    subject = (server.name, "--profile", profile.name)
    enabled, disabled = str(_("enabled")), str(_("off"))
    return RowChoice(
        _("{server} in {profile}", server=server.name, profile=profile.name),
        ((enabled, ("profile", "enable", *subject)), (disabled, ("profile", "disable", *subject))),
        enabled if profile.enables_server(server.id) else disabled,
        column=3,
    )


def enable_action(server: str) -> ReplyAction:
    """Return the action that enables a server for the profile that holds here."""
    return ReplyAction(_("Enable {server} here", server=server), ("profile", "enable", server), ActionStyle.PRIMARY)


class Profiles(ServerVerbs):
    """Verbs of `/profile`."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        super().__init__(dependencies, directory)
        self._service = ProfileService(dependencies)

    @property
    def known_names(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._service.known_names

    @verb(
        "list",
        "every profile and where it holds",
        (_OF_SERVER,),
        who=RequiredRole.EVERYONE,
        aliases=("ls",),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        profiles = await self._service.all(request.conversation)
        if not profiles:
            how = _("`/profile set NAME` makes one.") if self._dependencies.rights.administers(request.member) else ""
            return Reply(sentences(_("No profiles yet: everything is enabled everywhere."), how))
        bindings, named = await self._bindings(request.conversation)
        rows = tuple(
            (
                profile.name,
                bindings.get(profile.id, ""),
                named.get(profile.id, ""),
                profile.model or _("the bot's own"),
                _("all") if profile.servers is None else ngettext("{n} server", "{n} servers", len(profile.servers)),
                ngettext("{n} rule", "{n} rules", len(profile.policies)),
            )
            for profile in page_rows(profiles, request.arguments.page)
        )
        administers = self._dependencies.rights.administers(request.member)
        table = Table(
            ("profile", "holds in", "asked by name in", "model", "servers", "policies"),
            rows,
            tuple(("profile", "show", row[0]) for row in rows) if administers else (),
        )
        words: tuple[str, ...] = ("profile", "list")
        if request.arguments.get("server"):
            server = await self._directory.find(request.arguments.get("server"), request.conversation)
            choices = tuple(_use_choice(profile, server) for profile in page_rows(profiles, request.arguments.page))
            table = replace(
                table,
                headings=(*table.headings[:3], "server"),
                rows=tuple((*row[:3], choice.value) for row, choice in zip(rows, choices, strict=True)),
                settings=choices if administers else (),
            )
            words = (*words, server.name)
        return Reply(
            _("Profiles · {count}", count=len(profiles)),
            table,
            page=page_of(request.arguments.page, len(profiles), words),
        )

    @verb("show", "one profile in full", (_PROFILE_NAME,), aliases=("get",), reads=True)
    async def _show(self, request: CommandContext) -> Reply:
        profile = await self._service.find(request.arguments.get("profile"), request.conversation)
        servers = await self._directory.all(request.conversation)
        bindings, named = await self._bindings(request.conversation)
        values = profile_values(profile, servers)
        change = format_change(profile.updated_at, profile.updated_by, self._dependencies.clock())
        name, *others = ((row.fact, row.shown(values[row.key])) for row in PROFILE.fields)
        facts = (
            name,
            (gettext_lazy("holds in"), bindings.get(profile.id, "") or _("no place yet")),
            (gettext_lazy("asked by name in"), named.get(profile.id, "")),
            *others,
            (gettext_lazy("for"), _("every workspace") if profile.workspace == EVERYWHERE else _("this workspace")),
            (gettext_lazy("changed"), change if profile.updated_by else ""),
            (gettext_lazy("version"), str(profile.version)),
        )
        return Reply(
            _("Profile"),
            details=known_facts(*facts),
            actions=(
                ReplyAction(_("Edit"), ("profile", "set", profile.name)),
                ReplyAction(_("Bind here"), ("profile", "bind", profile.name)),
                ReplyAction(_("Delete"), ("profile", "delete", profile.name), ActionStyle.DANGER),
            ),
        )

    # Setting

    @verb(
        "set",
        "a new profile, or another word in one; with a name alone it asks",
        (
            Parameter("profile", "the profile's name", completes=CompletionSource.PROFILES, metavar="NAME"),
            *(row.option for row in (*PROFILE.fields[1:], PROFILE.fields[0])),
        ),
        aliases=("add", "create", "edit", "new"),
    )
    async def _set(self, request: CommandContext) -> Reply | Form:
        arguments = request.arguments
        name = arguments.get("profile").strip()
        present = await self._service.find_or_none(name, request.conversation) if name else None
        profile = present or self._blank(name, request.member, request.conversation)
        self._service.may_change(profile, request.member)
        servers = await self._directory.all(request.conversation)
        if set(arguments.values) <= {"profile"}:
            return profile_form(profile, profile_values(profile, servers), {})
        draft, errors = parse_profile(profile, PROFILE.given(arguments), servers)
        if errors:
            reply = error_reply(_("Nothing was saved. `/profile help set` explains the options."))
            return replace(reply, details=PROFILE.option_errors(errors))
        return await self._keep(draft, request.author)

    @form_of("set")
    async def _submit(self, context: SubmissionContext) -> Reply | Form:
        profile_id, version, *_rest = (*context.state, "", "")
        profiles = await self._service.all(context.conversation)
        profile = next((candidate for candidate in profiles if candidate.id == profile_id), None)
        if profile is None and version != "0":
            raise CommandRejected(_("That profile is gone. Nothing was saved."))
        profile = profile or self._blank("", context.member, context.conversation)
        self._service.may_change(profile, context.member)
        if str(profile.version) != version:
            return self._version_conflict(profile)
        servers = await self._directory.all(context.conversation)
        draft, errors = parse_profile(profile, context.fields, servers)
        errors |= context.errors
        if wrong_name := await self._service.name_error(draft, context.conversation):
            errors["name"] = wrong_name
        number = int(context.state[-1]) if context.state[-1:] in (("1",), ("2",), ("3",)) else 1
        step = next_step(PROFILE.steps, number, errors)
        if step is not None:
            return profile_form(profile, {**profile_values(profile, servers), **context.fields}, errors, step)
        return await self._keep(draft, context.author)

    async def _keep(self, profile: Profile, by: Author) -> Reply:
        saved = await self._service.save(profile, by)
        if isinstance(saved, Outdated):
            return replace(self._version_conflict(profile), details=((gettext_lazy("cause"), saved.why),))
        return Reply(
            _("Profile saved. It applies from the next answer in the places it is bound to."),
            details=((gettext_lazy("name"), saved.name), (gettext_lazy("version"), str(saved.version))),
            actions=(ReplyAction(_("Bind here"), ("profile", "bind", saved.name), ActionStyle.PRIMARY),),
        )

    def _version_conflict(self, profile: Profile) -> Reply:
        change = format_change(profile.updated_at, profile.updated_by, self._dependencies.clock())
        return Reply(
            _("The profile has been changed since you opened it. Nothing was saved."),
            details=((gettext_lazy("changed"), change),),
            failed=True,
            actions=(ReplyAction(_("Edit again"), ("profile", "set", profile.name)),),
        )

    def _blank(self, name: str, member: Member, conversation: ConversationKey) -> Profile:
        return self._service.blank(name, self._dependencies.rights.workspace_for(member, conversation))

    # Deleting and binding

    @verb("delete", "delete a profile", (_PROFILE_NAME, CONFIRM), aliases=("remove", "rm"))
    async def _delete(self, request: CommandContext) -> Reply:
        profile = await self._service.find(request.arguments.get("profile"), request.conversation)
        self._service.may_change(profile, request.member)
        typed = request.arguments.get("confirm")
        if not typed:
            bindings, named = await self._bindings(request.conversation)
            facts = (
                (gettext_lazy("name"), profile.name),
                (gettext_lazy("holds in"), bindings.get(profile.id, "") or _("no place")),
                (gettext_lazy("asked by name in"), named.get(profile.id, "")),
            )
            words = ("profile", "delete", profile.name)
            return Reply(
                _(
                    "Delete this profile? The places where it holds will have none. This cannot be undone. "
                    "Type its name to confirm."
                ),
                details=known_facts(*facts),
                actions=(ReplyAction(_("Delete"), words, ActionStyle.DANGER, confirm=profile.name),),
            )
        if typed.strip().lower() != profile.name.lower():
            raise CommandRejected(_("That was not its name. Nothing was deleted."))
        await self._service.delete(profile, request.author)
        return Reply(_("The profile is deleted."), details=((gettext_lazy("name"), profile.name),))

    @verb("bind", "let a profile hold in this channel, or wider", (_PROFILE_NAME, _SCOPE, _BY_NAME))
    async def _bind(self, request: CommandContext) -> Reply:
        profile = await self._service.find(request.arguments.get("profile"), request.conversation)
        place, scope_text = self._scope(request)
        if request.arguments.has("agent"):
            return await self._bind_by_name(profile, place, scope_text, request)
        before = await self._bound_profile(place)
        await self._dependencies.stores.profiles.bind(place, profile.id, request.author)
        await self._dependencies.administration.refresh()
        scope = request.arguments.get("scope", SCOPES[0])
        names = {other.id: other.name for other in await self._service.all(request.conversation)}
        undo = ("profile", "bind", names[before], scope) if before in names else ("profile", "unbind", scope)
        return Reply(
            _("The profile holds in {place} from the next answer on.", place=scope_text),
            details=((gettext_lazy("name"), profile.name),),
            actions=(ReplyAction(_("Undo"), undo),),
        )

    @verb("unbind", "let none hold in this channel, or wider", (_SCOPE, _NAMED_AGENT))
    async def _unbind(self, request: CommandContext) -> Reply:
        place, scope_text = self._scope(request)
        if request.arguments.has("agent"):
            return await self._unbind_by_name(place, scope_text, request)
        before = await self._bound_profile(place)
        if not await self._dependencies.stores.profiles.unbind(place, request.author):
            return Reply(_("No profile holds in {place}. Nothing was changed.", place=scope_text), failed=True)
        await self._dependencies.administration.refresh()
        names = {profile.id: profile.name for profile in await self._service.all(request.conversation)}
        scope = request.arguments.get("scope", SCOPES[0])
        undo = (ReplyAction(_("Undo"), ("profile", "bind", names[before], scope)),) if before in names else ()
        return Reply(_("No profile holds in {place} any more.", place=scope_text), actions=undo)

    async def _bound_profile(self, place: str) -> str | None:
        bindings = await self._dependencies.stores.profiles.bindings()
        return {binding.place: binding.profile for binding in bindings if not binding.by_name}.get(place)

    async def _bind_by_name(self, profile: Profile, place: str, scope_text: str, request: CommandContext) -> Reply:
        added = await self._dependencies.stores.profiles.bind_by_name(place, profile.id, request.author)
        await self._dependencies.administration.refresh()
        is_wider = place != binding_scopes(request.conversation)[0]
        undo = ("profile", "unbind", request.arguments.get("scope", SCOPES[0]), "--agent", profile.name)
        about = profile.about or _("say in a sentence what it does: /profile set NAME --about TEXT")
        facts = (
            (gettext_lazy("name"), profile.name),
            (gettext_lazy("ask it"), f"@bot as {profile.name} …, /ask {profile.name} …"),
            (gettext_lazy("what it does"), about),
        )
        return Reply(
            sentences(
                _("The profile can be asked by name in {place}.", place=scope_text),
                _("Channels with a profile of their own do not have it.") if is_wider else "",
                _("`/agents` lists who can be."),
            ),
            details=facts,
            actions=(ReplyAction(_("Undo"), undo),) if added else (),
        )

    async def _unbind_by_name(self, place: str, scope_text: str, request: CommandContext) -> Reply:
        profile = await self._service.find(request.arguments.get("agent"), request.conversation)
        if not await self._dependencies.stores.profiles.unbind_by_name(place, profile.id, request.author):
            text = _("It is not asked by name in {place}. Nothing was changed.", place=scope_text)
            return Reply(text, failed=True)
        await self._dependencies.administration.refresh()
        undo = ("profile", "bind", profile.name, request.arguments.get("scope", SCOPES[0]), "--agent")
        return Reply(
            _("The profile cannot be asked by name in {place} any more.", place=scope_text),
            details=((gettext_lazy("name"), profile.name),),
            actions=(ReplyAction(_("Undo"), undo),),
        )

    def _scope(self, request: CommandContext) -> tuple[str, str]:
        channel, workspace = binding_scopes(request.conversation)
        match request.arguments.get("scope", SCOPES[0]):
            case "everywhere" if not self._dependencies.rights.administers_everywhere(request.member):
                raise CommandRejected(_("Only the operator can say what holds in every workspace."))
            case "everywhere":
                return EVERYWHERE, _("every workspace")
            case "workspace":
                return workspace, _("this workspace")
            case _:
                return channel, _("this channel")

    # Servers

    @verb("enable", "let a profile use a server", (SERVER, _OTHER_PROFILE))
    async def _enable(self, request: CommandContext) -> Reply:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        profile = await self._named_or_current(request)
        if profile is None and self._dependencies.operator.servers_enabled is ServersEnabled.ALL:
            return Reply(_("No profile holds here, so every server is enabled."))
        if profile is None:
            return await self._enable_in_new_profile(server, request)
        if profile.servers is None or server.id in profile.servers:
            return Reply(
                _("{server} is enabled for the profile already.", server=server_label(server.config)),
                details=((gettext_lazy("profile"), profile.name),),
            )
        self._service.may_change(profile, request.member)
        return await self._save_servers(replace(profile, servers=profile.servers | {server.id}), server, request)

    @verb("disable", "let a profile not use a server", (SERVER, _OTHER_PROFILE))
    async def _disable(self, request: CommandContext) -> Reply:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        profile = await self._named_or_current(request)
        if profile is None:
            return error_reply(
                _("No profile holds here. `/profile set NAME` makes one, and `/profile bind` lets it hold.")
            )
        if not profile.enables_server(server.id):
            return Reply(
                _("{server} is off for the profile already.", server=server_label(server.config)),
                details=((gettext_lazy("profile"), profile.name),),
            )
        self._service.may_change(profile, request.member)
        servers = profile.servers
        if servers is None:
            servers = frozenset(other.id for other in await self._directory.all(request.conversation))
        return await self._save_servers(replace(profile, servers=servers - {server.id}), server, request)

    async def _named_or_current(self, request: CommandContext) -> Profile | None:
        """Return the named profile, or the one that holds here; None if none does. Raises NotFoundRejection."""
        if request.arguments.has("profile"):
            return await self._service.find(request.arguments.get("profile"), request.conversation)
        place = self._dependencies.administration.rules(request.conversation).profile
        return await self._service.find(place.id, request.conversation) if place.id else None

    async def _enable_in_new_profile(self, server: VisibleServer, request: CommandContext) -> Reply:
        """Let a profile with the server hold in the workspace: no other one holds in the conversation."""
        workspace = request.conversation.workspace_key
        profile = await self._service.find_or_none(PLACE_NAME, request.conversation)
        profile = profile or self._blank(PLACE_NAME, request.member, request.conversation)
        self._service.may_change(profile, request.member)
        if profile.servers is not None:
            profile = replace(profile, servers=profile.servers | {server.id})
        reply = await self._save_servers(profile, server, request)
        if not reply.failed:
            await self._dependencies.stores.profiles.bind(workspace, profile.id, request.author)
            await self._dependencies.administration.refresh()
            reply = replace(reply, details=(*reply.details, (gettext_lazy("holds in"), _("this workspace"))))
        return reply

    async def _save_servers(self, profile: Profile, server: VisibleServer, request: CommandContext) -> Reply:
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

    # Finding

    async def _bindings(self, conversation: ConversationKey) -> tuple[dict[str, str], dict[str, str]]:
        """Return the places where each profile holds, and where it is asked by name, as display text. Other channels
        are shown by id.
        """
        channel, workspace = binding_scopes(conversation)
        scope_texts = {channel: _("this channel"), workspace: _("this workspace"), EVERYWHERE: _("every workspace")}
        bindings: dict[str, list[str]] = {}
        named: dict[str, list[str]] = {}
        for binding in await self._dependencies.stores.profiles.bindings():
            if binding.place in scope_texts or binding.place.startswith(f"{workspace}:"):
                places = (named if binding.by_name else bindings).setdefault(binding.profile, [])
                places.append(scope_texts.get(binding.place, binding.place.split(":")[-1]))
        return (
            {profile: format_enumeration(places) for profile, places in bindings.items()},
            {profile: format_enumeration(places) for profile, places in named.items()},
        )
