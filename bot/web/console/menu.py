"""Pages of the console over verbs: the only place that names verbs. A verb without an entry is on the page of all
commands, and on that of each server or profile that it takes.
"""

from __future__ import annotations

import re
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
    """A page with its name in the menu, at a path behind `/console`. `words` are its command line, the command first;
    empty for a page that is no verb. `count` is the key of a number beside the name. A `live` page follows changes.
    """

    title: str
    path: str
    words: tuple[str, ...] = ()
    count: str = ""
    live: bool = False


@dataclass(frozen=True, slots=True)
class MenuSection:
    """Entries under a heading."""

    title: str
    entries: tuple[MenuEntry, ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A verb below the one of a page, under a heading. On the page of a server, its name follows `words`."""

    title: str
    words: tuple[str, ...]


APPROVALS_PATH, ASK_PATH, CONVERSATIONS_PATH = "/approvals", "/ask", "/conversations"
COMMANDS_PATH, SERVERS_PATH = "/commands", "/servers"
SECTIONS = (
    MenuSection(
        "",
        (
            MenuEntry(gettext_lazy("Approvals"), APPROVALS_PATH, count="approvals"),
            MenuEntry(gettext_lazy("Ask"), ASK_PATH),
            MenuEntry(gettext_lazy("Conversations"), CONVERSATIONS_PATH),
        ),
    ),
    MenuSection(
        "MCP",
        (
            MenuEntry(gettext_lazy("Servers"), SERVERS_PATH, ("mcp", "list"), live=True),
            MenuEntry(gettext_lazy("Tools"), "/tools", ("mcp", "tools")),
            MenuEntry(gettext_lazy("Policies"), "/policies", ("mcp", "policy", "list")),
            MenuEntry(gettext_lazy("Reviews"), "/reviews", ("mcp", "review", "show")),
            MenuEntry(gettext_lazy("Catalog"), "/catalog", ("mcp", "catalog")),
        ),
    ),
    MenuSection(
        gettext_lazy("Who and how"),
        (
            MenuEntry(gettext_lazy("Profiles"), "/profiles", ("profile", "list")),
            MenuEntry(gettext_lazy("Agents"), "/agents", ("agents",)),
            MenuEntry(gettext_lazy("Grants"), "/grants", ("mcp", "grants", "list")),
            MenuEntry(gettext_lazy("Delegations"), "/delegations", ("approvals", "delegations")),
        ),
    ),
    MenuSection(
        gettext_lazy("What happened"),
        (
            MenuEntry(gettext_lazy("Calls"), "/calls", ("mcp", "log")),
            MenuEntry(gettext_lazy("Audit"), "/audit", ("mcp", "audit")),
            MenuEntry(gettext_lazy("Statistics"), "/statistics", ("mcp", "stats")),
            MenuEntry(gettext_lazy("Usage"), "/usage", ("usage", "me")),
            MenuEntry(gettext_lazy("Health"), "/health", ("mcp", "health")),
        ),
    ),
    MenuSection(
        gettext_lazy("You"),
        (
            MenuEntry(gettext_lazy("Tokens"), "/tokens", ("console", "tokens")),
            MenuEntry(gettext_lazy("Installations"), "/installations", ("console", "installations")),
            MenuEntry(gettext_lazy("Preferences"), "/preferences", ("preferences", "show")),
            MenuEntry(gettext_lazy("Sessions"), "/sessions", ("console", "sessions")),
            MenuEntry(gettext_lazy("All commands"), COMMANDS_PATH),
        ),
    ),
)
_SECTIONS: Mapping[tuple[str, ...], tuple[PageSection, ...]] = {
    ("mcp", "show"): (
        PageSection(gettext_lazy("Tools"), ("mcp", "tools")),
        PageSection(gettext_lazy("Reviews"), ("mcp", "review", "show")),
        PageSection(gettext_lazy("Profiles"), ("profile", "list")),
        PageSection(gettext_lazy("Calls"), ("mcp", "log")),
        PageSection(gettext_lazy("Remove"), ("mcp", "remove")),
    ),
    ("mcp", "policy", "list"): (
        PageSection(gettext_lazy("Explain"), ("mcp", "policy", "explain")),
        PageSection(gettext_lazy("Set a rule"), ("mcp", "policy", "set")),
    ),
    ("mcp", "health"): (PageSection(gettext_lazy("Doctor"), ("mcp", "doctor")),),
    ("usage", "me"): (
        PageSection(gettext_lazy("Your days"), ("usage", "me", "--by", "day")),
        PageSection(gettext_lazy("Days of this workspace"), ("usage", "workspace", "--by", "day")),
        PageSection(gettext_lazy("Persons"), ("usage", "workspace", "--by", "person")),
        PageSection(gettext_lazy("Models"), ("usage", "workspace", "--by", "model")),
        PageSection(gettext_lazy("All workspaces"), ("usage", "all", "--by", "day")),
        PageSection(gettext_lazy("Servers"), ("mcp", "stats")),
    ),
    ("console", "tokens"): (PageSection(gettext_lazy("Make a token"), ("console", "token", "create")),),
}
"""Verbs below the one of a page."""
BUTTONS: Mapping[str, str] = {
    "verify": gettext_lazy("Verify"),
    "sync": gettext_lazy("Sync"),
    "connect": gettext_lazy("Connect"),
    "disconnect": gettext_lazy("Disconnect"),
    "edit": gettext_lazy("Edit"),
}
"""Verbs about a server that stand as buttons above its page, with their names there."""
ENTRIES = tuple(entry for section in SECTIONS for entry in section.entries)
SERVER_WORDS = ("mcp", "show")
"""Command line of the page of one server, before its name."""
_SLUG = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SUBJECTS = (CompletionSource.SERVERS, CompletionSource.PROFILES)


def command_path(words: Sequence[str]) -> str:
    """Return the path of the page of a command line, behind `/console`."""
    on_page = {SERVER_WORDS, *(section.words for section in sections_of(SERVER_WORDS))}
    if tuple(words[:-1]) in on_page and _SLUG.fullmatch(words[-1]):
        return f"{SERVERS_PATH}/{words[-1]}"
    entry = entry_of(words)
    path, rest = (entry.path, words[len(entry.words) :]) if entry else (f"/run/{words[0]}", words[1:])
    return f"{path}?{urlencode([('w', word) for word in rest])}" if rest else path


def sections_of(words: tuple[str, ...]) -> tuple[PageSection, ...]:
    """Return the verbs below a verb's page; `words` are its command and its path."""
    return _SECTIONS.get(words, ())


def entry_of(words: Sequence[str]) -> MenuEntry | None:
    """Return the entry of a command line; options may follow its words."""
    for entry in ENTRIES:
        count = len(entry.words)
        if count and tuple(words[:count]) == entry.words and all(word.startswith("--") for word in words[count::2]):
            return entry
    return None


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

    def may_run(self, verb: Verb, member: Member) -> bool:
        """Return True if a user may run a verb."""
        return is_allowed(verb, member, self._rights)

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

    def _may_open(self, entry: MenuEntry, member: Member) -> bool:
        if not entry.words:
            return True
        command, *words = entry.words
        found = find_verb(self._verbs.get(command, ()), words)
        return found is not None and is_allowed(found[0], member, self._rights)
