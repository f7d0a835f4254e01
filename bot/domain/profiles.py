"""Profiles: persona, model, tools and policies of the bot in a workspace or channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.domain.agents import PLACE_NAME
from bot.domain.characters import look_alike, name_key
from bot.domain.conversations import ConversationKey
from bot.domain.locales import Locale
from bot.domain.policies import Rule
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool
from bot.i18n import gettext_lazy

MOST_TOOL_ROUNDS = 200


def name_error(name: str, others: Iterable[str], *, is_agent: bool) -> str:
    """Return why a profile may not have a name beside those of `others`; empty if it may. `is_agent` is True for a
    profile that is asked by its name.
    """
    if look_alike(name, PLACE_NAME) and (is_agent or name_key(name) != PLACE_NAME):
        return gettext_lazy(
            "“{name}” means the profile that answers without a name, so an agent cannot have it.", name=PLACE_NAME
        )
    twin = next((other for other in others if look_alike(name, other)), None)
    if twin is None:
        return ""
    if name_key(twin) == name_key(name):
        return gettext_lazy("There is a profile of that name.")
    return gettext_lazy("It can be taken for the profile {name}, which is written differently.", name=twin)


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of the bot.

    `about` says in a sentence what it does, for users in search of an agent. `servers` are ids; None enables every
    server. `tools` restricts a server with an entry, by id, to the named tools. `model` is `provider:name`, empty for
    the bot's default. `approvers` are principals and roles; empty means those of the settings. `policies` are rules
    that apply where the profile does. `prompts` are suggested to users. `language` and `time_zone` are those of its
    places; empty means those of the users and the settings. `max_tool_rounds` is the number of rounds of tools in a
    turn; 0 means that of the settings.
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
    prompts: tuple[str, ...] = ()
    language: str = ""
    time_zone: str = ""
    about: str = ""
    max_tool_rounds: int = 0
    version: int = 0
    updated_at: float = 0.0
    updated_by: str = ""

    @property
    def enables_everything(self) -> bool:
        """True if every tool of every server may be used with the profile."""
        return self.servers is None and not self.tools

    @property
    def locale(self) -> Locale:
        """Language and time zone of the places."""
        return Locale(self.language, self.time_zone)

    def enables_server(self, server_id: str) -> bool:
        """Return True if tools of this server may be used with the profile."""
        return self.servers is None or server_id in self.servers

    def enables(self, tool: Tool) -> bool:
        """Return True if this tool may be used with the profile. Rules alone decide on tools that run elsewhere."""
        if tool.runs_elsewhere:
            return True
        if not self.enables_server(tool.server_id):
            return False
        named = self.tools.get(tool.server_id)
        return named is None or tool.original_name in named


DEFAULT = Profile("", "default")
"""Profile of places without a binding: all tools are enabled, no instructions."""
DEFAULT_WITHOUT_SERVERS = Profile("", "default", servers=frozenset())
"""The same under `ServersEnabled.PER_PROFILE`."""


class ServersEnabled(StrEnum):
    """Servers that profiles may use: ALL unless a profile names some, or PER_PROFILE only those that it names."""

    ALL = "all"
    PER_PROFILE = "per_profile"

    @property
    def default_profile(self) -> Profile:
        """Profile of places without a binding."""
        return DEFAULT if self is ServersEnabled.ALL else DEFAULT_WITHOUT_SERVERS


@dataclass(frozen=True, slots=True)
class Binding:
    """Binding of a profile to a place: `platform:workspace`, or `platform:workspace:channel`, which overrides it. Of
    those that are not `by_name`, a place has one, which answers there. Those `by_name` answer to their names.
    """

    place: str
    profile: str
    by_name: bool = False


def binding_scopes(conversation: ConversationKey) -> tuple[str, str]:
    """Return the places of a conversation, the most specific first: its channel, its workspace."""
    return str(conversation).rpartition(":")[0], conversation.workspace_key
