"""`/profile`: the bot's name, instructions and allowed servers in a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from bot.commands.argument_parser import CONFIRM, PROFILE, Arguments, CommandRejected
from bot.commands.command import Command, CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.profile_fields import STEPS, Outdated, ProfileService, parse_profile, profile_form, profile_values
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import (
    cut,
    error_reply,
    format_ago,
    page_of,
    pluralize,
)
from bot.domain.commands import (
    ActionStyle,
    CompletionSource,
    Form,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Profile, binding_scopes
from bot.domain.servers import EVERYWHERE

SCOPES = ("channel", "workspace", "everywhere")
_OPTION = ParameterKind.OPTION
_SCOPE = Parameter("scope", "where it holds", choices=SCOPES)
SET = Verb(
    "set",
    "a new profile, or another word in one; with a name alone it asks",
    (
        Parameter("profile", "the profile's name", completes=CompletionSource.PROFILES, metavar="NAME"),
        Parameter("persona", "the bot's role, for the model", _OPTION, metavar="TEXT"),
        Parameter("model", "the model it thinks with", _OPTION, metavar="PROVIDER:NAME"),
        Parameter(
            "server", "a server it may use; * for all", _OPTION, repeated=True, completes=CompletionSource.SERVERS
        ),
        Parameter("tool", "a tool it may use, alone of its server", _OPTION, repeated=True, metavar="SERVER.TOOL"),
        Parameter("policy", "what holds where it does", _OPTION, repeated=True, metavar="SERVER[.TOOL]=ask|allow|deny"),
        Parameter("approver", "who approves where it holds", _OPTION, repeated=True, metavar="PLATFORM:ID"),
        Parameter("rename", "another name for it", _OPTION, metavar="NEW"),
    ),
    aliases=("add", "create", "edit", "new"),
)


class Profiles:
    """Verbs of `/profile`."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory
        self._keeping = ProfileService(parts)

    @property
    def remembered(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._keeping.remembered

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        return (
            VerbHandler(
                Verb("list", "every profile and where it holds", (), RequiredRole.EVERYONE, ("ls",)), self._list
            ),
            VerbHandler(Verb("show", "one profile in full", (PROFILE,), aliases=("get",)), self._show),
            VerbHandler(SET, self._set, self._filled),
            VerbHandler(Verb("delete", "delete a profile", (PROFILE, CONFIRM), aliases=("remove", "rm")), self._delete),
            VerbHandler(Verb("bind", "let a profile hold in this channel, or wider", (PROFILE, _SCOPE)), self._bind),
            VerbHandler(Verb("unbind", "let none hold in this channel, or wider", (_SCOPE,)), self._unbind),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        profiles = await self._keeping.all(request.conversation)
        if not profiles:
            how = " `/profile set NAME` makes one." if self._parts.rights.administers(request.member) else ""
            yield Reply(f"No profiles yet: everything is enabled everywhere.{how}")
            return
        bound = await self._bound(request.conversation)
        rows = tuple(
            (
                each.name,
                ", ".join(bound.get(each.id, ())),
                each.model or "the bot's own",
                "all" if each.servers is None else pluralize(len(each.servers), "server"),
                pluralize(len(each.policies), "rule"),
            )
            for each in cut(profiles, request.arguments.page)
        )
        yield Reply(
            f"Profiles · {len(profiles)}",
            Table(("profile", "holds in", "model", "servers", "policies"), rows),
            page=page_of(request.arguments.page, len(profiles), ("profile", "list")),
        )

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        profile = await self._keeping.find(request.arguments.one("profile"), request.conversation)
        servers = await self._directory.all(request.conversation)
        bound = await self._bound(request.conversation)
        values = profile_values(profile, servers)
        when = format_ago(profile.updated_at, self._parts.clock())
        facts = (
            ("name", profile.name),
            ("holds in", ", ".join(bound.get(profile.id, ())) or "no place yet"),
            ("persona", profile.persona),
            ("model", profile.model or "the bot's own"),
            ("servers", "all" if profile.servers is None else values["servers"].replace("\n", ", ") or "none"),
            ("tools", values["tools"].replace("\n", ", ")),
            ("policies", values["policies"].replace("\n", ", ")),
            ("approvers", values["approvers"].replace("\n", ", ")),
            ("for", "every workspace" if profile.workspace == EVERYWHERE else "this workspace"),
            ("changed", f"{when} by {profile.updated_by}" if profile.updated_by else ""),
            ("version", str(profile.version)),
        )
        yield Reply(
            "Profile",
            details=tuple((name, value) for name, value in facts if value),
            actions=(
                ReplyAction("Edit", ("profile", "set", profile.name)),
                ReplyAction("Bind here", ("profile", "bind", profile.name)),
                ReplyAction("Delete", ("profile", "delete", profile.name), ActionStyle.DANGER),
            ),
        )

    # Setting

    async def _set(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        name = arguments.one("profile").strip()
        present = await self._keeping.named(name, request.conversation) if name else None
        profile = present or self._blank(name, request.member, request.conversation)
        self._keeping.may_change(profile, request.member)
        servers = await self._directory.all(request.conversation)
        if set(arguments.values) <= {"profile"}:
            yield profile_form(profile, profile_values(profile, servers), {})
            return
        fields = _given(arguments)
        draft, errors = parse_profile(profile, fields, servers)
        if errors:
            options = {"name": "name", "servers": "--server", "tools": "--tool", "policies": "--policy"}
            facts = tuple((options.get(field, f"--{field}").rstrip("s"), error) for field, error in errors.items())
            yield replace(error_reply("Nothing was saved. `/profile help set` explains the options."), details=facts)
            return
        yield await self._keep(draft, request.author)

    async def _filled(self, filled: SubmissionContext) -> AsyncIterator[Reply | Form]:
        profile_id, version, *_ = (*filled.state, "", "")
        profiles = await self._keeping.all(filled.conversation)
        profile = next((each for each in profiles if each.id == profile_id), None)
        if profile is None and version != "0":
            raise CommandRejected("That profile is gone. Nothing was saved.")
        profile = profile or self._blank("", filled.member, filled.conversation)
        self._keeping.may_change(profile, filled.member)
        if str(profile.version) != version:
            yield self._overtaken(profile)
            return
        servers = await self._directory.all(filled.conversation)
        draft, errors = parse_profile(profile, filled.fields, servers)
        errors |= filled.errors
        other = await self._keeping.named(draft.name, filled.conversation)
        if other is not None and other.id != profile.id:
            errors["name"] = "There is a profile of that name."
        number = int(filled.state[-1]) if filled.state[-1:] in (("1",), ("2",)) else 1
        step = _next(number, errors)
        if step is not None:
            yield profile_form(profile, {**profile_values(profile, servers), **filled.fields}, errors, step)
            return
        yield await self._keep(draft, filled.author)

    async def _keep(self, profile: Profile, by: Author) -> Reply:
        kept = await self._keeping.save(profile, by)
        if isinstance(kept, Outdated):
            return replace(self._overtaken(profile), details=(("cause", kept.why),))
        return Reply(
            "Profile saved. It applies from the next answer in the places it is bound to.",
            details=(("name", kept.name), ("version", str(kept.version))),
            actions=(ReplyAction("Bind here", ("profile", "bind", kept.name), ActionStyle.PRIMARY),),
        )

    def _overtaken(self, profile: Profile) -> Reply:
        when = format_ago(profile.updated_at, self._parts.clock())
        return Reply(
            "The profile has been changed since you opened it. Nothing was saved.",
            details=(("changed", f"{when} by {profile.updated_by or 'somebody else'}"),),
            failed=True,
            actions=(ReplyAction("Edit again", ("profile", "set", profile.name)),),
        )

    def _blank(self, name: str, member: Member, conversation: ConversationKey) -> Profile:
        return self._keeping.blank(
            name, EVERYWHERE if self._parts.rights.everywhere(member) else conversation.workspace_key
        )

    # Deleting and binding

    async def _delete(self, request: CommandContext) -> AsyncIterator[Reply]:
        profile = await self._keeping.find(request.arguments.one("profile"), request.conversation)
        self._keeping.may_change(profile, request.member)
        typed = request.arguments.one("confirm")
        if not typed:
            held = (await self._bound(request.conversation)).get(profile.id, ())
            yield Reply(
                "Delete this profile? The places where it holds will have none. This cannot be undone. Type its name "
                "to confirm.",
                details=(("name", profile.name), ("holds in", ", ".join(held) or "no place")),
                actions=(
                    ReplyAction(
                        "Delete", ("profile", "delete", profile.name), ActionStyle.DANGER, confirm=profile.name
                    ),
                ),
            )
            return
        if typed.strip().lower() != profile.name.lower():
            raise CommandRejected("That was not its name. Nothing was deleted.")
        await self._keeping.delete(profile, request.author)
        yield Reply("The profile is deleted.", details=(("name", profile.name),))

    async def _bind(self, request: CommandContext) -> AsyncIterator[Reply]:
        profile = await self._keeping.find(request.arguments.one("profile"), request.conversation)
        place, said = self._place(request)
        before = {binding.place: binding.profile for binding in await self._parts.profiles.bindings()}.get(place)
        await self._parts.profiles.bind(place, profile.id, request.author)
        await self._parts.administration.refresh()
        scope = request.arguments.one("scope", SCOPES[0])
        names = {each.id: each.name for each in await self._keeping.all(request.conversation)}
        undo = ("profile", "bind", names[before], scope) if before in names else ("profile", "unbind", scope)
        yield Reply(
            f"The profile holds in {said} from the next answer on.",
            details=(("name", profile.name),),
            actions=(ReplyAction("Undo", undo),),
        )

    async def _unbind(self, request: CommandContext) -> AsyncIterator[Reply]:
        place, said = self._place(request)
        before = {binding.place: binding.profile for binding in await self._parts.profiles.bindings()}.get(place)
        if not await self._parts.profiles.unbind(place, request.author):
            yield Reply(f"No profile holds in {said}. Nothing was changed.", failed=True)
            return
        await self._parts.administration.refresh()
        names = {each.id: each.name for each in await self._keeping.all(request.conversation)}
        scope = request.arguments.one("scope", SCOPES[0])
        undo = (ReplyAction("Undo", ("profile", "bind", names[before], scope)),) if before in names else ()
        yield Reply(f"No profile holds in {said} any more.", actions=undo)

    def _place(self, request: CommandContext) -> tuple[str, str]:
        channel, workspace = binding_scopes(request.conversation)
        match request.arguments.one("scope", SCOPES[0]):
            case "everywhere" if not self._parts.rights.everywhere(request.member):
                raise CommandRejected("Only the operator can say what holds in every workspace.")
            case "everywhere":
                return EVERYWHERE, "every workspace"
            case "workspace":
                return workspace, "this workspace"
            case _:
                return channel, "this channel"

    # Finding

    async def _bound(self, conversation: ConversationKey) -> dict[str, list[str]]:
        """Return the bindings of each profile as display text. Other channels are shown by id."""
        channel, workspace = binding_scopes(conversation)
        said = {channel: "this channel", workspace: "this workspace", EVERYWHERE: "every workspace"}
        found: dict[str, list[str]] = {}
        for binding in await self._parts.profiles.bindings():
            if binding.place in said or binding.place.startswith(f"{workspace}:"):
                found.setdefault(binding.profile, []).append(said.get(binding.place, binding.place.split(":")[-1]))
        return found


def profile_command(
    parts: CommandDependencies, directory: ServerDirectory
) -> tuple[Command, Mapping[str, Sequence[str]]]:
    """Return the command with all its verbs, and the names for completion."""
    profiles = Profiles(parts, directory)
    return Command("profile", "Profiles", profiles.handlers, parts.rights, default="list"), profiles.remembered


def _given(arguments: Arguments) -> dict[str, str]:
    fields = {name: arguments.one(name) for name in ("persona", "model") if arguments.given(name)}
    for option, field in (("server", "servers"), ("tool", "tools"), ("policy", "policies"), ("approver", "approvers")):
        if arguments.given(option):
            fields[field] = "\n".join(arguments.many(option))
    if arguments.given("rename"):
        fields["name"] = arguments.one("rename")
    return fields


def _next(number: int, errors: Mapping[str, str]) -> int | None:
    """Return the first visited step with an error, else the next step; None at the end."""
    for index, step in enumerate(STEPS[:number], 1):
        if any(field.name in errors for field in step):
            return index
    return number + 1 if number < len(STEPS) else None
