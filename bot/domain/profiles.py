"""Profiles: who the bot is in a workspace or channel, and what it may use there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.domain.conversations import ConversationKey
from bot.domain.policies import Rule
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of the bot.

    `servers` are ids; None enables every server. `tools` are the only ones enabled of a server that has an entry, by
    server id. `model` is `provider:name`, empty for the bot's own. `approvers` are principals and roles; empty means
    those of the settings. `policies` are rules that hold where the profile does.
    """

    id: str
    name: str
    workspace: str = EVERYWHERE
    persona: str = ""
    model: str = ""
    servers: frozenset[str] | None = None
    tools: Mapping[str, frozenset[str]] = field(default_factory=dict)
    policies: tuple[Rule, ...] = ()
    approvers: frozenset[str] = frozenset()
    version: int = 0
    updated_at: float = 0.0
    updated_by: str = ""

    @property
    def enables_everything(self) -> bool:
        """True if every tool of every server may be used with the profile."""
        return self.servers is None and not self.tools

    def enables(self, tool: Tool) -> bool:
        """Return True if this tool may be used with the profile."""
        if self.servers is not None and tool.server_id not in self.servers:
            return False
        named = self.tools.get(tool.server_id)
        return named is None or tool.original_name in named


DEFAULT = Profile("", "default")
"""Profile of places without a binding: all tools are enabled, no instructions."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A profile holds in a place: `platform:workspace`, or `platform:workspace:channel`, which wins."""

    place: str
    profile: str


def binding_scopes(conversation: ConversationKey) -> tuple[str, str]:
    """The places a conversation is in, the nearest first: its channel, its workspace."""
    return str(conversation).rpartition(":")[0], conversation.workspace_key
