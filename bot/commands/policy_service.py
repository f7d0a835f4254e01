"""Service of admins' rules, shared by `/mcp policy` and the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.commands.dependencies import CommandDependencies
from bot.commands.policy_options import shown_id
from bot.commands.rejections import CommandRejected, ForbiddenRejection, NotFoundRejection
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.text_format import did_you_mean, server_label
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import ANY, Rule, as_pattern, is_pattern
from bot.domain.servers import EVERYWHERE


@dataclass(frozen=True, slots=True)
class RuleSaved:
    """A saved rule, and the rule that it replaced."""

    rule: Rule
    before: Rule | None


class PolicyService:
    """Finds, saves and deletes rules, and applies changes to this process."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory

    async def rules(self, where: ConversationKey) -> list[Rule]:
        """Return the admins' rules that apply in a conversation."""
        return [
            rule for rule in await self._parts.policies.rules() if rule.workspace in (EVERYWHERE, where.workspace_key)
        ]

    async def server(self, name: str, where: ConversationKey) -> VisibleServer | None:
        """Return the server by its exact name, None for all servers. Patterns are not accepted, because a rule follows
        its server when it is renamed. Raises CommandRejected.
        """
        if name == ANY:
            return None
        if is_pattern(name):
            raise CommandRejected(
                "A rule here is about one server, or about all: `*`. Other patterns are for the file."
            )
        return await self._directory.find(name, where)

    async def profile(self, name: str, where: ConversationKey) -> str:
        """Return the id of a profile by its name or id; empty without a name. Raises NotFoundRejection."""
        if not name:
            return ""
        for profile in await self._parts.profiles.profiles():
            if profile.workspace in (EVERYWHERE, where.workspace_key) and name.strip().lower() in (
                profile.name.lower(),
                profile.id,
            ):
                return profile.id
        raise NotFoundRejection("There is no profile of that name. `/profile list` lists them.")

    async def tool(self, seen: VisibleServer | None, name: str) -> str:
        """Return the pattern of a tool by its name, syncing the server if its tools are unknown; a pattern unchanged;
        ANY without a name. Raises NotFoundRejection.
        """
        if name and seen:
            await self._directory.connect([seen])
        return self.tool_name(seen, name) if name else ANY

    def tool_name(self, seen: VisibleServer | None, name: str) -> str:
        """Return the pattern of a known tool, or the given pattern. Raises NotFoundRejection."""
        tools = self._directory.capabilities(seen).tools if seen else ()
        found = next((tool for tool in tools if name in (tool.original_name, tool.name)), None)
        if found is not None:
            return as_pattern(found.original_name)
        if seen is None or is_pattern(name):
            return name
        hint = did_you_mean(name, (tool.original_name for tool in tools))
        raise NotFoundRejection(f"{server_label(seen.config)} has no tool of that name.{hint} `/mcp tools` lists them.")

    async def set(self, rule: Rule, by: Author) -> RuleSaved:
        """Save a rule. It replaces the rule of its workspace about the same calls. Raises NotFound."""
        before = next((each for each in await self._parts.policies.rules() if _same(each, rule)), None)
        kept = await self._parts.policies.set_rule(rule, by)
        await self._parts.administration.refresh()
        return RuleSaved(kept, before)

    def about(
        self, rules: Sequence[Rule], seen: VisibleServer | None, name: str, member: Member
    ) -> tuple[str, Rule | None]:
        """Return the tool pattern, and the rule about this server and tool alone, preferring one that the member may
        change. Raises NotFoundRejection.
        """
        found = [rule for rule in rules if rule.server_id == (seen.id if seen else "") and bare(rule)]
        tool = name if name in {each.tool for each in found} else self.tool_name(seen, name) if name else ANY
        fitting = [each for each in found if each.tool == tool]
        mine = [each for each in fitting if self._may_change(each, member)]
        return tool, next(iter(mine or fitting), None)

    async def clear(self, rule: Rule, member: Member) -> bool:
        """Delete a rule. Return False if it is missing. Raises ForbiddenRejection."""
        if not self._may_change(rule, member):
            raise ForbiddenRejection(f"{shown_id(rule)} holds in every workspace. Only the operator can change it.")
        cleared = await self._parts.policies.clear_rule(rule.id, member.author)
        if cleared:
            await self._parts.administration.refresh()
        return cleared

    def _may_change(self, rule: Rule, member: Member) -> bool:
        return rule.workspace != EVERYWHERE or self._parts.rights.everywhere(member)


def bare(rule: Rule) -> bool:
    """Return True if the rule has no conditions besides server and tool."""
    return rule.conditions[3:] == Rule(rule.policy).conditions[3:]


def _same(one: Rule, other: Rule) -> bool:
    return one.workspace == other.workspace and one.conditions == other.conditions
