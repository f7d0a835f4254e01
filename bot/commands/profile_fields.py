"""A profile as form fields, formatted and parsed. All errors are reported at once, by field.

Service of profiles, shared by `/profile` and the HTTP API.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.commands.argument_parser import ForbiddenRejection, NotFoundRejection
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_directory import VisibleServer
from bot.commands.text_format import POLICY_SAID, did_you_mean, parse_policy
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Field, FieldKind, Form
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.lenient_json import DuplicateName, unique_names
from bot.domain.policies import ANY, Rule, is_pattern
from bot.domain.policy_syntax import RuleError, parse_rule, rule_to_table
from bot.domain.profiles import Profile
from bot.domain.servers import EVERYWHERE
from bot.errors import Conflict


@dataclass(frozen=True, slots=True)
class Outdated:
    """A change that was not saved because of a newer version. `why` is the store's sentence."""

    why: str


class ProfileService:
    """Finds, saves and deletes profiles, and applies changes to this process."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts
        self._remembered: dict[str, Sequence[str]] = {}

    @property
    def remembered(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._remembered

    async def all(self, conversation: ConversationKey) -> list[Profile]:
        """Return all profiles of a workspace and the global ones, sorted by name."""
        profiles = [
            profile
            for profile in await self._parts.profiles.profiles()
            if profile.workspace in (EVERYWHERE, conversation.workspace_key)
        ]
        self._remembered[conversation.workspace_key] = tuple(each.name for each in profiles)
        return profiles

    async def named(self, name: str, conversation: ConversationKey) -> Profile | None:
        """Return the profile by name or id; those of the workspace come before global ones. None if it is missing."""
        wanted = name.strip().lower()
        found = [each for each in await self.all(conversation) if wanted in (each.name.lower(), each.id.lower())]
        return min(found, key=lambda each: each.workspace == EVERYWHERE, default=None)

    async def find(self, name: str, conversation: ConversationKey) -> Profile:
        """Return the profile by name or id. Raises NotFoundRejection."""
        profile = await self.named(name, conversation)
        if profile is None:
            hint = did_you_mean(name, self._remembered.get(conversation.workspace_key, ()))
            raise NotFoundRejection(f"There is no profile of that name.{hint} `/profile list` lists them.")
        return profile

    def blank(self, name: str, workspace: str) -> Profile:
        """Return a new profile, not saved."""
        return Profile(str(uuid.uuid4()), name, workspace)

    def may_change(self, profile: Profile, member: Member) -> None:
        """Check that the member may change the profile. Raises ForbiddenRejection."""
        if profile.workspace == EVERYWHERE and not self._parts.rights.everywhere(member):
            raise ForbiddenRejection("This profile belongs to every workspace. Only the operator can change it.")

    async def save(self, profile: Profile, by: Author) -> Profile | Outdated:
        """Save a new profile, or a changed one if its version is current. Raises NotFound."""
        try:
            kept = await self._parts.profiles.save(profile, by)
        except Conflict as conflict:
            return Outdated(str(conflict))
        await self._parts.administration.refresh()
        return kept

    async def delete(self, profile: Profile, by: Author) -> None:
        """Delete a profile and its bindings."""
        await self._parts.profiles.delete(profile.id, by)
        await self._parts.administration.refresh()


EVERY_SERVER = "*"
LONGEST_NAME, LONGEST_PERSONA = 100, 4000
_PRINCIPAL = re.compile(r"[a-z][a-z-]{0,40}:[^\s,]{1,200}")
_MODEL = re.compile(r"[a-z][a-z0-9_-]{0,40}(?::[^\s]{1,200})?")
_INSTEAD = (
    "/profile set NAME --persona TEXT --server NAME --tool SERVER.TOOL --policy SERVER=ask --approver PLATFORM:ID"
)
_FIRST = (
    Field("name", "Name", required=True, longest=LONGEST_NAME),
    Field("persona", "Persona", FieldKind.LINES, "the bot's role, for the model", longest=LONGEST_PERSONA),
    Field("model", "Model", hint="provider:name; empty for the bot's own", longest=250),
    Field("servers", "Servers", FieldKind.LINES, "one a line; * enables every server"),
    Field("tools", "Tools", FieldKind.LINES, "SERVER.TOOL, one a line: the only ones of that server"),
)
_SECOND = (
    Field("policies", "Policies", FieldKind.LINES, "SERVER=ask or SERVER.TOOL=deny, or a rule as JSON, one a line"),
    Field("approvers", "Approvers", FieldKind.LINES, "slack:U1 or slack-group:S1, one a line; empty for the settings'"),
)
STEPS = (_FIRST, _SECOND)


def profile_form(profile: Profile, values: Mapping[str, str], errors: Mapping[str, str], number: int = 1) -> Form:
    """Return one of the two steps."""
    step = STEPS[number - 1]
    names = {field.name for field in step}
    return Form(
        f"profile set:{profile.id}:{profile.version}:{number}",
        f"{'Edit' if profile.version else 'New'} profile · {number} of {len(STEPS)}",
        tuple(replace(each, value=values.get(each.name, ""), error=errors.get(each.name, "")) for each in step),
        submit="Save" if number == len(STEPS) else "Continue",
        carried={name: value for name, value in values.items() if name not in names},
        instead=_INSTEAD,
    )


def profile_values(profile: Profile, servers: Sequence[VisibleServer]) -> dict[str, str]:
    """Return the current values, with servers by slug. A removed server keeps its id."""
    slugs = {seen.id: seen.name for seen in servers}
    tools = (f"{slugs.get(server, server)}.{tool}" for server, names in profile.tools.items() for tool in sorted(names))
    policies = (_line(rule, slugs) for rule in profile.policies)
    enabled = [EVERY_SERVER] if profile.servers is None else sorted(slugs.get(each, each) for each in profile.servers)
    return {
        "name": profile.name,
        "persona": profile.persona,
        "model": profile.model,
        "servers": "\n".join(enabled),
        "tools": "\n".join(tools),
        "policies": "\n".join(policies),
        "approvers": "\n".join(sorted(profile.approvers)),
    }


def parse_profile(
    profile: Profile, fields: Mapping[str, str], servers: Sequence[VisibleServer]
) -> tuple[Profile, dict[str, str]]:
    """Return the profile with the given fields, and errors by field. An absent field is unchanged, an empty one is
    cleared.
    """
    reader = _Reader(servers, profile)
    readers: Mapping[str, Callable[[str], Mapping[str, object]]] = {
        "name": lambda text: {"name": _name(text)},
        "persona": lambda text: {"persona": _persona(text)},
        "model": lambda text: {"model": _model(text)},
        "servers": lambda text: {"servers": reader.servers(text)},
        "tools": lambda text: {"tools": reader.tools(text)},
        "policies": lambda text: {"policies": reader.policies(text)},
        "approvers": lambda text: {"approvers": _approvers(text)},
    }
    changes: dict[str, object] = {}
    errors: dict[str, str] = {}
    for name, read in readers.items():
        if name in fields:
            try:
                changes |= read(fields[name].strip())
            except ValueError as error:
                errors[name] = str(error)
    changed = replace(profile, **changes)  # type: ignore[arg-type]
    if not changed.name:
        errors.setdefault("name", "What is it called?")
    return changed, errors


class _Reader:
    """Parser of lines about servers, by any of their names. Removed servers keep their ids."""

    def __init__(self, servers: Sequence[VisibleServer], profile: Profile) -> None:
        gone = {*(profile.servers or ()), *profile.tools, *(rule.server_id for rule in profile.policies)} - {""}
        # Slugs and ids are added last: a title equal to another server's slug does not hide it.
        self._ids = {seen.config.title.lower(): seen.id for seen in servers if seen.config.title}
        self._ids |= {seen.name.lower(): seen.id for seen in servers}
        self._ids |= {server.lower(): server for server in (*gone, *(seen.id for seen in servers))}

    def servers(self, text: str) -> frozenset[str] | None:
        lines = _lines(text)
        return None if EVERY_SERVER in lines else frozenset(self._id(line) for line in lines)

    def tools(self, text: str) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for line in _lines(text):
            server, dot, tool = line.partition(".")
            if not dot or not tool:
                raise ValueError("Each line is SERVER.TOOL.")
            server_id = self._id(server)
            found[server_id] = found.get(server_id, frozenset()) | {tool}
        return found

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
            others = frozenset(each for each_server, each, _ in short if each_server == server and not is_pattern(each))
            rules.append(
                Rule(policy, server_id=server, tool=tool, excluded_tools=others if tool == ANY else frozenset())
            )
        return tuple(rules)

    def _short(self, line: str) -> tuple[str, str, ApprovalPolicy]:
        place, assigned, word = line.rpartition("=")
        server, _, tool = place.partition(".")
        policy = parse_policy(word.strip())
        if not assigned or policy is None:
            raise ValueError("Each line is SERVER=POLICY or SERVER.TOOL=POLICY; a policy is ask, allow, deny or auto.")
        return self._id(server), tool.strip() or ANY, policy

    def _rule(self, line: str) -> Rule:
        try:
            table = json.loads(line, object_pairs_hook=unique_names)
        except DuplicateName as error:
            raise ValueError(f"A rule cannot be used: {error}.") from None
        except (ValueError, RecursionError):
            raise ValueError("A line that begins with { must be a rule as JSON, on one line.") from None
        server = table.get("server")
        if isinstance(server, str) and not is_pattern(server):
            table = {**{key: value for key, value in table.items() if key != "server"}, "server_id": self._id(server)}
        elif "server" in table and server != ANY:
            raise ValueError("A rule's server is a server's name, or *: other patterns are for the operator's file.")
        try:
            return parse_rule(table)
        except RuleError as error:
            raise ValueError(f"A rule's {error.key}: {error}.") from error

    def _id(self, name: str) -> str:
        found: str | None = self._ids.get(name.strip().lower())
        if found is None:
            raise ValueError("One of the servers does not exist here; /mcp list lists them.")
        return found


def _line(rule: Rule, slugs: Mapping[str, str]) -> str:
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
    return [each for line in lines for each in ([line] if line.startswith("{") else _lines(line))]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in re.split(r"[\n,]", text) if line.strip()]


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"At most {LONGEST_NAME} characters on one line.")
    return text


def _persona(text: str) -> str:
    if len(text) > LONGEST_PERSONA:
        raise ValueError(f"At most {LONGEST_PERSONA} characters, and this has {len(text)}.")
    return text


def _model(text: str) -> str:
    if text and not _MODEL.fullmatch(text):
        raise ValueError("Write provider:name, such as anthropic:claude, or nothing.")
    return text


def _approvers(text: str) -> frozenset[str]:
    found = frozenset(_lines(text))
    if not all(_PRINCIPAL.fullmatch(each) for each in found):
        raise ValueError("Each is PLATFORM:ID, such as slack:U123 or discord-role:7.")
    return found
