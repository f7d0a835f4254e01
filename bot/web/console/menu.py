"""Pages of the console over verbs: the only place that names verbs. A verb without an entry is on the page of all
commands, and on that of each server or profile that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from bot.admin.command import is_allowed
from bot.admin.dependencies import Rights
from bot.domain.commands import CompletionSource, Verb
from bot.domain.conversations import Member
from bot.i18n import gettext_lazy


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """A page with its name in the menu: that of a command line (`words`, the command first), or one with a `path`."""

    title: str
    words: tuple[str, ...] = ()
    path: str = ""
    key: str = ""

    @property
    def address(self) -> str:
        """Path of the page behind `/console`."""
        return self.path or command_path(self.words)


@dataclass(frozen=True, slots=True)
class MenuSection:
    """Entries under a heading."""

    title: str
    entries: tuple[MenuEntry, ...]


APPROVALS_PATH, CONVERSATIONS_PATH, COMMANDS_PATH = "/approvals", "/conversations", "/commands"
SECTIONS = (
    MenuSection(
        "",
        (
            MenuEntry(gettext_lazy("Approvals"), ("approvals", "list"), key="approvals"),
            MenuEntry(gettext_lazy("Conversations"), ("conversations", "list")),
        ),
    ),
    MenuSection(
        "MCP",
        (
            MenuEntry(gettext_lazy("Servers"), ("mcp", "list")),
            MenuEntry(gettext_lazy("Tools"), ("mcp", "tools")),
            MenuEntry(gettext_lazy("Policies"), ("mcp", "policy", "list")),
            MenuEntry(gettext_lazy("Reviews"), ("mcp", "review", "show")),
            MenuEntry(gettext_lazy("Catalog"), ("mcp", "catalog")),
        ),
    ),
    MenuSection(
        gettext_lazy("Who and how"),
        (
            MenuEntry(gettext_lazy("Profiles"), ("profile", "list")),
            MenuEntry(gettext_lazy("Agents"), ("agents",)),
            MenuEntry(gettext_lazy("Grants"), ("mcp", "grants", "list")),
            MenuEntry(gettext_lazy("Delegations"), ("approvals", "delegations")),
        ),
    ),
    MenuSection(
        gettext_lazy("What happened"),
        (
            MenuEntry(gettext_lazy("Calls"), ("mcp", "log")),
            MenuEntry(gettext_lazy("Audit"), ("mcp", "audit")),
            MenuEntry(gettext_lazy("Statistics"), ("mcp", "stats")),
            MenuEntry(gettext_lazy("Usage"), ("usage", "me")),
            MenuEntry(gettext_lazy("Health"), ("mcp", "health")),
        ),
    ),
    MenuSection(
        gettext_lazy("You"),
        (
            MenuEntry(gettext_lazy("Preferences"), ("preferences", "show")),
            MenuEntry(gettext_lazy("Sessions"), ("console", "sessions")),
            MenuEntry(gettext_lazy("All commands"), path=COMMANDS_PATH),
        ),
    ),
)
_SUBJECTS = (CompletionSource.SERVERS, CompletionSource.PROFILES)


def command_path(words: Sequence[str], **fields: str) -> str:
    """Return the path of the page of a command line, behind `/console`. `fields` are values by parameter."""
    command, *rest = words
    query = [("w", word) for word in rest] + [(f"a.{name}", value) for name, value in fields.items()]
    return f"/run/{command}" + (f"?{urlencode(query)}" if query else "")


def find_verb(verbs: Iterable[Verb], words: Sequence[str]) -> tuple[Verb, tuple[str, ...]] | None:
    """Return the verb at the start of the words behind a command, and the other words; None if there is none."""
    by_path = {path: verb for verb in verbs for path in (verb.path, *verb.aliases)}
    for length in (2, 1, 0):
        verb = by_path.get(" ".join(words[:length]).lower())
        if verb is not None and len(words) >= length:
            return verb, tuple(words[length:])
    return None


class Menu:
    """The menu of a user, and the verbs that a user may run. `verbs` are those of all commands."""

    def __init__(self, verbs: Mapping[str, Sequence[Verb]], rights: Rights) -> None:
        self._verbs = verbs
        self._rights = rights

    def sections(self, member: Member) -> list[MenuSection]:
        """Return the sections with the entries that a user may open."""
        sections = (
            MenuSection(section.title, tuple(entry for entry in section.entries if self._may_open(entry, member)))
            for section in SECTIONS
        )
        return [section for section in sections if section.entries]

    def commands(self, member: Member) -> dict[str, list[Verb]]:
        """Return the verbs of each command that a user may run."""
        allowed = {
            command: [verb for verb in verbs if is_allowed(verb, member, self._rights)]
            for command, verbs in self._verbs.items()
        }
        return {command: verbs for command, verbs in allowed.items() if verbs}

    def related(self, command: str, verb: Verb, member: Member) -> list[Verb]:
        """Return the verbs of a command that are about the same kind of subject as this one's first argument."""
        if not verb.places or verb.places[0].completes not in _SUBJECTS:
            return []
        kind = verb.places[0].completes
        return [
            other
            for other in self.commands(member).get(command, [])
            if other.places and other.places[0].completes is kind
        ]

    def entry_of(self, words: Sequence[str]) -> MenuEntry | None:
        """Return the entry of exactly these words."""
        return next((entry for section in SECTIONS for entry in section.entries if entry.words == tuple(words)), None)

    def _may_open(self, entry: MenuEntry, member: Member) -> bool:
        if entry.path:
            return True
        command, *words = entry.words
        found = find_verb(self._verbs.get(command, ()), words)
        return found is not None and is_allowed(found[0], member, self._rights)
