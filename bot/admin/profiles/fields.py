"""A profile's definition: its form fields with their parser, and the service that finds, saves and deletes profiles.

Commands and the HTTP API share it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.admin.command import ForbiddenRejection, NotFoundRejection, option
from bot.admin.dependencies import CommandDependencies
from bot.admin.resource import Resource, ResourceField, join_lines
from bot.admin.servers.directory import VisibleServer
from bot.admin.text_format import POLICY_SAID, did_you_mean, parse_policy, sentences
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import CompletionSource, FieldKind, Form
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.lenient_json import DuplicateName, parse_json
from bot.domain.locales import close_time_zones, time_zone_name
from bot.domain.mentions import parse_principals
from bot.domain.policies import ANY, Rule, RuleError, is_pattern, parse_rule, rule_to_table
from bot.domain.profiles import MOST_TOOL_ROUNDS, Profile, name_error
from bot.domain.servers import EVERYWHERE
from bot.errors import Conflict
from bot.i18n import (
    _,
    format_alternatives,
    format_list,
    gettext_lazy,
    installed_languages,
    language_name,
    resolve_language,
)

EVERY_SERVER = "*"
LONGEST_NAME, LONGEST_PERSONA, LONGEST_ABOUT = 100, 4000, 200
MOST_PROMPTS, LONGEST_PROMPT = 4, 300
_PRINCIPAL = re.compile(r"[a-z][a-z-]{0,40}:[^\s,]{1,200}")
_MODEL = re.compile(r"[a-z][a-z0-9_-]{0,40}(?::[^\s]{1,200})?")
_INSTEAD = (
    "/profile set NAME --persona TEXT --server NAME --tool SERVER.TOOL --policy SERVER=ask --approver PLATFORM:ID "
    "--prompt TEXT --max-tool-rounds N --language TAG --timezone ZONE"
)


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
            for profile in await self._dependencies.stores.profiles.profiles()
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
        servers = self._dependencies.operator.servers_enabled.default_profile.servers
        return Profile(str(uuid.uuid4()), name, workspace, servers=servers)

    def may_change(self, profile: Profile, member: Member) -> None:
        """Check that the member may change the profile. Raises ForbiddenRejection."""
        if profile.workspace == EVERYWHERE and not self._dependencies.rights.administers_everywhere(member):
            raise ForbiddenRejection(_("This profile belongs to every workspace. Only the operator can change it."))

    async def save(self, profile: Profile, by: Author) -> Profile | Outdated:
        """Save a new profile, or a changed one if its version is current. Raises NotFound, Conflict for its name."""
        try:
            saved = await self._dependencies.stores.profiles.save(profile, by)
        except Conflict as conflict:
            if conflict.field:
                raise
            return Outdated(str(conflict))
        await self._dependencies.administration.refresh()
        return saved

    async def name_error(self, profile: Profile, conversation: ConversationKey) -> str:
        """Return why the profile may not have its name; empty if it may."""
        others = [other.name for other in await self.all(conversation) if other.id != profile.id]
        bindings = await self._dependencies.stores.profiles.bindings()
        is_agent = any(binding.by_name and binding.profile == profile.id for binding in bindings)
        return str(name_error(profile.name, others, is_agent=is_agent))

    async def delete(self, profile: Profile, by: Author) -> None:
        """Delete a profile and its bindings."""
        await self._dependencies.stores.profiles.delete(profile.id, by)
        await self._dependencies.administration.refresh()


def profile_form(profile: Profile, values: Mapping[str, str], errors: Mapping[str, str], number: int = 1) -> Form:
    """Return one step of the form."""
    steps = len(PROFILE.steps)
    fields = PROFILE.filled_step(number, values, errors)
    names = {field.name for field in fields}
    return Form(
        f"profile set:{profile.id}:{profile.version}:{number}",
        _("Edit profile · {number} of {count}", number=number, count=steps)
        if profile.version
        else _("New profile · {number} of {count}", number=number, count=steps),
        fields,
        submit=_("Save") if number == steps else _("Continue"),
        carried={name: value for name, value in values.items() if name not in names},
        instead=_INSTEAD,
    )


def profile_values(profile: Profile, servers: Sequence[VisibleServer]) -> dict[str, str]:
    """Return the current values, with servers by slug. A removed server keeps its id."""
    return PROFILE.values(profile, _Scope(servers, profile))


def parse_profile(
    profile: Profile, fields: Mapping[str, str], servers: Sequence[VisibleServer]
) -> tuple[Profile, dict[str, str]]:
    """Return the profile with the given fields, and errors by field. An absent field is unchanged, an empty one is
    cleared.
    """
    changed, errors = PROFILE.parse(profile, fields, _Scope(servers, profile))
    if not changed.name:
        errors.setdefault("name", _("What is it called?"))
    return changed, errors


class _Scope:
    """Servers that a profile may name, by any of their names. Removed servers keep their ids."""

    def __init__(self, servers: Sequence[VisibleServer], profile: Profile) -> None:
        unlisted = {*(profile.servers or ()), *profile.tools, *(rule.server_id for rule in profile.policies)} - {""}
        # Slugs and ids are added last: a title equal to another server's slug does not hide it.
        self._ids = {server.config.title.lower(): server.id for server in servers if server.config.title}
        self._ids |= {server.name.lower(): server.id for server in servers}
        self._ids |= {server.lower(): server for server in (*unlisted, *(server.id for server in servers))}
        self._slugs = {server.id: server.name for server in servers}

    def format_servers(self, servers: frozenset[str] | None) -> str:
        return EVERY_SERVER if servers is None else "\n".join(sorted(map(self._slug, servers)))

    def format_tools(self, tools: Mapping[str, frozenset[str]]) -> str:
        return "\n".join(f"{self._slug(server)}.{name}" for server, names in tools.items() for name in sorted(names))

    def format_policies(self, policies: Sequence[Rule]) -> str:
        return "\n".join(map(self._rule_line, policies))

    def _rule_line(self, rule: Rule) -> str:
        """Format a rule: the short form if it is complete."""
        server = self._slug(rule.server_id)
        kept = {name: getattr(rule, name) for name in ("server_id", "tool", "excluded_tools", "id", "by", "at")}
        if server and rule == Rule(rule.policy, **kept):
            return f"{server}{'' if rule.tool == ANY else f'.{rule.tool}'}={POLICY_SAID[rule.policy]}"
        table = rule_to_table(rule)
        if table.pop("server_id", ""):
            table["server"] = server
        return json.dumps(table, ensure_ascii=False)

    def _slug(self, server_id: str) -> str:
        return self._slugs.get(server_id, server_id)

    def parse_servers(self, text: str) -> frozenset[str] | None:
        lines = _lines(text)
        return None if EVERY_SERVER in lines else frozenset(self._id(line) for line in lines)

    def parse_tools(self, text: str) -> dict[str, frozenset[str]]:
        tools: dict[str, frozenset[str]] = {}
        for line in _lines(text):
            server, dot, tool = line.partition(".")
            if not dot or not tool:
                raise ValueError(_("Each line is SERVER.TOOL."))
            server_id = self._id(server)
            tools[server_id] = tools.get(server_id, frozenset()) | {tool}
        return tools

    def parse_policies(self, text: str) -> tuple[Rule, ...]:
        """Parse lines of the short form, and rules as JSON. A line about a server covers its tools without a line of
        their own.
        """
        short: list[tuple[str, str, ApprovalPolicy]] = []
        rules: list[Rule] = []
        for line in map(str.strip, text.splitlines()):
            if line.startswith("{"):
                rules.append(self._rule(line))
            else:
                short += map(self._short, _lines(line))
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
    approvers = frozenset(_lines(parse_principals(text)))
    if not all(_PRINCIPAL.fullmatch(approver) for approver in approvers):
        raise ValueError(_("Each is PLATFORM:ID, such as slack:U123 or discord-role:7."))
    return approvers


def _rounds(text: str) -> int:
    if text and not (re.fullmatch("[0-9]{1,4}", text) and 1 <= int(text) <= MOST_TOOL_ROUNDS):
        raise ValueError(_("Write a number from 1 to {most}, or nothing.", most=MOST_TOOL_ROUNDS))
    return int(text or 0)


def _prompts(text: str) -> tuple[str, ...]:
    prompts = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(prompts) > MOST_PROMPTS or any(len(prompt) > LONGEST_PROMPT for prompt in prompts):
        raise ValueError(_("At most {count} lines of {limit} characters.", count=MOST_PROMPTS, limit=LONGEST_PROMPT))
    return prompts


def parse_language(text: str) -> str:
    """Parse the tag of an installed language; empty for none. Raises ValueError."""
    language = resolve_language(text) if text else ""
    if language is None:
        installed = format_list([f"{language} ({language_name(language)})" for language in installed_languages()])
        raise ValueError(_("There are no texts in that language, but in {languages}.", languages=installed))
    return language


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


def _plain(parse: Callable[[str], object]) -> Callable[[str, _Scope], object]:
    return lambda text, _scope: parse(text)


def _shown_servers(text: str) -> str:
    return _("all") if text == EVERY_SERVER else join_lines(text) or _("none")


# fmt: off
PROFILE = Resource((
    ResourceField(
        "name", _plain(partial(_line, limit=LONGEST_NAME)),
        option("rename", "another name for it", metavar="NEW"),
        1, "Name", "", "name", longest=LONGEST_NAME, required=True,
    ),
    ResourceField(
        "persona", _plain(_persona),
        option("persona", "the bot's role, for the model", metavar="TEXT"),
        1, "Persona", "the bot's role, for the model", "persona", longest=LONGEST_PERSONA,
        kind=FieldKind.LINES, shown=str,
    ),
    ResourceField(
        "model", _plain(_model),
        option("model", "the model it thinks with", metavar="PROVIDER:NAME"),
        1, "Model", "provider:name; empty for the bot's own", "model", longest=250,
        shown=lambda model: model or _("the bot's own"),
    ),
    ResourceField(
        "servers", lambda text, scope: scope.parse_servers(text),
        option("server", "a server it may use; * for all", repeated=True, completes=CompletionSource.SERVERS),
        1, "Servers", "one a line; * enables every server", "servers",
        "Ids, slugs or names. Absent: unchanged; `*` enables all.", list[str], lines=True, api="enabled_mcp_server_ids",
        format=lambda servers, scope: scope.format_servers(servers), shown=_shown_servers,
    ),
    ResourceField(
        "tools", lambda text, scope: scope.parse_tools(text),
        option("tool", "a tool it may use, alone of its server", repeated=True, metavar="SERVER.TOOL"),
        1, "Tools", "SERVER.TOOL, one a line: the only ones of that server",
        "tools", "`SERVER.TOOL`: the only ones of that server.", list[str], lines=True,
        format=lambda tools, scope: scope.format_tools(tools),
    ),
    ResourceField(
        "policies", lambda text, scope: scope.parse_policies(text),
        option("policy", "the rules where it applies", repeated=True, metavar="SERVER[.TOOL]=ask|allow|deny"),
        2, "Policies", "SERVER=ask or SERVER.TOOL=deny, or a rule as JSON, one a line",
        "policies", "`SERVER=ask`, `SERVER.TOOL=deny`, or a rule as JSON.", list[str], lines=True,
        format=lambda policies, scope: scope.format_policies(policies),
    ),
    ResourceField(
        "approvers", _plain(_approvers),
        option("approver", "the approvers where it applies", repeated=True, metavar="PLATFORM:ID"),
        2, "Approvers", "slack:U1 or slack-group:S1, one a line; empty for the settings'",
        "approvers", None, list[str], lines=True,
    ),
    ResourceField(
        "prompts", _plain(_prompts),
        option("prompt", "prompts that Slack's pane suggests", repeated=True, metavar="TEXT"),
        2, "Suggested prompts",
        gettext_lazy("in Slack's pane; one a line, up to {count}", count=MOST_PROMPTS), "prompts",
        "Up to four prompts that Slack's pane suggests.", list[str], lines=True, shown=str,
    ),
    ResourceField(
        "about", _plain(partial(_line, limit=LONGEST_ABOUT)),
        option("about", "what it does, for those who choose an agent by name", metavar="TEXT"),
        3, "What it does", "a sentence, for those who choose an agent by name",
        "what it does", "Its purpose, in a sentence for users who choose an agent.",
        longest=LONGEST_ABOUT,
    ),
    ResourceField(
        "max_tool_rounds", _plain(_rounds),
        option("max-tool-rounds", "the rounds of tools for one answer", metavar="N"),
        3, "Rounds of tools",
        gettext_lazy("for one answer, up to {count}; empty for the bot's own", count=MOST_TOOL_ROUNDS),
        "rounds of tools",
        f"Rounds of tools for one answer, up to {MOST_TOOL_ROUNDS}; 0 for the bot's own.", int,
    ),
    ResourceField(
        "language", _plain(parse_language),
        option("language", "the language of what everybody there reads", metavar="TAG"),
        3, "Language", "of what everybody there reads, such as en or ja; empty for the bot's own",
        "language", "Language of shared texts there: `en`, `ja`; empty for none.",
    ),
    ResourceField(
        "time_zone", _plain(parse_time_zone),
        option(
            "timezone", "the time zone of the times there", completes=CompletionSource.TIME_ZONES,
            metavar="ZONE",
        ),
        3, "Time zone", "such as Asia/Tokyo; empty for that of the one who asks",
        "time zone", "An IANA name, such as `Asia/Tokyo`; empty for none.",
    ),
))
# fmt: on
