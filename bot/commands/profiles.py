"""`/profile`: the bot's name, instructions and allowed servers in a conversation.

`ProfileService`, and the form fields of a profile with their parser, are shared with the HTTP API.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.commands.command import (
    CONFIRM,
    PROFILE,
    Arguments,
    CommandContext,
    CommandRejected,
    ForbiddenRejection,
    NotFoundRejection,
    SubmissionContext,
    VerbHandler,
)
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.text_format import (
    POLICY_SAID,
    did_you_mean,
    error_reply,
    format_change,
    known_facts,
    page_of,
    page_rows,
    parse_policy,
    sentences,
)
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import (
    ActionStyle,
    CompletionSource,
    Field,
    FieldKind,
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
from bot.domain.lenient_json import DuplicateName, parse_json
from bot.domain.locales import close_time_zones, time_zone_name
from bot.domain.policies import ANY, Rule, RuleError, is_pattern, parse_rule, rule_to_table
from bot.domain.profiles import Profile, binding_scopes
from bot.domain.servers import EVERYWHERE
from bot.errors import Conflict
from bot.i18n import (
    _,
    format_alternatives,
    format_enumeration,
    format_list,
    gettext_lazy,
    installed_languages,
    language_name,
    ngettext,
    resolve_language,
)

EVERY_SERVER = "*"
LONGEST_NAME, LONGEST_PERSONA, LONGEST_ABOUT = 100, 4000, 200
MOST_PROMPTS, LONGEST_PROMPT = 4, 300
_PRINCIPAL = re.compile(r"[a-z][a-z-]{0,40}:[^\s,]{1,200}")
_MODEL = re.compile(r"[a-z][a-z0-9_-]{0,40}(?::[^\s]{1,200})?")
_INSTEAD = (
    "/profile set NAME --persona TEXT --server NAME --tool SERVER.TOOL --policy SERVER=ask --approver PLATFORM:ID "
    "--prompt TEXT --language TAG --timezone ZONE"
)
_FIRST = (
    Field("name", gettext_lazy("Name"), required=True, longest=LONGEST_NAME),
    Field(
        "persona",
        gettext_lazy("Persona"),
        FieldKind.LINES,
        gettext_lazy("the bot's role, for the model"),
        longest=LONGEST_PERSONA,
    ),
    Field("model", gettext_lazy("Model"), hint=gettext_lazy("provider:name; empty for the bot's own"), longest=250),
    Field("servers", gettext_lazy("Servers"), FieldKind.LINES, gettext_lazy("one a line; * enables every server")),
    Field(
        "tools",
        gettext_lazy("Tools"),
        FieldKind.LINES,
        gettext_lazy("SERVER.TOOL, one a line: the only ones of that server"),
    ),
)
_SECOND = (
    Field(
        "policies",
        gettext_lazy("Policies"),
        FieldKind.LINES,
        gettext_lazy("SERVER=ask or SERVER.TOOL=deny, or a rule as JSON, one a line"),
    ),
    Field(
        "approvers",
        gettext_lazy("Approvers"),
        FieldKind.LINES,
        gettext_lazy("slack:U1 or slack-group:S1, one a line; empty for the settings'"),
    ),
    Field(
        "prompts",
        gettext_lazy("Suggested prompts"),
        FieldKind.LINES,
        gettext_lazy("in Slack's pane; one a line, up to {count}", count=MOST_PROMPTS),
    ),
)
_THIRD = (
    Field(
        "about",
        gettext_lazy("What it does"),
        hint=gettext_lazy("a sentence, for those who choose an agent by name"),
        longest=LONGEST_ABOUT,
    ),
    Field(
        "language",
        gettext_lazy("Language"),
        hint=gettext_lazy("of what everybody there reads, such as en or ja; empty for the bot's own"),
    ),
    Field(
        "time_zone",
        gettext_lazy("Time zone"),
        hint=gettext_lazy("such as Asia/Tokyo; empty for that of the one who asks"),
    ),
)
STEPS = (_FIRST, _SECOND, _THIRD)

SCOPES = ("channel", "workspace", "everywhere")
_OPTION = ParameterKind.OPTION
_SCOPE = Parameter("scope", gettext_lazy("where it holds"), choices=SCOPES)
_BY_NAME = Parameter(
    "agent", gettext_lazy("only when it is asked by name, beside the one that holds"), ParameterKind.FLAG
)
_NAMED_AGENT = Parameter(
    "agent", gettext_lazy("one that is asked by name"), _OPTION, completes=CompletionSource.PROFILES, metavar="NAME"
)
SET = Verb(
    "set",
    gettext_lazy("a new profile, or another word in one; with a name alone it asks"),
    (
        Parameter("profile", gettext_lazy("the profile's name"), completes=CompletionSource.PROFILES, metavar="NAME"),
        Parameter("persona", gettext_lazy("the bot's role, for the model"), _OPTION, metavar="TEXT"),
        Parameter(
            "about", gettext_lazy("what it does, for those who choose an agent by name"), _OPTION, metavar="TEXT"
        ),
        Parameter("model", gettext_lazy("the model it thinks with"), _OPTION, metavar="PROVIDER:NAME"),
        Parameter(
            "server",
            gettext_lazy("a server it may use; * for all"),
            _OPTION,
            repeated=True,
            completes=CompletionSource.SERVERS,
        ),
        Parameter(
            "tool",
            gettext_lazy("a tool it may use, alone of its server"),
            _OPTION,
            repeated=True,
            metavar="SERVER.TOOL",
        ),
        Parameter(
            "policy",
            gettext_lazy("the rules where it applies"),
            _OPTION,
            repeated=True,
            metavar="SERVER[.TOOL]=ask|allow|deny",
        ),
        Parameter(
            "approver", gettext_lazy("the approvers where it applies"), _OPTION, repeated=True, metavar="PLATFORM:ID"
        ),
        Parameter("prompt", gettext_lazy("prompts that Slack's pane suggests"), _OPTION, repeated=True, metavar="TEXT"),
        Parameter("language", gettext_lazy("the language of what everybody there reads"), _OPTION, metavar="TAG"),
        Parameter(
            "timezone",
            gettext_lazy("the time zone of the times there"),
            _OPTION,
            completes=CompletionSource.TIME_ZONES,
            metavar="ZONE",
        ),
        Parameter("rename", gettext_lazy("another name for it"), _OPTION, metavar="NEW"),
    ),
    aliases=("add", "create", "edit", "new"),
)


# -------------------- service


@dataclass(frozen=True, slots=True)
class Outdated:
    """A change that was not saved because of a newer version. `why` is the store's sentence."""

    why: str


class ProfileService:
    """Finds, saves and deletes profiles, and applies changes to this process."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies
        self._known_names: dict[str, Sequence[str]] = {}

    @property
    def known_names(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._known_names

    async def all(self, conversation: ConversationKey) -> list[Profile]:
        """Return all profiles of a workspace and the global ones, sorted by name."""
        profiles = [
            profile
            for profile in await self._dependencies.profiles.profiles()
            if profile.workspace in (EVERYWHERE, conversation.workspace_key)
        ]
        self._known_names[conversation.workspace_key] = tuple(profile.name for profile in profiles)
        return profiles

    async def find_or_none(self, name: str, conversation: ConversationKey) -> Profile | None:
        """Return the profile by name or id; those of the workspace come before global ones. None if it is missing."""
        wanted = name.strip().lower()
        matches = [
            profile for profile in await self.all(conversation) if wanted in (profile.name.lower(), profile.id.lower())
        ]
        return min(matches, key=lambda profile: profile.workspace == EVERYWHERE, default=None)

    async def find(self, name: str, conversation: ConversationKey) -> Profile:
        """Return the profile by name or id. Raises NotFoundRejection."""
        profile = await self.find_or_none(name, conversation)
        if profile is None:
            hint = did_you_mean(name, self._known_names.get(conversation.workspace_key, ()))
            raise NotFoundRejection(
                sentences(_("There is no profile of that name."), hint, _("`/profile list` lists them."))
            )
        return profile

    def blank(self, name: str, workspace: str) -> Profile:
        """Return a new profile, not saved."""
        servers = self._dependencies.servers_enabled.default_profile.servers
        return Profile(str(uuid.uuid4()), name, workspace, servers=servers)

    def may_change(self, profile: Profile, member: Member) -> None:
        """Check that the member may change the profile. Raises ForbiddenRejection."""
        if profile.workspace == EVERYWHERE and not self._dependencies.rights.administers_everywhere(member):
            raise ForbiddenRejection(_("This profile belongs to every workspace. Only the operator can change it."))

    async def save(self, profile: Profile, by: Author) -> Profile | Outdated:
        """Save a new profile, or a changed one if its version is current. Raises NotFound."""
        try:
            saved = await self._dependencies.profiles.save(profile, by)
        except Conflict as conflict:
            return Outdated(str(conflict))
        await self._dependencies.administration.refresh()
        return saved

    async def delete(self, profile: Profile, by: Author) -> None:
        """Delete a profile and its bindings."""
        await self._dependencies.profiles.delete(profile.id, by)
        await self._dependencies.administration.refresh()


# -------------------- form fields


def profile_form(profile: Profile, values: Mapping[str, str], errors: Mapping[str, str], number: int = 1) -> Form:
    """Return one of the two steps."""
    step = STEPS[number - 1]
    names = {field.name for field in step}
    return Form(
        f"profile set:{profile.id}:{profile.version}:{number}",
        _("Edit profile · {number} of {count}", number=number, count=len(STEPS))
        if profile.version
        else _("New profile · {number} of {count}", number=number, count=len(STEPS)),
        tuple(
            replace(
                field,
                label=str(field.label),
                hint=str(field.hint),
                value=values.get(field.name, ""),
                error=errors.get(field.name, ""),
            )
            for field in step
        ),
        submit=_("Save") if number == len(STEPS) else _("Continue"),
        carried={name: value for name, value in values.items() if name not in names},
        instead=_INSTEAD,
    )


def profile_values(profile: Profile, servers: Sequence[VisibleServer]) -> dict[str, str]:
    """Return the current values, with servers by slug. A removed server keeps its id."""
    slugs = {server.id: server.name for server in servers}
    tools = (f"{slugs.get(server, server)}.{tool}" for server, names in profile.tools.items() for tool in sorted(names))
    policies = (_rule_line(rule, slugs) for rule in profile.policies)
    enabled = (
        [EVERY_SERVER]
        if profile.servers is None
        else sorted(slugs.get(server_id, server_id) for server_id in profile.servers)
    )
    return {
        "name": profile.name,
        "persona": profile.persona,
        "model": profile.model,
        "servers": "\n".join(enabled),
        "tools": "\n".join(tools),
        "policies": "\n".join(policies),
        "approvers": "\n".join(sorted(profile.approvers)),
        "prompts": "\n".join(profile.prompts),
        "about": profile.about,
        "language": profile.language,
        "time_zone": profile.time_zone,
    }


def parse_profile(
    profile: Profile, fields: Mapping[str, str], servers: Sequence[VisibleServer]
) -> tuple[Profile, dict[str, str]]:
    """Return the profile with the given fields, and errors by field. An absent field is unchanged, an empty one is
    cleared.
    """
    reader = _LineParser(servers, profile)
    readers: Mapping[str, Callable[[str], object]] = {
        "name": lambda text: _line(text, LONGEST_NAME),
        "persona": _persona,
        "model": _model,
        "servers": reader.servers,
        "tools": reader.tools,
        "policies": reader.policies,
        "approvers": _approvers,
        "prompts": _prompts,
        "about": lambda text: _line(text, LONGEST_ABOUT),
        "language": parse_language,
        "time_zone": parse_time_zone,
    }
    changes: dict[str, object] = {}
    errors: dict[str, str] = {}
    for name, read in readers.items():
        if name in fields:
            try:
                changes[name] = read(fields[name].strip())
            except ValueError as error:
                errors[name] = str(error)
    changed = replace(profile, **changes)  # type: ignore[arg-type]
    if not changed.name:
        errors.setdefault("name", _("What is it called?"))
    return changed, errors


class _LineParser:
    """Parser of lines about servers, by any of their names. Removed servers keep their ids."""

    def __init__(self, servers: Sequence[VisibleServer], profile: Profile) -> None:
        unlisted = {*(profile.servers or ()), *profile.tools, *(rule.server_id for rule in profile.policies)} - {""}
        # Slugs and ids are added last: a title equal to another server's slug does not hide it.
        self._ids = {server.config.title.lower(): server.id for server in servers if server.config.title}
        self._ids |= {server.name.lower(): server.id for server in servers}
        self._ids |= {server.lower(): server for server in (*unlisted, *(server.id for server in servers))}

    def servers(self, text: str) -> frozenset[str] | None:
        lines = _lines(text)
        return None if EVERY_SERVER in lines else frozenset(self._id(line) for line in lines)

    def tools(self, text: str) -> dict[str, frozenset[str]]:
        tools: dict[str, frozenset[str]] = {}
        for line in _lines(text):
            server, dot, tool = line.partition(".")
            if not dot or not tool:
                raise ValueError(_("Each line is SERVER.TOOL."))
            server_id = self._id(server)
            tools[server_id] = tools.get(server_id, frozenset()) | {tool}
        return tools

    def policies(self, text: str) -> tuple[Rule, ...]:
        """Parse lines of the short form, and rules as JSON. A line about a server covers its tools without a line of
        their own.
        """
        short: list[tuple[str, str, ApprovalPolicy]] = []
        rules: list[Rule] = []
        for line in _rule_lines(text):
            if line.startswith("{"):
                rules.append(self._rule(line))
            else:
                short.append(self._short(line))
        for server, tool, policy in short:
            others = frozenset(
                other_tool
                for other_server, other_tool, _policy in short
                if other_server == server and not is_pattern(other_tool)
            )
            rules.append(
                Rule(policy, server_id=server, tool=tool, excluded_tools=others if tool == ANY else frozenset())
            )
        return tuple(rules)

    def _short(self, line: str) -> tuple[str, str, ApprovalPolicy]:
        place, assigned, word = line.rpartition("=")
        server, _dot, tool = place.partition(".")
        policy = parse_policy(word.strip())
        if not assigned or policy is None:
            raise ValueError(
                _("Each line is SERVER=POLICY or SERVER.TOOL=POLICY; a policy is ask, allow, deny or auto.")
            )
        return self._id(server), tool.strip() or ANY, policy

    def _rule(self, line: str) -> Rule:
        try:
            table = parse_json(line)
        except DuplicateName as error:
            raise ValueError(_("A rule cannot be used: {error}.", error=error)) from None
        except ValueError:
            text = _("A line that begins with {brace} must be a rule as JSON, on one line.", brace="{")
            raise ValueError(text) from None

        server = table.get("server")
        if isinstance(server, str) and not is_pattern(server):
            table = {**{key: value for key, value in table.items() if key != "server"}, "server_id": self._id(server)}
        elif "server" in table and server != ANY:
            raise ValueError(_("A rule's server is a server's name, or *: other patterns are for the operator's file."))
        try:
            return parse_rule(table)
        except RuleError as error:
            raise ValueError(_("A rule's {key}: {error}.", key=error.key, error=error)) from error

    def _id(self, name: str) -> str:
        server_id: str | None = self._ids.get(name.strip().lower())
        if server_id is None:
            raise ValueError(_("One of the servers does not exist here; /mcp list lists them."))
        return server_id


def _rule_line(rule: Rule, slugs: Mapping[str, str]) -> str:
    """Format a rule: the short form if it is complete."""
    server = slugs.get(rule.server_id, rule.server_id)
    if (
        rule
        == Rule(
            rule.policy,
            server_id=rule.server_id,
            tool=rule.tool,
            excluded_tools=rule.excluded_tools,
            id=rule.id,
            by=rule.by,
            at=rule.at,
        )
        and server
    ):
        return f"{server}{'' if rule.tool == ANY else f'.{rule.tool}'}={POLICY_SAID[rule.policy]}"
    table = rule_to_table(rule)
    if table.pop("server_id", ""):
        table["server"] = server
    return json.dumps(table, ensure_ascii=False)


def _rule_lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [rule for line in lines for rule in ([line] if line.startswith("{") else _lines(line))]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in re.split(r"[\n,]", text) if line.strip()]


def _line(text: str, limit: int) -> str:
    if len(text) > limit or not text.isprintable():
        raise ValueError(_("At most {limit} characters on one line.", limit=limit))
    return text


def _persona(text: str) -> str:
    if len(text) > LONGEST_PERSONA:
        raise ValueError(_("At most {limit} characters, and this has {count}.", limit=LONGEST_PERSONA, count=len(text)))
    return text


def _model(text: str) -> str:
    if text and not _MODEL.fullmatch(text):
        raise ValueError(_("Write provider:name, such as anthropic:claude, or nothing."))
    return text


def _approvers(text: str) -> frozenset[str]:
    approvers = frozenset(_lines(text))
    if not all(_PRINCIPAL.fullmatch(approver) for approver in approvers):
        raise ValueError(_("Each is PLATFORM:ID, such as slack:U123 or discord-role:7."))
    return approvers


def _prompts(text: str) -> tuple[str, ...]:
    prompts = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(prompts) > MOST_PROMPTS or any(len(prompt) > LONGEST_PROMPT for prompt in prompts):
        raise ValueError(_("At most {count} lines of {limit} characters.", count=MOST_PROMPTS, limit=LONGEST_PROMPT))
    return prompts


def parse_language(text: str) -> str:
    """Parse the tag of an installed language; empty for none. Raises ValueError."""
    language = resolve_language(text) if text else ""
    if language is None:
        raise ValueError(_("There are no texts in that language, but in {languages}.", languages=_languages()))
    return language


def _languages() -> str:
    return format_list([f"{language} ({language_name(language)})" for language in installed_languages()])


def parse_time_zone(text: str) -> str:
    """Parse the IANA name of a time zone; empty for none. Raises ValueError."""
    zone = time_zone_name(text) if text else ""
    if zone is None:
        close = close_time_zones(text)
        hint = (
            _("Did you mean {name}?", name=format_alternatives(close))
            if close
            else _("Zones have names such as Asia/Tokyo or Europe/Berlin.")
        )
        raise ValueError(sentences(_("There is no such time zone."), hint))
    return zone


# -------------------- verbs


class Profiles:
    """Verbs of `/profile`."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._service = ProfileService(dependencies)

    @property
    def known_names(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._service.known_names

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        return (
            VerbHandler(
                Verb("list", gettext_lazy("every profile and where it holds"), (), RequiredRole.EVERYONE, ("ls",)),
                self._list,
            ),
            VerbHandler(Verb("show", gettext_lazy("one profile in full"), (PROFILE,), aliases=("get",)), self._show),
            VerbHandler(SET, self._set, self._submit),
            VerbHandler(
                Verb("delete", gettext_lazy("delete a profile"), (PROFILE, CONFIRM), aliases=("remove", "rm")),
                self._delete,
            ),
            VerbHandler(
                Verb("bind", gettext_lazy("let a profile hold in this channel, or wider"), (PROFILE, _SCOPE, _BY_NAME)),
                self._bind,
            ),
            VerbHandler(
                Verb("unbind", gettext_lazy("let none hold in this channel, or wider"), (_SCOPE, _NAMED_AGENT)),
                self._unbind,
            ),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        profiles = await self._service.all(request.conversation)
        if not profiles:
            how = _("`/profile set NAME` makes one.") if self._dependencies.rights.administers(request.member) else ""
            yield Reply(sentences(_("No profiles yet: everything is enabled everywhere."), how))
            return
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
        yield Reply(
            _("Profiles · {count}", count=len(profiles)),
            Table(
                (
                    gettext_lazy("profile"),
                    gettext_lazy("holds in"),
                    gettext_lazy("asked by name in"),
                    gettext_lazy("model"),
                    gettext_lazy("servers"),
                    gettext_lazy("policies"),
                ),
                rows,
            ),
            page=page_of(request.arguments.page, len(profiles), ("profile", "list")),
        )

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        profile = await self._service.find(request.arguments.get("profile"), request.conversation)
        servers = await self._directory.all(request.conversation)
        bindings, named = await self._bindings(request.conversation)
        values = profile_values(profile, servers)
        change = format_change(profile.updated_at, profile.updated_by, self._dependencies.clock())
        facts = (
            (gettext_lazy("name"), profile.name),
            (gettext_lazy("holds in"), bindings.get(profile.id, "") or _("no place yet")),
            (gettext_lazy("asked by name in"), named.get(profile.id, "")),
            (gettext_lazy("persona"), profile.persona),
            (gettext_lazy("model"), profile.model or _("the bot's own")),
            (
                gettext_lazy("servers"),
                _("all") if profile.servers is None else values["servers"].replace("\n", ", ") or _("none"),
            ),
            (gettext_lazy("tools"), values["tools"].replace("\n", ", ")),
            (gettext_lazy("policies"), values["policies"].replace("\n", ", ")),
            (gettext_lazy("approvers"), values["approvers"].replace("\n", ", ")),
            (gettext_lazy("prompts"), values["prompts"]),
            (gettext_lazy("what it does"), profile.about),
            (gettext_lazy("language"), profile.language),
            (gettext_lazy("time zone"), profile.time_zone),
            (gettext_lazy("for"), _("every workspace") if profile.workspace == EVERYWHERE else _("this workspace")),
            (gettext_lazy("changed"), change if profile.updated_by else ""),
            (gettext_lazy("version"), str(profile.version)),
        )
        yield Reply(
            _("Profile"),
            details=known_facts(*facts),
            actions=(
                ReplyAction(_("Edit"), ("profile", "set", profile.name)),
                ReplyAction(_("Bind here"), ("profile", "bind", profile.name)),
                ReplyAction(_("Delete"), ("profile", "delete", profile.name), ActionStyle.DANGER),
            ),
        )

    # Setting

    async def _set(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        name = arguments.get("profile").strip()
        present = await self._service.find_or_none(name, request.conversation) if name else None
        profile = present or self._blank(name, request.member, request.conversation)
        self._service.may_change(profile, request.member)
        servers = await self._directory.all(request.conversation)
        if set(arguments.values) <= {"profile"}:
            yield profile_form(profile, profile_values(profile, servers), {})
            return
        fields = _given_fields(arguments)
        draft, errors = parse_profile(profile, fields, servers)
        if errors:
            options = {
                "name": "name",
                "servers": "--server",
                "tools": "--tool",
                "policies": "--policy",
                "time_zone": "--timezone",
            }
            facts = tuple((options.get(field, f"--{field}").rstrip("s"), error) for field, error in errors.items())
            yield replace(error_reply(_("Nothing was saved. `/profile help set` explains the options.")), details=facts)
            return
        yield await self._keep(draft, request.author)

    async def _submit(self, context: SubmissionContext) -> AsyncIterator[Reply | Form]:
        profile_id, version, *_rest = (*context.state, "", "")
        profiles = await self._service.all(context.conversation)
        profile = next((candidate for candidate in profiles if candidate.id == profile_id), None)
        if profile is None and version != "0":
            raise CommandRejected(_("That profile is gone. Nothing was saved."))
        profile = profile or self._blank("", context.member, context.conversation)
        self._service.may_change(profile, context.member)
        if str(profile.version) != version:
            yield self._version_conflict(profile)
            return
        servers = await self._directory.all(context.conversation)
        draft, errors = parse_profile(profile, context.fields, servers)
        errors |= context.errors
        other = await self._service.find_or_none(draft.name, context.conversation)
        if other is not None and other.id != profile.id:
            errors["name"] = _("There is a profile of that name.")
        number = int(context.state[-1]) if context.state[-1:] in (("1",), ("2",), ("3",)) else 1
        step = _next_step(number, errors)
        if step is not None:
            yield profile_form(profile, {**profile_values(profile, servers), **context.fields}, errors, step)
            return
        yield await self._keep(draft, context.author)

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
        return self._service.blank(
            name, EVERYWHERE if self._dependencies.rights.administers_everywhere(member) else conversation.workspace_key
        )

    # Deleting and binding

    async def _delete(self, request: CommandContext) -> AsyncIterator[Reply]:
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
            yield Reply(
                _(
                    "Delete this profile? The places where it holds will have none. This cannot be undone. "
                    "Type its name to confirm."
                ),
                details=known_facts(*facts),
                actions=(
                    ReplyAction(
                        _("Delete"), ("profile", "delete", profile.name), ActionStyle.DANGER, confirm=profile.name
                    ),
                ),
            )
            return
        if typed.strip().lower() != profile.name.lower():
            raise CommandRejected(_("That was not its name. Nothing was deleted."))
        await self._service.delete(profile, request.author)
        yield Reply(_("The profile is deleted."), details=((gettext_lazy("name"), profile.name),))

    async def _bind(self, request: CommandContext) -> AsyncIterator[Reply]:
        profile = await self._service.find(request.arguments.get("profile"), request.conversation)
        place, scope_text = self._scope(request)
        if request.arguments.has("agent"):
            yield await self._bind_by_name(profile, place, scope_text, request)
            return
        before = await self._bound_profile(place)
        await self._dependencies.profiles.bind(place, profile.id, request.author)
        await self._dependencies.administration.refresh()
        scope = request.arguments.get("scope", SCOPES[0])
        names = {other.id: other.name for other in await self._service.all(request.conversation)}
        undo = ("profile", "bind", names[before], scope) if before in names else ("profile", "unbind", scope)
        yield Reply(
            _("The profile holds in {place} from the next answer on.", place=scope_text),
            details=((gettext_lazy("name"), profile.name),),
            actions=(ReplyAction(_("Undo"), undo),),
        )

    async def _unbind(self, request: CommandContext) -> AsyncIterator[Reply]:
        place, scope_text = self._scope(request)
        if request.arguments.has("agent"):
            yield await self._unbind_by_name(place, scope_text, request)
            return
        before = await self._bound_profile(place)
        if not await self._dependencies.profiles.unbind(place, request.author):
            yield Reply(_("No profile holds in {place}. Nothing was changed.", place=scope_text), failed=True)
            return
        await self._dependencies.administration.refresh()
        names = {profile.id: profile.name for profile in await self._service.all(request.conversation)}
        scope = request.arguments.get("scope", SCOPES[0])
        undo = (ReplyAction(_("Undo"), ("profile", "bind", names[before], scope)),) if before in names else ()
        yield Reply(_("No profile holds in {place} any more.", place=scope_text), actions=undo)

    async def _bound_profile(self, place: str) -> str | None:
        bindings = await self._dependencies.profiles.bindings()
        return {binding.place: binding.profile for binding in bindings if not binding.by_name}.get(place)

    async def _bind_by_name(self, profile: Profile, place: str, scope_text: str, request: CommandContext) -> Reply:
        added = await self._dependencies.profiles.bind_by_name(place, profile.id, request.author)
        await self._dependencies.administration.refresh()
        is_wider = place != binding_scopes(request.conversation)[0]
        undo = ("profile", "unbind", request.arguments.get("scope", SCOPES[0]), "--agent", profile.name)
        facts = (
            (gettext_lazy("name"), profile.name),
            (gettext_lazy("ask it"), f"@bot as {profile.name} …, /ask {profile.name} …"),
            (
                gettext_lazy("what it does"),
                profile.about or _("say in a sentence what it does: /profile set NAME --about TEXT"),
            ),
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
        if not await self._dependencies.profiles.unbind_by_name(place, profile.id, request.author):
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

    # Finding

    async def _bindings(self, conversation: ConversationKey) -> tuple[dict[str, str], dict[str, str]]:
        """Return the places where each profile holds, and where it is asked by name, as display text. Other channels
        are shown by id.
        """
        channel, workspace = binding_scopes(conversation)
        scope_texts = {channel: _("this channel"), workspace: _("this workspace"), EVERYWHERE: _("every workspace")}
        bindings: dict[str, list[str]] = {}
        named: dict[str, list[str]] = {}
        for binding in await self._dependencies.profiles.bindings():
            if binding.place in scope_texts or binding.place.startswith(f"{workspace}:"):
                places = (named if binding.by_name else bindings).setdefault(binding.profile, [])
                places.append(scope_texts.get(binding.place, binding.place.split(":")[-1]))
        texts = [{id_: format_enumeration(listed) for id_, listed in found.items()} for found in (bindings, named)]
        return texts[0], texts[1]


def _given_fields(arguments: Arguments) -> dict[str, str]:
    fields = {name: arguments.get(name) for name in ("persona", "model", "about", "language") if arguments.has(name)}
    if arguments.has("timezone"):
        fields["time_zone"] = arguments.get("timezone")
    lists = {"server": "servers", "tool": "tools", "policy": "policies", "approver": "approvers", "prompt": "prompts"}
    for option, field in lists.items():
        if arguments.has(option):
            fields[field] = "\n".join(arguments.get_all(option))
    if arguments.has("rename"):
        fields["name"] = arguments.get("rename")
    return fields


def _next_step(number: int, errors: Mapping[str, str]) -> int | None:
    """Return the first visited step with an error, else the next step; None at the end."""
    for index, step in enumerate(STEPS[:number], 1):
        if any(field.name in errors for field in step):
            return index
    return number + 1 if number < len(STEPS) else None
