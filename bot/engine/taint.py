"""Information flow between tools: which calls take a signature because of the words that the model has read (ADR 17).

A conversation is tainted by the words that its model is given, whose sources are kept with every reply and summary
(`bot.engine.sources`). The table, for calls that a rule lets run:

| the call                                            | own  | shared | strangers |
|-----------------------------------------------------|------|--------|-----------|
| reads, nobody but the server learns of it           | runs | runs   | runs      |
| reads, the world may learn of it                    | runs | asks*  | asks*     |
| adds, closed                                        | runs | runs** | runs**    |
| adds, for the team                                  | runs | runs** | asks      |
| changes or deletes, closed or for the team          | runs | runs** | asks      |
| adds, changes or deletes, for the world             | runs | asks   | asks      |

*  if anything was read that its server has not said itself. Questions of other people do not count as read.
** asks if its server has a tool whose words count as own: what is written there would come back as own.

A tool of a server that is not marked trusted, and for which nothing is set, counts as one that reads: what it does is
not known, and its server knows what it has said.

A read whose arguments the person who asks has all written out carries nothing that was read: it runs.

A call whose recipients are all named in the words of the person who asks goes where that person wants: it counts as
closed. So does one that names no recipient at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.approvals import ApprovalPolicy
from bot.domain.flows import Sends, Words, holds_address
from bot.domain.policies import PolicyResult
from bot.domain.sources import OtherSource, PersonSource, Source, ToolSource
from bot.domain.tools import Tool, ToolSet

_MOST_NAMED = 3
_READS_OUTSIDE = "Its arguments could carry what was read from {} to the outside."
_SENDS_OUT = "It would send something to people outside the team."
_SENDS_ROUND = "It would send something to other people of the team."
_DESTROYS = "It may change or delete something."
_RETURNS_AS_OWN = "It would keep something that counts as your own words when it is read again."
_QUESTIONS = "other people's questions here"
_WRITERS = {Words.SHARED: "other people of the team", Words.STRANGERS: "strangers"}
_HELD = (ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER)
_NAME = r"[\w@.+-]"


@dataclass(frozen=True, slots=True)
class TaintSource:
    """A source of words that the model was given: what people call it, its server, and whose words it holds. `is_read`
    is False of what people say here: everybody here knows it, so that it gives nothing away.
    """

    label: str
    words: Words
    server_id: str = ""
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class Taint:
    """The words that the model was given when it asked for a call. `asked` are the texts that the person who asks has
    written; `offered` are the tools there are.
    """

    told: tuple[TaintSource, ...] = ()
    asked: tuple[str, ...] = ()
    offered: ToolSet = ToolSet()

    @property
    def words(self) -> Words:
        """The least trustworthy of the words."""
        return max((each.words for each in self.told), key=lambda words: words.rank, default=Words.OWN)

    def apply_policy(self, tool: Tool, arguments: Mapping[str, Any], found: PolicyResult) -> PolicyResult:
        """Return what holds for a call after all: asking instead of running, or asking for this reason, too."""
        reason = self.objection(tool, arguments) if found.ruling.policy in _HELD else ""
        if not reason:
            return found
        why = " ".join(filter(None, (found.ruling.why, reason)))
        return replace(found, ruling=replace(found.ruling, policy=ApprovalPolicy.ASK_USER, why=why, taint=self.words))

    def objection(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return why a person signs a call that a rule lets run; empty if it runs."""
        if self.words is Words.OWN:
            return ""
        sends = sends_of(tool, arguments, self.asked)
        known = tool.trusted or tool.flow.sends is not None
        if tool.read_only and _says_what_was_asked(tool, arguments, self.asked):
            what = ""
        elif tool.read_only or not known:
            what = self._read(tool, sends)
        elif _goes_where_asked(tool, arguments, self.asked):
            what = _DESTROYS if self.words is Words.STRANGERS and tool.destructive else ""
        else:
            what = self._written(tool, sends)
        if not what:
            return ""
        culprits = [each for each in self.told if each.words is self.words]
        return f"{what} The model has read {_names(culprits)}, where {_WRITERS[self.words]} may have written."

    def _read(self, tool: Tool, sends: Sends) -> str:
        """What a call that only reads could do to be signed for. A tool of which nothing is known is treated alike: its
        server would otherwise ask at every second call, whatever that does.
        """
        elsewhere = [each for each in self.told if each.is_read and each.server_id != tool.server_id]
        return _READS_OUTSIDE.format(_names(elsewhere)) if elsewhere and sends is Sends.WORLD else ""

    def _written(self, tool: Tool, sends: Sends) -> str:
        """What any other call would do to be signed for."""
        strangers = self.words is Words.STRANGERS
        match sends:
            case Sends.WORLD:
                return _SENDS_OUT
            case Sends.TEAM if strangers:
                return _SENDS_ROUND
            case _ if strangers and tool.destructive:
                return _DESTROYS
            case _:
                return _RETURNS_AS_OWN if self._returns_as_own(tool) else ""

    def _returns_as_own(self, tool: Tool) -> bool:
        """True if the tool's server has a reading tool whose words count as own."""
        return any(
            each.server_id == tool.server_id and each.read_only and each.words is Words.OWN
            for each in self.offered.tools
        )


UNTAINTED = Taint()


def taint_sources(sources: Iterable[Source], offered: ToolSet, asker: str) -> tuple[TaintSource, ...]:
    """Say whose words these sources hold, by the tools there are now, for `asker`, the principal who asks. A tool that
    is gone or has changed may have returned anything.
    """
    return tuple(dict.fromkeys(_told(each, offered) for each in sources if each != PersonSource(asker)))


def sends_of(tool: Tool, arguments: Mapping[str, Any], asked: Sequence[str] = ()) -> Sends:
    """Say where a call can send. `asked` are the texts in which the person who asks may have named its recipients."""
    flow, sends = tool.flow, tool.sends
    if flow.sends is None and tool.annotations.open_world is not False and holds_address(arguments):
        sends = Sends.WORLD
    return Sends.CLOSED if _goes_where_asked(tool, arguments, asked) else sends


def _goes_where_asked(tool: Tool, arguments: Mapping[str, Any], asked: Sequence[str]) -> bool:
    """True if the call has no recipients but those that the person who asks has named."""
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    names = tool.flow.recipients
    if not names or not all(name in known for name in names):
        return False
    recipients = [each for name in names for each in _leaves(arguments.get(name, _default(known[name])))]
    return all(_is_named(each, asked) for each in recipients)


def _says_what_was_asked(tool: Tool, arguments: Mapping[str, Any], asked: Sequence[str]) -> bool:
    """True if the person who asks has written out each argument, or it is its default, true, false or null. Such a call
    carries nothing that was read. Lists and objects do not count, because their order and number may carry something.
    """
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    for name, value in arguments.items():
        if value is None or isinstance(value, bool) or (name in known and value == _default(known[name])):
            continue
        # In the same case: upper and lower letters may carry something, too.
        if not isinstance(value, str | int | float) or not _stands_in(str(value), asked):
            return False
    return bool(arguments)


def _told(source: Source, offered: ToolSet) -> TaintSource:
    match source:
        case OtherSource():
            return TaintSource(source.label, Words.STRANGERS)
        case PersonSource():
            return TaintSource(_QUESTIONS, Words.SHARED, is_read=False)
        case ToolSource(server, name, server_id):
            tool = next(
                (each for each in offered.tools if (each.server_id, each.original_name) == (server_id, name)), None
            )
            return TaintSource(server, tool.words if tool and _is_still(source, tool) else Words.STRANGERS, server_id)


def _is_still(source: ToolSource, tool: Tool) -> bool:
    """True if the tool and its server's place are what they were."""
    return (source.definition, source.place) == (tool.definition, tool.place)


def _default(schema: object) -> object:
    return schema.get("default") if isinstance(schema, Mapping) else None


def _leaves(value: object) -> list[str]:
    """The texts and numbers in an argument, the keys of objects among them."""
    match value:
        case None | "":
            return []
        case Mapping():
            return [leaf for pair in value.items() for each in pair for leaf in _leaves(each)]
        case list() | tuple():
            return [leaf for each in value for leaf in _leaves(each)]
        case _:
            return [str(value)]


def _is_named(recipient: str, asked: Sequence[str]) -> bool:
    """True if the recipient stands in one of the texts as a word of its own, not as a part of a longer address."""
    # Not casefold(): it makes "ß" of a host name "ss", which is another host.
    return _stands_in(recipient.strip().lower(), [text.lower() for text in asked])


def _stands_in(wanted: str, asked: Sequence[str]) -> bool:
    pattern = rf"(?<!{_NAME}){re.escape(wanted)}(?![\w@]|[.+-]\w)"
    return bool(wanted) and any(re.search(pattern, text) for text in asked)


def _names(told: Sequence[TaintSource]) -> str:
    labels = list(dict.fromkeys(each.label for each in told))
    more = len(labels) - _MOST_NAMED
    shown = labels if more <= 0 else [*labels[:_MOST_NAMED], f"{more} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
